"""A small fit of the disk engine, killed between its two passes."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from deql.linalg.engines.disk import invert_on_disk, working_memory
from deql.linalg.engines.disk_tiles import DiskTiles
from deql.linalg.engines.engine import Problem
from tests.tuning.common import market

_N, _TILE, _PIVOT = 20, 8, 16


@cache
def _problem() -> Problem:
    return Problem(market(60, _N, seed=3).matrix, np.linspace(1.0, 3.0, _N), None, "float64")


def fit(folder: Path | None) -> Any:
    """P, from what the folder has."""
    budget = working_memory(_N, _TILE, np.float64, _PIVOT)
    return invert_on_disk(_problem(), budget, folder=folder, fingerprint="a", tile=_TILE)[0].data


@cache
def inverses(begun: Path) -> frozenset[bytes]:
    """P, bit for bit: fitted from nothing, and from what the folder has, which another processor may have rounded."""
    with TemporaryDirectory() as folder:
        copied = Path(shutil.copytree(begun, Path(folder) / "begun"))
        return frozenset(np.array(fit(start)).tobytes() for start in (None, copied))


def begun_fit(folder: Path) -> None:
    """Leave in a folder what a fit leaves that was killed after its first pass."""

    def killed(self: DiskTiles, start: int, stop: int) -> Any:
        if start:
            raise KeyboardInterrupt
        return usual(self, start, stop)

    usual = DiskTiles.pieces
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DiskTiles, "pieces", killed)
        with pytest.raises(KeyboardInterrupt):
            fit(folder)
