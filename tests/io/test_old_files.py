"""Files that earlier versions wrote load, and what is in them answers as it did then."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import deql
from deql.errors import JournalError
from deql.io.journal import read_records
from deql.serve.settings import read_curve
from tests.fixtures.write_files import (
    ENDINGS,
    HISTORIES,
    MODELS,
    SPACE,
    interactions,
    numbered,
    on_disk,
    tuning_split,
    with_more,
)

ROOT = Path(__file__).parents[2]
FOLDERS = sorted((ROOT / "tests/fixtures").glob("files-*"))
ALL = {
    ending: [path for folder in FOLDERS for path in sorted(folder.glob(f"*{ending}"))] for ending in (".deql", ".split")
}


def _answers(path):
    return json.loads((path.parent / "answers.json").read_text())[path.stem]


def _name(path):
    return f"{path.parent.name}-{path.name}"


@pytest.mark.parametrize("path", ALL[".deql"], ids=_name)
def test_models(path, tmp_path):
    said = _answers(path)
    model = deql.load(path)
    histories = numbered(HISTORIES) if model.items_.dtype.kind == "i" else HISTORIES
    model.save(tmp_path / "again.deql")
    for loaded in (model, deql.load(tmp_path / "again.deql")):
        ids, scores = loaded.recommend(histories, k=3)
        assert ids.tolist() == said["ids"]
        np.testing.assert_array_equal(scores, said["scores"])
        assert said.get("data") == (None if loaded.data_ is None else loaded.data_.matrix.toarray().tolist())
        assert said.get("titles") == (None if loaded.titles_ is None else loaded.titles_.tolist())
        if path.stem != "popularity":  # whose score is not made of parts
            parts = loaded.explain(histories[1], ids[1][0])
            assert sum(part.value for part in parts) == scores[1][0]


@pytest.mark.parametrize("path", ALL[".split"], ids=_name)
def test_splits(path):
    split = deql.load_split(path)
    for part, held_out in _answers(path).items():
        assert getattr(split, part).held_out.matrix.toarray().tolist() == held_out


@pytest.mark.parametrize("path", [folder / f"table{ending}" for folder in FOLDERS for ending in ENDINGS], ids=_name)
def test_tables(path):
    expected = with_more()
    if path.suffix == ".npz":
        data = deql.read_interactions(path)
    else:
        data = deql.read_interactions(path, 1, 2, weight=3, time=4)
        assert data.users.tolist() == expected.users.tolist()
        assert data.items.tolist() == expected.items.tolist()
        assert data.times.tolist() == expected.times.tolist()
    assert data.matrix.toarray().tolist() == expected.matrix.toarray().tolist()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_tiles(folder, tmp_path):
    """A fit that is done is not done again."""
    shutil.copytree(folder / "tiles", tmp_path / "tiles")
    model = on_disk(tmp_path / "tiles")
    expected = deql.EDLAE(l2=1.0, engine="memory").fit(interactions())
    np.testing.assert_allclose(model.precision_.to_dense(), expected.precision_.to_dense(), rtol=1e-5)
    kept = [(path.name, path.read_bytes()) for path in sorted((folder / "tiles").iterdir())]
    found = [(path.name, path.read_bytes()) for path in sorted((tmp_path / "tiles").glob("*[!k]"))]
    assert found == kept


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_journals(folder, tmp_path):
    """What was measured is read; a search that is made otherwise now says so rather than mixing the two."""
    said = _answers(folder / "search.jsonl")
    journal = shutil.copy(folder / "search.jsonl", tmp_path / "search.jsonl")
    records = read_records(journal)
    assert len(records) == said["steps"]
    assert records[-1]["best"] == said["best"]
    assert read_curve(journal)["parameters"] == said["best"]
    try:
        found = deql.tune(tuning_split(), SPACE, journal=journal).best
    except JournalError as error:
        found = str(error)
    assert found == said["best"] or "is the journal of a search with other" in found


def test_every_released_version_has_its_files():
    """At a release: python -m tests.fixtures.write_files tests/fixtures/files-X.Y"""
    changes = (ROOT / "CHANGELOG.md").read_text()
    released = [*re.findall(r"^## \[(\d+\.\d+)", changes, re.MULTILINE), ".".join(deql.__version__.split(".")[:2])]
    assert {f"files-{version}" for version in released} <= {folder.name for folder in FOLDERS}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_kind_is_there(folder):
    names = {path.name for path in folder.iterdir()}
    expected = {f"{name}.deql" for name in (*MODELS, "titles")} | {
        f"{name}.split" for name in ("strong", "weak", "last")
    }
    expected |= {f"table{ending}" for ending in ENDINGS} | {"search.jsonl", "tiles", "answers.json"}
    if folder.name != "files-0.1":  # which had none yet
        expected.add("rows.deql")
    assert expected <= names
