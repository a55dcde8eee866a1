"""Model files that are wrong in what they hold, under a right checksum: refused in a sentence, for every kind."""

import json
from pathlib import Path

import numpy as np
import pytest

import deql
from deql.cli import run
from deql.errors import ModelFileError
from deql.io import container
from deql.io.model_file import _KIND, digest
from tests import fixtures

FILES = {path.stem: path for path in sorted(Path(fixtures.__file__).parent.glob("files-0.1/*.deql"))}
del FILES["titles"]  # whose ids are numbers

# What takes as long to look through as to read: P, and all but the diagonal of a dense W.
LARGE = {"precision", "weights"}
IDS = {"items", "items_text", "items_ends"}


def contents(kind):
    metadata, arrays = container.read(_KIND, FILES[kind])
    return metadata, {name: np.array(array) for name, array in arrays.items()}


def forged(path, metadata, arrays, **changed):
    """Write the file with a right checksum, of the vocabulary too unless that is what is changed."""
    ids = {name: arrays[name] for name in IDS if name in arrays}
    container.write(_KIND, path, metadata | {"vocabulary_checksum": digest({}, ids)} | changed, arrays)
    return path


def refused(path, words=""):
    for verify in (True, False):
        with pytest.raises(ModelFileError, match=words or None) as caught:
            deql.load(path, verify=verify)
        assert str(caught.value).startswith(f"{path} is damaged: ")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none(tmp_path, kind, value):
    metadata, arrays = contents(kind)
    floats = [name for name, array in arrays.items() if array.dtype.kind == "f" and name not in LARGE]
    assert floats or kind in ("popularity", "custom")
    for name in floats:
        bad = arrays[name].copy()
        bad.flat[len(bad) // 2] = value
        refused(forged(tmp_path / "a.deql", metadata, arrays | {name: bad}), "finite")


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, -1.0])
def test_a_diagonal_of_p_that_is_none(tmp_path, value):
    metadata, arrays = contents("deql")
    width = json.loads(metadata["facts"])["tile"]
    arrays["precision"][2 * min(width, len(arrays["gain"])) + 2] = value
    refused(forged(tmp_path / "m.deql", metadata, arrays), "the diagonal of its P is not positive at place 2")


@pytest.mark.parametrize("kind", FILES)
def test_arrays_of_another_size_or_type_or_none(tmp_path, kind):
    metadata, arrays = contents(kind)
    for name, array in arrays.items():
        others = [array[:-1], np.concatenate([array, array[-1:]]), array.reshape(1, *array.shape)]
        others.append(array.astype(np.int32 if array.dtype != np.int32 else np.float32))
        if name in ("indptr", "rows"):  # SciPy takes these in any type, and as long as may be
            others = others[:1]
        for other in others:
            refused(forged(tmp_path / "a.deql", metadata, arrays | {name: np.ascontiguousarray(other)}))
        left = {key: value for key, value in arrays.items() if key != name}
        if name != "right":  # without it both factors are one
            refused(forged(tmp_path / "a.deql", metadata, left))


@pytest.mark.parametrize("kind", FILES)
def test_ids(tmp_path, kind):
    metadata, arrays = contents(kind)
    refused(forged(tmp_path / "a.deql", metadata, arrays, vocabulary_checksum="0" * 32), "checksum of its item ids")
    text, ends = arrays["items_text"], arrays["items_ends"]
    same = arrays | {
        "items_text": np.tile(text[: ends[1]], len(ends) - 1),
        "items_ends": np.arange(len(ends)) * ends[1],
    }
    refused(forged(tmp_path / "a.deql", metadata, same), "not all different")
    for wrong in (ends[::-1], ends + 1, ends - 1, ends * 0, np.append(ends[:-1], 10**15)):
        refused(forged(tmp_path / "a.deql", metadata, arrays | {"items_ends": np.ascontiguousarray(wrong)}))
    titles = {"titles_text": text, "titles_ends": np.append(ends[:-2], ends[-1])}
    refused(forged(tmp_path / "a.deql", metadata, arrays | titles), "titles and item ids differ")


@pytest.mark.parametrize("kind", FILES)
def test_facts_and_parameters(tmp_path, kind):
    metadata, arrays = contents(kind)
    for place in ("facts", "parameters"):
        plain = json.loads(metadata[place])
        wrong = ['"x"', "[]", "[" * 100_000, '{"l2":' * 100_000, '{"n_users": 1' + "0" * 5000 + "}"]
        numbers = [name for name, value in plain.items() if type(value) in (int, float)]
        for name in numbers:
            if (name, kind[:3]) == ("b", "low"):  # which version 0.1 wrote, and nobody reads
                continue
            values = ["many", float("nan"), -1, None, [1], 10**400] if place == "facts" else ["many", float("nan")]
            wrong += [json.dumps(plain | {name: value}) for value in values]
        for text in wrong:
            refused(forged(tmp_path / "a.deql", metadata | {place: text}, arrays))
    assert forged(tmp_path / "a.deql", metadata, arrays)
    deql.load(tmp_path / "a.deql")


def test_counts_below_none(tmp_path):
    metadata, arrays = contents("popularity")
    refused(forged(tmp_path / "a.deql", metadata, arrays | {"item_counts": arrays["item_counts"] - 10**6}), "users")


def test_the_command_line_says_it_in_a_sentence(capsys, tmp_path):
    metadata, arrays = contents("deql")
    arrays["gain"][1] = np.nan
    path = forged(tmp_path / "a.deql", metadata, arrays)
    for command in (["similar", path, "tea"], ["recommend", path, "tea"], ["explain", path, "tea", "jam"]):
        assert run(list(map(str, command))) == 2
        assert capsys.readouterr().err == f"deql: error: {path} is damaged: its gain is not finite at place 1\n"
