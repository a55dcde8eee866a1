import numpy as np
import pytest
from scipy.sparse import csr_array

torch = pytest.importorskip("torch")
from deql.models.training.sparse_rows import SparseRows, sum_rows  # noqa: E402

X = np.array([[0, 2, 0, 0, 1], [0, 0, 0, 0, 0], [3, 0, 0.5, 0, 0], [0, 4, 0, 0, 0], [0, 0, 0, 0, 0]])
"""Rows and columns without numbers, the last row among them."""


def on_cpu(dense):
    matrix = csr_array(dense)
    return SparseRows.from_arrays(matrix.indptr, matrix.indices, matrix.data, matrix.shape[1], torch.device("cpu"))


def thin(rows, rank=3):
    return torch.from_numpy(np.random.default_rng(rows).random((rows, rank)).astype(np.float32))


def assert_rows(found, expected):
    assert len(found) == len(expected)
    assert found.n == expected.shape[1]
    assert found.lengths.tolist() == np.count_nonzero(expected, axis=1).tolist()
    rows, columns = np.nonzero(expected)
    assert (found.row_numbers().tolist(), found.columns.tolist()) == (rows.tolist(), columns.tolist())
    assert found.values.tolist() == expected[rows, columns].tolist()
    assert found.squares().tolist() == (expected**2).sum(axis=1).tolist()
    for product, factor, given in (
        (found.times, expected, thin(expected.shape[1])),
        (found.transposed_times, expected.T, thin(len(expected))),
    ):
        np.testing.assert_allclose(product(given), factor @ given.numpy(), rtol=1e-6, atol=1e-7)


def test_they_are_those_of_the_matrix():
    assert_rows(on_cpu(X), X)


@pytest.mark.parametrize("rows", [[3, 0], [1], [4, 4, 2, 0, 2], [1, 4, 1]])
def test_some_are_taken_in_any_order(rows):
    assert_rows(on_cpu(X).take(torch.tensor(rows)), X[rows])


@pytest.mark.parametrize(("first", "last"), [(0, 5), (1, 3), (2, 2), (4, 5)])
def test_a_part_is_some_of_them_and_no_copy(first, last):
    whole = on_cpu(X)
    part = whole.part(first, last)
    assert_rows(part, X[first:last])
    assert part.values.untyped_storage().data_ptr() == whole.values.untyped_storage().data_ptr()


def test_a_part_of_taken_rows_begins_anew():
    assert_rows(on_cpu(X).take(torch.tensor([2, 3, 0, 1])).part(1, 3), X[[3, 0]])


def test_arrays_that_cannot_be_written_to_are_copied():
    matrix = csr_array(X)
    for part in (matrix.indptr, matrix.indices, matrix.data):
        part.setflags(write=False)
    assert_rows(SparseRows.from_arrays(matrix.indptr, matrix.indices, matrix.data, 5, torch.device("cpu")), X)


@pytest.mark.parametrize("kinds", [(torch.int32, torch.int64), (torch.int64, torch.int32), (torch.int32, torch.int32)])
def test_places_may_be_of_either_type(kinds):
    rows, begins = torch.tensor([2, 0, 2], dtype=kinds[0]), torch.tensor([0, 0, 2, 3], dtype=kinds[1])
    dense = torch.tensor([[1.0, -1.0], [10.0, 20.0], [100.0, 300.0]], dtype=torch.float64)
    found = sum_rows(dense, rows, begins, torch.tensor([2.0, 3.0, 0.5]))
    assert found.tolist() == [[0.0, 0.0], [203.0, 597.0], [50.0, 150.0], [0.0, 0.0]]
