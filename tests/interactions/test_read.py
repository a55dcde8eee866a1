import re
from contextlib import suppress
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from deql import DeqlError, read_interactions
from deql.errors import DataError

PAIRS = pl.DataFrame({"user": ["bob", "ann", "ann"], "item": ["tea", "tea", "jam"], "stars": [2, 5, 4]})


WRITERS = {
    ".csv": pl.DataFrame.write_csv,
    ".txt": pl.DataFrame.write_csv,
    ".CSV": pl.DataFrame.write_csv,
    ".tsv": partial(pl.DataFrame.write_csv, separator="\t"),
    ".tab": partial(pl.DataFrame.write_csv, separator="\t"),
    ".ndjson": pl.DataFrame.write_ndjson,
    ".jsonl": pl.DataFrame.write_ndjson,
    ".parquet": pl.DataFrame.write_parquet,
}
FRAMES = {
    "polars": PAIRS,
    "lazy": PAIRS.lazy(),
    "pandas": pd.DataFrame(PAIRS.to_dict(as_series=False)),
    "pandas, some rows": pd.DataFrame(PAIRS.vstack(PAIRS).to_dict(as_series=False))[2:5],
    "pandas, categories": pd.DataFrame(PAIRS.to_dict(as_series=False)).astype({"item": "category"}),
    "arrow table": pa.table(PAIRS.to_dict(as_series=False)),
    "arrow batch": pa.RecordBatch.from_pydict(PAIRS.to_dict(as_series=False)),
}


def assert_pairs(data, values=((1, 1), (0, 1))):
    assert data.users.tolist() == ["ann", "bob"]
    assert data.items.tolist() == ["jam", "tea"]
    assert data.matrix.toarray().tolist() == [list(row) for row in values]


@pytest.mark.parametrize("ending", WRITERS)
def test_files(tmp_path, ending):
    path = tmp_path / f"pairs{ending}"
    WRITERS[ending](PAIRS, path)
    assert_pairs(read_interactions(path))
    assert_pairs(read_interactions(str(path), weight="stars"), [[4, 5], [0, 2]])


@pytest.mark.parametrize("name", FRAMES)
def test_frames(name):
    assert_pairs(read_interactions(FRAMES[name]))
    assert_pairs(read_interactions(FRAMES[name], weight="stars"), [[4, 5], [0, 2]])


@pytest.mark.parametrize(
    ("user", "item"),
    [("user_id", "item_id"), ("User ID", "ITEM ID"), ("customer", "product"), ("visitor_id", "asin"), ("who", "what")],
)
def test_columns_are_found_by_name_or_as_the_only_two(user, item):
    assert_pairs(read_interactions(PAIRS.select("user", "item").rename({"user": user, "item": item})))


def test_names_win_over_places():
    assert_pairs(read_interactions(PAIRS.select("stars", "item", "user")))
    assert_pairs(read_interactions(PAIRS.select("item", "user")))


def test_columns_that_are_named_win_over_guesses():
    frame = PAIRS.rename({"user": "item", "item": "user"})
    assert_pairs(read_interactions(frame, user="item", item="user"))


def test_a_filtered_pandas_frame_of_two_columns_still_has_two():
    frame = pd.DataFrame({"who": [9, 1, 2], "what": [9, 4, 5]})
    assert read_interactions(frame[frame["who"] < 9]).items.tolist() == [4, 5]


@pytest.mark.parametrize("ending", WRITERS)
def test_integer_ids_stay_integers(tmp_path, ending):
    path = tmp_path / f"ids{ending}"
    WRITERS[ending](pl.DataFrame({"user": [10, 9, 10], "item": [-3, 2**40, 2**40]}), path)
    data = read_interactions(path)
    assert data.users.dtype == data.items.dtype == np.int64
    assert data.users.tolist() == [9, 10]
    assert data.items.tolist() == [-3, 2**40]


@pytest.mark.parametrize("large", [2**63 + 5, 2**64])
def test_ids_beyond_int64_are_kept_or_refused_but_never_changed(tmp_path, large):
    (tmp_path / "ids.csv").write_text(f"user,item\n{large},1\n")
    with suppress(DataError):
        assert str(read_interactions(tmp_path / "ids.csv").users[0]) == str(large)


def test_other_ids_become_text(tmp_path):
    (tmp_path / "ids.csv").write_text('user,item\n1.5,"Café, crème"\ntrue,日本\n', encoding="utf-8")
    data = read_interactions(tmp_path / "ids.csv")
    assert data.users.tolist() == ["1.5", "true"]
    assert data.items.tolist() == ["Café, crème", "日本"]


def test_repeated_pairs_count_once_and_their_weights_add_up():
    frame = pl.DataFrame({"user": [1, 1, 1], "item": [5, 5, 6], "stars": ["2", "0.5", "1"]})
    assert read_interactions(frame).matrix.toarray().tolist() == [[1, 1]]
    assert read_interactions(frame, weight="stars").matrix.toarray().tolist() == [[2.5, 1]]


