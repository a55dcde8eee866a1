import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix

from deql.errors import DataError, ParameterError
from deql.objective import brute_force, from_sampler, sampling, solve

GENERATOR = np.random.default_rng(5)
R = csr_array((GENERATOR.random((20, 6)) < np.linspace(0.2, 0.8, 6)) * GENERATOR.uniform(0.5, 2.0, (20, 6)))
ROWS = np.repeat(np.arange(20), np.diff(R.indptr))
DENSE = R.toarray()


def popularity(generator):
    X = R.copy()
    X.data *= generator.random(R.nnz) >= np.linspace(0.1, 0.6, 6)[R.indices]
    return X, R


def truncated(generator):
    X = R.copy()  # the first entries of each row, at least one
    cut = generator.integers(1, np.maximum(np.diff(R.indptr), 1) + 1)
    X.data *= np.arange(R.nnz) - R.indptr[ROWS] < cut[ROWS]
    return X, R


def grouped(generator):
    X = R.copy()
    gone = generator.random((20, 2)) < 0.4
    X.data *= ~gone[ROWS, R.indices % 2]
    return X, R


def chance_of_both(which):
    """E[Δ_uj·Δ_uk] over masks, by the definition of each corruption: users × n × n."""
    if which is popularity:
        kept = 1 - np.linspace(0.1, 0.6, 6)
        both = np.outer(kept, kept) + np.diag(kept - kept**2)
        return np.broadcast_to(both, (20, 6, 6))
    if which is grouped:
        together = np.arange(6)[:, None] % 2 == np.arange(6) % 2
        return np.broadcast_to(np.where(together, 0.6, 0.36), (20, 6, 6))
    chance = np.zeros((20, 6, 6))
    for u in range(20):
        items = R.indices[R.indptr[u] : R.indptr[u + 1]]
        for s, j in enumerate(items):
            for t, k in enumerate(items):
                chance[u, j, k] = (len(items) - max(s, t)) / len(items)  # the cut is beyond the later one
    return chance


@pytest.mark.parametrize("sampler", [popularity, truncated, grouped])
def test_corruption_that_is_named_is_estimated(sampler):
    chance = chance_of_both(sampler)
    H = np.einsum("ujk,uj,uk->jk", chance, DENSE, DENSE)
    V = np.einsum("ujj,uj,uk->jk", chance, DENSE, DENSE)
    found = from_sampler(sampler, 400)
    for i in range(6):
        for exact, mean, error in zip((H, V[:, i]), found(i), found.standard_errors(i), strict=True):
            np.testing.assert_array_less(np.abs(exact - mean), 5 * error + 1e-9)
    assert found(0)[0] is found(5)[0]
    assert found.n == 6


def test_the_same_seed_draws_the_same_and_four_times_as_many_halve_the_error():
    few, again, many = from_sampler(grouped, 100), from_sampler(grouped, 100), from_sampler(grouped, 400)
    np.testing.assert_array_equal(few(2)[0], again(2)[0])
    assert not np.array_equal(few(2)[0], from_sampler(grouped, 100, seed=1)(2)[0])
    assert few.relative_error(2) / many.relative_error(2) == pytest.approx(2, rel=0.25)


def emphasised(generator, form=np.asarray):
    kept = generator.random((20, 6)) >= 0.3
    return form(kept * DENSE), form(DENSE), form(np.where(kept, 0.5, 1.0))


@pytest.mark.parametrize("form", [csr_array, csr_matrix])
def test_sparse_and_dense_draws_are_alike(form):
    dense = from_sampler(emphasised, 10)
    sparse = from_sampler(lambda generator: emphasised(generator, form), 10)
    plain = from_sampler(lambda generator: emphasised(generator)[:2], 10)
    sparse_plain = from_sampler(lambda generator: emphasised(generator, form)[:2], 10)
    for one, other in ((dense, sparse), (plain, sparse_plain)):
        for found, expected in zip(
            (*one(3), *one.standard_errors(3)), (*other(3), *other.standard_errors(3)), strict=True
        ):
            np.testing.assert_allclose(found, expected, atol=1e-7)


def test_emphasised_moments_are_the_means_of_their_draws():
    found = from_sampler(emphasised, 8, seed=3)
    draws = [emphasised(np.random.default_rng([3, s])) for s in range(8)]
    for i in (0, 4):
        H = np.array([X.T @ (A[:, i, None] ** 2 * X) for X, _, A in draws])
        v = np.array([X.T @ (A[:, i] ** 2 * Y[:, i]) for X, Y, A in draws])
        for mean, error, values in zip(found(i), found.standard_errors(i), (H, v), strict=True):
            np.testing.assert_allclose(mean, values.mean(axis=0), atol=1e-12)
            np.testing.assert_allclose(error, values.std(axis=0, ddof=1) / np.sqrt(8), atol=1e-7)


