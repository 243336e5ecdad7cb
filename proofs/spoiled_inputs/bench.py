"""Bench: small competitions with a trained model each, and the commands of `python -m pipeline` run
on changed copies of them.

The commands are called in this process, as `pipeline.__main__.main`, which is what `python -m
pipeline` calls; a sample of them is started as processes of their own, to see that this makes no
difference.
"""

import csv
import io
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

from localkaggle.competitions import EMBEDDED
from pipeline import config as configs
from pipeline.config import Config
from pipeline.config.config_files import CONFIGS
from pipeline.data.image_files import RERUN
from proofs.spoiled_inputs import judgement
from proofs.spoiled_inputs.judgement import Fits, Said
from proofs.spoiled_inputs.mutants import REFUSED, SAMPLE, VALID, Files, Mutant, put, rows_of

TRAINED_ON, TESTED_ON = 160, 30
FITS: Mapping[str, Fits] = {
    "digits": set("0123456789").__contains__,
    "digits-csv": set("0123456789").__contains__,
    "diabetes": judgement.number,
    "breast-cancer": judgement.share,
}
OLDER = b"id,label\nolder,1\n"
MEAN = "holds the mean prediction for every id"


@dataclass(frozen=True)
class Subject:
    """A competition that is small, its config, and the model that was trained on it. `predicted`:
    of the whole test set, by id.
    """

    files: Mapping[str, bytes]
    config: Path
    artifact: Path
    predicted: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Ended:
    """How a mutant ended.

    `how`: "valid", "refused", "refused, an older file kept" or "refused, the mean prediction left".
    `wrong`: why it should not have, or "".
    """

    mutant: Mutant
    how: str
    wrong: str


class Bench:
    """Makes what the mutants are made of. A context manager; inside, the commands run on JAX, and
    each model is compiled once.

    Args:
        folder: gets a folder of its own, in memory where there is such a place: tens of thousands
            of files come and go.
        slugs: of the competitions.
    """

    def __init__(self, folder: Path, slugs: Sequence[str] = tuple(FITS)) -> None:
        memory = Path("/dev/shm")  # noqa: S108 - mkdtemp makes a name of its own there
        self.folder = Path(
            tempfile.mkdtemp(prefix="prove-mutated-", dir=memory if memory.is_dir() else folder)
        )
        self.subjects: dict[str, Subject] = {}
        self._slugs, self._stack = slugs, ExitStack()

    def __enter__(self) -> Self:
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self._stack.enter_context(compiled(self.folder / "compiled"))
        for slug in self._slugs:
            self.subjects[slug] = self._subject(slug)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _subject(self, slug: str) -> Subject:
        name, files = slug.replace("-", "_"), cut(slug)
        path, place = self.folder / f"{name}.py", self.folder / slug
        path.write_text(text_of(config_of(name, epochs=6)), encoding="utf-8")
        lay(files, place)
        for words in (
            self._train(path, place),
            self._infer(path, place, place / "out" / "artifact"),
        ):
            said = here(words)
            if said.code:
                raise RuntimeError(
                    f"{slug} cannot be trained or predicted as it is: {said.text[-2000:]}"
                )
        path.write_text(
            text_of(config_of(name, epochs=1)), encoding="utf-8"
        )  # what trains a mutant
        return Subject(
            files,
            path,
            place / "out" / "artifact",
            judgement.values((place / "out" / "submission.csv").read_bytes()),
        )

    def _train(self, config: Path, place: Path) -> list[str]:
        return [
            "train",
            "--config",
            str(config),
            "--input",
            str(place),
            "--output",
            str(place / "out"),
        ]

    def _infer(self, config: Path, place: Path, artifact: Path) -> list[str]:
        return [
            "infer",
            "--config",
            str(config),
            "--input",
            str(place),
            "--artifact",
            str(artifact),
            "--output",
            str(place / "out"),
        ]

    def run(
        self, mutant: Mutant, seed: int, command: Callable[[Sequence[str]], Said] | None = None
    ) -> Ended:
        """Return how the mutant of this seed ended, judged.

        Args:
            command: runs the words after `python -m pipeline`; None calls it here.
        """
        subject, call = self.subjects[mutant.subject], command or here
        files: Files = dict(subject.files)
        draw = Random(f"{seed} {mutant.subject} {mutant.name}")  # noqa: S311 - a sample, not a secret
        mutant.spoil(files, draw)
        older = OLDER if draw.random() < 0.5 else None
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            place, config = Path(scratch) / "in", subject.config
            lay(files, place)
            if mutant.config is not None:
                source = CONFIGS / config.name if mutant.family == "configs" else config
                config = Path(scratch) / config.name
                config.write_text(
                    mutant.config(source.read_text(encoding="utf-8")), encoding="utf-8", newline=""
                )
            output, artifact = place / "out", subject.artifact
            output.mkdir()
            if older is not None:
                (output / "submission.csv").write_bytes(older)
            with rerun(mutant.rerun):
                said = Said(0, "")
                if mutant.train:
                    said, artifact = call(self._train(config, place)), output / "artifact"
                if said.code == 0:
                    said = call(self._infer(config, place, artifact))
            left = output / "submission.csv"
            strange = [
                path.name
                for path in output.iterdir()
                if path.name.startswith((".submission", "submission.csv.")) and path != left
            ]
            there = left.read_bytes() if left.is_file() else None
            if older is not None and said.code and not strange:
                wrong = "" if there == older else f"the older file became {(there or b'')[:60]!r}"
                wrong = wrong or judgement.mute(said, mutant.words)
                wrong = wrong or (
                    f"refused, and it should be taken: {said.text[-300:]}"
                    if mutant.end == VALID
                    else ""
                )
                return Ended(mutant, "refused, an older file kept", wrong)
            return self._judged(mutant, said, there, files, strange)

    def _judged(
        self, mutant: Mutant, said: Said, left: bytes | None, files: Files, strange: list[str]
    ) -> Ended:
        wrong = f"{strange} stays" if strange else ""
        if left is not None:
            wrong = wrong or judgement.invalid(left, files.get(SAMPLE, b""), FITS[mutant.subject])
        if said.code == 0:
            if left is None:
                wrong = wrong or "success, and no submission.csv"
            elif mutant.same and not wrong:
                wrong = self._moved(mutant, judgement.values(left))
            if mutant.end == REFUSED:
                wrong = wrong or "taken, and it should be refused"
            return Ended(mutant, "valid", wrong)
        wrong = wrong or judgement.mute(said, mutant.words)
        if left is not None and MEAN not in said.text:
            wrong = wrong or f"submission.csv is left, and nobody said so: {said.text[-300:]}"
        if mutant.end == VALID:
            wrong = wrong or f"refused, and it should be taken: {said.text[-300:]}"
        return Ended(
            mutant, "refused" if left is None else "refused, the mean prediction left", wrong
        )

    def _moved(self, mutant: Mutant, values: Mapping[str, Sequence[str]]) -> str:
        """Return which prediction became another than that of the whole test set, by its id."""
        before = self.subjects[mutant.subject].predicted
        moved = [
            name
            for name, value in values.items()
            if name in before and not alike(before[name], value)
        ]
        return (
            f"{len(moved)} ids have other predictions, for example {moved[0]!r}"
            if len(moved) > mutant.touched
            else ""
        )


