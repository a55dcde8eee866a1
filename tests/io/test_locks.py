"""Locks that are removed by who holds them."""

import os

import pytest

from deql.io import locks

pytestmark = pytest.mark.skipif(os.name != "posix", reason="no such locks")


def test_one_that_was_removed_after_it_was_opened_is_none(tmp_path, monkeypatch):
    """Its holder ends between the opening and the locking here: two would write, each with a lock of its own."""
    path, tried = tmp_path / "lock", []

    def holder_ends(descriptor):
        if not tried:
            path.unlink()
        tried.append(os.fstat(descriptor).st_ino)
        return try_lock(descriptor)

    try_lock = locks.try_lock
    monkeypatch.setattr(locks, "try_lock", holder_ends)
    descriptor = locks.lock_file(path)
    assert len(tried) == 2
    assert os.path.samestat(os.fstat(descriptor), path.stat())
    assert locks.lock_file(path) is None
    os.close(descriptor)


def test_a_file_system_without_locks_stops_nobody(tmp_path, monkeypatch):
    def refuse(_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(locks, "try_lock", refuse)
    descriptor = locks.lock_file(tmp_path / "lock")
    assert descriptor is not None
    os.close(descriptor)
