"""The whole chain, through Kaggle's own client, against the local Kaggle: what must work, and what
must fail by name.
"""

import csv
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
import pytest

from deploy.bundle import bundle
from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.errors import RunFailed
from deploy.kernel import artifact_manifest, output, push_and_watch
from deploy.project import Project
from deploy.relay import publish as datasets
from deploy.relay import relay
from deploy.relay import submit as submissions
from localkaggle.competitions import digits
from localkaggle.server import LocalKaggle
from pipeline import config as configs
from pipeline.data import dataset
from pipeline.submission import submission_csv as rules

ROOT = Path(__file__).resolve().parents[1]
PROMISED = {
    *("submission", "rows", "score", "train_kernel", "train_version", "dataset", "dataset_version"),
    *("infer_kernel", "infer_version", "seconds"),
}


def quiet(line: str) -> None:
    """Take a line that a user would see."""


@pytest.fixture(scope="session")
def dry_run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what `invoke dry-run --json` printed last, in a copy of the project: the developer's
    own runs are left alone.
    """
    copy = tmp_path_factory.mktemp("project") / "kaggle-relay"
    shutil.copytree(
        ROOT, copy, ignore=shutil.ignore_patterns(".*", "runs", "build", "tests", "docs")
    )
    config = copy / "pipeline/configs/digits.py"
    config.write_text(config.read_text().replace("epochs=40", "epochs=16"))
    done = subprocess.run(
        [sys.executable, "-m", "invoke", "dry-run", "--json"],
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    end: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return end


@pytest.fixture
def open_kaggle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[LocalKaggle, Kaggle]]]:
    """Return a function that starts a local Kaggle and signs in; no session of it gets the
    internet.
    """
    with ExitStack() as stack:

        def start(**options: Any) -> tuple[LocalKaggle, Kaggle]:
            options = {"queue_seconds": 0.05, "ready_seconds": 0.1, **options}
            local = stack.enter_context(LocalKaggle(tmp_path / "kaggle", offline=True, **options))
            return local, signed_in(local, monkeypatch)

        yield start


def signed_in(local: LocalKaggle, patch: pytest.MonkeyPatch) -> Kaggle:
    """Let the environment lead to a local Kaggle, and return a client of it."""
    for name, value in local.environment.items():
        patch.setenv(name, value)
    return Kaggle.connect(pace=Pace(first=0.05, most=0.2, patience=15))


def written(folder: Path, kernel: str, code: str, **metadata: Any) -> Path:
    """Write a folder of kernels with one that has this code, on infer-gpu's machine."""
    shutil.copytree(ROOT / "kernels" / "infer-gpu", folder / kernel)
    (folder / kernel / "notebook.py").write_text(f"# %%\n{code}\n")
    path = folder / kernel / "kernel-metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **metadata}))
    return folder


def pushed(kaggle: Kaggle, tmp_path: Path, kernel: str, **options: Any) -> push_and_watch.Run:
    """Build a kernel for digits and push it."""
    built = bundle.build(
        kernel,
        config="digits",
        competition="digits",
        owner=kaggle.username,
        out=tmp_path / "build",
        **options,
    )
    return push_and_watch.push(kaggle, built, timeout_seconds=3600)


def watched(kaggle: Kaggle, run: push_and_watch.Run) -> str:
    return push_and_watch.watch(kaggle, run, deadline_seconds=300, show=quiet)


# What must work


def test_the_dry_run_keeps_its_promise(dry_run):
    """One line of JSON at the end, with every key that scripts rely on, and a score that means
    something.
    """
    assert set(dry_run) >= PROMISED
    assert dry_run["score"] >= 0.97
    assert (dry_run["train_version"], dry_run["dataset_version"], dry_run["infer_version"]) == (
        1,
        1,
        1,
    )


def test_the_submission_has_a_row_for_every_id_of_the_sample(dry_run):
    """The file that was submitted is the file that is named."""
    with Path(dry_run["submission"]).open(newline="") as file:
        rows = list(csv.DictReader(file))

    assert len(rows) == dry_run["rows"] == 100
    assert set(rows[0]) == {"id", "label"}


