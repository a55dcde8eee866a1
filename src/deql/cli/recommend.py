"""``deql recommend``: the best items for a history, for known users, or for every user of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from deql._system.tables import counted
from deql.cli.items import find_items, history_facts, item_rows, parse_history, parse_items, scored_items
from deql.cli.options import AsJson, Encoding, HowMany, MaxUnpacked, ModelFile, OnMissing, note_weights
from deql.cli.output import console, option_name, print_json, progress_wanted, rich_table, say
from deql.cli.user_ids import as_user_ids, read_ids
from deql.cli.written_files import check_outputs
from deql.data import Interactions
from deql.data.partition_folder import is_partition_folder
from deql.data.partitions import TrainingData
from deql.data.read import read_interactions
from deql.data.read_partitions import read_partitions
from deql.errors import ParameterError
from deql.io.frame_stream import STREAM_ENDINGS
from deql.models import load
from deql.models.bulk import Written

__all__ = ["recommend"]


def recommend(
    model_file: ModelFile,
    history: Annotated[
        list[str] | None, typer.Argument(help="Items of one history; tea=2.5 gives one a weight.", metavar="[ITEM]...")
    ] = None,
    k: HowMany = 20,
    histories: Annotated[
        Path | None, typer.Option(help="Table of many users' histories instead, or a folder of partitions.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="Its column of users.")] = None,
    item: Annotated[str | None, typer.Option(help="Its column of items.")] = None,
    weight: Annotated[str | None, typer.Option(help="Its column of weights; without it every row counts 1.")] = None,
    max_unpacked: MaxUnpacked = None,
    encoding: Encoding = "utf-8",
    on_missing: OnMissing = "error",
    exclude: Annotated[list[str] | None, typer.Option(help="Never recommend this item; may be repeated.")] = None,
    candidate: Annotated[list[str] | None, typer.Option(help="Recommend only these; may be repeated.")] = None,
    include_seen: Annotated[bool, typer.Option("--include-seen", help="Items of the history may come back.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Unknown items are an error.")] = False,
    user_id: Annotated[
        list[str] | None, typer.Option(help="A user of --histories or of the model's own data; may be repeated.")
    ] = None,
    users: Annotated[Path | None, typer.Option(help="File with the ids of such users, one on each line.")] = None,
    all_users: Annotated[bool, typer.Option("--all-users", help="All users of the model's own data.")] = False,
    reasons: Annotated[int, typer.Option(help="Name so many items of the history for each item.")] = 0,
    scheduler: Annotated[
        str | None,
        typer.Option(help="Have a Dask cluster recommend to all of --histories: its address.", metavar="ADDRESS"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="For many users: .parquet, .csv or .ndjson to write; of a cluster: a folder."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Recommend items for a history, for users by id, or for every user of a table."""
    of_users = histories is not None or bool(user_id) or users is not None or all_users
    if history and of_users:
        raise ParameterError(
            "give either the items of one history or users (--histories, --user-id, --users, --all-users), not both"
        )
    if all_users and (histories is not None or user_id or users is not None):
        raise ParameterError("--all-users are those of the model's own data: leave out the other users")
    if user_id and users is not None:
        raise ParameterError("give users either by --user-id or in the file of --users, not both")
    if weight is not None and histories is None:
        raise ParameterError("--weight goes with --histories; of one history say it with the item: tea=2.5")
    if out is not None and json:
        raise ParameterError("--json is printed, and --out written: say one of them; .ndjson is JSON in lines")
    if scheduler is None:
        _check_output(out, of_users, [histories, users, model_file])
    elif histories is None or out is None or user_id or users is not None:
        raise ParameterError("--scheduler goes with --histories, all of whose users get lists, and a folder with -o")
    elif out.suffix in STREAM_ENDINGS or (out.exists() and not out.is_dir()):
        raise ParameterError(f"a cluster writes a file for each part of the users: name a folder with -o, got {out}")
    model = load(model_file)
    options = {
        "k": k, "exclude_seen": not include_seen, "strict": strict, "reasons": reasons,
        "exclude": find_items(model, exclude), "candidates": parse_items(model, candidate, strict),
    }  # fmt: skip
    if not of_users:
        _recommend_one(model, parse_history(model, history or [], strict), options, json)
        return
    data: Interactions | None = None  # those that the model kept
    if histories is not None:
        reading: dict[str, Any] = {"user": user, "item": item, "weight": weight, "max_unpacked": max_unpacked}
        partitioned = is_partition_folder(histories)
        if partitioned and (typed := [name for name, value in reading.items() if value is not None]):
            raise ParameterError(f"{histories} is partitioned already: leave out {option_name(typed[0])}")
        if scheduler is not None and out is not None and partitioned:
            _recommend_on_cluster(model_file, read_partitions(histories), scheduler, options, out)
            return
        if partitioned:
            data = read_partitions(histories).to_interactions()
        else:
            data = read_interactions(histories, **reading, on_missing=on_missing, encoding=encoding)
            if weight is None:
                note_weights(model, histories, encoding)
        if scheduler is not None and out is not None:
            _recommend_on_cluster(model_file, data, scheduler, options, out)
            return
    known = (_kept_data(model, model_file) if data is None else data).users
    ids = None
    if user_id:
        ids = as_user_ids(user_id, known)
    elif users is not None:
        ids = read_ids(users, known, encoding)
    if out is None and user_id and len(user_id) == 1:
        _recommend_known(model, data, ids, options, json)
    else:
        _recommend_many(model, data, ids, options, out, json)


