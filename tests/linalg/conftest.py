import importlib.util

import pytest


def _has_cuda():
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


_CUDA = [pytest.mark.cuda, pytest.mark.skipif(not _has_cuda(), reason="there is no CUDA device")]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=_CUDA)])
def device(request):
    return pytest.importorskip("torch").device(request.param)