def test_blocks_of_items_change_nothing(monkeypatch):
    whole = solve(from_sampler(emphasised, 20), lam=1.0)
    monkeypatch.setattr(sampling, "_BLOCK", 2 * 3 * 8 * 36)  # two items at a time
    found = from_sampler(emphasised, 20)
    np.testing.assert_array_equal(solve(found, lam=1.0), whole)
    np.testing.assert_array_equal(found(0)[0], from_sampler(emphasised, 20)(0)[0])  # back to the first block


def test_sampled_solutions_come_near_the_exact_one():
    exact = brute_force(DENSE.T @ DENSE, lam=1.0, p=0.3, a=1.0, b=0.5)
    errors = [np.abs(solve(from_sampler(emphasised, count), lam=1.0) - exact).max() for count in (20, 500)]
    assert errors[1] < 0.04
    assert errors[1] < errors[0] / 2  # √25 = 5 in the mean


def test_items_may_have_distributions_of_their_own():
    def sampler(generator, i):
        kept = generator.random((20, 6)) >= 0.1 * i
        return csr_array(kept * DENSE), DENSE[:, i]

    found = from_sampler(sampler, 300, per_item=True)
    assert found.n == 6
    for i in (0, 5):
        q = 1 - 0.1 * i
        S = DENSE.T @ DENSE
        H = q**2 * S + (q - q**2) * np.diag(np.diag(S))
        for exact, mean, error in zip((H, q * S[:, i]), found(i), found.standard_errors(i), strict=True):
            np.testing.assert_array_less(np.abs(exact - mean), 5 * error + 1e-9)
    assert found.relative_error(0) == pytest.approx(0, abs=1e-8)  # nothing is dropped there


@pytest.mark.parametrize(
    ("drawn", "message"),
    [
        (DENSE, r"the sampler must return \(X, Y\) or \(X, Y, A\), got ndarray in draw 0"),
        ((R,), r"must return \(X, Y\) or \(X, Y, A\), got 1 things"),
        ((R, R[:, :5]), r"Y in draw 0 must be of the shape \(20, 6\), as X is, got \(20, 5\)"),
        ((R, R, np.ones(20)), r"A in draw 0 must be of the shape \(20, 6\), as X is, got \(20,\)"),
        ((DENSE[0], DENSE[0]), r"X in draw 0 must be users × items, got the shape \(6,\)"),
        ((R, DENSE * np.nan), "Y in draw 0 has entries that are NaN or infinite"),
        ((R * np.inf, R), "X in draw 0 has entries that are NaN or infinite"),
        ((DENSE.astype(str), R), "X in draw 0 must hold real numbers"),
        ((R, None), "Y in draw 0 must hold real numbers, got NoneType"),
        ((R * 1e40, R), r"X in draw 0 has entries above 1e\+35: divide all values by one number"),
        ((R * 1j, R), "X in draw 0 must hold real numbers, got complex128"),
    ],
)
def test_what_a_sampler_should_return_is_said(drawn, message):
    with pytest.raises(DataError, match=message):
        from_sampler(lambda generator: drawn, 5)


def test_draws_that_change_are_told():
    shapes = iter([6, 6, 5])
    with pytest.raises(DataError, match="X in draw 1 must have 6 columns"):
        from_sampler(lambda generator: (DENSE[:, : (n := next(shapes))], DENSE[:, :n]), 5)
    lengths = iter([2, 2, 3])
    with pytest.raises(DataError, match="2 things in draw 0 and 3 in draw 1"):
        from_sampler(lambda generator: (DENSE,) * next(lengths), 5)
    with pytest.raises(DataError, match=r"Y in draw 0 of item 0 .* \(20,\), a number for each of X's rows"):
        from_sampler(lambda generator, i: (DENSE, DENSE), 5, per_item=True)
    with pytest.raises(DataError, match="X in draw 0 must have 7 columns"):
        from_sampler(popularity, 5, n=7)
    with pytest.raises(ParameterError, match="n must be a whole number from 1 up, got 'x'"):
        from_sampler(popularity, 5, n="x")
    with pytest.raises(ParameterError, match="sampler must be a function that gives a draw of X and Y, got NoneType"):
        from_sampler(None, 5)
    with pytest.raises(ParameterError, match="i must be the number of an item, from 0 to 5, got 6"):
        from_sampler(popularity, 5).relative_error(6)
    with pytest.raises(ParameterError, match="n_samples must be a whole number from 2 up, got 1"):
        from_sampler(popularity, 1)
    with pytest.raises(ParameterError, match="seed must be a whole number from 0 up, got -1"):
        from_sampler(popularity, 5, seed=-1)
