import json
import os
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
import safetensors.numpy
from safetensors import safe_open

import deql
from deql import DEQL, DLAE, EASE, EDLAE, LAE, RDLAE, RLAE, Interactions, ModelFileError, Popularity
from deql.io import container
from tests.models.contract import IDS

MODELS = {
    "EASE": EASE(l2=2.0),
    "EASE, float64": EASE(l2=2.0, dtype="float64", user_power=0.3, popularity_power=0.2),
    "LAE": LAE(l2=2.0),
    "DLAE": DLAE(l2=2.0, dropout=0.4),
    "EDLAE": EDLAE(l2=2.0, dropout=0.4),
    "RLAE": RLAE(l2=2.0, xi=0.3),
    "RDLAE": RDLAE(l2=2.0, dropout=0.4, xi=0.3),
    "DEQL, zero diagonal": DEQL(l2=2.0, b=2.0, zero_diagonal=True),
    "DEQL, b = inf": DEQL(l2=2.0, b=float("inf"), dtype="float64"),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.deql"


@pytest.fixture(scope="module")
def data(random_matrix):
    """Makes interactions with ids of the given kind."""
    return {kind: Interactions.from_csr(random_matrix(40, 12), items=ids) for kind, ids in IDS.items()}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The bytes of a small model's file, and where its header ends."""
    path = tmp_path_factory.mktemp("tiny") / "tiny.deql"
    EASE(l2=1.0).fit(Interactions.from_pairs(list("aabbc"), ["x", "y", "y", "ž", "x"])).save(path)
    content = path.read_bytes()
    return content, 8 + int.from_bytes(content[:8], "little")


def assert_refused(path, message=None, **options):
    with pytest.raises(ModelFileError, match=message) as caught:
        deql.load(path, **options)
    assert path.name in str(caught.value)
    assert isinstance(caught.value, deql.DeqlError)


def rewrite(path, **metadata):
    """Change a file's metadata and leave its arrays."""
    with safe_open(path, framework="numpy") as file:
        old = json.loads(file.metadata()["deql-model"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    safetensors.numpy.save_file(arrays, path, metadata={"deql-model": json.dumps(old | metadata)})


class TestRoundTrip:
    @pytest.mark.parametrize("name", MODELS)
    def test_keeps_what_was_learned_and_maps_p_from_disk(self, path, data, name):
        model = MODELS[name].fit(data["text"])
        model.save(path)
        loaded = deql.load(path)
        assert isinstance(loaded.precision_.data, np.memmap)
        assert not loaded.precision_.data.flags.writeable
        assert loaded.precision_.dtype == model.dtype
        assert loaded.precision_.data.tobytes() == model.precision_.data.tobytes()
        for name in ("gain_", "shift_", "gram_diagonal_"):
            assert getattr(loaded, name).tobytes() == getattr(model, name).tobytes()
        assert (loaded.residual_, loaded.engine_, loaded.paper_l2_) == (model.residual_, model.engine_, model.paper_l2_)
        assert loaded.weights().tobytes() == model.weights().tobytes()

    def test_of_a_model_in_tiles(self, path, random_matrix):
        model = EASE(l2=5.0).fit(random_matrix(60, 2100))
        assert model.precision_.n_blocks > 1
        model.save(path)
        found, expected = (m.recommend([[3, 2099]], k=5) for m in (deql.load(path), model))
        assert found.ids.tolist() == expected.ids.tolist()
        assert found.scores.tobytes() == expected.scores.tobytes()

    def test_without_the_checksum(self, path, data):
        EASE(l2=2.0).fit(data["text"]).save(path)
        assert deql.load(path, verify=False).recommend([["item 1"]], k=3).ids.shape == (1, 3)

    def test_of_a_loaded_model_over_its_own_file(self, path, data):
        DEQL(l2=2.0, b=0.5).fit(data["text"]).save(path)
        first = deql.load(path)
        other = first.with_rule(b=2.0)
        other.save(path)
        second = deql.load(path)
        assert second.b == 2.0
        assert second.weights().tobytes() == other.weights().tobytes()
        assert first.precision_.data.tobytes() == second.precision_.data.tobytes()

    @pytest.mark.parametrize("l2", [2, np.float64(2), np.float32(2), np.int64(2)], ids=repr)
    def test_of_parameters_that_are_any_kind_of_number(self, path, data, l2):
        EASE(l2=l2).fit(data["text"]).save(path)
        assert deql.load(path).l2 == 2


class TestDamage:
    def test_a_file_cut_short_anywhere(self, path, tiny):
        content, _ = tiny
        for length in range(len(content)):
            path.write_bytes(content[:length])
            assert_refused(path)

    def test_a_file_with_something_after_its_end(self, path, tiny):
        for extra in (b"\0", b"more", tiny[0]):
            path.write_bytes(tiny[0] + extra)
            assert_refused(path)

    def test_any_changed_byte_of_the_header(self, path, tiny):
        content, header = tiny
        for place in range(header):
            for mask in (1 << place % 8, 0x20):  # any bit, and the one between capital and small letters
                path.write_bytes(flipped(content, place, mask))
                assert_refused(path)

    def test_any_changed_byte_of_the_arrays(self, path, tiny):
        content, header = tiny
        assert len(content) > header + 100
        for place in range(header, len(content)):
            path.write_bytes(flipped(content, place, 1 << place % 8))
            assert_refused(path, "damaged: its checksum does not match")

    def test_two_numbers_swapped(self, path, tiny):
        content, header = tiny
        head = json.loads(content[8:header])
        start, _ = (header + offset for offset in head["gain"]["data_offsets"])
        first, second = content[start : start + 8], content[start + 8 : start + 16]
        assert first != second
        path.write_bytes(content[:start] + second + first + content[start + 16 :])
        assert_refused(path, "checksum")

    def test_numbers_taken_for_another_type(self, path, tiny):
        path.write_bytes(tiny[0].replace(b'"F64"', b'"I64"', 1))
        assert_refused(path, "checksum")

    @pytest.mark.parametrize("field", ["model", "parameters", "facts", "library_version", "checksum"])
    def test_metadata_that_was_edited(self, path, tiny, field):
        path.write_bytes(tiny[0])
        rewrite(path, **{field: "LAE" if field == "model" else '{"l2": 3.0}'})
        assert_refused(path, "checksum")

    @pytest.mark.parametrize(
        "metadata",
        [
            {"model": "LinearAutoencoder"},
            {"parameters": "{}{"},
            {"parameters": "[1]"},
            {"parameters": '{"colour": "red"}'},
            {"facts": "{}"},
            {"facts": '{"n_users": 3, "tile": 0, "residual": 0, "engine": "memory"}'},
            {"facts": '{"n_users": 3, "tile": 2, "residual": 0, "engine": "memory"}'},
            {"facts": "[]"},
        ],
        ids=repr,
    )
    def test_nonsense_is_refused_even_without_the_checksum(self, path, tiny, metadata):
        path.write_bytes(tiny[0])
        rewrite(path, **metadata)
        assert_refused(path, verify=False)


def flipped(content, place, mask):
    return content[:place] + bytes([content[place] ^ mask]) + content[place + 1 :]


class Bomb:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


class TestForeignFiles:
    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"user,item\n1,2\n",
            b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(100),
            b"PK\x03\x04" + bytes(100),
            bytes(64),
            b"\xff" * 64,
            pickle.dumps({"weights": [1.0, 2.0]}),
        ],
        ids=["empty", "text", "png", "zip", "zeros", "ones", "pickle"],
    )
    def test_are_refused(self, path, content):
        path.write_bytes(content)
        assert_refused(path)
        assert_refused(path, verify=False)

    @pytest.mark.parametrize("metadata", [None, {}, {"format": "pt"}, {"deql-model": "[1]"}])
    def test_safetensors_of_others_are_refused(self, path, metadata):
        safetensors.numpy.save_file({"weights": np.ones(3, np.float32)}, path, metadata=metadata)
        assert_refused(path, "is not a deql model file")

    def test_safetensors_of_types_that_models_do_not_use_are_refused(self, path):
        safetensors.numpy.save_file({"weights": np.ones(3, np.float16)}, path, metadata={"deql-model": "{}"})
        assert_refused(path)

    @pytest.mark.parametrize("protocol", [0, 2, pickle.HIGHEST_PROTOCOL])
    def test_a_pickle_is_never_run(self, path, tmp_path, protocol):
        mark = tmp_path / "mark"
        path.write_bytes(pickle.dumps(Bomb(mark), protocol))
        assert_refused(path)
        assert not mark.exists()
        pickle.loads(path.read_bytes())
        assert mark.exists(), "the bomb itself works"

    @pytest.mark.parametrize("version", ["2", "999", "", "two", "-1", "1.0", "²"])
    def test_of_another_format_version_are_refused(self, path, tiny, version):
        path.write_bytes(tiny[0])
        rewrite(path, format_version=version, library_version="9.8.7")
        assert_refused(path, r"9\.8\.7.*update deql")

    def test_of_an_unknown_kind_of_model_are_refused(self, path, data):
        @dataclass(eq=False)
        class Oracle(Popularity):
            pass

        Oracle().fit(data["text"]).save(path)
        assert_refused(path, "unknown kind 'Oracle'")

    def test_that_are_not_there_or_folders(self, tmp_path):
        assert_refused(tmp_path / "none.deql", "there is no model file")
        assert_refused(tmp_path, "there is no model in the folder")


class TestSaving:
    @pytest.fixture
    def old(self, path, data):
        """A file that must stay whole."""
        Popularity().fit(data["text"]).save(path)
        return path.read_bytes()

    def check_untouched(self, path, old):
        assert path.read_bytes() == old
        assert [file.name for file in path.parent.iterdir()] == [path.name]

    def test_that_fails_at_the_last_moment_leaves_the_old_file_whole(self, path, old, data, monkeypatch):
        def fail(*_):
            raise OSError(28, "No space left on device")

        model = EASE(l2=2.0).fit(data["text"])
        monkeypatch.setattr(os, "replace", fail)
        with pytest.raises(ModelFileError, match=r"could not be saved as .*model\.deql: no space left on device"):
            model.save(path)
        self.check_untouched(path, old)

    @pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=repr)
    def test_that_fails_half_way_leaves_the_old_file_whole(self, path, old, data, monkeypatch, error):
        def fail(place, metadata, arrays):
            place.write_bytes(b"half of it")
            raise error

        model = EASE(l2=2.0).fit(data["text"])
        monkeypatch.setattr(container, "write_arrays", fail)
        with pytest.raises(ModelFileError if isinstance(error, OSError) else KeyboardInterrupt):
            model.save(path)
        self.check_untouched(path, old)

    def test_is_on_disk_before_the_old_file_goes(self, path, old, data, monkeypatch):
        steps = []
        fsync, replace = os.fsync, os.replace
        monkeypatch.setattr(os, "fsync", lambda descriptor: (steps.append("fsync"), fsync(descriptor)))
        monkeypatch.setattr(os, "replace", lambda a, b: (steps.append("replace"), replace(a, b)))
        EASE(l2=2.0).fit(data["text"]).save(path)
        assert steps[:2] == ["fsync", "replace"]
        assert type(deql.load(path)) is EASE
        assert [file.name for file in path.parent.iterdir()] == [path.name]

    def test_into_a_folder_that_is_not_there(self, tmp_path, data):
        with pytest.raises(ModelFileError, match=r"there is no folder .*missing"):
            Popularity().fit(data["text"]).save(tmp_path / "missing" / "model.deql")

    def test_onto_a_folder(self, tmp_path, data):
        with pytest.raises(ModelFileError, match="is a folder"):
            Popularity().fit(data["text"]).save(tmp_path)

    def test_of_ids_that_are_neither_integers_nor_text(self, path, data):
        model = Popularity().fit(Interactions.from_csr(data["text"].matrix, items=[i + 0.5 for i in range(12)]))
        with pytest.raises(ModelFileError, match="integers or text"):
            model.save(path)
        assert not list(path.parent.iterdir())


def test_equal_models_are_equal_files(path, data):
    for kind in data:
        files = []
        for _ in range(2):
            DEQL(l2=1.0).fit(data[kind]).save(path)
            files.append(path.read_bytes())
        assert files[0] == files[1]
