"""Updates of models with a prior, against fits on the data of afterwards."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array

import deql
from deql.errors import DataError, ParameterError
from deql.models.updated_prior import prior_flops
from deql.priors import ItemFeatures, LowPass, Matrix, Model, Prior, PriorWeights

N, USERS, COLD = 14, 40, 4
RULES: list[tuple[Any, dict[str, Any]]] = [
    (deql.LAE, {"l2": 4.0}),
    (deql.EASE, {"l2": 6.0}),
    (deql.DEQL, {"l2": 5.0, "dropout": 0.3, "b": 1.4, "user_power": 0.4, "popularity_power": 0.2}),
    (deql.RDLAE, {"l2": 5.0, "dropout": 0.2, "xi": 0.1}),
]
EASE = {"l2": 6.0, "dtype": "float64", "prior_weight": 0.7}


def name(item: int) -> str:
    return f"item {item:02}"


def pairs(seed: int, users: int = USERS, items: int = N, first: int = 0, weighted: bool = True) -> deql.Interactions:
    """Interactions of uneven popularities, of users from some number on."""
    generator = np.random.default_rng(seed)
    R = (generator.random((users, items)) < np.linspace(0.1, 0.7, items)) * generator.uniform(0.5, 2.0, (users, items))
    R = R if weighted else (R > 0).astype(float)
    R[0], R[1:, 0] = 1.0, 0.0  # everything has somebody, and the first item no one else
    data = deql.Interactions.from_csr(csr_array(R), items=[name(item) for item in range(items)])
    return deql.Interactions(data.matrix, np.arange(first, first + users), data.items)


def table(rows: int = N + COLD, seed: int = 3) -> pl.DataFrame:
    generator = np.random.default_rng(seed)
    genres = ["|".join(generator.choice(list("abcde"), generator.integers(1, 4), replace=False)) for _ in range(rows)]
    return pl.DataFrame(
        {"item": [name(item) for item in range(rows)], "year": generator.normal(size=rows), "genres": genres}
    )


def other_model(items: int = N, kind: Any = deql.EASE, **given: Any) -> Any:
    return kind(**({"l2": 3.0} | given)).fit(pairs(77, items=items))


def matrix(n: int = N, rank: int | None = None) -> Any:
    generator = np.random.default_rng(8)
    dense = generator.normal(size=(n, n)) / n
    if rank is None:
        return dense
    return generator.normal(size=(n, rank)) / n, generator.normal(size=(n, rank))


def refitted(model: Any) -> Any:
    """A fit on the model's data, as it was fitted."""
    return type(model)(**model.fitted_params_).fit(model.data_, keep_data=True)


def assert_as_refitted(model: Any, expected: Any = None, tolerance: float = 3e-6) -> None:
    expected = refitted(model) if expected is None else expected
    assert model.items_.tolist() == expected.items_.tolist()
    assert model.item_counts_.tolist() == expected.item_counts_.tolist()
    W, whole = model.weights(), expected.weights()
    np.testing.assert_allclose(W, whole, rtol=0, atol=tolerance * np.abs(whole).max())
    for weight in (0.0, 1.6):
        np.testing.assert_allclose(
            model.with_rule(prior_weight=weight).weights(), expected.with_rule(prior_weight=weight).weights(),
            rtol=0, atol=3 * tolerance * np.abs(whole).max(),
        )  # fmt: skip
    histories = model.data_.matrix[:6]
    (ids, scores), (others, theirs) = (one.recommend(histories, k=5, exclude_seen=False) for one in (model, expected))
    np.testing.assert_allclose(scores, theirs, rtol=0, atol=20 * tolerance * np.abs(theirs).max())
    apart = np.abs(np.diff(theirs, axis=1)).min(axis=1) > 1e-3
    assert ids[apart].tolist() == others[apart].tolist()
    why = model.explain([name(3), name(5)], str(model.items_[-1]))
    assert sum(part.value for part in why) == why.score


