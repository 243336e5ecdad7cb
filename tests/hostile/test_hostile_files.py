"""Arrays, artifacts, checkpoints, results and names that try to run code or to write elsewhere do
neither.
"""

import json
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats import checksums
from tests.hostile import bench, judge, payloads
from tests.hostile.bench import SAMPLE, Subject
from tests.hostile.guard import Guard
from tests.hostile.judge import Said

Change = Callable[[Path], object]
Value = dict[str, Any]
Members = dict[str, bytes]
STEPS = ("--max-steps",)

# Changes of a folder with a manifest


def sealed(folder: Path, edit: Callable[[Value], Value]) -> None:
    """Edit a manifest, and seal it again: a seal does not say who wrote it."""
    path = folder / "manifest.json"
    path.write_bytes(checksums.sealed(edit(json.loads(path.read_bytes()))))


def announced(folder: Path, name: str, content: bytes) -> None:
    """Put other bytes in the place of a file, and let the manifest agree."""
    (folder / name).write_bytes(content)
    entry = checksums.file_entry(folder / name)

    def edit(told: Value) -> Value:
        if "files" not in told:  # of a checkpoint
            return {**told, "sha256": entry["sha256"]}
        weights = {"weights_sha256": entry["sha256"]} if name == "weights.npz" else {}
        return {**told, "files": {**told["files"], name: entry}, **weights}

    sealed(folder, edit)


def packed(folder: Path, name: str, edit: Callable[[Members], Any]) -> None:
    """Change the members of an archive, and let the manifest agree."""
    with zipfile.ZipFile(folder / name) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    edited = edit(members)
    pairs = edited.items() if isinstance(edited, dict) else edited
    announced(folder, name, payloads.archive(*pairs))


def instead(folder: Path, name: str, make: Callable[[Path], object]) -> None:
    """Make something else in the place of a file."""
    (folder / name).unlink()
    make(folder / name)


def first(name: str = "{}", content: bytes | None = None) -> Callable[[Members], Members]:
    """Return what gives the first member another name, or other bytes."""

    def change(members: Members) -> Members:
        (old, whole), *others = members.items()
        return {name.format(old): content or whole, **dict(others)}

    return change


ODD_FILES: dict[str, Callable[[Path], object]] = {
    "a link that leads nowhere": lambda path: path.symlink_to("/nowhere"),
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,  # whoever opens it waits for ever
    "missing": lambda path: None,
}
MEMBERS: dict[str, Callable[[Members], Any]] = {
    "none": lambda members: {},
    "with one more": lambda members: {**members, "more.npy": payloads.npy(b"\0", shape="(1,)")},
    "of another shape": first(content=payloads.npy(bytes(8), descr="'<f4'", shape="(2,)")),
    "of NaN": lambda members: {name: text[:-4] + b"\0\0\xc0\x7f" for name, text in members.items()},
    "with a shape of 10^12": first(content=payloads.npy(b"", shape=f"({10**12},)")),
    "with a name that climbs": first("../../{}"),
    "with an absolute name": first("/{}"),
    "with one name twice": lambda members: [*members.items(), next(iter(members.items()))],
}
TEXTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda text: b"",
    "a key twice": lambda text: text.replace(b"{", b'{"run_id": "other", ', 1),
    "5,000 digits": lambda text: text.replace(b"{", b'{"loss": ' + b"9" * 5000 + b", ", 1),
    "half a surrogate": lambda text: text.replace(b"{", b'{"a": "\\ud800", ', 1),
    "a web page": lambda text: b"<html><script>alert(1)</script></html>",
    "noise": lambda text: bytes(range(256)) * 9,
    "cut off": lambda text: text[: len(text) // 2],
}
ODD_VALUES = (
    None, True, -1, 10**400, float("nan"), float("inf"), "", "../../evil", "__import__",
    "os.system", "<script>x</script>", [], {}, ["x"], {"x": 1}, ["x"] * 10, [10**400] * 10,
    [float("nan")] * 10, json.loads("[" * 300 + "]" * 300),
)  # fmt: skip


def texts(*names: str) -> dict[str, Change]:
    """Return changes of a folder by the text of these files."""

    def spoken(folder: Path, name: str, text: Callable[[bytes], bytes]) -> None:
        path = folder / name
        path.write_bytes(text(path.read_bytes() if path.exists() else b'{"step": 1}\n'))

    return {
        f"{name}: {what}": partial(spoken, name=name, text=text)
        for name in names
        for what, text in TEXTS.items()
    }


def archived(marker: Path, name: str) -> dict[str, Change]:
    """Return changes of a folder by one of its archives, which agree with its manifest."""
    edits = {what: partial(packed, name=name, edit=edit) for what, edit in MEMBERS.items()}
    for what, pickle in payloads.pickles(marker).items():
        edits[f"that is {what}"] = partial(announced, name=name, content=pickle)
        objects = first(content=payloads.objects(pickle))
        edits[f"with {what}"] = partial(packed, name=name, edit=objects)
    edits |= {what: partial(instead, name=name, make=make) for what, make in ODD_FILES.items()}
    return {f"{name} {what}": edit for what, edit in edits.items()}


# What they are changes of


@dataclass(frozen=True)
class Made:
    """What is changed, and the guard.

    Attributes:
        digits: a complete run.
        partial: the output of a training that was stopped.
    """

    digits: Subject
    partial: Path
    guard: Guard


@pytest.fixture(scope="module")
def made(subjects, tmp_path_factory) -> Made:
    folder, digits = tmp_path_factory.mktemp("made"), subjects("digits")
    begun = bench.run("train", digits.config, digits.place, folder / "partial", None, *STEPS, "2")
    assert begun.code == 0
    compiled = Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    return Made(digits, folder / "partial", Guard(folder / "top", compiled))


