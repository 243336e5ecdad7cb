"""Nothing makes an accelerator wait; what a step takes of a TPU; what precision changes."""

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from proofs.hardware import compiled, feeding, gpu, half, one_image, resident, updates
from proofs.shared import module_process
from proofs.shared.results_table import Later, Row, Rows, Show, last_json
from proofs.training import killed_runs

WORKERS, KILLS = 1, 6
FEW = 1, 8  # devices, in the short form


def rows(root: Path, *, short: bool, show: Show, pictures: Path | None = None) -> Rows:
    """Yield the rows; `short` times nothing, and compiles little."""
    with tempfile.TemporaryDirectory(prefix="prove-hardware-") as scratch:
        folder = Path(scratch)
        if short:
            yield from _short(root, folder)
            return
        yield Later(updates.PLAIN, partial(updates.rows, root))
        yield Later("same batches", partial(resident.same_rows, root, folder))
        yield Later("digits for a TPU", partial(_digits, root))
        yield Later("one image", partial(one_image.rows, root, folder / "one"))
        yield Later("kills", partial(_killed, root, folder))
        yield Later("Gather and Augmented", partial(feeding.rows, root))
        yield Later("An epoch fed", partial(resident.speed_rows, root, folder / "speed"))
        yield Later("trained in bfloat16", partial(half.rows, root, folder / "half"))
        yield Later("Compiled for v5e:2x4", partial(compiled.rows, root))
        yield Later("On an NVIDIA GPU", partial(gpu.rows, root, folder / "gpu"))


def _short(root: Path, folder: Path) -> Iterator[Row]:
    """Yield the rows that take seconds. Nothing is timed, so what runs in a process of its own runs
    beside what this process computes.
    """
    with ThreadPoolExecutor() as pool:
        exact = pool.submit(updates.measured_apart, root, "float64", short=True)
        compiled_step = pool.submit(lambda: list(_digits(root)))
        rounded = updates.measured("float32", short=True)
        same = resident.judged_same(resident.same(folder, FEW), FEW)
        yield from updates.judged({"float64": exact.result(), "float32": rounded})
        yield same
        yield from compiled_step.result()


def _digits(root: Path) -> Iterator[Row]:
    if find_spec("libtpu") is None:
        yield Row(
            "Compiled for a TPU v5e-8 without one: a step of digits",
            "memory, operations, traffic and collectives; it fits",
            "not measured: libtpu is not installed (pip install -e '.[plan]')",
            False,
        )
        return
    yield compiled.short_row(compiled.one(root, "digits"))


def _killed(root: Path, folder: Path) -> Iterator[Row]:
    """Kill runs whose images lie on two devices; the unbroken run is fed by the host."""
    words = ("proofs.training.killed_runs", folder / "killed", WORKERS, KILLS, resident.SEED)
    flags = "--xla_force_host_platform_device_count=2"
    done = module_process.output(
        root, *words, killed_runs.EPOCHS, "device", flags=flags, compiled=folder / "compiled"
    )
    whole, *broken = (killed_runs.Run(**last_json(line)) for line in done.splitlines())
    kills = sum(len(run.kills) for run in broken)
    same = [run.weights == whole.weights and run.batches == whole.batches for run in broken]
    errors = [text for run in broken for text in run.unrecoverable]
    yield Row(
        "kill -9 of runs whose images lie on two devices, beside an unbroken one that the host"
        " feeds",
        "every step's images, labels and draws, and the weights, bit-equal",
        f"{kills} kills, {sum(same)} of {len(same)} runs bit-equal, {len(whole.batches)} batches"
        + "".join(errors)[:200],
        kills == WORKERS * KILLS and all(same) and len(whole.batches) > 100,
        resident.SEED,
    )