CHANGES: dict[str, dict[str, Any]] = {
    "new users": {"added": pairs(5, users=3, first=100)},
    "old users": {"added": pairs(6, users=2, first=7), "removed": pairs(1).take_users(np.array([4]))},
    "forgotten": {"forget_users": [3, 9]},
}
MOVES: dict[str, dict[str, Any]] = {
    "new items": {"added": pairs(5, users=3, items=N + 2, first=100)},
    "retired": {"retire_items": [name(4), name(11)]},
    "both": {"added": pairs(5, users=2, items=2, first=5), "retire_items": [name(4)], "forget_users": [8]},
}


@pytest.mark.parametrize("kind", ["dense", "sparse", "pair", "lowpass", "model", "thin model", "features"])
@pytest.mark.parametrize("rule", range(len(RULES)))
def test_interactions_that_come_and_go(kind: str, rule: int) -> None:
    priors: dict[str, Any] = {
        "dense": lambda: matrix(),
        "sparse": lambda: csr_array(matrix() * (np.abs(matrix()) > 0.05)),
        "pair": lambda: matrix(rank=3),
        "lowpass": lambda: LowPass(4),
        "model": lambda: Model(other_model()),
        "thin model": lambda: Model(other_model(kind=deql.LowRankDEQL, rank=4)),
        "features": lambda: ItemFeatures(table()),
    }
    build, given = RULES[rule]
    model = build(**given, prior=priors[kind](), prior_weight=0.7, dtype="float64").fit(pairs(1), keep_data=True)
    for change in CHANGES.values():
        assert model.update(**change, method="low rank").method == "low rank"
    assert_as_refitted(model, tolerance=1e-4 if kind == "lowpass" else 3e-6)


@pytest.mark.filterwarnings("ignore:the model that is a prior does not know")
@pytest.mark.parametrize("method", ["low rank", "refit"])
@pytest.mark.parametrize("kind", ["model", "thin model", "lowpass"])
@pytest.mark.parametrize("what", MOVES)
def test_items_that_come_and_go(kind: str, what: str, method: str) -> None:
    priors: dict[str, Any] = {
        "lowpass": LowPass(4),
        "model": Model(other_model(items=N + 1)),  # which knows one of the items that come
        "thin model": Model(other_model(items=N - 3, kind=deql.LowRankDEQL, rank=4)),
    }
    model = deql.EASE(**EASE, prior=priors[kind]).fit(pairs(1), keep_data=True)
    model.update(**MOVES[what], method=method)
    assert_as_refitted(model, tolerance=1e-4 if kind == "lowpass" else 3e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["dense", "pair", "features"])
def test_twenty_updates_in_a_row(kind: str, dtype: str) -> None:
    prior = {"dense": matrix(), "pair": matrix(rank=3), "features": ItemFeatures(table())}[kind]
    model = deql.DEQL(5.0, 0.3, 0.7, user_power=0.3, prior=prior, dtype=dtype).fit(pairs(1), keep_data=True)
    for turn in range(10):
        model.update(pairs(20 + turn, users=3, first=200 + 5 * turn), method="low rank")
        users = model.data_.users
        model.update(forget_users=users[[turn + 1, -1 - turn]], method="low rank")
    assert model.updated_.count == 20
    assert_as_refitted(model, tolerance=1e-4 if dtype == "float32" else 1e-5)


