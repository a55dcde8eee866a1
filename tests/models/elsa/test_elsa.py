import sys
from functools import partial

import numpy as np
import pytest
from scipy.sparse import csr_array

import deql
from deql.errors import DataError, DeviceError, ParameterError, TooLargeError
from deql.models.elsa.elsa import ELSA
from deql.models.elsa.training import loss_and_gradient
from deql.models.training.sparse_rows import SparseRows
from deql.split import HeldOut

torch = pytest.importorskip("torch")
from deql.linalg.engines.torch_packed import memory_watched  # noqa: E402

CPU = torch.device("cpu")


def on_cpu(matrix):
    return SparseRows.from_arrays(matrix.indptr, matrix.indices, matrix.data, matrix.shape[1], CPU)


def brute_force(A, X):
    """The loss by its definition, with all of users × items and items × items."""
    Y = X @ (A @ A.T - np.eye(len(A)))
    unit_x, unit_y = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (X, Y))
    return ((unit_x - unit_y) ** 2).sum(axis=1).mean()


@pytest.fixture(scope="module")
def planted():
    """Three groups of items; a user has items of one group, and now and then one that is popular with all."""
    generator = np.random.default_rng(5)
    groups = generator.integers(3, size=240)
    chance = np.where(np.arange(30) % 3 == groups[:, None], 0.5, 0.02)
    chance[:, :3] = 0.25
    items = [f"item {i}" for i in range(30)]
    return deql.Interactions.from_csr(csr_array((generator.random((240, 30)) < chance).astype(float)), items=items)


@pytest.fixture(scope="module")
def split(planted):
    return deql.split_strong(planted, test_users=0.2, validation_users=0.2, held_out=0.3, seed=1)


def small(**changed):
    return ELSA(**{"rank": 4, "epochs": 12, "batch_size": 32, "learning_rate": 0.02, "device": "cpu"} | changed)


@pytest.mark.parametrize(("users", "rank"), [(9, 3), (3, 6)])  # either order of the products is the cheaper one
def test_loss_and_gradient_are_those_of_the_definition(users, rank):
    generator = np.random.default_rng(users)
    X = (generator.random((users, 7)) < 0.5) * generator.integers(1, 9, (users, 7)) / 4.0
    X[:, 2] = 1.0
    A = generator.standard_normal((7, rank))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    histories = on_cpu(csr_array(X))
    loss, gradient = loss_and_gradient(torch.from_numpy(A), histories)
    assert loss.item() == pytest.approx(brute_force(A, X), rel=1e-12)
    step = 1e-5
    for i, j in np.ndindex(A.shape):
        low, high = (A + side * step * (np.arange(7) == i)[:, None] * (np.arange(rank) == j) for side in (-1, 1))
        slope = (brute_force(high, X) - brute_force(low, X)) / (2 * step)
        assert gradient[i, j].item() == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_batches_are_the_rows_of_the_matrix(random_matrix):
    X = random_matrix(20, 6, weighted=True).toarray()
    X[[0, 7]] = 0
    rows = torch.tensor([7, 3, 12, 3, 0])
    part = on_cpu(csr_array(X)).take(rows).part(1, 4)
    dense = torch.from_numpy(np.random.default_rng(0).random((6, 2)).astype(np.float32))
    expected = X[[3, 12, 3]].astype(np.float32)
    np.testing.assert_allclose(part.times(dense), expected @ dense.numpy(), rtol=1e-6)
    np.testing.assert_allclose(part.transposed_times(dense[:3]), expected.T @ dense[:3].numpy(), rtol=1e-6)
    np.testing.assert_allclose(part.squares(), (expected**2).sum(axis=1))


def test_rows_are_unit_and_the_diagonal_is_zero(planted):
    model = small().fit(planted)
    A = model.left_.astype(np.float64)
    assert A.shape == (30, 4)
    np.testing.assert_allclose(np.linalg.norm(A, axis=1), 1.0, atol=1e-6)
    assert not model.diagonal().any()
    np.testing.assert_allclose(model.weights(), A @ A.T - np.eye(30), atol=1e-6)


