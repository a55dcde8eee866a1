import signal
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import deql
from deql.errors import DataError, NotPositiveDefiniteError, ParameterError
from deql.objective import Combination, Corruption, Update, brute_force, moments, solve, solve_updates, updates
from tests.random_data import ratings


def different(n, seed=0):
    """H and v of each item, with nothing in common."""
    generator = np.random.default_rng(seed)
    draws = generator.standard_normal((n, 2 * n, n))
    H = draws.transpose(0, 2, 1) @ draws
    return H, generator.standard_normal((n, n))


def constrained(H, v, i):
    others = np.arange(len(v)) != i
    w = np.zeros(len(v))
    w[others] = np.linalg.solve(H[np.ix_(others, others)], v[others])
    return w


@given(R=ratings(), lam=st.sampled_from([0.0, 2.0]), zero=st.booleans(), b=st.sampled_from([0.5, 2.0]))
@settings(max_examples=20)
def test_solve_is_the_brute_force(R, lam, zero, b):
    S = R.T @ R
    found = solve(lambda i: moments(S, i, p=0.3, a=1.0, b=b), lam=lam, zero_diagonal=zero)
    np.testing.assert_allclose(found, brute_force(S, lam=lam, p=0.3, a=1.0, b=b, zero_diagonal=zero), atol=1e-10)


@pytest.mark.parametrize("zero", [False, True])
def test_every_item_may_have_moments_of_its_own(zero):
    H, v = different(9)
    expected = [constrained(*one) if zero else np.linalg.solve(*one[:2]) for one in zip(H, v, range(9), strict=True)]
    np.testing.assert_allclose(solve(lambda i: (H[i], v[i]), zero_diagonal=zero), np.array(expected).T, atol=1e-12)


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("shared", [range(0, 9), range(2, 6)])
def test_shared_moments_give_the_same_as_copies(monkeypatch, zero, shared):
    H, v = different(9)
    factored = []
    cholesky = np.linalg.cholesky
    monkeypatch.setattr(np.linalg, "cholesky", lambda a: factored.append(1) or cholesky(a))
    matrices = [H[2] if i in shared else H[i] for i in range(9)]
    one = H[2]
    found = solve(lambda i: (one if i in shared else matrices[i], v[i]), lam=0.5, zero_diagonal=zero)
    assert len(factored) == 10 - len(shared)
    np.testing.assert_allclose(
        found, solve(lambda i: (matrices[i].copy(), v[i]), lam=0.5, zero_diagonal=zero), atol=1e-12
    )


def test_a_zero_diagonal_needs_only_the_other_items():
    # H without any one row and column is regular, though x = (1, 1, 1) is in the null space of H itself.
    H = np.array([[2.0, -1.0, -1.0], [-1.0, 2.0, -1.0], [-1.0, -1.0, 2.0]])
    v = np.eye(3) + 1
    expected = np.array([constrained(H, v[i], i) for i in range(3)]).T
    np.testing.assert_allclose(solve(lambda i: (H, v[i]), zero_diagonal=True), expected)
    np.testing.assert_allclose(solve(lambda i: (H.copy(), v[i]), zero_diagonal=True), expected)
    with pytest.raises(NotPositiveDefiniteError, match="item 0 is not positive definite: what it says of item 2"):
        solve(lambda i: (H, v[i]))


def test_advice_starts_from_the_ridge_that_was_given():
    H, v = np.array([[0.0, 0.5, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 1.0]]), np.eye(3)  # with λ, rows 0 and 1 are equal
    for loss in (lambda i: (H, v[i]), lambda i: (H.copy(), v[i])):
        with pytest.raises(NotPositiveDefiniteError, match=r"H of item 2 .*item 1 .*; set lam above 0\.5$"):
            solve(loss, lam=0.5, zero_diagonal=True)


def test_no_ridge_is_advised_where_H_cannot_be_a_second_moment():
    S = np.diag([2.0, 1.0])
    with pytest.raises(NotPositiveDefiniteError, match=r"diagonal is negative at item 'tea', which E\[XᵀX\] cannot be"):
        solve(lambda i: (-S, S[i]), items=["tea", "jam"])


