"""Folders that are fuzzed: models in shards and partitions, one file of them damaged, or their index with its checksum.

They are made when they are needed, as shards are too large for the corpus.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from random import Random

import numpy as np

import deql
from deql.data.partition_folder import MANIFEST, _checksum
from deql.data.write import write_table
from deql.io.folder import INDEX, _sign
from tests.fixtures.write_files import interactions
from tests.fuzz.mutate import damage_bytes, damage_json, dump
from tests.fuzz.oracle import WrongError, check_interactions
from tests.tuning.common import market

FOLDERS = ("shards", "partitions")


@cache
def seeds(target: str) -> list[Path]:
    """The files of a folder that is whole."""
    above = Path(tempfile.mkdtemp(prefix="deql-fuzz-"))
    atexit.register(shutil.rmtree, above, ignore_errors=True)
    if target == "shards":
        deql.EASE(l2=1.0).fit(market(60, 250, seed=5)).save(above / "whole", shards="64KiB")
    else:
        write_table(interactions(), above / "table.csv")
        deql.read_partitions(above / "table.csv", "user", "item", folder=above / "whole", partitions=2)
    return sorted((above / "whole").iterdir())


def damage(target: str, folder: Path, random: Random) -> None:
    """A copy of the folder with some damage."""
    for path in seeds(target):
        shutil.copyfile(path, folder / path.name)
    index = folder / (INDEX if target == "shards" else MANIFEST)
    if random.random() < 0.6:
        said = json.loads(index.read_bytes())
        del said["checksum"]
        said = damage_json(said, random)
        if isinstance(said, dict):
            said["checksum"] = _sign(said) if target == "shards" else _checksum(said)
        index.write_bytes(dump(said))
        return
    path = folder / random.choice([one.name for one in seeds(target)])
    if random.random() < 0.1:
        path.unlink()
    else:
        path.write_bytes(damage_bytes(path.read_bytes(), random))


def use_shards(path: Path, random: Random) -> None:
    """Load a model, ask it, and save it again."""
    model = deql.load(path.parent, verify=random.random() < 0.8)
    histories = [model.items_[:1].tolist(), []]
    found = model.recommend(histories, k=3)
    model.explain(histories[0], model.items_[-1:].tolist()[0])
    if not np.isfinite(found.scores).all():
        return  # n² numbers, which loading does not look at
    model.save(path.parent / "again.deql", shards=True)
    if deql.load(path.parent / "again.deql").recommend(histories, k=3).ids.tolist() != found.ids.tolist():
        raise WrongError("saved and loaded again it answers otherwise")


def use_partitions(path: Path, random: Random) -> None:
    """Fit on partitions, and join them."""
    data = deql.read_partitions(path.parent)
    if random.random() < 0.5:
        deql.EASE(l2=1.0).fit(data).recommend([data.items[:1].tolist()], k=2)
    else:
        check_interactions(data.to_interactions(), None)
