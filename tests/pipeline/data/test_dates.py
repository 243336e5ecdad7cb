"""Dates become numbers by the format of the training table."""

import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config import Data
from pipeline.data import dates, table_features
from pipeline.data.table_features import Encoding
from pipeline.errors import DataError

TABLE = Path("train.csv")
FORMS = (
    "%m/%d/%y",
    "%d-%b-%y",
    "%Y-%m-%d",
    "%Y-%m-%dT%H:%M:%S",
    "%d/%m/%Y",
    "%m/%d/%Y %H:%M",
    "%d %B %Y",
    "%Y/%m/%d",
)
BOUGHT = Data(kind="table", numeric_columns=("price",), date_columns=("ordered", "sent"))
MOMENTS = st.datetimes(datetime(1700, 1, 1), datetime(2250, 1, 1)).map(
    lambda moment: moment.replace(minute=0, second=0, microsecond=0)
)


def frame(**columns):
    return pd.DataFrame(columns, dtype=object)


@settings(max_examples=60, deadline=None)
@given(form=st.sampled_from(FORMS), moments=st.lists(MOMENTS, min_size=1, max_size=20))
def test_a_date_is_read_as_it_was_written(form, moments):
    """A day above 12 shows which number is the month."""
    moments = [*moments, datetime(2026, 11, 28, 9)]
    if "%y" in form:  # only this century
        moments = [
            each.replace(year=2000 + each.year % 60, day=min(each.day, 28)) for each in moments
        ]
    moments = [each if "%H" in form else each.replace(hour=0) for each in moments]
    table = frame(when=[each.strftime(form) for each in moments])

    days, month, day, weekday, hour = dates.numbers(
        table, {"when": dates.form(table["when"])}, TABLE
    )

    expected = [(each - datetime(1970, 1, 1)) / timedelta(days=1) for each in moments]
    assert days.tolist() == pytest.approx(expected, abs=1e-6)  # pandas counts to the microsecond
    assert month.tolist() == [each.month for each in moments]
    assert day.tolist() == [each.day for each in moments]
    assert weekday.tolist() == [each.weekday() for each in moments]
    assert hour.tolist() == [each.hour for each in moments]


def test_the_test_table_is_read_by_the_form_of_the_training_table():
    """03/04 alone is ambiguous."""
    ordered = ["25/12/2025", "03/04/2026"]
    table = frame(price=["1", "2"], ordered=ordered, sent=["2026-01-01", "2026-05-01"])
    encoding = table_features.fit(table, BOUGHT, TABLE)

    encoding = Encoding.from_json(json.loads(json.dumps(encoding.to_json())), BOUGHT)
    ambiguous = frame(price=["2"], ordered=["03/04/2026"], sent=["2026-05-01"])

    assert encoding.dates == {"ordered": "%d/%m/%Y", "sent": dates.ISO}
    found = table_features.encode(ambiguous, encoding, TABLE)
    assert np.array_equal(found[0], table_features.encode(table, encoding, TABLE)[1])
    assert found.shape == (1, *BOUGHT.shape)


def test_the_config_says_whether_the_day_comes_first_where_it_could():
    table = frame(price=["1", "2"], ordered=["03/04/2026", "05/06/2026"], sent=["03/04/26"] * 2)
    table.loc[0, "sent"] = "25/04/26"  # no month

    for day_first, form in ((False, "%m/%d/%Y"), (True, "%d/%m/%Y")):
        found = table_features.fit(table, replace(BOUGHT, day_first=day_first), TABLE)
        assert found.dates == {"ordered": form, "sent": "%d/%m/%y"}


def test_a_row_has_the_parts_of_each_date_and_the_days_between_two():
    table = frame(
        price=["1", "2", "3"],
        ordered=["2026-01-01", "2026-01-01", ""],
        sent=["2026-01-02", "2026-01-05", "2026-01-09"],
    )
    encoding = table_features.fit(table, BOUGHT, TABLE)

    assert tuple(encoding.numbers) == BOUGHT.number_names
    assert encoding.numbers["days from ordered to sent"].mean == 2.5  # of 1 and 4
    found = table_features.encode(table, encoding, TABLE)
    missing = dict(zip(BOUGHT.number_names, found[2, len(BOUGHT.number_names) :], strict=True))
    assert missing["ordered: month"] == missing["days from ordered to sent"] == 1
    assert missing["sent: month"] == missing["price"] == 0


def test_a_text_that_is_no_date_is_refused_in_training_and_missing_in_the_scored_rerun():
    table = frame(price=["1", "2"], ordered=["2026-01-01", "soon"], sent=["2026-01-02"] * 2)

    with pytest.raises(DataError, match=r"'soon' in 'ordered'.*expected dates(?s:.*)date_columns"):
        table_features.fit(table, BOUGHT, TABLE)
    whole = table.assign(ordered="2026-01-01")
    encoding = table_features.fit(whole, BOUGHT, TABLE)
    found = table_features.encode(table, encoding, TABLE, lenient=True)

    assert np.isfinite(found).all()
    with pytest.raises(DataError, match="expected dates in the format ISO8601, from 1678 to 2261"):
        table_features.encode(whole.assign(sent="9999-12-31"), encoding, TABLE)
