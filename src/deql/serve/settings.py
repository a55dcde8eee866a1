"""What a server is told once, when it starts; passed on to its workers as JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deql.errors import JournalError
from deql.io.journal import read_records

if TYPE_CHECKING:
    from deql.tuning.tuning_result import BCurve

__all__ = ["Limits", "Settings", "curve_of", "read_curve"]


@dataclass(frozen=True)
class Limits:
    """How much one request may ask for; more is answered with an error, not with a shorter list.

    Attributes
    ----------
    k : int
        Items in a list.
    histories : int
        Histories in a request.
    history : int
        Items in a history, in ``exclude`` or in ``candidates``.
    reasons : int
        Parts of scores in one answer, those of all its lists together.
    body : int
        Bytes of a request's body.
    """

    k: int = 1000
    histories: int = 100
    history: int = 1000
    reasons: int = 50_000
    body: int = 2**20


@dataclass(frozen=True)
class Settings:
    """All that ``deql serve`` was asked for.

    Attributes
    ----------
    models : dict of str
        Paths of the model files by the names that requests give, read again at each reload; who names none means the
        first.
    host, port
        Where to listen; port 0 takes a free one.
    workers : int
        Processes that answer; P is in memory once for all.
    threads : int or None
        Threads of each; None divides the processors among the workers.
    token : str or None
        What requests must show; without one nothing can be reloaded or updated by a request.
    timeout : float
        Seconds for a request, from its first byte to its answer.
    grace : float
        Seconds for requests in flight when the server is told to end.
    pending : int
        Requests in flight at once, per worker; more are turned away.
    connections : int
        Open connections at once, per worker.
    limits : Limits
    example : list
        The history that the page begins with; empty for the most popular items.
    note : str
        What the page says about the data and that history; empty for nothing.
    curve : dict or None
        The b curve of a tuning journal (see :func:`read_curve`), of the first model.
    quiet : bool
        Log no line for each request.

    Examples
    --------
    >>> given = Settings({"shop": "shop.deql"}, workers=2, example=["tea", "jam"])
    >>> Settings.from_json(given.to_json()) == given
    True
    """

    models: dict[str, str]
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    threads: int | None = None
    token: str | None = None
    timeout: float = 10.0
    grace: float = 10.0
    pending: int = 256
    connections: int = 1024
    limits: Limits = field(default_factory=Limits)
    example: list[Any] = field(default_factory=list)
    note: str = ""
    curve: dict[str, Any] | None = None
    quiet: bool = False

    def to_json(self) -> str:
        """The settings as one line of text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """What :meth:`to_json` wrote."""
        plain = json.loads(text)
        return cls(**plain | {"limits": Limits(**plain["limits"])})


def read_curve(path: Path) -> dict[str, Any]:
    """What a finished search found about b, as ``GET /model/curve`` tells it."""
    from deql.tuning.tuning_result import BCurve  # here: neither the program's help nor the supervisor needs models

    records = read_records(path)
    if any(record["step"] == "fit" for record in records):
        raise JournalError(f"{path} is of the search of a model without b, which has no curve over it: leave it out")
    end = next((record for record in reversed(records) if record["step"] == "end"), None)
    if end is None:
        raise JournalError(f"the search of {path} is not finished, so it has no curve over b yet: let deql tune finish")
    try:
        return curve_of(BCurve(**end["curve"]), end["best"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        raise JournalError(f"the last step of {path} is damaged: delete that line and run deql tune again") from None


def curve_of(curve: BCurve, parameters: dict[str, Any]) -> dict[str, Any]:
    """A curve as plain values; the metric that decided is the first.

    Examples
    --------
    >>> from deql.tuning.tuning_result import BCurve
    >>> curve_of(BCurve([0.0, 1.0], {"ndcg@20": [0.4, 0.5]}, {"ndcg@20": [0.01, 0.01]}), {"l2": 10.0})["best"]
    {'ndcg@20': 1.0}
    """
    return {
        "metric": next(iter(curve.values)), "b": curve.b, "values": curve.values, "errors": curve.errors,
        "best": {metric: curve.best(metric) for metric in curve.values}, "parameters": parameters,
    }  # fmt: skip
