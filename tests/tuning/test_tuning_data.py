from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

import deql
from deql import DEQL, RDLAE
from deql.errors import DataError, ParameterError
from deql.linalg.gram import SharedGram, gram, user_weights, weighted_diagonal
from deql.tuning.space import Point
from deql.tuning.trainer import Trainer
from deql.tuning.tuning_data import TuningData, hold_out_validation, sample_items
from tests.tuning.common import market


def test_a_strong_split_without_validation_users():
    data = market(200, 30, seed=1)
    split = deql.split_strong(data, 0.2, validation_users=0, seed=3)
    assert split.validation is None
    assert split.test.seen.n_users + split.dropped["users"] == 40
    assert split.train.n_users == 160
    # The users to test on are those of a split that has validation users too.
    other = deql.split_strong(data, 0.2, validation_users=0.1, seed=3)
    assert split.test.seen.users.tolist() == other.test.seen.users.tolist()
    assert set(split.train.users) == set(other.train.users) | set(data.users) - set(other.train.users) - set(
        split.test.seen.users
    )
    for user in split.test.seen.users:
        whole = set(data.history(user))
        seen, hidden = set(split.test.seen.history(user)), set(split.test.held_out.history(user))
        assert seen | hidden == whole
        assert not seen & hidden
        assert len(hidden) == max(1, round(0.2 * len(whole)))
    assert "users to validate" not in split.describe()


def test_no_validation_users_is_the_number_zero(tmp_path):
    data = market(200, 30, seed=1)
    for wrong in (False, -0.1, 1, "0", None):
        with pytest.raises(ParameterError, match="validation_users"):
            deql.split_strong(data, validation_users=wrong)
    with pytest.raises(DataError, match="cannot be split"):
        deql.split_strong(data, validation_users=0.001)  # rounds to nobody, which was not asked for
    deql.split_strong(data, validation_users=0.0).save(tmp_path / "a.split")
    assert deql.load_split(tmp_path / "a.split").validation is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("power", [0.0, 0.7])
def test_a_fit_with_the_gram_matrix_there_is_the_same_fit(power, dtype):
    data = market(300, 70, seed=2, weighted=True)
    weights = user_weights(data.matrix, power)
    packed = gram(data.matrix, weights=weights, dtype=dtype)
    shared = SharedGram(power, packed, weighted_diagonal(data.matrix, weights))
    before = packed.data.copy()
    for l2, dropout in ((1.0, 0.0), (50.0, 0.6), (0.0, 0.3)):
        for kind in (DEQL, RDLAE):
            model = kind(l2, dropout, user_power=power, popularity_power=0.2, dtype=dtype).fit_gram(data, shared)
            other = kind(l2, dropout, user_power=power, popularity_power=0.2, dtype=dtype).fit(data)
            for name in ("gain_", "shift_", "gram_diagonal_", "item_counts_", "items_"):
                np.testing.assert_array_equal(getattr(model, name), getattr(other, name))
            np.testing.assert_array_equal(model.precision_.data, other.precision_.data)
            assert model.residual_ == other.residual_
            assert model.fitted_params_ == other.fitted_params_
            np.testing.assert_array_equal(packed.data, before)
            assert not np.shares_memory(model.precision_.data, packed.data)


def test_a_trainer_gives_the_model_of_a_plain_fit_at_every_point():
    held = hold_out_validation(market(200, 40, seed=3, weighted=True), seed=0)
    trainer = Trainer(held, "float32", progress=False)
    for point in (Point(5.0, 0.3, 0.0), Point(50.0, 0.0, 0.0), Point(5.0, 0.3, 0.8), Point(5.0, 0.3, 0.0)):
        model = trainer.fit(point)
        other = DEQL(point.l2, point.dropout, user_power=point.user_power).fit(held.train)
        np.testing.assert_array_equal(model.precision_.data, other.precision_.data)
        np.testing.assert_array_equal(model.gain_, other.gain_)


@pytest.mark.parametrize("power", [0.0, 0.8])
def test_a_sample_of_items_is_a_principal_submatrix(power):
    held = hold_out_validation(market(300, 80, seed=4, weighted=True), seed=0)
    small = sample_items(held, 0.25, 1000, seed=7)
    columns = np.flatnonzero(np.isin(held.train.items, small.train.items))
    assert len(columns) == small.train.n_items == 20
    assert small.train.users.tolist() == held.train.users.tolist()
    dense = held.train.matrix.toarray().astype(float)
    weights = np.maximum((dense != 0).sum(axis=1), 1) ** -power  # of the whole histories
    whole = dense.T @ np.diag(weights) @ dense

    trainer = Trainer(small, "float64", progress=False, weights_from=held.train.matrix)
    part = whole[np.ix_(columns, columns)]
    model = trainer.fit(Point(3.0, 0.4, power))
    A = part + np.diag(0.4 / 0.6 * np.diag(part)) + 3.0 * np.eye(20)
    np.testing.assert_allclose(model.precision_.to_dense(), np.linalg.inv(A), rtol=1e-8, atol=1e-12)
    assert trainer.mean_diagonal(power) == pytest.approx(np.diag(part).mean())


