import mmap
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

import deql
from deql.errors import ParameterError
from deql.linalg.packed import PackedSymmetric
from deql.ranking import NO_ITEM
from deql.ranking.quantised import QuantisedRows
from deql.ranking.rank import rank


def precision(n, tile, dtype, generator, alike=0.0):
    """A positive definite matrix whose diagonal spans some powers of ten; some items are alike to the last bit."""
    factor = generator.standard_normal((n, 8)) * (generator.random((n, 8)) < 0.5)
    dense = factor @ factor.T + np.diag(10.0 ** generator.uniform(-1, 2, n))
    dense *= np.outer(scales := 10.0 ** generator.uniform(-2, 2, n), scales)
    twins = generator.random(n) < alike
    dense[twins], dense[:, twins] = 0.0, 0.0
    dense[twins, twins] = 1.0
    return PackedSymmetric.from_dense(dense.astype(dtype), tile=min(tile, n))


def histories(users, n, generator, signed=False):
    matrix = csr_array(random_array((users, n), density=min(1.0, 6 / n), rng=generator, format="csr"))
    matrix.data = np.ones(matrix.nnz, np.float32) if not signed else generator.normal(size=matrix.nnz)
    matrix.sort_indices()
    return matrix


def assert_same_bits(found, expected):
    assert found[0].tolist() == expected[0].tolist()
    assert found[1].tobytes() == expected[1].tobytes()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.sampled_from([1, 5, 63, 64, 65, 128, 200, 300]),
    tile=st.sampled_from([64, 128, 300]),
    dtype=st.sampled_from([np.float32, np.float64]),
    k=st.sampled_from([1, 3, 20, 400]),
    models=st.sampled_from([None, 1, 3]),
    exclude_seen=st.booleans(),
    allowed=st.sampled_from([1.0, 0.5, 0.02, 0.0]),
    alike=st.sampled_from([0.0, 0.0, 0.3]),
    signed=st.booleans(),
    wide=st.booleans(),
)
def test_lists_and_scores_are_those_without_to_the_last_bit(
    seed, n, tile, dtype, k, models, exclude_seen, allowed, alike, signed, wide
):
    generator = np.random.default_rng(seed)
    P = precision(n, tile, dtype, generator, alike)
    matrix = histories(7, n, generator, signed)
    shape = (n,) if models is None else (models, n)
    gain, shift = -generator.gamma(2.0, size=shape) / P.diagonal(), generator.normal(size=shape)
    if wide:
        gain *= 10.0 ** generator.uniform(-45, 45, shape)
        matrix.data = (matrix.data * 10.0 ** generator.uniform(-30, 30, matrix.nnz)).astype(matrix.dtype)
    options = {"k": k, "exclude_seen": exclude_seen, "allowed": generator.random(n) < allowed}
    expected = rank(P, gain, shift, matrix, **options)
    assert_same_bits(rank(P, gain, shift, matrix, **options, rows=QuantisedRows.fill(P)), expected)


def beyond(name, gain, shift, values):
    """What leaves the range of floats on the way to a score."""
    if name == "weights too large":
        values *= 1e308
    elif name == "weights too small":
        values *= 1e-310
    elif name == "weights too large for float32":
        values *= 1e39
    elif name == "scores too small":
        gain *= 1e-300
        values *= 1e-30
    elif name == "scores too large":
        gain *= 1e200
        values *= 1e200
    elif name == "infinite gain":
        gain[7] = np.inf
    elif name == "unknown gain":
        gain[7] = np.nan
    else:
        shift[::3] = -np.inf


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "name",
    ["weights too large", "weights too small", "weights too large for float32", "scores too small",
     "scores too large", "infinite gain", "unknown gain", "infinite shift"],
)  # fmt: skip
def test_lists_are_those_without_where_numbers_leave_the_range_of_floats(name, dtype):
    generator = np.random.default_rng(6)
    P = precision(70, 64, dtype, generator)
    matrix = histories(5, 70, generator).astype(np.float64)
    gain, shift = -1.0 / P.diagonal(), np.ones(70)
    beyond(name, gain, shift, matrix.data)
    rows = QuantisedRows.fill(P)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for exclude_seen in (True, False):
            found, expected = (
                rank(P, gain, shift, matrix, k=70, exclude_seen=exclude_seen, rows=used) for used in (rows, None)
            )
            assert_same_bits(found, expected)


def test_a_history_that_weighs_nothing():
    P = precision(70, 64, np.float32, np.random.default_rng(7))
    matrix = csr_array((np.zeros(2, np.float32), [3, 5], [0, 2]), shape=(1, 70))
    gain, shift, rows = -1.0 / P.diagonal(), np.ones(70), QuantisedRows.fill(P)
    assert_same_bits(rank(P, gain, shift, matrix, k=4, rows=rows), rank(P, gain, shift, matrix, k=4))


@pytest.mark.parametrize(
    ("row", "column", "value", "said"),
    [
        (66, 66, 1e-310, "its diagonal goes from 1e-310 to "),
        (66, 66, 1e200, "to 1e\\+200, but must lie between 4e-103 and 2e\\+102"),
        (66, 66, np.nan, "its diagonal goes from nan"),
        (66, 3, np.nan, "not finite, or is not positive definite"),
        (66, 3, -np.inf, "not finite, or is not positive definite"),
        (66, 65, 1e30, "not finite, or is not positive definite"),
    ],
)
def test_a_matrix_that_no_bound_holds_for_is_refused(row, column, value, said):
    dense = np.eye(70)
    dense[row, column] = dense[column, row] = value
    with pytest.raises(ParameterError, match=said):
        QuantisedRows.fill(PackedSymmetric.from_dense(dense, tile=64))


