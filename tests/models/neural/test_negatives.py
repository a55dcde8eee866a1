import numpy as np
import pytest

torch = pytest.importorskip("torch")
from deql.models.neural.graph import BipartiteGraph  # noqa: E402
from deql.models.neural.negatives import NegativeSampler  # noqa: E402
from tests.models.neural.dense import CPU  # noqa: E402

N = 60
HISTORIES = [[41, 3], [59, 0, 58], [], [7], list(range(0, N, 2)), list(range(N))]
"""Items in no order; one user without any, one with half of all, one with all."""


@pytest.fixture(scope="module")
def sampler():
    indptr = np.cumsum([0, *map(len, HISTORIES)])
    indices = np.concatenate([np.array(items, int) for items in HISTORIES])
    return NegativeSampler(BipartiteGraph.from_arrays(indptr, indices, np.ones(len(indices)), N, CPU))


def draw(sampler, users, seed=0):
    return sampler.draw(torch.tensor(users, dtype=torch.int32), torch.Generator().manual_seed(seed))


def test_nobody_is_given_an_item_that_they_have(sampler):
    users = [0, 3, 1, 2, 1, 0] * 500
    for user, item in zip(users, draw(sampler, users).tolist(), strict=True):
        assert 0 <= item < N
        assert item not in HISTORIES[user]


@pytest.mark.parametrize("user", [0, 1, 2, 3])
def test_all_other_items_are_as_likely_as_each_other(sampler, user):
    counts = np.bincount(draw(sampler, [user] * 20_000, seed=user).numpy(), minlength=N)
    free = np.delete(counts, HISTORIES[user])
    expected = 20_000 / len(free)
    assert abs(free - expected).max() < 5 * expected**0.5


def test_a_user_with_half_of_all_items_is_seldom_given_one(sampler):
    drawn = draw(sampler, [4] * 20_000).numpy()
    share = (drawn % 2 == 0).mean()
    assert share == pytest.approx(1 / 32, abs=0.005)
    assert len(set(drawn[drawn % 2 == 1])) == N / 2


def test_a_user_with_all_items_is_given_any(sampler):
    assert set(draw(sampler, [5] * 3000).tolist()) == set(range(N))


def test_a_seed_draws_the_same(sampler):
    users = [0, 4, 2, 5] * 50
    first, second, other = (draw(sampler, users, seed).tolist() for seed in (7, 7, 8))
    assert first == second != other


def test_users_do_not_share_a_draw(sampler):
    drawn = draw(sampler, [2] * 200).tolist()
    assert len(set(drawn)) > N / 2


def test_nobody_is_given_nothing(sampler):
    assert draw(sampler, []).shape == (0,)
