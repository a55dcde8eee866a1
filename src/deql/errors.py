"""The errors users meet: one clear sentence each, saying what, where and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Setting(NamedTuple):
    """A parameter that an error's message tells people to set; the command line tells them its option.

    Examples
    --------
    >>> str(Setting("time")), str(Setting("dtype", "float64"))
    ('time=…', "dtype='float64'")
    """

    name: str
    value: Any = None
    noun: str = ""
    """What the message calls it in Python, where that is not ``name=value``."""

    def __str__(self) -> str:
        return self.noun or f"{self.name}=…" if self.value is None else f"{self.name}={self.value!r}"


class DeqlError(ValueError):
    """Base of every error this library raises on purpose.

    Its arguments are the parts of one sentence: text and every :class:`Setting` that it names.

    Examples
    --------
    >>> print(DeqlError("the data have no times: say ", Setting("time")))
    the data have no times: say time=…
    """

    def __str__(self) -> str:
        return "".join(map(str, self.args))


class DataError(DeqlError):
    """The interactions cannot be used as they are."""


class ParameterError(DeqlError):
    """A hyper-parameter or an argument is out of its range.

    Attributes
    ----------
    parameter : str or None
        Which one, where it is a single one.
    """

    def __init__(self, *message: Any, parameter: str | None = None) -> None:
        super().__init__(*message)
        self.parameter = parameter


class UnknownItemError(DeqlError):
    """An item id that the model was not fitted on."""


class NotFittedError(DeqlError):
    """The model was asked for something before ``fit``."""


class InaccurateInverseError(DeqlError):
    """The inverse was computed, but too inaccurately to be used."""


class TooLargeError(DeqlError):
    """More memory or disk is needed than there is; the message says what would fit."""


class DeviceError(DeqlError):
    """A device that is not there or has too little memory."""


class ClusterError(DeqlError):
    """A Dask cluster that is not there, or whose workers cannot do what a fit asks of them."""


class TileFileError(DeqlError):
    """Tiles of the disk engine that are damaged, foreign, in use, of another fit, or cannot be written."""


class CheckpointError(DeqlError):
    """A checkpoint that is damaged, foreign, of another training, or cannot be written."""


class ModelFileError(DeqlError):
    """A model file that is truncated, altered, foreign or newer than this library."""


class SplitFileError(DeqlError):
    """A split file that is truncated, altered, foreign or newer than this library."""


class JournalError(DeqlError):
    """A journal of a search that is damaged, foreign, in use or of another search."""


class NotPositiveDefiniteError(DeqlError):
    """The Gram matrix plus its diagonal has no inverse.

    Attributes
    ----------
    indices : list of int
        Columns at fault.
    """

    def __init__(self, message: str | tuple[Any, ...], indices: Sequence[int]) -> None:
        super().__init__(*(message if isinstance(message, tuple) else (message,)))
        self.indices = [int(i) for i in indices]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args, self.indices), self.__dict__


def reason(error: OSError) -> str:
    """Why the system refused, in the middle of a sentence.

    Examples
    --------
    >>> reason(OSError(28, "No space left on device"))
    'no space left on device'
    """
    return (error.strerror or str(error)).lower()


def name_some(names: Sequence[Any] | NDArray[Any], limit: int = 5) -> str:
    """Join the first few names for an error message.

    Examples
    --------
    >>> name_some(["a", "b", "c"], limit=2)
    "'a', 'b' and 1 more"
    """
    plain = (name.item() if getattr(name, "ndim", None) == 0 else name for name in names[:limit])  # 5 for np.int64(5)
    shown = ", ".join(shorten(" ".join(repr(name).splitlines())) for name in plain)
    rest = len(names) - limit
    return f"{shown} and {rest:,} more" if rest > 0 else shown


def did_you_mean(text: str, known: Iterable[str], most: int = 1) -> str:
    """A question that names what was perhaps meant; empty if nothing known is like the text.

    Examples
    --------
    >>> did_you_mean("papr", ["default", "paper"])
    ' (did you mean paper?)'
    """
    import difflib

    near = difflib.get_close_matches(text, list(known), n=most)
    return f" (did you mean {', '.join(near)}?)" if near else ""


def shorten(text: str, limit: int = 60) -> str:
    """The beginning of a text that may be of any length.

    Examples
    --------
    >>> shorten("a" * 100, limit=5)
    'aaaa…'
    """
    return text if len(text) <= limit else text[: limit - 1] + "…"


def printable(text: str) -> str:
    """Text from a file as it may stand in a message: one line, nothing that a terminal obeys.

    Examples
    --------
    >>> printable("item\\tid")
    'item�id'
    """
    return "".join(letter if letter.isprintable() else "�" for letter in text)
