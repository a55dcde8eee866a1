"""What kind of file is this? Format, delimiter, header and names of columns, from its first lines."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from deql.data.readers.blocks import LONGEST_LINE, blocks, uncompressed_suffix
from deql.data.readers.columns import is_known_name
from deql.data.readers.encoding import UTF8, likely_wide_encoding
from deql.data.readers.quotes import ESCAPED, undo_escapes
from deql.data.readers.split_folder import split_part
from deql.errors import DataError, ParameterError, Setting

__all__ = ["FORMATS", "STAND_IN", "Layout", "csv_records", "layout_of"]

FORMATS = ("csv", "recbole", "lightgcn", "netflix", "ndjson", "parquet", "npz")
"""Names for ``format=``; csv is any delimited text."""

STAND_IN = "\x1f"
"""What ASCII has to separate fields; stands in for delimiters of two bytes, which parsers do not take."""

_LIMIT = Lock()
_DELIMITERS = ("\t", "::", ",", ";", "|", " ")
_SAMPLE_LINES = 200
_SUFFIXES = {
    ".parquet": "parquet", ".pq": "parquet", ".npz": "npz", ".inter": "recbole",
    ".ndjson": "ndjson", ".jsonl": "ndjson", ".json": "ndjson",
}  # fmt: skip
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Layout:
    """How a file is laid out.

    Attributes
    ----------
    format : str
        One of FORMATS.
    names : tuple of str
        Columns: from the header, or their numbers from 1.
    header : bool
        Whether the first line names the columns.
    delimiter : str
        Between fields of delimited text.
    """

    format: str
    names: tuple[str, ...]
    header: bool = False
    delimiter: str = ""

    def describe(self) -> str:
        """A few words for people."""
        if self.format not in ("csv", "recbole"):
            return self.format
        between = {"\t": "tabs", " ": "spaces"}.get(self.delimiter, f"“{self.delimiter}”")
        return f"fields between {between}, {'a header' if self.header else 'no header'}"


def layout_of(
    path: Path,
    wanted: tuple[str, ...] = (),
    format: str | None = None,
    header: bool | None = None,
    encoding: str = UTF8,
) -> Layout:
    """Look at the start of a file.

    Parameters
    ----------
    path : Path
    wanted : tuple of str
        Columns the caller named: if they stand in the first line, it is a header.
    format : str, optional
        One of FORMATS, if the caller knows it.
    header : bool, optional
        Whether the first line names the columns, if the caller knows it.
    encoding : str, default "utf-8"
        As :func:`~deql.data.readers.encoding.check_encoding` gives it.
    """
    if format is not None and format not in FORMATS:
        raise ParameterError(f"unknown format {format!r}: say one of {', '.join(FORMATS)}", parameter="format")
    chosen = format or _SUFFIXES.get(uncompressed_suffix(path))
    if chosen in ("parquet", "npz"):
        return Layout(chosen, ())
    lines = _first_lines(path, encoding)
    if chosen is None:
        chosen = _format_of(lines, path.name)
    match chosen:
        case "ndjson":
            return Layout(chosen, ())
        case "netflix":
            return Layout(chosen, ("user", "movie", "rating", "date"))
        case "lightgcn":
            return Layout(chosen, ("user", "item"))
    delimiter = "\t" if chosen == "recbole" else _delimiter_of(lines)
    rows = _rows(lines, delimiter)
    if header is None:
        header = chosen == "recbole" or _has_header(rows, wanted)
    if not header:
        return Layout(chosen, tuple(str(place + 1) for place in range(len(rows[0]))), False, delimiter)
    names = [name.split(":")[0] if _is_recbole(rows[0]) else name for name in rows[0]]
    return Layout(chosen, tuple(names), True, delimiter)


def _first_lines(path: Path, encoding: str) -> list[str]:
    block = next(blocks(path, encoding=encoding), None) if path.stat().st_size else None
    start = b"" if block is None else bytes(block)
    lines = start.split(b"\n")[:_SAMPLE_LINES]
    # What is not UTF-8 is reported with its line when it is read.
    filled = [line.decode("utf-8", "replace").rstrip("\r") for line in lines if line.strip()]
    if not filled:
        raise DataError(f"{path} is empty: it has no rows")
    if "\0" in filled[0]:
        if wide := likely_wide_encoding(start):
            raise DataError(f"{path} looks like {wide}: say ", Setting("encoding", wide))
        raise DataError(f"{path} is not a text file: expected a table as CSV, TSV, NDJSON or Parquet")
    if filled[0].lstrip().startswith("["):
        raise DataError(f"{path} holds a JSON array: write one object a line (jq -c '.[]' does that)")
    return filled


def _format_of(lines: list[str], name: str) -> str:
    if lines[0].lstrip().startswith("{"):
        return "ndjson"
    if re.fullmatch(r"\d+:", lines[0].strip()):
        return "netflix"
    rows = [line.split() for line in lines]
    plain = all(cell.isdigit() for row in rows for cell in row)
    if plain and not any("\t" in line for line in lines):
        # Lists differ in length, unless all are equally long by chance; then the names of LightGCN's files decide.
        published = (
            split_part(name) is not None
            and uncompressed_suffix(Path(name)) == ".txt"
            and all(len(row) > 1 for row in rows)
        )
        if published or len({len(row) for row in rows}) > 1:
            return "lightgcn"
    return "csv"


def _delimiter_of(lines: list[str]) -> str:
    """The delimiter that gives most lines the same number of fields, two or more; of equals the first."""

    def quality(delimiter: str) -> float:
        counts = [len(row) for row in _rows(lines, delimiter)]
        return 0.0 if counts[0] < 2 else counts.count(counts[0]) / len(counts)

    best = max(_DELIMITERS, key=quality)
    return best if quality(best) > 0 else ","


def csv_records(text: str, delimiter: str) -> list[tuple[int, list[str]]]:
    """Records as Python's own parser reads them, each with the line it begins in, from 0.

    Between delimiters of two bytes a quotation mark is a letter like any other.

    Examples
    --------
    >>> csv_records('ann,"tea\\ngreen"\\nbob,jam\\n', ",")
    [(0, ['ann', 'tea\\ngreen']), (2, ['bob', 'jam'])]
    """
    # Elsewhere a lone return does not end a line, and so it must not here.
    text = text.replace("\r\n", "\n").replace("\r", " ")
    quoting: Any = csv.QUOTE_MINIMAL
    if len(delimiter) > 1:
        text, delimiter, quoting = text.replace(delimiter, STAND_IN), STAND_IN, csv.QUOTE_NONE
    records = []
    line = 0
    with _LIMIT:  # one for the whole process, so it is put back
        usual = csv.field_size_limit(2 * LONGEST_LINE)
        try:
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting)
            for record in reader:
                records.append((line, record))
                line = reader.line_num
        finally:
            csv.field_size_limit(usual)
    return records


def _rows(lines: list[str], delimiter: str) -> list[list[str]]:
    text = "\n".join(lines)
    if len(delimiter) == 1 and ESCAPED.decode() in text:
        text = (undo_escapes(text.encode(), delimiter.encode(), False, False) or text.encode()).decode()
    try:
        return [[cell.strip() for cell in record] for _, record in csv_records(text, delimiter) if record]
    except csv.Error:
        return [lines]


def _is_recbole(names: list[str]) -> bool:
    return all(re.fullmatch(r".+:(token|float|token_seq|float_seq)", name) for name in names)


def _has_header(rows: list[list[str]], wanted: tuple[str, ...]) -> bool:
    """Whether the first line names columns.

    It does if a name is one that was asked for, or two are well known. Else a column that is numeric
    in the first line and below speaks against, and one that is numeric only below, or a well-known
    name, for it. A table without any number is taken to have a header, as almost all have.
    """
    first, below = rows[0], rows[1:]
    known = sum(map(is_known_name, first))
    if _is_recbole(first) or any(name in wanted for name in first) or known > 1:
        return True
    if not below:
        return known > 0 or not any(map(_is_number, first))
    return not any(
        _is_number(cell) and all(place < len(row) and (_is_number(row[place]) or not row[place]) for row in below)
        for place, cell in enumerate(first)
    )


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None
