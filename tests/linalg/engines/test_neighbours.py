"""The engine of neighbourhoods: with all items the exact engines, with few the paper's rules on each neighbourhood."""

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array

import deql
from deql.engines import Neighbours
from deql.errors import (
    InaccurateInverseError,
    NotPositiveDefiniteError,
    ParameterError,
    TooLargeError,
)
from deql.linalg.engines import neighbours, pair_sums
from deql.linalg.engines.engine import Problem
from deql.linalg.engines.resources import ProblemSize, find_resources
from deql.linalg.gram import user_weights
from deql.linalg.planner.choose import engine_from_config
from deql.priors import LowPass
from tests.models.contract import CASES, N, cases, interactions

FAMILY = cases(lambda case: getattr(case.make(), "engine", None) == "auto" and "CoOccurrence" not in repr(case.make()))


@pytest.fixture(scope="module")
def data():
    return interactions()


@pytest.fixture(scope="module")
def X():
    return interactions(users=30, seed=1).matrix


@pytest.fixture(scope="module", params=[None, "rating"])
def both(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "eaten.parquet"
    r = np.random.default_rng(1)
    items = (30 * r.random(900) ** 2).astype(int)
    frame = pl.DataFrame({"user": r.integers(0, 120, 900), "item": [f"i{item:02d}" for item in items]})
    frame.with_columns(rating=pl.Series(r.integers(1, 6, 900))).write_parquet(path)
    named = {"user": "user", "item": "item", "weight": request.param}
    return deql.read_partitions(path, **named, partitions=5), deql.read_interactions(path, **named)


def no_stage(_label):
    return None


def fitted(case, data, k, **changes):
    return case.make().set_params(engine=Neighbours(k=k), **changes).fit(data)


def by_brute_force(case, data, precision):
    """Each column of W: that of the exact model on its neighbourhood alone, members read off the fitted model."""
    exact = case.make()
    R = np.sqrt(user_weights(data.matrix, exact.user_power))[:, None] * data.matrix.toarray()
    prior = None if exact.prior is None else exact.prior.weights(data)
    W0 = None if prior is None else prior.left @ prior.right.T * prior.scale + np.diag(prior.diagonal)
    W = np.zeros((N, N))
    stored = csr_array((np.ones(len(precision.columns)), precision.columns, precision.indptr), shape=(N, N)).toarray()
    for i in range(N):
        members = np.flatnonzero(stored[:, i])
        part = csr_array(R[:, members])
        on_block = exact.set_params(
            user_power=0.0, dtype="float64", prior=None if W0 is None else W0[np.ix_(members, members)]
        ).fit(part)
        W[members, i] = on_block.weights()[:, members.tolist().index(i)]
    return W


class TestFamily:
    @pytest.mark.parametrize("case", FAMILY)
    def test_with_all_items_is_exact(self, case, data, X):
        found, exact = fitted(case, data, N - 1), case.make().fit(data)
        assert found.engine_ == "neighbours"
        assert found.residual_ < 1e-5
        np.testing.assert_allclose(found.weights(), exact.weights(), rtol=0, atol=1e-6)
        np.testing.assert_allclose(found.diagonal(), exact.diagonal(), rtol=0, atol=1e-6)
        for exclude_seen in (True, False):
            lists, expected = (one.recommend(X, k=N, exclude_seen=exclude_seen) for one in (found, exact))
            np.testing.assert_allclose(lists.scores, expected.scores, rtol=0, atol=2e-5)
            assert lists.ids.tolist() == expected.ids.tolist()
        parts, expected = (one.explain(["item 3", "item 0"], "item 5") for one in (found, exact))
        values = {part.item: pytest.approx(part.value, abs=1e-6) for part in expected}
        assert {part.item: part.value for part in parts} == values

    @pytest.mark.parametrize("case", FAMILY)
    @pytest.mark.parametrize("k", [1, 5])
    def test_with_few_is_the_rule_on_each_neighbourhood(self, case, data, k):
        found = fitted(case, data, k)
        assert np.bincount(found.precision_.columns, minlength=N).max() == k + 1
        np.testing.assert_allclose(found.weights(), by_brute_force(case, data, found.precision_), rtol=0, atol=2e-6)

    @pytest.mark.parametrize("k", [N, 1000, 10**30, np.int64(20)])
    def test_more_than_all_items_are_all_items(self, data, k):
        found, exact = (deql.EASE(l2=2.0, engine=Neighbours(k=one)).fit(data) for one in (k, N - 1))
        assert found.weights().tobytes() == exact.weights().tobytes()

    def test_by_a_name_and_by_what_a_config_says(self, data):
        assert deql.EASE(engine="neighbours").fit(data).engine_ == "neighbours"
        assert engine_from_config({"engine": "neighbours", "k": 7}) == Neighbours(k=7)
        with pytest.raises(ParameterError, match="k is the neighbours engine's"):
            engine_from_config({"engine": "disk", "k": 7})

    def test_half_life(self, data):
        times = np.random.default_rng(0).uniform(0, 50, data.n_interactions)
        timed = deql.Interactions(data.matrix, data.users, data.items, times)
        found, exact = (deql.EASE(l2=2.0, half_life=9, **more).fit(timed) for more in ({"engine": Neighbours(k=N)}, {}))
        assert found.until_ == exact.until_
        np.testing.assert_allclose(found.weights(), exact.weights(), rtol=0, atol=1e-6)

    def test_fit_beside_shares_p_but_for_another_prior(self, data):
        engine = Neighbours(k=5)
        plain = deql.EASE(l2=2.0, engine=engine).fit(data)
        assert deql.LAE(l2=2.0, engine=engine).fit_beside(data, plain).precision_ is plain.precision_
        other = deql.LAE(l2=2.0, engine=engine, prior=LowPass(2))
        beside = other.fit_beside(data, plain)
        assert beside.precision_.images is not None
        again = deql.LAE(l2=2.0, engine=engine, prior=LowPass(2)).fit(data)
        assert beside.weights().tobytes() == again.weights().tobytes()


class TestParts:
    @pytest.mark.parametrize("at_once", [True, False])
    @pytest.mark.parametrize(
        "model",
        [
            deql.EASE(l2=3.0),
            deql.DEQL(l2=2.0, user_power=0.5),
            deql.EDLAE(l2=3.0, prior=tuple(np.random.default_rng(2).normal(0, 0.1, (2, 30, 3)))),
        ],
        ids=["plain", "weighted users", "prior"],
    )
    def test_give_what_the_whole_gives(self, both, model, at_once, monkeypatch):
        if not at_once:  # the parts are summed one by one, and merged
            monkeypatch.setattr(pair_sums, "free_memory", lambda: 0)
            monkeypatch.setattr(pair_sums, "_AT_ONCE", 1)
        one, other = (
            type(model)(**model.get_params() | {"engine": Neighbours(k=6), "dtype": "float64"}).fit(data)
            for data in both
        )
        assert one.precision_.columns.tolist() == other.precision_.columns.tolist()
        np.testing.assert_allclose(one.weights(), other.weights(), rtol=0, atol=1e-12)


class TestRefusals:
    @pytest.mark.parametrize("k", [0, -1, 2.5, "x", None, True, [3]])
    def test_k(self, k):
        with pytest.raises(ParameterError, match=r"^k must be a whole number from 1 up, got"):
            Neighbours(k=k)

    def test_a_prior_of_n_times_n_before_the_work(self, data, monkeypatch):
        monkeypatch.setattr(pair_sums, "sum_triangle", None)
        for prior in (np.eye(N), csr_array(np.eye(N)), CASES["EASE, dense prior"].make().prior):
            with pytest.raises(ParameterError, match=r"takes thin priors, and .* a pair \(U, V\); or"):
                deql.EASE(l2=2.0, prior=prior, engine=Neighbours(k=3)).fit(data)

    def test_no_inverse(self):
        """Dropped entries make none of these zero, but float32 cannot tell them from the same column."""
        R = csr_array(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]) * 1e4)
        with pytest.raises(NotPositiveDefiniteError, match=r"inverted around item 0, 1.*; set l2 above 1e-09 or use"):
            deql.EASE(l2=1e-9, engine=Neighbours(k=2)).fit(R)
        with pytest.raises(NotPositiveDefiniteError, match="exactly the same users"):
            deql.EASE(l2=0.0, engine=Neighbours(k=2)).fit(R)

    @pytest.mark.filterwarnings("error")
    def test_a_ridge_that_is_nothing_in_its_type(self):
        R = csr_array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
        with pytest.raises(NotPositiveDefiniteError, match=r"inverted around item 2.*; set l2 above 1e-300 or use"):
            deql.EASE(l2=1e-300, engine=Neighbours(k=1)).fit(R)

    def test_an_inaccurate_inverse(self, data, monkeypatch):
        monkeypatch.setattr(neighbours, "LARGEST_RESIDUAL", 1e-12)
        with pytest.raises(InaccurateInverseError, match=r"^a column is off by .*; set l2 above 2 or use dtype"):
            deql.EASE(l2=2.0, engine=Neighbours(k=4)).fit(data)

    def test_too_many_items(self):
        with pytest.raises(TooLargeError, match="too many for the neighbours engine: it needs"):
            deql.plan(10**12, engine=Neighbours()).engine  # noqa: B018

    def test_too_many_neighbours_beside_the_pairs(self, data, monkeypatch):
        monkeypatch.setattr(neighbours, "free_memory", lambda: 1000)
        with pytest.raises(
            TooLargeError, match=r"^neighbourhoods of 4 for each of 12 items are too large .* smaller k"
        ):
            deql.EASE(l2=2.0, engine=Neighbours(k=4)).fit(data)

    def test_a_prior_takes_as_much_again_for_its_products(self):
        resources = find_resources(devices=False)
        without, with_one = (
            Neighbours(k=400).requirement(ProblemSize(10**6, "float32", beside=beside), resources) for beside in (0, 1)
        )
        assert with_one.memory - without.memory >= 10**6 * 401 * 4


