"""Woodbury's identity on a device, against that of the host."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from deql.linalg.gram_change import GramChange
from deql.linalg.low_rank import low_rank_step, retiring_step, step_residual
from deql.linalg.packed import PackedSymmetric

pytest.importorskip("torch")
from deql.linalg.engines.torch_low_rank import low_rank_step_on_device, retiring_step_on_device
from deql.linalg.engines.torch_packed import DevicePacked


@pytest.fixture(params=["float32", "float64"])
def host(request):
    rows = np.random.default_rng(0).normal(size=(90, 70))
    P = PackedSymmetric.from_dense(np.linalg.inv(rows.T @ rows + 5 * np.eye(70)).astype(request.param), 16)
    P.mirror_diagonal_tiles()
    return P


def close(one, other):
    bound = 1e-5 if other.dtype == np.float32 else 1e-12
    np.testing.assert_allclose(one, other, atol=bound * abs(other).max())


@pytest.mark.parametrize("thin", [False, True])
def test_is_as_on_the_host(host, device, thin):
    rng = np.random.default_rng(1)
    columns, rows = np.array([0, 3, 15, 16, 40, 69]), rng.normal(size=(6, 2))
    change = (
        GramChange(columns, csr_array(rows), np.diag([1.0, 2.0])) if thin else GramChange(columns, None, rows @ rows.T)
    )
    there = DevicePacked.from_host(host, device)
    before = there.to_dense()
    step, exact = low_rank_step_on_device(there, change), low_rank_step(host, change)
    told = []
    updated = step.precision(there, lambda done, total: told.append(done))
    assert isinstance(updated, DevicePacked)
    assert updated.device == there.device
    close(updated.to_dense(), exact.precision(host).to_dense())
    assert np.array_equal(there.to_dense(), before)
    assert told == [1, 2, 3, 4, 5]
    assert step_residual(there, updated, change) < 1e-4
    left = rng.normal(size=(70, 3)).astype(np.float32)
    close(step.thin(left), exact.thin(left))


def test_items_go_and_come_on_a_device(host, device):
    columns = np.array([0, 17, 18, 68])
    there = DevicePacked.from_host(host, device)
    left = retiring_step_on_device(there, columns).precision(there).without(columns)
    exact = retiring_step(host, columns).precision(host).without(columns)
    close(left.to_dense(), exact.to_dense())
    grown = left.grown(20, 0.5)
    assert isinstance(grown, DevicePacked)
    assert grown.tile == exact.grown(20, 0.5).tile
    close(grown.to_dense(), exact.grown(20, 0.5).to_dense())
