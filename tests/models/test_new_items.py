from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deql
from deql.errors import DataError, ParameterError
from deql.priors import ItemFeatures

WARM, ALL = 12, 17
RULE: dict[str, Any] = {"l2": 5.0, "dropout": 0.3, "b": 0.7, "popularity_power": 0.2, "prior_weight": 0.6}


def case(seed: int = 0) -> tuple[deql.Interactions, pl.DataFrame]:
    generator = np.random.default_rng(seed)
    users, items = generator.integers(0, 25, 150), generator.integers(0, WARM, 150)
    data = deql.Interactions.from_pairs([*users.tolist(), *[99] * WARM], [*items.tolist(), *range(WARM)])
    genres = ["|".join(generator.choice(list("abcde"), generator.integers(1, 4), replace=False)) for _ in range(ALL)]
    years, titles = generator.normal(size=ALL), [f"Title {item}" for item in range(ALL)]
    return data, pl.DataFrame({"item": range(ALL), "title": titles, "year": years, "genres": genres})


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), before=st.integers(WARM, ALL - 1))
def test_added_items_weigh_as_if_the_table_had_had_them(seed: int, before: int) -> None:
    data, table = case(seed)
    whole = deql.DEQL(**RULE, prior=ItemFeatures(table)).fit(data, keep_data=True)
    model = deql.DEQL(**RULE, prior=ItemFeatures(table.head(before))).fit(data, keep_data=True)
    own = model.weights()
    assert model.add_items(table.tail(ALL - before)) is model
    assert np.allclose(model.weights(), whole.weights(), rtol=1e-6, atol=1e-7)
    assert np.array_equal(model.weights()[:before, :before], own)
    assert model.items_.tolist() == whole.items_.tolist()
    assert model.titles_.tolist() == whole.titles_.tolist()
    assert model.data_.shape == whole.data_.shape
    other = model.with_rule(prior_weight=1.3, b=0.0)
    assert np.allclose(other.weights(), whole.with_rule(prior_weight=1.3, b=0.0).weights(), rtol=1e-6, atol=1e-7)


def test_the_columns_of_cold_items_are_the_ridge_s_alone() -> None:
    data, table = case()
    prior = ItemFeatures(table)
    model = deql.EDLAE(l2=5.0, dropout=0.3, prior=prior, prior_weight=0.6).fit(data)
    grown = prior.with_items(data)
    towards = prior.weights(grown).to_dense()
    weights = model.weights()
    assert np.allclose(weights[:, WARM:], 0.6 * towards[:, WARM:], atol=1e-6)
    # As evidence they count m/l2·W₀, but for what makes the diagonal zero, which their rows of P do not touch.
    assert np.allclose(weights[WARM:, :WARM], 0.6 * towards[WARM:, :WARM], atol=1e-6)
    # The others minimise what they would without cold items.
    alone = deql.EDLAE(l2=5.0, dropout=0.3, prior=ItemFeatures(table.head(WARM)), prior_weight=0.6).fit(data)
    assert np.allclose(weights[:WARM, :WARM], alone.weights(), atol=1e-6)


def test_cold_items_are_recommended_explained_evaluated_and_last_in_popularity() -> None:
    data, table = case()
    model = deql.EDLAE(l2=5.0, dropout=0.3, prior=ItemFeatures(table), prior_weight=0.6).fit(data)
    new = list(range(WARM, ALL))
    found = model.recommend([[0, 1]], k=3, candidates=new)
    assert set(found.ids[0].tolist()) <= set(new)
    assert model.recommend([[13]], k=3).ids.shape == (1, 3)
    assert model.recommend([[]], k=ALL).ids[0].tolist()[WARM:] == new
    why = model.explain([0, 1, 2], int(found.ids[0, 0]))
    assert sum(part.value for part in why) == why.score
    genres = dict(table.select("item", "genres").iter_rows())
    for part in why:
        common = set(genres[part.item].split("|")) & set(genres[why.item].split("|"))
        assert {name for name in part.shared if name.startswith("genre ")} == {f"genre {one}" for one in common}
    assert why.to_frame("polars").columns == ["item", "value", "shared"]
    assert "; shares " in repr(why)
    assert "shares with Title" in why._repr_html_()


def test_an_explanation_without_features_is_as_before() -> None:
    data, _ = case()
    why = deql.EASE(l2=5.0).fit(data).explain([0, 1], 2)
    assert why.to_frame("polars").columns == ["item", "value"]
    assert "shares" not in repr(why) + why._repr_html_()
    assert all(part.shared == () for part in why)


