"""A table becomes numbers by the training table alone; pixels may be columns, or one array."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.config import Data
from pipeline.data import csv_files, dataset, table_features
from pipeline.errors import ConfigError, DataError
from tests.pipeline.rounding import EPS
from tests.shipped import shipped

TABLE = Path("train.csv")
PEOPLE = Data(
    kind="table", numeric_columns=("fare", "age"), categorical_columns=("port",), most_categories=3
)
IMAGES = Data(kind="pixels", height=2, width=3, channels=1)


def people(ages: list[str], ports: list[str]) -> pd.DataFrame:
    return pd.DataFrame({"age": ages, "fare": ["7"] * len(ages), "port": ports}, dtype=object)


numbers = st.integers(-(10**6), 10**6).map(lambda value: value / 7)


@settings(max_examples=40)
@given(st.lists(numbers | st.none(), min_size=1, max_size=40).filter(any))
@example([699050.6946514922] * 3)  # whose mean is another number
def test_a_number_becomes_standard_deviations_and_a_missing_one_is_marked(values):
    """0 if it is missing, with a 1 beside it; a constant column is all 0."""
    table = people(
        ["NA" if value is None else repr(value) for value in values], ["S"] * len(values)
    )
    absent = np.array([value is None for value in values])

    found = table_features.encode(table, table_features.fit(table, PEOPLE, TABLE), TABLE)

    assert (found.dtype, found.shape) == (np.float32, (len(values), *PEOPLE.shape))
    assert np.array_equal(found[:, 3], absent)
    assert not found[absent, 1].any() and not found[:, [0, 2]].any()
    assert found[~absent, 1].mean() == pytest.approx(0, abs=2 * len(values) * EPS)  # of a sum
    assert np.isfinite(found).all()


@settings(max_examples=40)
@given(st.permutations(["Q", "S", "C", "S", "C", "S"]))
def test_a_category_is_its_place_and_one_that_training_has_not_seen_is_unknown(ports):
    """The most frequent first; those beyond most_categories count as unknown, too."""
    encoding = table_features.fit(people(["1"] * 6, ports), PEOPLE, TABLE)
    equal = table_features.fit(people(["1"] * 3, [*set(ports)]), PEOPLE, TABLE)

    found = table_features.encode(people(["1"] * 5, ["S", "C", "Q", "X", ""]), encoding, TABLE)

    assert encoding.categories == {"port": ("S", "C")} and equal.categories == {"port": ("C", "Q")}
    assert list(found[:, -1]) == [1, 2, 0, 0, 0]


@pytest.mark.parametrize(
    ("ages", "said"),
    [
        (["1", "old", "x"], "'old', 'x' in 'age' .2 rows, starting with row 2.; expected fin"),
        (["1", "inf"], "'inf' in 'age'"),
        (["", "NA"], "'', 'NA' in 'age' .*expected numbers"),
        (["1", "-1e308"], "'-1e308' in 'age' .*expected numbers up to 1e.150"),
    ],
)
def test_a_column_that_holds_no_numbers_is_refused(ages, said):
    with pytest.raises(DataError, match=rf"train\.csv.*{said}"):
        table_features.fit(people(ages, ["S"] * len(ages)), PEOPLE, TABLE)


def test_a_text_among_numbers_is_taken_for_missing_in_the_scored_rerun_alone():
    seen = table_features.fit(people(["1", "2", "3"], ["S"] * 3), PEOPLE, TABLE)
    odd = people(["2", "many", "1e300"], ["S"] * 3)

    with pytest.raises(DataError, match="'many' in 'age'"):
        table_features.encode(odd, seen, TABLE)
    found = table_features.encode(odd, seen, TABLE, lenient=True)
    assert found[:, 3].tolist() == [0, 1, 0]
    assert found[2, 1] == table_features.encode(people(["3"], ["S"]), seen, TABLE)[0, 1]


def test_a_test_table_may_have_the_columns_of_groups_and_weights(tmp_path):
    """They are neither pixels nor inputs."""
    (tmp_path / "test.csv").write_text("id,a,b,c,d,e,f,patient,sure\nx,0,1,2,3,4,5,p,0.5\n")
    (tmp_path / "sample_submission.csv").write_text("id,label\nx,0\n")
    data = replace(IMAGES, id_column="id", group_column="patient", weight_column="sure")

    test = dataset.read_test(tmp_path, replace(shipped("digits_csv"), data=data))

    assert test.inputs(np.array([0])).ravel().tolist() == [0, 1, 2, 3, 4, 5]


def test_pixels_are_columns_by_rows(tmp_path):
    """With other columns among them."""
    path = tmp_path / "train.csv"
    path.write_text("label,a,b,c,id,d,e,f\n5,0,1,2,x,3,4,255\n\n6,9,9,9,y,9,9,9\n")

    found, broken = table_features.pixels(path, IMAGES, ("id", "label"))

    assert found.dtype == np.uint8 and not broken
    assert found[:, :, :, 0].tolist() == [[[0, 1, 2], [3, 4, 255]], [[9] * 3] * 2]


def test_a_table_with_fewer_columns_than_pixels_is_refused(tmp_path):
    (tmp_path / "train.csv").write_text("a,b,c,d,e\n0,1,2,3,4\n")

    with pytest.raises(DataError, match=r"5 pixel columns.*2 x 3 x 1 = 6"):
        table_features.pixels(tmp_path / "train.csv", IMAGES, ())


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.npy", np.zeros((3, 2, 3), np.uint8), r"uint8 \(3, 2, 3, 1\); expected uint8 \(4, 2, 3"),
        (
            "a.npy",
            np.zeros((4, 2, 3), np.float32),
            r"(?s)save the array as uint8.*data.kind='custom'",
        ),
        ("a.npy", np.array([None] * 4), "no array: ValueError"),  # nothing is unpickled
        ("a.npy", b"PK no zip", "no array"),
        ("a.npy", None, r"a\.npy"),
        ("a.npz", {"a": np.zeros(1), "b": np.zeros(1)}, "too many values .* one array"),
    ],
)
def test_a_file_without_an_array_of_images_is_refused(tmp_path, name, content, said):
    path = tmp_path / name
    if isinstance(content, np.ndarray):
        np.save(path, content, allow_pickle=True)
    elif isinstance(content, dict):
        np.savez(path, **content)
    elif content is not None:
        path.write_bytes(content)

    with pytest.raises(DataError, match=said):
        table_features.array(path, IMAGES, 4)


def test_a_category_is_the_same_with_gaps_in_its_column_and_without():
    """Pandas writes 3 as 3.0 in a column with gaps."""
    seen = table_features.fit(people(["1", "2", "3"], ["3", "3", "S"]), PEOPLE, TABLE)

    found = table_features.encode(people(["1", "1"], ["3.0", " S"]), seen, TABLE)

    assert seen.categories["port"] == ("3", "S") and found[:, -1].tolist() == [1, 2]


def test_names_of_columns_that_are_texts_in_themselves_do_not_fill_the_screen(tmp_path):
    """A CSV without a header has a row of data for one, and a config may name anything."""
    (tmp_path / "x.csv").write_text(f"{'long ' * 1000},b\n1,2\n")

    with pytest.raises(ConfigError, match=r"but not the expected y+") as caught:
        csv_files.read(tmp_path / "x.csv", DataError, "Correct it.", required=["y" * 10_000])

    assert len(str(caught.value)) < 2500
