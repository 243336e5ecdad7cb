"""The sample submission: which ids to predict, in which order, and which columns to write.

It is a file of the competition. Where there is none (`data.sample_submission=None`), it is made of
the test set: of the ids of its table, else of the names of its images.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from pipeline.config.data_layout import Data
from pipeline.config.rules import as_tuple
from pipeline.data import csv_files, image_files, table_features, tfrecords
from pipeline.errors import DataError, PipelineError

ADVICE = "Set data.sample_submission in the config; to None, if the competition has none."
COUNTED = "id"  # the column that counts the rows of a test table without ids
VALUE = "label"  # in each column of a made sample: it stands for any text


@dataclass(frozen=True)
class Sample:
    """What a submission looks like.

    Attributes:
        path: of the file; of a made one, where the test set is.
        table: texts (object), the ids in the first column.
        separator: of the file's fields.
        made: of what it was made, in words; "" for a file of the competition.
    """

    path: Path
    table: pd.DataFrame
    separator: str = ","
    made: str = ""

    def __str__(self) -> str:
        return f"the sample that was made of {self.path}" if self.made else str(self.path)

    @property
    def columns(self) -> list[str]:
        """The columns beside the id."""
        return [str(name) for name in self.table.columns[1:]]

    def with_columns(self, names: Iterable[str]) -> "Sample":
        """Return the sample with these columns beside the id, for any texts."""
        return replace(self, table=self.table.iloc[:, :1].assign(**dict.fromkeys(names, VALUE)))


def read(path: Path, kind: type[PipelineError] = DataError, advice: str = ADVICE) -> Sample:
    """Return the sample in a file; the errors are those of `csv_files.read`."""
    return Sample(path, csv_files.read(path, kind, advice), csv_files.separator(path))


def ids(folder: Path, data: Data, kind: type[PipelineError] = DataError) -> Sample:
    """Return the sample of a competition's folder with its column of ids alone.

    Raises:
        kind: if the file cannot be read.
        ConfigError: if it has no rows, or the test table lacks `data.id_column`.
        DataError: if there is no test set to make one of.
    """
    if data.sample_submission is not None:
        path = folder / data.sample_submission
        # Ids are the first column, which may have another name than in the tables.
        first = csv_files.header(path, kind, ADVICE)[0]
        return Sample(path, csv_files.read(path, kind, ADVICE, (), required=(first,)))
    path, column, why = _of_test_set(folder, data)
    made = f"the competition has no sample; ids are {why}"
    return Sample(path, pd.DataFrame({data.id_column: list(column)}, dtype=object), made=made)


def of(folder: Path, data: Data, kind: type[PipelineError] = DataError) -> Sample:
    """Return the sample of a competition's folder; a made one has the column of ids alone, since
    the target decides on the others. The errors are those of `ids`.
    """
    if data.sample_submission is None:
        return ids(folder, data)
    return read(folder / data.sample_submission, kind)


def is_there(folder: Path, data: Data) -> bool:
    """Return whether the file is there, or a test set to make a sample of: some come in the scored
    rerun alone.
    """
    if data.sample_submission is not None:
        return (folder / data.sample_submission).is_file()
    where = {
        **dict.fromkeys(("images", "custom"), data.test_images),
        "arrays": data.test_array,
        "tfrecords": data.test_records,
    }
    every = (data.test_csv, *as_tuple(where.get(data.kind, ())))
    return any(any(folder.glob(each)) for each in every)


def counts_rows(folder: Path, data: Data) -> bool:
    """Return whether the ids of a made sample are row numbers: its test set has no ids."""
    if data.sample_submission is not None or data.kind in ("images", "tfrecords"):
        return False
    if not (table := folder / data.test_csv).is_file():
        return data.kind == "arrays"
    names = csv_files.header(table, DataError, table_features.ADVICE)
    # A column of another name is one that somebody chose: it has to be there.
    return data.id_column == COUNTED and COUNTED not in map(str.casefold, names)


def _of_test_set(folder: Path, data: Data) -> tuple[Path, pd.Series, str]:
    """Return where the test set is, its ids, and what these are, in words."""
    key, table, advice = data.id_column, folder / data.test_csv, table_features.ADVICE
    if data.kind == "tfrecords":
        images, records = data.image_feature, data.test_records
        ids = tfrecords.read(folder, records, images, (key,))[1][key]
        return folder / ", ".join(as_tuple(records)), ids, f"the feature {key!r} of {records}"
    if data.kind == "arrays" and not table.is_file():
        path = folder / data.test_array
        count = len(table_features.array(path, data, None))
        return path, _counted(count), f"the numbers of the images in {path.name}, from 0"
    if table.is_file() or data.kind in ("table", "pixels"):
        counted = counts_rows(folder, data)
        required = () if counted else (key,)
        found = csv_files.read(table, DataError, advice, required, required=required)
        why = f"the column {key!r} of {data.test_csv}"
        if counted:
            why = f"the row numbers of {data.test_csv}, from 0, since it has no column {key!r}"
        return table, _counted(len(found)) if counted else found[key], why
    names = image_files.names(folder, data)
    path = folder / ", ".join(as_tuple(data.test_images))
    return path, pd.Series(names, dtype=object), f"the names of the images in {path.name}/"


def _counted(rows: int) -> pd.Series:
    return pd.Series(map(str, range(rows)), dtype=object)