def test_a_sample_judges_users_with_something_to_see_and_to_find():
    held = hold_out_validation(market(300, 80, seed=4), seed=0)
    small = sample_items(held, 0.25, 1000, seed=7)
    chosen = set(small.train.items.tolist())
    expected = [
        user for user in held.validation.seen.users.tolist()
        if chosen & set(held.validation.seen.history(user)) and chosen & set(held.validation.held_out.history(user))
    ]  # fmt: skip
    assert small.validation.seen.users.tolist() == expected
    assert 0 < len(expected) < held.validation.seen.n_users
    for user in expected:
        assert set(small.validation.held_out.history(user)) == chosen & set(held.validation.held_out.history(user))
    again, other = (sample_items(held, 0.25, 1000, seed=seed).train.items.tolist() for seed in (7, 8))
    assert again == small.train.items.tolist() != other


def test_a_sample_judges_at_most_so_many_users():
    held = hold_out_validation(market(300, 80, seed=4), seed=0)
    whole = sample_items(held, 0.25, 1000, seed=7).validation
    few = sample_items(held, 0.25, 5, seed=7).validation
    assert few.seen.n_users == few.held_out.n_users == 5
    assert set(few.seen.users) < set(whole.seen.users)
    for user in few.seen.users:
        assert few.held_out.history(user) == whole.held_out.history(user)


def test_popular_items_are_sampled_more_often():
    counts = np.array([1, 1, 1, 1, 4, 4, 4, 4])
    rows = np.concatenate([np.arange(count) for count in counts])
    matrix = csr_array((np.ones(20), (rows, np.repeat(np.arange(8), counts))), shape=(4, 8))
    train = deql.Interactions.from_csr(matrix)
    held = TuningData(train, deql.split.HeldOut(train, train), train, "")
    firsts = [int(sample_items(held, 1 / 8, 10, seed).train.items[0]) for seed in range(2000)]
    shares = np.bincount(firsts, minlength=8) / 2000
    np.testing.assert_allclose(shares, counts / 20, atol=0.03)  # three standard errors


def test_a_sample_that_leaves_nobody_to_judge():
    held = hold_out_validation(market(300, 80, seed=4), seed=0)
    with pytest.raises(DataError, match="too few items"):
        sample_items(held, 0.01, 1000, seed=0)  # one item cannot be seen and found


def test_the_fingerprint_is_of_all_that_is_read():
    data = market(200, 30, seed=5)
    split = deql.split_strong(data, 0.2, 0.2)
    first = hold_out_validation(split, 0).fingerprint()
    assert hold_out_validation(split, 1).fingerprint() == first  # nothing is drawn here
    assert hold_out_validation(deql.split_strong(data, 0.2, 0.2), 0).fingerprint() == first

    def other(train=split.train, seen=split.validation.seen, held_out=split.validation.held_out):
        return hold_out_validation(
            deql.split.Split(train, deql.split.HeldOut(seen, held_out), split.test, {}), 0
        ).fingerprint()

    def heavier(part):
        matrix = part.matrix.copy()
        matrix.data[-1] *= 2
        return deql.Interactions(matrix, part.users, part.items)

    changed = [
        other(train=heavier(split.train)),
        other(seen=heavier(split.validation.seen)),
        other(held_out=heavier(split.validation.held_out)),
    ]
    assert len({first, *changed}) == 4
    assert hold_out_validation(data, 0).fingerprint() != hold_out_validation(data, 1).fingerprint()


def timed(data, seed=0):
    return replace(data, times=np.random.default_rng(seed).random(data.n_interactions))


def test_last_by_time_by_order_or_not_at_all():
    data = timed(market(200, 30, seed=1))
    ordered = replace(data, times=None, order=np.argsort(np.argsort(data.times)))
    weak = deql.split_weak(data, 0.2, validation=0)
    for table, by in ((data, "time"), (ordered, "the order of the file")):
        found = hold_out_validation(table, 0, "last")
        assert found.how == f"the last 10% of each user's items were held out, by {by}"
        assert found.final is table
        assert found.train.n_users == table.n_users
    found = hold_out_validation(weak, 0, "last")
    assert found.how.startswith("the split has no validation part, so the last 10% of each user's items")
    assert found.final is weak.train
    for row, user in enumerate(found.validation.seen.users):
        mine = found.train.take_users(found.train.users == user).times
        assert found.validation.held_out.take_users(np.array([row])).times.min() > mine.max()
    for neither in (replace(data, times=None), replace(weak, train=replace(weak.train, times=None))):
        with pytest.raises(DataError, match="what came last is not known"):
            hold_out_validation(neither, 0, "last")
    with pytest.raises(ParameterError, match="validation must be one of auto, last, random"):
        hold_out_validation(data, 0, "first")


def test_what_a_split_holds_out_itself_decides():
    data = timed(market(200, 30, seed=1))
    strong = deql.split_strong(data, 0.2, 0.2)
    for kind in ("auto", "random"):
        assert hold_out_validation(strong, 0, kind).validation is strong.validation
    found = hold_out_validation(strong, 0, "last")
    assert found.train is strong.train
    assert found.how == (
        f"the split has {strong.validation.seen.n_users} validation users, of whom what came last was held out, by time"
    )
    last = deql.split_leave_last(data)
    assert hold_out_validation(last, 0, "last").validation is last.validation
    with pytest.raises(ParameterError, match="this weak split has a validation part"):
        hold_out_validation(deql.split_weak(data), 0, "last")


def test_auto_validates_as_the_test_was_held_out():
    data = timed(market(200, 30, seed=1))
    ends = hold_out_validation(deql.split_leave_last(data, validation=0), 0)
    assert "its test is what came last (leave-last), so the last 10%" in ends.how
    drawn = hold_out_validation(deql.split_weak(data, validation=0), 0)
    assert drawn.how.endswith("held out at random")
