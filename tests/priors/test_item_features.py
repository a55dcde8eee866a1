from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import deql
from deql.errors import DataError, ParameterError
from deql.linalg import eigenvectors
from deql.priors import ItemFeatures
from deql.priors.feature_basis import ridge_basis
from deql.priors.feature_space import FeatureSpace
from deql.priors.scaling import fitted_scale


def random_data(seed: int, users: int = 20, items: int = 9) -> deql.Interactions:
    generator = np.random.default_rng(seed)
    matrix = (generator.random((users, items)) < 0.4) * generator.uniform(0.5, 2.0, (users, items))
    matrix[0] = 1.0
    return deql.Interactions.from_csr(csr_array(matrix))


def random_features(seed: int, items: int, width: int) -> Any:
    generator = np.random.default_rng(seed + 1)
    return generator.normal(size=(items, width)) * (generator.random((items, width)) < 0.7)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), width=st.integers(2, 14), l2=st.floats(0.05, 20.0))
def test_the_weights_are_those_of_EASE_on_the_features(seed: int, width: int, l2: float) -> None:
    data = random_data(seed)
    found = ItemFeatures(random_features(seed, 9, width), l2).weights(data)
    space = found.features
    assert space is not None
    features = space.features.toarray().astype(np.float64)
    energy = np.square(features).sum(axis=0)
    ridge = l2 * energy.sum() / np.count_nonzero(energy)
    model = deql.EASE(l2=ridge, dtype="float64").fit(csr_array(features.T))
    dense = found.to_dense()
    assert np.allclose(dense, space.strength * model.weights(), atol=2e-5 * max(1.0, np.abs(dense).max()))
    assert np.allclose(dense.diagonal(), 0.0, atol=1e-12)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_an_item_that_nobody_has_is_as_if_EASE_had_it_beside_the_others(seed: int) -> None:
    data, features = random_data(seed), random_features(seed, 11, 4)
    prior = ItemFeatures(features, 2.0)
    grown = prior.with_items(data)
    found = prior.weights(grown)
    space = found.features
    assert space is not None
    assert grown.items.tolist() == list(range(11))
    encoded = space.features.toarray().astype(np.float64)
    ridge = 2.0 * np.square(encoded[:9]).sum() / np.count_nonzero(encoded[:9].any(axis=0))
    for new in (9, 10):
        beside = encoded[[*range(9), new]]
        weights = deql.EASE(l2=ridge, dtype="float64").fit(csr_array(beside.T)).weights()
        assert np.allclose(found.to_dense()[:9, new], space.strength * weights[:9, 9], atol=1e-5)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_strength_fits_the_interactions_in_least_squares(seed: int) -> None:
    data = random_data(seed)
    weights = ItemFeatures(random_features(seed, 9, 3)).weights(data)
    images = data.matrix.toarray() @ weights.to_dense()
    if weights.features is not None and weights.features.strength > 0:
        assert np.sum(images * data.matrix.toarray()) / np.sum(images**2) == pytest.approx(1.0, rel=1e-4)
    assert fitted_scale([data.matrix], weights) == pytest.approx(1.0 if weights.scale.any() else 0.0, rel=1e-4)


