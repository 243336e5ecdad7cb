"""What Kaggle gives a run and keeps of it, where nobody has seen it: inputs, outputs, machines.

Each row runs against a local Kaggle that behaves as was reported, or as it might.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.errors import NoQuota, RunFailed, Unverified
from deploy.kernel import output, push_and_watch
from deploy.project import PAIR, Project
from deploy.relay import chained_sessions, relay
from deploy.setup import kaggle_images
from localkaggle.facts import Facts
from localkaggle.server import LocalKaggle
from localkaggle.services.kernels import Version
from localkaggle.sessions.session import Outcome
from proofs.shared import environment
from proofs.shared.results_table import Later, Row, Rows, Show, last_json
from proofs.site import two_processes
from proofs.training.chained_sessions import signed_in
from tests.faults.recorded_session import Recorded, seal
from tests.faults.world import competition

ROOT = Path(__file__).resolve().parents[2]
TRAINING = "rehearsal/digits-train-tpu"
PACE = Pace(first=0.05, most=0.4, patience=30)
MOUNT_SECONDS = 0.15  # less than what a publish waits by that pace
LEAST = 0.97  # of digits' accuracy
# A session of the TPU ends itself after so many hours, in the middle of the epochs.
HOURS, EPOCHS = 30 / 3600, 200
CONFIGS = ROOT / "pipeline" / "configs"
# Beside what a run writes: what Kaggle may not list, or may serve with other bytes.
BESIDE = {".hidden": b"x", "empty.txt": b"", "history.csv": b"epoch\n1\n", "a/.b/c.txt": b"c"}
KEPT = Facts(hidden_files=False, empty_files=False, rewritten=("history.csv",))
LOOKS = """# %%
from pathlib import Path

from pipeline.runtime import mounts

inputs = mounts.root() / "input"
print("found", mounts.competition(inputs, "digits", "sample_submission.csv"))
print("found", mounts.file(inputs, "ann/weights/b0.h5"))
Path("submission.csv").write_text("id,label\\n1,0\\n")
"""


def rows(*, short: bool, show: Show) -> Rows:
    """Yield the rows; `short` leaves out those that run a notebook."""
    yield changed_outputs()
    yield late_mounts()
    if short:
        return
    yield Later("4. Pretrained weights", denied_internet)
    yield Later("14. A competition and a dataset", both_layouts)
    yield Later("20. Inference in two processes", two_processes.row)
    yield Later("A training on the pair of T4", one_gpu)
    yield Later("A training that begins on the TPU", partial(from_tpu_to_pair, show))
    yield Later("12. The chain with the pins", partial(images, ROOT, show))


@contextmanager
def opened(**options: Any) -> Iterator[tuple[LocalKaggle, Kaggle, Path]]:
    """Give a local Kaggle, a client of it that the environment leads there, and an empty folder."""
    folder = Path(tempfile.mkdtemp(prefix="prove-outputs-"))
    given = {"competitions": ["digits"], "queue_seconds": 0.05, "ready_seconds": 0.05, **options}
    try:
        with LocalKaggle(folder / "kaggle", **given) as local, signed_in(local):
            yield local, Kaggle.connect(pace=PACE), folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def project(folder: Path, config: str = "digits", **more: Any) -> Project:
    """Return a project whose records lie in the folder."""
    words = (config, "digits", "dataset")
    return Project(ROOT, *words, folder / "runs", folder / "build", deadline_seconds=1800, **more)


def written(folder: Path, shipped: str, name: str, **values: Any) -> str:
    """Write a config like a shipped one, with another name and other values; return its path."""
    text = (CONFIGS / f"{shipped}.py").read_text(encoding="utf-8")
    text = text.replace(f'name="{shipped}"', f'name="{name}"')
    for field, value in values.items():
        line = f"    {field}={value!r},"
        text, there = re.subn(rf"^    {field}=.*,$", line, text, flags=re.MULTILINE)
        if not there:
            text = text.replace("    epochs=", f"{line}\n    epochs=", 1)
    (folder / f"{name}.py").write_text(text)
    return str(folder / f"{name}.py")


def quiet(line: str) -> None:
    """Take a line that a user would see."""


def failure(kaggle: Kaggle, ours: Project) -> str:
    """Push a training, watch it, and return how it failed."""
    run = relay.push(kaggle, ours, relay.TRAIN, show=quiet)
    try:
        relay.watch(kaggle, ours, run, show=quiet)
    except RunFailed as error:
        return str(error)
    return "it ended as COMPLETE"


def cell(said: str, version: Version | None) -> int:
    """Return which of a notebook's own cells failed, those of the package not counted; 0: none."""
    number = re.search(r"The failing cell is In \[(\d+)\]", said)
    if number is None or version is None:
        return 0
    sources = [each["source"] for each in json.loads(version.notebook)["cells"]]
    package = 2 + sum("".join(source).startswith("%%writefile") for source in sources)
    return int(number[1]) - package