@pytest.mark.parametrize("n", [None, 12])
def test_moments_are_asked_for_in_order_and_not_kept(n):
    H, v = different(12)
    asked, buffer = [], np.empty(12)

    def one(i):
        asked.append(i)
        buffer[:] = v[i]
        return H[i].astype(np.float32), buffer

    found = solve(one, n)
    assert asked == list(range(12))
    exact = np.array([np.linalg.solve(H[i].astype(np.float32).astype(float), v[i]) for i in range(12)]).T
    np.testing.assert_allclose(found, exact, atol=1e-12)


def test_an_array_filled_anew_is_not_taken_for_a_shared_one():
    H, v = different(4)
    buffer = np.empty((4, 4))

    def one(i):
        buffer[:] = H[i]
        return buffer, v[i]

    with pytest.raises(DataError, match="H of item 'b' is in the same array as that of item 'a' but differs"):
        solve(one, items=list("abcd"))


def test_an_array_filled_anew_is_found_out_by_all_of_it():
    H, v = different(5)
    buffer = np.empty((5, 5))

    def one(i):
        buffer[:] = H[0]
        k, j = (i + 1) % 5, (i + 2) % 5
        buffer[k, j] = buffer[j, k] = 0.5 * buffer[k, j]
        return buffer, v[i]

    with pytest.raises(DataError, match="H of item 1 is in the same array as that of item 0 but differs"):
        solve(one)


def broken(what):
    S = np.diag([1.0, 2.0, 3.0])
    H, v = S.copy(), np.ones(3)
    if what == "singular":
        H[1, 1] = 0
    elif what == "dependent":
        H = np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    elif what == "asymmetric":
        H[0, 1] = 0.1
    elif what == "NaN":
        H[0, 0] = np.nan
    elif what == "infinite v":
        v[2] = np.inf
    elif what == "shape of H":
        H = H[:2]
    elif what == "shape of v":
        v = v[:2]
    elif what == "text":
        H = H.astype(str)
    elif what == "ragged":
        v = [1.0, [2.0], 3.0]
    return lambda i: ((H, v) if i == 1 else (S, np.ones(3))) if what != "no pair" or i != 1 else H


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        ("singular", NotPositiveDefiniteError, "H of item 'jam' is not positive definite.*zero_diagonal=True"),
        ("dependent", NotPositiveDefiniteError, "H of item 'jam' .* of item 'jam' .*; set lam above 0"),
        ("asymmetric", DataError, "H of item 'jam' is not symmetric"),
        ("NaN", DataError, "H of item 'jam' has entries that are NaN"),
        ("infinite v", DataError, "v of item 'jam' has entries that are NaN or infinite"),
        ("shape of H", DataError, r"H of item 'jam' must be 3 × 3, got the shape \(2, 3\)"),
        ("shape of v", DataError, r"v of item 'jam' must be 3 numbers, got the shape \(2,\)"),
        ("text", DataError, "H of item 'jam' must be a real array of 3 × 3"),
        ("ragged", DataError, "v of item 'jam' must be a real array of 3 numbers"),
        ("no pair", DataError, "the moments of item 'jam' must be a pair, H and v, got ndarray"),
    ],
)
def test_what_is_wrong_is_said_with_the_item(what, error, message):
    with pytest.raises(error, match=message) as caught:
        solve(broken(what), items=["tea", "jam", "egg"])
    if error is NotPositiveDefiniteError:
        assert caught.value.indices == [1]


def test_wrong_arguments():
    eye = np.eye(2)
    with pytest.raises(ParameterError, match="lam must be a number from 0 up"):
        solve(lambda i: (eye, eye[i]), lam=-1)
    with pytest.raises(ParameterError, match="n must be a whole number from 1 up, got 0"):
        solve(lambda i: (eye, eye[i]), 0)
    with pytest.raises(ParameterError, match="n must be 2, the number of items of these moments, got 3"):
        solve(Corruption(eye), 3)
    with pytest.raises(ParameterError, match="2 items need 2 ids, got 1"):
        solve(lambda i: (eye, eye[i]), items=["tea"])
    with pytest.raises(ParameterError, match="moments must be a function that gives H and v of item i, got ndarray"):
        solve(eye)
    with pytest.raises(ParameterError, match="updates must be a function that gives the Update of item i, got list"):
        solve_updates(eye, [])
    with pytest.raises(DataError, match=r"v of item 0 must be an array .*, got the shape \(\)"):
        solve(lambda i: (eye, 3.0))
    with pytest.raises(DataError, match="a pair, H and v, got 3 things"):
        solve(lambda i: (eye, eye, 1))