class TestFewItems:
    @pytest.mark.parametrize("kind", [deql.EASE, deql.LAE, deql.EDLAE])
    def test_one(self, kind):
        found, exact = (kind(l2=1.0, **more).fit(csr_array([[1.0], [2.0]])) for more in ({"engine": Neighbours()}, {}))
        np.testing.assert_allclose(found.weights(), exact.weights(), atol=1e-7)
        assert found.recommend([[0], []], k=3).ids.tolist() == exact.recommend([[0], []], k=3).ids.tolist()

    def test_that_nobody_shares(self, capfd):
        R = csr_array(np.diag([1.0, 2.0, 3.0, 4.0]))
        found, exact = (deql.LAE(l2=1.0, **more).fit(R) for more in ({"engine": Neighbours(k=2)}, {}))
        np.testing.assert_allclose(found.weights(), exact.weights(), atol=1e-7)
        assert found.precision_.columns.tolist() == [0, 1, 2, 3]
        assert found.recommend([[2]], k=3).ids.tolist() == [[0, 1, 3]]
        assert capfd.readouterr().err == ""  # LAPACK complains about a system of no items

    def test_that_nobody_has(self):
        found = deql.EASE(l2=2.0, engine=Neighbours(k=1)).fit(csr_array([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]]))
        assert found.recommend([[0], [1]], k=3).ids.tolist() == [[2, 1, -1], [0, 2, -1]]

    def test_without_a_ridge(self, data):
        found, exact = (
            deql.EDLAE(l2=0.0, dropout=0.3, dtype="float64", **more).fit(data)
            for more in ({"engine": Neighbours()}, {})
        )
        np.testing.assert_allclose(found.weights(), exact.weights(), rtol=0, atol=1e-12)


def test_the_same_bits_with_any_number_of_threads(monkeypatch):
    R = interactions(users=300, items=150).matrix
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("DEQL_THREADS", threads)
        solved = Neighbours(k=20).solve(Problem(R, np.ones(150)), no_stage)
        P = solved.precision
        found.append((P.indptr.tobytes(), P.columns.tobytes(), P.data.tobytes(), solved.residual))
    assert found[0] == found[1]


def test_tells_how_far_it_is():
    told = {}

    def stage(label):
        told[label] = []
        return lambda done, total: told[label].append((done, total))

    R = interactions(users=300, items=150).matrix
    Neighbours(k=20).solve(Problem(R, np.ones(150)), stage)
    assert list(told) == ["Pairs of items", "Strongest pairs", "Neighbourhoods"]
    assert all(0 <= done <= total for each in told.values() for done, total in each)