@pytest.mark.parametrize(("rows", "columns", "rank"), [(12, 30, 5), (12, 30, 12), (300, 200, 9)])
def test_wide_features_keep_their_leading_directions(
    rows: int, columns: int, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eigenvectors, "_DENSE", 100)  # beyond which no square matrix of features is made
    kinds = np.repeat(np.eye(10), rows // 10 + 1, axis=0)[:rows] * np.arange(1, 11)  # so that some directions lead
    features = csr_array(random_features(3, rows, columns) + kinds @ random_features(4, 10, columns))
    basis = ridge_basis(features, 1.0, rank)
    values, vectors = np.linalg.eigh((features.T @ features).toarray())
    leading, ridge = vectors[:, -rank:], np.square(features.toarray()).sum(axis=0).mean()
    exact = leading / (values[-rank:] + ridge) @ leading.T
    assert np.allclose(basis @ basis.T, exact, atol=2e-3 * abs(exact).max())


def table_of(ids: Any) -> pl.DataFrame:
    generator = np.random.default_rng(len(ids))
    return pl.DataFrame({
        "item_id": ids,
        "title": [f"Title {one}" for one in ids],
        "year": generator.integers(1950, 2020, len(ids)).astype(float),
        "genres": ["|".join(generator.choice(["Comedy", "Drama", "War"], 2, replace=False)) for _ in ids],
        "vector": generator.normal(size=(len(ids), 3)).tolist(),
    })  # fmt: skip


@pytest.mark.parametrize("as_what", ["polars", "pandas", "arrow", "parquet", "ndjson", "csv", "mapping"])
def test_every_source_gives_the_same_weights(as_what: str, tmp_path: Path) -> None:
    data = random_data(0)
    frame = table_of(list(range(11)))
    if as_what == "csv":
        frame = frame.drop("vector")
    source: Any = frame
    match as_what:
        case "pandas":
            source = pd.DataFrame({name: frame[name].to_list() for name in frame.columns})
        case "arrow":
            source = pa.table(frame.to_dict(as_series=False))
        case "parquet" | "ndjson" | "csv":
            source = tmp_path / f"items.{as_what}"
            getattr(frame, f"write_{as_what}")(source)
        case "mapping":
            source = {row.pop("item_id"): row for row in frame.to_dicts()}
    expected, prior = ItemFeatures(frame), ItemFeatures(source)
    grown = prior.with_items(data)
    assert grown.items.tolist() == list(range(11))
    assert grown.titles is not None
    assert grown.titles[10] == "Title 10"
    assert np.allclose(prior.weights(grown).to_dense(), expected.weights(expected.with_items(data)).to_dense())


def test_a_space_survives_its_state() -> None:
    data, prior = random_data(0), ItemFeatures(table_of(list(range(9))))
    space = prior.weights(data).features
    assert space is not None
    again = FeatureSpace.from_state(*space.state())
    assert np.array_equal(again.factor(), space.factor())
    assert (again.strength, again.shared(0, 1)) == (space.strength, space.shared(0, 1))
    raw = prior.opened.take(np.arange(3))
    for one, other in zip(space.columns, again.columns, strict=True):
        assert (one.name, one.kind, one.values, one.separator) == (
            other.name,
            other.kind,
            other.values,
            other.separator,
        )
        assert np.array_equal(one.encode(raw[one.name]).toarray(), other.encode(raw[one.name]).toarray())
    arrays, facts = space.state()
    with pytest.raises(ValueError, match="differ in number"):
        FeatureSpace.from_state(arrays | {"features_basis": space.basis[1:]}, facts)


def test_shared_features_have_names() -> None:
    frame = pl.DataFrame({
        "item": [0, 1, 2, 3],
        "genres": ["Comedy|Drama", "Comedy", "War", "War|Drama"],
        "adult": [True, True, False, False],
        "year": [1990.0, 1990.0, 2010.0, 2019.0],
        "plot": ["red fox runs", "red fox sleeps", "blue whale swims", "green tree"],
        "nation": ["fr", "fr", "it", "it"],
    })  # fmt: skip
    data = deql.Interactions.from_csr(csr_array(np.eye(4) + 1.0))
    space = ItemFeatures(frame, kinds={"plot": "text", "nation": "category"}).weights(data).features
    assert space is not None
    assert set(space.shared(0, 1)) == {"genre Comedy", "adult", "similar year", "similar plot", "nation fr"}
    assert space.shared(0, 2) == ()
    assert set(space.shared(2, 3)) == {"genre War", "nation it"}
    assert len(space.shared(0, 1, most=2)) == 2


def test_what_lacks_is_counted_and_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    data = random_data(0)
    frame = table_of([*range(7), 50, 51]).with_columns(pl.lit("same").alias("constant"))
    prior = ItemFeatures(frame)
    for _ in range(2):
        weights = prior.weights(prior.with_items(data))
    assert not weights.to_dense()[7].any()
    assert capsys.readouterr().err.splitlines() == [
        "deql: the table of features: year = number, genres = tags, vector = embedding, constant = category",
        "deql: the table of features: 'constant' left out, empty or the same for all items",
        "deql: the table of features: 2 items that nobody has, known by features alone",
        "deql: the table of features: 2 items without features (7, 8)",
    ]


@pytest.mark.parametrize(
    ("table", "options", "words"),
    [
        (table_of(list(range(9))).clear(), {}, "the table of features has no rows"),
        (table_of([0, 1, 2, 2]), {}, "has item '2' in rows 3 and 4: leave one row"),
        (table_of(["x", "y"]), {}, "has none of the items of the interactions: its ids are like 'x', 'y'"),
        (pl.DataFrame({"a": [1], "b": [2]}), {}, "no column that looks like the item's: say item=…"),
        (pl.DataFrame({"a": [1], "b": [2]}), {"item": "c"}, "has no column 'c'"),
        (pl.DataFrame({"item": [1]}), {}, "has ids and nothing else"),
        (pl.DataFrame({"item": [1, None], "b": [2, 3]}), {}, "row 2 has no item"),
        (pl.DataFrame({"item": [0, 1], "b": [2, 2]}), {}, "are empty or the same for all items"),
        (pl.DataFrame({"item": [0, 1], "b": [2, 3]}), {"kinds": {"c": "text"}}, "no column 'c' for kinds"),
        (pl.DataFrame({"item": [0, 1], "title": ["a", "b"]}), {}, "has no column of features"),
        (
            pl.DataFrame({"item": ["0", "tea"], "b": [2, 3]}),
            {},
            "has an item 'tea', and the ids of the interactions are",
        ),
        (np.ones((4, 2)), {}, "has 4 rows, and the data 9 items"),
        (np.array([[1.0, np.nan]] * 9), {}, "holds nan in row 1, column 2"),
        (np.ones((9, 0)), {}, "is empty"),
        ({}, {}, "is empty"),
        ({0: [1.0, 2.0], 1: [1.0]}, {}, "as long as each other"),
        ("no-such-file.csv", {}, "there is no file no-such-file.csv with the features"),
        (7, {}, "must be a file's path, a frame, a matrix"),
    ],
)
def test_bad_tables_are_told_in_a_sentence(table: Any, options: dict[str, Any], words: str) -> None:
    prior = ItemFeatures(table, **options)
    with pytest.raises(DataError, match=words):
        prior.weights(prior.with_items(random_data(0)))


def test_bad_parameters_are_told_in_a_sentence() -> None:
    with pytest.raises(ParameterError, match="above 0"):
        ItemFeatures(np.ones((2, 2)), 0.0)
    prior = ItemFeatures(table_of(list(range(9))), kinds={"year": "numbre"})
    with pytest.raises(ParameterError, match="did you mean number"):
        prior.weights(random_data(0))


@pytest.mark.parametrize("key", ["07", " 7", "1_0", "٣", "²", "--5", "99999999999999999999", "-0", "x"])
def test_ids_that_are_not_written_as_whole_numbers_are_no_items_of_data_with_numbers(key: str) -> None:
    data = deql.Interactions.from_pairs(list("aabb"), [1, 7, 7, 2])
    table = pl.DataFrame({"item": ["1", "7", "2", key], "x": [1, 2, 3, 4]})
    with pytest.raises(DataError, match="ids of the interactions are whole numbers"):
        ItemFeatures(table).with_items(data)


def test_a_column_without_a_name_is_no_feature(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = deql.Interactions.from_pairs(list("aabb"), [1, 7, 7, 2])
    frame = pd.DataFrame({"item": [1, 7, 2], "kind": ["a", "a", "b"]})
    frame.to_csv(tmp_path / "items.csv")  # with its index
    ItemFeatures(tmp_path / "items.csv").weights(data)
    assert capsys.readouterr().err.endswith("items.csv: kind = category\n")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({1: {}, 7: {}}, "items and nothing else"),
        ({1: [1.0, np.nan], 7: [1.0, 2.0]}, "holds nan in row 1, column 2"),
        (np.ones((3, 2)) * 1j, "got ndarray"),
        (pl.DataFrame(), "is empty: it needs a column of items"),
        (pl.DataFrame({"item": [1, 7], "": [1, 2]}), "ids and nothing else"),
    ],
)
def test_tables_with_nothing_to_use_are_told_in_a_sentence(table: Any, words: str) -> None:
    data = deql.Interactions.from_pairs(list("aabb"), [1, 7, 7, 2])
    with pytest.raises(DataError, match=words):
        ItemFeatures(table).with_items(data)


