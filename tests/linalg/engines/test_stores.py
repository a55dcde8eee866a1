"""Room for another P: in memory, or in a file without a name."""

import errno
import os

import numpy as np
import pytest

from deql.errors import TileFileError
from deql.linalg.engines import stores
from deql.linalg.engines.stores import new_store
from deql.linalg.packed import PackedSymmetric


def test_is_in_memory_unless_the_engine_is_not():
    assert type(new_store(100, 32, np.float32)) is np.ndarray
    assert new_store(100, 32, np.float64).dtype == np.float64


def test_a_file_has_no_name_and_can_be_filled(tmp_path):
    store = new_store(100, 32, np.float32, engine="disk", folder=tmp_path)
    assert isinstance(store, np.memmap)
    assert list(tmp_path.iterdir()) == []
    matrix = PackedSymmetric(100, 32, store)
    matrix.data[:] = 3.0
    assert matrix.diagonal().tolist() == [3.0] * 100


def test_is_in_a_file_where_memory_does_not_suffice(monkeypatch):
    monkeypatch.setattr(stores, "free_memory", lambda: 1000)
    assert isinstance(new_store(100, 32, np.float32), np.memmap)
    assert type(new_store(10, 10, np.float32)) is np.ndarray


def test_a_folder_that_is_gone_is_not_needed(tmp_path):
    assert len(new_store(3, 2, np.float32, engine="disk", folder=tmp_path / "gone")) == 7


def test_a_full_disk_is_told_before_anything_is_written(monkeypatch):
    def full(*_arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(TileFileError, match="cannot be written: no space left"):
        new_store(100, 32, np.float32, engine="disk")
