"""Ensemble members whose predictions come from CSV files, for example from LightGBM.

`python -m pipeline ensemble OUT --csv NAME=OOF.csv,TEST.csv` checks both files and writes a sealed
folder with a copy of TEST.csv. This folder is published, mounted and verified like an artifact.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from formats import sealed_folder
from formats.checksums import opened
from formats.errors import writing
from pipeline import artifact
from pipeline import config as config_module
from pipeline.artifact import MANIFEST, Artifact
from pipeline.config import Config
from pipeline.data import csv_files, table_features
from pipeline.data.labels import MOST, Target
from pipeline.data.table_features import Encoding
from pipeline.errors import ArtifactError, ConfigError, DataError
from pipeline.evaluate import metrics
from pipeline.infer import submission

TEST = "test.csv"  # deploy/output.py uses this name, too
ROUNDING = 0.01  # maximum difference between 1 and the sum of a row's probabilities
FIX = "Correct the file."
SHARED = ("config", "custom_code", "target", "encoding", "metric")  # copied from a run's manifest


class Files(NamedTuple):
    """The value of a --csv option."""

    name: str
    oof: Path
    test: Path


class Rows(NamedTuple):
    """The predictions in a CSV: n ids, and float32 (n, k), see `Target.predictions`."""

    ids: pd.Index
    values: np.ndarray


NONE = Rows(pd.Index([]), np.zeros(0))


@dataclass(frozen=True)
class CsvMember(Artifact):
    """An artifact that contains test predictions from the CSV file `path` instead of weights and
    golden outputs.

    Its out-of-fold predictions are not saved.
    """

    path: Path = Path()
    test: Rows = NONE
    oof: Rows = NONE

    @property
    def folds(self) -> tuple[()]:
        return ()

    def of(self, ids: Sequence[str]) -> np.ndarray:
        """Return the predictions for test ids, float32 (n, k)."""
        places = self.test.ids.get_indexer(pd.Index(ids, dtype=object))
        missing = np.array(ids, object)[places < 0].tolist()
        if missing:
            name = self.manifest["run_id"].rpartition("-")[0]
            raise DataError(
                f"{self.path} has no predictions for {len(missing):,} of {len(ids):,} test ids, for"
                f" example {', '.join(map(repr, missing[:3]))}; expected a row for each.\nIf this"
                " is a scored rerun with a hidden test set, a CSV cannot predict it, so find the"
                f" weights again without --csv {name}=…"
            )
        return self.test.values[places]


def files_of(options: Sequence[str]) -> list[Files]:
    """Parse the values of --csv options, and return them sorted by name.

    >>> files_of(["lgbm=oof.csv,test.csv"])[0].name
    'lgbm'
    """
    found = [re.fullmatch(r"([\w-]{1,40})=([^,]+\.csv),([^,]+\.csv)", each) for each in options]
    files = [Files(one[1], Path(one[2]), Path(one[3])) for one in found if one]
    if len({each.name for each in files}) < len(options):
        raise ConfigError(
            f"Invalid --csv {' --csv '.join(options)}: expected a unique name, a CSV with"
            " out-of-fold predictions, and one with test predictions:\n--csv lgbm=oof.csv,test.csv"
        )
    return sorted(files)


def read(files: Files, run: Artifact, ids: pd.Index, truth: np.ndarray) -> CsvMember:
    """Read and check both files, and score the out-of-fold predictions.

    Args:
        run: a run in the same ensemble, which determines the labels, the metric and the test set.
        ids, truth: ids and true values of the rows that this run held out.
    """
    if run.target.kind == "custom":
        raise ConfigError("--csv does not support target='custom'; expected labels or numbers.")
    oof, test = (_read(path, run.target, run.config) for path in files[1:])
    common = ids.isin(oof.ids)
    if not common.any():
        raise DataError(
            f"{files.oof} has no predictions for the rows that {run.manifest['run_id']} holds out."
            f" It has ids such as {[*oof.ids[:2]]}, but needs ids such as {[*ids[:2]]}.\n{FIX}"
        )
    metric = metrics.of(run.config, str(run.manifest["metric"]))
    score = metric(truth[common], oof.values[oof.ids.get_indexer(ids[common])])
    digests = [sha256(path.read_bytes()).hexdigest() for path in files[1:]]
    manifest = {name: run.manifest[name] for name in SHARED} | {
        "run_id": f"{files.name}-{sha256(''.join(digests).encode()).hexdigest()[:12]}",
        "bundle_sha256": "",
        "oof_sha256": digests[0],
        "weights_sha256": digests[1],
        "prior": oof.values.mean(axis=0, dtype=np.float64).tolist(),
        "metrics": {f"validation_{metric.name}": score},
    }
    return _member(manifest, files.test, test, oof)


def write(folder: Path, member: CsvMember) -> None:
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    sealed_folder.write(folder, {TEST: member.path.read_bytes()}, member.manifest)


def load(folder: Path, expect: Mapping[str, str] | None = None) -> CsvMember:
    path = folder / TEST
    try:
        manifest = opened((folder / MANIFEST).read_bytes())
        sealed_folder.verify(path, manifest["files"][TEST])
        if manifest["weights_sha256"] != manifest["files"][TEST]["sha256"]:
            raise ValueError(f"weights_sha256 does not match {TEST}")
        target, config = Target.from_json(manifest["target"]), manifest["config"]
        member = _member(manifest, path, _read(path, target, config_module.from_json(config)))
    except Exception as error:  # as in `artifact.load`
        raise ArtifactError(
            f"{path} or its manifest is invalid: {type(error).__name__}: {str(error)[:300]}.\n"
            "Expected a folder written by `python -m pipeline ensemble` with --csv. Run it again."
        ) from error
    artifact.require(folder / MANIFEST, manifest, expect or {})
    return member


def _member(manifest: Mapping[str, Any], path: Path, test: Rows, oof: Rows = NONE) -> CsvMember:
    config, encoding = config_module.from_json(manifest["config"]), manifest["encoding"]
    if config.data.kind == "table":
        encoding = Encoding.from_json(encoding, config.data)
    target, prior = Target.from_json(manifest["target"]), np.array(manifest["prior"], np.float32)
    golden = NONE.values
    return CsvMember(
        manifest, config, target, encoding, prior, {}, golden, golden, path=path, test=test, oof=oof
    )


def _read(path: Path, target: Target, config: Config) -> Rows:
    """Read a CSV with ids in its first column, and a column for each label.

    If the target is a single number or has only two classes, the file can have a single column with
    any name. For two classes, this column contains the probability of the same class as
    in a submission.
    """
    table, names = csv_files.read(path, DataError, FIX), list(target.names)
    ids, columns = table.iloc[:, 0], list(table.columns[1:])
    regression = target.kind == "regression"
    alone = len(columns) == 1 and len(names) == (1 if regression else 2)
    if set(columns) != set(names) and not (alone and target.kind != "multilabel"):
        raise DataError(
            f"{path} has the columns {', '.join(map(str, table.columns))[:300]}. The first column"
            f" must be the id, followed by {', '.join(names)[:300]}.\n{FIX}"
        )
    lowest, highest = (0 if target.log else -MOST, MOST) if regression else (0, 1)
    numbers, expected = table[columns].apply(csv_files.as_numbers), f"{lowest:g} to {highest:g}"
    for name in columns:
        wrong = ~numbers[name].between(lowest, highest)
        csv_files.check_column(path, table[name], wrong, f"numbers from {expected}", FIX)
    values = numbers[names if set(names) == set(columns) else columns].to_numpy(np.float32)
    if alone and not regression:
        positive = submission.positive_code(names, columns[0], config.data.positive_label)
        values = np.concatenate([1 - values, values], axis=1)[:, :: 1 if positive else -1]
    if target.single:
        wrong = np.abs(values.sum(axis=1) - 1) > ROUNDING
        csv_files.check_column(path, ids, wrong, "probabilities with a sum of 1 for each id", FIX)
    return Rows(pd.Index(table_features.unique_ids(ids, path), dtype=object), values)
