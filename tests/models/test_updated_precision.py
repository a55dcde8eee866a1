"""P after an update on every engine: where it lies, and that it is a fit's."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import deql


def interactions(users=160, n=90, seed=0, first=0):
    rng = np.random.default_rng(seed)
    matrix = csr_array((rng.random((users, n)) < rng.uniform(0.02, 0.3, n)).astype(np.float32))
    return deql.Interactions(matrix, np.arange(first, first + users), np.arange(n))


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request):
    torch = pytest.importorskip("torch")
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    return torch.device(request.param)


@pytest.mark.parametrize("engine", ["memory", deql.engines.Disk(memory="64MiB")], ids=["memory", "disk"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_is_that_of_a_fit(engine, dtype):
    model = deql.EDLAE(l2=5.0, dropout=0.3, engine=engine, dtype=dtype).fit(interactions(), keep_data=True)
    before, numbers = model.precision_, model.precision_.data.copy()
    new = deql.Interactions.from_pairs([500, 500, 501, 501], [3, 90, 4, 91])
    report = model.update(new, forget_users=[7, 8], retire_items=[0, 40], method="low rank")
    assert report.method == "low rank"
    fresh = deql.EDLAE(l2=5.0, dropout=0.3, dtype="float64").fit(model.data_)
    exact = fresh.precision_.to_dense()
    bound = 1e-5 if dtype == "float32" else 1e-11
    np.testing.assert_allclose(model.precision_.to_dense(), exact, atol=bound * abs(exact).max())
    assert model.precision_.dtype == dtype
    assert np.array_equal(before.data, numbers)
    assert isinstance(model.precision_.data, np.memmap) == (model.engine_ == "disk")


def test_a_copy_on_a_device_is_updated_there(device):
    torch_packed = pytest.importorskip("deql.linalg.engines.torch_packed")
    model = deql.EDLAE(l2=5.0, dropout=0.3).fit(interactions(), keep_data=True)
    model.on_device_ = torch_packed.DevicePacked.from_host(model.precision_, device)
    model.update(forget_users=[7, 8], retire_items=[0, 40], method="low rank")
    assert model.on_device_.device == torch_packed.open_device(str(device))
    assert np.array_equal(model.on_device_.to_dense(), model.precision_.to_dense())
    exact = deql.EDLAE(l2=5.0, dropout=0.3, dtype="float64").fit(model.data_).precision_.to_dense()
    np.testing.assert_allclose(model.precision_.to_dense(), exact, atol=1e-5 * abs(exact).max())


def test_items_added_on_disk_stay_there():
    data = interactions()
    kinds = {item: {"kind": str(item % 3)} for item in range(90)}
    prior = deql.priors.ItemFeatures(kinds)
    model = deql.EASE(l2=5.0, engine=deql.engines.Disk(memory="64MiB"), prior=prior).fit(data)
    model.add_items({100: {"kind": "1"}})
    assert isinstance(model.precision_.data, np.memmap)
    assert model.precision_.n == 91
