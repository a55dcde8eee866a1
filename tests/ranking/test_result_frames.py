"""Every result as a frame of whichever library."""

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import deql
from deql.errors import ParameterError
from deql.ranking.recommendations import Recommendations
from tests.tuning.common import PARAMETERS, market

KINDS = {None: pl.DataFrame, "polars": pl.DataFrame, "pandas": pd.DataFrame, "pyarrow": pa.Table}


@pytest.fixture(scope="module")
def results():
    data = deql.Interactions.from_pairs(list("aabbcccd"), ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"])
    data = replace(data, titles=np.array(["Egg", "Jam", "Tea"], object), times=np.arange(8.0))
    model = deql.EASE(l2=1.0).fit(data)
    split = deql.split_strong(market(40, 8, seed=41), 0.2, 0.4)
    models = {"most": deql.Popularity(), "ease": deql.EASE(1.0)}
    return {
        "recommendations": model.recommend([["egg"], []], k=2, reasons=1),
        "similar": model.similar_items(["egg", "tea"], k=1),
        "pairs": model.score_pairs([["egg"]], [["tea", "jam"]]),
        "explanation": model.explain(["egg", "tea"], "jam"),
        "neighbourhood": model.neighbours("jam"),
        "interactions": data,
        "evaluation": deql.evaluate(deql.EASE(1.0).fit(split.train), split.test, ["recall@3", "coverage@3"]),
        "comparison": deql.compare(models, market(40, 8, seed=41), splits=2, metrics="recall@3"),
        "tuning": deql.tune(
            split, {"l2": [2, 20], "dropout": 0.3, "user_power": 0, "b": [0], "popularity_power": 0}, prior="none"
        ),
    }


COLUMNS = {
    "recommendations": ["user", "rank", "item", "title", "score", "from_popularity", "reason"],
    "similar": ["item", "rank", "similar", "title", "score"],
    "pairs": ["user", "item", "title", "score", "from_popularity"],
    "explanation": ["item", "value"],
    "neighbourhood": ["source", "target", "weight"],
    "interactions": ["user", "item", "time", "title"],
    "evaluation": ["metric", "mean", "standard_error"],
    "comparison": ["model", "metric", "mean", "deviation", "standard_error"],
    "tuning": [*PARAMETERS, "ndcg@20", "recall@20"],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", COLUMNS)
def test_every_result_is_one_of_any_kind(results, name, kind):
    frame = results[name].to_frame(kind)
    assert isinstance(frame, KINDS[kind])
    assert list(frame.column_names if isinstance(frame, pa.Table) else frame.columns) == COLUMNS[name]
    assert len(frame) > 0
    expected = results[name].to_frame().rows()
    if isinstance(frame, pd.DataFrame):
        frame, expected = ([[str(cell) for cell in row if cell == cell and cell is not None] for row in rows]
                           for rows in (frame.values.tolist(), expected))  # fmt: skip
        assert frame == expected
    else:
        assert pl.DataFrame(frame).rows() == expected


def test_the_values_are_those_of_the_result(results):
    found = results["recommendations"]
    frame = found.to_frame()
    assert frame["item"].to_list() == found.ids.ravel().tolist()
    assert frame["score"].to_list() == found.scores.ravel().tolist()
    assert frame["rank"].to_list() == [1, 2, 1, 2]
    assert frame["from_popularity"].to_list() == [False, False, True, True]
    assert frame["title"].to_list() == [item.title() for item in frame["item"]]
    why = results["explanation"]
    assert list(zip(*why.to_frame().to_dict(as_series=False).values(), strict=True)) == list(why)
    near = results["neighbourhood"]
    assert near.to_frame().rows() == near.edges()
    evaluation = results["evaluation"]
    assert dict(evaluation.to_frame().select("metric", "mean").iter_rows()) == evaluation.means
    assert evaluation.to_frame()["standard_error"].to_list()[1] is None
    users = evaluation.to_frame("pandas", per_user=True)
    assert users["user"].tolist() == evaluation.users.tolist()
    assert users["recall@3"].tolist() == evaluation.per_user["recall@3"].tolist()
    assert list(users.columns) == ["user", "recall@3"]
    comparison = results["comparison"]
    for row in comparison.to_frame().to_dicts():
        assert row["mean"] == comparison.means[row["model"]][row["metric"]]
        assert row["deviation"] == comparison.deviations[row["model"]][row["metric"]]
    data = results["interactions"]
    again = deql.read_interactions(data.to_frame("pandas"), "user", "item", time="time")
    assert (again.matrix != data.matrix).nnz == 0
    assert again.times.tolist() == data.times.tolist()


def test_places_that_stayed_empty_are_left_out():
    data = deql.Interactions.from_pairs([1, 1, 2], [10, 20, 10])
    found = deql.EASE(l2=1.0).fit(data).recommend(data, k=2)
    assert np.isnan(found.scores).any()
    frame = found.to_frame("pandas")
    assert frame[["user", "item"]].values.tolist() == [[2, 20]]
    assert (frame.dtypes[["user", "item"]] == "int64").all()


def test_a_kind_that_is_unknown(results):
    with pytest.raises(ParameterError, match="a frame is one of polars, pandas, pyarrow, got 'excel'"):
        results["recommendations"].to_frame("excel")


def test_rows_are_numbered_where_users_have_no_ids():
    assert Recommendations(np.array([[1], [2]]), np.ones((2, 1)), np.zeros(2, bool)).users.tolist() == [0, 1]


@pytest.mark.parametrize("kind", ["polars", "pandas", "pyarrow"])
def test_a_column_has_one_type(kind):
    users = np.array(["ann", 7], object)
    found = Recommendations(
        np.array([["tea"], ["jam"]], object), np.ones((2, 1)), np.array([True, False]),
        users=users, reasons=np.array([[None], ["egg"]], object),
    )  # fmt: skip
    table = pl.DataFrame(found.to_frame(kind))
    assert table["user"].to_list() == ["ann", "7"]
    assert table["reason"].to_list() == [None, "egg"]
    nobody = Recommendations(found.ids[:0], found.scores[:0], found.from_popularity[:0], users=users[:0])
    assert nobody.to_frame("polars").schema["item"] == pl.String


def test_a_column_without_any_text_is_one_of_text():
    lists = Recommendations(np.empty((0, 1), object), np.ones((0, 1)), np.zeros(0, bool), users=np.empty(0, object))
    assert lists.to_frame().schema["user"] == lists.to_frame().schema["item"] == pl.String
    lists = Recommendations(np.array([[1]]), np.ones((1, 1)), np.zeros(1, bool), reasons=np.array([[None]], object))
    assert lists.to_frame().schema["reason"] == pl.String
