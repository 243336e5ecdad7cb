"""Mutants of outputs: predictions that are no numbers or not in their place, files that somebody
edited, and a crash at each moment of a write.
"""

import resource
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random

import numpy as np

from pipeline.data.labels import Target
from pipeline.errors import PipelineError
from pipeline.submission import submission_csv
from pipeline.submission.prediction_format import Form
from proofs.shared import crash_states, disk_recorder
from proofs.spoiled_inputs import judgement
from proofs.spoiled_inputs.judgement import Fits, Said
from proofs.spoiled_inputs.spoiled_tables import BROKEN, SAME

OLD, NAME = b"id,older\nx,1\n", "submission.csv"
IDS = tuple(f"e{number:02d}" for number in range(24))


@dataclass(frozen=True)
class Asked:
    """What a competition asks for: the target, the metric, the sample, and which texts it can
    score.
    """

    target: Target
    metric: str
    sample: bytes
    fits: Fits

    def values(self, draw: Random) -> np.ndarray:
        """Return good predictions, float32 (24, k)."""
        made = np.array(
            [[0.01 + 0.9 * draw.random() for _ in self.target.names] for _ in IDS], np.float32
        )
        single = self.target.kind in ("classes", "ordinal")
        return made / made.sum(axis=1, keepdims=True) if single else made


def _sample(*columns: str, value: str = "0") -> bytes:
    rows = [
        ",".join(["id", *columns]),
        *(",".join([name, *[value] * len(columns)]) for name in IDS),
    ]
    return "\n".join([*rows, ""]).encode()


DIGITS = tuple(str(number) for number in range(10))
ASKED = {
    "labels": Asked(Target("classes", DIGITS), "accuracy", _sample("label"), DIGITS.__contains__),
    "a probability": Asked(
        Target("classes", ("0", "1")), "auc", _sample("malignant", value="0.5"), judgement.share
    ),
    "a number": Asked(
        Target("regression", ("progression",), (0.0,), (1.0,)),
        "rmse",
        _sample("progression", value="152.1"),
        judgement.number,
    ),
    "a number each": Asked(
        Target("regression", ("x", "y"), (0.0, 0.0), (1.0, 1.0)),
        "rmse",
        _sample("x", "y"),
        judgement.number,
    ),
    "a probability each": Asked(
        Target("classes", ("a", "b", "c")),
        "log_loss",
        _sample("a", "b", "c", value="0.3"),
        judgement.share,
    ),
    "tags": Asked(
        Target("multilabel", ("a", "b")),
        "f1",
        _sample("tags", value="a"),
        lambda text: bool(text) and set(text.split()) <= {"a", "b"},
    ),
}


def _some(number: float) -> Callable[[np.ndarray, Random], np.ndarray]:
    def spoil(values: np.ndarray, draw: Random) -> np.ndarray:
        values[draw.randrange(len(values)), draw.randrange(values.shape[1])] = number
        return values

    return spoil


def _all(values: np.ndarray, draw: Random, number: float) -> np.ndarray:
    return np.full_like(values, number)


VALUES: dict[str, Callable[[np.ndarray, Random], np.ndarray]] = {
    **{f"one is {number}": _some(number) for number in (float("nan"), float("inf"), float("-inf"))},
    **{
        f"all are {number}": partial(_all, number=number)
        for number in (float("nan"), float("inf"), float("-inf"))
    },
    "one is out of range": _some(1.5),
    "one is below 0": _some(-0.25),
    "one is huge": _some(3e38),
    "all are 0": lambda values, draw: np.zeros_like(values),
    "all are equal": lambda values, draw: np.full_like(values, 1 / values.shape[1]),
    "a row is missing": lambda values, draw: values[:-1],
    "a row is too many": lambda values, draw: np.vstack([values, values[:1]]),
    "a column is missing": lambda values, draw: values[:, :-1],
    "a column is too many": lambda values, draw: np.hstack([values, values[:, :1]]),
    "there are none": lambda values, draw: values[:0],
    "they are whole numbers": lambda values, draw: np.round(values),
    "they are of double precision": lambda values, draw: values.astype(np.float64),
}
NAMES: dict[str, Callable[[list[str], Random], list[str]]] = {
    "ids in another order": lambda ids, draw: draw.sample(ids, len(ids)),
    "an id twice": lambda ids, draw: [*ids[:-1], ids[0]],
    "an unknown id": lambda ids, draw: [*ids[:-1], "nobody"],
    "ids in capitals": lambda ids, draw: [name.upper() for name in ids],
    "ids with blanks": lambda ids, draw: [f"{name} " for name in ids],
}


@dataclass(frozen=True)
class Written:
    """How a write or a check ended. `left`: the file in the end. `accepted`: whether it was taken
    for good.
    """

    family: str
    name: str
    said: Said
    accepted: bool
    left: bytes | None
    asked: Asked