def test_it_finds_planted_groups(split):
    found = deql.evaluate([small().fit(split.train), deql.Popularity().fit(split.train)], split.test, "ndcg@5")
    ours, popular = (result.means["ndcg@5"] for result in found)
    assert ours > 1.5 * popular


def test_a_file_keeps_how_it_was_trained(planted, tmp_path):
    model = small(popularity_power=0.3, patience=2).fit(planted)
    model.save(tmp_path / "model.deql")
    again = deql.load(tmp_path / "model.deql")
    assert (again.epochs_, again.history_, again.left_ is again.right_) == (model.epochs_, model.history_, False)


def test_a_seed_gives_the_same_model_and_empty_users_change_nothing(planted):
    first, second, other = (small(seed=seed).fit(planted).left_ for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - other).max() > 0.1
    blank = csr_array((1, 30))
    stacked = csr_array(np.vstack([blank.toarray(), planted.matrix.toarray()]))
    np.testing.assert_array_equal(small(seed=3).fit(stacked).left_, first)


def test_the_size_of_values_changes_nothing(planted):
    """Powers of two not by a bit, and nothing is too large or too small for float32."""
    matrix = planted.matrix.astype(np.float64)
    plain = small(epochs=3).fit(matrix).left_
    powers = np.random.default_rng(0).integers(-900, 900, matrix.shape[0])
    scaled = csr_array(
        (np.ldexp(matrix.data, np.repeat(powers, np.diff(matrix.indptr))), matrix.indices, matrix.indptr)
    )
    np.testing.assert_array_equal(small(epochs=3).fit(scaled).left_, plain)
    for factor in (1e30, -1e-200):
        np.testing.assert_allclose(small(epochs=3).fit(factor * matrix).left_, plain, atol=1e-3)


def test_the_best_epoch_is_kept(split):
    model = small(epochs=60, patience=3, popularity_power=0.2).fit(split.train, validation=split.validation)
    values = [epoch.ndcg for epoch in model.history_]
    assert model.epochs_ == 1 + int(np.argmax(values))
    assert len(values) == min(60, model.epochs_ + 3) < 60
    assert deql.evaluate(model, split.validation).means["ndcg@20"] == pytest.approx(max(values), rel=1e-6)
    assert values[0] < max(values)
    same = small(epochs=model.epochs_, popularity_power=0.2).fit(split.train)
    np.testing.assert_array_equal(same.left_, model.left_)
    assert [epoch.ndcg for epoch in same.history_] == [None] * model.epochs_
    assert same.history_[-1].loss < same.history_[0].loss
    assert all(epoch.seconds > 0 for epoch in same.history_)


def test_epochs_are_judged_as_evaluate_does(split):
    """Users without a history, users with nothing held out, and items that the model does not know."""
    seen, held_out = (part.matrix.toarray() for part in (split.validation.seen, split.validation.held_out))
    seen[:4], held_out[4:6] = 0, 0
    items = np.array([f"new {i}" if i in (8, 20) else f"item {i}" for i in range(30)])
    parts = (deql.Interactions.from_csr(csr_array(part), items=items) for part in (seen, held_out))
    validation = HeldOut(*parts)
    with pytest.warns(UserWarning, match="new"):
        model = small(epochs=2).fit(split.train, validation=validation)
    with pytest.warns(UserWarning, match="new"):
        expected = deql.evaluate(model, validation).means["ndcg@20"]
    assert max(epoch.ndcg for epoch in model.history_) == pytest.approx(expected, rel=1e-6)


def test_without_validation_some_users_choose_the_epochs(planted):
    model = small(epochs=60, patience=2).fit(planted)
    assert model.epochs_ == 1 + int(np.argmax([epoch.ndcg for epoch in model.history_]))
    assert len(model.history_) == model.epochs_ + 2
    np.testing.assert_array_equal(model.left_, small(epochs=model.epochs_).fit(planted).left_)


