"""The tasks that talk to Kaggle: their calls, and what they refuse to send.

Small notebooks really run on the local Kaggle.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.given import CUSTOM, write_config
from tests.doors.world import World, opened
from tests.faults.world import competition

SEAL = """# %%
import csv, glob, hashlib, json, os, time
from pathlib import Path


def about(path):
    return {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "size": path.stat().st_size}


def seal():
    files = [path for path in Path().rglob("*") if path.is_file() and path.suffix != ".ipynb"]
    listed = {path.as_posix(): about(path) for path in files}
    Path("outputs.json").write_text(json.dumps({"files": listed}))


def mounted(name):  # where a machine has no namespaces, inputs are links
    root = os.environ.get("LOCALKAGGLE_ROOT", "/kaggle")
    return Path(glob.glob(f"{root}/input/**/{name}", recursive=True)[0])
"""
TRAIN = f"""{SEAL}
origin = json.loads(Path("bundle.json").read_text())
Path("artifact").mkdir()
weights = Path("artifact/weights.npz")
weights.write_bytes(origin["bundle_sha256"].encode() * 50)
manifest = {{
    "format": 1,
    "run_id": "tiny-1",
    "config": {{"name": "tiny"}},
    "weights_sha256": about(weights)["sha256"],
    "bundle_sha256": origin["bundle_sha256"],
    "files": {{"weights.npz": about(weights)}},
}}
text = json.dumps(manifest, indent=2, sort_keys=True) + "\\n"
manifest["manifest_sha256"] = hashlib.sha256(text.encode()).hexdigest()
text = json.dumps(manifest, indent=2, sort_keys=True) + "\\n"
Path("artifact/manifest.json").write_text(text)
print(json.dumps({{"step": 1, "steps": 1, "loss": 0.5, "eta_seconds": 0}}))
seal()
"""
# In a scored rerun it executes mounted files.
INFER = f"""{SEAL}
rows = list(csv.reader(mounted("sample_submission.csv").open()))
asked = dict.fromkeys(("before", "after"), "")
if os.environ.get("KAGGLE_IS_COMPETITION_RERUN"):
    asked = {{name: mounted(name).read_text() for name in asked}}
exec(asked["before"])
with open("submission.csv", "w", newline="") as file:
    csv.writer(file).writerows(rows)
seal()
exec(asked["after"])
"""
# It needs no --yes, since it spends nothing.
FOLLOW: tuple[str, dict[str, int], int] = ("submit --constant", {}, 2)
# In order: a task, the calls that change something, and the limit of those that read, but waits.
CHAIN: tuple[tuple[str, dict[str, int], int], ...] = (
    ("push-train --yes", {"SaveKernel": 1}, 8),
    ("push-train --yes", {}, 3),
    ("status", {}, 3),
    ("watch", {}, 3),
    ("pull", {}, 2),
    ("pull", {}, 2),
    ("publish", {"StartBlobUpload": 2, "CreateDataset": 1}, 5),
    ("publish", {}, 3),
    ("push-infer --yes", {"SaveKernel": 1}, 8),
    ("push-infer --yes", {}, 1),
    ("watch --kernel infer-gpu", {}, 3),
    ("pull --kernel infer-gpu", {}, 2),
    ("submit --yes --constant", {"CreateCodeSubmission": 1}, 7),
    FOLLOW,
    ("status", {}, 3),
)
KERNELS = ("train-tpu", "infer-gpu")
WAITS = {"GetDatasetStatus", "GetDataset", "GetSubmission"}
READS = ("Get", "List", "Download")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Return a world with small notebooks and no pushes."""
    folder = tmp_path_factory.mktemp("world")
    asked = folder / "asked"
    asked.mkdir()
    hosting = {"datasets": {"ann/asked": asked}, "memory_bytes": 8 * 10**8}
    with opened(folder, competitions=[competition()], **hosting) as world:
        write_config(world.project / "pipeline" / "configs", competition="digits")
        kernels = world.project / "kernels"
        (kernels / "train-tpu" / "notebook.py").write_text(TRAIN)
        (kernels / "infer-gpu" / "notebook.py").write_text(INFER)
        path = kernels / "infer-gpu" / "kernel-metadata.json"
        mounts = {"dataset_sources": ["ann/asked"]}
        path.write_text(json.dumps(json.loads(path.read_text()) | mounts))
        ask(world)
        yield world


def ask(world: World, *, before: str = "", after: str = "") -> None:
    """Let later reruns execute this, before and after they write their file."""
    asked = world.local.folder.parent / "asked"
    (asked / "before").write_text(before)
    (asked / "after").write_text(after)


@pytest.fixture(scope="module")
def chain(world: World) -> list[tuple[int, str, Counter[str]]]:
    """Return how each task of the chain ended."""
    made = []
    for task, *_ in CHAIN:
        made.append(world(*task.split()))
        world.ended()
    return made


@pytest.mark.parametrize("place", range(len(CHAIN)), ids=[task for task, *_ in CHAIN])
def test_a_task_sends_each_thing_once_with_few_calls(chain, place):
    """The same task again sends nothing."""
    (_, sends, asks), (code, shown, calls) = CHAIN[place], chain[place]

    assert code == 0, shown
    sent = {name: number for name, number in calls.items() if not name.startswith(READS)}
    asked = [name for name in calls.elements() if name.startswith(READS) and name not in WAITS]
    assert sent == sends
    assert len(asked) <= asks, calls


