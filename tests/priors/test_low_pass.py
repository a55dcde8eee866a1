import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import deql
from deql.errors import DataError, ParameterError
from deql.priors import LowPass
from deql.priors.low_pass import LowPassBasis

POWERS = st.sampled_from([-0.3, 0.0, 0.3, 0.5, 1.0])


def by_the_formula(R, rank, power_in, power_out):
    """W₀ as it is written down, its columns and rows of items that nobody has zero, and the gap at the cut."""
    size = abs(R)
    users, items = size.sum(axis=1), size.sum(axis=0)
    had = items > 0
    U, D = np.where(users > 0, users, 1.0), np.where(had, items, 1.0)
    half = R / np.sqrt(np.outer(U, D))
    values, vectors = np.linalg.eigh(half.T @ half)
    V = vectors[:, ::-1][:, :rank]
    W = (D**-power_in)[:, None] * (V @ V.T) * D**power_out * np.outer(had, had)
    fitted = R @ W
    return (R * fitted).sum() / (fitted**2).sum() * W, values[::-1]


def interactions(seed, users, items, weighted):
    generator = np.random.default_rng(seed)
    R = (generator.random((users, items)) < generator.uniform(0.1, 0.7, items)).astype(float)
    R[0, 0] = 1
    return R * generator.uniform(-1.0, 4.0, R.shape) if weighted else R


