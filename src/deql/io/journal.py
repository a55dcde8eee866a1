"""Long work on disk: one line for each finished step, so that it can be killed at any moment and resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from deql._system.formatting import as_json, parse_json
from deql.errors import JournalError, Setting, name_some, reason
from deql.io.atomic import try_lock

__all__ = ["Journal", "journal_head", "read_records"]

VERSION = 1

Record = dict[str, Any]


class Journal:
    """Steps of a search, or of other long work, in the order they were finished.

    The first line says which work it is; each other line is a step. A line is appended and synced to disk
    before the work goes on, so what a killed process leaves is whole lines and at most one torn one, which
    is dropped when the file is opened again.

    Parameters
    ----------
    path : Path or None
        JSON lines; None keeps them in memory only.
    search : dict
        What the result depends on. A file that was begun with another one is refused.
    kind : {"tuning", "reproduction", "updates"}, default "tuning"
        Whose steps they are.

    Attributes
    ----------
    records : list of dict
        The steps so far.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for value in (1, 2):
    ...         with Journal(Path(folder, "a.jsonl"), {"metric": "ndcg@20"}) as journal:
    ...             journal.append({"step": "look", "value": value})
    ...     journal.records
    [{'step': 'look', 'value': 1}, {'step': 'look', 'value': 2}]
    """

    def __init__(self, path: Path | None, search: Mapping[str, Any], kind: str = "tuning") -> None:
        self.path = path
        self.kind = kind
        self.records: list[Record] = []
        self._file: IO[bytes] | None = None
        head = {"deql": kind, "version": VERSION, "search": as_json(dict(search))}
        if path is None:
            return
        try:
            if path.exists() and not path.is_file():
                raise JournalError(f"the journal {path} is not a plain file: name one")
            self._file = open(path, "a+b", buffering=0)  # noqa: SIM115  open as long as the journal is
            self._lock()
            self._read(head)
        except (OSError, ValueError) as error:
            self.close()
            if isinstance(error, JournalError):
                raise
            why = getattr(error, "strerror", None) or str(error)
            raise JournalError(f"the journal {path} cannot be used: {why.lower()}") from None

    def append(self, record: Record) -> None:
        """Add a step; it is on disk when this returns."""
        record = as_json(record)
        if self._file is not None:
            try:
                self._write(record)
            except OSError as error:
                raise JournalError(
                    f"the journal {self.path} could not be written: {reason(error)}; "
                    "what it has is safe, and the same command goes on from there"
                ) from None
        self.records.append(record)

    def drop_last(self) -> None:
        """Take the last step back; that is on disk when this returns."""
        if self._file is not None:
            try:
                self._file.seek(0)
                self._file.truncate(self._file.read().rstrip(b"\n").rfind(b"\n") + 1)
                os.fsync(self._file.fileno())
            except OSError as error:
                raise JournalError(f"the journal {self.path} could not be written: {reason(error)}") from None
        self.records.pop()

    def close(self) -> None:
        """Let the file go; the records stay."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, record: Record) -> None:
        assert self._file is not None
        rest = memoryview(_line(record))
        while rest:
            rest = rest[self._file.write(rest) :]
        os.fsync(self._file.fileno())

    def _lock(self) -> None:
        """Two processes on one journal would do everything twice."""
        assert self._file is not None
        if not try_lock(self._file.fileno()):
            raise JournalError(f"the journal {self.path} is in use: another process works with it")

    def _read(self, head: Record) -> None:
        """All records but a torn last line, which is cut off once the file is known to be this search's."""
        assert self._file is not None
        self._file.seek(0)
        content = self._file.read()
        whole = content.rfind(b"\n") + 1
        lines = content[:whole].split(b"\n")[:-1]
        while len(lines) > 1 and not lines[-1].strip():  # editors leave such
            whole -= len(lines.pop()) + 1
        if len(lines) > 1 and _record(lines[-1]) is None:  # a file may grow on disk before what it holds gets there
            whole -= len(lines.pop()) + 1
        if lines:
            before = _search_of(lines[0], self.path, self.kind)
            self.records = [_parse(line, number, self.path) for number, line in enumerate(lines[1:], start=2)]
            if before != head["search"]:
                self._refuse_unless_empty(before, head["search"])
                whole, lines, self.records = 0, [], []
        elif not _line(head).startswith(content):
            raise _foreign(self.path, self.kind)
        if whole < len(content):
            self._file.truncate(whole)
        if not lines:
            self._write(head)

    def _refuse_unless_empty(self, before: Record, now: Record) -> None:
        """Another search may only make way if it has found nothing."""
        if any(record.get("values") or record.get("found") for record in self.records):
            changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
            raise JournalError(
                f"{self.path} is the journal of a search with other {', '.join(changed)}: name another ",
                Setting("journal", noun="file"),
                ", or delete it to begin again",
            )


def read_records(path: Path, kind: str = "tuning") -> list[Record]:
    """The steps in a journal, without opening it for more: another process may be writing.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Journal(Path(folder, "a.jsonl"), {"metric": "ndcg@20"}) as journal:
    ...         journal.append({"step": "look"})
    ...     read_records(Path(folder, "a.jsonl"))
    [{'step': 'look'}]
    """
    try:
        lines = path.read_bytes().split(b"\n")[:-1]  # what follows the last line break is not whole
    except OSError as error:
        raise JournalError(f"the journal {path} cannot be read: {reason(error)}") from None
    if not lines:
        raise _foreign(path, kind)
    _search_of(lines[0], path, kind)
    return [_parse(line, number, path) for number, line in enumerate(lines[1:], start=2) if line.strip()]


def journal_head(path: Path, kind: str = "tuning") -> Record | None:
    """What a journal was begun with; None if there is nothing in it yet, or no file."""
    try:
        first, end, _ = path.read_bytes().partition(b"\n") if path.exists() else (b"", b"", b"")
    except OSError as error:
        raise JournalError(f"the journal {path} cannot be read: {reason(error)}") from None
    return _search_of(first, path, kind) if end else None


def _search_of(line: bytes, path: Path | None, kind: str) -> Record:
    """Which search the first line says it is."""
    found = _record(line) or {}
    if found.get("deql") != kind or not isinstance(found.get("search"), dict):
        raise _foreign(path, kind)
    if found.get("version") != VERSION:
        raise JournalError(
            f"{path} is of version {name_some([found.get('version')])}, this library reads {VERSION}: name another ",
            Setting("journal", noun="file"),
        )
    return dict(found["search"])


def _foreign(path: Path | None, kind: str) -> JournalError:
    what = {"tuning": "a search", "reproduction": "a reproduction"}.get(kind, kind)
    return JournalError(f"{path} is not a journal of {what}: name another ", Setting("journal", noun="file"))


def _parse(line: bytes, number: int, path: Path | None) -> Record:
    record = _record(line)
    if record is None or not isinstance(record.get("step"), str):
        raise JournalError(f"line {number} of {path} is damaged: delete that line, or the file to begin again")
    return record


def _line(record: Record) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def _record(line: bytes) -> Record | None:
    """What a line says; None if that is no JSON object."""
    try:
        found = parse_json(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
