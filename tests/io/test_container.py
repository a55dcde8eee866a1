import base64
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

import deql
from deql.errors import ModelFileError, SplitFileError
from deql.io.atomic import remove_stale
from deql.io.container import FileKind, pack_text, read, unpack_text, write, write_arrays

# EASE(l2=1) on a: x y, b: y ž, c: x, as version 0.1.0 wrote it.
VERSION_1 = (
    "eNqVU71u2zAQtttMfYcABmfFoET92WjjdkiBLl4KT1EgUBRlC5VEVaLSCIYfwEBfIENfoY+QGv3ZsgcdC3QMkK6dXFGUYcstUuQGHe+++473Q60e"
    "d2qZA9eNKcc+5th1wXAOfPo2OoqZTyMwBHMHkBklb/IidsCw5wCMdc9GAdEtE0ICLYStwAyoPSCU6BghByhVVIAJzyVh7jgOoMk0TKg4Va7qG9OY"
    "ZaU4KbWduEVOs1wGIOnLaB76BY6kU+sjW1dtwxqoUDVMzaBH0JKBPIya1GjRXM+yGHP3vEoZskTWoUooCr0MZ2Ubg321DyVeNy69Jy9en0hnijNc"
    "DUlUuO3J52W601IQMcyRtu1pv2dccLZFI00i1cXSkbK0iHAW8tJN2TuaSRhuYDGfPaBp9pwR7Alq6bZXpULPHKiWb3iWZgYeMqiGbY9YFJEB9rDh"
    "gAVYKCDkNHYJKxKe1+sXbVWbf2XqQAH5DAvrFJ0poH4iLAhyKiJPoaLpZw0/d2ni30PX/6ZrumKYgj/FYbLLfPm/iw1TsWHNrLbi+iGesgRHD0ph"
    "Q0WFdfX5LAz4g7gVUVE1W5DTjJJQPKNWAqTtJBj8I4FmK6q5MztOL1olTOz7R1eRqwRVBYte75H8jTsb3e20pbuHHzT64+Xlj+vrg9XTn/b7yaS7"
    "etJZ3a3Xvz818PO2/jVa13I32tgbPb79enyzPLy6WX54JvTn8e3xl3FU20J/Xx6OLspvV38Ajy5cEw=="
)
MODEL = FileKind("deql-model", 1, ModelFileError, "fit the model again")
SPLIT = FileKind("deql-split", 1, SplitFileError, "make the split again")


def test_the_first_model_files_are_still_read_and_written(tmp_path):
    old, new = tmp_path / "old.deql", tmp_path / "new.deql"
    old.write_bytes(zlib.decompress(base64.b64decode(VERSION_1)))
    model = deql.load(old)
    assert type(model) is deql.EASE
    assert model.weighted_ is None
    assert (model.l2, model.n_users_, model.items_.tolist()) == (1.0, 3, ["x", "y", "ž"])
    # By hand: A = [[3, 1, 0], [1, 3, 1], [0, 1, 2]], det 13, adjugate [[5, -2, 1], [-2, 6, -3], [1, -3, 8]].
    np.testing.assert_allclose(model.weights(), [[0, 2 / 6, -1 / 8], [2 / 5, 0, 3 / 8], [-1 / 5, 3 / 6, 0]], atol=1e-6)
    model.save(new)
    if deql.__version__ == "0.1.0":
        assert new.read_bytes() == old.read_bytes()


@given(st.lists(st.text()), st.sampled_from(["items", "titles"]))
def test_text_comes_back(texts, name):
    values = np.empty(len(texts), object)
    values[:] = texts
    packed = pack_text(name, values)
    assert set(packed) == {f"{name}_text", f"{name}_ends"}
    found = unpack_text(name, packed)
    assert found.dtype == object
    assert found.tolist() == texts


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_whole_numbers_come_back(numbers):
    packed = pack_text("items", np.array(numbers, np.int64))
    assert set(packed) == {"items"}
    assert unpack_text("items", packed).tolist() == numbers


def test_several_under_names_of_their_own():
    packed = pack_text("items", np.array(["a", "b"], object)) | pack_text("titles", np.array(["Café", ""], object))
    assert unpack_text("items", packed).tolist() == ["a", "b"]
    assert unpack_text("titles", packed).tolist() == ["Café", ""]


def test_anything_else_is_refused():
    with pytest.raises(TypeError, match="items can be saved only if they are integers or text"):
        pack_text("items", np.array([1.5, 2.5], object))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.uint8])
def test_arrays_come_back_with_their_type(tmp_path, dtype):
    arrays = {"full": np.arange(7).astype(dtype), "empty": np.empty(0, dtype)}
    write(SPLIT, tmp_path / "a", {"note": "é"}, arrays)
    metadata, found = read(SPLIT, tmp_path / "a")
    assert metadata == {"note": "é", "format_version": "1", "library_version": deql.__version__}
    for name, array in arrays.items():
        assert found[name].dtype == dtype
        assert found[name].tolist() == array.tolist()


def test_each_kind_of_file_says_what_it_is(tmp_path):
    path = Path(tmp_path / "a")
    for mine, other, error in ((MODEL, SPLIT, ModelFileError), (SPLIT, MODEL, SplitFileError)):
        write(other, path, {}, {"x": np.ones(3)})
        with pytest.raises(error, match=f"is not a deql {mine.noun} file but a {other.noun} file"):
            read(mine, path)


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"a": np.zeros((0, 3), np.float32), "b": np.arange(3, dtype=np.uint8), "c": np.ones(2)},
        {
            "text": np.arange(5, dtype=np.uint8),
            "ends": np.arange(4),
            "small": np.arange(3, dtype=np.int32),
            "z": np.ones((2, 3), np.float32),
            "y": np.ones((3, 2)).T,
            "é": np.array(7.0),
        },
    ],
)
def test_files_are_those_of_safetensors_byte_for_byte(arrays, tmp_path):
    metadata = {"deql-model": 'ü\n"x"'}
    write_arrays(tmp_path / "ours", metadata, arrays)
    theirs = {name: np.array(array, order="C") for name, array in arrays.items()}
    save_file(theirs, tmp_path / "theirs", metadata=metadata)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_a_load_leaves_alone_what_another_process_saves(tmp_path):
    """Both look for what killed processes left; a save that goes on is none of it."""
    path = tmp_path / "m.deql"
    code = (
        "import numpy as np; from pathlib import Path; from deql.io.container import write\n"
        "from deql.io.model_file import _KIND\n"
        "for _ in range(8):\n"
        f"    write(_KIND, Path({str(path)!r}), {{}}, {{'a': np.ones(4_000_000)}})"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    loads = 0
    while process.poll() is None:
        remove_stale(path)
        loads += 1
    assert process.communicate()[1] == ""
    assert process.returncode == 0
    assert loads > 1
    assert [one.name for one in tmp_path.iterdir()] == ["m.deql"]


def test_a_killed_save_leaves_nothing_that_the_next_one_does_not_remove(tmp_path):
    path = tmp_path / "m.deql"
    code = (
        "import numpy as np; from pathlib import Path; from deql.io.container import write\n"
        "from deql.io.model_file import _KIND\n"
        f"write(_KIND, Path({str(path)!r}), {{}}, {{'a': np.ones(20_000_000)}})"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    while not sum(one.stat().st_size for one in tmp_path.iterdir()):
        assert process.poll() is None
    process.kill()
    process.wait(20)
    assert len(list(tmp_path.iterdir())) == 1
    write(MODEL, path, {}, {})
    assert [one.name for one in tmp_path.iterdir()] == ["m.deql"]
