"""Ranking with a prior's term: against dense weights in float64, and every way against the others to the last bit."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from deql.linalg.packed import PackedSymmetric
from deql.ranking.candidates import add_exactly
from deql.ranking.dot import dot
from deql.ranking.finish import finish_users
from deql.ranking.kernels import contributions, scan_users, score_pairs
from deql.ranking.prior_term import PriorTerm, prior_arrays, prior_diagonal
from deql.ranking.quantised import QuantisedRows
from deql.ranking.rank import rank

TILE = 64


def packed(dense):
    return PackedSymmetric.from_dense(dense, min(TILE, len(dense)))


def one_history(items, n):
    """With indices of int32, as data have them: kernels are not compiled for others, too."""
    columns, ends = np.array(items, np.int32), np.array([0, len(items)], np.int32)
    return csr_array((np.ones(len(items), np.float32), columns, ends), shape=(1, n))


@st.composite
def problems(draw):
    """P, gains, shifts, histories and a prior; items alike to the last bit in most cases, and numbers of all sizes."""
    n = draw(st.sampled_from([1, 2, 5, 40, 64, 65, 130]))
    users, models, rank_ = draw(st.integers(1, 6)), draw(st.integers(1, 3)), draw(st.sampled_from([1, 3, 31, 32, 70]))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    factor = generator.standard_normal((n, 4)) * (generator.random((n, 4)) < 0.5)
    P = factor @ factor.T + np.diag(10.0 ** generator.uniform(-1, 1, n))
    X = generator.integers(1, 4, (users, n)) * (generator.random((users, n)) < 0.2)
    gains, shifts = -generator.gamma(2.0, size=(models, n)), generator.standard_normal((models, n))
    left, right = generator.standard_normal((2, n, rank_)).astype(np.float32)
    scales = generator.standard_normal((models, n))
    match draw(st.sampled_from(["plain", "duplicates", "equal", "zero rows", "whole numbers", "sizes", "no scale"])):
        case "duplicates":  # items without interactions, of the same features
            twins = generator.random(n) < 0.5
            P[twins], P[:, twins], P[twins, twins] = 0.0, 0.0, 1.0
            right[twins], scales[:, twins], gains[:, twins] = right[0], scales[:, :1], gains[:, :1]
        case "equal":
            right[:], gains[:], scales[:] = right[0], 0.0, 1.0
        case "zero rows":
            right[generator.random(n) < 0.5] = 0.0
            left[generator.random(n) < 0.3] = 0.0
            gains[:, generator.random(n) < 0.5] = 0.0
        case "whole numbers":
            left, right = (generator.integers(-1, 2, (n, rank_)).astype(np.float32) for _ in range(2))
            P = np.tril(generator.integers(-1, 2, (n, n)), -1)
            P = P + P.T + 2.0 * n * np.eye(n)
            gains, shifts, scales = (generator.integers(-1, 2, (models, n)).astype(float) for _ in range(3))
        case "sizes":
            scales *= 10.0 ** generator.uniform(-12, 12, (models, n))
            right *= (10.0 ** generator.uniform(-4, 4, (n, 1))).astype(np.float32)
            left *= np.float32(10.0 ** generator.uniform(-12, 12))
        case "no scale":
            scales[:, generator.random(n) < 0.7] = 0.0
    P = P.astype(draw(st.sampled_from([np.float32, np.float64])))
    dense = draw(st.integers(0, 3)) == 0
    if dense:
        left, right = (left.astype(float) @ right.astype(float).T).astype(np.float32), None
    return P, gains, shifts, csr_array(X.astype(np.float32)), PriorTerm(left, right, scales)


def dense_weights(P, gain, shift, prior, m):
    left = prior.left.astype(float)
    product = left if prior.right is None else left @ prior.right.astype(float).T
    return P.astype(float) * gain + np.diag(shift) + product * prior.scale[m]


def assert_same_bits(found, expected):
    assert found[0].tolist() == expected[0].tolist()
    assert found[1].tobytes() == expected[1].tobytes()


@settings(max_examples=120, deadline=None)
@given(problems(), st.sampled_from([1, 3, 20]), st.booleans(), st.sampled_from([1.0, 1.0, 0.5, 0.0]))
def test_every_way_gives_the_best_of_exact_scores(problem, k, exclude_seen, share):
    P, gains, shifts, X, prior = problem
    n, users = len(P), X.shape[0]
    allowed = np.random.default_rng(n).random(n) < share
    options = {"k": k, "exclude_seen": exclude_seen, "allowed": allowed}
    found = rank(packed(P), gains, shifts, X, prior=prior, **options)
    everything = csr_array(np.ones((users, n)))
    for m in range(len(gains)):
        scores = np.zeros(users * n)
        score_pairs(
            0, users, *packed(P).stored(), gains[m], shifts[m], *prior_arrays(prior._replace(scale=prior.scale[m])),
            X.indptr, X.indices, X.data.astype(P.dtype), everything.indptr, everything.indices, scores,
        )  # fmt: skip
        scores = scores.reshape(users, n)
        W = dense_weights(P, gains[m], shifts[m], prior, m)
        sizes = abs(X) @ abs(W) + 1e-30
        bound = 1e-9 if prior.right is None or not prior.right.size else 1e-9 * (1 + abs(prior.scale).max())
        rough = abs(X) @ (abs(prior.left.astype(float)) @ abs(np.eye(n) if prior.right is None else prior.right.T))
        assert (abs(scores - X @ W) <= bound * (sizes + rough * abs(prior.scale[m]))).all()
        seen = X.toarray() != 0
        candidate = allowed & ~(seen & exclude_seen)
        for u in range(users):
            order = np.lexsort((np.arange(n), -scores[u]))
            best = [i for i in order if candidate[u, i]][:k] if seen[u].any() else []
            expected = best + [-1] * (min(k, n) - len(best))
            assert found[0][m, u].tolist() == expected
            assert found[1][m, u, : len(best)].tolist() == scores[u, best].tolist()
    with patch("deql.ranking.prior_scan._EXTRAS", 1):
        assert_same_bits(rank(packed(P), gains, shifts, X, prior=prior, **options), found)
    assert rank(packed(P), gains, shifts, X, prior=prior, exact=False, **options)[0].tolist() == found[0].tolist()
    if prior.right is not None:
        rows = QuantisedRows.fill(packed(P), right=prior.right)
        assert rows.covers(gains, shifts, X, prior)
        assert_same_bits(rank(packed(P), gains, shifts, X, prior=prior, rows=rows, **options), found)
        one = PriorTerm(prior.left, prior.right, prior.scale[0])
        alone = rank(packed(P), gains[0], shifts[0], X, prior=one, rows=rows, **options)
        assert_same_bits(alone, (found[0][0], found[1][0]))


@settings(max_examples=40, deadline=None)
@given(problems(), st.sampled_from([1, 20]), st.booleans(), st.sampled_from([1, 2**15, 2**30]))
def test_a_device_gives_the_same_to_the_last_bit(problem, k, exclude_seen, scratch):
    torch = pytest.importorskip("torch")
    from deql.linalg.engines.torch_packed import DevicePacked
    from deql.ranking.torch_rank import scan

    P, gains, shifts, X, prior = problem
    device = DevicePacked.from_host(packed(P), torch.device("cpu"))
    squares = np.zeros((2, len(gains), X.shape[0]))
    options = {"k": k, "exclude_seen": exclude_seen, "prior": prior}
    expected = rank(packed(P), gains, shifts, X, squares=squares[0] if exclude_seen else None, **options)
    with patch("deql.ranking.torch_rank.scan", lambda wanted: scan(wanted, scratch)):
        found = rank(
            packed(P), gains, shifts, X, on_device=device, squares=squares[1] if exclude_seen else None, **options
        )
    assert_same_bits(found, expected)
    np.testing.assert_allclose(squares[1], squares[0], rtol=1e-3, atol=1e-5 * squares[1].max())


@settings(max_examples=40, deadline=None)
@given(problems())
def test_squares_are_those_of_dense_weights(problem):
    P, gains, shifts, X, prior = problem
    squares = np.zeros((len(gains), X.shape[0]))
    rank(packed(P), gains, shifts, X, k=1, squares=squares, prior=prior)
    for m in range(len(gains)):
        scores = np.where(X.toarray() != 0, 0, X @ dense_weights(P, gains[m], shifts[m], prior, m))
        expected = (scores**2).sum(axis=1) * np.diff(X.indptr).astype(bool)
        np.testing.assert_allclose(squares[m], expected, rtol=1e-3, atol=1e-5 * expected.max(initial=0.0))


@settings(max_examples=40, deadline=None)
@given(problems(), st.data())
def test_parts_add_up_to_the_score_in_any_order(problem, data):
    P, gains, shifts, _, prior = problem
    n = len(P)
    history = np.sort(np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, unique=True)), np.int32))
    target, parts = data.draw(st.integers(0, n - 1)), np.zeros(len(history))
    score = contributions(
        *packed(P).stored(), gains[0], shifts[0], *prior_arrays(prior._replace(scale=prior.scale[0])),
        history, np.ones(len(history), P.dtype), target, parts,
    )  # fmt: skip
    assert sum(parts[np.random.default_rng(0).permutation(len(parts))].tolist()) == score == sum(parts.tolist())
    assert add_exactly(parts.copy()) == score
    row = one_history(history, n)
    items, scores = rank(packed(P), gains, shifts, row, k=n, exclude_seen=False, prior=prior)
    assert scores[0, 0][items[0, 0] == target].tolist() == [score]


@pytest.mark.parametrize("k", [1, 7, 31, 32, 33, 100])
def test_products_of_rows_are_the_same_wherever_they_are_made(k):
    left, right = np.random.default_rng(k).standard_normal((2, 9, k)).astype(np.float32)
    arrays = prior_arrays(PriorTerm(left, right, np.ones(9)))
    diagonal = prior_diagonal(left, right)
    assert [dot(arrays[0], i, arrays[1], i) for i in range(9)] == diagonal.tolist()
    np.testing.assert_allclose(diagonal, (left.astype(float) * right).sum(axis=1), rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(prior_diagonal(left[:, :1] * np.ones((9, 9), np.float32), None), left[:, 0])


def test_many_equal_scores_are_decided_without_more_products_than_they_need():
    # All items but a few are alike, so that no number of runners-up tells them apart.
    n = 300
    left, right = np.ones((n, 40), np.float32), np.ones((n, 40), np.float32)
    right[200] = 2.0
    history = one_history([3, 250], n)
    prior = PriorTerm(left, right, np.ones(n))
    items, scores = rank(packed(np.eye(n)), -np.ones(n), np.zeros(n), history, k=4, prior=prior)
    assert items.tolist() == [[200, 0, 1, 2]]
    assert scores.tolist() == [[160.0, 80.0, 80.0, 80.0]]


@pytest.mark.parametrize("name", ["left", "right", "scale", "values"])
@pytest.mark.parametrize("size", [1e30, 1e-30, 0.0])
def test_what_float32_cannot_hold_is_decided_without_it(name, size):
    generator = np.random.default_rng(5)
    n = 100
    left, right = generator.standard_normal((2, n, 8)).astype(np.float32)
    X = csr_array((generator.random((5, n)) < 0.1).astype(float))
    scale, large = generator.standard_normal(n), np.float32(size)
    if name == "values":
        X.data *= size * 1e8
    prior = PriorTerm(
        left * (np.float32(1e8) * large if name == "left" else 1),
        right * (large if name == "right" else 1),
        scale * (size**4 if name == "scale" else 1),
    )
    P, gain, shift = np.diag(generator.uniform(1, 2, n)) + 0.01, -generator.random(n), np.zeros(n)
    with np.errstate(all="ignore"):
        expected = rank(packed(P), gain, shift, X, k=100, prior=prior)
        found = rank(packed(P), gain, shift, X, k=5, prior=prior)
        rows = QuantisedRows.fill(packed(P), right=prior.right)
        assert_same_bits(found, (expected[0][:, :5], expected[1][:, :5]))
        assert_same_bits(rank(packed(P), gain, shift, X, k=5, prior=prior, rows=rows), found)


def test_kernels_are_compiled_once_for_one_model_and_several():
    generator = np.random.default_rng(1)
    left, right = generator.standard_normal((2, 70, 3)).astype(np.float32)
    compiled = []
    for models in (1, 2, 3):
        gains = generator.standard_normal((models, 70))
        rank(packed(np.eye(70)), gains, gains, one_history([3, 9], 70), k=2, prior=PriorTerm(left, right, abs(gains)))
        compiled.append([len(kernel.signatures) for kernel in (scan_users, finish_users)])
    assert compiled == [compiled[0]] * 3


class TestRowsOfAPrior:
    def rows(self, n=70, k=5):
        generator = np.random.default_rng(2)
        right = generator.standard_normal((n, k)).astype(np.float32)
        return packed(np.eye(n)), right

    def test_are_the_same_from_memory_and_from_arrays(self):
        P, right = self.rows()
        buffer = bytearray(QuantisedRows.size(70, 5))
        filled = QuantisedRows.fill(P, buffer, right)
        for other in (
            QuantisedRows.from_buffer(P, buffer, right),
            QuantisedRows.from_arrays(P, filled.arrays(), right),
        ):
            assert {name: array.tobytes() for name, array in other.arrays().items()} == {
                name: array.tobytes() for name, array in filled.arrays().items()
            }
        assert sorted(filled.arrays()) == ["right_codes", "right_reaches", "right_steps", "row_codes", "row_steps"]

    def test_serve_no_other_prior(self):
        P, right = self.rows()
        rows, X = QuantisedRows.fill(P, right=right), csr_array(np.eye(70, dtype=np.float32))
        prior, gain = PriorTerm(right, rows.right, np.ones(70)), -np.ones(70)
        assert rows.covers(gain, gain, X, prior)
        assert rows.covers(gain, gain, X)
        assert not rows.covers(gain, gain, X, prior._replace(right=right.copy()))
        assert not rows.covers(gain, gain, X, prior._replace(right=None))
        assert not rows.covers(gain, gain, X, prior._replace(scale=np.full(70, 1e300)))
        assert not QuantisedRows.fill(P).covers(gain, gain, X, prior)

    def test_of_another_size_are_refused(self):
        P, right = self.rows()
        arrays = QuantisedRows.fill(P, right=right).arrays()
        with pytest.raises(ValueError, match="prior of another size"):
            QuantisedRows.from_arrays(P, arrays, right[:, :3])
        with pytest.raises(ValueError, match="prior of another size"):
            QuantisedRows.from_arrays(P, arrays | {"right_reaches": arrays["right_reaches"][:9]}, right)
        with pytest.raises(ValueError, match="have steps of float64"):
            QuantisedRows.from_arrays(P, arrays | {"right_steps": arrays["right_steps"].astype(float)}, right)
        without = {name: array for name, array in arrays.items() if not name.startswith("right")}
        assert QuantisedRows.from_arrays(P, without, right).right is None