def words(said: str) -> str:
    """Return what the failing cell said, cut."""
    found = re.search(r"The failing cell said: (.{0,120})", said)
    return found[1] if found else said.splitlines()[0]


def denied_internet() -> Row:
    """Return the row of a session that asks for the internet and silently gets none."""
    with opened(facts=Facts(internet=False)) as (local, kaggle, folder):
        options = {"pretrained": "imagenet", "dropout": 0.2}
        config = written(folder, "digits_mobilenet", "pretrained", model_options=options)
        said = failure(kaggle, project(folder, config))
        number = cell(said, local.kernels.version(TRAINING, 1))
    gave = (line for line in said.splitlines() if line.startswith("Kaggle gave"))
    advice = next(gave, "no advice")
    return Row(
        "4. Pretrained weights on an account that silently gets no internet",
        "the first cell ends; the advice is to verify the phone",
        f"cell {number}: {words(said)}; {advice}",
        number == 1 and "no internet" in said and "Verify the phone" in advice,
    )


def both_layouts() -> Row:
    """Return the row of inputs that are mounted at both places at once."""
    places = []
    for layout in ("2026", "flat", "both"):
        with tempfile.TemporaryDirectory() as scratch:
            weights = Path(scratch) / "weights"
            weights.mkdir()
            (weights / "b0.h5").write_bytes(b"arrays")
            with opened(layout=layout, datasets={"ann/weights": weights}) as (_, kaggle, folder):
                kernels = folder / "kernels"
                shutil.copytree(ROOT / "kernels" / "prepare-cpu", kernels / "prepare-cpu")
                (kernels / "prepare-cpu" / "notebook.py").write_text(LOOKS)
                ours = project(folder, kernels=kernels)
                built = relay.build(ours, relay.PREPARE, kaggle.username)
                metadata = {**built.metadata, "dataset_sources": ["ann/weights"]}
                built = replace(built, metadata=metadata)
                run = push_and_watch.push(kaggle, built, timeout_seconds=600)
                try:
                    relay.watch(kaggle, ours, run, show=quiet)
                    log = "\n".join(kaggle.kernel_log(run.handle, run.version))
                except RunFailed as error:
                    log = str(error)
                places.append((layout, re.findall(r"found \S*input/(\S+)", log)))
    return Row(
        "14. A competition and a dataset under the layout of 2026, the flat one, and both at once",
        "each is found once",
        "; ".join(f"{layout}: {' and '.join(found) or 'refused'}" for layout, found in places),
        all(len(found) == 2 for _, found in places),
    )


class Beside(Recorded):
    """A recorded training that writes more files, before it lists all of them."""

    def run(self) -> Outcome:
        """Write the output of a run and report success."""
        outcome = super().run()
        for name, content in BESIDE.items():
            (self.working / name).parent.mkdir(parents=True, exist_ok=True)
            (self.working / name).write_bytes(content)
        (self.working / output.OUTPUTS).unlink()
        seal(self.working)
        return outcome