@pytest.mark.parametrize("keep_data", [False, True])
def test_a_loaded_model_takes_new_items_and_can_be_saved_again(tmp_path: Path, keep_data: bool) -> None:
    data, table = case()
    model = deql.DEQL(**RULE, prior=ItemFeatures(table.head(14))).fit(data, keep_data=keep_data)
    model.save(tmp_path / "a.deql", quantized_rows=True)
    loaded = deql.load(tmp_path / "a.deql")
    loaded.add_items(table.tail(3))
    assert loaded.quantized_rows_ is not None
    loaded.save(tmp_path / "b.deql", quantized_rows=True)
    again = deql.load(tmp_path / "b.deql")
    model.add_items(table.tail(3))
    assert np.array_equal(again.weights(), model.weights())
    for one in (model, loaded, again):
        ids, scores = one.recommend([[1, 15]], k=6)
        assert (ids.tolist(), scores.tolist()) == tuple(part.tolist() for part in model.recommend([[1, 15]], k=6))
        assert (one.data_ is not None) == keep_data
    assert again.explain([1, 15], 16).parts == model.explain([1, 15], 16).parts


def test_new_items_can_be_a_mapping_or_rows_of_a_matrix() -> None:
    data, table = case()
    model = deql.EASE(l2=5.0, prior=ItemFeatures(table.head(WARM))).fit(data)
    model.add_items({40: {"genres": ["a", "b"], "year": 0.1}, 41: {"genres": ["c"]}})
    assert model.items_.tolist()[-2:] == [40, 41]
    rows = np.eye(3)[np.arange(WARM) % 3]
    model = deql.EASE(l2=5.0, prior=ItemFeatures(rows)).fit(data)
    model.add_items({40: rows[3]})
    assert np.flatnonzero(model.weights()[:, WARM]).tolist() == [0, 3, 6, 9]


def test_what_was_set_since_the_fit_does_not_matter() -> None:
    data, table = case()
    models = [deql.EASE(l2=5.0, prior=ItemFeatures(table.head(WARM))).fit(data) for _ in range(2)]
    models[0].set_params(l2=80.0, prior_weight=0.0)
    first, second = (model.add_items(table.tail(5)).weights() for model in models)
    assert np.array_equal(first, second)
    assert models[0].l2 == 80.0


def test_unseen_categories_and_missing_columns_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    data, table = case()
    model = deql.EASE(l2=5.0, prior=ItemFeatures(table.head(WARM))).fit(data)
    capsys.readouterr()
    model.add_items({40: {"genres": "z|a"}, 41: {"genres": "a"}})
    assert capsys.readouterr().err.splitlines() == [
        "deql: the mapping of features: 1 item has genres that the model does not know",
        "deql: the mapping of features: no column 'year', so the new items have none of these features",
    ]


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ({3: {"genres": "a"}}, "the model has '3' already"),
        ({40: {"colour": "red"}}, "none of the features that the model knows: it has 'colour'"),
        ({"tea": {"genres": "a"}}, "has an item 'tea', and the ids of the interactions are whole numbers"),
        (np.ones((1, 3)), "new items need ids"),
        ({}, "is empty"),
        ({40: {}}, "items and nothing else"),
        ({40: [1.0, 2.0]}, "must have features by name"),
        ({"03": {"genres": "a"}}, "has an item '03', and the ids of the interactions are whole numbers"),
        ({40: {"year": [1995]}}, "column 'year' holds List.* values, which are no number"),
        ({40: {"genres": {"a": 1}}}, "column 'genres' holds Struct.* values, which are no tags"),
    ],
)
def test_bad_new_items_leave_the_model_as_it_was(features: Any, words: str) -> None:
    data, table = case()
    model = deql.EASE(l2=5.0, prior=ItemFeatures(table.head(WARM))).fit(data)
    with pytest.raises(DataError, match=words):
        model.add_items(features)
    assert len(model.items_) == model.precision_.n == WARM


def test_a_model_without_features_takes_no_new_items() -> None:
    data, _ = case()
    with pytest.raises(ParameterError, match=r"fit it with prior=deql.priors.ItemFeatures\(…\)"):
        deql.EASE(l2=5.0).fit(data).add_items({40: {"genres": "a"}})
