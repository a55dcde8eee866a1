"""The server's own copy of the model file."""

from __future__ import annotations

import errno
import gc
import os
import time

import numpy as np
import pytest

import deql
from deql.errors import ModelFileError, ParameterError
from deql.io.model_file import checksum
from deql.models import load
from deql.ranking.quantised import QuantisedRows
from deql.serve import snapshot
from tests.serve.running import save_model

pytestmark = pytest.mark.serve


@pytest.fixture
def model(tmp_path):
    return save_model(tmp_path / "shop.deql")


def taken(path):
    """What a snapshot of the file says about tea."""
    copy = snapshot.take(path)
    try:
        return load(snapshot.path_of(copy.files["model"])).similar_items("tea", k=2)
    finally:
        copy.close()


def test_nothing_that_happens_to_the_file_matters(model):
    copy = snapshot.take(model)
    assert copy.checksum == checksum(model)
    served = load(snapshot.path_of(copy.files["model"]), verify=False)
    before = served.similar_items("tea", k=3)
    copy.close()  # what is mapped stays
    os.truncate(model, 0)
    model.unlink()
    for old, new in zip(before, served.similar_items("tea", k=3), strict=True):
        np.testing.assert_array_equal(old, new)
    assert os.listdir(model.parent) == []


def test_what_is_no_model(tmp_path, model):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, why in (
        (tmp_path / "none", "there is no model file"), (tmp_path, "there is no model file"),
        (pipe, "there is no model file"), (model / "under", "there is no model file"),
    ):  # fmt: skip
        with pytest.raises(ModelFileError, match=why):
            snapshot.take(path)
    files = len(os.listdir("/proc/self/fd"))
    good = model.read_bytes()
    model.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(ModelFileError, match="checksum") as error:
        snapshot.take(model)
    assert str(error.value).startswith(str(model))
    del error  # its traceback has the arrays
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == files


def on_disk(monkeypatch):
    """Neither blocks shared nor room in memory."""

    def cannot(source, copy):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(snapshot, "_share_blocks", cannot)
    monkeypatch.setattr(snapshot, "may_take", lambda size: False)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs files in memory")
def test_what_is_in_memory_is_sealed(model, monkeypatch):
    on_disk(monkeypatch)
    monkeypatch.setattr(snapshot, "may_take", lambda size: True)
    copy = snapshot.take(model)
    try:
        assert set(copy.files) == {"model", "rows"}
        for file in copy.files.values():
            for change in (lambda: os.pwrite(file, b"x", 0), lambda: os.ftruncate(file, 1)):  # noqa: B023
                with pytest.raises(PermissionError):
                    change()
        served = load(snapshot.path_of(copy.files["model"]), verify=False)
        snapshot.attach_rows(served, copy.files["rows"])
        assert served.recommend([["tea"]], k=1).ids.tolist() == load(model).recommend([["tea"]], k=1).ids.tolist()
    finally:
        copy.close()


def test_without_rows_it_is_served_too(model, monkeypatch, caplog):
    def cannot(precision, buffer, right):
        raise ParameterError("no rows can be made of this P")

    monkeypatch.setattr(QuantisedRows, "fill", cannot)
    copy = snapshot.take(model)
    copy.close()
    assert list(copy.files) == ["model"]
    assert "rows_left_out" in caplog.messages


def test_rows_that_are_in_the_file_are_not_made_again(tmp_path, model):
    kept = tmp_path / "kept.deql"
    load(model).save(kept, quantized_rows=True)
    copy = snapshot.take(kept)
    try:
        assert list(copy.files) == ["model"]
        served = load(snapshot.path_of(copy.files["model"]), verify=False)
        assert served.quantized_rows_ is not None
        assert (
            served.recommend([["tea"]], k=2).scores.tobytes() == load(model).recommend([["tea"]], k=2).scores.tobytes()
        )
    finally:
        copy.close()


def test_where_the_copy_is(model, monkeypatch):
    expected = taken(model)[0].tolist()
    on_disk(monkeypatch)
    assert taken(model)[0].tolist() == expected
    with monkeypatch.context() as patch:  # a file system without nameless files, and no copying inside the kernel
        patch.delattr(os, "O_TMPFILE")
        patch.delattr(os, "copy_file_range")
        assert taken(model)[0].tolist() == expected
    nameless, places = snapshot._nameless, []

    def not_here(folder):
        places.append(folder)
        if folder == model.parent:
            raise OSError(errno.EROFS, "Read-only file system")
        return nameless(folder)

    monkeypatch.setattr(snapshot, "_nameless", not_here)
    assert taken(model)[0].tolist() == expected
    assert places[:2] == [model.parent, model.parent]
    assert len(places) == 3
    monkeypatch.setattr(os, "fstatvfs", lambda file: os.statvfs_result([0] * 10))
    with pytest.raises(ModelFileError, match=r"read-only file system; .* bytes are needed and 0 are free.*set TMPDIR"):
        snapshot.take(model)


def test_a_file_that_changes_while_it_is_copied(model, monkeypatch):
    copy_bytes = snapshot._copy_bytes

    def cut(source, copy, size):
        os.truncate(model, size // 2)
        copy_bytes(source, copy, size)

    on_disk(monkeypatch)
    monkeypatch.setattr(snapshot, "_copy_bytes", cut)
    began = time.monotonic()
    with pytest.raises(ModelFileError, match="cut short"):
        snapshot.take(model)
    assert time.monotonic() < began + 5


def test_rows_of_a_prior_go_with_those_of_p(tmp_path, toy):
    thin = np.random.default_rng(3).random((2, toy.n_items, 2))
    fitted = deql.EASE(1.0, prior=(thin[0], thin[1])).fit(toy)
    expected = fitted.recommend([["tea"], ["egg", "jam"]], k=3)
    plain, kept = tmp_path / "plain.deql", tmp_path / "kept.deql"
    fitted.save(plain)
    fitted.save(kept, quantized_rows=True)
    for path, files in ((plain, ["model", "rows"]), (kept, ["model"])):
        copy = snapshot.take(path)
        try:
            assert list(copy.files) == files
            served = load(snapshot.path_of(copy.files["model"]), verify=False)
            if "rows" in copy.files:
                snapshot.attach_rows(served, copy.files["rows"])
            assert served.quantized_rows_.hold(served.prior_.right)
            found = served.recommend([["tea"], ["egg", "jam"]], k=3)
            assert (found.ids.tolist(), found.scores.tobytes()) == (expected.ids.tolist(), expected.scores.tobytes())
        finally:
            del served
            gc.collect()
            copy.close()


def test_of_a_dense_prior_there_are_no_rows(tmp_path, toy, caplog):
    deql.EASE(1.0, prior=np.ones((toy.n_items, toy.n_items))).fit(toy).save(tmp_path / "dense.deql")
    copy = snapshot.take(tmp_path / "dense.deql")
    copy.close()
    assert list(copy.files) == ["model"]
    assert "rows_left_out" in caplog.messages
