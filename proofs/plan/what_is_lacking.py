"""What a plan still says where something that it needs is not there."""

import subprocess
import sys
from pathlib import Path

from proofs.shared import module_process
from proofs.shared.results_table import Row

MAIN = "import sys; {before}; from pipeline.__main__ import main; sys.exit(main(sys.argv[1:]))"
HIDDEN = "sys.modules['libtpu'] = None"  # Python then finds no such package
BROKEN = """from pipeline.config import Config, Data, Optimizer
from keras import layers

def model(images, num_classes, batchnorm_momentum):
    x = layers.Dense(3, name="three")(layers.Flatten(name="flat")(images))
    return layers.Add(name="sum")([x, layers.Dense(4, name="four")(x)])

CONFIG = Config(
    name="broken", competition="none", num_classes=2, model="model",
    data=Data(height=32, width=32, channels=3, crop_padding=0),
    optimizer=Optimizer(name="adam", base_rate=1e-3, base_batch=64), batch=64, epochs=30,
)
"""


def row(root: Path, folder: Path) -> Row:
    """Return the row."""
    config = folder / "broken.py"
    config.write_text(BROKEN)
    # What is lacking: words, what is said, exit code, and how the process begins.
    digits = ("--config", "digits", "--for", "tpu-v5e-8", "--images", "1000")
    cases = {
        "libtpu": (digits, "estimated, since libtpu is not installed", 0, ()),
        "the network": (digits, "compiled in", 0, ("unshare", "--map-root-user", "--net")),
        "a model that can be built": (
            ("--config", config, "--for", "gpu-t4x2"), "the model is not built", 2, ()
        ),
        "the data": ((*digits[:4], "--input", folder / "none"), "there is no such folder", 2, ()),
    }  # fmt: skip
    told, right = [], 0
    for lacking, (words, said, code, begins) in cases.items():
        before = HIDDEN if lacking in ("libtpu", "the data") else "pass"
        done = subprocess.run(
            [*begins, sys.executable, "-c", MAIN.format(before=before), "plan", *map(str, words)],
            cwd=root, env=module_process.environment(root), capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        table = "memory a core" in done.stdout and "Kaggle" in done.stdout
        good = table and done.returncode == code and said in done.stdout + done.stderr
        right += good
        told.append(f"{lacking}: exit {done.returncode}, {'said' if good else 'not said'}")
    return Row(
        "A plan without libtpu, network, a model that can be built, or data",
        "says which, and the rest of the table, for 4 of 4",
        f"{right} of {len(cases)}; {'; '.join(told)}",
        right == len(cases),
    )
