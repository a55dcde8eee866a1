"""Items by what people call them, an id or a title that only one item has; and what to say where it is neither."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from numbers import Real
from typing import Any

from numpy.typing import NDArray

from deql.errors import ParameterError, UnknownItemError, did_you_mean, name_some

__all__ = ["TitleIndex", "find_column", "known_column", "suggest_items", "wrong_kind"]

_SEVERAL = -1
"""Where a title stands that several items have."""

_MOST_COMPARED = 30_000
"""Names that a misspelt one is compared with letter by letter, which takes about a second; of more, only those that
have it in them are suggested."""


class TitleIndex:
    """Columns of a model's items by title, in capitals or not; nothing is built before the first question.

    Parameters
    ----------
    titles : ndarray of str
        What people call the items, in the order of columns.
    items : ndarray
        Their ids.

    Examples
    --------
    >>> import numpy as np
    >>> titles = TitleIndex(np.array(["Tea", "Jam", "tea"], object), np.array([7, 8, 9]))
    >>> titles.column("jam")
    1
    >>> titles.column("Tea")
    Traceback (most recent call last):
    deql.errors.UnknownItemError: 2 items are called 'Tea': say which by its id, 7, 9
    """

    def __init__(self, titles: NDArray[Any], items: NDArray[Any]) -> None:
        self.titles, self._items = titles, items

    def column(self, title: str) -> int | None:
        """Where the only item with this title is; None if there is none, an error if there are several."""
        found = self._columns.get(title.casefold())
        if found == _SEVERAL:
            wanted = title.casefold()
            same = [
                item
                for item, other in zip(self._items.tolist(), self.titles.tolist(), strict=True)
                if other.casefold() == wanted
            ]
            raise UnknownItemError(
                f"{len(same)} items are called {name_some([title])}: say which by its id, {name_some(same)}"
            )
        return found

    @cached_property
    def _columns(self) -> dict[str, int]:
        columns: dict[str, int] = {}
        for column, title in enumerate(self.titles.tolist()):
            if columns.setdefault(title.casefold(), column) != column:
                columns[title.casefold()] = _SEVERAL
        return columns


def find_column(item: Any, index: Mapping[Any, int], titles: TitleIndex | None = None) -> int | None:
    """The column of an item that is given by its id or, if no id is like it, by its title; None if it has none.

    Examples
    --------
    >>> find_column("tea", {"jam": 0, "tea": 1})
    1
    """
    try:
        column = index.get(item)
    except TypeError:  # unhashable: a list where an id was expected
        raise ParameterError(f"an item id must be a single value, got {name_some([item])}") from None
    if column is None and titles is not None and isinstance(item, str):
        return titles.column(item)
    return column


def known_column(item: Any, index: Mapping[Any, int], items: NDArray[Any], titles: TitleIndex | None = None) -> int:
    """The same for an item that must be there; else the error says what is wrong, or what was perhaps meant.

    Examples
    --------
    >>> import numpy as np
    >>> known_column("jma", {"jam": 0, "tea": 1}, np.array(["jam", "tea"], object))
    Traceback (most recent call last):
    deql.errors.UnknownItemError: the model does not know the item 'jma' (did you mean jam?)
    """
    column = find_column(item, index, titles) if isinstance(item, Hashable) else None
    if column is None:
        kind = wrong_kind([item], index)
        hint = f": {kind}" if kind else suggest_items(item, items, None if titles is None else titles.titles)
        raise UnknownItemError(f"the model does not know the item {name_some([item])}{hint}")
    return column


def wrong_kind(unknown: Iterable[Any], index: Mapping[Any, int]) -> str:
    """What is wrong with the first unknown id that would be known as a value of another type; empty if none would.

    Examples
    --------
    >>> wrong_kind(["2", "1"], {1: 0})
    "the model's ids are whole numbers and '1' is text: give 1"
    >>> wrong_kind([1], {"1": 0})
    "the model's ids are text and 1 is a number: give '1'"
    """
    for item in unknown:
        if isinstance(item, str):
            number = _whole_number(item)
            if number is not None and number in index:
                return f"the model's ids are whole numbers and {name_some([item])} is text: give {number}"
        elif isinstance(item, Real):
            text = _as_text(item)
            if text in index:
                return f"the model's ids are text and {name_some([item])} is a number: give {text!r}"
        elif isinstance(item, tuple) and len(item) == 2 and item[0] in index and isinstance(item[1], Real):
            return f"weights are given as a mapping, {{{name_some([item[0]])}: {name_some([item[1]])}}}"
    return ""


def suggest_items(text: Any, items: NDArray[Any], titles: NDArray[Any] | None) -> str:
    """A question that names items whose titles, or ids where there are no titles, are like a text; empty if none is.

    Examples
    --------
    >>> import numpy as np
    >>> suggest_items("green tee", np.array([7, 8]), np.array(["Green tea", "Jam"], object))
    ' (did you mean Green tea?)'
    """
    of_items = items if titles is None else titles
    if of_items.dtype != object or not isinstance(text, str):
        return ""
    names = [name for name in of_items.tolist() if isinstance(name, str)]
    wanted = text.casefold()
    within = [name for name in names if len(wanted) > 2 and wanted in name.casefold()]
    near = did_you_mean(text, names, 3) if len(names) <= _MOST_COMPARED else ""
    return near or (f" (did you mean {', '.join(within[:3])}?)" if within else "")


def _as_text(number: Any) -> str | None:
    try:
        whole = int(number)
        return str(whole) if whole == number else None
    except (ValueError, OverflowError):  # no finite number, or digits without end
        return None


def _whole_number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:  # words, and digits without end
        return None
