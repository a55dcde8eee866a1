"""A column of a table as columns of a matrix: what there is to know is learned from some items, then used for all."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from deql._system.lazy import pl
from deql.errors import DataError, name_some
from deql.priors.feature_kinds import check_kind, separator_of

__all__ = ["ALIKE", "BUCKETS", "FeatureColumn", "learn_column"]

BUCKETS = 2048
"""Features that the words of a text are spread over, by their CRC-32: the same in every process and version."""

_FLAG = ("yes",)
"""The one category of booleans: that it is so."""

_KNOTS = 8
"""Most points between which a number is placed."""

ALIKE = {"number": 0.9, "embedding": 0.5, "text": 0.2, "matrix": 0.5}
"""The cosine from which two items are called similar in a column whose features have no names."""


@dataclass(frozen=True, eq=False)
class FeatureColumn:
    """What was learned of one column.

    Attributes
    ----------
    name : str
        Of the column; empty for a matrix, which is one column with as many features as it has columns.
    kind : str
        One of ``number``, ``category``, ``tags``, ``embedding``, ``text``, ``matrix``.
    factor : ndarray of float64
        What each of its features is multiplied by: the idf of words, 0 for what is left out, else 1.
    weight : float
        What all of them are multiplied by, so that the column counts for as much as any other.
    offset : ndarray of float64
        The means of an embedding; the knots of a number.
    values : tuple of str
        What categories or tags there are.
    separator : str
        Between the tags of a text.
    """

    name: str
    kind: str
    factor: NDArray[np.float64]
    weight: float = 1.0
    offset: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    values: tuple[str, ...] = ()
    separator: str = ""

    @property
    def width(self) -> int:
        """How many features it gives."""
        return len(self.factor)

    def check(self) -> None:
        """Raise ValueError unless its parts belong to a column of its kind, which a file may say wrongly."""
        sizes = {
            "number": (len(self.offset), 0),
            "embedding": (len(self.offset), 0),
            "category": (len(self.values), len(self.values)),
            "tags": (len(self.values), len(self.values)),
            "text": (BUCKETS, 0),
            "matrix": (self.width, 0),
        }
        if self.kind not in sizes or (self.width, len(self.values)) != sizes[self.kind]:
            raise ValueError(f"its features' column {self.name!r} is no {self.kind}")
        if self.kind == "number" and (self.width < 2 or (np.diff(self.offset) <= 0).any()):
            raise ValueError(f"the knots of its features' column {self.name!r} do not rise")
        if (self.kind == "matrix") != (self.name == "") or (self.kind == "tags" and not self.separator):
            raise ValueError(f"its features' column {self.name!r} is no {self.kind}")

    def label(self, place: int) -> str:
        """What people call one of its categories or tags: "genre Comedy" of a column genres; a flag by its column."""
        if self.values == _FLAG:
            return self.name
        plural = self.kind == "tags" and self.name.endswith("s") and not self.name.endswith(("ss", "ies"))
        return f"{self.name[:-1] if plural else self.name} {self.values[place]}"

    def encode(self, raw: Any) -> csr_array:
        """The features of some rows: a series, or for a matrix a sparse one."""
        if self.kind != "matrix":
            check_kind(self.name, self.kind, raw)
        found: csr_array = csr_array(self._raw(raw).multiply(self.factor))
        if self.kind in ("tags", "text"):  # of unit length, so that many tags say no more than few
            lengths = np.sqrt(np.asarray(found.multiply(found).sum(axis=1), np.float64).ravel())
            shares = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
            found = csr_array(diags_array(shares) @ found)
        encoded: csr_array = (found * self.weight).astype(np.float32)
        encoded.eliminate_zeros()
        return encoded

    def unseen(self, raw: Any) -> int:
        """How many rows have a category or a tag that nothing was learned of."""
        if self.kind not in ("category", "tags"):
            return 0
        check_kind(self.name, self.kind, raw)
        pairs = _pairs(raw, self.kind, self.separator)
        return int(pairs.filter(~pairs["token"].is_in(list(self.values)))["row"].n_unique())

    def _raw(self, raw: Any) -> csr_array:
        match self.kind:
            case "matrix":
                if raw.shape[1] != self.width:
                    raise DataError(f"there are {self.width:,} features, and new items have {raw.shape[1]:,}")
                return csr_array(raw)
            case "number":
                return _between(_numbers(self.name, raw), self.offset)
            case "embedding":
                return _embedded(self.name, raw, self.offset)
            case "text":
                pairs = _pairs(raw, "text", "")
                return _counts(pairs, _buckets(pairs), len(raw), BUCKETS)
            case _:
                pairs = _pairs(raw, self.kind, self.separator)
                places = {value: place for place, value in enumerate(self.values)}
                return _counts(pairs, places, len(raw), len(self.values))


def learn_column(name: str, kind: str, raw: Any) -> FeatureColumn | None:
    """What there is to know of a column; None if it is the same for all items that have it, or none has.

    Parameters
    ----------
    name, kind : str
    raw : series or sparse matrix
        The items to learn from.

    Examples
    --------
    >>> column = learn_column("genres", "tags", pl.Series(["Comedy|Drama", "Drama", None]))
    >>> column.values
    ('Comedy', 'Drama')
    >>> column.encode(pl.Series(["Drama|Western"])).toarray()
    array([[0., 1.]], dtype=float32)
    """
    match kind:
        case "matrix":
            column = FeatureColumn(name, kind, _varying(raw).astype(np.float64))
        case "number":
            knots = _knots(_numbers(name, raw))
            column = FeatureColumn(name, kind, np.ones(len(knots) if len(knots) > 1 else 0), offset=knots)
        case "embedding":
            column = _learn_embedding(name, raw)
        case "text":
            column = _learn_text(name, raw)
        case _:
            separator = separator_of(raw) if kind == "tags" else ""
            pairs = _pairs(raw, kind, separator)
            values = tuple(sorted(pairs["token"].unique().to_list()))
            alike = len(values) < 2 and pairs["row"].n_unique() == len(raw)
            column = FeatureColumn(name, kind, np.ones(0 if alike else len(values)), values=values, separator=separator)
    if not column.factor.any():
        return None
    return _balanced(column, raw)


def _balanced(column: FeatureColumn, raw: Any) -> FeatureColumn | None:
    """With the weight that makes the squared features of an item that has any sum up to 1, on average."""
    encoded = column.encode(raw)
    energy, having = float(encoded.multiply(encoded).sum()), int((np.diff(encoded.indptr) > 0).sum())
    return replace(column, weight=float(np.sqrt(having / energy))) if energy > 0 else None


def _varying(matrix: csr_array) -> NDArray[np.bool_]:
    """Which columns of a matrix are not the same for all rows."""
    means = np.asarray(matrix.mean(axis=0), np.float64).ravel()
    squares = np.asarray(matrix.multiply(matrix).mean(axis=0), np.float64).ravel()
    varying: NDArray[np.bool_] = squares - means**2 > 1e-12 * squares
    return varying


def _numbers(name: str, series: pl.Series) -> NDArray[np.float64]:
    """Numbers, dates as days, NaN where there is none."""
    if series.dtype == pl.String:
        series = series.str.strip_chars()
    elif isinstance(series.dtype, pl.Duration):
        series = series.dt.total_microseconds() / 86_400e6
    elif isinstance(series.dtype, pl.Time):
        series = series.cast(pl.Int64) / 86_400e9
    elif series.dtype.is_temporal():
        series = series.cast(pl.Datetime("us"), strict=False).cast(pl.Int64) / 86_400e6
    found: NDArray[np.float64] = series.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
    if np.isinf(found).any():
        row = int(np.isinf(found).argmax())
        raise DataError(f"the features' column {name!r} holds an infinite number, {series[row]}: leave it empty")
    return found


def _knots(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points with about as many items between any two neighbours."""
    known = values[~np.isnan(values)]
    if not len(known):
        return np.zeros(0)
    return np.unique(np.quantile(known, np.linspace(0.0, 1.0, _KNOTS)))


