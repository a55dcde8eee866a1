from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

torch = pytest.importorskip("torch")

from deql.errors import DeviceError  # noqa: E402
from deql.linalg.engines.torch_packed import DevicePacked  # noqa: E402
from deql.linalg.packed import PackedSymmetric  # noqa: E402
from deql.ranking.rank import rank  # noqa: E402
from deql.ranking.torch_rank import DeviceHistories, Scan, batches, scan, strips  # noqa: E402  # noqa: E402

CPU = torch.device("cpu")


def on_device(P, tile):
    return DevicePacked.from_host(PackedSymmetric.from_dense(P, tile), CPU)


def plain(matrix):
    return matrix.indptr, matrix.indices, matrix.data


@st.composite
def problems(draw):
    """P, tile, gains, shifts, histories: some users without any, and in half of the cases little but exact ties."""
    n, users, models = draw(st.integers(1, 70)), draw(st.integers(1, 9)), draw(st.integers(1, 4))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = generator.integers(1, 6, (users, n)) * (generator.random((users, n)) < 0.3 * generator.random((users, 1)))
    if draw(st.booleans()):
        # Whole numbers, and a heavy diagonal that makes P positive definite.
        P = generator.integers(-1, 2, (n, n))
        P = np.tril(P, -1) + np.tril(P, -1).T + 2 * n * np.eye(n)
        gains, shifts = (generator.integers(-2, 1, (models, n)).astype(float) for _ in range(2))
    else:
        R = generator.random((2 * n, n)) * (generator.random((2 * n, n)) < generator.random(n))
        P = np.linalg.inv(R.T @ R + np.eye(n))
        gains, shifts = generator.standard_normal((2, models, n))
        X = X * generator.random(n)
    X[draw(st.integers(0, users - 1))] = 0
    P = ((P + P.T) / 2).astype(draw(st.sampled_from([np.float32, np.float64])))
    return P, draw(st.integers(max(1, n // 5), n)), gains, shifts, csr_array(X.astype(float))


@settings(max_examples=30)
@given(problems(), st.data())
def test_lists_and_scores_are_those_of_the_host_bit_for_bit(problem, data):
    P, tile, gains, shifts, histories = problem
    n = len(P)
    host, device = PackedSymmetric.from_dense(P, n), on_device(P, tile)
    exclude_seen = data.draw(st.booleans())
    allowed = data.draw(st.none() | st.lists(st.booleans(), min_size=n, max_size=n).map(np.array))
    squares = np.zeros((2, len(gains), histories.shape[0]))
    squared = allowed is None and exclude_seen
    options = {"k": data.draw(st.integers(1, n + 3)), "exclude_seen": exclude_seen, "allowed": allowed}
    expected = rank(host, gains, shifts, histories, squares=squares[0] if squared else None, **options)
    with patch("deql.ranking.torch_rank.scan", partial(scan, scratch=data.draw(st.sampled_from([1, 2**15, 2**30])))):
        found = rank(
            host, gains, shifts, histories, squares=squares[1] if squared else None, on_device=device, **options
        )
        listed, _ = rank(host, gains, shifts, histories, exact=False, on_device=device, **options)
    np.testing.assert_array_equal(found[0], expected[0])
    assert found[1].tobytes() == expected[1].tobytes()
    np.testing.assert_array_equal(listed, expected[0])
    np.testing.assert_allclose(squares[1], squares[0], rtol=1e-12)


def case(dtype=np.float32, n=150, users=40):
    generator = np.random.default_rng(7)
    R = generator.random((2 * n, n)) < generator.uniform(0.02, 0.5, n)
    P = np.linalg.inv(R.T @ R + 5.0 * np.eye(n)).astype(dtype)
    X = generator.random((users, n)) * (generator.random((users, n)) < 0.1)
    X[3] = 0
    gains, shifts = -generator.uniform(0.1, 9, (3, n)), generator.standard_normal((3, n))
    return P, gains, shifts, csr_array(X.astype(float))


class TestScan:
    def test_finds_the_best_of_every_model_each_once_in_the_order_of_columns(self):
        P, gains, shifts, histories = case(np.float64)
        allowed = np.arange(150) % 7 > 0
        sums, _, items, found = scan(Scan(on_device(P, 64), gains, shifts, plain(histories), 9, True, allowed))
        X = histories.toarray()
        products = X @ P
        for u in range(len(X)):
            mine = items[u, : found[u]].tolist()
            usable = np.flatnonzero(allowed & (X[u] == 0))
            best = {i for gain in gains for i in usable[np.argsort(-(products[u] * gain)[usable])[:9]].tolist()}
            assert mine == (sorted(best) if u != 3 else [])
            np.testing.assert_allclose(sums[u, : found[u]], products[u, mine], rtol=1e-12)
        assert items.dtype == found.dtype == np.int32

    @pytest.mark.parametrize("scratch", [1, 2**16, 2**18])
    def test_in_small_batches_as_in_one(self, scratch):
        P, gains, shifts, histories = case(users=12)
        wanted = Scan(on_device(P, 64), gains, shifts, plain(histories), 9, False, np.ones(150, bool))
        told = []
        whole = scan(wanted)
        parts = scan(wanted._replace(report=lambda done, total: told.append(done / total)), scratch)
        np.testing.assert_array_equal(parts[3], whole[3])
        for u, found in enumerate(whole[3]):
            np.testing.assert_array_equal(parts[2][u, :found], whole[2][u, :found])
            np.testing.assert_allclose(parts[0][u, :found], whole[0][u, :found], rtol=1e-12)
        assert told == sorted(told)
        assert told[-1] == 1

    def test_squares_are_of_what_a_user_does_not_have(self):
        P, gains, shifts, histories = case(users=12)
        squares = np.zeros((3, 12))
        scan(Scan(on_device(P, 64), gains, shifts, plain(histories), 2, True, np.ones(150, bool), squares), 2**17)
        X = histories.toarray().astype(np.float32).astype(float)  # a history is in the type of P
        for m, gain in enumerate(gains):
            scores = np.where(X > 0, 0, X @ P.astype(float) * gain)
            np.testing.assert_allclose(squares[m], (scores**2).sum(axis=1), rtol=1e-12)

    def test_of_nobody(self):
        P, gains, shifts, histories = case()
        sums, _, items, found = scan(
            Scan(on_device(P, 64), gains, shifts, plain(histories[:0]), 2, True, np.ones(150, bool))
        )
        assert sums.shape == items.shape == (0, 6)
        assert found.shape == (0,)


def test_strips_are_the_product_whatever_their_width():
    P, _, _, histories = case(np.float64)
    device = on_device(P, 64)
    wanted = np.ones(150, bool)
    wanted[64:128] = False
    rows = DeviceHistories(plain(histories), 5, 30, 150, CPU)
    for width in (64, 20):
        product = np.zeros((25, 150))
        for low, high, sums in strips(device, rows, width, wanted):
            assert high - low <= width
            product[:, low:high] = sums.numpy()
        np.testing.assert_allclose(product, np.where(wanted, histories[5:30] @ P, 0), atol=1e-12)


class TestTooLittleMemory:
    def test_halves_the_batch_and_goes_on(self):
        device, tried = on_device(np.eye(300), 300), []

        def work(first, last, width):
            tried.append((last - first, width))
            if (last - first) * width > 1000:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            return last - first

        done = list(batches(device, np.zeros(101, int), 100, work))
        assert sum(size for _, _, size in done) == 100
        assert [first for first, _, _ in done] == [0, *(last for _, last, _ in done[:-1])]
        assert tried[0] == (100, 300)
        assert 1 < done[0][1] * 64 <= 1000

    def test_for_a_single_user_is_one_sentence(self):
        def work(first, last, width):
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")

        words = r"^cpu has too little memory to score even one user, which takes about 10 MiB beside P: free some"
        with pytest.raises(DeviceError, match=words):
            next(batches(on_device(np.eye(300), 300), np.array([0, 160_000, 160_001]), 0, work))

    def test_shows_in_no_list(self):
        P, gains, shifts, histories = case()
        wanted = Scan(on_device(P, 64), gains, shifts, plain(histories), 5, True, np.ones(150, bool))
        expected = scan(wanted)
        from deql.ranking.torch_rank import _search

        def small(scanned, first, last, width):
            if last - first > 6:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            return _search(scanned, first, last, width)

        with patch("deql.ranking.torch_rank._search", small):
            found = scan(wanted)
        np.testing.assert_array_equal(found[3], expected[3])
        for u, count in enumerate(expected[3]):
            np.testing.assert_array_equal(found[2][u, :count], expected[2][u, :count])