def alike(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two predictions are equal but for the rounding of another batch."""
    return one == other or all(
        judgement.number(text) and abs(float(text) - float(last)) <= 1e-4 * max(1, abs(float(last)))
        for text, last in zip(one, other, strict=True)
    )


def cut(slug: str) -> Files:
    """Return an embedded competition with fewer rows and pictures."""
    whole = EMBEDDED[slug]()
    files: Files = {**whole.training, **whole.visible_test}
    kept: set[str] = set()
    for name, rows in (("train.csv", TRAINED_ON), ("test.csv", TESTED_ON), (SAMPLE, TESTED_ON)):
        if name in files:
            table = list(csv.reader(io.StringIO(files[name].decode(), newline="")))[: rows + 1]
            put(files, name, table)
            kept |= {row[0] for row in rows_of(files, name)}
    return {
        name: content
        for name, content in files.items()
        if name.endswith(".csv") or Path(name).stem in kept
    }


def config_of(name: str, *, epochs: int) -> Config:
    """Return the config of that name, for a training of a second or two."""
    own = configs.load(name)
    return replace(
        own,
        epochs=epochs,
        warmup_epochs=0.5,
        folds=None,
        batch=32,
        batchnorm_momentum=0.8,
        model_options={**own.model_options, "width": 8, "dropout": 0.0},
        optimizer=replace(own.optimizer, base_batch=32, base_rate=1e-2),
        checkpoint_seconds=3600,
        progress_seconds=3600,
    )


def text_of(config: Config) -> str:
    """Return a config as the text of a file of the form of pipeline/configs/digits.py."""
    return f"from pipeline.config import from_json\nCONFIG = from_json({config.to_json()!r})\n"


def lay(files: Mapping[str, bytes], folder: Path) -> None:
    """Write these files."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    folder.mkdir(exist_ok=True)


def here(words: Sequence[str]) -> Said:
    """Return how `python -m pipeline` with these words ends when it is called in this process."""
    from pipeline.__main__ import main

    shown = io.StringIO()
    with redirect_stdout(shown), redirect_stderr(shown):
        try:
            code = main(list(words))
        except SystemExit as error:  # argparse
            code = error.code if isinstance(error.code, int) else 1
        except Exception:
            code = 1
            traceback.print_exc(file=shown)
    return Said(code, shown.getvalue())


def apart(words: Sequence[str]) -> Said:
    """Return how it ends as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", *words],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=300,
    )
    return Said(done.returncode, done.stdout + done.stderr)


def all_of(bench: Bench, mutants: Sequence[Mutant], seed: int) -> Iterator[Ended]:
    """Yield how each ends as a process of its own, as many at a time as there are CPUs."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(lambda mutant: bench.run(mutant, seed, apart), mutants)


@contextmanager
def rerun(yes: bool) -> Iterator[None]:
    """Let the commands see that they run in a scored rerun, or that they do not."""
    before = os.environ.pop(RERUN, None)
    if yes:
        os.environ[RERUN] = "1"
    try:
        yield
    finally:
        os.environ.pop(RERUN, None)
        if before is not None:
            os.environ[RERUN] = before


@contextmanager
def compiled(folder: Path) -> Iterator[None]:
    """Let commands run on JAX, and keep what is compiled in `folder`, also for processes of their
    own.
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    settings: Any = jax.config
    names = {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
    }
    before = {name: getattr(settings, name) for name in names}
    variables = {
        "KERAS_BACKEND": "jax",
        **{name.upper(): str(value) for name, value in names.items()},
    }
    kept = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    for name, value in names.items():
        settings.update(name, value)
    compilation_cache.reset_cache()  # JAX decides once whether there is one
    try:
        yield
    finally:
        for name, value in before.items():
            settings.update(name, value)
        compilation_cache.reset_cache()
        for name, was in kept.items():
            os.environ.pop(name, None)
            if was is not None:
                os.environ[name] = was
