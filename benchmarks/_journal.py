"""Results by name, each a line of a file as soon as it is there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _dense import Worth

__all__ = ["Journal"]


class Journal:
    """What was evaluated, now and in earlier runs.

    Parameters
    ----------
    path : Path
        A JSON object on each line; made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.results: dict[str, dict[str, Any]] = {one["name"]: one for one in map(json.loads, lines)}

    def evaluate(self, name: str, evaluate: Callable[[], Worth], **facts: Any) -> Worth:
        """What the journal has under a name, or else what is evaluated now, with facts beside it."""
        if name not in self.results:
            worth = evaluate()
            self.results[name] = {"name": name, **facts, **worth._asdict()}
            with self._path.open("a") as file:
                file.write(json.dumps(self.results[name]) + "\n")
            errors = f"± {worth.recall_error:.4f} / {worth.ndcg_error:.4f}"
            print(f"{name}: {worth.recall:.5f} / {worth.ndcg:.5f} {errors}", flush=True)
        found = self.results[name]
        return Worth(*(found[field] for field in Worth._fields))
