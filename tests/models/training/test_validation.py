import numpy as np
import pytest
from scipy.sparse import csr_array

torch = pytest.importorskip("torch")
from deql.models.training import validation  # noqa: E402
from deql.models.training.sparse_rows import SparseRows  # noqa: E402
from deql.models.training.validation import ValidationNDCG  # noqa: E402

USERS, ITEMS, RANK = 9, 30, 4
GENERATOR = np.random.default_rng(4)
SEEN = (GENERATOR.random((USERS, ITEMS)) < 0.2) * GENERATOR.integers(1, 4, (USERS, ITEMS)) / 2.0
HELD_OUT = ((GENERATOR.random((USERS, ITEMS)) < 0.2) & (SEEN == 0)).astype(float)
SEEN[[2, 6]] = 0
HELD_OUT[4] = 0
COUNTS = np.count_nonzero(HELD_OUT, axis=1) + np.array([0, 0, 3, 0, 2, 0, 0, 1, 0])
"""Some of what is held out the model does not know; of user 4 nothing else."""
LEFT, RIGHT, OWN = (GENERATOR.standard_normal((size, RANK)).astype(np.float32) for size in (ITEMS, ITEMS, 5))
SCALE, POPULARITY = np.linspace(0.5, 2, ITEMS), -GENERATOR.permutation(ITEMS).astype(float)
ROWS = np.array([3, -1, -1, 0, -1, 4, 1, -1, 3])
"""User 6 has no history, but a vector."""


def on_cpu(dense):
    matrix = csr_array(dense)
    return SparseRows.from_arrays(matrix.indptr, matrix.indices, matrix.data, dense.shape[1], torch.device("cpu"))


def expected(own=None, rows=None):
    """User by user, by the definition."""
    values = []
    for user in range(USERS):
        vector, known = SEEN[user] @ LEFT, rows is not None and rows[user] >= 0
        if known:
            vector = vector + own[rows[user]]
        scores = vector @ RIGHT.T * SCALE if SEEN[user].any() or known else POPULARITY
        order = np.argsort(-np.where(SEEN[user] != 0, -np.inf, scores))[: min(20, np.count_nonzero(SEEN[user] == 0))]
        gains = 1 / np.log2(np.arange(2, 22))
        values.append((HELD_OUT[user][order] * gains[: len(order)]).sum() / gains[: COUNTS[user]].sum())
    return np.mean(values)


def asked(own=None, rows=None):
    tensors = [torch.from_numpy(part) for part in (LEFT, RIGHT)] + ([] if own is None else [torch.from_numpy(own)])
    return ValidationNDCG(on_cpu(SEEN), on_cpu(HELD_OUT), COUNTS, SCALE, POPULARITY, rows)(*tensors)


def test_it_is_that_of_the_definition():
    assert asked() == pytest.approx(expected(), rel=1e-6)


def test_users_with_a_vector_of_their_own_are_ranked_by_it():
    assert asked(OWN, ROWS) == pytest.approx(expected(OWN, ROWS), rel=1e-6)
    assert abs(expected(OWN, ROWS) - expected()) > 0.01


def test_nobody_known_changes_nothing():
    assert asked(OWN, np.full(USERS, -1)) == asked()


@pytest.mark.parametrize("scores_at_once", [1, 2 * ITEMS, 4 * ITEMS + 1])
def test_users_may_come_in_parts(monkeypatch, scores_at_once):
    monkeypatch.setattr(validation, "_SCORES_AT_ONCE", scores_at_once)
    assert asked(OWN, ROWS) == pytest.approx(expected(OWN, ROWS), rel=1e-6)


def test_the_best_order_is_worth_1():
    """Fewer items than the list is long; and what is seen never counts."""
    truth = np.array([[1.0, 0, 0], [0, 0, 1]])
    seen = on_cpu(np.array([[0, 1.0, 1], [1, 1, 0]]))
    ndcg = ValidationNDCG(seen, on_cpu(truth), np.array([1, 1]), np.ones(3), np.zeros(3))
    assert ndcg(torch.ones(3, 1), torch.tensor([[1.0], [5.0], [2.0]])) == 1.0
