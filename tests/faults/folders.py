"""Folders that are written whole or not at all: models in shards, and partitions of a table."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import deql
from deql.data.write import write_table
from tests.faults.injection import READING, Operation
from tests.fixtures.write_files import interactions
from tests.tuning.common import market


def folder_operations() -> list[Operation]:
    """All of them."""
    return [_save_shards(), _load_shards(), _write_partitions(), _read_partitions()]


@cache
def _model(l2: float) -> Any:
    """Of so many items that P is in shards."""
    return deql.EASE(l2=l2).fit(market(300, 250, seed=5))


def _is_second(folder: Path) -> None:
    np.testing.assert_array_equal(deql.load(folder / "shop.deql").weights(), _model(2.0).weights())


def _save_shards() -> Operation:
    return Operation(
        "save ease in shards",
        prepare=lambda folder: _model(1.0).save(folder / "shop.deql", shards="64KiB"),
        act=lambda folder: _model(2.0).save(folder / "shop.deql", shards="64KiB"),
        holds=lambda folder, _: _is_second(folder),
    )


def _load_shards() -> Operation:
    return Operation(
        "load ease in shards",
        prepare=lambda folder: _model(2.0).save(folder / "shop.deql", shards="64KiB"),
        act=lambda folder: deql.load(folder / "shop.deql"),
        holds=lambda _, model: np.testing.assert_array_equal(model.weights(), _model(2.0).weights()),
        kinds=READING,
    )


def _write_partitions() -> Operation:
    def act(folder: Path) -> None:
        shutil.rmtree(folder / "parts", ignore_errors=True)  # whole where the fault came late, and not written over
        deql.read_partitions(folder / "table.csv", "user", "item", folder=folder / "parts", partitions=2)

    return Operation(
        "write partitions",
        prepare=lambda folder: write_table(interactions(), folder / "table.csv"),
        act=act,
        holds=lambda folder, _: _same_data(deql.read_partitions(folder / "parts")),
    )


def _read_partitions() -> Operation:
    def prepare(folder: Path) -> None:
        write_table(interactions(), folder / "table.csv")
        deql.read_partitions(folder / "table.csv", "user", "item", folder=folder / "parts", partitions=2)

    return Operation(
        "read partitions",
        prepare=prepare,
        act=lambda folder: deql.read_partitions(folder / "parts").to_interactions(),
        holds=lambda _, data: _same_rows(data),
        kinds=READING,
    )


def _same_data(parts: deql.PartitionedInteractions) -> None:
    assert len(parts.parts) == 2
    _same_rows(parts.to_interactions())


def _same_rows(data: deql.Interactions) -> None:
    expected = interactions()
    assert {user: sorted(data.history(user)) for user in data.users.tolist()} == {
        user: sorted(expected.history(user)) for user in expected.users.tolist()
    }
