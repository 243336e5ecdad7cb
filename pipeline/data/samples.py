"""Read the sample submission, which lists the ids to predict and the columns to write.

If a competition does not provide one (`data.sample_submission=None`), it is generated from the ids
in the test table, or from the file names of the test images.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from pipeline.config.data_layout import Data
from pipeline.config.rules import as_tuple
from pipeline.data import csv_files, image_files, table_features, tfrecords
from pipeline.errors import DataError, PipelineError

ADVICE = "Set data.sample_submission in the config (to None if the competition has no sample)."
COUNTED = "id"  # name of the column with row numbers if the test table has no ids
VALUE = "label"  # placeholder for any text in the columns of a generated sample


@dataclass(frozen=True)
class Sample:
    """The format of a submission.

    Attributes:
        path: path of the sample submission, or of the test set if the sample was generated.
        table: strings (object), with ids in the first column.
        made: how it was generated, or "" if the competition provides it.
    """

    path: Path
    table: pd.DataFrame
    separator: str = ","
    made: str = ""

    def __str__(self) -> str:
        return f"the sample generated from {self.path}" if self.made else str(self.path)

    @property
    def columns(self) -> list[str]:
        return [str(name) for name in self.table.columns[1:]]

    def with_columns(self, names: Iterable[str]) -> "Sample":
        return replace(self, table=self.table.iloc[:, :1].assign(**dict.fromkeys(names, VALUE)))


def read(path: Path, kind: type[PipelineError] = DataError, advice: str = ADVICE) -> Sample:
    return Sample(path, csv_files.read(path, kind, advice), csv_files.separator(path))


def ids(folder: Path, data: Data) -> Sample:
    """Return a competition's sample submission with only its id column.

    Raises:
        ConfigError: if it has no rows, or `data.id_column` is missing in the test table.
        DataError: if it cannot be read, or there is no test set from which to generate it.
    """
    if data.sample_submission is not None:
        path = folder / data.sample_submission
        # The first column contains the ids, whatever its name.
        first = csv_files.header(path, DataError, ADVICE)[0]
        return Sample(path, csv_files.read(path, DataError, ADVICE, (), required=(first,)))
    path, column, why = _of_test_set(folder, data)
    made = f"the competition has no sample, so the ids are {why}"
    return Sample(path, pd.DataFrame({data.id_column: list(column)}, dtype=object), made=made)


def of(folder: Path, data: Data, kind: type[PipelineError] = DataError) -> Sample:
    """Return a competition's sample submission, and raise the same errors as `ids`.

    A generated sample only contains ids, because the other columns depend on the target.
    """
    if data.sample_submission is None:
        return ids(folder, data)
    return read(folder / data.sample_submission, kind)


def is_there(folder: Path, data: Data) -> bool:
    """Return whether there is a sample submission, or a test set from which to generate one.

    In some competitions, both are only available in the scored rerun.
    """
    if data.sample_submission is not None:
        return (folder / data.sample_submission).is_file()
    every = data.files("test") or (data.test_csv, *as_tuple(data.test_images))
    return any(any(folder.glob(each)) for each in every)


def counts_rows(folder: Path, data: Data) -> bool:
    """Return whether a generated sample uses row numbers because the test set has no ids."""
    if data.sample_submission is not None or data.kind in ("images", "tfrecords"):
        return False
    if not (table := folder / data.test_csv).is_file():
        return data.kind == "arrays"
    names = csv_files.header(table, DataError, table_features.ADVICE)
    # Any other name was chosen by the user, so that column must exist.
    return data.id_column == COUNTED and COUNTED not in map(str.casefold, names)


def _of_test_set(folder: Path, data: Data) -> tuple[Path, pd.Series, str]:
    key, table, advice = data.id_column, folder / data.test_csv, table_features.ADVICE
    if data.kind == "tfrecords":
        images, records = data.image_feature, data.test_records
        ids = tfrecords.read(folder, records, images, (key,))[1][key]
        return folder / ", ".join(as_tuple(records)), ids, f"the feature {key!r} of {records}"
    if data.kind == "arrays" and not table.is_file():
        path = folder / data.test_array
        count = len(table_features.array(path, data, None))
        return path, _counted(count), f"the indices of the images in {path.name}, starting at 0"
    if table.is_file() or data.kind in ("table", "pixels"):
        counted = counts_rows(folder, data)
        required = () if counted else (key,)
        found = csv_files.read(table, DataError, advice, required, required=required)
        why = f"the column {key!r} of {data.test_csv}"
        if counted:
            why = f"the row numbers of {data.test_csv} from 0, because it has no column {key!r}"
        return table, _counted(len(found)) if counted else found[key], why
    names = image_files.names(folder, data)
    path = folder / ", ".join(as_tuple(data.test_images))
    return path, pd.Series(names, dtype=object), f"the file names in {path.name}/"


def _counted(rows: int) -> pd.Series:
    return pd.Series(map(str, range(rows)), dtype=object)
