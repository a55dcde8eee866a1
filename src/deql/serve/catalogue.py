"""Items by name: what people type, found among a million names."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Catalogue", "plain"]

_NAMES_AT_ONCE = 50_000
"""Names that are worked on in one call: none lets another thread have Python's lock before its end."""

_SAMPLES = 16
"""Names that are looked at, of so many, to divide all into about as many each."""


class Catalogue:
    """The names of a model's items.

    Names are kept in the order of popularity, in one text with a line for each: what stands anywhere in a name is
    found by one search through that text, the most popular first, and what begins a name through a sorted list.

    Parameters
    ----------
    names : list of str
        What each column of the model is called.
    counts : ndarray
        How popular each is.

    Examples
    --------
    >>> names = Catalogue(["Green tea", "tea", "steak", "Teapot"], np.array([5, 1, 9, 7]))
    >>> names.find("TEA", 10)
    ([1, 3, 0, 2], False)
    >>> names.find("", 2)
    ([2, 3], True)
    """

    def __init__(self, names: list[str], counts: NDArray[Any]) -> None:
        self._columns = np.argsort(-np.asarray(counts), kind="stable")
        folded = [plain(names[column]) for column in self._columns.tolist()]
        self._text = "\n" + "\n".join(folded) + "\n"
        # The same with a space for whatever is neither letter nor digit: words begin after one.
        parts = ("\n".join(folded[at : at + _NAMES_AT_ONCE]) for at in range(0, len(folded), _NAMES_AT_ONCE))
        self._words = "\n" + "\n".join(re.sub(r"[^\w\n]|_", " ", part) for part in parts) + "\n"
        # A line's place in the text, after the line break before it.
        self._starts = (np.cumsum([0, *(len(name) + 1 for name in folded)]) + 1).tolist()
        by_name = _sorted_places(folded)
        self._sorted = [folded[place] for place in by_name]
        self._places = np.array(by_name, np.int64)  # in the order of popularity

    def find(self, query: str, limit: int) -> tuple[list[int], bool]:
        """The columns of the best matches, and whether there are more.

        Those called exactly so come first, then those whose names begin so, then those with a word that does, then
        the others that have it anywhere; each kind by popularity.
        """
        wanted = plain(query)
        if not wanted:
            return self._columns[:limit].tolist(), len(self._columns) > limit
        found: dict[int, None] = {}
        low = bisect_left(self._sorted, wanted)
        for high in (bisect_right(self._sorted, wanted), self._after_prefix(wanted)):
            found.update(dict.fromkeys(np.sort(self._places[low:high])[: limit + 1].tolist()))
        self._search(self._words, " " + re.sub(r"\W|_", " ", wanted), 1, wanted, limit + 1, found)
        self._search(self._text, wanted, 0, wanted, limit + 1, found)
        places = list(found)
        return self._columns[places[:limit]].tolist(), len(places) > limit

    def _after_prefix(self, prefix: str) -> int:
        """Where in the sorted names those that begin so end."""
        return bisect_right(self._sorted, prefix, key=lambda name: name[: len(prefix)])

    def _search(self, text: str, pattern: str, skip: int, wanted: str, enough: int, found: dict[int, None]) -> None:
        """Add the lines that have what is wanted where the pattern is, until there are enough in all."""
        at = 0
        while len(found) < enough and (at := text.find(pattern, at)) >= 0:
            if self._text.startswith(wanted, at + skip):
                place = bisect_right(self._starts, at) - 1
                found[place] = None
                at = self._starts[place + 1]  # on to the next line
            else:
                at += 1


def _sorted_places(names: list[str]) -> list[int]:
    """The places of names in the order of the names, those of equal ones in their own order.

    What one sort would do, in several: each of the names between two of a sample.

    Examples
    --------
    >>> _sorted_places(["tea", "jam", "egg", "jam"])
    [2, 1, 3, 0]
    """
    limits = sorted(names[:: _NAMES_AT_ONCE // _SAMPLES])[_SAMPLES::_SAMPLES]
    between: list[list[int]] = [[] for _ in range(len(limits) + 1)]
    for place, name in enumerate(names):
        between[bisect_right(limits, name)].append(place)
    return [place for places in between for place in sorted(places, key=names.__getitem__)]


def plain(text: str) -> str:
    """Text as it is compared: without capitals and accents, and in one line.

    Examples
    --------
    >>> plain("Crème\\nBrûlée")
    'creme brulee'
    """
    folded = text.casefold()
    if not folded.isascii():
        parts = unicodedata.normalize("NFKD", folded)
        folded = "".join(letter for letter in parts if not unicodedata.combining(letter)).casefold()
    return " ".join(folded.split())
