"""Files that earlier versions wrote load, and what is in them answers as it did then."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import deql
from tests.fixtures.write_files import HISTORIES

FOLDERS = sorted((Path(__file__).parents[1] / "fixtures").glob("files-*"))
MODELS = [path for folder in FOLDERS for path in sorted(folder.glob("*.deql"))]
SPLITS = [path for folder in FOLDERS for path in sorted(folder.glob("*.split"))]


def _answers(path):
    return json.loads((path.parent / "answers.json").read_text())[path.stem]


@pytest.mark.parametrize("path", MODELS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_models(path, tmp_path):
    said = _answers(path)
    model = deql.load(path)
    model.save(tmp_path / "again.deql")
    for loaded in (model, deql.load(tmp_path / "again.deql")):
        ids, scores = loaded.recommend(HISTORIES, k=3)
        assert ids.tolist() == said["ids"]
        np.testing.assert_array_equal(scores, said["scores"])
        if path.stem != "popularity":  # whose score is not made of parts
            parts = loaded.explain(HISTORIES[1], ids[1][0])
            assert sum(part.value for part in parts) == scores[1][0]


@pytest.mark.parametrize("path", SPLITS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_splits(path):
    split = deql.load_split(path)
    for part, held_out in _answers(path).items():
        assert getattr(split, part).held_out.matrix.toarray().tolist() == held_out


def test_every_model_is_there():
    assert len(MODELS) >= 16
    assert len(SPLITS) >= 2
