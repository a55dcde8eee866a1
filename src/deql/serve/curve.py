"""The b curve of a tuning journal, for the page to draw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deql.errors import JournalError
from deql.io.journal import read_records
from deql.tuning.tuning_result import BCurve

__all__ = ["curve_of", "read_curve"]


def read_curve(path: Path) -> dict[str, Any]:
    """What a finished search found about b, as ``GET /model/curve`` tells it."""
    end = next((record for record in reversed(read_records(path)) if record["step"] == "end"), None)
    if end is None:
        raise JournalError(f"the search of {path} is not finished, so it has no curve over b yet: let deql tune finish")
    try:
        return curve_of(BCurve(**end["curve"]), end["best"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise JournalError(f"the last step of {path} is damaged: delete that line and run deql tune again") from None


def curve_of(curve: BCurve, parameters: dict[str, Any]) -> dict[str, Any]:
    """A curve as plain values; the metric that decided is the first.

    Examples
    --------
    >>> curve_of(BCurve([0.0, 1.0], {"ndcg@20": [0.4, 0.5]}, {"ndcg@20": [0.01, 0.01]}), {"l2": 10.0})["best"]
    {'ndcg@20': 1.0}
    """
    return {
        "metric": next(iter(curve.values)), "b": curve.b, "values": curve.values, "errors": curve.errors,
        "best": {metric: curve.best(metric) for metric in curve.values}, "parameters": parameters,
    }  # fmt: skip
