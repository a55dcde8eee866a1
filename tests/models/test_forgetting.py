"""Who was forgotten cannot be told from a model: its scores are those of one that never saw them."""

import numpy as np
import pytest

import deql

SEED = 3


@pytest.fixture(scope="module")
def popular():
    """The 150 items that most users have, as 1,200 of these have them."""
    data = deql.datasets.debian()
    counts = np.bincount(data.matrix.indices, minlength=data.n_items)
    few = data.take_items(np.sort(np.argsort(-counts, kind="stable")[:150])).without_empty()
    rows = np.random.default_rng(SEED).permutation(few.n_users)[:1200]
    return few.take_users(np.sort(rows)).without_empty()


def own_scores(model, histories):
    """The scores of the items that users have, each left out of the history that it is scored with."""
    W = model.weights().astype(np.float64)
    rows = histories.matrix.toarray()
    return np.concatenate([(row @ W - row * W.diagonal())[row > 0] for row in rows])


def area_under_curve(positive, negative):
    """The chance that one of the positive is larger than one of the negative, ties counting one half."""
    both = np.concatenate([positive, negative])
    ranks = (np.searchsorted(np.sort(both), both, "left") + np.searchsorted(np.sort(both), both, "right") + 1) / 2
    n = len(positive)
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * len(negative)))


@pytest.mark.parametrize("kind", [deql.EASE, deql.DEQL])
@pytest.mark.parametrize(("dtype", "rounding"), [("float32", 2e-5), ("float64", 1e-12)])
def test_scores_of_the_forgotten_are_those_of_strangers(popular, kind, dtype, rounding):
    generator = np.random.default_rng(SEED)
    several = np.flatnonzero(np.diff(popular.matrix.indptr) > 2)  # one item alone is scored 0 by any model
    forgotten, others = np.split(generator.permutation(several)[:80], 2)
    stay = np.ones(popular.n_users, bool)
    stay[forgotten] = False
    model = kind(l2=20.0, user_power=0.3, dtype=dtype).fit(popular, keep_data=True)
    never_saw = kind(l2=20.0, user_power=0.3, dtype=dtype).fit(popular.take_users(stay))

    def differences(rows):
        histories = popular.take_users(rows)
        return np.abs(own_scores(model, histories) - own_scores(never_saw, histories))

    knows, around = differences(forgotten), differences(others)
    report = model.update(forget_users=popular.users[forgotten], method="low rank")
    assert report.plan.changes.forgotten_users == len(forgotten)
    assert not {*model.data_.users.tolist()} & {*popular.users[forgotten].tolist()}
    left, elsewhere = differences(forgotten), differences(others)
    assert left.max() < rounding
    assert left.max() < 1e-2 * np.median(knows)
    # Whoever has both models tells the users that one of them knows, and not those that it forgot.
    assert area_under_curve(knows, around) > 0.7
    assert abs(area_under_curve(left, elsewhere) - 0.5) < 0.1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_forgetting_one_by_one_leaves_no_more_than_forgetting_at_once(popular, dtype):
    model, at_once = (deql.EDLAE(l2=20.0, dropout=0.3, dtype=dtype).fit(popular, keep_data=True) for _ in range(2))
    users = popular.users[::60]
    for user in users.tolist():
        model.update(forget_users=[user], method="low rank")
    at_once.update(forget_users=users, method="refit")
    assert model.n_users_ == at_once.n_users_
    assert model.updated_.count == len(users)
    rounding = 1e-4 if dtype == "float32" else 1e-12
    assert np.abs(model.weights() - at_once.weights()).max() < rounding * np.abs(at_once.weights()).max()
