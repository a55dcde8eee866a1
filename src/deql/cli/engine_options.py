"""Where a command's fit is computed: engines as typed, plans, and fits that resume after a kill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer

from deql._system.formatting import show_bytes
from deql._system.tables import counted
from deql._system.threads import set_threads
from deql.cli.output import option_name, say
from deql.cli.prior_options import planned_columns
from deql.data.partitions import TrainingData
from deql.errors import DeqlError, ParameterError, TileFileError
from deql.linalg.engines.dask_cluster import Cluster
from deql.linalg.engines.dask_connection import connect
from deql.linalg.engines.dask_engine import Dask
from deql.linalg.engines.disk import Disk
from deql.linalg.engines.engine import Engine
from deql.linalg.engines.neighbours import Neighbours
from deql.linalg.engines.tile_folder import has_checkpoint
from deql.linalg.planner.choose import Auto, as_engine, choose_engine, engine_from_config
from deql.linalg.planner.planner import prior_bytes
from deql.models.linear import LinearAutoencoder

__all__ = ["EngineOptions", "cluster_words", "engine_option", "fit_resumably", "kept_until_saved"]

EngineName = Literal["auto", "memory", "disk", "torch", "dask", "neighbours"]


@dataclass(frozen=True)
class EngineOptions:
    """Where the inverse is computed, as asked for on the command line."""

    section: ClassVar[str] = "Where it is computed"

    engine: Annotated[EngineName | None, typer.Option(help="Where the inverse is computed; auto: where it fits.")] = (
        None
    )
    memory: Annotated[
        str | None, typer.Option(help="What the disk engine may take (half of what is free).", metavar="4GiB")
    ] = None
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Where the disk engine keeps its tiles (beside the model file); of dask: shared storage.",
            metavar="DIR",
        ),
    ] = None
    arithmetic: Annotated[
        str | None, typer.Option(help="Of the torch engine's products: float32, tf32, ...; the best if not given.")
    ] = None
    precision: Annotated[str | None, typer.Option(hidden=True, help="What --arithmetic was called once.")] = None
    scheduler: Annotated[
        str | None,
        typer.Option(help="Of dask or neighbours: address or file of a cluster's scheduler.", metavar="ADDRESS"),
    ] = None
    neighbours: Annotated[
        int | None, typer.Option(help="Of the neighbours engine: items in each neighbourhood (400).", metavar="K")
    ] = None
    device: Annotated[str | None, typer.Option(help="Of the torch engine, elsa or a network: cuda, cuda:1 or cpu.")] = (
        None
    )
    threads: Annotated[int | None, typer.Option(help="How many threads; as many as processors if not given.")] = None

    def parameters(self) -> dict[str, Any]:
        """What was typed: the name of an engine and its parameters."""
        if self.neighbours is not None and self.engine not in (None, "auto", "neighbours"):
            raise ParameterError(
                f"--neighbours is the neighbours engine's: leave it out with --engine {self.engine}",
                parameter="neighbours",
            )
        if self.neighbours is not None and self.neighbours < 1:
            raise ParameterError(
                f"--neighbours must be a whole number from 1 up, got {self.neighbours}", parameter="neighbours"
            )
        if self.arithmetic and self.precision:
            raise ParameterError(
                "arithmetic is given twice, as --arithmetic and as --precision", parameter="arithmetic"
            )
        typed = {
            name: getattr(self, name) for name in ("engine", "memory", "folder", "arithmetic", "scheduler", "device")
        }
        typed["arithmetic"] = self.arithmetic or self.precision
        parameters: dict[str, Any] = {name: str(value) for name, value in typed.items() if value is not None}
        return parameters if self.neighbours is None else parameters | {"k": self.neighbours}

    def use(self) -> None:
        """Refuse what can be refused before anything is read, and set the number of threads."""
        if self.folder is not None and self.folder.exists() and not self.folder.is_dir():
            raise ParameterError(f"{self.folder} is not a folder: name one for --folder")
        if self.threads is not None:
            set_threads(self.threads)

    def refuse_with(self, other: str, why: str) -> None:
        """Refuse what was typed beside something that tunes: it fits many models, and chooses where."""
        for name in self.parameters():
            raise ParameterError(f"{engine_option(name)} does not go with {other}{why}")

    def tiles(self, out: Path | None, engine: str | Engine) -> Path:
        """Where the disk engine keeps its tiles: the same place for the same command."""
        out = Path("model").absolute() if out is None else out.absolute()
        beside = out.with_name(f".{out.name}.tiles")
        return beside if self.folder is None or self.shared(engine) else self.folder

    def shared(self, engine: str | Engine) -> Path | None:
        """The folder of a cluster's workers, if the engine is theirs and one is named."""
        return self.folder if isinstance(as_engine(engine), Dask) else None

    def chosen(self) -> Engine:
        """The engine that was typed."""
        return as_engine(engine_from_config(self.parameters()))

    def planned(self, interactions: TrainingData, dtype: str | None, tiles: Path) -> dict[str, Any]:
        """Arguments of a plan."""
        engine = self.chosen().name
        if engine in ("dask", "neighbours"):
            return {"data": interactions, "engine": self.chosen()} | ({"dtype": dtype} if dtype else {})
        named = {"data": interactions, "engine": engine, "memory": self.memory, "folder": tiles, "device": self.device}
        return named | ({"dtype": dtype} if dtype else {})


