"""How a notebook shows models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from deql._system import html
from deql._system.formatting import show_bytes
from deql._system.tables import Cell, Grid

__all__ = ["Fitted", "model_html"]

Fitted = tuple[int, int, Mapping[str, NDArray[Any]], Mapping[str, Any]]
"""Users and items of the training data, and the arrays and facts that a model file keeps."""


def model_html(name: str, parameters: Mapping[str, tuple[Any, Any]], fitted: Fitted | None) -> str:
    """Parameters, those that were changed marked; what the model was fitted on, how, and what it holds in memory.

    Parameters
    ----------
    name : str
    parameters : dict of str to tuple
        Each hyper-parameter's value, and what it is if nobody says otherwise.
    fitted : Fitted or None
        None if the model is not fitted.

    Examples
    --------
    >>> "not fitted" in model_html("EASE", {"l2": (10.0, 500.0)}, None)
    True
    """
    rows = [
        ([parameter], [Cell(_shown(value), best=repr(value) != repr(default))])
        for parameter, (value, default) in parameters.items()
        if parameter != "progress"
    ]
    table = html.table(Grid("Parameters", ["parameter", "value"], rows))
    if fitted is None:
        return html.block(html.heading(name, "not fitted"), table)
    users, items, arrays, facts = fitted
    told = {"fitted on": f"{users:,} users × {items:,} items"}
    told |= {key: _shown(facts[key]) for key in ("engine", "epochs", "iterations", "loss") if key in facts}
    if "residual" in facts:
        told["residual"] = f"{facts['residual']:.0e}"
    held = sorted(arrays.items(), key=lambda pair: -pair[1].nbytes)
    told["memory"] = f"{show_bytes(sum(array.nbytes for _, array in held))}, most of it {held[0][0].replace('_', ' ')}"
    return html.block(html.heading(name, "fitted"), html.side_by_side(table, html.facts(told)))


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return html.shorten(getattr(value, "__name__", None) or str(value), 60)
