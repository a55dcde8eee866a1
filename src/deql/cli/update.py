"""``deql update``: a fitted model follows its data without a fit."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from deql._system.progress import stages
from deql._system.tables import counted
from deql.cli.batch_options import BatchOptions, read_batch, refuse_cleaning
from deql.cli.options import AsJson, ModelFile, TableOptions, with_options
from deql.cli.output import file_size, option_name, print_json, print_words, progress_wanted, say
from deql.cli.updatable_models import features_again, load_updatable
from deql.cli.written_files import check_outputs
from deql.data.changes import Batch
from deql.data.moments import moment
from deql.errors import JournalError, ParameterError
from deql.io.model_file import checksum, model_bytes, model_checksum, replacing
from deql.models.aging import check_fading
from deql.models.certificate import Removed, certify
from deql.models.update import plan_update
from deql.models.update_journal import JournalEntry, UpdateJournal, apply_entry
from deql.models.update_journal import replay as replay_journal
from deql.models.update_report import UpdatePlan, UpdateReport

__all__ = ["update"]

Method = Literal["auto", "low-rank", "refit"]


@with_options
def update(
    model_file: ModelFile,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Model file to write; may be the one that is read.")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="Then let interactions fade up to this date (models with a half-life).", metavar="DATE"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Table that the model was fitted on, to be kept with it from now on.", metavar="FILE"),
    ] = None,
    hash_users: Annotated[
        bool, typer.Option("--hash-users", help="Keep salted hashes in place of the ids of users of --data.")
    ] = False,
    new_users: Annotated[
        bool, typer.Option("--new-users", help="All users of --add are new: for models without their data.")
    ] = False,
    method: Annotated[
        Method, typer.Option(help="Change few columns of P, or compute it anew; auto: what is faster.")
    ] = "auto",
    item_features: Annotated[
        Path | None, typer.Option(help="The table of items' features once more, if asked for.", metavar="FILE")
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(help="Log to which the batch is appended, with checksums.", metavar="LOG")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(help="Do all updates of a log to its first model instead.", metavar="LOG")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="Certificate to write, that the users were forgotten.", metavar="FILE")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done, and how long it would take.")
    ] = False,
    json: AsJson = False,
    *,
    batch: BatchOptions,
    table: TableOptions,
) -> None:
    """Follow changes of the data without a fit: interactions come and go, users are forgotten, items retired."""
    if out is None and not dry_run:
        raise ParameterError(f"say with -o where to save the model: -o {model_file} replaces it, whole or not at all")
    inputs = [*batch.typed().values(), data, item_features, table.items]
    check_outputs(journal, certificate, model=out, inputs=[*inputs, replay])
    check_outputs(journal, certificate, inputs=[model_file])
    asked = {
        "until": until, "data": data, "hash_users": hash_users, "new_users": new_users, "method": method != "auto",
        "journal": journal, "certificate": certificate, "dry_run": dry_run,
    }  # fmt: skip
    typed = [*batch.typed(), *(name for name, value in asked.items() if value), *table.typed()]
    if replay is not None:
        for name in typed:
            raise ParameterError(f"--replay does what its log says: leave out {option_name(name)}")
        assert out is not None
        _replay(model_file, replay, item_features, out, json)
        return
    _check_typed(batch, asked | {"item_features": item_features})
    fades_until = None if until is None else moment(until, "until")
    if data is None:
        refuse_cleaning(table)
    found = checksum(model_file)  # first: should the file be replaced meanwhile, that is seen
    model = load_updatable(model_file)
    before = model_checksum(model_file)
    if until is not None:
        check_fading(model)
    if data is not None:
        model.attach_data(table.read(data, quiet=json, find_time=model._needs_times), hash_users=hash_users)
    prior = None if item_features is None else features_again(model, item_features)
    entry = JournalEntry(
        read_batch(model, batch, table), method.replace("-", " "), time.time(), before, "", fades_until, new_users,
        None if item_features is None else str(item_features),
    )  # fmt: skip
    plan = None
    if batch.typed() and (dry_run or journal is not None):  # what is refused leaves the journal as it is
        plan = plan_update(model, entry.batch, new_users=new_users, method=entry.method, prior=prior, measured=dry_run)[
            1
        ]
    if dry_run:
        _show_plan(plan, entry, json)
        return
    assert out is not None
    in_place = os.path.realpath(out) == os.path.realpath(model_file)
    with replacing(model_file, found) if in_place else nullcontext():
        done = _apply(model, entry, prior, out, journal, certificate)
    _show_done(done, out, json)


def _check_typed(batch: BatchOptions, asked: dict[str, Any]) -> None:
    """Refuse what does not go together."""
    if not batch.typed():
        if asked["until"] is None and asked["data"] is None:
            raise ParameterError(
                "say what changes: --add, --remove, --forget-users, --retire-items, --until DATE or --data FILE"
            )
        for name in ("method", "item_features"):
            if asked[name]:
                raise ParameterError(
                    f"{option_name(name)} goes with --add, --remove, --forget-users or --retire-items: leave it out"
                )
    if asked["new_users"] and batch.add is None:
        raise ParameterError("--new-users goes with --add FILE")
    if asked["hash_users"] and asked["data"] is None:
        raise ParameterError("--hash-users goes with --data FILE, whose users it hides")
    if asked["certificate"] is not None and batch.forget_users is None:
        raise ParameterError("--certificate goes with --forget-users FILE")
    if asked["journal"] is not None and asked["data"] is not None:
        raise ParameterError(
            "--journal cannot hold what --data gives: save the model with its data first, and update that one then"
        )


@contextmanager
def _bars(model: Any) -> Iterator[None]:
    """Progress bars, for a refit too, which takes the parameters of the fit."""
    before = model.progress, model.fitted_params_
    model.progress = progress_wanted()
    model.fitted_params_ = model.fitted_params_ | {"progress": model.progress}
    try:
        yield
    finally:
        model.progress, model.fitted_params_ = before[0], model.fitted_params_ | {"progress": before[0]}


@dataclass(frozen=True)
class _Done:
    """What an update did, for people and machines."""

    reports: list[UpdateReport]
    before: str
    after: str
    notes: list[str]
    files: dict[str, str | None]


def _apply(
    model: Any, entry: JournalEntry, prior: Any, out: Path, journal: Path | None, certificate: Path | None
) -> _Done:
    """Compute, then write: a line of the journal, the model with its certificate, and that it is there."""
    notes: list[str] = []
    changes = bool(entry.batch) or entry.until is not None
    data, users = model.data_, entry.batch.forget_users
    removed = Removed.of(data, users) if users and data is not None else None
    quantised = model.quantized_rows_ is not None
    with nullcontext() if journal is None else UpdateJournal(journal, entry.before) as log:
        with _bars(model):
            reports = apply_entry(model, entry, prior) if changes else []
        taken = reports[0].method if entry.batch else entry.method
        entry = replace(entry, method="auto" if taken == "none" else taken, after=model.checksum())
        if log is not None:
            notes += [log.note] if log.note else []
            notes += _named(log, entry.batch, out)

        def save() -> None:
            if log is not None:
                log.append(entry)
            model.save(out, quantized_rows=quantised)

        if certificate is None:
            save()
        else:
            assert removed is not None  # else the update was refused
            parameters = model._to_config(model.fitted_params_)
            said = certify(type(model).__name__, parameters, removed, reports[0], entry.before, entry.after)
            said.save(certificate, before=save)
        if log is not None:
            with suppress(JournalError):  # the next update sees it by the model
                log.confirm(entry.after)
    notes = [note for report in reports for note in report.notes] + notes
    written = {"file": out, "journal": journal, "certificate": certificate}
    files = {name: None if path is None else str(path) for name, path in written.items()}
    return _Done(reports, entry.before, entry.after, notes, files)


def _named(log: UpdateJournal, batch: Batch, out: Path) -> list[str]:
    """What a journal still tells of those who are forgotten."""
    if not batch.forget_users:
        return []
    told = "still holds what was added of them" if log.names(batch.forget_users) else "names who was forgotten"
    return [f"{log.path} {told}, and its first model knows them: begin a new journal from {out}, and delete both"]


def _show_plan(plan: UpdatePlan | None, entry: JournalEntry, json: bool) -> None:
    if json:
        print_json({"plan": None if plan is None else plan.to_dict(), "until": entry.until})
        return
    aged = None if entry.until is None else "Every interaction fades, so P is computed anew after that."
    said = None if plan is None else str(plan)
    for sentence in [*filter(None, [said, aged])] or ["The data are the model's, and would be kept."]:
        print_words(sentence)


def _show_done(done: _Done, out: Path, json: bool) -> None:
    if json:
        facts: dict[str, Any] = {"updates": [one.to_dict() for one in done.reports], "notes": done.notes}
        print_json(facts | {"before": done.before, "after": done.after} | done.files | {"bytes": model_bytes(out)})
        return
    for note in done.notes:
        say(f"note: {note}")
    for report in done.reports:
        print_words(str(report.plan))
    if not done.reports:
        print(f"saved with its data as {out} ({file_size(out)})")
        return
    first, last = done.reports[0], done.reports[-1]
    seconds = sum(report.seconds for report in done.reports)
    how = ", then ".join(report.method for report in done.reports)
    print(f"updated in {seconds:.2f} s ({how}; residual {last.residual:.0e}, {first.residual_before:.0e} before) "
          f"and saved as {out} ({file_size(out)})")  # fmt: skip


def _replay(model_file: Path, log: Path, item_features: Path | None, out: Path, json: bool) -> None:
    model, before = load_updatable(model_file), model_checksum(model_file)
    quantised = model.quantized_rows_ is not None
    with stages(progress_wanted()) as stage:
        model, count, confirmed = replay_journal(
            model, before, log,
            lambda one, name: features_again(one, item_features or Path(name)), stage("Replay"),
        )  # fmt: skip
    model.save(out, quantized_rows=quantised)
    notes = []
    if not confirmed:
        notes.append(f"the last update in {log} may have been ended before its model was there: it was done here")
    if json:
        facts = {"replayed": count, "notes": notes, "before": before, "after": model.checksum()}
        print_json(facts | {"file": str(out), "bytes": model_bytes(out)})
        return
    for note in notes:
        say(f"note: {note}")
    updates = counted(count, "update", "updates")
    print(f"{updates} done again, each with the checksum of then, and saved as {out} ({file_size(out)})")
