import pytest

from tests.paper.common import use_small


@pytest.fixture
def small(monkeypatch):
    return use_small(monkeypatch)