def predictions(folder: Path, seed: int) -> Iterator[Written]:
    """Yield what became of odd predictions that were written over an older file, which has to
    survive a refusal.
    """
    for kind, asked in ASKED.items():
        for name in (*VALUES, *NAMES):
            draw = Random(f"{seed} {kind} {name}")  # noqa: S311 - a sample, not a secret
            values, ids = asked.values(draw), list(IDS)
            if name in VALUES:
                values = VALUES[name](values, draw)
            else:
                ids = NAMES[name](ids, draw)
            with tempfile.TemporaryDirectory(dir=folder) as place:
                sample, path = Path(place) / "sample_submission.csv", Path(place) / NAME
                sample.write_bytes(asked.sample)
                path.write_bytes(OLD)
                said, accepted = _told(partial(_write, asked, sample, path, ids, values))
                extra = sorted(
                    file.name for file in Path(place).iterdir() if file not in (sample, path)
                )
                left = f"left {extra}".encode() if extra else path.read_bytes()
            yield Written("predictions", f"{kind}: {name}", said, accepted, left, asked)


def edited(folder: Path, seed: int) -> Iterator[Written]:
    """Yield what the check before a submission says of files that were edited after they were
    written.
    """
    for kind, asked in ASKED.items():
        for name, change in {**SAME, **BROKEN, **EDITS}.items():
            draw = Random(f"{seed} {kind} {name}")  # noqa: S311 - as above
            with tempfile.TemporaryDirectory(dir=folder) as place:
                sample, path = Path(place) / "sample_submission.csv", Path(place) / NAME
                sample.write_bytes(asked.sample)
                _write(asked, sample, path, IDS, asked.values(draw))
                path.write_bytes(change(path.read_bytes(), draw))
                numbers = asked.metric != "accuracy" and asked.target.kind != "multilabel"
                said, accepted = _told(partial(submission_csv.check, path, sample, numbers=numbers))
                # A check knows the sample and no labels: any text is one.
                seen = replace(asked, fits=bool) if kind == "tags" else asked
                yield Written(
                    "edited files", f"{kind}: {name}", said, accepted, path.read_bytes(), seen
                )


def _last(value: bytes) -> Callable[[bytes, Random], bytes]:
    return lambda text, draw: text.rstrip(b"\n").rpartition(b",")[0] + b"," + value + b"\n"


def _mixed(text: bytes, draw: Random) -> bytes:
    head, *rows = text.splitlines(keepends=True)
    return head + b"".join(draw.sample(rows, len(rows)))


EDITS: dict[str, Callable[[bytes, Random], bytes]] = {
    **{
        f"with {value[:20]!r}": _last(value)
        for value in (
            b"",
            b"nan",
            b"NaN",
            b"inf",
            b"-inf",
            b"1e400",
            b"None",
            b"NA",
            b'" "',
            b"1_0",
            "١".encode(),
        )
    },
    "with rows in another order": _mixed,
    "without its last row": lambda text, draw: text[: text.rstrip(b"\n").rfind(b"\n") + 1],
    "with its last row twice": lambda text, draw: text + text.splitlines(keepends=True)[-1],
    "with an unknown id": lambda text, draw: text.replace(b"e00", b"z00", 1),
    "with ids as Excel writes them": lambda text, draw: text.replace(b"e00", b"0", 1).replace(
        b"e0", b"0E+"
    ),
}


def _write(asked: Asked, sample: Path, path: Path, ids: Sequence[str], values: np.ndarray) -> None:
    Form(asked.target, asked.metric, sample).write(path, ids, values)


def _told(work: Callable[[], object]) -> tuple[Said, bool]:
    try:
        work()
    except PipelineError as error:
        return Said(error.exit_code, f"Error: {error}"), False
    except Exception as error:
        return Said(1, f"Traceback (most recent call last)\n{type(error).__name__}: {error}"), False
    return Said(0, ""), True


def crashes(folder: Path, seed: int) -> tuple[int, list[str]]:
    """Return how many crash states of a write over an older submission there are, and what is wrong
    with which.

    In each there has to be the older file or the new one, whole; and besides no name that anybody
    reads.
    """
    wrong, count = [], 0
    for number, asked in enumerate(ASKED.values()):
        top = folder / str(number)
        top.mkdir()
        sample, path = folder / "sample_submission.csv", top / NAME
        sample.write_bytes(asked.sample)
        values = asked.values(Random(seed))  # noqa: S311 - as above
        _write(asked, sample, path, IDS, values[::-1])
        older = path.read_bytes()
        recording = disk_recorder.record(top, partial(_write, asked, sample, path, IDS, values))
        newer = path.read_bytes()
        for _, tree in crash_states.states(recording, seed, 6):
            count += 1
            files: Mapping[str, bytes | None] = {
                name: content for name, content in tree.items() if content is not None
            }
            if files.get(NAME) not in (older, newer):
                wrong.append(f"submission.csv is {files.get(NAME)!r}")
            wrong += [
                f"{name} stays" for name in files if not name.startswith(".") and name != NAME
            ]
    return count, wrong


def full(folder: Path) -> Said:
    """Return what is said where the disk takes no more bytes; the older file has to survive."""
    asked = ASKED["a number"]
    sample, path = folder / "sample_submission.csv", folder / NAME
    sample.write_bytes(asked.sample)
    path.write_bytes(OLD)
    values = asked.values(Random(0))  # noqa: S311 - as above
    before, kept = (
        resource.getrlimit(resource.RLIMIT_FSIZE),
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        said, _ = _told(partial(_write, asked, sample, path, IDS, values))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, kept)
    whole = path.read_bytes() == OLD and len(list(folder.iterdir())) == 2
    return said if whole else Said(0, "the older file is gone, or another is left")
