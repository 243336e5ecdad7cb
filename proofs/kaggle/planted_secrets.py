"""Plants twenty secrets where secrets get lost, and counts how many are found, and how many any of
our commands writes.

A user's commands run in a copy of the project, with VERBOSE=1 set, against a local Kaggle.
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.client import secrets
from deploy.journal import Journal
from localkaggle.server import USER, LocalKaggle
from proofs.kaggle.watched_shell import Echo, Shell
from proofs.shared.results_table import Row
from tests.faults.canaries import Canary, canaries
from tests.faults.world import competition

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


@dataclass(frozen=True)
class Result:
    """The result of a canary.

    Attributes:
        found: whether it was refused, where it is ours to refuse. Elsewhere, whether the scanner
            knows it and its place was shown without it.
        written: which of our outputs hold it.
    """

    canary: Canary
    found: bool
    written: tuple[str, ...]


def row(results: Sequence[Result], *, seed: int = 0) -> Row:
    """Return the results of `planted` as a row."""
    found = sum(result.found for result in results)
    written = sum(bool(result.written) for result in results)
    places = len({result.canary.place for result in results})
    return Row(
        f"Secrets planted in {places} kinds of place, with VERBOSE=1 set",
        "20 of 20 found, 0 written",
        f"{found} of {len(results)} found, {written} written",
        found == len(results) == 20 and not written,
        seed=seed,
    )


def planted(root: Path, folder: Path, *, seed: int = 0) -> list[Result]:
    """Plant all twenty, run the commands that meet them, and read every byte that was written.

    Args:
        root: of the repository.
        folder: empty or new; holds everything.
        seed: of the secrets.
    """
    there: dict[str, list[Canary]] = {}
    for canary in canaries(seed):
        there.setdefault(canary.place, []).append(canary)
    project = folder / "project"
    left_out = shutil.ignore_patterns(".*", "__pycache__", "runs", "build", "tests", "docs")
    shutil.copytree(root, project, ignore=left_out)
    hosted = [competition()]
    with LocalKaggle(folder / "kaggle", competitions=hosted, offline=True) as local, Echo() as echo:
        local.key, local.token = there["environment"][0].value, there["error page"][1].value
        in_use = dict(canary.text.split("=", 1) for canary in there["environment"])
        shell = Shell(project, {**local.environment, **in_use, "VERBOSE": "1"})
        with shell:
            _plant(project, there)
            shell.invoke("push-train", name="refused push")
            sent = {"refused push": (project / "build").exists() or "SaveKernel" in _calls(local)}
            _clean(root, project, [there["traceback"][0], *there["manifest.json"]])
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
        if not all(outputs[name] for name in ("push-train", "build", "runs", "command lines")):
            raise RuntimeError("A command that must leave output left none, so nothing is proven.")

    def found(canary: Canary, number: int) -> bool:
        step, words = WHERE[canary.place][min(number, len(WHERE[canary.place]) - 1)]
        if words:
            return not sent[step] and bool(
                re.search(words.format(canary.kind), shell.printed[step])
            )
        known = canary.kind in {place.kind for place in secrets.find(canary.text)}
        return known and (not step or secrets.redact(canary.text) in shell.printed[step])

    def written(canary: Canary) -> tuple[str, ...]:
        return tuple(name for name, data in outputs.items() if canary.is_in(data))

    return [
        Result(canary, found(canary, number), written(canary))
        for held in there.values()
        for number, canary in enumerate(held)
    ]


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


def _clean(root: Path, project: Path, telling: list[Canary]) -> None:
    """Remove them, and write a notebook that prints these when it runs, and holds them encoded."""
    for name in ("pipeline/configs/digits.py", "kernels/train-tpu/kernel-metadata.json"):
        shutil.copy(root / name, project / name)
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