class TestItemFeatures:
    def model(self, rows: int = N + COLD, **given: Any) -> Any:
        return deql.EDLAE(5.0, 0.3, prior=ItemFeatures(table().head(rows)), dtype="float64", **given).fit(
            pairs(1), keep_data=True
        )

    def loaded(self, tmp_path: Path, model: Any = None) -> Any:
        model = self.model() if model is None else model
        model.save(tmp_path / "m.deql")
        return deql.load(tmp_path / "m.deql")

    def first_of_cold(self) -> deql.Interactions:
        return deql.Interactions.from_pairs([2, 300], [name(N + 1)] * 2)

    @pytest.mark.parametrize("method", ["low rank", "refit"])
    def test_cold_items_become_warm(self, method: str) -> None:
        model = self.model()
        model.update(self.first_of_cold(), method=method)
        assert model.item_counts_[N:].tolist() == [0, 2, 0, 0]
        assert_as_refitted(model)

    @pytest.mark.parametrize("method", ["low rank", "refit"])
    def test_items_become_cold(self, method: str) -> None:
        model = self.model()
        model.update(forget_users=[0], method=method)
        assert model.item_counts_[0] == 0  # in the middle of the others, as far as columns go
        assert_as_refitted(model)
        model.update(pairs(5, users=3, first=100), method=method)
        assert_as_refitted(model)

    @pytest.mark.parametrize("what", CHANGES)
    def test_are_loaded_without_their_table(self, tmp_path: Path, what: str) -> None:
        model, loaded = self.model(), self.loaded(tmp_path)
        loaded.update(**CHANGES[what])
        model.update(**CHANGES[what])
        assert_as_refitted(loaded, refitted(model))
        again = self.loaded(tmp_path, loaded)
        assert again.prior_.features.strength == loaded.prior_.features.strength
        assert again.weights().tobytes() == loaded.weights().tobytes()

    def test_items_that_come_have_none(self, tmp_path: Path) -> None:
        come = deql.Interactions.from_pairs([1, 1, 400, 2], ["new", name(2), "new", name(6)])
        model, loaded = self.model(), self.loaded(tmp_path)
        for one in (model, loaded):
            one.update(come)
            assert_as_refitted(one, refitted(model))
        again = self.loaded(tmp_path, loaded)
        more = {"later": {"year": 0.3, "genres": "a|c"}}
        again.add_items(more).update(forget_users=[12])
        model.add_items(more).update(forget_users=[12])
        assert again.items_.tolist()[-2:] == ["new", "later"]
        assert_as_refitted(again, model)

    def test_a_table_given_again_brings_them(self, tmp_path: Path) -> None:
        come = deql.Interactions.from_pairs([1, 400], [name(N + COLD)] * 2)
        prior, loaded = ItemFeatures(table(N + COLD + 3)), self.loaded(tmp_path)
        plan = loaded.plan_update(come, prior=prior)
        assert plan.n_items == N + COLD + 3
        for one, method in ((self.model(), "low rank"), (loaded, "auto"), (self.loaded(tmp_path), "refit")):
            one.update(come, prior=prior, method=method)
            assert one.prior is one.fitted_params_["prior"] is prior
            assert one.items_.tolist() == [name(item) for item in range(N + COLD + 3)]
            assert one.data_.items.tolist() == one.items_.tolist()
            assert_as_refitted(one)

    def test_a_table_alone_brings_cold_items(self) -> None:
        model = self.model()
        model.update(prior=ItemFeatures(table(N + COLD + 3)))
        assert len(model.items_) == N + COLD + 3
        assert_as_refitted(model)

    def test_a_table_of_other_features_is_taken(self) -> None:
        model, prior = self.model(), ItemFeatures(table(seed=9), l2=3.0)
        report = model.update(prior=prior)
        assert report.residual < 1e-10
        assert_as_refitted(model)

    @pytest.mark.parametrize("method", ["low rank", "refit"])
    def test_retired_items_leave_the_table(self, tmp_path: Path, method: str) -> None:
        gone = [name(4), name(N + 2)]
        rest = ItemFeatures(table().filter(~pl.col("item").is_in(gone)))
        for model in (self.model(), self.loaded(tmp_path)):
            model.update(pairs(5, users=3, items=3, first=100), retire_items=gone, prior=rest, method=method)
            assert len(model.items_) == N + COLD - 2
            assert_as_refitted(model)

    def test_added_items_stay(self) -> None:
        whole, model = self.model(), self.model(N + 1)
        model.add_items(table().tail(COLD - 1))
        for change in CHANGES.values():
            model.update(**change, method="low rank")
            whole.update(**change, method="low rank")
        assert_as_refitted(model, refitted(whole))
        with pytest.raises(ParameterError, match="prior="):
            model.update(pairs(9, users=1, first=999), method="refit")
        model.update(self.first_of_cold(), prior=ItemFeatures(table()))
        whole.update(self.first_of_cold())
        assert_as_refitted(model, whole)

    @pytest.mark.parametrize("seed", range(4))
    def test_any_sequence_of_updates(self, seed: int, tmp_path: Path) -> None:
        generator, rows, model = np.random.default_rng(seed), table(), self.model(user_power=0.3)
        for turn in range(12):
            data, change = model.data_, {}
            what = generator.integers(4)
            if what == 0:
                items = generator.choice(N + COLD + 1, 3, replace=False)
                names = [name(item) for item in items if name(item) in model.items_ or item == N + COLD]
                users = generator.choice([*data.users.tolist(), 500 + turn], len(names))
                change["added"] = deql.Interactions.from_pairs(users.tolist(), names)
            elif what == 1:
                change["forget_users"] = generator.choice(data.users, 2, replace=False)
            elif what == 2:
                change["removed"] = data.take_users(generator.choice(data.n_users, 1)).without_empty()
            else:
                change["retire_items"] = generator.choice(model.items_, 1)
                rows = rows.filter(~pl.col("item").is_in(change["retire_items"].tolist()))
                change["prior"] = ItemFeatures(rows)
            model.update(**change, method="low rank")
            if turn % 4 == 3:
                model = self.loaded(tmp_path, model)
                model.update(prior=ItemFeatures(rows))
            expected = refitted(model).weights()
            np.testing.assert_allclose(model.weights(), expected, rtol=0, atol=3e-6 * np.abs(expected).max())

    def test_say_what_they_cannot(self, tmp_path: Path) -> None:
        added = self.model(N + 1).add_items(table().tail(COLD - 1))
        loaded, model = self.loaded(tmp_path), self.model()
        rows = deql.EASE(5.0, prior=ItemFeatures(np.eye(N))).fit(pairs(1), keep_data=True)
        cases: list[tuple[Any, dict[str, Any], str]] = [
            (loaded, {"added": self.first_of_cold()}, "'item 15' gets its first user: give their table again"),
            (loaded, {"forget_users": [0]}, "'item 00' loses its last user"),
            (loaded, {"retire_items": [name(3)]}, "'item 03' would be gone"),
            (loaded, {"forget_users": [3], "method": "refit"}, "prior="),
            (model, {"retire_items": [name(3)]}, "a fit would bring back what is retired"),
            (added, {"forget_users": [0]}, "'item 15', 'item 16', 'item 17' came by add_items"),
            (rows, {"retire_items": [name(3)]}, "matrix of features that is the prior has a row for each item"),
            (rows, MOVES["new items"], "has a row for each item"),
        ]
        for one, change, said in cases:
            before, data = one.weights(), one.data_
            with pytest.raises((DataError, ParameterError), match=said):
                one.update(**change)
            assert one.weights().tobytes() == before.tobytes()
            assert one.data_ is data


