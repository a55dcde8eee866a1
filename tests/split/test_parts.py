import json
import os
from dataclasses import replace

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import deql
from deql import Interactions, ModelFileError, Popularity
from deql.errors import DeqlError, ParameterError, SplitFileError
from deql.io import container
from deql.split import HeldOut, Split, load_split, split_leave_last, split_strong, split_weak
from deql.split.parts import _KIND
from tests.split.common import parts, tables


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data.split"


@pytest.fixture(scope="module")
def split(random_matrix):
    return split_strong(Interactions.from_csr(random_matrix(40, 12), items=[f"café {i}" for i in range(12)]), 0.2, 0.2)


def same(a, b):
    assert a.dtype == b.dtype
    assert a.tolist() == b.tolist()


def assert_equal(first, second):
    assert (first.protocol, first.seed, first.parameters) == (second.protocol, second.seed, second.parameters)
    assert first.dropped == second.dropped
    assert list(first.parameters) == list(second.parameters)
    assert len(parts(first)) == len(parts(second))
    for a, b in zip(parts(first), parts(second), strict=True):
        assert a.matrix.shape == b.matrix.shape
        for field in ("data", "indices", "indptr"):
            same(getattr(a.matrix, field), getattr(b.matrix, field))
        same(a.users, b.users)
        same(a.items, b.items)
        assert a.steps == b.steps
        for one, other in ((a.times, b.times), (a.titles, b.titles)):
            assert (one is None) == (other is None)
            if one is not None:
                same(one, other)


@given(tables(min_users=6), st.sampled_from(["strong", "weak", "leave-last", "no validation"]), st.booleans())
def test_reloads_bit_for_bit(tmp_path_factory, data, protocol, bare):
    if bare and protocol != "leave-last":
        data = replace(data, times=None, titles=None, users=np.arange(data.n_users) - 3)
    make = {
        "strong": lambda: split_strong(data, 0.2, 0.2, seed=2**70),
        "weak": lambda: split_weak(data, seed=5),
        "leave-last": lambda: split_leave_last(data, validation=0),
        "no validation": lambda: split_weak(data, validation=0),
    }
    try:
        split = make[protocol]()
    except DeqlError:
        return
    path = tmp_path_factory.mktemp("split") / "a.split"
    split.save(path)
    loaded = load_split(path)
    assert_equal(loaded, split)
    first = path.read_bytes()
    loaded.save(path)
    assert path.read_bytes() == first
    assert [file.name for file in path.parent.iterdir()] == ["a.split"]


def test_keeps_double_precision(path, split):
    values = csr_array(np.array([[0.1, 1 / 3], [2.0, 0.0]]))
    train = Interactions.from_csr(values)
    assert train.matrix.dtype == np.float64
    Split(train, None, HeldOut(train, train), {}).save(path)
    assert_equal(load_split(path), Split(train, None, HeldOut(train, train), {}))


def test_a_train_that_is_shown_again_is_stored_once(path, random_matrix):
    train = Interactions.from_csr(random_matrix(300, 40))
    split = Split(train, None, HeldOut(train, train.keep(train.matrix.indices % 3 == 0)), {}, "published")
    split.save(path)
    size = path.stat().st_size
    loaded = load_split(path)
    assert loaded.test.seen is loaded.train
    assert_equal(loaded, split)
    replace(split, test=HeldOut(replace(train), split.test.held_out)).save(path)
    assert path.stat().st_size > size + train.n_interactions * 8


def test_what_is_loaded_can_be_fitted_and_judged(path, split):
    split.save(path)
    loaded = load_split(path)
    before, after = (deql.evaluate(deql.EASE(2.0).fit(s.train), s.test).means for s in (split, loaded))
    assert before == after


def test_stays_when_its_file_goes(path, split):
    split.save(path)
    loaded = load_split(path)
    path.unlink()
    assert_equal(loaded, split)


