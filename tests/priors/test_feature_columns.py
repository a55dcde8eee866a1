import datetime
import math
import zlib
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from deql.errors import DataError, ParameterError
from deql.priors.feature_columns import BUCKETS, FeatureColumn, learn_column
from deql.priors.feature_kinds import choose_kinds


def learned(kind: str, values: Any) -> FeatureColumn:
    column = learn_column("x", kind, values)
    assert column is not None
    return column


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1995, None, 1972], "number"),
        (["1995", "", "1972.5"], "number"),
        ([datetime.date(2020, 1, 2), datetime.date(2021, 1, 2)], "number"),
        ([datetime.time(20), datetime.time(8, 30)], "number"),
        ([datetime.timedelta(hours=2), None, datetime.timedelta(days=1)], "number"),
        ([True, False, None], "category"),
        (["red", "blue", "red", "red"], "category"),
        (["Comedy|Drama", "Drama", "Western"], "tags"),
        (["a; b", "b; a", "a"], "tags"),
        ([["a", "b"], ["c"]], "tags"),
        ([[1, 2], [3]], "tags"),
        ([[0.5, 1.0], [0.1, 2.0]], "embedding"),
        (["A film of few words, and of long ones", "Another film, in which nobody speaks at all"], "text"),
        (["Toy Story (1995)", "Heat (1995)", "Jumanji (1995)"], "text"),
    ],
)
def test_the_kind_of_a_column_is_guessed(values: list[Any], kind: str) -> None:
    assert choose_kinds({"x": pl.Series(values)}, None, None) == {"x": kind}


def test_titles_are_no_features_unless_said_to_be() -> None:
    columns = {"title": pl.Series(["a", "b"])}
    assert choose_kinds(columns, "title", None) == {"title": "ignore"}
    assert choose_kinds(columns, "title", {"title": "text"}) == {"title": "text"}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=2, max_size=30))
def test_a_number_is_shared_between_two_knots(values: list[float | None]) -> None:
    column = learn_column("x", "number", pl.Series(values, dtype=pl.Float64))
    if column is None:
        assert len({value for value in values if value is not None}) < 2
        return
    shares = column.encode(pl.Series(values, dtype=pl.Float64)).toarray() / column.weight
    for value, share in zip(values, shares, strict=True):
        assert np.count_nonzero(share) <= 2
        if value is None:
            assert not share.any()
        else:
            assert share.sum() == pytest.approx(1.0, abs=1e-5)
            spread = column.offset[-1] - column.offset[0]
            assert share @ column.offset == pytest.approx(value, abs=1e-5 * max(spread, abs(value), 1.0))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abcdef"), max_size=4), min_size=2, max_size=20))
def test_tags_have_unit_length_and_lists_are_as_text(tags: list[list[str]]) -> None:
    column = learn_column("x", "tags", pl.Series(tags, dtype=pl.List(pl.String)))
    as_text = learn_column("x", "tags", pl.Series(["|".join(row) for row in tags]))
    if column is None or as_text is None:
        assert column is as_text
        return
    encoded = column.encode(pl.Series(tags, dtype=pl.List(pl.String))).toarray()
    assert column.values == as_text.values == tuple(sorted({tag for row in tags for tag in row}))
    assert np.array_equal(encoded, as_text.encode(pl.Series(["|".join(row) for row in tags])).toarray())
    for row, found in zip(tags, encoded, strict=True):
        expected = np.array([tag in row for tag in column.values]) / math.sqrt(max(len(set(row)), 1))
        assert np.allclose(found, expected)


def test_words_are_hashed_by_a_sum_that_is_the_same_everywhere() -> None:
    texts = pl.Series(["red red sea", "sea", None, "tea"])
    column = learned("text", texts)
    encoded = column.encode(texts).toarray() / column.weight
    expected = np.zeros((4, BUCKETS))
    for row, counts in enumerate(({"red": 2, "sea": 1}, {"sea": 1}, {}, {"tea": 1})):
        for word, count in counts.items():
            with_it = {"red": 1, "sea": 2, "tea": 1}[word]
            bucket = zlib.crc32(word.encode()) % BUCKETS
            expected[row, bucket] = (1 + math.log(count)) * math.log((1 + 3) / with_it)
        expected[row] /= max(np.linalg.norm(expected[row]), 1e-300)
    assert np.allclose(encoded, expected, atol=1e-6)
    assert zlib.crc32(b"sea") == 2345255223


