"""A flat store in several files, mapped as one array; models saved that way."""

import gc
import mmap
import os
import pickle
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

import deql
from deql.errors import ModelFileError
from deql.io import folder
from deql.io.shards import ALIGNMENT, Shard, cut, map_shards, shards_of, write_shard

pytestmark = pytest.mark.slow

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def store(count, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(count).astype(dtype)


def written(folder, numbers, bounds):
    return [write_shard(folder, "P", first, numbers[first:last]) for first, last in bounds]


def mapped_files(folder):
    return sum(str(folder) in line for line in Path("/proc/self/maps").read_text().splitlines())


class TestStores:
    @given(
        data=st.data(),
        count=st.integers(1, 60_000),
        dtype=st.sampled_from([np.float32, np.float64, np.int32, np.uint8]),
        aligned=st.booleans(),
    )
    @settings(max_examples=25, deadline=None)
    def test_come_back_bit_for_bit(self, tmp_path_factory, data, count, dtype, aligned):
        numbers = (1000 * store(count, np.float64)).astype(np.int32).astype(dtype)
        if aligned:
            bounds = cut(count, dtype, data.draw(st.integers(1, 2**19)))
        else:
            inner = data.draw(st.lists(st.integers(1, count), max_size=4, unique=True))
            ends = sorted({*inner, count})
            bounds = list(zip([0, *ends[:-1]], ends, strict=True))
        folder = tmp_path_factory.mktemp("shards")
        shards = written(folder, numbers, bounds)
        shards = [Shard(**shard.to_dict()) for shard in pickle.loads(pickle.dumps(shards))]
        back = map_shards(folder, shards[::-1])
        assert back.dtype == dtype
        assert back.tobytes() == numbers.tobytes()
        assert back.flags.c_contiguous
        assert not back.flags.writeable
        assert shards_of(back) == (folder, shards)
        assert shards_of(back[:-1]) is None

    @given(count=st.integers(1, 2**40), most=st.integers(1, 2**32))
    def test_are_cut_between_pages(self, count, most):
        bounds = cut(count, np.float32, max(most, count // 1000))
        assert bounds[0][0] == 0
        assert bounds[-1][1] == count
        assert all(last == first for (_, last), (first, _) in pairwise(bounds))
        assert all(first * 4 % ALIGNMENT == 0 for first, _ in bounds)
        assert all((last - first) * 4 <= max(most, count // 1000) + ALIGNMENT for first, last in bounds)

    @linux
    def test_are_mapped_and_unmapped_with_the_last_view(self, tmp_path):
        numbers = store(3 * ALIGNMENT)
        back = map_shards(tmp_path, written(tmp_path, numbers, cut(len(numbers), np.float32, ALIGNMENT)))
        assert mapped_files(tmp_path) == 12
        view = back[ALIGNMENT - 3 : ALIGNMENT + 3]
        del back
        gc.collect()
        assert np.array_equal(view, numbers[ALIGNMENT - 3 : ALIGNMENT + 3])
        del view
        gc.collect()
        assert mapped_files(tmp_path) == 0

    @linux
    def test_that_are_not_cut_between_pages_are_read(self, tmp_path):
        taken = []

        def room(count, dtype):
            taken.append(count)
            return np.empty(count, dtype)

        numbers = store(mmap.PAGESIZE)
        back = map_shards(tmp_path, written(tmp_path, numbers, [(0, 7), (7, len(numbers))]), store=room)
        assert taken == [len(numbers)]
        assert mapped_files(tmp_path) == 0
        assert np.array_equal(back, numbers)

    def test_are_files_that_others_read(self, tmp_path):
        shard = write_shard(tmp_path, "P", 0, store(10).reshape(2, 5))
        assert np.array_equal(load_file(tmp_path / shard.file)["numbers"], store(10))

    @pytest.mark.parametrize("how", ["missing", "damaged", "short", "foreign", "gap", "no safetensors"])
    def test_that_are_not_whole_are_refused(self, tmp_path, how):
        numbers = store(2 * ALIGNMENT)
        shards = written(tmp_path, numbers, cut(len(numbers), np.float32, 2 * ALIGNMENT))
        file = tmp_path / shards[1].file
        if how == "missing":
            file.unlink()
        elif how == "damaged":
            with open(file, "r+b") as raw:
                raw.seek(-5, os.SEEK_END)
                raw.write(b"x")
        elif how == "short":
            os.truncate(file, file.stat().st_size - 4)
        elif how == "foreign":
            (tmp_path / shards[2].file).replace(file)
        elif how == "gap":
            del shards[1]
        else:
            file.write_bytes(b"hello")
        says = {
            "missing": "is missing", "damaged": "its checksum does not match", "short": "cut short",
            "foreign": "another shard", "gap": "do not follow each other", "no safetensors": "not a deql shard file",
        }  # fmt: skip
        with pytest.raises(ModelFileError, match=says[how]):
            map_shards(tmp_path, shards)

    def test_that_cannot_be_written_say_so(self, tmp_path):
        with pytest.raises(ModelFileError, match="could not be written: no such file"):
            write_shard(tmp_path / "nowhere", "P", 0, store(3))


@pytest.fixture(scope="module")
def model():
    return deql.EASE(l2=10.0).fit(deql.datasets.debian(), keep_data=True)


@pytest.fixture(scope="module")
def other():
    return deql.EASE(l2=20.0).fit(deql.datasets.debian())


def shard_files(folder):
    return sorted(file.name for file in folder.glob("precision-*"))


def test_the_size_of_a_folder_is_that_of_the_files_that_stay(tmp_path):
    (tmp_path / "a").write_bytes(b"tea")
    (tmp_path / "gone").symlink_to(tmp_path / "was")  # as a file that is listed and removed before it is looked at
    assert folder.size(tmp_path) == 3


class TestModels:
    def test_are_the_same_in_both_forms(self, tmp_path, model):
        model.save(tmp_path / "one.deql", quantized_rows=True)
        model.save(tmp_path / "many.deql", quantized_rows=True, shards="16MiB")
        assert len(shard_files(tmp_path / "many.deql")) > 2
        one, many = (deql.load(tmp_path / name) for name in ("one.deql", "many.deql"))
        from deql.io.model_file import checksum, model_checksum

        assert checksum(tmp_path / "one.deql") == checksum(tmp_path / "many.deql")
        assert model_checksum(tmp_path / "one.deql") == model_checksum(tmp_path / "many.deql") == many.checksum()
        assert np.array_equal(one.weights(), many.weights())
        users = model.data_.users[:5].tolist()
        assert one.recommend(users=users).ids.tolist() == many.recommend(users=users).ids.tolist()
        assert many.quantized_rows_ is not None

    def test_are_replaced_in_the_form_they_have(self, tmp_path, model, other):
        place = tmp_path / "m.deql"
        model.save(place, shards="16MiB")
        before = shard_files(place)
        other.save(place)
        assert place.is_dir()
        assert not set(before) & set(shard_files(place))
        assert deql.load(place).checksum() == other.checksum()
        assert not [file for file in place.iterdir() if file.name.startswith(".")]

    def test_saved_again_share_their_files(self, tmp_path, model):
        model.save(tmp_path / "a", shards="16MiB")
        deql.load(tmp_path / "a").save(tmp_path / "b", shards=True)
        assert shard_files(tmp_path / "a") == shard_files(tmp_path / "b")
        for name in shard_files(tmp_path / "a"):
            assert (tmp_path / "a" / name).samefile(tmp_path / "b" / name)
        deql.load(tmp_path / "a").save(tmp_path / "a")
        assert deql.load(tmp_path / "b").checksum() == deql.load(tmp_path / "a").checksum() == model.checksum()

    def test_are_copied_where_files_cannot_be_linked(self, tmp_path, model, monkeypatch):
        model.save(tmp_path / "a", shards="16MiB")

        def refuse(*_given):
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr(os, "link", refuse)
        deql.load(tmp_path / "a").save(tmp_path / "b", shards=True)
        assert deql.load(tmp_path / "b").checksum() == model.checksum()

    def test_that_were_removed_are_written_from_what_is_mapped(self, tmp_path, model):
        model.save(tmp_path / "a", shards="16MiB")
        loaded = deql.load(tmp_path / "a")
        for file in (tmp_path / "a").iterdir():
            file.unlink()
        loaded.save(tmp_path / "b", shards=True)
        assert deql.load(tmp_path / "b").checksum() == model.checksum()

    def test_refuse_a_folder_with_an_index_of_something_else(self, tmp_path, model):
        site = tmp_path / "site"
        site.mkdir()
        for name in ("index.json", "home.link"):
            (site / name).write_text('{"pages": []}')
        for shards in (True, False):
            with pytest.raises(ModelFileError, match=r"index\.json is not of a model in shards: name a new folder"):
                model.save(site, shards=shards)
        assert {file.name: file.read_text() for file in site.iterdir()} == dict.fromkeys(
            ("index.json", "home.link"), '{"pages": []}'
        )

    def test_replace_one_whose_index_is_damaged_and_leave_what_is_not_ours(self, tmp_path, model):
        model.save(tmp_path / "a", shards=True)
        (tmp_path / "a" / "index.json").write_text("{")
        (tmp_path / "a" / "home.link").write_text("tea")
        model.save(tmp_path / "a", shards=True)
        assert deql.load(tmp_path / "a").checksum() == model.checksum()
        assert (tmp_path / "a" / "home.link").read_text() == "tea"

    def test_refuse_a_place_that_is_something_else(self, tmp_path, model):
        (tmp_path / "file").write_text("")
        with pytest.raises(ModelFileError, match="is a file: name a folder"):
            model.save(tmp_path / "file", shards=True)
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "letter.txt").write_text("dear")
        with pytest.raises(ModelFileError, match="with other files in it"):
            model.save(tmp_path / "folder", shards=True)
        assert [file.name for file in (tmp_path / "folder").iterdir()] == ["letter.txt"]
        with pytest.raises(ModelFileError, match="there is no folder"):
            model.save(tmp_path / "no" / "where", shards=True)
        with pytest.raises(deql.ParameterError, match="shards must be a number of bytes"):
            model.save(tmp_path / "m", shards="many")
        with pytest.raises(ModelFileError, match=r"no model in the folder .* it has no index\.json"):
            deql.load(tmp_path / "folder")

    @pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
    @pytest.mark.parametrize("old", [True, False])
    def test_that_fail_half_way_leave_what_was_there(self, tmp_path, model, monkeypatch, error, old, other):
        place = tmp_path / "m.deql"
        if old:
            other.save(place, shards="16MiB")
        before = sorted(place.iterdir()) if old else None
        written = []

        def fail(*_given):
            written.append(1)
            if len(written) == 3:
                raise error
            return write_shard(*_given)

        monkeypatch.setattr("deql.io.folder.write_shard", fail)
        with pytest.raises(ModelFileError if isinstance(error, OSError) else KeyboardInterrupt):
            model.save(place, shards="16MiB")
        if old:
            assert sorted(place.iterdir()) == before
            assert deql.load(place).l2 == 20.0
        else:
            assert not place.exists()

    def test_that_are_killed_half_way_leave_the_old_one_whole(self, tmp_path, model):
        place = tmp_path / "m.deql"
        model.save(place, shards="16MiB")
        program = (
            "import os, signal, deql\n"
            "import deql.io.folder as folder\n"
            "def die(*given): os.kill(os.getpid(), signal.SIGKILL)\n"
            "real, folder.sync = folder.sync, die\n"
            f"deql.EASE(l2=20.0).fit(deql.datasets.debian()).save({str(place)!r}, shards='16MiB')\n"
        )
        ended = subprocess.run([sys.executable, "-c", program], check=False)
        assert ended.returncode < 0
        assert deql.load(place).checksum() == model.checksum()
        count = len([*place.iterdir()])
        deql.load(place).save(place)
        assert len([*place.iterdir()]) < count
        assert deql.load(place).checksum() == model.checksum()

    @pytest.mark.parametrize("how", ["index", "json", "small", "missing small", "other small", "version"])
    def test_that_are_damaged_are_refused(self, tmp_path, model, other, how):
        place = tmp_path / "m.deql"
        model.save(place, shards=True)
        index = place / "index.json"
        small = next(place.glob("arrays-*"))
        text = index.read_text()
        if how == "index":
            index.write_text(text.replace('"EASE"', '"DEQL"'))
        elif how == "json":
            index.write_text(text[:-20])
        elif how == "small":
            raw = small.read_bytes()
            small.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
        elif how == "missing small":
            small.unlink()
        elif how == "other small":
            other.save(tmp_path / "n.deql", shards=True)
            small.write_bytes(next((tmp_path / "n.deql").glob("arrays-*")).read_bytes())
        else:
            import json

            from deql.io.folder import _sign

            found = json.loads(text)
            del found["checksum"]
            found["metadata"]["format_version"] = "99"
            index.write_text(json.dumps(found | {"checksum": _sign(found)}))
        says = {
            "index": "its checksum does not match", "json": "is damaged", "small": "its checksum does not match",
            "missing small": "is missing", "other small": "another file", "version": "update deql",
        }  # fmt: skip
        with pytest.raises(ModelFileError, match=says[how]):
            deql.load(place)

    @linux
    def test_are_mapped_and_not_read(self, tmp_path):
        n = 6000
        data = deql.Interactions.from_pairs(np.arange(n), np.arange(n))
        model = deql.EASE(l2=1.0).fit(data)
        model.save(tmp_path / "m.deql", shards="16MiB")
        program = (
            "import resource, deql\n"
            f"deql.load({str(tmp_path / 'm.deql')!r}).precision_.diagonal()\n"  # with all that it imports
            "limit = resource.getrlimit(resource.RLIMIT_DATA)[1]\n"
            "used = int(open('/proc/self/statm').read().split()[5]) * resource.getpagesize()\n"
            "resource.setrlimit(resource.RLIMIT_DATA, (used + 2**25, limit))\n"
            f"model = deql.load({str(tmp_path / 'm.deql')!r})\n"
            "assert model.precision_.data.nbytes > 2**26\n"
            "print(float(model.precision_.diagonal()[-1]))\n"
        )
        ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
        assert float(ended.stdout) == pytest.approx(0.5)

    def test_can_be_served(self, tmp_path, model):
        pytest.importorskip("fastapi")
        from deql.serve import snapshot

        model.save(tmp_path / "m.deql", shards="16MiB")
        taken = snapshot.take(tmp_path / "m.deql")
        try:
            assert taken.checksum == model.checksum()
            assert np.array_equal(deql.load(snapshot.path_of(taken.files["model"])).weights(), model.weights())
        finally:
            taken.close()