UNREADABLE = {
    "empty.csv": (b"", "empty"),
    "blank.csv": (b"\n\n", "cannot be read as a CSV table"),
    "headed.csv": (b"user,item\n", "has no rows"),
    "single.csv": (b"user;item\n1;2\n", "no column that looks like the user's: say user=… with one of 'user;item'"),
    "three.tsv": (b"who\twhat\twhen\n1\t2\t3\n", "say user=… with one of 'who', 'what', 'when'"),
    "garbage.csv": (b"\xff\xfe\x00\x81" * 50, "cannot be read as a CSV table|no column"),
    "garbage.ndjson": (b"\xff\xfe\x00\x81" * 50, "cannot be read as a NDJSON table"),
    "garbage.parquet": (b"\xff\xfe\x00\x81" * 50, "cannot be read as a PARQUET table"),
    "prose.ndjson": (b"it was a dark night\n", "cannot be read as a NDJSON table"),
    "prose.parquet": (b"it was a dark night\n", "cannot be read as a PARQUET table"),
    "array.ndjson": (b"[1, 2]\n", "cannot be read as a NDJSON table"),
    "cut.csv": (b"user,item\n1,2\n3\n", "'item' of .* 1 missing value.* data row 2"),
    "hole.csv": (b"user,item\n1,2\n,4\n", "'user' of .* 1 missing value.* data row 2"),
    "hole.ndjson": (b'{"user": 1, "item": 2}\n{"user": 1}\n', "'item' of .* 1 missing value.* data row 2"),
    "lists.ndjson": (b'{"user": 1, "item": ["a", "b"]}\n', "item"),
    "table.xlsx": (b"PK", "unknown ending: expected .csv, .tsv, .ndjson or .parquet"),
    "table": (b"user,item\n1,2\n", "unknown ending"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_files_that_cannot_be_read(tmp_path, name):
    content, message = UNREADABLE[name]
    (tmp_path / name).write_bytes(content)
    assert_one_clear_line(message, tmp_path / name, mentions=name)


def test_a_file_that_is_not_there(tmp_path):
    assert_one_clear_line("there is no file", tmp_path / "none.csv", mentions="none.csv")


def test_a_folder(tmp_path):
    assert_one_clear_line("is a folder", tmp_path, mentions="Parquet")


UNUSABLE = {
    "no such user column": (
        PAIRS,
        {"user": "who"},
        "has no column 'who': say user=… with one of 'user', 'item', 'stars'",
    ),
    "no such item column": (PAIRS, {"item": "what"}, "has no column 'what': say item=…"),
    "no such weight": (PAIRS, {"weight": "price"}, "has no column 'price': its columns are 'user', 'item', 'stars'"),
    "user is item": (PAIRS, {"user": "item"}, "same column, 'item'"),
    "weight is item": (pl.DataFrame({"user": [1], "item": [7]}), {"weight": "item"}, "'item'"),
    "null user": (pl.DataFrame({"user": [1, None], "item": [7, 8]}), {}, "'user' .* 1 missing value.* data row 2"),
    "NaN in pandas": (pd.DataFrame({"user": [1, np.nan], "item": [7, 8]}), {}, "'user' .* 1 missing .* data row 2"),
    "NaN in polars": (pl.DataFrame({"user": [1.5, float("nan")], "item": [7, 8]}), {}, "'user'"),
    "null weight": (PAIRS.with_columns(stars=None), {"weight": "stars"}, "'stars' .* 3 missing values"),
    "text weight": (
        PAIRS.with_columns(stars=pl.lit("many")),
        {"weight": "stars"},
        "'stars' .* must hold finite numbers",
    ),
    "endless weight": (PAIRS.with_columns(stars=np.inf), {"weight": "stars"}, "'stars' .* must hold finite numbers"),
    "list weight": (PAIRS.with_columns(stars=pl.Series([[1], [2], [3]])), {"weight": "stars"}, "'stars'"),
    "bytes for ids": (PAIRS.with_columns(item=pl.Series([b"\xff"] * 3)), {}, "'item'"),
    "no rows": (PAIRS[:0], {}, "the frame has no rows"),
    "no columns": (pl.DataFrame(), {}, "no column"),
    "dict": ({"user": [1], "item": [2]}, {}, "got dict"),
    "array": (np.eye(2), {}, "got ndarray .*Interactions.from_csr"),
    "nothing": (None, {}, "got NoneType"),
    "series": (pd.Series([1, 2]), {}, "Series"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_frames_that_cannot_be_read(name):
    frame, columns, message = UNUSABLE[name]
    assert_one_clear_line(message, frame, **columns)


def assert_one_clear_line(message, source, mentions="", **columns):
    with pytest.raises(DataError) as caught:
        read_interactions(source, **columns)
    text = str(caught.value)
    assert isinstance(caught.value, DeqlError)
    assert re.search(message, text), text
    assert mentions in text
    assert text.isprintable(), "one line, and nothing that a terminal would obey"


def test_numbers_with_zeros_in_front_stay_text(tmp_path):
    path = tmp_path / "books.csv"
    path.write_text("user,isbn\n1,007\n1,7\n2,0195153448\n")
    data = read_interactions(path)
    assert data.items.tolist() == ["007", "0195153448", "7"]
    assert data.users.tolist() == [1, 2]


def test_a_name_after_many_numbers_makes_all_ids_text(tmp_path):
    path = tmp_path / "late.csv"
    path.write_text("user,item\n" + "".join(f"{i % 50},{i}\n" for i in range(12_000)) + "9,last\n")
    data = read_interactions(path)
    assert data.n_items == 12_001
    assert "last" in data.items.tolist()


def test_whole_floats_are_integers():
    frame = pl.DataFrame({"user": [1.0, 2.0], "item": [1.5, 2.0]})
    data = read_interactions(frame)
    assert data.users.tolist() == [1, 2]
    assert data.items.tolist() == ["1.5", "2.0"]
