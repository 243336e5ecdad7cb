"""Twenty secrets, planted where secrets get lost, are found, and nothing of ours writes them.

A user's commands run in a copy of the project, with VERBOSE=1 set, against a local Kaggle.
"""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from deploy.client import secrets
from deploy.journal import Journal
from localkaggle.server import USER, LocalKaggle
from tests.faults.canaries import Canary, canaries
from tests.faults.watched_shell import Echo, Shell
from tests.faults.world import ROOT, competition

RUN, PULLED = f"{USER}/digits-train-tpu/1", "digits-train-tpu-v1"
# For each place: (the step that meets the secret, the pattern of its refusal). Without a pattern it
# is not ours to refuse: the scanner has to know it, and the step has to show its place without it.
# There is one entry for both secrets of a place, or one for each.
WHERE = {
    "environment": [("", "")],
    "notebook cell": [("refused push", r"- {} seems to be in cell \d+ \(client.*\), line \d")],
    "cell metadata": [
        ("refused push", r"- {} seems to be in cell \d+ \(client.*\), metadata, \w+, line \d")
    ],
    "config module": [
        ("refused push", r"- {} seems to be in cell \d+ \(%%writefile .*/digits\.py\), line \d")
    ],
    "kernel-metadata.json": [
        ("refused push", r"- {} seems to be in kernel-metadata\.json, \w+, line \d")
    ],
    "manifest.json": [("publish", r"manifest\.json:(?:\n  - .*)*\n  - {}, line \d")],
    "submission description": [
        ("submit", r"the submission's description:(?:\n  - .*)*\n  - {}, line \d")
    ],
    "error page": [("error page, key", ""), ("error page, token", "")],
    "traceback": [("watch", ""), ("fall", "")],
    "journal row": [("journal", "")],
}
# A kernel with secrets in it, and one without any that prints some when it runs.
PLANTED = """# %% token="{metadata[0]}" header="{metadata[1]}"
client.login("{cell[0]}")
PRIVATE = '''{cell[1]}'''
"""
TELLING = """# %%
import hashlib
import json
from pathlib import Path

said = [bytes.fromhex(text).decode() for text in {hidden}]
digest = hashlib.sha256(b"weights").hexdigest()
manifest = {{
    "run_id": "r1",
    "weights_sha256": digest,
    "bundle_sha256": json.loads(Path("bundle.json").read_text())["bundle_sha256"],
    "files": {{"weights.npz": {{"sha256": digest, "size": 7}}}},
    "metrics": said[1:],
}}
Path("artifact").mkdir()
Path("artifact/weights.npz").write_bytes(b"weights")
text = lambda: json.dumps(manifest, indent=2, sort_keys=True) + "\\n"
manifest["manifest_sha256"] = hashlib.sha256(text().encode()).hexdigest()
Path("artifact/manifest.json").write_text(text())
raise RuntimeError(said[0])
"""
SUBMIT = """
import sys
from pathlib import Path

from commands import console, project
from deploy.kernel import push_and_watch
from deploy.relay import submit

@console.reported
def send():
    submit.submit(
        project.connect(), push_and_watch.parse(sys.argv[1]), "digits",
        submission=Path("tasks.py"), check=lambda given, sample: None,
        message=sys.stdin.read(), deadline_seconds=5, show=console.show,
        command="invoke {}".format,
    )

send()
"""
FALL = """
import sys, threading

from commands import console

@console.reported
def fall():
    text = sys.stdin.read()
    def fall_aside():
        raise ValueError(text)
    aside = threading.Thread(target=fall_aside)
    aside.start()
    aside.join()
    raise RuntimeError(text) from KeyError(text)

fall()
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory, seed):
    """Plant all twenty, run the commands that meet them, and return what each printed or wrote, and
    which refused steps sent something.
    """
    there: dict[str, list[Canary]] = {}
    for canary in canaries(seed):
        there.setdefault(canary.place, []).append(canary)
    folder = tmp_path_factory.mktemp("planted")
    project = folder / "project"
    left_out = shutil.ignore_patterns(".*", "__pycache__", "runs", "build", "tests", "docs")
    shutil.copytree(ROOT, project, ignore=left_out)
    hosted = [competition()]
    with LocalKaggle(folder / "kaggle", competitions=hosted, offline=True) as local, Echo() as echo:
        local.key, local.token = there["environment"][0].value, there["error page"][1].value
        in_use = dict(canary.text.split("=", 1) for canary in there["environment"])
        shell = Shell(project, {**local.environment, **in_use, "VERBOSE": "1"})
        with shell:
            _plant(project, there)
            shell.invoke("push-train", name="refused push")
            sent = {"refused push": (project / "build").exists() or "SaveKernel" in _calls(local)}
            _clean(project, [there["traceback"][0], *there["manifest.json"]])
            for task in ("push-train", "watch", "pull", "publish"):
                shell.invoke(task)
            descriptions = (canary.text for canary in there["submission description"])
            shell.python("submit", SUBMIT, RUN, given=" ".join(["digits", *descriptions]))
            shell.python("fall", FALL, given=there["traceback"][1].text)
            shell.environment |= dict.fromkeys(("http_proxy", "HTTP_PROXY"), echo.address)
            shell.invoke("push-train", name="error page, key")
            shell.environment["KAGGLE_API_TOKEN"] = local.token
            shell.invoke("push-train", name="error page, token")
        shell.printed["journal"] = _row(project, *(canary.text for canary in there["journal row"]))
        sent["publish"] = "StartBlobUpload" in _calls(local)
        sent["submit"] = "CreateCodeSubmission" in _calls(local)
        outputs = {name: text.encode() for name, text in shell.printed.items()}
        outputs |= {name: _bytes(project / name) for name in ("build", "runs")}
        outputs["temporary files"] = _bytes(Path(local.environment["TMPDIR"]))
        outputs["command lines"] = "\n".join(shell.command_lines).encode()
    assert all(outputs[name] for name in ("push-train", "build", "runs", "command lines"))
    return outputs, sent


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_a_planted_secret_is_found_and_no_part_of_it_is_written(planted, number, seed):
    """Not to stdout, stderr, the journal, build/, runs/ or a command line. It is refused where that
    is ours to do; elsewhere its place is shown without it.
    """
    outputs, sent = planted
    canary = canaries(seed)[number]
    step, words = WHERE[canary.place][min(number % 2, len(WHERE[canary.place]) - 1)]

    assert not [name for name, data in outputs.items() if canary.is_in(data)]
    if words:
        assert not sent[step] and re.search(words.format(canary.kind), outputs[step].decode())
    elif step:
        assert secrets.redact(canary.text).encode() in outputs[step]


def test_the_canaries_are_known_by_their_shape(seed):
    for canary in canaries(seed):
        assert canary.kind in [found.kind for found in secrets.find(canary.text)]
        assert canary.is_in(f"<{canary.text}>".encode())
        assert not canary.is_in(secrets.redact(canary.text).encode())


def _plant(project: Path, there: Mapping[str, list[Canary]]) -> None:
    """Put the secrets of the first four places into the project, whose push has to be refused."""
    kernel = project / "kernels" / "train-tpu"
    texts = {place: [canary.text for canary in held] for place, held in there.items()}
    notebook = PLANTED.format(metadata=texts["cell metadata"], cell=texts["notebook cell"])
    (kernel / "notebook.py").write_text(notebook)
    with (project / "pipeline" / "configs" / "digits.py").open("a") as file:
        file.write("\n" + "\n".join(texts["config module"]) + "\n")
    settings = json.loads((kernel / "kernel-metadata.json").read_text())
    source, shape = texts["kernel-metadata.json"]
    settings |= {"model_sources": [source], "machine_shape": shape}
    (kernel / "kernel-metadata.json").write_text(json.dumps(settings))


def _clean(project: Path, telling: list[Canary]) -> None:
    """Remove them, and write a notebook that prints these when it runs, and holds them encoded."""
    for name in ("pipeline/configs/digits.py", "kernels/train-tpu/kernel-metadata.json"):
        shutil.copy(ROOT / name, project / name)
    hidden = [canary.text.encode().hex() for canary in telling]
    (project / "kernels" / "train-tpu" / "notebook.py").write_text(TELLING.format(hidden=hidden))


def _row(project: Path, url: str, status: str) -> str:
    """Record a push with these, and return what the journal has of it."""
    journal = Journal(project / "runs" / "journal.sqlite")
    with journal.recording("pushes", url=url) as outcome:
        outcome.update(status=status)
    kept = journal.last("pushes", url=url) or {}
    return f"{kept.get('url')} {kept.get('status')}"


def _calls(local: LocalKaggle) -> set[str]:
    return {call[0] for call in local.journal}


def _bytes(folder: Path) -> bytes:
    """Return all names and bytes in there, without what was pulled, which is the user's own."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    found = (path for path in files if PULLED not in path.parts)
    return b"\n".join(str(path).encode() + b"\n" + path.read_bytes() for path in found)
