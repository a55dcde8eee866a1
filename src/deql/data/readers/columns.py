"""Which column is the user's, the item's, the weight and the time?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from deql.errors import DataError, ParameterError, Setting, name_some, printable

__all__ = ["Choice", "ColumnRoles", "choose_columns", "find_known", "is_known_name"]

Choice = str | int | bool | None
"""A column's name or number from 1; None for none, True to find it by its name."""

# In the order of preference, in small letters and without anything but these and digits.
_KNOWN: dict[str, tuple[str, ...]] = {
    "user": (
        "user", "userid", "uid", "username", "customer", "customerid", "reviewerid", "reviewer", "visitorid", "visitor",
        "memberid", "member", "accountid", "account", "clientid", "client", "personid", "playerid", "patronid",
        "sessionid", "session",
    ),
    "item": (
        "item", "itemid", "iid", "productid", "product", "parentasin", "asin", "sku", "movieid", "movie", "filmid",
        "articleid", "article", "trackid", "track", "songid", "song", "artistid", "artist", "bookid", "book", "isbn",
        "businessid", "business", "gameid", "game", "videoid", "video", "showid", "animeid", "recipeid", "newsid",
        "venueid", "venue", "locationid", "location", "poi", "contentid", "content", "courseid", "appid",
    ),
    "weight": (
        "weight", "rating", "ratings", "bookrating", "overall", "stars", "score", "count", "counts", "plays",
        "playcount", "listens", "quantity", "frequency", "implicit",
    ),
    "time": (
        "timestamp", "time", "ts", "datetime", "date", "unixreviewtime", "eventtime", "createdat", "created",
        "checkintime", "interactiontime",
    ),
    "title": (
        "title", "name", "itemname", "movietitle", "booktitle", "productname", "producttitle", "songtitle", "label",
        "description",
    ),
}  # fmt: skip
_PLACES = {"user": 0, "item": 1, "weight": 2, "time": 3}


@dataclass(frozen=True)
class ColumnRoles:
    """Which columns matter, and what is done with rows that have nothing in two of them.

    Attributes
    ----------
    user, item, weight, time : int or None
        Places, from 0.
    guessed : bool
        Whether the caller did not name user and item.
    skip_missing : bool
        Whether rows without a user or an item are left out, rather than an error.
    """

    user: int
    item: int
    weight: int | None
    time: int | None
    guessed: bool
    skip_missing: bool = False

    @property
    def places(self) -> dict[str, int]:
        """The columns that are there, by their role."""
        chosen = {"user": self.user, "item": self.item, "weight": self.weight, "time": self.time}
        return {role: place for role, place in chosen.items() if place is not None}

    def describe(self, names: Sequence[str]) -> str:
        """The choice in words.

        Examples
        --------
        >>> ColumnRoles(0, 1, None, None, True).describe(["userId", "movieId", "rating"])
        'user = userId, item = movieId; not used: rating'
        """
        rest = [name for place, name in enumerate(names) if place not in self.places.values()]
        text = ", ".join(f"{role} = {_column_label(names[place])}" for role, place in self.places.items())
        return text + ("; not used: " + _listed(rest) if rest else "")


def is_known_name(name: str) -> bool:
    """Whether a column's name says what it holds.

    Examples
    --------
    >>> is_known_name("Movie ID"), is_known_name("17")
    (True, False)
    """
    return any(_plain(name) in known for known in _KNOWN.values())


def find_known(names: Sequence[str], role: str) -> int | None:
    """Place of the column whose name is the best known for a role.

    Examples
    --------
    >>> find_known(["movieId", "title", "genres"], "title")
    1
    """
    plain = [_plain(name) for name in names]
    return next((plain.index(known) for known in _KNOWN[role] if known in plain), None)


def choose_columns(
    names: Sequence[str], source: str, user: Choice, item: Choice, weight: Choice, time: Choice, header: bool = True
) -> ColumnRoles:
    """Find the columns by what was asked for, by well-known names, or else by their place.

    User and item are the first two columns of a table that has no more, or no header; weight and time
    then the third and fourth.

    Examples
    --------
    >>> choose_columns(["ts", "movieId", "userId"], "ratings.csv", None, None, None, True)
    ColumnRoles(user=2, item=1, weight=None, time=0, guessed=True, skip_missing=False)
    """
    asked: dict[str, Choice] = {"user": user, "item": item, "weight": weight, "time": time}
    places: dict[str, int | None] = {}
    for role, choice in asked.items():
        if choice is None or choice is False:
            if role in ("weight", "time"):
                places[role] = None
                continue
            choice = True
        places[role] = _find(role, choice, names, source, header)
    for other, role in combinations(places, 2):
        if places[role] is not None and places[role] == places[other]:
            raise DataError(
                f"{other} and {role} of {source} are the same column, {names[places[role] or 0]!r}: say ",
                Setting(other),
                " and ",
                Setting(role),
                f" with two of {name_some(names, 12)}",
            )
    assert places["user"] is not None
    assert places["item"] is not None
    guessed = user is None or item is None or weight is True or time is True
    return ColumnRoles(places["user"], places["item"], places["weight"], places["time"], guessed)


def _find(role: str, choice: str | int | bool, names: Sequence[str], source: str, header: bool) -> int:
    if choice is not True:
        if isinstance(choice, int):
            if not 1 <= choice <= len(names):
                raise DataError(f"{source} has {len(names)} columns, so ", Setting(role, choice), " is none of them")
            return choice - 1
        if not isinstance(choice, str):
            raise ParameterError(f"{role} must be the name or the number of a column, got {choice!r}", parameter=role)
        for name in (choice, choice.split(":")[0]):
            if name in names:
                return names.index(name)
        _check_encoded(names, source)
        raise DataError(
            f"{source} has no column {choice!r}: say ", Setting(role), f" with one of {name_some(names, 12)}"
        )
    known = find_known(names, role)
    if known is not None:
        return known
    place = _PLACES[role]
    if place < len(names) and (not header or (len(names) == 2 and place < 2)):
        return place
    _check_encoded(names, source)
    raise DataError(
        f"{source} has no column that looks like the {role}'s: say ",
        Setting(role),
        f" with one of {name_some(names, 12)}",
    )


def _check_encoded(names: Sequence[str], source: str) -> None:
    """Nobody can type a name in whose place stands the sign for what could not be decoded."""
    if any("\ufffd" in name for name in names):
        raise DataError(
            f"{source}: the names of its columns are not in UTF-8: say ",
            Setting("encoding", "latin-1"),
            ", or the encoding that the file was written in",
        )


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _column_label(name: str) -> str:
    """Columns without a name of their own go by their number."""
    return f"column {name}" if name.isdigit() else printable(name)


def _listed(names: Sequence[str], limit: int = 12) -> str:
    rest = f" and {len(names) - limit:,} more" if len(names) > limit else ""
    return ", ".join(map(_column_label, names[:limit])) + rest
