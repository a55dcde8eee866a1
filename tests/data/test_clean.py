import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from deql import Interactions
from deql.data.clean import clean, describe_steps
from deql.data.interactions import Step
from deql.errors import DataError, ParameterError


def cells(data):
    """Value and time by user and item."""
    rows = np.repeat(np.arange(data.n_users), np.diff(data.matrix.indptr))
    times = [None] * data.n_interactions if data.times is None else data.times.tolist()
    pairs = zip(data.users[rows].tolist(), data.items[data.matrix.indices].tolist(), strict=True)
    return dict(zip(pairs, zip(data.matrix.data.tolist(), times, strict=True), strict=True))


def core(pairs, k):
    """The k-core as one would do it by hand."""
    pairs = set(pairs)
    while True:
        users, items = ([pair[side] for pair in pairs] for side in (0, 1))
        stay = {(user, item) for user, item in pairs if users.count(user) >= k and items.count(item) >= k}
        if stay == pairs:
            return stay
        pairs = stay


@st.composite
def tables(draw):
    """Weighted interactions with times and titles; some users and items may have none."""
    m, n = draw(st.integers(2, 12)), draw(st.integers(2, 9))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = generator.integers(1, 6, (m, n)) * (generator.random((m, n)) < generator.uniform(0.2, 1.0, n))
    values[0, 0] = 5
    matrix = csr_array(values)
    return Interactions(
        matrix.astype(np.float32),
        np.array([f"u{u:02}" for u in range(m)], object),
        np.arange(n) * 10,
        times=generator.random(matrix.nnz),
        titles=np.array([f"title {i * 10}" for i in range(n)], object),
    )


@given(tables(), st.integers(1, 4))
def test_the_core_is_the_one_found_by_hand(data, k):
    before = cells(data)
    expected = core(before, k)
    if not expected:
        with pytest.raises(DataError, match=f"nothing is left after the step “{k}-core kept”"):
            clean(data, k_core=k)
        return
    found = clean(data, k_core=k)
    assert cells(found) == {pair: before[pair] for pair in expected}
    assert found.users.tolist() == sorted({user for user, _ in expected})
    assert found.items.tolist() == sorted({item for _, item in expected})
    assert found.titles.tolist() == [f"title {item}" for item in found.items.tolist()]


@given(tables(), st.integers(1, 3), st.integers(1, 3))
def test_minima_are_one_pass_each_items_first(data, per_item, per_user):
    before = cells(data)
    items = [item for _, item in before]
    after_items = {pair for pair in before if items.count(pair[1]) >= per_item}
    users = [user for user, _ in after_items]
    expected = {pair for pair in after_items if users.count(pair[0]) >= per_user}
    if not expected:
        with pytest.raises(DataError, match="nothing is left"):
            clean(data, min_users_per_item=per_item, min_items_per_user=per_user)
        return
    found = clean(data, min_users_per_item=per_item, min_items_per_user=per_user)
    assert cells(found) == {pair: before[pair] for pair in expected}
    assert {user for user, _ in expected} == set(found.users.tolist())


@pytest.fixture
def rated():
    """Ratings of four users; dee has nothing, and nobody has mud."""
    values = np.array([[5, 3, 4, 0, 0], [4, 0, 5, 0, 0], [0, 2, 0, 1, 0], [0, 0, 0, 0, 0]], np.float32)
    items = ["egg", "jam", "tea", "rye", "mud"]
    return Interactions.from_csr(csr_array(values), users=["ann", "bob", "cid", "dee"], items=items)


def test_a_table_worked_out_by_hand(rated):
    cleaned = clean(rated, min_weight=2, binary=True, min_users_per_item=2, min_items_per_user=2, k_core=2)
    assert cleaned.steps == (
        Step("users and items without interactions removed", 3, 4, 7),
        Step("values below 2 removed", 3, 3, 6),
        Step("every value set to 1", 3, 3, 6),
        Step("items with fewer than 2 users removed", 3, 3, 6),
        Step("users with fewer than 2 items removed", 2, 3, 5),
        Step("2-core kept", 2, 2, 4),
    )
    assert cells(cleaned) == {(user, item): (1.0, None) for user in ("ann", "bob") for item in ("egg", "tea")}


