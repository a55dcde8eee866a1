"""Rows without a user or an item: an error that says how to go on, or left out and counted."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from deql import ParameterError, read_interactions
from deql.cli import run
from tests.data.reading import cells, moments, put, refusal, small_blocks

ROWS = [(1, "tea", 1.0), (None, "jam", 2.0), (2, "jam", 3.0), (2, None, 4.0), (None, None, 5.0), (3, "tea", 6.0)]
FRAME = pl.DataFrame(ROWS, schema=["user", "item", "when"], orient="row")
LEFT = {(1, "tea"): 1.0, (2, "jam"): 3.0, (3, "tea"): 6.0}


def tables(folder):
    """The same rows in every form that has rows."""
    FRAME.write_csv(folder / "t.csv")
    FRAME.write_csv(folder / "t.tsv", separator="\t", null_value="NULL")
    FRAME.write_csv(folder / "na.csv", null_value="NA", quote_style="non_numeric")
    FRAME.write_parquet(folder / "t.parquet")
    FRAME.write_ndjson(folder / "t.ndjson")
    put(folder / "keys.ndjson", '{"user": 1, "item": "tea", "when": 1}\n{"item": "jam", "when": 2}\n'
        '{"user": 2, "item": "jam", "when": 3}\n{"user": 2, "item": "", "when": 4}\n{"user": "", "when": 5}\n'
        '{"user": 3, "item": "tea", "when": 6}\n')  # fmt: skip
    text = FRAME.with_columns(pl.col("user").cast(pl.String).fill_null(""), pl.col("item").fill_null("nan"))
    return [
        *sorted(folder.iterdir()), FRAME, FRAME.lazy(), FRAME.to_pandas(), FRAME.to_arrow(), text,
        pd.DataFrame(ROWS, columns=["user", "item", "when"]).astype({"user": "Int64", "item": "string"}),
        pd.DataFrame({"user": [1, pd.NA, 2, 2, None, 3], "item": ["tea", "jam", "jam", np.nan, None, "tea"],
                      "when": [1.0, 2, 3, 4, 5, 6]}),
        pa.table({"user": pa.array([1, None, 2, 2, None, 3]), "item": ["tea", "jam", "jam", None, None, "tea"],
                  "when": [1.0, 2, 3, 4, 5, 6]}),
    ]  # fmt: skip


@pytest.mark.parametrize("form", range(14))
@pytest.mark.parametrize("size", [16, 2**21])
def test_left_out_and_counted(tmp_path, form, size):
    source = tables(tmp_path)[form]
    with small_blocks(size):
        data = read_interactions(source, "user", "item", time="when", on_missing="skip")
    assert cells(data) == dict.fromkeys(LEFT, 1.0)
    assert moments(data) == LEFT
    read, skipped = data.steps
    assert (read.users, read.items, read.interactions) == (3, 2, 6)
    assert (skipped.what, skipped.interactions) == ("skipped 3 rows without a user or item", 3)


def test_every_form_was_tried(tmp_path):
    assert len(tables(tmp_path)) == 14


@pytest.mark.parametrize("ending", ["csv", "parquet", "ndjson"])
def test_the_default_is_an_error_that_names_the_option(tmp_path, ending):
    tables(tmp_path)
    text = refusal(tmp_path / f"t.{ending}", "user", "item")
    assert ": column user is empty here: fill in or remove the row (" in text
    assert text.endswith("), or leave such rows out with on_missing='skip'")


def test_a_word_among_numbers_that_stands_for_nothing(tmp_path):
    path = put(tmp_path / "t.csv", "user,item\n1,2\n2,2\nNULL,2\n3,3\n")
    assert "or leave such rows out with on_missing='skip'" in refusal(path)
    data = read_interactions(path, on_missing="skip")
    assert cells(data) == {(1, 2): 1.0, (2, 2): 1.0, (3, 3): 1.0}
    assert data.steps[1].what == "skipped 1 row without a user or item"
    other = put(tmp_path / "o.csv", "user,item\n1,2\n2,2\nMary,2\n3,3\n")
    assert "on_missing" not in refusal(other)


def test_what_is_read_is_the_same_where_nothing_is_missing(tmp_path):
    path = put(tmp_path / "t.csv", "user,item\n1,2\n2,2\n")
    assert len(read_interactions(path, on_missing="skip").steps) == 1


def test_a_missing_weight_or_time_is_still_an_error_with_its_line(tmp_path):
    path = put(tmp_path / "t.csv", "user,item,rating\n1,2,3\n,2,3\n1,,\n1,3,\n")
    text = refusal(path, "user", "item", "rating", on_missing="skip")
    assert text.endswith("line 5: column rating is empty here: fill in or remove the row (once)")
    path = put(tmp_path / "u.csv", "user,item,rating\n1,2,3\n,2,3\n1,3,x\n")
    assert "line 4: 'x' in column rating is not a number" in refusal(path, "user", "item", "rating", on_missing="skip")


def test_nothing_left(tmp_path):
    path = put(tmp_path / "t.csv", "user,item\n1,\n,2\n")
    assert "nothing is left of" in (text := refusal(path, on_missing="skip"))
    assert "“skipped 2 rows without a user or item”" in text


def test_other_words(tmp_path):
    with pytest.raises(ParameterError, match="on_missing must be 'error' or 'skip', got 'drop'"):
        read_interactions(FRAME, on_missing="drop")


def test_the_command_line(tmp_path, capsys):
    path = put(tmp_path / "t.csv", "user,item\n1,2\n1,3\n,2\n2,3\n2,\n2,2\n")
    assert run(["data", "convert", str(path), "-o", str(tmp_path / "out.csv")]) == 2
    assert "or leave such rows out with --on-missing skip" in capsys.readouterr().err
    assert run(["data", "convert", str(path), "-o", str(tmp_path / "out.csv"), "--on-missing", "skip"]) == 0
    assert "skipped 2 rows without a user or item" in capsys.readouterr().err
    assert (tmp_path / "out.csv").read_text() == "user,item\n1,2\n1,3\n2,2\n2,3\n"