def _told(change: dict[str, Any], place: int = 0) -> Any:
    return lambda arrays, facts: facts["features"]["columns"][place].update(change)


def _array(name: str, change: Any) -> Any:
    return lambda arrays, facts: arrays.update({name: change(arrays[name])})


@pytest.mark.parametrize(
    "damage",
    [
        _array("features_indices", lambda values: values + 1000),
        _array("features_indices", lambda values: values - 5),
        _array("features_values", lambda values: values * np.nan),
        _array("features_values", lambda values: values.astype(np.int32)),
        _array("features_basis", lambda values: values * np.inf),
        _array("features_basis", lambda values: values[:, 0]),
        _array("features_factor", lambda values: values[:, None]),
        _array("features_offset", lambda values: values[::-1]),
        _array("features_offset", lambda values: values * np.nan),
        _told({"kind": "nonsense"}),
        _told({"kind": "number"}),
        _told({"kind": "text"}),
        _told({"kind": "matrix"}, 1),
        _told({"name": "year"}),
        _told({"width": -1}),
        _told({"weight": float("inf")}),
        _told({"separator": ""}),
        lambda arrays, facts: facts["features"].update(strength="strong"),
        lambda arrays, facts: facts["features"].update(columns=[]),
    ],
)
def test_a_space_of_a_damaged_file_is_refused(damage: Any) -> None:
    table = pl.DataFrame({"item": range(9), "tags": [["a"], ["a", "b"], ["b"]] * 3, "year": range(9)})
    space = ItemFeatures(table).weights(random_data(0)).features
    assert space is not None
    arrays, facts = space.state()
    damage(arrays, facts)
    with pytest.raises((ValueError, KeyError, TypeError)):
        FeatureSpace.from_state(arrays, facts)
