"""Small competitions with a trained model each, and the commands of `python -m pipeline` on changed
copies of them.

The commands run in this process, through `pipeline.__main__.main`. A sample of them also runs in
processes of its own, to show that this makes no difference.
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
    """A small competition, its config, the model that was trained on it, and that model's
    predictions for the whole test set, by id.
    """

    files: Mapping[str, bytes]
    config: Path
    artifact: Path
    predicted: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Ended:
    """How a mutant ended.

    Attributes:
        mutant: the mutant.
        how: "valid", "refused", "refused, an older file kept" or "refused, the mean prediction
            left".
        wrong: what is wrong with that, or "".
    """

    mutant: Mutant
    how: str
    wrong: str


class Bench:
    """Trains the models, and runs mutants. A context manager; inside, commands run on JAX, and each
    model is compiled once.

    Args:
        folder: gets the files where memory has no place for these tens of thousands.
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
        cache = os.environ.get("JAX_COMPILATION_CACHE_DIR")
        self._stack.enter_context(compiled(Path(cache) if cache else self.folder / "compiled"))
        for slug in self._slugs:
            self.subjects[slug] = self._subject(slug)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _subject(self, slug: str) -> Subject:
        name, files = slug.replace("-", "_"), cut(slug)
        path, place = self.folder / f"{name}.py", self.folder / slug
        path.write_text(text_of(config_of(name, epochs=6)), encoding="utf-8")
        lay(files, place)
        out = place / "out"
        artifact = out / "artifact"
        for command in (
            words("train", path, place, out),
            words("infer", path, place, out, artifact),
        ):
            said = here(command)
            if said.code:
                raise RuntimeError(f"{slug} cannot be trained or predicted: {said.text[-2000:]}")
        # Mutants that train do so for one epoch.
        path.write_text(text_of(config_of(name, epochs=1)), encoding="utf-8")
        predicted = judgement.values((out / "submission.csv").read_bytes())
        return Subject(files, path, artifact, predicted)

    def run(
        self, mutant: Mutant, seed: int, command: Callable[[Sequence[str]], Said] | None = None
    ) -> Ended:
        """Return how the mutant of this seed ended.

        Args:
            mutant: the mutant.
            seed: of what is random in it.
            command: runs the words after `python -m pipeline`; None does so in this process.
        """
        subject, call = self.subjects[mutant.subject], command or here
        files: Files = dict(subject.files)
        draw = Random(f"{seed} {mutant.subject} {mutant.name}")  # noqa: S311 - no secret
        mutant.spoil(files, draw)
        older = OLDER if draw.random() < 0.5 else None
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            place, config = Path(scratch) / "in", subject.config
            lay(files, place)
            if mutant.config is not None:
                source = CONFIGS / config.name if mutant.family == "configs" else config
                config = Path(scratch) / config.name
                text = mutant.config(source.read_text(encoding="utf-8"))
                config.write_text(text, encoding="utf-8", newline="")
            output, artifact = place / "out", subject.artifact
            output.mkdir()
            if older is not None:
                (output / "submission.csv").write_bytes(older)
            with rerun(mutant.rerun):
                said = Said(0, "")
                if mutant.train:
                    said, artifact = (
                        call(words("train", config, place, output)),
                        output / "artifact",
                    )
                if said.code == 0:
                    said = call(words("infer", config, place, output, artifact))
            left = output / "submission.csv"
            strange = [
                path.name
                for path in output.iterdir()
                if path.name.startswith((".submission", "submission.csv."))
            ]
            there = left.read_bytes() if left.is_file() else None
            if older is not None and said.code and not strange:
                wrong = "" if there == older else f"the older file became {(there or b'')[:60]!r}"
                wrong = wrong or judgement.mute(said, mutant.words)
                if mutant.end == VALID:
                    wrong = wrong or f"refused, and it should be taken: {said.text[-300:]}"
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
        how = "refused" if left is None else "refused, the mean prediction left"
        return Ended(mutant, how, wrong)

    def _moved(self, mutant: Mutant, values: Mapping[str, Sequence[str]]) -> str:
        """Return in words how many ids have other predictions than in the whole test set."""
        before = self.subjects[mutant.subject].predicted
        there = {name: value for name, value in values.items() if name in before}
        moved = [name for name, value in there.items() if not alike(before[name], value)]
        if len(moved) <= mutant.touched:
            return ""
        return f"{len(moved)} ids have other predictions, for example {moved[0]!r}"


def alike(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two predictions are equal but for the rounding of another batch."""
    return one == other or all(
        judgement.number(text) and abs(float(text) - float(last)) <= 1e-4 * max(1, abs(float(last)))
        for text, last in zip(one, other, strict=True)
    )


def words(
    command: str, config: Path, place: Path, output: Path, artifact: Path | None = None
) -> list[str]:
    """Return the words of a command of `python -m pipeline`."""
    found = [command, "--config", str(config), "--input", str(place), "--output", str(output)]
    return [*found, *(["--artifact", str(artifact)] if artifact else [])]


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
    kept |= {Path(name).stem for name in files if name.endswith(".csv")}
    return {name: content for name, content in files.items() if Path(name).stem in kept}


def config_of(name: str, *, epochs: int) -> Config:
    """Return the config of that name, changed so that training takes a second or two."""
    own = configs.load(name)
    return replace(
        own,
        epochs=epochs,
        warmup_epochs=0.5,
        folds=None,
        batch=32,
        batchnorm_momentum=0.8,
        model="mlp",
        model_options={"width": 8, "depth": 1, "dropout": 0.0},
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
    """Return how `python -m pipeline` with these words ends in this process."""
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
    """Return how it ends in a process of its own."""
    command = [sys.executable, "-m", "pipeline", *words]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300)
    return Said(done.returncode, done.stdout + done.stderr)


def all_of(bench: Bench, mutants: Sequence[Mutant], seed: int) -> Iterator[Ended]:
    """Yield how each ends in a process of its own, as many at a time as there are CPUs."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(lambda mutant: bench.run(mutant, seed, apart), mutants)


@contextmanager
def rerun(yes: bool) -> Iterator[None]:
    """Set or remove the environment variable of a scored rerun."""
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
    """Let commands run on JAX, and keep what is compiled in `folder`, also for other processes."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    settings: Any = jax.config
    names: dict[str, Any] = {"jax_compilation_cache_dir": str(folder)}
    names["jax_persistent_cache_min_compile_time_secs"] = 0.0
    before = {name: getattr(settings, name) for name in names}
    variables = {name.upper(): str(value) for name, value in names.items()}
    variables["KERAS_BACKEND"] = "jax"
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