class LowRank:
    """H0 plus changes of several ranks, some vectors dense, some combinations."""

    def __init__(self, n, seed=0):
        generator = np.random.default_rng(seed)
        X = generator.standard_normal((3 * n, n))
        self.H0, self.n = X.T @ X, n
        self.parts = []
        for i in range(n):
            r = i % 4
            core = generator.standard_normal((r, r))
            core = core @ core.T - 0.02 * np.eye(r)  # not definite, but H^(i) is
            vectors = [self.vector(generator, k) for k in range(r)]
            self.parts.append(Update(self.vector(generator, i), vectors, core))

    def vector(self, generator, k):
        if k % 2:
            return generator.standard_normal(self.n)
        of = generator.choice(self.n, 3, replace=False)
        return Combination({int(of[0]): 0.3}, {int(of[0]): 1.5, int(of[1]): -1.0, int(of[2]): 0.5})

    def dense(self, vector):
        if not isinstance(vector, Combination):
            return vector
        rows = sum((value * self.H0[j] for j, value in vector.rows.items()), np.zeros(self.n))
        return rows + sum((value * np.eye(self.n)[j] for j, value in vector.units.items()), np.zeros(self.n))

    def __call__(self, i):
        update = self.parts[i]
        U = np.array([self.dense(vector) for vector in update.vectors]).reshape(-1, self.n)
        return self.H0 + U.T @ np.reshape(update.core, (len(U), len(U))) @ U, self.dense(update.target)


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("lam", [0.0, 3.0])
def test_updates_give_what_solving_each_gives(monkeypatch, zero, lam):
    monkeypatch.setattr(updates, "_SLAB", 7)  # more than one slab, the last one short
    case = LowRank(17)
    found = solve_updates(case.H0, case.parts.__getitem__, lam=lam, zero_diagonal=zero)
    np.testing.assert_allclose(found, solve(case, lam=lam, zero_diagonal=zero), atol=1e-10)


def test_singular_matrices_on_the_way_do_no_harm():
    # e_0 taken off makes H0 singular; the second vector makes it regular again.
    H0 = np.diag([1.0, 2.0, 3.0])
    update = Update(np.ones(3), [Combination(units={0: 1.0}), np.array([1.0, 1.0, 0.0])], np.diag([-1.0, 1.0]))
    H = H0 - np.diag([1.0, 0, 0]) + np.outer([1, 1, 0], [1, 1, 0])
    np.testing.assert_allclose(solve_updates(H0, lambda i: update)[:, 0], np.linalg.solve(H, np.ones(3)))


