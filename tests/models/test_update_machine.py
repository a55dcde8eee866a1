"""Any sequence of updates is what a fit on the final data gives: every model, against a plain dictionary."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from scipy.sparse import csr_array

import deql
from deql._system.threads import set_threads
from deql.errors import DataError
from deql.priors import LowPass, Model
from deql.priors.saved import SavedPrior

THOROUGH = int(os.environ.get("DEQL_UPDATE_EXAMPLES", "0"))
"""Examples of each case, where more are wanted than the suite has time for."""

USERS = st.integers(0, 9)
ITEMS = st.integers(0, 11)
WEIGHTS = st.sampled_from([0.5, 1.0, 1.7, 3.0, -0.5])
TIMES = st.integers(0, 50)
PAIRS = st.lists(st.tuples(USERS, ITEMS, WEIGHTS, TIMES), min_size=1, max_size=5, unique_by=lambda pair: pair[:2])
PICKS = st.lists(st.integers(0, 1000), min_size=1, max_size=3)


@dataclass(frozen=True)
class Case:
    """A model, and the data that it meets.

    ``tile`` cuts the store of even these few items; ``text`` makes ids text; ``weighted`` and ``timed`` say what the
    interactions have. ``exact`` is what W may be off by: the factors of a prior are in float32.
    """

    make: Callable[..., Any]
    weighted: bool = False
    timed: bool = False
    text: bool = True
    tile: int | None = None
    exact: float = 1e-8


def case(
    kind: Callable[..., Any], weighted=False, timed=False, text=True, tile=None, exact=1e-8, **params: Any
) -> Case:
    def make(**other: Any) -> Any:
        return kind(**{"l2": 1.5, "dtype": "float64"} | params | other)

    return Case(make, weighted, timed, text, tile, exact)


def model_of_all(kind: Callable[..., Any], **params: Any) -> Model:
    """A prior that knows all items that may come."""
    generator = np.random.default_rng(4)
    R = (generator.random((30, 12)) < np.linspace(0.2, 0.8, 12)) * generator.uniform(0.5, 2.0, (30, 12))
    return Model(kind(**params).fit(deql.Interactions.from_csr(csr_array(R), items=[f"i{i:02}" for i in range(12)])))


DISK = deql.engines.Disk(memory="64MiB")
CASES = {
    "EASE": case(deql.EASE, tile=3),
    "EASE, weights, user power": case(deql.EASE, weighted=True, user_power=0.5, popularity_power=0.3),
    "EASE, disk": case(deql.EASE, engine=DISK, weighted=True, timed=True),
    "LAE": case(deql.LAE, weighted=True, text=False, tile=4),
    "DLAE": case(deql.DLAE, dropout=0.3, user_power=0.5, timed=True),
    "EDLAE": case(deql.EDLAE, dropout=0.6, tile=5, timed=True),
    "EDLAE, weights, user power": case(deql.EDLAE, dropout=0.3, user_power=0.5, weighted=True, tile=3),
    "EDLAE, disk": case(deql.EDLAE, dropout=0.3, user_power=0.5, engine=DISK, text=False),
    "RLAE": case(deql.RLAE, xi=0.3, weighted=True, user_power=0.5),
    "RDLAE": case(deql.RDLAE, xi=0.3, dropout=0.4, text=False),
    "DEQL": case(deql.DEQL, dropout=0.4, b=1.5, weighted=True, tile=4),
    "DEQL, zero diagonal": case(deql.DEQL, dropout=0.4, b=2.0, zero_diagonal=True, user_power=0.5, l2=20.0),
    "EASE, low pass": case(deql.EASE, prior=LowPass(), exact=1e-4, tile=3),
    "EDLAE, model as prior": case(deql.EDLAE, dropout=0.3, prior=model_of_all(deql.EASE, l2=3.0), exact=1e-5, tile=4),
    "DEQL, thin model as prior, weights, user power": case(
        deql.DEQL,
        dropout=0.4,
        b=1.5,
        weighted=True,
        user_power=0.5,
        exact=1e-5,
        prior_weight=0.7,
        prior=model_of_all(deql.LowRankDEQL, l2=3.0, rank=5),
    ),
    "EASE, half life": case(deql.EASE, half_life=20.0, timed=True, weighted=True, user_power=0.5, tile=3),
    "EDLAE, half life, disk": case(deql.EDLAE, half_life=8.0, timed=True, dropout=0.3, engine=DISK),
    "DEQL, b = inf": case(deql.DEQL, dropout=0.4, b=float("inf"), timed=True, weighted=True),
}


class Updates(RuleBasedStateMachine):
    """A model and what it must know: {(user, item): (weight, time)}, and its items in the order of columns."""

    case: Case
    folder: Path

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[tuple[Any, Any], tuple[float, float]] = {}
        self.items: list[Any] = []
        self.beside: list[tuple[Any, np.ndarray]] = []

    def named(self, pairs):
        """Pairs of numbers under the ids of the case."""
        user, item = ("u{}", "i{:02}") if self.case.text else (None, None)
        return {
            (user.format(u) if user else 7 * u, item.format(i) if item else 5 * i - 9): (
                w if self.case.weighted else 1.0,
                float(t) if self.case.timed else 0.0,
            )
            for u, i, w, t in pairs
        }

    def interactions(self, known, items=None, users=None):
        users = sorted({user for user, _ in known}) if users is None else users
        items = sorted({item for _, item in known}) if items is None else items
        weights, times = np.zeros((len(users), len(items))), np.zeros((len(users), len(items)))
        for (user, item), (weight, time) in known.items():
            weights[users.index(user), items.index(item)] = weight
            times[users.index(user), items.index(item)] = time
        matrix = csr_array(weights)
        when = times[matrix.tocoo().coords] if self.case.timed else None
        kind = object if self.case.text else np.int64
        return deql.Interactions(matrix, np.array(users, kind), np.array(items, kind), when)

    @initialize(pairs=st.lists(st.tuples(USERS, ITEMS, WEIGHTS, TIMES), min_size=4, max_size=25))
    def fit(self, pairs):
        self.known = self.named(pairs)
        data = self.interactions(self.known)
        self.items = data.items.tolist()
        self.model = self.case.make().fit(data, keep_data=True)
        self.until = data.times.max() if self.case.timed else 0.0

    def fitted(self, data):
        """A model fitted on these data; fading is done by hand."""
        model = self.case.make()
        if model.half_life is None:
            return model.fit(data)
        values = data.matrix.copy()
        values.data = values.data * 2.0 ** ((data.times - self.until) / model.half_life)
        return self.case.make(half_life=None).fit(replace(data, matrix=values))

    @rule(pairs=PAIRS)
    def add(self, pairs):
        self.change(added=self.named(pairs))

    @rule(picks=PICKS)
    def remove(self, picks):
        self.change(removed=self.picked(picks, list(self.known)))

    @rule(picks=PICKS)
    def forget(self, picks):
        self.change(forget=self.picked(picks, sorted({user for user, _ in self.known})))

    @rule(picks=PICKS)
    def retire(self, picks):
        self.change(retire=self.picked(picks, self.items))

    @rule(pairs=PAIRS, gone=PICKS, forget=PICKS, retire=PICKS)
    def change_all_at_once(self, pairs, gone, forget, retire):
        forget = self.picked(forget[:1], sorted({user for user, _ in self.known}))
        retire = self.picked(retire[:1], self.items)
        added = {
            pair: value for pair, value in self.named(pairs).items() if pair[0] not in forget and pair[1] not in retire
        }
        self.change(added, self.picked(gone, list(self.known)), forget, retire)

    @rule(picks=PICKS, weight=WEIGHTS)
    def replace_some(self, picks, weight):
        pairs = self.picked(picks, list(self.known))
        self.change({pair: (weight if self.case.weighted else 1.0, self.known[pair][1]) for pair in pairs}, pairs)

    @rule()
    def change_nothing(self):
        plan = self.model.plan_update(forget_users=[], retire_items=())
        assert self.model.update(forget_users=[], retire_items=()).method == plan.method == "none"

    @rule(picks=PICKS)
    def refuse(self, picks):
        before, nobody = self.model.precision_, "nobody" if self.case.text else -1
        for wrong in (
            {"forget_users": [nobody]},
            {"retire_items": [nobody], "forget_users": self.picked(picks, [user for user, _ in self.known])},
            {"removed": self.interactions({(nobody, self.items[0]): (1.0, 0.0)})},
        ):
            with pytest.raises(DataError, match=r"nothing was changed|there is no"):
                self.model.update(**wrong)
        assert self.model.precision_ is before

    @precondition(lambda self: not self.case.tile)  # which a model file wants wider
    @rule(quantized=st.booleans())
    def save_and_load(self, quantized):
        self.model.save(self.folder / "model.deql", quantized_rows=quantized)
        state = self.model.updated_
        self.model = deql.load(self.folder / "model.deql")
        assert self.model.updated_ == state

    @precondition(lambda self: len(self.beside) < 2)
    @rule(power=st.sampled_from([0.0, 0.4]))
    def keep_one_beside(self, power):
        other = self.model.with_rule(popularity_power=power)
        assert other.updated_ == self.model.updated_
        self.beside.append((other, other.weights()))

    def picked(self, picks, among):
        return list(dict.fromkeys(among[pick % len(among)] for pick in picks))

    def change(self, added=None, removed=(), forget=(), retire=()):
        final = {
            (user, item): value
            for (user, item), value in self.known.items()
            if (user, item) not in removed and user not in forget and item not in retire
        }
        binary = all(weight == 1 for weight, _ in [*final.values(), *(added or {}).values()])
        new = sorted({item for _, item in added or {}} - {*self.items})
        for pair, (weight, time) in (added or {}).items():
            old, when = final.get(pair, (0.0, -np.inf))
            final[pair] = 1.0 if binary else old + weight, max(when, time)
        final = {pair: value for pair, value in final.items() if value[0]}
        given = {
            "added": self.interactions(added) if added else None,
            "removed": self.interactions({pair: self.known[pair] for pair in removed}) if removed else None,
            "forget_users": list(forget) * 2,
            "retire_items": retire,
            "prior": self.case.make().prior if isinstance(self.model.prior, SavedPrior) else None,
        }
        if not final:
            with pytest.raises(DataError, match="nothing would be left"):
                self.model.update(**given)
            return
        plan = self.model.update(**given, method="low rank").plan
        users = [{user for user, _ in pairs} for pairs in (self.known, final)]
        assert plan.changes.new_users == len({user for user, _ in added or {}} - users[0])
        assert plan.changes.forgotten_users == len(users[0] - users[1])
        assert (plan.changes.new_items, plan.changes.retired_items) == (len(new), len(retire))
        self.known, self.items = final, [item for item in self.items if item not in retire] + new

    @invariant()
    def is_what_a_fit_gives(self):
        if not self.known:
            return
        model, n = self.model, len(self.items)
        data = self.interactions(self.known, self.items, model.data_.users.tolist())
        assert model.items_.tolist() == self.items
        assert {*model.data_.users.tolist()} == {user for user, _ in self.known}
        for field_name in ("indptr", "indices", "data"):
            assert getattr(model.data_.matrix, field_name).tolist() == getattr(data.matrix, field_name).tolist()
        if self.case.timed:
            assert model.data_.times.tolist() == data.times.tolist()
        expected = self.fitted(data)
        assert (model.n_users_, model.engine_) == (expected.n_users_, expected.engine_)
        assert model.weighted_ == bool((data.matrix.data != 1).any())
        assert model.item_counts_.tolist() == expected.item_counts_.tolist()
        assert np.abs(model.gram_diagonal_ - expected.gram_diagonal_).max() <= 1e-12 * expected.gram_diagonal_.max()
        P, exact = model.precision_.to_dense(), expected.precision_.to_dense()
        assert np.abs(P - exact).max() <= 1e-8 * np.abs(exact).max()
        W, exact = model.weights(), expected.weights()
        assert np.abs(W - exact).max() <= self.case.exact * max(1.0, np.abs(exact).max())
        assert model.residual_ < 1e-8
        if self.case.tile:  # which ranking wants wider
            return
        assert model.recommend([[]], k=n).ids.tolist() == expected.recommend([[]], k=n).ids.tolist()
        history = [self.items[: n // 2 + 1]]
        assert np.allclose(
            model.recommend(history, k=n).scores, expected.recommend(history, k=n).scores,
            atol=max(1e-8, 20 * self.case.exact), equal_nan=True,
        )  # fmt: skip

    @invariant()
    def others_on_the_same_inverse_stay(self):
        for other, weights in self.beside:
            assert np.array_equal(other.weights(), weights)


@pytest.mark.parametrize("name", CASES)
def test_any_sequence_of_updates_is_a_fit(name, tmp_path, monkeypatch, request):
    found = CASES[name]
    if found.tile:
        monkeypatch.setattr("deql.linalg.gram.choose_tile", lambda n: min(n, found.tile))
    request.addfinalizer(lambda: set_threads(None))
    set_threads(1)  # of so few items most of the time would go into starting threads
    machine = type("Machine", (Updates,), {"case": found, "folder": tmp_path})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=THOROUGH or 6, stateful_step_count=10, deadline=None, derandomize=not THOROUGH,
            database=None, report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
