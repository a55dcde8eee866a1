"""What a killed training resumes from, bit for bit: one file, written whole or not at all."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np

from deql._system.formatting import parse_json
from deql._system.lazy import lazy_module
from deql.errors import CheckpointError, reason

if TYPE_CHECKING:
    from deql.io import container
    from deql.io.container import Arrays, FileKind
else:  # a training without a checkpoint needs NumPy and torch alone
    container = lazy_module("deql.io.container")

__all__ = ["Checkpoint", "TrainingState"]


def _kind() -> FileKind:
    return container.FileKind("deql-checkpoint", 1, CheckpointError, "remove it to begin anew")


@dataclass(frozen=True)
class TrainingState:
    """How far a training is: numbers that are trained, those of the optimiser, and plain facts."""

    arrays: Arrays
    facts: dict[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """Where a training writes how far it is.

    Parameters
    ----------
    path : Path
    training : dict
        What the result depends on. A file of another training is refused.
    """

    path: Path
    training: dict[str, Any]

    def read(self) -> TrainingState | None:
        """The state that was last written; None if there is none."""
        try:
            with suppress(FileNotFoundError):
                self.path.stat()  # unlike exists(), it tells of a name that no file may have
            with TemporaryFile(dir=self.path.parent):  # told now, and not when there is something to lose
                pass
        except (OSError, ValueError) as error:
            why = reason(error) if isinstance(error, OSError) else str(error)
            raise CheckpointError(f"the checkpoint {self.path} cannot be written: {why}") from None
        if self.path.is_dir():
            raise CheckpointError(f"{self.path} is a folder: name a file for the checkpoint")
        if not self.path.exists():
            return None
        metadata, arrays = container.read(_kind(), self.path)
        try:
            theirs, facts = parse_json(metadata["training"]), parse_json(metadata["facts"])
            if not isinstance(theirs, dict) or not isinstance(facts, dict):
                raise ValueError("it does not say of which training it is")
        except (KeyError, ValueError) as error:
            raise CheckpointError(f"{self.path} is damaged: {error}; remove it to begin anew") from None
        ours = parse_json(_as_json(self.training))
        if names := sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name)):
            raise CheckpointError(
                f"{self.path} is the checkpoint of another training, which differs in {', '.join(names)}: name another "
                "file, or remove it"
            )
        return TrainingState(arrays, facts)

    def write(self, state: TrainingState) -> None:
        """Replace the state."""
        facts = {"training": _as_json(self.training), "facts": _as_json(state.facts)}
        container.write(_kind(), self.path, facts, state.arrays)

    def remove(self) -> None:
        """Forget it: the training is done."""
        self.path.unlink(missing_ok=True)


def _as_json(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, default=np.generic.item)