@pytest.mark.parametrize("size", [-0.999, -1.0, -1.001, 5.0])
def test_positive_definiteness_is_told_from_the_small_matrix(size):
    H0 = LowRank(6).H0
    u = np.arange(1.0, 7.0)
    u /= np.sqrt(u @ np.linalg.solve(H0, u))  # H0 + size·u·uᵀ is positive definite exactly for size > −1

    def changes(i):
        return Update(np.ones(6), [u], [[size if i == 4 else 1.0]])

    if size > -1:
        W = solve_updates(H0, changes)
        np.testing.assert_allclose((H0 + size * np.outer(u, u)) @ W[:, 4], np.ones(6), atol=1e-9)
    else:
        with pytest.raises(NotPositiveDefiniteError, match="H of item 'e' is not positive definite") as caught:
            solve_updates(H0, changes, items=list("abcdef"))
        assert caught.value.indices == [4]


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (None, "updates must give an Update for item 'jam', got NoneType"),
        (Update([1.0, 2.0]), r"a vector of item 'jam' must be 3 numbers, got the shape \(2,\)"),
        (Update([1.0, np.nan, 0.0]), "a vector of item 'jam' has entries that are NaN or infinite"),
        (Update(Combination(units={1: np.inf})), "a vector of item 'jam' has entries that are NaN or infinite"),
        (Update(Combination(rows={3: 1.0})), "a vector of item 'jam' names item 3: items are 0 to 2"),
        (Update(Combination(units={1.5: 1.0})), r"a vector of item 'jam' must map item numbers to .*\{1\.5: 1\.0\}"),
        (Update(Combination(rows={"a": 1.0})), "a vector of item 'jam' must map item numbers to numbers"),
        (Update(Combination(units={1: "x"})), "a vector of item 'jam' must map item numbers to numbers"),
        (Update(Combination(units=[1.0])), "a vector of item 'jam' must map item numbers to numbers"),
        (Update(np.ones(3), [], [[1.0]]), r"core of item 'jam' must be 0 × 0, got the shape \(1, 1\)"),
        (Update(np.ones(3), 4), "vectors of item 'jam' must be a list, got int"),
        (Update(np.ones(3), [np.ones(3)], [[1.0, 2.0]]), r"core of item 'jam' must be 1 × 1, got the shape \(1, 2\)"),
        (Update(np.ones(3), [np.ones(3)] * 2, [[1.0, 2.0], [0.0, 1.0]]), "core of item 'jam' must be .* symmetric"),
    ],
)
def test_wrong_updates_are_named(update, message):
    with pytest.raises(DataError, match=message):
        solve_updates(np.eye(3), lambda i: update if i == 1 else Update(np.ones(3)), items=["tea", "jam", "egg"])


def test_wrong_bases_are_named():
    with pytest.raises(DataError, match=r"H0 must be a square array, got the shape \(2, 3\)"):
        solve_updates(np.ones((2, 3)), lambda i: Update(np.ones(3)))
    with pytest.raises(DataError, match=r"H0 must be a dense array, got csr_array: use its toarray\(\)"):
        solve_updates(csr_array(np.eye(3)), lambda i: Update(np.ones(3)))
    with pytest.raises(DataError, match="H0 is not symmetric"):
        solve_updates([[1.0, 2.0], [0.0, 1.0]], lambda i: Update(np.ones(2)))
    with pytest.raises(
        NotPositiveDefiniteError, match=r"H0 is not positive definite: .* item 'jam' .* set lam above 0"
    ):
        solve_updates(np.diag([1.0, 0.0]), lambda i: Update(np.ones(2)), items=["tea", "jam"])


def test_updates_are_cheaper_than_solving_each():
    # O(n³ + n²·r) against O(n⁴): 10 times at n = 250, 38 at 500, 128 at 1,000, in time of one thread.
    R = (np.random.default_rng(0).random((900, 250)) < 0.05).astype(float)
    loss = Corruption(R, dropout=0.3, b=0.5, l2=5.0)

    def seconds(moments):
        start = time.process_time()
        solve(moments, 250)
        return time.process_time() - start

    deql.set_threads(1)
    try:
        assert min(seconds(loss) for _ in range(3)) < seconds(lambda i: loss(i)) / 3
    finally:
        deql.set_threads(None)


def test_an_interruption_ends_the_work():
    H, v = different(12)

    def one(i):
        if i == 5:
            signal.raise_signal(signal.SIGINT)
        return H[i], v[i]

    with pytest.raises(KeyboardInterrupt):
        solve(one, 12)


def test_progress_is_told_on_request(monkeypatch):
    told = []

    class Stages:
        def __init__(self, show):
            assert show

        def __enter__(self):
            return lambda label: lambda done, total: told.append((label, done, total))

        def __exit__(self, *_):
            pass

    monkeypatch.setattr("deql.objective.column_solver.stages", Stages)
    monkeypatch.setattr("deql.objective.updates.stages", Stages)
    H, v = different(3)
    solve(lambda i: (H[i], v[i]), progress=True)
    assert told == [("Columns", 1, 3), ("Columns", 2, 3), ("Columns", 3, 3)]
    told.clear()
    solve_updates(np.eye(3), lambda i: Update(np.ones(3)), progress=True)
    assert told[-1] == ("Columns", 3, 3)
    assert {label for label, _, _ in told} == {"Inverse", "Columns"}