# The commands that read them


def is_a_refusal_or_success(said: Said) -> None:
    assert said.code == 0 or not judge.mute(said, []), judge.mute(said, [])


def predicts(subject: Subject, place: Path, artifact: Path, given: Path) -> None:
    said = bench.run("infer", subject.config, place, given / "out", artifact)
    is_a_refusal_or_success(said)
    path = given / "out" / "submission.csv"
    if path.is_file():
        sample = (place / SAMPLE).read_bytes()
        assert not judge.invalid(path.read_bytes(), sample, bench.FITS["digits"])


def infers(made: Made, given: Path, change: Change) -> None:
    shutil.copytree(made.digits.artifact, given / "artifact")
    change(given / "artifact")
    predicts(made.digits, made.digits.place, given / "artifact", given)


def resumes(made: Made, given: Path, change: Change) -> None:
    shutil.copytree(made.partial, given / "out")
    change(given / "out")
    place = made.digits.place
    said = bench.run("train", made.digits.config, place, given / "out", None, *STEPS, "3")
    is_a_refusal_or_success(said)


def reports(made: Made, given: Path, change: Change) -> None:
    left_out = shutil.ignore_patterns("compiled", "checkpoints", "*.png")
    shutil.copytree(made.digits.output, given / "out", ignore=left_out)
    change(given / "out")
    is_a_refusal_or_success(bench.said("report", "--output", str(given / "out")))


def predicts_an_id(made: Made, given: Path, name: str) -> None:
    files = dict(made.digits.files)
    header, _, *rows = bench.rows(files, SAMPLE)
    bench.put(files, SAMPLE, [header, [name, "0"], *rows])
    bench.lay(files, given / "in")
    predicts(made.digits, given / "in", made.digits.artifact, given)


def describes(made: Made, given: Path, name: str) -> None:
    is_a_refusal_or_success(bench.said("describe", f"--config={name}", "--images", "100"))


def infers_what_is_edited(made: Made, given: Path, edit: tuple[float, object]) -> None:
    """Infer by an artifact whose manifest has an odd value somewhere."""
    place, odd = edit

    def edited(told: Value) -> Value:
        parts = [told, told["config"], told["config"]["data"], told["config"]["optimizer"]]
        keys = [(part, key) for part in parts for key in part]
        part, key = keys[int(place * len(keys))]
        part[key] = odd
        return told

    infers(made, given, partial(sealed, edit=edited))


def of_results(marker: Path) -> dict[str, Change]:
    """Return changes of the output folder of a complete run."""

    def member(output: Path, name: str, array: str, content: bytes) -> None:
        with zipfile.ZipFile(output / name) as there:
            kept = {key: there.read(key) for key in there.namelist()}
        (output / name).write_bytes(payloads.archive(*{**kept, array: content}.items()))

    records = ("validation.csv", "history.csv", "progress.jsonl", "submission.csv")
    found = texts("artifact/manifest.json", *records)
    for name, array in (("validation.npz", "probabilities.npy"), ("examples.npz", "pixels.npy")):
        for what, content in payloads.arrays(marker, 3).items():
            found[f"{name}: {what}"] = partial(member, name=name, array=array, content=content)
    return found


def of_checkpoints(marker: Path) -> dict[str, Change]:
    """Return changes of an output folder with a checkpoint, and of the checkpoint."""

    def below(output: Path, change: Change) -> None:
        change(next((output / "checkpoints").iterdir()))

    def called(folder: Path, name: str) -> None:
        folder.rename(folder.with_name(name))

    steps = ("step-00000002 (copy)", "step-99999999999999999999", "step--0000001", "step-0000000２")
    own = texts("manifest.json") | archived(marker, "state.npz")
    own |= {f"called {name}": partial(called, name=name) for name in steps}
    found = {name: partial(below, change=change) for name, change in own.items()}
    return found | texts("progress.jsonl", "history.csv")


Cases = Mapping[str, Any] | st.SearchStrategy[Any]
EDITS = st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from(ODD_VALUES))


def of_artifacts(marker: Path) -> dict[str, Change]:
    """Return changes of an artifact."""
    archives = archived(marker, "weights.npz") | archived(marker, "golden.npz")
    return texts("manifest.json") | archives


def names(guard: Guard) -> st.SearchStrategy[str]:
    """Return names that can be written in a file."""
    return payloads.names(guard.top).filter(lambda name: "\ud800" not in name)


# What reads a hostile file, what can be in it, and how many of these a default run draws.
FAMILIES: dict[str, tuple[Callable[..., None], Callable[[Guard], Cases], int]] = {
    "an artifact": (infers, lambda guard: of_artifacts(guard.marker), 8),
    "the manifest of an artifact": (infers_what_is_edited, lambda guard: EDITS, 8),
    "a checkpoint": (resumes, lambda guard: of_checkpoints(guard.marker), 3),
    "the results of a run": (reports, lambda guard: of_results(guard.marker), 4),
    "the name of a config": (describes, names, 8),
    "an id": (predicts_an_id, names, 5),
}


@pytest.mark.parametrize(
    ("family", "most"),
    [(name, few) for name, (*_, few) in FAMILIES.items()]
    + [pytest.param(name, 100, marks=pytest.mark.slow) for name in FAMILIES],
)
def test_hostile_files_run_no_code_and_write_nothing_elsewhere(made, family, most):
    act, cases_of, _ = FAMILIES[family]
    cases = cases_of(made.guard)

    @settings(max_examples=most)
    @given(name=st.sampled_from(list(cases)) if isinstance(cases, dict) else cases)
    def each(name: Any) -> None:
        with made.guard.watching() as given:
            act(made, given, cases[name] if isinstance(cases, dict) else name)

    each()