def engine_option(parameter: str) -> str:
    """An engine's parameter as it is typed.

    Examples
    --------
    >>> engine_option("folder"), engine_option("k")
    ('--folder', '--neighbours')
    """
    return "--neighbours" if parameter == "k" else option_name(parameter)


def cluster_words(engine: Engine, n: int, dtype: str) -> str | None:
    """What a cluster has for a fit, after a look at it; None where none is asked for.

    Raises
    ------
    ClusterError, TooLargeError
        If it could not do it.
    """
    if isinstance(engine, Dask):
        return str(engine.examine(n, dtype))
    if not isinstance(engine, Neighbours) or not engine.on_cluster:
        return None
    with connect(engine.client, engine.scheduler) as client, Cluster(client) as cluster:
        workers = cluster.look().values()
        memory = show_bytes(min(worker.memory for worker in workers))
        threads = sum(worker.threads for worker in workers)
    return (
        f"The cluster has {counted(len(workers), 'worker', 'workers')} with {counted(threads, 'thread', 'threads')}; "
        f"each holds the pairs of items that share users, and the smallest may take {memory}."
    )


def fit_resumably(estimator: LinearAutoencoder, interactions: TrainingData, tiles: Path) -> None:
    """Fit; if that is done on disk, in a folder where the same command finds what was done before it was ended."""
    begun, typed = has_checkpoint(tiles), estimator.engine
    engine = as_engine(typed)
    if isinstance(engine, Auto | Disk):
        engine = replace(engine, folder=str(tiles))
        if begun and isinstance(engine, Auto):  # whatever is free by now: it resumes where it was begun
            engine = Disk(engine.memory, engine.folder)
        catalogue = estimator._catalogue(interactions)
        beside = prior_bytes(catalogue.n_items, planned_columns(estimator, interactions, catalogue))
        engine = choose_engine(catalogue, engine=engine, dtype=estimator.dtype, beside=beside)
    if isinstance(engine, Disk):
        estimator.engine = engine
        if begun:
            say(f"{tiles} has tiles: if they are of this fit, it goes on with them")
        elif not tiles.is_dir() or not any(tiles.iterdir()):
            say(f"the tiles are kept in {tiles}")
    with kept_until_saved(tiles if isinstance(engine, Disk) else None):
        estimator.fit(interactions)
    estimator.engine = typed


@contextmanager
def kept_until_saved(tiles: Path | None) -> Iterator[None]:
    """Say, when a fit on disk or its saving ends early, that the same command goes on with what was done."""
    try:
        yield
    except (KeyboardInterrupt, DeqlError, OSError) as error:
        # What is wrong with tiles is said with what to do about it, which may be to delete them.
        if tiles is not None and has_checkpoint(tiles) and not isinstance(error, TileFileError):
            say(f"no model was saved, but what was done is kept in {tiles}: the same command goes on from there")
        raise