class TestWithoutWhatMadeIt:
    @pytest.mark.parametrize("kind", ["dense", "pair", "model"])
    def test_fixed_weights_follow(self, tmp_path: Path, kind: str) -> None:
        prior = {"dense": matrix(), "pair": matrix(rank=3), "model": Model(other_model())}[kind]
        model = deql.EASE(**EASE, prior=prior).fit(pairs(1), keep_data=True)
        model.save(tmp_path / "m.deql", quantized_rows=True)
        loaded = deql.load(tmp_path / "m.deql")
        for change in [*CHANGES.values(), *([MOVES["retired"]] if kind == "model" else [])]:
            report = loaded.update(**change)
            assert report.method == "low rank"
            model.update(**change)
        assert_as_refitted(loaded, refitted(model))
        rows = model.data_.matrix[:4]
        assert loaded.quantized_rows_ is not None
        fast, slow = (one.recommend(rows, k=6) for one in (loaded, loaded.with_rule(prior_weight=0.7)))
        assert fast.scores.tobytes() == slow.scores.tobytes()

    @pytest.mark.parametrize("kind", ["dense", "pair", "model"])
    def test_and_without_data(self, kind: str) -> None:
        prior = {"dense": matrix(), "pair": matrix(rank=3), "model": Model(other_model())}[kind]
        model = deql.EASE(**EASE, prior=prior).fit(pairs(1))
        model.update(CHANGES["new users"]["added"], new_users=True)
        expected = deql.EASE(**EASE, prior=prior).fit(pairs(1), keep_data=True)
        expected.update(**CHANGES["new users"])
        np.testing.assert_allclose(model.weights(), refitted(expected).weights(), atol=1e-6)

    def test_new_items_of_a_model_without_data(self) -> None:
        prior = Model(other_model(items=N + 1))
        model = deql.EASE(**EASE, prior=prior).fit(pairs(1))
        with pytest.warns(match="does not know 1 of 16 items"):
            model.update(MOVES["new items"]["added"], new_users=True)
        with pytest.warns(match="does not know 1 of 16 items"):
            expected = deql.EASE(**EASE, prior=prior).fit(deql.join(pairs(1), MOVES["new items"]["added"]))
        np.testing.assert_allclose(model.weights(), expected.weights(), atol=1e-6)

    @pytest.mark.parametrize(
        ("prior", "change", "said"),
        [
            (matrix(), MOVES["new items"], "the prior has a row for each item, and items come or go"),
            (matrix(rank=2), MOVES["retired"], "give one for those of afterwards as prior="),
            (LowPass(4), {}, None),
            (Model(other_model()), MOVES["new items"], r"may know items 'item 14', 'item 15': give it again"),
        ],
    )
    def test_says_what_it_cannot(self, tmp_path: Path, prior: Any, change: dict[str, Any], said: str | None) -> None:
        deql.EASE(**EASE, prior=prior).fit(pairs(1), keep_data=True).save(tmp_path / "m.deql")
        model = deql.load(tmp_path / "m.deql")
        if said is None:
            model.update(**change)
            return
        before = model.weights().tobytes()
        with pytest.raises(ParameterError, match=said):
            model.update(**change)
        assert model.weights().tobytes() == before

    @pytest.mark.parametrize("prior", [LowPass(4), ItemFeatures(table())])
    def test_what_is_learned_from_data_needs_them(self, prior: Any) -> None:
        model = deql.EASE(**EASE, prior=prior).fit(pairs(1))
        with pytest.raises(ParameterError, match="is learned from them, so that it can take no update"):
            model.update(CHANGES["new users"]["added"], new_users=True)
        with pytest.raises(ParameterError, match="that is learned from the data needs them"):
            model.update(CHANGES["new users"]["added"], new_users=True, prior=LowPass(3))
        with pytest.raises(ParameterError, match="that is learned from the data needs them"):
            model.update(prior=LowPass(3))
        model.update()

    def test_a_low_pass_is_rebuilt(self, tmp_path: Path) -> None:
        deql.EASE(**EASE, prior=LowPass(4)).fit(pairs(1), keep_data=True).save(tmp_path / "m.deql")
        model = deql.load(tmp_path / "m.deql")
        for what in ("new items", "both"):
            model.update(**MOVES[what])
        assert_as_refitted(model, tolerance=1e-4)

    def test_a_matrix_given_again_is_for_the_items_of_afterwards(self, tmp_path: Path) -> None:
        model = deql.EASE(**EASE, prior=matrix()).fit(pairs(1), keep_data=True)
        model.update(**MOVES["both"], prior=matrix(N - 1), method="low rank")
        assert isinstance(model.fitted_params_["prior"], np.ndarray)
        assert_as_refitted(model)
        model.save(tmp_path / "m.deql")
        loaded = deql.load(tmp_path / "m.deql")
        loaded.update(**MOVES["new items"], prior=Matrix(matrix(N + 2, rank=2)))
        assert_as_refitted(loaded)
        with pytest.raises(ParameterError, match="shape"):
            loaded.update(retire_items=[name(5)], prior=matrix(3))

    def test_a_prior_is_not_given_to_a_model_without(self) -> None:
        model = deql.EASE(6.0).fit(pairs(1), keep_data=True)
        with pytest.raises(ParameterError, match="has no prior"):
            model.update(prior=LowPass(4))