class TestBadFiles:
    def test_cut_short_anywhere(self, path, split):
        split.save(path)
        content = path.read_bytes()
        for length in (*range(0, 40), *range(40, len(content), 97), len(content) - 1):
            path.write_bytes(content[:length])
            with pytest.raises(SplitFileError, match=r"data\.split"):
                load_split(path)

    def test_a_changed_byte_of_the_arrays(self, path, split):
        split.save(path)
        content = path.read_bytes()
        header = 8 + int.from_bytes(content[:8], "little")
        for place in range(header, len(content), 53):
            path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
            with pytest.raises(SplitFileError, match="checksum does not match; restore it or make the split again"):
                load_split(path)

    @pytest.mark.parametrize("content", [b"", b"user,item\n1,2\n", bytes(64), b"\xff" * 64])
    def test_garbage(self, path, content):
        path.write_bytes(content)
        with pytest.raises(SplitFileError, match=r"data\.split"):
            load_split(path)

    def test_other_safetensors(self, path):
        safetensors.numpy.save_file({"weights": np.ones(3, np.float32)}, path)
        with pytest.raises(SplitFileError, match=r"is not a deql split file$"):
            load_split(path)

    def test_a_model_file_for_a_split(self, path, toy):
        Popularity().fit(toy).save(path)
        with pytest.raises(SplitFileError, match="is not a deql split file but a model file"):
            load_split(path)

    def test_a_split_file_for_a_model(self, path, split):
        split.save(path)
        with pytest.raises(ModelFileError, match="is not a deql model file but a split file"):
            deql.load(path)

    def test_not_there(self, tmp_path):
        for missing in (tmp_path / "none.split", tmp_path):
            with pytest.raises(SplitFileError, match="there is no split file"):
                load_split(missing)


class TestSaving:
    def test_that_fails_leaves_the_old_file_whole(self, path, split, monkeypatch):
        path.write_bytes(b"old")

        def fail(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "replace", fail)
        with pytest.raises(SplitFileError, match=r"split could not be saved as .*data\.split: no space left"):
            split.save(path)
        assert path.read_bytes() == b"old"
        assert [file.name for file in path.parent.iterdir()] == [path.name]

    def test_into_a_folder_that_is_not_there(self, tmp_path, split):
        with pytest.raises(SplitFileError, match=r"there is no folder .*missing to save the split in"):
            split.save(tmp_path / "missing" / "a.split")

    def test_of_ids_that_are_neither_integers_nor_text(self, path, random_matrix):
        data = Interactions.from_csr(random_matrix(20, 3), users=[u + 0.5 for u in range(20)])
        with pytest.raises(SplitFileError, match="only if its users are integers or text"):
            split_weak(data).save(path)
        assert not list(path.parent.iterdir())

    def test_of_parts_with_other_items(self, path, split):
        seen, held_out = (replace(part, items=split.train.items[::-1]) for part in vars(split.test).values())
        with pytest.raises(SplitFileError, match="only if test has the items of train in the same order"):
            replace(split, test=HeldOut(seen, held_out)).save(path)


def _times(value):
    return lambda facts, arrays: arrays.update(train_times=np.full(len(arrays["train_data"]), value))


def _ends(facts, arrays):
    """Ends that go around where differences of 32 bits do."""
    arrays["train_indptr"] = arrays["train_indptr"].astype(np.int32)
    arrays["train_indptr"][-1] = -(2**31)


@pytest.mark.parametrize(
    "damage",
    [
        lambda facts, arrays: arrays.update(train_users=np.zeros_like(arrays["train_users"])),
        _times(np.nan),
        _times(1),
        _ends,
        lambda facts, arrays: facts.update(dropped="nothing"),
        lambda facts, arrays: facts.update(parameters={"test_users": {}}),
        lambda facts, arrays: facts.update(seed=[1]),
    ],
    ids=["users twice", "times that are not finite", "times of another type", "ends", "dropped", "parameters", "seed"],
)
def test_nonsense_with_a_right_checksum_is_refused(path, split, damage):
    split.save(path)
    metadata, arrays = container.read(_KIND, path)
    facts, arrays = json.loads(metadata["split"]), {name: np.array(array) for name, array in arrays.items()}
    damage(facts, arrays)
    container.write(_KIND, path, {"split": json.dumps(facts)}, arrays)
    with pytest.raises(SplitFileError, match="is damaged"):
        load_split(path)


def test_a_file_is_read_without_options(tmp_path):
    train = Interactions.from_pairs([1, 1, 2, 2], [1, 2, 1, 3])
    Split(train, test=Interactions.from_pairs([1], [3])).save(tmp_path / "a.split")
    with pytest.raises(ParameterError, match=r"a split file is read as it is: leave out user, item$"):
        load_split(tmp_path / "a.split", user="user", item="item")
    with pytest.raises(SplitFileError, match="there is no split file"):
        load_split(tmp_path / "b.split", user="user", item="item")
