"""Arrays, artifacts, checkpoints, results and configs that were made to run code or to write
elsewhere, and the real commands that read them.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from pipeline.runtime import mounts
from pipeline.session import resume
from pipeline.storage import checksums
from proofs.hostile import change_lists, payloads
from proofs.hostile import changed_outputs as changes
from proofs.hostile.attack import HARMLESS, REFUSED, Broken, Case
from proofs.hostile.changed_outputs import Change
from proofs.hostile.guard import Guard
from proofs.spoiled_inputs import bench, judgement
from proofs.spoiled_inputs.bench import Bench
from proofs.spoiled_inputs.judgement import Said
from proofs.spoiled_inputs.mutants import SAMPLE, put, rows_of


@contextmanager
def ground(folder: Path) -> Iterator[tuple[Guard, list[Case]]]:
    """Give the guard and the cases. Inside, there is a trained model, and commands run on JAX."""
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        made = stack.enter_context(Bench(folder, ["digits"]))
        yield Guard(folder / "top", [made.folder]), list(Cases(made, folder / "top").all())


class Cases:
    """Makes the cases. `top` is the guard's, whose marker the payloads try to make."""

    def __init__(self, made: Bench, top: Path) -> None:
        self.made, self.top, self.marker = made, top.resolve(), top.resolve() / "marker"
        self.digits = made.subjects["digits"]
        self._folder = made.folder
        self._place = made.folder / "digits"
        self._complete = self._place / "out"
        self._arrays()
        self._partial = made.folder / "partial"
        words = bench.words("train", self.digits.config, self._place, self._partial)
        _expect(bench.here([*words, "--max-steps", "2"]))

    def _arrays(self) -> None:
        """Make a competition whose images lie in one array, and a model of it."""
        config, place = bench.config_of("digits", epochs=1), self._folder / "arrays"
        files = dict(self.digits.files)
        rows, tested = len(rows_of(files, "train.csv")) - 1, len(rows_of(files, SAMPLE)) - 1
        random = np.random.default_rng(0)
        place.mkdir()
        for name, count in (("train.npy", rows), ("test.npy", tested)):
            np.save(place / name, random.integers(0, 256, (count, 8, 8), dtype=np.uint8))
        for name in ("train.csv", SAMPLE):
            (place / name).write_bytes(files[name])
        self.rows, self.tested, self.arrays = rows, tested, place
        self.array_config = self._folder / "arrays.py"
        self.zip_config = self._folder / "zips" / "arrays.py"
        config = replace(config, name="arrays", data=replace(config.data, kind="arrays"))
        self.array_config.write_text(bench.text_of(config))
        self.zip_config.parent.mkdir()
        zipped = replace(config, data=replace(config.data, test_array="test.npz"))
        self.zip_config.write_text(bench.text_of(zipped))
        _expect(bench.here(bench.words("train", self.array_config, place, place / "out")))

    def all(self) -> Iterator[Case]:
        """Yield them, family by family."""
        for name, content in payloads.arrays(self.marker, self.rows).items():
            yield Case("arrays", f"to train on: {name}", partial(self._array, "train.npy", content))
        for name, content in payloads.arrays(self.marker, self.tested).items():
            yield Case("arrays", f"to predict: {name}", partial(self._array, "test.npy", content))
        for name, content in payloads.archives_of_arrays(self.marker, self.tested).items():
            act = partial(self._array, "test.npz", content)
            yield Case("arrays", f"in an archive: {name}", act)
        for name, change in change_lists.artifacts(self.marker, self.top):
            yield Case("artifacts", name, partial(self._artifact, change))
        for name, change in change_lists.checkpoints(self.marker):
            yield Case("checkpoints", name, partial(self._checkpoint, change))
        for name, change in change_lists.results(self.marker):
            yield Case("results", name, partial(self._report, change))
        for text in payloads.HTML:
            act = partial(self._report, partial(self._written, text), title=text)
            yield Case("pages", text, act)
        for name in payloads.CONFIG_NAMES:
            yield Case("config names", repr(name[:30]), partial(self._described, name))
        for name in payloads.names(self.top):
            if "\ud800" not in name:
                yield Case("ids as paths", repr(name[:40]), partial(self._named, name))
        yield from self._resumed()

    # Commands

    def _array(self, name: str, content: bytes, given: Path) -> str:
        place = given / "in"
        place.mkdir()
        for path in self.arrays.iterdir():
            if path.is_file():
                shutil.copyfile(path, place / path.name)
        (place / name).write_bytes(content)
        out, artifact = given / "out", self.arrays / "out" / "artifact"
        if name == "train.npy":
            words = bench.words("train", self.array_config, place, out)
            return _ended(bench.here([*words, "--max-steps", "1"]))
        config = self.array_config if name == "test.npy" else self.zip_config
        said = bench.here(bench.words("infer", config, place, out, artifact))
        return self._predicted(said, out / "submission.csv", (place / SAMPLE).read_bytes())

    def _predicted(self, said: Said, path: Path, sample: bytes) -> str:
        if path.is_file():
            problem = judgement.invalid(path.read_bytes(), sample, bench.FITS["digits"])
            if problem:
                raise Broken(f"submission.csv is left: {problem}")
        return _ended(said)

    def _artifact(self, change: Change, given: Path) -> str:
        shutil.copytree(self.digits.artifact, given / "artifact")
        change(given / "artifact")
        out = given / "out"
        words = bench.words("infer", self.digits.config, self._place, out, given / "artifact")
        sample = self.digits.files[SAMPLE]
        return self._predicted(bench.here(words), out / "submission.csv", sample)

    def _checkpoint(self, change: Change, given: Path) -> str:
        shutil.copytree(self._partial, given / "out", ignore=shutil.ignore_patterns("compiled"))
        change(given / "out")
        words = bench.words("train", self.digits.config, self._place, given / "out")
        return _ended(bench.here([*words, "--max-steps", "3"]))

    def _report(self, change: Change, given: Path, title: str = "") -> str:
        left_out = shutil.ignore_patterns("compiled", "checkpoints", "*.png")
        shutil.copytree(self._complete, given / "out", ignore=left_out)
        change(given / "out")
        more = [f"--title={title}"] if title else []
        how = _ended(bench.here(["report", "--output", str(given / "out"), *more]))
        page = given / "out" / "report.html"
        if page.is_file():
            found = judgement.active(page.read_text(encoding="utf-8"))
            if found:
                raise Broken(f"the page has {found[0]}")
        return how

    def _described(self, name: str, given: Path) -> str:
        return _ended(bench.here(["describe", f"--config={name}", "--images", "100"]))

    def _named(self, name: str, given: Path) -> str:
        files = dict(self.digits.files)
        rows = rows_of(files, SAMPLE)
        put(files, SAMPLE, [rows[0], [name, "0"], *rows[2:]])
        with suppress(ValueError, OSError):  # a file may have such a name, and must not be found
            (self.top / "cwd" / name).resolve()
        bench.lay(files, given / "in")
        out, artifact = given / "out", self.digits.artifact
        said = bench.here(bench.words("infer", self.digits.config, given / "in", out, artifact))
        return self._predicted(said, out / "submission.csv", files[SAMPLE])

    def _written(self, text: str, output: Path) -> None:
        """Put a text into every place of a run that a person may write: ids, labels, names,
        versions, the commit.
        """
        path = output / "artifact" / "manifest.json"
        manifest = json.loads(path.read_bytes())
        shown = {old: f"{text}{old}" for old in manifest["classes"]}
        manifest |= dict.fromkeys(("run_id", "git_commit", "bundle_sha256"), text)
        manifest |= dict.fromkeys(("devices", "precision", "metric"), text)
        manifest |= {"classes": list(shown.values()), "versions": {text: text}}
        manifest |= {"parameters": {text: 1}, "metrics": {text: 0.5}}
        manifest["config"] |= dict.fromkeys(("name", "competition", "model"), text)
        manifest["config"]["model_options"] = {text: text}
        manifest["files"] = {text: {"sha256": text, "size": 1}}
        path.write_bytes(checksums.sealed(manifest))
        header, *rows = rows_of({"x": (output / "validation.csv").read_bytes()}, "x")
        files: dict[str, bytes] = {}
        rows = [[f"{text}{row[0]}", *(shown.get(cell, cell) for cell in row[1:])] for row in rows]
        put(files, "x", [header, *rows])
        (output / "validation.csv").write_bytes(files["x"])

    # What a notebook resumes from

    def _resumed(self) -> Iterator[Case]:
        for name in payloads.names(self.top)[::2]:
            yield Case("resumed", f"takes {name[:40]!r}", partial(self._taken, name))
        for what, text in changes.TEXTS.items():
            name = f"an artifact that is mounted: {what}"
            yield Case("resumed", name, partial(self._mounted, text))

    def _taken(self, name: str, given: Path) -> str:
        mounted = given / "input" / "notebooks" / "ann" / "x"
        (mounted / "checkpoints" / "step-00000002").mkdir(parents=True)
        (mounted / "checkpoints" / "step-00000002" / "manifest.json").write_text("{}")
        content = b"{}"
        with suppress(OSError, ValueError):  # no disk takes some names; they are not mounted
            path = mounted / name
            if path.is_file():
                content = path.read_bytes()
            elif path.resolve().is_relative_to(given):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        marker = "checkpoints/step-00000002"
        files = {
            name: hashlib.sha256(content).hexdigest(),
            f"{marker}/manifest.json": hashlib.sha256(b"{}").hexdigest(),
        }
        expect = {"run_id": "r", "step": 2, "checkpoint": marker, "files": files}
        (given / "working").mkdir()
        resume.restore(expect, given / "input", given / "working", show=lambda line: None)
        astray = [path for path in given.iterdir() if path.name not in ("input", "working")]
        if astray or len(list((given / "working").rglob("*"))) < 3:
            raise Broken(f"{astray[0] if astray else 'nothing'} was written")
        return HARMLESS

    def _mounted(self, text: Callable[[bytes], bytes], given: Path) -> str:
        folder = given / "input" / "datasets" / "ann" / "x"
        shutil.copytree(self.digits.artifact, folder)
        changes.spoken(folder, text=text)
        mounts.artifact(given / "input", "another")
        raise Broken("it was found")


def _expect(said: Said) -> None:
    if said.code:
        raise RuntimeError(f"The cases cannot be made: {said.text[-1000:]}")


def _ended(said: Said) -> str:
    if said.code == 0:
        return HARMLESS
    problem = judgement.mute(said, ("",))
    if problem:
        raise Broken(problem)
    return REFUSED