@dataclass(frozen=True, eq=False)
class OfCounts(Prior):
    """Somebody's own prior, made of the data."""

    def weights(self, data: deql.Interactions, **_how: Any) -> PriorWeights:
        counts = np.bincount(data.matrix.indices, minlength=data.n_items)[:, None].astype(np.float32)
        return PriorWeights(counts, counts, np.full(data.n_items, 1e-3), np.zeros(data.n_items))

    @property
    def config(self) -> dict[str, Any]:
        return {"prior": "counts"}


def test_a_prior_of_one_s_own_is_made_again(tmp_path: Path) -> None:
    model = deql.EASE(**EASE, prior=OfCounts()).fit(pairs(1), keep_data=True)
    model.update(**MOVES["both"], method="low rank")
    assert_as_refitted(model)
    model.save(tmp_path / "m.deql")
    loaded = deql.load(tmp_path / "m.deql")
    with pytest.raises(ParameterError, match=r"kept what its prior \(counts\) made, not the prior"):
        loaded.update(forget_users=[3])
    loaded.update(forget_users=[3], prior=OfCounts())
    assert_as_refitted(loaded)


@pytest.mark.parametrize(
    "prior", [LowPass(4), ItemFeatures(table()), matrix(rank=3)], ids=["lowpass", "features", "pair"]
)
def test_fading_interactions(prior: Any) -> None:
    def timed(data: deql.Interactions) -> deql.Interactions:
        return deql.Interactions(data.matrix, data.users, data.items, np.arange(data.n_interactions) % 90 * 1.0)

    model = deql.EASE(**EASE, half_life=30.0, prior=prior).fit(timed(pairs(1)), keep_data=True)
    model.update(timed(pairs(5, users=3, first=100)), forget_users=[3, 9], method="low rank")
    assert_as_refitted(model, tolerance=1e-4 if isinstance(prior, LowPass) else 3e-6)