def test_a_value_equal_to_the_minimum_stays(rated):
    assert clean(rated, min_weight=4).n_interactions == 4
    assert clean(rated, min_weight=4.5).n_interactions == 2


def test_what_each_step_removed(rated):
    rows = describe_steps([Step("read", 4, 5, 7), *clean(rated, min_weight=4).steps])
    assert [row["what"] for row in rows] == ["read", "users and items without interactions removed",
                                             "values below 4 removed"]  # fmt: skip
    assert [[row[f"removed_{name}"] for name in ("users", "items", "interactions")] for row in rows] == [
        [None, None, None], [1, 1, 0], [1, 2, 3],
    ]  # fmt: skip
    assert (rows[2]["users"], rows[2]["items"], rows[2]["interactions"]) == (2, 2, 4)


def test_nothing_asked_nothing_done(toy):
    assert clean(toy) is toy
    assert clean(toy, min_users_per_item=1).matrix.nnz == toy.matrix.nnz


def test_the_data_is_not_changed(rated):
    before = rated.matrix.copy()
    clean(rated, min_weight=3, binary=True, k_core=1)
    assert (rated.matrix != before).nnz == 0
    assert rated.steps == ()


def test_steps_go_on_from_those_of_the_data(toy):
    once = clean(toy, min_users_per_item=2)
    twice = clean(once, min_items_per_user=2)
    assert twice.steps[:1] == once.steps
    assert len(twice.steps) == 2


@pytest.mark.parametrize(
    ("options", "step"),
    [
        ({"min_weight": 2}, "values below 2 removed"),
        ({"min_users_per_item": 7}, "items with fewer than 7 users removed"),
        ({"min_items_per_user": 4}, "users with fewer than 4 items removed"),
        ({"k_core": 4}, "4-core kept"),
    ],
)
def test_the_step_that_leaves_nothing_is_named(toy, options, step):
    with pytest.raises(DataError, match=f"nothing is left after the step “{step}”"):
        clean(toy, **options)


@pytest.mark.parametrize("name", ["k_core", "min_users_per_item", "min_items_per_user"])
@pytest.mark.parametrize("value", [0, -1, 2.0, True, "two"])
def test_minima_are_whole_numbers_from_1_up(toy, name, value):
    with pytest.raises(ParameterError, match=f"{name} must be a whole number from 1 up"):
        clean(toy, **{name: value})


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_the_minimum_weight_is_finite(toy, value):
    with pytest.raises(ParameterError, match="min_weight must be a finite number"):
        clean(toy, min_weight=value)


def test_a_chain_that_unravels_one_by_one():
    """A path user–item–user–… loses its ends round after round; a square beside it stays."""
    path = [(f"u{i + step}", f"i{i}") for i in range(300) for step in (0, 1)]
    square = [(user, item) for user in ("x", "y") for item in ("v", "w")]
    data = Interactions.from_pairs(*zip(*path, *square, strict=True))
    assert set(cells(clean(data, k_core=2))) == set(square)


@pytest.mark.slow
def test_ten_million_interactions_take_seconds():
    generator = np.random.default_rng(1)
    rows = (400_000 * generator.random(10_000_000) ** 2).astype(np.int64)
    columns = (300_000 * generator.random(10_000_000) ** 4).astype(np.int64)
    matrix = csr_array((np.ones(10_000_000, np.float32), (rows, columns)), shape=(400_000, 300_000))
    data = Interactions.from_csr(matrix)
    begin = time.perf_counter()
    found = clean(data, k_core=20)
    assert time.perf_counter() - begin < 20
    assert np.diff(found.matrix.indptr).min() >= 20
    assert np.bincount(found.matrix.indices).min() >= 20
