"""A small shop: its table, and a model of it."""

import polars as pl
import pytest

from deql.cli import run

EVENTS = {
    "user_id": ["ann", "ann", "ann", "bob", "bob", "cid", "cid", "cid", "dee", "dee"],
    "item_id": ["tea", "jam", "oat", "tea", "jam", "jam", "egg", "oat", "tea", "[red]egg"],
}


@pytest.fixture
def events(tmp_path):
    path = tmp_path / "events.csv"
    pl.DataFrame(EVENTS).write_csv(path)
    return path


@pytest.fixture
def model_file(tmp_path, events):
    path = tmp_path / "shop.deql"
    assert run(["fit", str(events), "-o", str(path), "--l2", "1"]) == 0
    return path