def changed_outputs() -> Row:
    """Return the row of outputs that Kaggle does not keep as the run wrote them."""
    figures, passed = [], True
    for name, facts in {
        "hidden, empty and rewritten files": KEPT,
        "a rewritten weights.npz": Facts(rewritten=("artifact/weights.npz",)),
    }.items():
        lines: list[str] = []
        given: Mapping[str, Any] = {"session": Beside, "competitions": [competition()]}
        with opened(facts=facts, **given) as (_, kaggle, folder):
            ours = project(folder)
            run = relay.push(kaggle, ours, relay.TRAIN, show=quiet)
            relay.watch(kaggle, ours, run, show=quiet)
            try:
                pulled = relay.pull(kaggle, ours, run, show=lines.append)
            except Unverified as error:
                figures.append(f"{name}: {str(error).splitlines()[0]}")
                passed = passed and facts is not KEPT and "weights.npz" in str(error)
                continue
            note = output.noted(pulled)
            differing = sorted(note.differing) if note else []
            figures.append(f"{name}: pulled, and {', '.join(differing)} named")
            passed = passed and facts is KEPT and differing == sorted(set(BESIDE))
    return Row(
        "15. A pull of a run of which Kaggle lists or serves some files otherwise",
        "refused only for artifact, checkpoints or submission; the others are named",
        "; ".join(figures),
        passed,
    )


def late_mounts() -> Row:
    """Return the row of a dataset version that is READY and not mounted yet."""
    seen: list[Path] = []

    class Seen(Recorded):
        def __init__(self, *words: Any, **given: Any) -> None:
            super().__init__(*words, **given)
            places = given["inputs"].items()
            seen.extend(path for place, path in places if place.startswith("datasets/"))

    facts = Facts(mount_seconds=MOUNT_SECONDS)
    with opened(facts=facts, session=Seen, competitions=[competition()]) as (local, kaggle, folder):
        newest = []
        for config in ("digits", written(folder, "digits", "another")):
            ours = project(folder, config)
            run = relay.push(kaggle, ours, relay.TRAIN, show=quiet)
            relay.watch(kaggle, ours, run, show=quiet)
            trained = relay.pull(kaggle, ours, run)
            relay.publish(kaggle, ours, run, trained, show=quiet)
            artifact = trained / output.ARTIFACT
            relay.push(kaggle, ours, relay.INFER, artifact=artifact, show=quiet)
            versions = local.datasets.datasets["rehearsal/digits-artifact"].versions
            newest.append(versions[-1].folder)
    numbers = [path.name.rpartition("v")[2] for path in seen]
    return Row(
        f"19. An inference pushed right after a publish, where a version that is READY is mounted"
        f" {MOUNT_SECONDS:g} s later",
        "sees version 1, and then version 2",
        f"sees version {' and then version '.join(numbers) or 'none'}",
        seen == newest and len(newest) == 2,
    )


def one_gpu() -> Row:
    """Return the row of a pair of T4 of which JAX sees one."""
    with opened(facts=Facts(gpus=1), offline=True) as (local, kaggle, folder):
        said = failure(kaggle, project(folder, runtime=PAIR))
        version = local.kernels.version(TRAINING, 1)
        number, shape = cell(said, version), version.shape if version else "none"
    lacks = re.search(r"the image: (it has jax .*?);?$", said, re.MULTILINE)
    return Row(
        "A training on the pair of T4 of which JAX sees one",
        "the first cell ends; it says what the image has and lacks",
        f"{shape}, cell {number}: {words(said)}; {lacks[1] if lacks else 'nothing of the image'}",
        shape == "NvidiaTeslaT4" and number == 1 and "found 1 x" in said and lacks is not None,
    )