@given(
    seed=st.integers(0, 10**6), users=st.integers(1, 12), items=st.integers(1, 10), weighted=st.booleans(),
    power_in=POWERS, power_out=POWERS, data=st.data(),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_weights_are_those_of_the_formula(seed, users, items, weighted, power_in, power_out, data):
    R = interactions(seed, users, items, weighted)
    basis = LowPassBasis.of(deql.Interactions.from_csr(csr_array(R)))
    assert basis.values.max() <= 1 + 1e-9
    rank = data.draw(st.integers(1, basis.vectors.shape[1]))
    W, values = by_the_formula(R, rank, power_in, power_out)
    if rank < len(values) and values[rank - 1] - values[rank] < 1e-6:  # tied: which of them is taken is arbitrary
        return
    found = basis.weights(rank, power_in, power_out)
    assert found.to_dense() == pytest.approx(W, rel=1e-4, abs=1e-4 * abs(W).max())
    assert (found.diagonal == 0).all()
    alone = LowPass(rank, power_in, power_out).weights(deql.Interactions.from_csr(csr_array(R)))
    assert alone.to_dense() == pytest.approx(found.to_dense(), abs=1e-5 * abs(W).max())


def test_a_basis_gives_the_same_in_any_order(random_matrix):
    data = deql.Interactions.from_csr(random_matrix(40, 25, weighted=True))
    asked = [(rank, a, b) for a in (0.1, 0.5) for b in (0.3, 0.7) for rank in (3, 9)]
    basis = LowPassBasis.of(data, 9)
    first = {one: basis.weights(*one) for one in asked}
    for one in asked[::-1]:
        again, fresh = basis.weights(*one), LowPassBasis.of(data, 9).weights(*one)
        for other in (again, fresh):
            assert np.array_equal(first[one].left, other.left)
            assert np.array_equal(first[one].right, other.right)
            assert np.array_equal(first[one].scale, other.scale)


def test_the_scale_of_weights_does_not_matter(random_matrix):
    R = random_matrix(40, 25, weighted=True)
    weights = [LowPass(4, 0.3, 0.7).weights(deql.Interactions.from_csr(R * s)).to_dense() for s in (1.0, 1e-30, 1e300)]
    for other in weights[1:]:
        assert other == pytest.approx(weights[0], rel=1e-4)


def test_items_that_nobody_has_get_nothing(toy):
    wide = csr_array(np.column_stack([np.zeros(len(toy.users)), toy.matrix.toarray(), np.zeros(len(toy.users))]))
    found = LowPass(3, 0.2, 0.0).weights(deql.Interactions.from_csr(wide))
    for zero in (found.left, found.right, found.scale[:, None]):
        assert (zero[[0, -1]] == 0).all()
    assert found.to_dense()[1:-1, 1:-1] == pytest.approx(LowPass(3, 0.2, 0.0).weights(toy).to_dense(), abs=1e-6)


def test_the_whole_rank_is_the_best_fit(toy):
    found = LowPass(5, 0.5, 0.5).weights(toy)
    assert found.to_dense() == pytest.approx(np.eye(5), abs=1e-5)


@pytest.mark.parametrize("rows", [[[1.0, 1.0, 1.0]], [[2.0, 2.0], [2.0, 2.0], [2.0, 2.0]]])
def test_one_user_and_identical_items_have_one_eigenvector(rows):
    basis = LowPassBasis.of(deql.Interactions.from_csr(csr_array(np.array(rows))))
    n = len(rows[0])
    assert basis.values == pytest.approx([1.0])
    assert basis.weights(None, 0.5, 0.5).to_dense() == pytest.approx(np.full((n, n), 1 / n), abs=1e-6)


def test_without_a_rank_it_is_what_the_data_have(toy):
    assert LowPassBasis.of(toy).rank == 5
    assert LowPass().weights(toy).left.shape == (5, 5)


@pytest.mark.parametrize("rank", [0, -1, 2.5, True, "many", float("nan")])
def test_a_rank_is_a_whole_number(rank):
    with pytest.raises(ParameterError, match="rank must be a whole number from 1 up"):
        LowPass(rank)


@pytest.mark.parametrize("power", [float("nan"), float("inf"), "x", None, True])
@pytest.mark.parametrize("name", ["power_in", "power_out"])
def test_powers_are_numbers(name, power):
    with pytest.raises(ParameterError, match=f"{name} must be a number"):
        LowPass(**{name: power})


@pytest.mark.parametrize("name", ["power_in", "power_out"])
@pytest.mark.parametrize("power", [1e300, -1e300, 200.0, -200.0])
@pytest.mark.filterwarnings("error")
def test_a_power_that_float32_cannot_hold_is_told(name, power):
    data = deql.Interactions.from_pairs(list("aabbcddd"), list("xyxyzxyz"))  # every item has two users or more
    with pytest.raises(ParameterError, match=rf"{name}={power:g} makes weights .* take one nearer 0".replace("+", ".")):
        LowPass(2, **{name: power}).weights(data)


@pytest.mark.parametrize("powers", [(0.0, 60.0), (0.0, 80.0), (-60.0, -60.0), (80.0, 80.0)])
def test_no_power_makes_a_prior_of_nothing(powers):
    data = deql.Interactions.from_pairs(list("aabbcddd"), list("xyxyzxyz"))
    with pytest.raises(ParameterError, match="makes weights that float32 cannot hold"):
        LowPass(2, *powers).weights(data)


def test_a_rank_above_what_the_data_have_is_told(toy):
    with pytest.raises(ParameterError, match="rank must be at most 5, the lesser of the users and the items"):
        LowPass(6).weights(toy)
    with pytest.raises(ParameterError, match="rank must be at most 2, the basis's own, got 3"):
        LowPassBasis.of(toy, 2).weights(3, 0.5, 0.5)


def test_no_interactions_are_told():
    with pytest.raises(DataError, match="a low pass needs interactions"):
        LowPass().weights(deql.Interactions.from_csr(csr_array((3, 4))))


def test_its_config_is_plain():
    prior = LowPass(64, 0.3)
    assert prior.config == {"prior": "lowpass", "rank": 64, "power_in": 0.3, "power_out": 0.6}
    assert repr(prior) == "LowPass(rank=64, power_in=0.3, power_out=0.6)"
    assert repr(LowPass()) == "LowPass(power_in=0.0, power_out=0.6)"