def test_a_model_without_rows_is_as_it_was_when_they_cannot_be_made():
    model = deql.EASE(l2=1.0).fit(csr_array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]))
    model.precision_.data[:] = np.nan
    with pytest.raises(deql.DeqlError, match="no rows can be made of this P"):
        model.quantize_rows()
    assert model.quantized_rows_ is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_may_be_kept_in_the_model_file(tmp_path, dtype):
    data = deql.datasets.debian()
    data = data.take_items(np.arange(131)).take_users(np.arange(2_000))  # text ids: what follows is not aligned
    model = deql.DEQL(l2=10.0, dropout=0.2, b=0.4, dtype=dtype).fit(data)
    plain, kept = tmp_path / "plain.deql", tmp_path / "kept.deql"
    model.save(plain)
    model.save(kept, quantized_rows=True)
    assert model.quantized_rows_ is None  # only the file has them
    loaded = deql.load(kept)
    assert deql.load(plain).quantized_rows_ is None
    rows, made = loaded.quantized_rows_, QuantisedRows.fill(model.precision_)
    assert rows.codes.tobytes() == made.codes.tobytes()
    assert rows.steps.tobytes() == made.steps.tobytes()
    assert rows.codes.base is not None  # mapped, not read
    assert not rows.codes.flags.writeable
    matrix = csr_array(data.matrix)[:50]
    for other in (loaded, loaded.with_rule(b=2.0)):
        expected = model if other is loaded else model.with_rule(b=2.0)
        assert_same_bits(other.recommend(matrix, k=9), expected.recommend(matrix, k=9))
    loaded.save(plain)
    assert deql.load(plain).quantized_rows_ is None


def test_a_file_with_the_rows_of_another_model_is_refused(tmp_path):
    small, large = (deql.EASE(l2=1.0).fit(csr_array(np.eye(n, dtype=np.float32))) for n in (3, 70))
    small.quantized_rows_ = QuantisedRows.fill(large.precision_)
    small.save(tmp_path / "mixed.deql", quantized_rows=True)
    with pytest.raises(deql.DeqlError, match="another size"):
        deql.load(tmp_path / "mixed.deql")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_entry_is_within_half_a_step(dtype):
    P = precision(200, 64, dtype, np.random.default_rng(0))
    rows = QuantisedRows.fill(P)
    dense = P.to_dense() / np.outer(rows.roots, rows.roots)
    np.fill_diagonal(dense, 0.0)
    steps = np.repeat(rows.steps.astype(np.float64), 64, axis=1)[:, :200]
    assert (abs(dense - rows.codes[:, :200] * steps) <= steps * (0.5 + 2.0**-14)).all()
    assert not rows.codes[:, 200:].any()


def test_the_upper_half_of_a_tile_on_the_diagonal_does_not_count():
    generator = np.random.default_rng(1)
    P, same = precision(100, 64, np.float32, generator), precision(100, 64, np.float32, np.random.default_rng(1))
    P.block(0)[:64][np.triu_indices(64, 1)] = 7.0
    assert np.array_equal(QuantisedRows.fill(P).codes, QuantisedRows.fill(same).codes)


def test_a_long_history_on_several_threads():
    generator = np.random.default_rng(2)
    n = 700
    P = precision(n, 64, np.float32, generator)
    matrix = csr_array((generator.random((60, n)) < 0.9).astype(np.float32))
    gain, shift = -1.0 / P.diagonal(), np.ones(n)
    found = rank(P, gain, shift, matrix, k=20, rows=QuantisedRows.fill(P))
    assert_same_bits(found, rank(P, gain, shift, matrix, k=20))


def test_another_process_attaches_to_what_one_has_filled():
    generator = np.random.default_rng(3)
    P = precision(130, 64, np.float32, generator)
    matrix = histories(3, 130, generator)
    gain, shift = -1.0 / P.diagonal(), np.ones(130)
    shared = mmap.mmap(-1, QuantisedRows.size(130))
    QuantisedRows.fill(P, shared)
    rows = QuantisedRows.from_buffer(P, memoryview(shared).toreadonly())
    assert not rows.codes.flags.writeable
    assert_same_bits(rank(P, gain, shift, matrix, k=5, rows=rows), rank(P, gain, shift, matrix, k=5))


def test_rows_without_a_history_are_empty_and_progress_is_told():
    P = precision(10, 10, np.float32, np.random.default_rng(4))
    told = []
    items, scores = rank(
        P, -1.0 / P.diagonal(), np.ones(10), csr_array((2, 10), dtype=np.float32), k=3, rows=QuantisedRows.fill(P),
        report=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert (items == NO_ITEM).all()
    assert np.isnan(scores).all()
    assert told == [(1, 1)]


def test_sums_of_squares_are_those_without():
    generator = np.random.default_rng(5)
    P = precision(100, 64, np.float64, generator)
    matrix = histories(4, 100, generator)
    squares, expected = np.zeros(4), np.zeros(4)
    gain, shift = -1.0 / P.diagonal(), np.ones(100)
    found = rank(P, gain, shift, matrix, k=5, squares=squares, rows=QuantisedRows.fill(P))
    assert_same_bits(found, rank(P, gain, shift, matrix, k=5, squares=expected))
    assert squares.tolist() == expected.tolist()


def test_tiles_that_cut_strips_are_refused():
    with pytest.raises(ValueError, match="multiples of 64"):
        QuantisedRows.fill(PackedSymmetric(100, 50))
