"""Hyper-parameters of the tables: chosen here on validation data, published elsewhere, or read off the test part."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from deql.errors import DataError, DeqlError, reason
from deql.linalg.planner.choose import ENGINE_KEYS, engine_from_config
from deql.models import Recommender
from deql.models.linear import LinearAutoencoder
from deql.paper.published import LINEAR, METRICS, NETWORKS, ROWS, WEIGHTED
from deql.paper.rows import KINDS, is_whole
from deql.priors.specs import parse_prior

__all__ = [
    "ORIGINS", "Choice", "best_of_each", "merged", "own_choices", "read_choices", "stored_choices", "write_choices",
]  # fmt: skip

Origin = Literal["found", "ends", "published", "test"]

ORIGINS: dict[Origin, str] = {
    "found": "chosen on validation data",
    "ends": "chosen on the ends of lines",
    "published": "published choice",
    "test": "chosen on the test part",
}
"""Where hyper-parameters come from; see docs/reproducing.md.

Validation data are drawn at random, or they are the last tenth of each line of the file, where lines keep an order that
the test part goes on with. The last kind shows what a published number takes, and is no result.
"""


@dataclass(frozen=True)
class Choice:
    """Hyper-parameters of one row of a table on one data set.

    Attributes
    ----------
    row : str
        A name of :data:`~deql.paper.published.ROWS`.
    parameters : dict
        Numbers; ``prior`` as people type it.
    origin : {"found", "ends", "published", "test"}
    source : str
        In words, where they come from.
    validation : dict
        What they were worth on validation data, by metric; empty if they were not chosen there.
    """

    row: str
    parameters: dict[str, Any]
    origin: Origin
    source: str = ""
    validation: dict[str, float] = field(default_factory=dict)

    def model(self, **changed: Any) -> Recommender:
        """The model, not fitted, with some parameters changed; its engine is named apart from that one's own.

        Of what says how a closed form is computed, a network has only the device and its progress.

        Examples
        --------
        >>> Choice("EASE", {"l2": 80.0}, "published").model(engine="memory").l2
        80.0
        >>> Choice("LightGCN", {"layers": 2}, "published").model(engine="torch", device="cuda:1").device
        'cuda:1'
        """
        kind, fixed, _ = KINDS[self.row]
        own = {name: value for name, value in changed.items() if name not in ENGINE_KEYS}
        of_engine = {name: value for name, value in changed.items() if name in ENGINE_KEYS}
        if self.row in NETWORKS:
            own |= {"device": of_engine.get("device")}
        else:
            own |= {"engine": engine_from_config(of_engine)}
        return kind(**fixed | _built(self.parameters) | own)

    def linear(self, **changed: Any) -> LinearAutoencoder:
        """The model of a row that is a closed form."""
        model = self.model(**changed)
        assert isinstance(model, LinearAutoencoder)
        return model

    @property
    def words(self) -> str:
        """Parameters as people type them.

        Examples
        --------
        >>> Choice("DEQL(plain)", {"dropout": 0.7, "b": 1.0}, "found").words
        'dropout=0.7 b=1'
        """
        return " ".join(
            f"{name}={value if isinstance(value, str) else format(value, 'g')}"
            for name, value in self.parameters.items()
        )


def _built(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as models take them."""
    return {name: parse_prior(value) if name == "prior" else value for name, value in parameters.items()}


def stored_choices(data: str, own: Path | None = None) -> list[Choice]:
    """What is known for a data set, row by row.

    Those of the file ``own`` take the place of the library's that have the same origin: who has searched has chosen.
    """
    text = files("deql.paper").joinpath("choices.toml").read_text("utf-8")
    mine = [] if own is None else own_choices(own).get(data, [])
    return merged(read_choices(text, "choices.toml").get(data, []), mine)


def merged(known: Iterable[Choice], newer: Iterable[Choice]) -> list[Choice]:
    """The newer choices, and of the known ones those of other origins, row by row.

    Examples
    --------
    >>> old = [Choice("EASE", {"l2": 80.0}, "found"), Choice("EASE", {"l2": 90.0}, "published")]
    >>> [one.words for one in merged(old, [Choice("EASE", {"l2": 70.0}, "found")])]
    ['l2=70', 'l2=90']
    """
    newer = list(newer)
    kept = [*(one for one in known if one.origin not in {other.origin for other in newer}), *newer]
    return sorted(kept, key=lambda one: (ROWS.index(one.row), list(ORIGINS).index(one.origin)))


def own_choices(path: Path) -> dict[str, list[Choice]]:
    """Choices by data set from a file; none if there is no such file."""
    if not path.is_file():
        return {}
    try:
        return read_choices(path.read_text("utf-8"), str(path))
    except UnicodeDecodeError:
        raise DataError(f"{path} cannot be read: it is not UTF-8 text") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {reason(error)}") from None