def test_the_dry_run_leaves_pictures_to_look_at(dry_run):
    """Curves, confusion, images, predictions, time: each a real PNG."""
    names = {Path(path).name for path in dry_run["pictures"]}

    assert names == {"curves.png", "confusion.png", "images.png", "predictions.png", "time.png"}
    assert all(Path(path).read_bytes().startswith(b"\x89PNG") for path in dry_run["pictures"])


def test_the_notebooks_were_really_executed(dry_run):
    """Every code cell of both ran, in order, and the pictures are in them."""
    folder = Path(dry_run["submission"]).parent.parent
    for kernel, pictures in (("train-tpu", 4), ("infer-gpu", 1)):
        notebook = nbformat.read(
            folder / f"digits-{kernel}-v1" / "__notebook__.ipynb", as_version=4
        )
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]

        shown = [
            o
            for cell in code
            for o in cell.outputs
            if o.output_type == "display_data" and "image/png" in o.data
        ]

        assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
        assert len(shown) == pictures


def test_the_artifact_knows_the_bundle_that_made_it(dry_run):
    """From the submission back to the commit, without a gap."""
    folder = Path(dry_run["submission"]).parent.parent
    artifact = json.loads(
        (folder / "digits-train-tpu-v1" / "artifact" / "manifest.json").read_text()
    )
    trained = json.loads((folder / "digits-train-tpu-v1" / "bundle.json").read_text())
    inferred = json.loads((folder / "digits-infer-gpu-v1" / "bundle.json").read_text())

    assert artifact["bundle_sha256"] == trained["bundle_sha256"]
    assert inferred["expect"] == {name: artifact[name] for name in ("run_id", "weights_sha256")}


