"""Lists for all users of a table: a Parquet file for each part of them, and after an interruption only the rest."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.checks import check_whole
from deql._system.formatting import parse_json
from deql._system.lazy import pl
from deql._system.progress import stages
from deql._version import __version__
from deql.cluster.tasks import SharedModel, cluster_with, load_shared
from deql.data import Interactions
from deql.data.interactions import ItemId
from deql.data.readers.frames import unreadable
from deql.errors import DataError, ParameterError
from deql.io.atomic import write_text
from deql.io.container import digest
from deql.linalg.engines.dask_tasks import handed_over, run_tasks
from deql.models.bulk import Written

__all__ = ["ASKED", "recommend"]

ASKED = "_recommendations.json"
"""What the lists in a folder are of; readers of folders of Parquet files pass over names that begin so."""


class UserPart(Protocol):
    """Some users with all of their interactions, as :class:`deql.data.partitions.Partition` has them in a file."""

    @property
    def n_users(self) -> int:
        """How many."""

    def load_with_users(self) -> tuple[NDArray[Any], csr_array]:
        """Their ids and their rows, all items wide."""


@dataclass(frozen=True, eq=False)
class UserSlice:
    """Users of a table in memory."""

    users: NDArray[Any]
    matrix: csr_array

    @property
    def n_users(self) -> int:
        """How many."""
        return len(self.users)

    def load_with_users(self) -> tuple[NDArray[Any], csr_array]:
        """Their ids and their rows."""
        return self.users, self.matrix


def recommend(
    model: str | os.PathLike[str],
    data: Any,
    client: Any,
    folder: str | os.PathLike[str],
    k: int = 20,
    exclude_seen: bool = True,
    exclude: Iterable[ItemId] | None = None,
    candidates: Iterable[ItemId] | None = None,
    strict: bool = False,
    *,
    reasons: int = 0,
    users_per_part: int = 50_000,
    progress: bool = False,
) -> Written:
    """The k best items for every user of a table, by the workers of a Dask cluster.

    Each part of the users becomes a Parquet file in ``folder``, as
    :meth:`~deql.Recommender.write_recommendations` writes it, to the last bit. A file is there whole or not at all, and
    who asks the same again has only those made that are missing.

    Parameters
    ----------
    model : path
        Of a model file or folder that all workers see; it is mapped once by each of their processes.
    data : Interactions or PartitionedInteractions
        The users' histories; what lies in partitions is read by the workers.
    client : distributed.Client or str
        The cluster, or the address of its scheduler.
    folder : path
        Which all workers see; made if it is not there.
    k, exclude_seen, exclude, candidates, strict, reasons
        As in :meth:`~deql.Recommender.recommend`.
    users_per_part : int, default 50,000
        How many users of a table in memory are a part; partitions are parts of their own.
    progress : bool, default False
        Show a bar.

    Returns
    -------
    Written
        ``rows``, ``users``, and how many of these are ``from_popularity``, in all parts.

    Raises
    ------
    ClusterError
        If there is no cluster, or its workers lack this version of deql, the model or the folder.
    DataError
        If the folder holds something else.

    Examples
    --------
    >>> import deql, deql.cluster
    >>> deql.cluster.recommend("shop.deql", data, "tcp://scheduler:8786", "lists")  # doctest: +SKIP
    Written(rows=20000000, users=1000000, from_popularity=12)
    """
    check_whole("k", k)
    check_whole("reasons", reasons, least=0)
    check_whole("users_per_part", users_per_part)
    shared = SharedModel(model)
    exclude, candidates = _listed(exclude), _listed(candidates)
    shared.model._allowed(exclude, candidates, strict)
    parts = _parts(data, users_per_part)
    _check_items(shared.model, data, strict)
    options = {"k": int(k), "exclude_seen": bool(exclude_seen), "exclude": exclude, "candidates": candidates,
               "strict": bool(strict), "reasons": int(reasons)}  # fmt: skip
    place = Path(os.path.abspath(folder))
    asked = {"deql": __version__, "model": shared.checksum, "data": _fingerprint(data), "parts": len(parts)}
    with cluster_with(client, shared, place) as connected, stages(progress) as stage:
        _prepare(place, asked | options)
        paths = [place / f"part-{number:05d}.parquet" for number in range(len(parts))]
        there = {number: _already(path, parts[number].n_users) for number, path in enumerate(paths) if path.is_file()}
        found = {number: written for number, written in there.items() if written is not None}
        missing = [number for number in range(len(parts)) if number not in found]
        with handed_over(connected, "items", data.items) as items:
            tasks = [(shared.key, parts[number], items, str(paths[number]), options) for number in missing]
            for task, written in run_tasks(connected, "recommend", _write_part, tasks, stage("Recommend")):
                found[missing[task]] = written
    return Written(*(sum(counts) for counts in zip(Written(0, 0, 0), *found.values(), strict=True)))


def _listed(ids: Iterable[ItemId] | None) -> Any:
    """Ids in an order that is the same in every process, as that of a set of strings is not."""
    if ids is None or isinstance(ids, str):  # which is no list of letters: the model says so
        return ids
    return sorted(ids, key=lambda one: (type(one).__name__, one)) if isinstance(ids, Set) else list(ids)


def _parts(data: Any, users_per_part: int) -> list[UserPart]:
    if isinstance(data, Interactions):
        return [
            UserSlice(data.users[first : first + users_per_part], data.matrix[first : first + users_per_part])
            for first in range(0, data.n_users, users_per_part)
        ]
    if not hasattr(data, "parts"):
        raise ParameterError(
            f"expected Interactions or partitions of them, got {type(data).__name__}", parameter="data"
        )
    return list(data.parts)


def _check_items(model: Any, data: Any, strict: bool) -> None:
    """Unknown items are an error or warned of once, and not by every part."""
    counts = np.bincount(data.matrix.indices, minlength=data.n_items) if isinstance(data, Interactions) else (
        data.item_counts
    )  # fmt: skip
    row = csr_array((counts > 0).astype(np.float32)[None])
    model._encode(Interactions(row, np.zeros(1, np.int64), data.items), strict=strict)


def _fingerprint(data: Any) -> str:
    """What the data are, wherever they lie: a folder of partitions may be another mount by now."""
    if isinstance(data, Interactions):
        matrix = data.matrix
        arrays = {"indptr": matrix.indptr, "indices": matrix.indices, "data": matrix.data}
        names = {what: json.dumps(getattr(data, what).tolist(), default=str) for what in ("users", "items")}
        return digest(names, {name: np.asarray(array) for name, array in arrays.items()})
    parts = [(part.n_users, part.n_interactions, part.checksum) for part in data.parts]
    return digest({"parts": json.dumps(parts), "items": json.dumps(data.items.tolist(), default=str)}, {})


def _prepare(place: Path, asked: dict[str, Any]) -> None:
    """The folder for these lists: a new one, or one in which some of them are."""
    told = parse_json(json.dumps(asked, default=str))
    about = place / ASKED
    if about.is_file():
        try:
            other = parse_json(about.read_text(encoding="utf-8"))
        except ValueError:
            other = None
        if other != told:
            differ = [name for name in told if not isinstance(other, dict) or other.get(name) != told[name]]
            raise DataError(
                f"{place} holds lists that were asked for otherwise ({', '.join(differ)}): name another folder, or "
                "remove it"
            )
        return
    if any(not one.name.startswith(".") for one in place.iterdir()):
        raise DataError(f"{place} is a folder with other files in it: name a new one for the lists")
    write_text(about, json.dumps(told, indent=1))


def _already(path: Path, users: int) -> Written | None:
    """What a part that is there holds; None if it cannot be read, and so is to be made again."""
    try:
        firsts = pl.scan_parquet(path).filter(pl.col("rank") == 1)
        rows = pl.scan_parquet(path).select(pl.len()).collect().item()
        return Written(rows, users, int(firsts.select(pl.col("from_popularity").sum()).collect().item()))
    except unreadable():
        return None


def _write_part(
    key: tuple[str, str, int], part: UserPart, items: NDArray[Any], path: str, options: dict[str, Any]
) -> Written:
    model = load_shared(*key)
    users, matrix = part.load_with_users()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # told of once, where the lists were asked for
        return model.write_recommendations(path, Interactions(matrix, users, items), **options)