def test_a_pull_has_the_output_of_the_run_without_its_code(world, chain):
    for kernel in KERNELS:
        version = world.local.kernels.version(f"rehearsal/digits-{kernel}", 1)
        folder = world.project / "runs" / f"digits-{kernel}-v1"
        pulled = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}

        ours = {Path(".pulled.json"), Path(f"digits-{kernel}.log")}
        assert pulled == {Path(name) for name in version.files()} | ours
        for name in version.files():
            assert (folder / name).read_bytes() == (version.working / name).read_bytes()
        assert not [path for path in pulled if "pipeline" in path.parts]
        run = json.loads((folder / ".pulled.json").read_bytes())["run"]
        assert run == f"rehearsal/digits-{kernel}/1"


def test_the_published_model_is_the_one_that_was_pulled(world, chain):
    (dataset,) = [each for name, each in world.local.datasets.datasets.items() if "ann" not in name]
    pulled = world.project / "runs" / "digits-train-tpu-v1" / "artifact"

    for path in pulled.iterdir():
        assert (dataset.versions[0].folder / path.name).read_bytes() == path.read_bytes()


def test_the_status_shows_each_push_and_the_score(world, chain):
    lines = [line.split() for line in chain[-1][1].splitlines()]

    runs = [["now", f"rehearsal/digits-{kernel}/1", "COMPLETE"] for kernel in KERNELS]
    assert [line for line in lines if line[0] == "now"] == runs
    assert "0.5" in chain[CHAIN.index(FOLLOW)][1]
    assert world.counts() == (2, 2, 1)  # one dataset belongs to another user


SECRET = "AKIA" + "Q7XK2M4N5P6R8S9T"


@pytest.mark.parametrize(
    ("before", "after", "code", "said"),
    [
        ("\nCONFIG", f"\nKEY = '{SECRET}'\nCONFIG", 2, "tiny.py"),
        ("'digits'", "'nowhere'", 2, "The competition 'nowhere' does not exist"),
        ("'model': 'mlp'", "'model': 'mpl'", 2, "expected one of small_cnn"),
        ("'model': 'mlp'", "'loss': 'mine', 'model': 'mlp'", 2, "depend on the labels"),
    ],
)
def test_a_config_that_cannot_work_is_not_pushed(world, chain, before, after, code, said):
    text = (world.project / "pipeline" / "configs" / "tiny.py").read_text()
    path = world.project / "changed" / "tiny.py"
    path.parent.mkdir(exist_ok=True)
    assert before in text
    path.write_text(text.replace(before, after, 1) + CUSTOM)

    refused(world("push-train", "--yes", config=str(path)), code, said)


@pytest.mark.parametrize(
    ("task", "path", "before", "after", "code", "said"),
    [
        ("push-train", "kernels/train-tpu/kernel-metadata.json", "true", "false", 2, "private"),
        (
            "push-infer",
            "runs/digits-train-tpu-v1/artifact/weights.npz",
            "^.",
            "x",
            1,
            "weights.npz",
        ),
        ("publish", "runs/digits-train-tpu-v1/artifact/weights.npz", "^.", "x", 1, "weights.npz"),
        ("submit", "runs/digits-infer-gpu-v1/submission.csv", "a,", "c,", 1, "submission.csv"),
    ],
)
def test_a_changed_file_is_not_sent(world, chain, task, path, before, after, code, said):
    text = (world.project / path).read_text()
    changed = re.sub(before, after, text, count=1)
    assert changed != text
    (world.project / path).write_text(changed)

    ended = world(task, *([] if task == "publish" else ["--yes", "--again"]))

    (world.project / path).write_text(text)
    refused(ended, code, said)


def refused(ended: tuple[int, str, Counter[str]], code: int, said: str) -> None:
    """Assert that a task ended with this code and message, and sent nothing."""
    found, shown, calls = ended
    assert (found, said in shown, "Traceback" in shown) == (code, True, False), shown
    assert not [name for name in calls if not name.startswith(READS)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "asked", "seconds"),
    [
        ("Notebook Timeout", {"before": "time.sleep(600)"}, 1),
        ("Notebook Threw Exception", {"before": "raise ValueError('it is larger')"}, 600),
        (
            "Notebook Exceeded Allowed Compute",
            {"before": "filled = bytearray(10**9); time.sleep(600)"},
            600,
        ),
        ("Submission CSV Not Found", {"after": "os.remove('submission.csv')"}, 600),
        ("Submission Scoring Error", {"before": "rows = rows[:2]"}, 600),
    ],
)
def test_each_error_of_a_scored_rerun_is_explained(
    world, chain, monkeypatch, error, asked, seconds
):
    """With Kaggle's name and its usual cause."""
    code, shown, _ = world("push-infer", "--yes", "--again")
    assert code == 0, shown
    for task in ("watch", "pull"):
        world(task, "--kernel", "infer-gpu")
    ask(world, **asked)
    monkeypatch.setitem(world.local.session_seconds, "GPU", seconds)

    code, shown, calls = world("submit", "--yes", "--constant")

    ask(world)
    assert (code, error in shown, calls["CreateCodeSubmission"]) == (1, True, 1), shown
    assert "failed and has no score: " in shown
