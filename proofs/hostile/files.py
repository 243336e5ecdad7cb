"""Hostile files: arrays, artifacts, checkpoints, results and configs that were made to run code or
to lead elsewhere, met by the real commands.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.runtime import mounts
from pipeline.session import resume
from pipeline.storage import checksums
from proofs.hostile import changed_outputs as changes
from proofs.hostile import payloads
from proofs.hostile.attack import HARMLESS, REFUSED, Broken, Case
from proofs.hostile.changed_outputs import Change
from proofs.hostile.guard import Guard
from proofs.spoiled_inputs import bench, judgement
from proofs.spoiled_inputs.bench import Bench
from proofs.spoiled_inputs.judgement import Said
from proofs.spoiled_inputs.mutants import SAMPLE, put, rows_of


@contextmanager
def ground(folder: Path) -> Iterator[tuple[Guard, list[Case]]]:
    """Give the guard and the cases; inside, there is a trained model, and the commands run on JAX."""
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        made = stack.enter_context(Bench(folder, ["digits"]))
        yield Guard(folder / "top", [made.folder]), list(Cases(made, folder / "top").all())


class Cases:
    """Makes the cases. `top`: of the guard, whose marker the payloads try to make."""

    def __init__(self, made: Bench, top: Path) -> None:
        self.made, self.top, self.marker = made, top.resolve(), top.resolve() / "marker"
        self.digits = made.subjects["digits"]
        self._folder = made.folder
        self._place = made.folder / "digits"
        self._complete = self._place / "out"
        self._arrays()
        self._partial = made.folder / "partial"
        _expect(
            bench.here(
                [
                    *self._words("train", self.digits.config, self._place, self._partial),
                    "--max-steps",
                    "2",
                ]
            )
        )

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
        self.array_config, self.zip_config = (
            self._folder / "arrays.py",
            self._folder / "zips" / "arrays.py",
        )
        config = replace(config, name="arrays", data=replace(config.data, kind="arrays"))
        self.array_config.write_text(bench.text_of(config))
        self.zip_config.parent.mkdir()
        self.zip_config.write_text(
            bench.text_of(replace(config, data=replace(config.data, test_array="test.npz")))
        )
        _expect(bench.here(self._words("train", self.array_config, place, place / "out")))

    def _words(
        self, command: str, config: Path, place: Path, output: Path, artifact: Path | None = None
    ) -> list[str]:
        words = [command, "--config", str(config), "--input", str(place), "--output", str(output)]
        return words if artifact is None else [*words, "--artifact", str(artifact)]

    def all(self) -> Iterator[Case]:
        """Yield them, family by family."""
        for name, content in payloads.arrays(self.marker, self.rows).items():
            yield Case("arrays", f"to train on: {name}", partial(self._array, "train.npy", content))
        for name, content in payloads.arrays(self.marker, self.tested).items():
            yield Case("arrays", f"to predict: {name}", partial(self._array, "test.npy", content))
        for name, content in payloads.archives_of_arrays(self.marker, self.tested).items():
            yield Case(
                "arrays", f"in an archive: {name}", partial(self._array, "test.npz", content)
            )
        for name, change in self._artifacts():
            yield Case("artifacts", name, partial(self._artifact, change))
        for name, change in self._checkpoints():
            yield Case("checkpoints", name, partial(self._checkpoint, change))
        for name, change in self._results():
            yield Case("results", name, partial(self._report, change))
        for text in payloads.HTML:
            yield Case(
                "pages", text, partial(self._report, partial(self._written, text), title=text)
            )
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
        if name == "train.npy":
            return _ended(
                bench.here(
                    [
                        *self._words("train", self.array_config, place, given / "out"),
                        "--max-steps",
                        "1",
                    ]
                )
            )
        config = self.array_config if name == "test.npy" else self.zip_config
        said = bench.here(
            self._words("infer", config, place, given / "out", self.arrays / "out" / "artifact")
        )
        return self._predicted(
            said, given / "out" / "submission.csv", (place / SAMPLE).read_bytes()
        )

    def _predicted(self, said: Said, path: Path, sample: bytes) -> str:
        if path.is_file():
            problem = judgement.invalid(path.read_bytes(), sample, bench.FITS["digits"])
            if problem:
                raise Broken(f"submission.csv is left: {problem}")
        return _ended(said)

    def _artifact(self, change: Change, given: Path) -> str:
        shutil.copytree(self.digits.artifact, given / "artifact")
        change(given / "artifact")
        said = bench.here(
            self._words("infer", self.digits.config, self._place, given / "out", given / "artifact")
        )
        return self._predicted(said, given / "out" / "submission.csv", self.digits.files[SAMPLE])

    def _checkpoint(self, change: Change, given: Path) -> str:
        shutil.copytree(self._partial, given / "out", ignore=shutil.ignore_patterns("compiled"))
        change(given / "out")
        return _ended(
            bench.here(
                [
                    *self._words("train", self.digits.config, self._place, given / "out"),
                    "--max-steps",
                    "3",
                ]
            )
        )

    def _report(self, change: Change, given: Path, title: str = "") -> str:
        shutil.copytree(
            self._complete,
            given / "out",
            ignore=shutil.ignore_patterns("compiled", "checkpoints", "*.png"),
        )
        change(given / "out")
        how = _ended(
            bench.here(
                ["report", "--output", str(given / "out"), *([f"--title={title}"] if title else [])]
            )
        )
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
        with suppress(ValueError, OSError):  # a file can be called so, and must not be found
            (self.top / "cwd" / name).resolve()
        bench.lay(files, given / "in")
        said = bench.here(
            self._words(
                "infer", self.digits.config, given / "in", given / "out", self.digits.artifact
            )
        )
        return self._predicted(said, given / "out" / "submission.csv", files[SAMPLE])

    # Changes

    def _artifacts(self) -> Iterator[tuple[str, Change]]:
        for number, name in enumerate(("weights.npz", "golden.npz", "manifest.json") * 4):
            yield (
                f"another bit of {name} ({number // 3})",
                partial(changes.flip, name=name, share=(number // 3 + 0.5) / 4),
            )
        for name in ("weights.npz", "golden.npz", "manifest.json"):
            yield f"without {name}", partial(changes.removed, name=name)
            yield f"{name} as a link", partial(changes.linked, name=name)
            yield (
                f"{name} as a link that leads nowhere",
                partial(changes.linked, name=name, lost=True),
            )
            yield f"{name} as a folder", partial(changes.foldered, name=name)
            yield f"{name} as a pipe", partial(changes.piped, name=name)
        yield "weights and golden exchanged", changes.exchanged
        for name in (
            "evil.pkl",
            "sitecustomize.py",
            "pipeline/__init__.py",
            "weights.h5",
            "model.keras",
        ):
            yield (
                f"with {name} beside it",
                partial(
                    changes.beside,
                    name=name,
                    content=payloads.pickles(self.marker)["a pickle that opens a file"],
                ),
            )
        for name in payloads.names(self.top)[::3]:
            if "\ud800" not in name:
                yield f"announces {name[:40]!r}", partial(changes.announced, name=name)
        for name, edit in changes.EDITS.items():
            yield name, partial(changes.edited, edit=edit)
        for name, text in changes.TEXTS.items():
            yield f"manifest.json: {name}", partial(changes.spoken, text=text)
        for name, pickle in payloads.pickles(self.marker).items():
            bad = payloads.npy(pickle, descr="'|O'", shape="(1,)")
            yield (
                f"weights with {name}",
                partial(
                    changes.packed,
                    name="weights.npz",
                    edit=partial(changes.replaced, content=bad),
                ),
            )
            yield (
                f"golden with {name}",
                partial(
                    changes.packed,
                    name="golden.npz",
                    edit=partial(changes.replaced, content=bad, name="inputs.npy"),
                ),
            )
            yield (
                f"weights that are {name}",
                partial(changes.resealed, name="weights.npz", content=pickle),
            )
        for name, edit in changes.WEIGHTS.items():
            yield f"weights {name}", partial(changes.packed, name="weights.npz", edit=edit)
            yield f"golden {name}", partial(changes.packed, name="golden.npz", edit=edit)

    def _checkpoints(self) -> Iterator[tuple[str, Change]]:
        def of(change: Callable[..., object], **more: Any) -> Change:
            return partial(_of_checkpoint, partial(change, **more))

        for number, name in enumerate(("state.npz", "manifest.json") * 4):
            yield (
                f"another bit of {name} ({number // 2})",
                of(changes.flip, name=name, share=(number // 2 + 0.5) / 4),
            )
        for name in ("state.npz", "manifest.json"):
            yield f"without {name}", of(changes.removed, name=name)
            yield f"{name} as a folder", of(changes.foldered, name=name)
            yield f"{name} as a pipe", of(changes.piped, name=name)
        for name, pickle in payloads.pickles(self.marker).items():
            yield (
                f"a state with {name}",
                of(
                    changes.state,
                    edit=partial(
                        changes.replaced, content=payloads.npy(pickle, descr="'|O'", shape="(1,)")
                    ),
                ),
            )
            yield f"a state that is {name}", of(changes.stated, content=pickle)
        for name, edit in changes.WEIGHTS.items():
            yield f"a state {name}", of(changes.state, edit=edit)
        for name, text in changes.TEXTS.items():
            yield f"a manifest: {name}", of(changes.spoken, text=text)
        for name in (
            "step-00000002 (copy)",
            "step-99999999999999999999",
            "step--0000001",
            "step-00000002.replaced",
            "..step-00000009",
            "step-0000000２",
        ):
            yield f"called {name}", of(changes.called, name=name)
        for name in ("progress.jsonl", "history.csv"):
            for what, content in {
                "deep": b"[" * 100_000 + b"\n",
                "a web page": b"<html>\n",
                "noise": bytes(range(256)),
                "NaN": b'{"step": NaN}\n',
                "a huge step": b'{"step": ' + b"9" * 5000 + b"}\n",
            }.items():
                yield f"{name} is {what}", partial(changes.over, name=name, content=content)

    def _results(self) -> Iterator[tuple[str, Change]]:
        for name, array in (
            ("validation.npz", "probabilities.npy"),
            ("examples.npz", "pixels.npy"),
            ("examples.npz", "indices.npy"),
        ):
            for what, content in payloads.arrays(self.marker, 3).items():
                if "pickle" in what or "shape" in what or "header" in what:
                    yield (
                        f"{name}: {array} is {what}",
                        partial(changes.member, name=name, array=array, content=content),
                    )
            for what, pickle in payloads.pickles(self.marker).items():
                yield f"{name} is {what}", partial(changes.over, name=name, content=pickle)
        for name in ("validation.csv", "history.csv", "progress.jsonl", "submission.csv"):
            for what, content in {
                "deep": b"[" * 100_000 + b"\n",
                "a web page": b"<html><script>1</script>\n",
                "noise": bytes(range(256)) * 9,
                "empty": b"",
            }.items():
                yield f"{name} is {what}", partial(changes.over, name=name, content=content)
        for what, text in changes.TEXTS.items():
            yield (
                f"artifact/manifest.json: {what}",
                partial(_of_artifact, partial(changes.spoken, text=text)),
            )
        for what, edit in changes.EDITS.items():
            yield (
                f"artifact/manifest.json: {what}",
                partial(_of_artifact, partial(changes.edited, edit=edit)),
            )

    def _written(self, text: str, output: Path) -> None:
        """Put a text into every place of a run that a person may have written: ids, labels, names,
        versions, the commit.
        """
        path = output / "artifact" / "manifest.json"
        told = json.loads(path.read_bytes())
        shown = {old: f"{text}{old}" for old in told["classes"]}
        told |= {
            "run_id": text,
            "git_commit": text,
            "bundle_sha256": text,
            "devices": text,
            "precision": text,
            "metric": text,
        }
        told |= {
            "classes": list(shown.values()),
            "versions": {text: text},
            "parameters": {text: 1},
            "metrics": {text: 0.5},
        }
        told["config"] |= {
            "name": text,
            "competition": text,
            "model": text,
            "model_options": {text: text},
        }
        told["files"] = {text: {"sha256": text, "size": 1}}
        path.write_bytes(checksums.sealed(told))
        rows = rows_of({"x": (output / "validation.csv").read_bytes()}, "x")
        files: dict[str, bytes] = {}
        put(
            files,
            "x",
            [
                rows[0],
                *(
                    [f"{text}{row[0]}", *(shown.get(value, value) for value in row[1:])]
                    for row in rows[1:]
                ),
            ],
        )
        (output / "validation.csv").write_bytes(files["x"])

    # What a notebook takes up

    def _resumed(self) -> Iterator[Case]:
        for name in payloads.names(self.top)[::2]:
            yield Case("resumed", f"takes {name[:40]!r}", partial(self._taken, name))
        for what, text in changes.TEXTS.items():
            yield Case(
                "resumed", f"an artifact that is mounted: {what}", partial(self._mounted, text)
            )

    def _taken(self, name: str, given: Path) -> str:
        mounted = given / "input" / "notebooks" / "ann" / "x"
        (mounted / "checkpoints" / "step-00000002").mkdir(parents=True)
        (mounted / "checkpoints" / "step-00000002" / "manifest.json").write_text("{}")
        content = b"{}"
        with suppress(
            OSError, ValueError
        ):  # no disk takes such a name; then nothing is mounted under it
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


def _of_artifact(change: Change, output: Path) -> None:
    change(output / "artifact")


def _of_checkpoint(change: Change, output: Path) -> None:
    change(next((output / "checkpoints").iterdir()))


def _expect(said: Said) -> None:
    if said.code:
        raise RuntimeError(f"What the cases are made of could not be made: {said.text[-1000:]}")


def _ended(said: Said) -> str:
    if said.code == 0:
        return HARMLESS
    problem = judgement.mute(said, ("",))
    if problem:
        raise Broken(problem)
    return REFUSED
