"""Small competitions with a trained model each, and the commands of `python -m pipeline` on changed
copies of them, in this process.
"""

import csv
import io
import traceback
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from unittest.mock import patch

from localkaggle.competitions import EMBEDDED
from pipeline.config import Config, custom_code
from tests.hostile import judge
from tests.hostile.judge import Fits, Said
from tests.shipped import shipped

Files = dict[str, bytes]
SAMPLE = "sample_submission.csv"
TRAINED_ON, TESTED_ON = 160, 30
FITS: Mapping[str, Fits] = {
    "digits": set("0123456789").__contains__,
    "digits-csv": set("0123456789").__contains__,
    "diabetes": judge.number,
    "breast-cancer": judge.share,
}


@dataclass(frozen=True, eq=False)
class Subject:
    """A small competition, the model that was trained on it, and that model's predictions for the
    whole test set, by id.
    """

    files: Mapping[str, bytes]
    place: Path  # of the files
    config: Path
    output: Path
    predicted: Mapping[str, Sequence[str]]

    @property
    def artifact(self) -> Path:
        """Return the folder of the trained model."""
        return self.output / "artifact"


def trained(folder: Path, slug: str) -> Subject:
    """Return the competition of that name, with a model that is trained now."""
    name, place = slug.replace("-", "_"), folder / slug
    config, output = folder / f"{name}.py", folder / f"{slug}-out"
    config.write_text(text_of(config_of(name, epochs=6)), encoding="utf-8")
    lay(cut(slug), place)
    expect("train", config, place, output)
    expect("infer", config, place, output, output / "artifact")
    config.write_text(text_of(config_of(name, epochs=1)), encoding="utf-8")  # for what trains again
    predicted = values((output / "submission.csv").read_bytes())
    return Subject(cut(slug), place, config, output, predicted)


@cache
def cut(slug: str) -> Mapping[str, bytes]:
    """Return an embedded competition with fewer rows and pictures."""
    whole = EMBEDDED[slug]()
    files: Files = {**whole.training, **whole.visible_test}
    kept: set[str] = set()
    for name, count in (("train.csv", TRAINED_ON), ("test.csv", TESTED_ON), (SAMPLE, TESTED_ON)):
        if name in files:
            put(files, name, rows(files, name)[: count + 1])
            kept |= {Path(name).stem, *(row[0] for row in rows(files, name))}
    return {name: content for name, content in files.items() if Path(name).stem in kept}


def config_of(name: str, *, epochs: int) -> Config:
    """Return the config of that name, changed so that training takes a second or two."""
    own = shipped(name)
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


def rows(files: Mapping[str, bytes], name: str) -> list[list[str]]:
    """Return the rows of a table, the header first."""
    return list(csv.reader(io.StringIO(files[name].decode(), newline="")))


def put(files: Files, name: str, table: list[list[str]]) -> None:
    """Write the rows of a table."""
    text = io.StringIO(newline="")
    # Python does not quote a carriage return.
    returns = any("\r" in cell for row in table for cell in row)
    plain = csv.writer(text, lineterminator="\n")
    quoted = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    (quoted if returns else plain).writerows(table)
    files[name] = text.getvalue().encode()


def values(submission: bytes) -> dict[str, list[str]]:
    """Return the values of a submission by id."""
    return {row[0]: row[1:] for row in judge.table(submission)[1:]}


def lay(files: Mapping[str, bytes], folder: Path) -> None:
    """Write these files."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def run(
    command: str, config: Path, place: Path, output: Path, artifact: Path | None = None, *more: str
) -> Said:
    """Return how a command that reads a competition ends."""
    words = [command, "--config", str(config), "--input", str(place), "--output", str(output)]
    return said(*words, *(["--artifact", str(artifact)] if artifact else []), *more)


def expect(
    command: str, config: Path, place: Path, output: Path, artifact: Path | None = None
) -> None:
    """Run a command that has to end well."""
    ended = run(command, config, place, output, artifact)
    assert ended.code == 0, ended.text[-2000:]


def said(*words: str) -> Said:
    """Return how `python -m pipeline`, or workbench, with these words ends in this process."""
    from pipeline.__main__ import main as model_side
    from workbench.__main__ import main as at_home

    main = at_home if words[0] in ("report", "inspect", "plan") else model_side

    shown = io.StringIO()
    # A process of its own forgets which files it has loaded: they may be gone in the next test.
    with patch.dict(custom_code._loaded), redirect_stdout(shown), redirect_stderr(shown):
        try:
            code = main(list(words))
        except SystemExit as error:  # argparse
            code = error.code if isinstance(error.code, int) else 1
        except Exception:
            code = 1
            traceback.print_exc(file=shown)
    return Said(code, shown.getvalue())