def read_choices(text: str, path: str) -> dict[str, list[Choice]]:
    """Choices by data set from TOML; ``path`` is for messages.

    Examples
    --------
    >>> read_choices('[gowalla.EASE]\\npublished = {l2 = 80.0, source = "LightGCN"}', "a.toml")["gowalla"][0].words
    'l2=80'
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{path} is not TOML: {error}") from None
    return {data: list(_choices(rows, f"{path}: {data}")) for data, rows in tables.items()}


def _choices(rows: Any, where: str) -> Iterable[Choice]:
    for row, origins in _table(rows, where).items():
        if row not in ROWS:
            raise DataError(f"{where} has no row {row!r}: say one of {', '.join(ROWS)}")
        for origin in _table(origins, f"{where}, {row}"):
            if origin not in ORIGINS:
                raise DataError(f"{where}, {row}: unknown origin {origin!r}: say one of {', '.join(ORIGINS)}")
        yield from (_choice(row, origin, origins[origin], f"{where}, {row}, {origin}")
                    for origin in ORIGINS if origin in origins)  # fmt: skip


def _choice(row: str, origin: Origin, entry: Any, where: str) -> Choice:
    parameters = dict(_table(entry, where))
    source = parameters.pop("source", "")
    validation = _numbers(_table(parameters.pop("validation", {}), f"{where}, validation"), where)
    for name, value in {"source": source, "prior": parameters.get("prior", "")}.items():
        if not isinstance(value, str):
            raise DataError(f"{where}: {name} must be text, got {value!r}")
    parameters |= _numbers({name: value for name, value in parameters.items() if name != "prior"}, where)
    kind, fixed, chosen = KINDS[row]
    for name in parameters:
        if is_whole(kind, name) and parameters[name].is_integer():
            parameters[name] = int(parameters[name])
    allowed = [*chosen, *(["b"] if fixed.get("zero_diagonal") else [])]
    for name in parameters:
        if name not in allowed:
            raise DataError(f"{where}: {row} has no parameter {name!r}: it has {', '.join(allowed)}")
    for name in (chosen[0], *(["prior"] if "prior" in chosen else [])):
        if name not in parameters:
            raise DataError(f"{where}: {row} needs {name}")
    try:
        kind(**fixed).set_params(**_built(parameters))._check_parameters()
    except DeqlError as error:
        raise DataError(f"{where}: {error}") from None
    return Choice(row, parameters, origin, source, validation)


def _numbers(values: Mapping[str, Any], where: str) -> dict[str, float]:
    found = {}
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DataError(f"{where}: {name} must be a number, got {value!r}")
        try:
            found[name] = float(value)
        except OverflowError:
            raise DataError(f"{where}: {name} is too large") from None
        if math.isnan(found[name]) or (name in METRICS and math.isinf(found[name])):
            raise DataError(f"{where}: {name} must be a number, got {value!r}")
    return found


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{where} must be a table, got {value!r}")
    return value


def write_choices(choices: Mapping[str, Iterable[Choice]]) -> str:
    """The same as TOML.

    Examples
    --------
    >>> print(write_choices({"gowalla": [Choice("EASE", {"l2": 80.0}, "published", "LightGCN")]}))
    [gowalla."EASE"]
    published = { l2 = 80.0, source = "LightGCN" }
    <BLANKLINE>
    """
    lines = []
    for data, several in choices.items():
        chosen = list(several)
        for row in dict.fromkeys(choice.row for choice in chosen):
            key = data if re.fullmatch(r"[A-Za-z0-9_-]+", data) else json.dumps(data)
            lines.append(f'[{key}."{row}"]')
            for choice in (one for one in chosen if one.row == row):
                entry: dict[str, Any] = dict(choice.parameters)
                entry |= {"validation": choice.validation} if choice.validation else {}
                entry |= {"source": choice.source} if choice.source else {}
                lines.append(f"{choice.origin} = {_inline(entry)}")
            lines.append("")
    return "\n".join(lines)


def _inline(entry: Mapping[str, Any]) -> str:
    """A TOML table in one line; the keys are plain names or metrics."""
    parts = []
    for name, value in entry.items():
        key = name if name.isidentifier() else f'"{name}"'
        if isinstance(value, Mapping):
            text = _inline(value)
        elif isinstance(value, str):
            # JSON's escapes are TOML's, which also has one for the last control character.
            text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        else:
            text = repr(value if isinstance(value, int) else float(value))
        parts.append(f"{key} = {text}")
    return "{ " + ", ".join(parts) + " }"


def best_of_each(rows: Iterable[Mapping[str, Any]], source: str) -> list[Choice]:
    """The best of a leaderboard by NDCG@20 for each row of the paper's tables that it has candidates for.

    Parameters
    ----------
    rows : iterable of dict
        l2, dropout, user_power, popularity_power, b or xi, and metrics.
    source : str
        What the choices are to say of where they come from.
    """
    best: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        for name in _rows_of(row):
            if name not in best or row[METRICS[1]] > best[name][METRICS[1]]:
                best[name] = row
    return [
        Choice(
            name, {parameter: best[name][parameter] for parameter in KINDS[name][2]}, "found", source,
            {metric: best[name][metric] for metric in METRICS},
        )
        for name in LINEAR if name in best
    ]  # fmt: skip


def _rows_of(row: Mapping[str, Any]) -> list[str]:
    """The rows of the tables that a model of a leaderboard is a candidate for.

    At one l2, b = 0 is EDLAE and also DEQL with a zero diagonal, whatever its b: the paper's λ makes another l2 of it
    (eq. 17), and nothing else. So both rows are offered the same models.
    """
    weighted = bool(row["user_power"] or row["popularity_power"])
    if row["xi"] is not None:
        return [] if weighted else ["RLAE" if row["dropout"] == 0 else "RDLAE"]
    found = [WEIGHTED] if row["l2"] > 0 and row["dropout"] > 0 else []
    if weighted:
        return found
    if row["dropout"] == 0:
        return ["EASE"] if row["b"] == 0 else []
    if row["l2"] == 0:
        return ["DEQL(plain)"] if row["b"] > 0 else []
    if row["b"] == 0:
        return [*found, "EDLAE", "DEQL(L2+zero-diag)"]
    return [*found, "DEQL(L2)", *(["DLAE"] if row["b"] == 1 else [])]