def test_embeddings_are_centred_and_gaps_are_the_mean() -> None:
    rows = pl.Series([[1.0, 5.0], [3.0, 5.0], None], dtype=pl.List(pl.Float64))
    column = learned("embedding", rows)
    assert column.encode(rows).toarray().tolist() == [[-1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("number", pl.Series([3.0, 3.0, None])),
        ("number", pl.Series([None, None], dtype=pl.Float64)),
        ("category", pl.Series(["a", "a"])),
        ("category", pl.Series([None, None], dtype=pl.String)),
        ("category", pl.Series([False, False])),
        ("category", pl.Series([True, True])),
        ("tags", pl.Series([[], []], dtype=pl.List(pl.String))),
        ("embedding", pl.Series([[1.0], [1.0]])),
        ("text", pl.Series(["", None])),
        ("matrix", csr_array(np.ones((3, 2)))),
    ],
)
def test_what_is_the_same_for_all_items_is_no_feature(kind: str, values: Any) -> None:
    assert learn_column("x", kind, values) is None


@pytest.mark.parametrize("kind", ["number", "tags", "text", "embedding"])
def test_every_column_counts_for_as_much(kind: str) -> None:
    generator = np.random.default_rng(0)
    values = {
        "number": generator.normal(size=50) * 1000,
        "tags": [list(generator.choice(list("abcdefgh"), 3, replace=False)) for _ in range(50)],
        "text": [" ".join(generator.choice(["tea", "jam", "egg", "rye", "oat"], 4)) for _ in range(50)],
        "embedding": generator.normal(size=(50, 20)).tolist(),
    }[kind]
    encoded = learned(kind, pl.Series(values)).encode(pl.Series(values)).toarray()
    having = encoded[np.abs(encoded).any(axis=1)]
    assert np.square(having).sum(axis=1).mean() == pytest.approx(1.0, abs=1e-5)


def test_what_nothing_was_learned_of_is_counted_and_left_out() -> None:
    column = learned("tags", pl.Series(["a|b", "b"]))
    assert column.unseen(pl.Series(["c|a", "b", None, "d|e"])) == 2
    assert column.encode(pl.Series(["c"])).nnz == 0


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        ("number", pl.Series([1.0, float("inf")]), "an infinite number"),
        ("embedding", pl.Series([[1.0, 2.0], [1.0]]), "embeddings of 1, 2 numbers"),
        ("embedding", pl.Series([[1.0, 2.0], [1.0, float("nan")]]), "not 2 finite numbers"),
    ],
)
def test_bad_values_are_told(kind: str, values: pl.Series, words: str) -> None:
    with pytest.raises(DataError, match=words):
        learn_column("x", kind, values)


def test_spans_and_times_of_day_are_numbers_whatever_their_unit() -> None:
    spans = pl.Series([datetime.timedelta(hours=hours) for hours in (1, 5, 20)])
    column = learned("number", spans)
    assert np.allclose(column.offset * 24, learned("number", pl.Series([1.0, 5.0, 20.0])).offset)
    in_ms = spans.cast(pl.Duration("ms"))
    assert np.array_equal(column.encode(in_ms).toarray(), column.encode(spans).toarray())
    assert learned("number", pl.Series([datetime.time(0), datetime.time(12)])).offset[-1] == 0.5


NUMBERS, WORDS = pl.Series([1, 2]), pl.Series(["a", "b"])
WORDS_OF_TWO = pl.Series([["a", "b"], ["a", "c"]], dtype=pl.Array(pl.String, 2))


def test_arrays_of_words_are_tags() -> None:
    assert choose_kinds({"x": WORDS_OF_TWO}, None, None) == {"x": "tags"}
    assert learned("tags", WORDS_OF_TWO).values == ("a", "b", "c")


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("number", pl.Series([["a"], ["b"]])),
        ("number", pl.Series([{"a": 1}, {"a": 2}])),
        ("category", pl.Series([{"a": 1}, {"a": 2}])),
        ("tags", pl.Series([[["a"]], [["b"]]])),
        ("embedding", NUMBERS),
        ("embedding", WORDS),
        ("embedding", pl.Series([["a"], ["b"]])),
        ("text", pl.Series([["a"], ["b"]])),
        (None, pl.Series([b"a", b"b"])),
        (None, pl.Series([[[1.0]], [[2.0]]])),
    ],
)
def test_values_that_are_not_of_their_kind_are_told(kind: str | None, values: pl.Series) -> None:
    with pytest.raises(
        DataError, match=r"^the features' column 'x' holds .* values, which are no [a-z]+: leave it out"
    ):
        choose_kinds({"x": values}, None, {"x": kind} if kind else None)


def test_kinds_that_are_no_mapping_are_told() -> None:
    with pytest.raises(ParameterError, match="kinds must be a mapping from columns to kinds"):
        choose_kinds({"x": NUMBERS}, None, ["number"])  # type: ignore[arg-type]