def test_nothing_of_items_by_items_or_users_by_items_is_held():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        numbers = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            for one in made if isinstance(made, tuple) else [made]:
                if isinstance(one, torch.Tensor):
                    self.numbers = max(self.numbers, one.numel())
            return made

    n, users = 50_000, 2_000
    generator = np.random.default_rng(0)
    places = generator.integers(users, size=n), np.arange(n)
    with Largest() as largest:
        model = small(rank=8, epochs=1, batch_size=500).fit(csr_array((np.ones(n), places), shape=(users, n)))
    assert model.left_.shape == (n, 8)
    assert 0 < largest.numbers <= 8 * n


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"rank": 0}, "rank must be a whole number from 1 up"),
        ({"rank": 31}, "at most the number of items, 30, got 31"),
        ({"epochs": 0}, "epochs must be a whole number"),
        ({"batch_size": 1.5}, "batch_size must be a whole number"),
        ({"patience": 0}, "patience must be a whole number"),
        ({"learning_rate": -1.0}, "learning_rate must be"),
        ({"learning_rate": 0.0}, r"learning_rate must be from 1e-10 to 1e\+30, got 0\.0"),
        ({"learning_rate": 1e39}, r"learning_rate must be from 1e-10 to 1e\+30, got 1e\+39"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_parameters_out_of_range_are_refused(planted, parameters, words):
    with pytest.raises(ParameterError, match=words):
        small(**parameters).fit(planted)


def test_what_cannot_be_trained_is_said_in_a_sentence(planted, split, monkeypatch):
    with pytest.raises(DataError, match="no longer a number in epoch 1: lower learning_rate from 1e\\+30"):
        small(learning_rate=1e30).fit(planted)
    with pytest.raises(DeviceError, match="the device mps cannot be used"):
        small(device="mps").fit(planted)
    with pytest.raises(ParameterError, match=r"such as split\.validation, got Split"):
        small().fit(split.train, validation=split)
    nothing = HeldOut(split.validation.seen, deql.Interactions.from_csr(
        csr_array(split.validation.held_out.matrix.shape), split.validation.seen.users, split.train.items))  # fmt: skip
    with pytest.raises(DataError, match="no validation user has anything held out"):
        small().fit(split.train, validation=nothing)
    with pytest.raises(DataError, match=r"patience needs validation data.*: 9 users are too few"):
        small(patience=1).fit(planted.matrix[:9])
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(DeviceError, match=r'pip install "deql\[neural\]"'):
        small().fit(planted)


def test_validation_data_that_cannot_tell_epochs_apart_are_refused(split):
    seen, held_out = split.validation.seen, split.validation.held_out
    unknown = [f"new {i}" for i in range(30)]
    strange = HeldOut(*(deql.Interactions.from_csr(part.matrix, part.users, unknown) for part in (seen, held_out)))
    with (
        pytest.warns(UserWarning, match="new"),
        pytest.raises(DataError, match="nothing held out from the validation users is an item of the training data"),
    ):
        small().fit(split.train, validation=strange)
    blank = deql.Interactions.from_csr(csr_array(seen.matrix.shape), seen.users, seen.items)
    with pytest.raises(DataError, match="nothing seen of the validation users is an item of the training data"):
        small().fit(split.train, validation=HeldOut(blank, held_out))


def test_large_seeds_are_taken(planted):
    assert np.isfinite(small(seed=10**30, epochs=1).fit(planted).left_).all()


def test_too_little_memory_is_said_in_a_sentence(planted, monkeypatch):
    watched = partial(memory_watched, "9 items at rank 2", advice="lower rank")
    with pytest.raises(TooLargeError, match="too little memory for 9 items at rank 2"), watched(CPU):
        torch.empty(2**60)
    device = torch.device("cuda:0")
    with pytest.raises(DeviceError, match="cuda:0 has too little memory for 9 items"), watched(device):
        raise torch.OutOfMemoryError("CUDA out of memory")
    with pytest.raises(RuntimeError, match="another"), watched(CPU):
        raise RuntimeError("another")
    monkeypatch.setattr("deql.models.training.estimator.free_memory", lambda: 1000)
    with pytest.raises(TooLargeError, match=r"rank 4 of 30 items needs about 0\.0 GiB.*: choose a lower rank"):
        small().fit(planted)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_device_trains_the_same_model(split):
    here, there = (
        small(device=device).fit(split.train, validation=split.validation).history_ for device in ("cpu", "cuda")
    )
    assert [epoch.loss for epoch in there] == pytest.approx([epoch.loss for epoch in here], rel=1e-3)
