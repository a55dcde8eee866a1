"""What a server is told once, when it starts; passed on to its workers as JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Limits", "Settings"]


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
    model : str
        Path of the model file, read again at each reload.
    host, port
        Where to listen; port 0 takes a free one.
    workers : int
        Processes that answer; P is in memory once for all.
    threads : int or None
        Threads of each; None divides the processors among the workers.
    token : str or None
        What requests must show; without one there are no admin endpoints.
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
    curve : dict or None
        The b curve of a tuning journal (see :mod:`deql.serve.curve`).
    quiet : bool
        Log no line for each request.

    Examples
    --------
    >>> given = Settings("shop.deql", workers=2, example=["tea", "jam"])
    >>> Settings.from_json(given.to_json()) == given
    True
    """

    model: str
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
