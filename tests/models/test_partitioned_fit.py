"""Models fitted on partitions are those fitted on the same table at once."""

import numpy as np
import polars as pl
import pytest

import deql
from deql.errors import DataError, ParameterError
from deql.linalg.engines.engine import Problem
from deql.linalg.engines.stored_rows import StoredRows
from deql.priors import ItemFeatures, LowPass

N = 30
FAMILY = [
    deql.EASE(l2=3.0),
    deql.EDLAE(l2=2.0, dropout=0.3),
    deql.DEQL(l2=2.0, dropout=0.3, b=1.5),
    deql.LAE(l2=4.0),
    deql.DLAE(l2=2.0, dropout=0.2),
    deql.RLAE(l2=2.0, xi=0.2),
    deql.RDLAE(l2=2.0, dropout=0.2, xi=0.3),
    deql.EASE(l2=3.0, user_power=0.6, popularity_power=0.2),
]


@pytest.fixture(scope="module", params=[None, "rating"])
def both(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "eaten.parquet"
    r = np.random.default_rng(1)
    items = (N * r.random(900) ** 2).astype(int)
    frame = pl.DataFrame({"user": r.integers(0, 120, 900), "item": [f"i{item:02d}" for item in items]})
    frame.with_columns(rating=pl.Series(r.integers(1, 6, 900))).write_parquet(path)
    named = {"user": "user", "item": "item", "weight": request.param}
    return deql.read_partitions(path, **named, partitions=5), deql.read_interactions(path, **named)


def same(one, other):
    assert one.items_.tolist() == other.items_.tolist()
    assert (one.n_users_, one.weighted_) == (other.n_users_, other.weighted_)
    assert one.item_counts_.tolist() == other.item_counts_.tolist()
    np.testing.assert_allclose(one.precision_.to_dense(), other.precision_.to_dense(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(one.gain_, other.gain_, rtol=1e-12)
    np.testing.assert_allclose(one.shift_, other.shift_, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("model", FAMILY, ids=repr)
@pytest.mark.parametrize("engine", ["memory", "disk", "auto"])
def test_the_family(both, model, engine):
    parts, whole = both
    params = model.get_params() | {"dtype": "float64", "engine": engine}
    one, other = type(model)(**params).fit(parts), type(model)(**params).fit(whole)
    same(one, other)
    history = whole[:3]
    np.testing.assert_array_equal(one.recommend(history, k=5).ids, other.recommend(history, k=5).ids)


@pytest.mark.parametrize("kind", [deql.Popularity, deql.SLIM, deql.LowRankDEQL, deql.ELSA])
def test_other_models_join_the_parts(both, kind):
    parts, whole = both
    if kind is deql.ELSA:
        pytest.importorskip("torch")
    small = {"epochs": 2} if kind is deql.ELSA else {"rank": 4} if kind is deql.LowRankDEQL else {}
    one, other = kind(**small).fit(parts), kind(**small).fit(whole)
    np.testing.assert_array_equal(one.recommend(whole[:5], k=5).ids, other.recommend(whole[:5], k=5).ids)


def test_priors(both):
    parts, whole = both
    r = np.random.default_rng(2)
    features = {str(item): {"kind": "ab"[place % 2], "size": float(place)} for place, item in enumerate(whole.items)}
    features["new"] = {"kind": "a", "size": 3.0}
    for prior in (r.random((whole.n_items, whole.n_items)), ItemFeatures(features)):
        one, other = (deql.EASE(l2=3.0, prior=prior, dtype="float64").fit(data) for data in both)
        assert one.items_.tolist() == other.items_.tolist()
        np.testing.assert_allclose(one.precision_.to_dense(), other.precision_.to_dense(), rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            one.recommend(whole[:4], k=9).scores, other.recommend(whole[:4], k=9).scores, rtol=1e-5, atol=1e-6
        )
    with pytest.raises(DataError, match=r"a low pass needs all interactions .* data.to_interactions\(\)"):
        deql.EASE(l2=3.0, prior=LowPass(4)).fit(parts)


def test_what_partitions_cannot_do(both):
    parts, _ = both
    with pytest.raises(ParameterError, match="leave keep_data out"):
        deql.EASE(l2=3.0).fit(parts, keep_data=True)
    with pytest.raises(ParameterError, match="half_life needs times"):
        deql.EASE(l2=3.0, half_life="30d").fit(parts)
    with pytest.raises(DataError, match=r"give it data.to_interactions\(\)"):
        _ = parts.matrix


def test_without_a_ridge(tmp_path):
    path = tmp_path / "t.parquet"
    rows = [(user, item) for user in range(8) for item in range(3) if (user >> item) & 1 or item == 2]
    pl.DataFrame(rows, schema=["user", "item"], orient="row").write_parquet(path)
    parts, whole = deql.read_partitions(path, partitions=3), deql.read_interactions(path)
    same(deql.EASE(l2=0.0, dtype="float64").fit(parts), deql.EASE(l2=0.0, dtype="float64").fit(whole))
    pl.DataFrame([*rows, *((user, 9) for user in range(8))], schema=["user", "item"], orient="row").write_parquet(path)
    with pytest.raises(deql.NotPositiveDefiniteError, match="exactly the same users"):
        deql.EASE(l2=0.0).fit(deql.read_partitions(path, partitions=3))


def test_a_problem_of_stored_rows(both):
    parts, whole = both
    problem = Problem(StoredRows(parts, 0.5), np.ones(parts.n_items))
    assert problem.shape == whole.shape
    assert problem.n == whole.n_items
    total = np.zeros((problem.n, problem.n))
    for part in problem.parts(3):
        rows, weights = part.load()
        assert rows.shape == (part.n_users, problem.n)
        assert rows.nnz == part.n_interactions
        total += (rows.T @ (rows * weights[:, None])).toarray()
    dense = whole.matrix.toarray().astype(float)
    weights = (dense > 0).sum(axis=1) ** -0.5
    np.testing.assert_allclose(total, dense.T @ (dense * weights[:, None]), rtol=1e-5)


def test_a_plan(both):
    parts, whole = both
    assert deql.plan(parts, calibrate=False).n == deql.plan(whole, calibrate=False).n
    assert deql.plan(parts, calibrate=True).seconds is not None