def _between(values: NDArray[np.float64], knots: NDArray[np.float64]) -> csr_array:
    """A number as shares of the two knots that it lies between; beyond the last, that one's. None is no feature."""
    rows = np.flatnonzero(~np.isnan(values))
    known = np.clip(values[rows], knots[0], knots[-1])
    upper = np.clip(np.searchsorted(knots, known), 1, len(knots) - 1)
    share = (known - knots[upper - 1]) / (knots[upper] - knots[upper - 1])
    return csr_array(
        (np.concatenate([1.0 - share, share]), (np.tile(rows, 2), np.concatenate([upper - 1, upper]))),
        shape=(len(values), len(knots)),
    )


def _learn_embedding(name: str, series: pl.Series) -> FeatureColumn:
    lengths = series.cast(pl.List(pl.Float64)).list.len().drop_nulls().unique().sort().to_list()
    if len(lengths) > 1:
        raise DataError(
            f"the features' column {name!r} holds embeddings of {name_some(lengths)} numbers: make them as long as "
            "each other, or say kinds with 'tags'"
        )
    rows = _lists(name, series, lengths[0] if lengths else 0)
    means = rows[~np.isnan(rows).any(axis=1)].mean(axis=0) if len(rows) and lengths else np.zeros(0)
    spread = np.nanmax(np.abs(rows - means), axis=0) if len(means) else means
    return FeatureColumn(name, "embedding", (spread > 0).astype(np.float64), offset=means)