def test_quantised_rows_follow() -> None:
    model = deql.EASE(**EASE, prior=matrix(rank=3)).fit(pairs(1), keep_data=True).quantize_rows()
    for method in ("low rank", "refit"):
        model.update(forget_users=[int(model.data_.users[5])], method=method)
        assert model.quantized_rows_.hold(model.prior_.right)
        rows = model.data_.matrix[:4]
        ids, scores = model.recommend(rows, k=6)
        plain = refitted(model).recommend(rows, k=6)
        assert ids.tolist() == plain.ids.tolist()
        np.testing.assert_allclose(scores, plain.scores, atol=1e-5)


def test_operations_are_counted() -> None:
    from deql.data.changes import Batch
    from deql.models.update import prepare

    batch = Batch(forget_users=(3,))
    counts = []
    for prior in (None, matrix(), matrix(rank=3), LowPass(4), ItemFeatures(table())):
        model = deql.EASE(6.0, prior=prior).fit(pairs(1), keep_data=True)
        change = prepare(model, batch).change
        counts.append([prior_flops(model, change, rank) for rank in (2, None)])
    rank = model.prior_.features.basis.shape[1]
    n = N + COLD
    assert counts == [
        [0, 0], [4 * N * N, 2 * N**3], [4 * N * 3, 6 * N * N], [8 * N * N, 8 * N * N], [4 * n * rank, 2 * n * n * rank],
    ]  # fmt: skip
