"""Where the app finds the model it answers from, which may be another one a moment later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from deql.errors import DeqlError

if TYPE_CHECKING:
    from deql.serve.served import Served

__all__ = ["Host", "ReloadError"]


class ReloadError(DeqlError):
    """The model file could not take the place of the model that is served."""


async def _no_reload() -> dict[str, Any]:
    raise ReloadError("this server was not started from a model file, so it has none to reload")


class Host:
    """Holds the model that is served now.

    A request takes ``current`` once and keeps to it, so that a swap in between changes nothing for it.

    Attributes
    ----------
    current : Served or None
        None until the first model is loaded.
    reload : async callable
        Has the file read again, by every worker; returns what to answer, raises ReloadError.
    """

    def __init__(
        self, current: Served | None = None, reload: Callable[[], Awaitable[dict[str, Any]]] = _no_reload
    ) -> None:
        self.current = current
        self.reload = reload