def from_tpu_to_pair(show: Show) -> Row:
    """Return the row of a training that begins on the TPU and ends on the pair, with its score."""
    with opened(offline=True) as (local, kaggle, folder):
        values = {"epochs": EPOCHS, "session_hours": HOURS, "checkpoint_seconds": 4}
        config = written(folder, "digits", "moved", handoff="kernel", **values)
        ours = replace(project(folder, config), handoff="kernel")

        def tell(line: str) -> None:
            show(f"        {line.splitlines()[0][:150]}")

        run = relay.push(kaggle, ours, relay.TRAIN, show=tell)
        relay.watch(kaggle, ours, run, show=tell)
        local.kernels.used_seconds["TPU"] = 1e6
        try:
            relay.push(kaggle, ours, relay.TRAIN, show=tell)
            said = "another session on the TPU"
        except NoQuota as error:
            said = str(error).splitlines()[-1]
        pair = replace(ours, runtime=PAIR)
        done = chained_sessions.train(kaggle, pair, show=tell)
        artifact = done.folder / output.ARTIFACT
        infer = relay.push(kaggle, pair, relay.INFER, artifact=artifact, show=tell)
        relay.watch(kaggle, pair, infer, show=tell)
        inferred = relay.pull(kaggle, pair, infer, show=tell)
        scored = relay.submit(kaggle, pair, infer, inferred, check=_unchecked, show=tell)
        versions = local.kernels.kernels[done.run.handle].versions
        shapes = [version.shape for version in versions]
        steps = [str(row["left"]) for row in reversed(ours.journal().recent("pushes", 100))]
    resumed = shapes[0] == "TpuV5E8" and set(shapes[1:]) == {"NvidiaTeslaT4"}
    return Row(
        "A training that begins on the TPU, whose quota then ends, and resumes on two T4; the"
        " inference mounts its output",
        f"the refusal names the command; ≥ {LEAST}",
        f"{said!r}; {', '.join(shapes)}; {steps[0]}, then {steps[-2]}; {scored.score}",
        resumed and said.endswith(f"--for {PAIR}") and float(scored.score or 0) >= LEAST,
        seed=0,
    )


def _unchecked(submission: Path, sample: Path) -> int:
    """Leave the check of the submission to the server."""
    return len(submission.read_text().splitlines()) - 1


def images(root: Path, show: Show) -> Iterator[Row]:
    """Yield a row for each image's pins of the GPU, with those of the TPU in the other notebook."""
    pins = kaggle_images.images(root)
    folder = Path(tempfile.mkdtemp(prefix="prove-images-"))
    try:
        own = environment.current(root).programs
        checkout = environment.Checkout(environment.clone(root, folder / "project"), own)
        programs = {each.name: _installed(checkout.root, folder, each, show) for each in pins}
        tpu = next(each.name for each in pins if each.accelerator == "TPU")
        for each in pins:
            if each.accelerator != "GPU":
                continue
            paths = f"--tpu-python {programs[tpu][0]} --gpu-python {programs[each.name][0]}"
            show(f"      invoke dry-run --json {paths}")
            log = folder / f"{each.name}.log"
            done = checkout.run(f"python -m invoke dry-run --json {paths}", log=log)
            score = last_json(done.output).get("score", 0.0) if not done.code else 0.0
            yield Row(
                f"12. The chain with the pins of {tpu} in its train notebook, and of {each.name} in"
                " the other",
                f"exit 0, ≥ {LEAST}",
                f"exit {done.code}, {score:.4f}; {programs[tpu][1]}, and {programs[each.name][1]}",
                not done.code and score >= LEAST,
                seed=0,
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


VERSIONS = (
    "import platform; from importlib.metadata import version as v; print('Python',"
    " platform.python_version(), *[f'{n} {v(n)}' for n in ('keras', 'jax', 'numpy')])"
)


def _installed(
    root: Path, folder: Path, image: kaggle_images.Image, show: Show
) -> tuple[Path, str]:
    """Install an image's pins into an environment of its Python, where this machine has that one;
    return the interpreter, and its versions in words.
    """
    place, python = folder / image.name, _python(image.versions.get("python", ""))
    show(f"      {image.name} with {python}")
    subprocess.run([python, "-m", "venv", str(place)], check=True)
    own = place / "bin" / "python"
    pins = root / "constraints" / f"{image.name}.txt"
    subprocess.run([str(own), "-m", "pip", "install", "-q", str(root), "-c", str(pins)], check=True)
    done = subprocess.run([str(own), "-c", VERSIONS], capture_output=True, text=True, check=True)
    return own, done.stdout.strip()


def _python(version: str) -> str:
    """Return a Python of that version, as 3.13; another one that is here, where it is not."""
    names = [f"python{version}", *_of_pyenv(version), "python3"]
    return next(path for name in names if (path := shutil.which(name)) and _runs(path))


def _of_pyenv(version: str) -> list[str]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return [str(path) for path in sorted(root.glob(f"versions/{version}.*/bin/python"))]


def _runs(python: str) -> bool:
    """Return whether it does: a shim may stand for a Python that is not chosen."""
    return subprocess.run([python, "--version"], capture_output=True).returncode == 0