def test_an_unknown_competition_is_refused_before_anything_runs():
    """The local Kaggle says what it has, and the exit code says usage."""
    done = subprocess.run(
        [sys.executable, "-m", "invoke", "dry-run", "--config", "cifar100_wrn", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 2
    assert "digits" in json.loads(done.stdout.splitlines()[-1])["error"]
    assert "Traceback" not in done.stderr


def test_images_that_a_cpu_session_decoded_are_those_of_their_files(open_kaggle, tmp_path):
    """Where Kaggle mounts them, a training finds all of them; the same push again adopts it."""
    local, kaggle = open_kaggle(competitions=["digits"])
    path, text = tmp_path / "large.py", (ROOT / "pipeline/configs/digits.py").read_text()
    larger = text.replace("height=8, width=8", 'height=66, width=66, resize="stretch"')
    path.write_text(larger.replace('name="digits"', 'name="large"'))
    config = configs.load(str(path))
    words, places = (str(path), "digits", "dataset"), (tmp_path / "runs", tmp_path / "build")
    ours = Project(ROOT, *words, *places, decoding=config.data.decoding)

    run = relay.push(kaggle, ours, relay.PREPARE, show=quiet)
    assert watched(kaggle, run) == "COMPLETE"
    again = relay.push(kaggle, ours, relay.PREPARE, show=quiet)

    version, said = local.kernels.version(run.handle, run.version), []
    folder = local.competitions.folder("digits")
    found = dataset.read_training(folder, config, prepared=[version.working], show=said.append)
    assert again == run and version.shape == ""
    assert said[0].startswith("Found 1,197 of 1,197 images decoded")
    assert found.fingerprint == dataset.read_training(folder, config).fingerprint


# What must fail by name


def test_a_tpu_that_turns_out_to_be_a_cpu_stops_the_run_in_its_first_cell(open_kaggle, tmp_path):
    """An account that is not verified gets a CPU in silence; the notebook notices before it spends
    anything.
    """
    local, kaggle = open_kaggle(verified=False)
    run = pushed(kaggle, tmp_path, "train-tpu")

    with pytest.raises(RunFailed, match="Asked for TpuV5E8") as caught:
        watched(kaggle, run)

    assert caught.value.exit_code == 1
    assert "verified" in str(caught.value)
    assert local.kernels.version(run.handle, run.version).seconds < 60


def inferring(
    kaggle: Kaggle, tmp_path: Path, dry_run: dict[str, Any], **options: Any
) -> push_and_watch.Run:
    """Push infer-gpu for the artifact of the dry run."""
    artifact = Path(dry_run["submission"]).parent.parent / "digits-train-tpu-v1" / "artifact"
    found = artifact_manifest.verify(artifact)
    expect = {"run_id": found.run_id, "weights_sha256": found.weights_sha256}
    return pushed(kaggle, tmp_path, "infer-gpu", expect=expect, **options)


def changed(tmp_path: Path, before: str, after: str) -> Path:
    """Write a folder of kernels with infer-gpu, in whose notebook a text is replaced."""
    own = tmp_path / "kernels"
    shutil.copytree(ROOT / "kernels" / "infer-gpu", own / "infer-gpu")
    notebook = own / "infer-gpu" / "notebook.py"
    text = notebook.read_text()
    assert before in text
    notebook.write_text(text.replace(before, after, 1))
    return own


def published(kaggle: Kaggle, artifact: Path) -> datasets.DatasetVersion:
    handle = bundle.dataset_handle(kaggle.username, "digits")
    return datasets.publish(
        kaggle, artifact, handle, title=bundle.title(handle), deadline_seconds=60, show=quiet
    )


def test_an_inference_that_opens_a_socket_fails(open_kaggle, tmp_path, dry_run):
    """The internet is really off: with one more cell, the first, the same chain fails."""
    _, kaggle = open_kaggle()
    published(
        kaggle, Path(dry_run["submission"]).parent.parent / "digits-train-tpu-v1" / "artifact"
    )
    cell = "# %%\nimport socket\n\nsocket.create_connection(('192.0.2.1', 443), 5)\n\n"
    own = changed(tmp_path, "# %%", f"{cell}# %%")

    run = inferring(kaggle, tmp_path, dry_run, kernels=own)

    with pytest.raises(RunFailed, match="unreachable"):
        watched(kaggle, run)


def test_an_inference_refuses_the_artifact_of_another_run(open_kaggle, tmp_path, dry_run):
    """An old dataset version is mounted in place of the new one: it is named, and nothing is
    predicted.
    """
    _, kaggle = open_kaggle()
    trained = Path(dry_run["submission"]).parent.parent / "digits-train-tpu-v1" / "artifact"
    older = tmp_path / "older"
    shutil.copytree(trained, older)
    manifest = json.loads((older / "manifest.json").read_text())
    (older / "manifest.json").write_bytes(
        artifact_manifest.sealed({**manifest, "run_id": "digits-19990101-000000-abcdef"})
    )
    published(kaggle, older)
    # TensorFlow takes seconds longer to start; the dry run infers with it.
    own = changed(tmp_path, '"tensorflow"', '"jax"')

    run = inferring(kaggle, tmp_path, dry_run, kernels=own)

    with pytest.raises(RunFailed, match="digits-19990101-000000-abcdef"):
        watched(kaggle, run)


def test_bytes_that_changed_after_the_pull_are_not_published(open_kaggle, tmp_path, dry_run):
    """One flipped bit in the weights is found before anything is sent."""
    local, kaggle = open_kaggle()
    changed = tmp_path / "changed"
    shutil.copytree(
        Path(dry_run["submission"]).parent.parent / "digits-train-tpu-v1" / "artifact", changed
    )
    weights = bytearray((changed / "weights.npz").read_bytes())
    weights[len(weights) // 2] ^= 1
    (changed / "weights.npz").write_bytes(weights)

    with pytest.raises(RunFailed, match=r"weights\.npz"):
        published(kaggle, changed)

    assert not [call for call in local.journal if call[0] == "StartBlobUpload"]


# The six errors of a scored rerun. One notebook serves them all: in its rerun it does what mounted
# files say, as a notebook that behaves in sight and not on the hidden test set.

ANSWER = """
import csv, os, time
from pathlib import Path

assert "planted-secret" not in str(os.environ)
assert "KAGGLE_KEY" not in os.environ
print(sorted(os.environ))
inputs = Path("/kaggle/input")
rows = list(csv.reader(next(inputs.rglob("sample_submission.csv")).open()))
asked = {"before": "", "after": ""}
if os.environ.get("KAGGLE_IS_COMPETITION_RERUN"):
    asked = {name: next(inputs.rglob(name)).read_text() for name in asked}
exec(asked["before"])
with open("submission.csv", "w", newline="") as file:
    csv.writer(file).writerows(rows)
exec(asked["after"])
"""
RERUNS = {
    "Notebook Timeout": {"before": "time.sleep(600)", "seconds": 1.0},
    "Notebook Threw Exception": {"before": "raise ValueError('the hidden test set is larger')"},
    "Notebook Exceeded Allowed Compute": {"before": "filled = bytearray(10**9); time.sleep(600)"},
    "Submission CSV Not Found": {"after": "os.remove('submission.csv')"},
    "Submission Scoring Error": {"before": "rows = rows[:101]"},
}


@dataclass
class Scored:
    """A run that is complete and pulled, and a local Kaggle that reruns it.

    Attributes:
        local: hosts digits, whose score is `metric`.
        asked: the files "before" and "after", which a rerun executes.
        status: how the first run ended.
        folder: of the pulled run.
    """

    local: LocalKaggle
    asked: Path
    run: push_and_watch.Run
    status: str
    folder: Path
    metric: Callable[[Any, Any], float]

    def submit(
        self, patch: pytest.MonkeyPatch, *, before: str = "", after: str = "", seconds: float = 3600
    ) -> submissions.Submission:
        """Submit a version of its own, and return its score; a rerun takes `seconds` at most."""
        kaggle = signed_in(self.local, patch)
        kernel = self.local.kernels.kernels[self.run.handle]
        kernel.versions.append(replace(kernel.versions[0], number=len(kernel.versions) + 1))
        (self.asked / "before").write_text(before)
        (self.asked / "after").write_text(after)
        patch.setitem(self.local.session_seconds, "GPU", seconds)
        return submissions.submit(
            kaggle,
            replace(self.run, version=len(kernel.versions)),
            "digits",
            submission=self.folder / "submission.csv",
            check=partial(rules.check, constant=True),  # it predicts one and the same label
            message="test",
            deadline_seconds=300,
            show=quiet,
            command="invoke {}".format,
        )


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scored]:
    """Return one run for all reruns. Its first run had a secret of this machine around it."""
    folder = tmp_path_factory.mktemp("scored")
    (folder / "asked").mkdir()
    embedded = digits()
    hosted = replace(
        embedded,
        score=lambda given, solution: made.metric(given, solution),
        daily_submissions=100,
    )
    kernels = written(folder / "kernels", "score-gpu", ANSWER, dataset_sources=["ann/asked"])
    with LocalKaggle(
        folder / "kaggle",
        competitions=[hosted],
        datasets={"ann/asked": folder / "asked"},
        offline=True,
        queue_seconds=0.05,
        memory_bytes=8 * 10**8,  # several times what a run takes, and less than the largest rerun
    ) as local:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret")
            kaggle = signed_in(local, patch)
            run = pushed(kaggle, folder, "score-gpu", kernels=kernels)
            status = watched(kaggle, run)
            pulled = output.pull(kaggle, run, folder / "runs")
        made = Scored(local, folder / "asked", run, status, pulled, embedded.score)
        yield made


@pytest.mark.parametrize("error", RERUNS)
def test_each_error_of_a_scored_rerun_is_told_with_its_cause(error, scored, monkeypatch):
    """Kaggle's own name, and what usually causes it."""
    with pytest.raises(RunFailed, match=error) as caught:
        scored.submit(monkeypatch, **RERUNS[error])

    assert re.search(r"Expected a score\. \w+", str(caught.value))


def test_a_fault_of_kaggle_itself_is_told_as_such(scored, monkeypatch):
    """The sixth error is not the notebook's."""

    def broken(given: Any, solution: Any) -> float:
        raise RuntimeError("the metric fell over")

    monkeypatch.setattr(scored, "metric", broken)

    with pytest.raises(RunFailed, match="Kaggle Error"):
        scored.submit(monkeypatch)


def test_the_rerun_meets_the_hidden_test_set_and_is_scored_on_it(scored, monkeypatch):
    """A constant answer is right for about a tenth of the digits."""
    assert scored.submit(monkeypatch).score == pytest.approx(0.1, abs=0.02)


def test_no_credential_of_this_machine_reaches_a_session(scored):
    """The environment of a run is made from nothing. Its notebook throws if it holds a secret."""
    assert scored.status == "COMPLETE"
