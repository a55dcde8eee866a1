"""Where a command's fit is computed: engines as typed, plans, and fits that go on after a kill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deql.cli.show import say
from deql.errors import DeqlError, ParameterError

if TYPE_CHECKING:
    from deql.data import Interactions

__all__ = ["EngineOptions", "fit_resumably", "kept_until_saved"]


class Engine(StrEnum):
    """Names of engines on the command line."""

    auto = "auto"
    memory = "memory"
    disk = "disk"
    torch = "torch"


@dataclass(frozen=True)
class EngineOptions:
    """Where the inverse is computed, as asked for on the command line."""

    engine: Annotated[Engine | None, typer.Option(help="Where the inverse is computed; auto: where it fits.")] = None
    memory: Annotated[
        str | None, typer.Option(help="What the disk engine may take (half of what is free).", metavar="4GiB")
    ] = None
    folder: Annotated[
        Path | None, typer.Option(help="Where the disk engine keeps its tiles (beside the model file).", metavar="DIR")
    ] = None
    precision: Annotated[
        str | None, typer.Option(help="Of the torch engine's products: float32, tf32, ...; the best if not given.")
    ] = None
    device: Annotated[str | None, typer.Option(help="Of the torch engine, or of elsa: cuda, cuda:1 or cpu.")] = None
    threads: Annotated[int | None, typer.Option(help="How many threads; as many as processors if not given.")] = None

    def parameters(self) -> dict[str, str]:
        """What was typed, as parameters of a model."""
        typed = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "threads"}
        return {name: str(value) for name, value in typed.items() if value is not None}

    def use(self) -> None:
        """Refuse what can be refused before anything is read, and set the number of threads."""
        from deql._system.threads import set_threads

        if self.folder is not None and self.folder.exists() and not self.folder.is_dir():
            raise ParameterError(f"{self.folder} is not a folder: name one for --folder")
        if self.threads is not None:
            set_threads(self.threads)

    def refuse_with(self, other: str, why: str) -> None:
        """Refuse what was typed beside something that tunes: it fits many models, and chooses where."""
        for name in self.parameters():
            raise ParameterError(f"--{name} does not go with {other}{why}")

    def tiles(self, out: Path | None) -> Path:
        """Where the disk engine keeps its tiles: the same place for the same command."""
        out = Path("model").absolute() if out is None else out.absolute()
        return self.folder or out.with_name(f".{out.name}.tiles")

    def planned(self, interactions: Interactions, dtype: str | None, tiles: Path) -> dict[str, Any]:
        """Arguments of a plan."""
        chosen = {"engine": self.engine and self.engine.value, "dtype": dtype}
        return {"data": interactions, "memory": self.memory, "folder": tiles, "device": self.device} | {
            name: value for name, value in chosen.items() if value
        }


def fit_resumably(estimator: Any, interactions: Interactions, tiles: Path) -> None:
    """Fit; if that is done on disk, in a folder where the same command finds what was done before it was ended."""
    from deql.linalg.engines.tile_folder import has_checkpoint

    begun, typed = has_checkpoint(tiles), (estimator.engine, estimator.folder)
    options = replace(estimator._options, folder=tiles)
    if begun and options.engine == "auto":  # whatever is free by now: it goes on where it was begun
        options = replace(options, engine="disk")
    if options.choose(interactions.matrix) == "disk":
        estimator.engine, estimator.folder = "disk", str(tiles)
        if begun:
            say(f"going on with the tiles in {tiles}")
        elif not tiles.is_dir() or not any(tiles.iterdir()):
            say(f"the tiles are kept in {tiles}")
    with kept_until_saved(tiles):
        estimator.fit(interactions)
    estimator.engine, estimator.folder = typed


@contextmanager
def kept_until_saved(tiles: Path) -> Iterator[None]:
    """Say, when a fit or its saving ends early, that the same command goes on with what was done."""
    from deql.linalg.engines.tile_folder import has_checkpoint

    try:
        yield
    except (KeyboardInterrupt, DeqlError, OSError):
        if has_checkpoint(tiles):
            say(f"no model was saved, but what was done is kept in {tiles}: the same command goes on from there")
        raise
