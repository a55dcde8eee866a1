"""Frames of every library people use, and the odd things their columns hold."""

import datetime as dt
import decimal
import re
import uuid

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from deql import read_interactions
from deql.data.readers import frames
from tests.data.reading import cells, moments, refusal

COLUMNS = {"user": ["bob", "ann", "ann"], "item": ["tea", "tea", "jam"], "stars": [2, 5, 4], "time": [10, 20, 30]}
STARS = {("ann", "jam"): 4, ("ann", "tea"): 5, ("bob", "tea"): 2}
PANDAS = pd.DataFrame(COLUMNS)
FRAMES = {
    "polars": pl.DataFrame(COLUMNS),
    "polars, lazy": pl.LazyFrame(COLUMNS),
    "polars, categories": pl.DataFrame(COLUMNS).cast({"user": pl.Categorical, "item": pl.Enum(["tea", "jam"])}),
    "polars, small numbers": pl.DataFrame(COLUMNS).cast({"stars": pl.UInt8, "time": pl.Int16}),
    "polars, decimals": pl.DataFrame(COLUMNS).cast({"stars": pl.Decimal(10, 2)}),
    "polars, text": pl.DataFrame(COLUMNS).cast(pl.String),
    "pandas": PANDAS,
    "pandas, objects": PANDAS.astype(object),
    "pandas, some rows": pd.concat([PANDAS.iloc[[0]].assign(user="eve"), PANDAS]).iloc[1:],
    "pandas, other index": PANDAS.set_index(pd.Index(["x", "x", "y"])),
    "pandas, categories": PANDAS.astype({"user": "category", "item": "category"}),
    "pandas, strings": PANDAS.astype({"user": "string", "item": "string"}),
    "pandas, nullable": PANDAS.astype({"stars": "Int64", "time": "Float64"}),
    "pandas, converted": PANDAS.convert_dtypes(),
    "pandas, Arrow": PANDAS.convert_dtypes(dtype_backend="pyarrow"),
    "pandas, floats": PANDAS.astype({"stars": "float32", "time": float}),
    "Arrow": pa.table(COLUMNS),
    "Arrow, dictionary": pa.table({**COLUMNS, "user": pa.array(COLUMNS["user"]).dictionary_encode()}),
    "Arrow, chunks": pa.concat_tables([pa.table(COLUMNS).slice(0, 1), pa.table(COLUMNS).slice(1)]),
    "Arrow, large strings": pa.table({**COLUMNS, "item": pa.array(COLUMNS["item"], pa.large_string())}),
    "Arrow, batch": pa.RecordBatch.from_pydict(COLUMNS),
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames(name):
    data = read_interactions(FRAMES[name], "user", "item", "stars", "time")
    assert cells(data) == STARS
    assert moments(data) == {("ann", "jam"): 30, ("ann", "tea"): 20, ("bob", "tea"): 10}
    assert cells(read_interactions(FRAMES[name])) == dict.fromkeys(STARS, 1)
    assert data.steps[0].what == "read from the frame"


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("size", [1, 2])
def test_batches(monkeypatch, name, size):
    monkeypatch.setattr(frames, "_BATCH", size)
    assert cells(read_interactions(FRAMES[name], weight="stars")) == STARS


IDS = {
    "pandas integers": (pd.Series([10, -9]), [-9, 10]),
    "pandas nullable": (pd.Series([2**60 + 1, 3], dtype="Int64"), [3, 2**60 + 1]),
    "pandas floats": (pd.Series([1112486027.0, 3.0]), [3, 1112486027]),
    "pandas integers as objects": (pd.Series([10, 9], dtype=object), [9, 10]),
    "pandas integers of two kinds": (pd.Series([np.int64(10), 9], dtype=object), [9, 10]),
    "pandas categories of numbers": (pd.Series([10, 9], dtype="category"), [9, 10]),
    "pandas unsigned": (pd.Series([2**64 - 1, 7], dtype="uint64"), [str(2**64 - 1), "7"]),
    "pandas truth": (pd.Series([True, False]), ["false", "true"]),
    "pandas text": (pd.Series(["b", "é"]), ["b", "é"]),
    "pandas zeros": (pd.Series(["007", "7"]), ["007", "7"]),
    "pandas numbers as text": (pd.Series(["10", "9"]), [9, 10]),
    "pandas decimals": (pd.Series([decimal.Decimal(10), decimal.Decimal(9)]), [9, 10]),
    "polars unsigned": (pl.Series([2**63, 7], dtype=pl.UInt64), [str(2**63), "7"]),
    "polars unsigned that fits": (pl.Series([2**63 - 1, 7], dtype=pl.UInt64), [7, 2**63 - 1]),
    "polars bytes": (pl.Series([200, 7], dtype=pl.UInt8), [7, 200]),
    "polars floats": (pl.Series([1.5, 2.0]), None),
}


@pytest.mark.parametrize("name", IDS)
def test_ids(name):
    series, expected = IDS[name]
    frame = (pd if isinstance(series, pd.Series) else pl).DataFrame({"user": series, "item": ["a", "b"]})
    found = read_interactions(frame).users.tolist()
    if expected is None:
        assert sorted(map(float, found)) == [1.5, 2.0]
    else:
        assert found == sorted(expected)


def test_floats_are_the_same_ids_in_every_batch(monkeypatch):
    frame = pl.DataFrame({"user": [1, 2, 3, 4], "item": [2.0, 1.5, 2.0, 3.0]})
    whole = cells(read_interactions(frame))
    assert len({item for _, item in whole}) == 3
    for size in (1, 2, 3):
        monkeypatch.setattr(frames, "_BATCH", size)
        assert cells(read_interactions(frame)) == whole


MOMENT = dt.datetime(2020, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
TIMES = {
    "pandas": (pd.Series([pd.Timestamp("2020-01-02 03:04:05")]), MOMENT.timestamp()),
    "pandas, nanoseconds": (
        pd.Series([pd.Timestamp("2020-01-02 03:04:05")]).astype("datetime64[ns]"),
        MOMENT.timestamp(),
    ),
    "pandas, zone": (pd.Series([pd.Timestamp("2020-01-02 04:04:05", tz="Europe/Berlin")]), MOMENT.timestamp()),
    "pandas, dates": (pd.Series([dt.date(2020, 1, 2)]), 1577923200),
    "pandas, text": (pd.Series(["2020-01-02 03:04:05"]), MOMENT.timestamp()),
    "polars": (pl.Series([dt.datetime(2020, 1, 2, 3, 4, 5)]), MOMENT.timestamp()),
    "polars, milliseconds": (pl.Series([dt.datetime(2020, 1, 2, 3, 4, 5)]).cast(pl.Datetime("ms")), MOMENT.timestamp()),
    "polars, nanoseconds": (pl.Series([dt.datetime(2020, 1, 2, 3, 4, 5)]).cast(pl.Datetime("ns")), MOMENT.timestamp()),
    "polars, zone": (pl.Series([MOMENT]).dt.convert_time_zone("Asia/Tokyo"), MOMENT.timestamp()),
    "polars, before 1970": (pl.Series([dt.date(1969, 12, 31)]), -86400),
    "polars, half a second": (pl.Series([dt.datetime(2020, 1, 2, 3, 4, 5, 500_000)]), MOMENT.timestamp() + 0.5),
    "numbers": (pl.Series([1588687728923]), 1588687728923),
}


@pytest.mark.parametrize("name", TIMES)
def test_times(name):
    series, expected = TIMES[name]
    frame = (pd if isinstance(series, pd.Series) else pl).DataFrame({"user": [1], "item": [2], "when": series})
    assert moments(read_interactions(frame, time="when")) == {(1, 2): expected}


MISSING = {
    "object": pd.Series(["a", None], dtype=object),
    "object, NaN": pd.Series(["a", np.nan], dtype=object),
    "object, NA": pd.Series(["a", pd.NA], dtype=object),
    "text": pd.Series(["a", None]),
    "text, NaN": pd.Series(["a", np.nan], dtype="str"),
    "string": pd.Series(["a", pd.NA], dtype="string"),
    "string in Arrow": pd.Series(["a", pd.NA], dtype="string[pyarrow]"),
    "category": pd.Series(["a", None], dtype="category"),
    "nullable": pd.Series([1, pd.NA], dtype="Int64"),
    "float": pd.Series([1, np.nan]),
    "nullable float": pd.Series([1, pd.NA], dtype="Float64"),
    "nullable truth": pd.Series([True, pd.NA], dtype="boolean"),
    "Arrow number": pd.Series([1, None], dtype="int64[pyarrow]"),
    "polars": pl.Series(["a", None]),
    "polars float": pl.Series([1.5, float("nan")]),
    "polars category": pl.Series(["a", None], dtype=pl.Categorical),
}


@pytest.mark.parametrize("name", MISSING)
def test_missing_ids(name):
    series = MISSING[name]
    frame = (pd if isinstance(series, pd.Series) else pl).DataFrame({"user": series, "item": [1, 2]})
    assert refusal(frame).startswith("the frame, row 2: column user is empty here: fill in or remove the row (once)")


@pytest.mark.parametrize(
    "series",
    [
        pd.Series([1.5, np.nan]),
        pd.Series([1, pd.NA], dtype="Int64"),
        pd.Series([True, pd.NA], dtype="boolean"),
        pl.Series([1.5, None]),
        pl.Series([1.5, float("nan")]),
    ],
)
def test_missing_weights(series):
    frame = (pd if isinstance(series, pd.Series) else pl).DataFrame({"user": [1, 2], "item": [1, 2], "w": series})
    assert refusal(frame, weight="w").startswith("the frame, row 2: column w is empty here")


@pytest.mark.parametrize(
    "series", [pd.Series([pd.Timestamp("2020-01-01"), pd.NaT]), pl.Series([dt.date(2020, 1, 1), None])]
)
def test_missing_times(series):
    frame = (pd if isinstance(series, pd.Series) else pl).DataFrame({"user": [1, 2], "item": [1, 2], "when": series})
    assert refusal(frame, time="when").startswith("the frame, row 2: column when is empty here")


def test_the_row_beyond_the_first_batch(monkeypatch):
    monkeypatch.setattr(frames, "_BATCH", 100)
    frame = pl.DataFrame({"user": range(2000), "item": 1, "w": [*["1"] * 1500, "x", *["1"] * 499]})
    assert refusal(frame, weight="w").startswith("the frame, row 1,501: 'x' in column w is not a number")


def test_labels_that_are_numbers():
    frame = pd.DataFrame([[5, 6, 2.5], [7, 8, 1.0]])
    assert cells(read_interactions(frame, user=1, item=2, weight=3)) == {(5, 6): 2.5, (7, 8): 1}
    assert cells(read_interactions(frame[[0, 1]])) == {(5, 6): 1, (7, 8): 1}


TWO = pl.DataFrame({"user": [1, 2], "item": [7, 8], "w": [1.0, 2.0]})
UNUSABLE = {
    "mixed": (
        pd.DataFrame({"user": pd.Series(["a", 5], dtype=object), "item": [1, 2]}),
        {},
        "row 2: column 'user' holds .*astype",
    ),
    "repeated name": (
        pd.DataFrame([[1, 2, 3]], columns=["user", "item", "item"]),
        {},
        "several columns 'item': rename",
    ),
    "repeated name in Arrow": (pa.Table.from_arrays([pa.array([1])] * 3, names=["user", "item", "item"]), {}, "'item'"),
    "uuid": (
        pd.DataFrame({"user": [uuid.UUID(int=1)], "item": [1]}),
        {},
        "column user .*ids must be whole numbers or text",
    ),
    "lists": (
        pl.DataFrame({"user": [[1]], "item": [1]}),
        {},
        "column user holds List.*: ids must be whole numbers or text",
    ),
    "structs": (pl.DataFrame({"user": [{"a": 1}], "item": [1]}), {}, "column user holds Struct.*"),
    "bytes": (pl.DataFrame({"user": [b"a"], "item": [1]}), {}, "column user holds Binary"),
    "text weight": (
        TWO.with_columns(w=pl.Series(["1", "x"])),
        {"weight": "w"},
        "row 2: 'x' in column w is not a number",
    ),
    "endless weight": (
        TWO.with_columns(w=pl.Series([1, np.inf], dtype=pl.Float64)),
        {"weight": "w"},
        "row 2: inf in column w is not finite",
    ),
    "negative weight": (TWO.with_columns(w=pl.Series([1, -1])), {"weight": "w"}, "row 2: the weight -1 is negative"),
    "dates as weight": (
        TWO.with_columns(w=dt.date(2020, 1, 1)),
        {"weight": "w"},
        "column w holds Date values where numbers belong",
    ),
    "list weight": (TWO.with_columns(w=pl.Series([[1], [2]])), {"weight": "w"}, "column w holds List"),
    "clock times": (TWO.with_columns(w=dt.time(1)), {"time": "w"}, "column w holds Time values, which are no dates"),
    "durations": (TWO.with_columns(w=dt.timedelta(1)), {"time": "w"}, "column w holds Duration.* no dates"),
    "text time": (TWO.with_columns(w=pl.lit("soon")), {"time": "w"}, "row 1: "),
    "no rows": (TWO[:0], {}, "the frame has no rows"),
    "no columns": (pl.DataFrame(), {}, "the frame has no columns"),
    "no such column": (
        TWO,
        {"user": "who"},
        "the frame has no column 'who': say user=… with one of 'user', 'item', 'w'",
    ),
    "not there": (pl.scan_csv("none.csv"), {}, "the frame cannot be read .*"),
    "dict": ({"user": [1], "item": [2]}, {}, "expected a file's path, a sparse matrix or a frame .*got dict"),
    "array": (np.eye(2), {}, "got ndarray"),
    "list": ([[1, 2]], {}, "got list"),
    "nothing": (None, {}, "got NoneType"),
    "pandas series": (pd.Series([1, 2]), {}, "got Series"),
    "polars series": (pl.Series([1, 2]), {}, "got Series"),
    "bytes path": (b"t.csv", {}, "got bytes"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_frames_that_cannot_be_read(name):
    frame, choices, message = UNUSABLE[name]
    text = refusal(frame, **choices)
    assert re.search(message, text), text


def test_floats_as_text_are_what_they_are():
    frame = pl.DataFrame({"user": [1.0, 2.5], "item": [3, 4]})
    assert set(cells(read_interactions(frame, "user", "item", ids="text"))) == {("1.0", "3"), ("2.5", "4")}
    assert set(cells(read_interactions(frame, "user", "item"))) == {("1", 3), ("2.5", 4)}
    gap = pl.DataFrame({"user": [1.0, float("nan")], "item": [3, 4]})
    for ids in ("auto", "text"):
        assert "row 2: column user is empty here" in refusal(gap, "user", "item", ids=ids)