def _lists(name: str, series: pl.Series, length: int) -> NDArray[np.float64]:
    """Rows of numbers, NaN where there is none; DataError unless they are as long as they should be."""
    lists = series.cast(pl.List(pl.Float64))
    rows = np.full((len(series), length), np.nan)
    for place, values in enumerate(lists.to_list()):
        if values is None:
            continue
        if len(values) != length or not np.isfinite(np.array(values, float)).all():
            raise DataError(
                f"the features' column {name!r} holds an embedding that is not {length:,} finite numbers: "
                f"{name_some(values, 3)}"
            )
        rows[place] = values
    return rows


def _embedded(name: str, series: pl.Series, means: NDArray[np.float64]) -> csr_array:
    return csr_array(np.nan_to_num(_lists(name, series, len(means)) - means))


def _learn_text(name: str, series: pl.Series) -> FeatureColumn:
    pairs = _pairs(series, "text", "")
    counts = _counts(pairs, _buckets(pairs), len(series), BUCKETS)
    of_bucket = np.bincount(counts.indices, minlength=BUCKETS)
    having = int((np.diff(counts.indptr) > 0).sum())
    # A word that all items have tells none apart; one that no item has may come with a new one, and says nothing.
    factor = np.where(of_bucket > 0, np.log((1.0 + having) / np.maximum(of_bucket, 1)), 0.0)
    return FeatureColumn(name, "text", factor if having > 1 else np.zeros(BUCKETS))


def _pairs(series: pl.Series, kind: str, separator: str) -> pl.DataFrame:
    """Row, token and how often it is there, for each row and each different token in it."""
    if kind == "text":
        tokens = series.cast(pl.String).str.to_lowercase().str.extract_all(r"\w{2,}")
    elif isinstance(series.dtype, pl.List | pl.Array):
        tokens = series.cast(pl.List(pl.String))
    elif kind == "tags":
        tokens = series.cast(pl.String).str.split(separator)
    elif series.dtype == pl.Boolean:
        tokens = pl.Series([list(_FLAG) if flag else None for flag in series.to_list()], dtype=pl.List(pl.String))
    else:
        tokens = series.cast(pl.String).to_frame("one").select(pl.concat_list("one")).to_series()
    rows = pl.DataFrame({"row": np.arange(len(series)), "token": tokens})
    one_each = rows.explode("token").with_columns(pl.col("token").str.strip_chars())
    counted = one_each.filter(pl.col("token").is_not_null() & (pl.col("token") != "")).group_by("row", "token").len()
    once = counted if kind == "text" else counted.with_columns(pl.lit(1).alias("len"))  # a tag is there or not
    return once.sort("row", "token")


def _buckets(pairs: pl.DataFrame) -> dict[str, int]:
    return {token: zlib.crc32(token.encode()) % BUCKETS for token in pairs["token"].unique().to_list()}


def _counts(pairs: pl.DataFrame, places: dict[str, int], n_rows: int, width: int) -> csr_array:
    """1 + log(count) of each token at its place; those without a place are left out."""
    columns = np.array([places.get(token, -1) for token in pairs["token"].to_list()], np.int64)
    known = columns >= 0
    sizes = 1.0 + np.log(pairs["len"].to_numpy()[known])
    counts = csr_array((sizes, (pairs["row"].to_numpy()[known], columns[known])), shape=(n_rows, width))
    counts.sum_duplicates()
    return counts