def _check_output(out: Path | None, of_users: bool, inputs: list[Path | None]) -> None:
    """Whatever is wrong with the file is said before the work."""
    if out is None:
        return
    if not of_users:
        raise ParameterError(
            "--out goes with --histories, --users, --user-id or --all-users; for one history redirect the output"
        )
    if out.suffix not in STREAM_ENDINGS:
        raise ParameterError(f"--out must end in .ndjson, .csv or .parquet, got {out}")
    check_outputs(out, inputs=inputs)


def _kept_data(model: Any, model_file: Path) -> Interactions:
    """The data that the model was fitted on."""
    data: Interactions | None = model.data_
    if data is None:
        raise ParameterError(
            f"{model_file} does not have its data, and so no users: fit it with --keep-data, or give --histories"
        )
    return data


def _recommend_one(model: Any, history: list[Any] | dict[Any, float], options: dict[str, Any], json: bool) -> None:
    _show_one(model, model.recommend([history], **options), {"history": history_facts(history)}, json)


def _recommend_known(model: Any, data: Interactions | None, ids: Any, options: dict[str, Any], json: bool) -> None:
    _show_one(model, model.recommend(data, users=ids, **options), {"user": ids[0]}, json)


def _show_one(model: Any, found: Any, asked: dict[str, Any], json: bool) -> None:
    from_popularity = bool(found.from_popularity[0])
    if from_popularity:
        say("note: nothing in the history is known and speaks for another item, so this is the popularity order")
    best = scored_items(model, found.ids[0], found.scores[0])
    if found.reasons is not None:
        best = [one | {"reason": why} for one, why in zip(best, found.reasons[0], strict=False)]
    if json:
        print_json({**asked, "from_popularity": from_popularity, "recommendations": best})
        return
    columns, rows = item_rows(best)
    if found.reasons is not None:
        columns, rows = [*columns, ""], [(*row, one["reason"] or "") for row, one in zip(rows, best, strict=True)]
    console().print(rich_table("popularity order" if from_popularity else "", columns, rows))


def _recommend_many(
    model: Any, data: Interactions | None, ids: list[Any] | None, options: dict[str, Any], out: Path | None, json: bool
) -> None:
    """A row for each user and rank; places that stayed empty are left out."""
    model.progress = progress_wanted()
    if out is not None:
        written = model.write_recommendations(out, data, users=ids, **options)
        _tell_cold(written.from_popularity, written.users)
        _tell_written(written, out)
        return
    found = model.recommend(data, users=ids, **options)
    _tell_cold(int(found.from_popularity.sum()), len(found.users))
    frame = found.to_frame("polars")
    print_json(frame.to_dicts()) if json else print(frame.write_csv(), end="")


def _recommend_on_cluster(
    model_file: Path, data: TrainingData, scheduler: str, options: dict[str, Any], out: Path
) -> None:
    """A file for each part of the users, by the workers."""
    from deql import cluster  # which loads what an evaluation needs

    written = cluster.recommend(model_file, data, scheduler, out, progress=progress_wanted(), **options)
    _tell_cold(written.from_popularity, written.users)
    _tell_written(written, out)


def _tell_written(written: Written, out: Path) -> None:
    rows, users = counted(written.rows, "row", "rows"), counted(written.users, "user", "users")
    say(f"wrote {rows} for {users} to {out}")


def _tell_cold(cold: int, users: int) -> None:
    if cold:
        which = f"{cold:,} of {users:,} users"
        say(f"note: {which} have no known item that speaks for another and got the popularity order")
