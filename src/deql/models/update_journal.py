"""A log of changes: the batches that made a first model what it is now, and the same model from them again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from deql._version import __version__
from deql.data.batch_records import batch_from_record, batch_to_record
from deql.data.changes import Batch
from deql.errors import DeqlError, JournalError, Setting
from deql.io.journal import Journal, journal_head, read_records
from deql.models.aging import age_model
from deql.models.updatable import Updatable
from deql.models.update import METHODS, update_model
from deql.models.update_report import UpdateReport

__all__ = ["JournalEntry", "UpdateJournal", "apply_entry", "replay"]

KIND = "updates"
_UPDATE, _WRITTEN = "update", "written"


@dataclass(frozen=True, eq=False)
class JournalEntry:
    """One update: what was asked for, and the models before and after.

    Attributes
    ----------
    batch : Batch
        With users under the ids that the model has: hashes, where it keeps those.
    method : {"auto", "low rank", "refit"}
        The way that was taken; "auto" where P stayed as it was.
    time : float
        When, in seconds since 1970; the model keeps it.
    before, after : str
        Checksums of the models.
    until : float or None
        The moment that the model was aged to afterwards.
    new_users : bool
        Whether all users of what was added were said to be new.
    item_features : str or None
        The table that was given as the prior once more.
    version : str
        Of the library.
    """

    batch: Batch
    method: str
    time: float
    before: str
    after: str
    until: float | None = None
    new_users: bool = False
    item_features: str | None = None
    version: str = __version__

    def to_record(self) -> dict[str, Any]:
        """As a line of the journal."""
        rest = {name: getattr(self, name) for name in _FIELDS}
        told = {name: value for name, value in rest.items() if value is not None and value is not False}  # 0 is told
        return {"step": _UPDATE, "batch": batch_to_record(self.batch)} | told

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> JournalEntry:
        """What :meth:`to_record` gave; JournalError or DataError if it is none."""
        given = {name: record[name] for name in _FIELDS if name in record}
        for name, value in given.items():
            if isinstance(value, bool) != (name == "new_users") or not isinstance(value, _FIELDS[name]):
                raise JournalError(f"its {name} is {str(value)[:40]!r}")
        for name in ("method", "time", "before", "after"):
            if name not in given:
                raise JournalError(f"it has no {name}")
        if given["method"] not in METHODS:
            raise JournalError(f"its method is {given['method'][:40]!r}")
        return cls(batch_from_record(record.get("batch")), **given)


_FIELDS: dict[str, Any] = {
    "method": str, "time": int | float, "before": str, "after": str, "until": int | float, "new_users": bool,
    "item_features": str, "version": str,
}  # fmt: skip


class UpdateJournal:
    """The journal of a model's updates, open for the next one.

    A line is appended before the model file is replaced, as its checksum is known by then, and another once it is in
    its place. So a batch whose model was never written is known by the next update, which begins with the model of
    before: its line is dropped, and ``note`` says so.

    Parameters
    ----------
    path : Path
    checksum : str
        Of the model that is to be updated. A journal that ends with another model is refused.

    Attributes
    ----------
    note : str or None
        What was found that people should know.
    """

    def __init__(self, path: Path, checksum: str) -> None:
        self.path = path
        self.note: str | None = None
        head = journal_head(path, KIND)
        self._is_new = head is None
        begun = head is not None and len(read_records(path, KIND)) > 0
        self._journal = Journal(path, head if begun and head is not None else {"first": checksum}, KIND)
        try:
            self._settle(checksum)
        except BaseException:
            self._journal.close()
            raise

    def _settle(self, checksum: str) -> None:
        """Find the end of the journal at this model."""
        updates = [record for record in self._journal.records if record["step"] == _UPDATE]
        if any(one.get("after") != two.get("before") for one, two in pairwise(updates)):
            raise JournalError(
                f"{self.path} is broken: a line is missing, or was changed; name another ",
                Setting("journal", noun="file"),
            )
        if not updates or updates[-1].get("after") == checksum:
            return
        confirmed = self._journal.records[-1]["step"] != _UPDATE
        if not confirmed and updates[-1].get("before") == checksum:
            self._journal.drop_last()
            self.note = (
                f"the last update in {self.path} was ended before its model was there, and is taken out of it: "
                "ask for it again, if that is not what you do now"
            )
        elif any(record.get("before") == checksum for record in updates):
            raise JournalError(
                f"{self.path} goes on from this model to a later one: update that one, or name another ",
                Setting("journal", noun="file"),
            )
        else:
            raise JournalError(
                f"{self.path} is the journal of another model: name another ", Setting("journal", noun="file")
            )

    def append(self, entry: JournalEntry) -> None:
        """Write down an update, before its model is put in its place."""
        self._journal.append(entry.to_record())

    def confirm(self, after: str) -> None:
        """Write down that the model is in its place."""
        self._journal.append({"step": _WRITTEN, "after": after})

    def names(self, users: Iterable[Any]) -> bool:
        """Whether earlier lines tell what one of these users had."""
        wanted = set(users)
        parts = (part for record in self._journal.records for part in _pairs(record.get("batch")))
        return any(not wanted.isdisjoint(part.get("users", ())) for part in parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._is_new and not self._journal.records:
            self.path.unlink(missing_ok=True)  # nothing is left of an update that failed
        self._journal.close()


def _pairs(batch: Any) -> Iterator[dict[str, Any]]:
    if isinstance(batch, dict):
        yield from (part for name in ("added", "removed") if isinstance(part := batch.get(name), dict))


def apply_entry(model: Updatable, entry: JournalEntry, prior: Any = None) -> list[UpdateReport]:
    """Do to a model what an entry says, by the way and at the time that it says: the batch, then the aging.

    Parameters
    ----------
    model : fitted model
    entry : JournalEntry
        Its checksums are not looked at.
    prior : Prior, optional
        The prior once more.
    """
    reports = []
    if entry.batch or entry.until is None:
        reports.append(
            update_model(
                model, entry.batch, new_users=entry.new_users, method=entry.method, prior=prior, now=entry.time
            )
        )
    if entry.until is not None:
        reports.append(age_model(model, entry.until, now=entry.time))
    return reports


def replay(
    model: Updatable,
    checksum: str,
    path: Path,
    prior_of: Callable[[Updatable, str], Any],
    report: Callable[[int, int], None] | None = None,
) -> tuple[Updatable, int, bool]:
    """Do all updates of a journal to its first model, each by the way that was taken then, and check every checksum.

    Parameters
    ----------
    model : fitted model
        The first one, which is not to be used any more afterwards.
    checksum : str
        Of its file.
    path : Path
        The journal.
    prior_of : callable
        Makes the prior of a model once more from a table of features whose name stands in the journal.
    report : callable, optional
        Called as ``report(done, total)``.

    Returns
    -------
    Updatable
        The last model.
    int
        How many updates there were.
    bool
        Whether it is known that the model of the last one was written then.
    """
    records = read_records(path, KIND)
    numbered = [(line, one) for line, one in enumerate(records, start=2) if one["step"] == _UPDATE]
    if not numbered:
        raise JournalError(f"{path} has no updates")
    for done, (line, record) in enumerate(numbered):
        try:
            entry = JournalEntry.from_record(record)
        except DeqlError as error:
            raise JournalError(f"line {line} of {path} is damaged: {error}") from None
        if entry.before != checksum:
            what = "the journal of another model" if not done else "broken: a line is missing, or was changed"
            raise JournalError(f"{path} is {what}: its line {line} begins with another model than this one")
        prior = None if entry.item_features is None else prior_of(model, entry.item_features)
        apply_entry(model, entry, prior)
        # As it was between two updates: in a file, which keeps what a prior made and not the prior.
        model = type(model)._from_record(model._as_record())
        checksum = model.checksum()
        if checksum != entry.after:
            of = "" if entry.version == __version__ else f", of deql {entry.version},"
            raise JournalError(
                f"line {line} of {path}{of} gives another model here, with deql {__version__}, than it did then: "
                "nothing is saved"
            )
        if report is not None:
            report(done + 1, len(numbered))
    return model, len(numbered), records[-1]["step"] == _WRITTEN
