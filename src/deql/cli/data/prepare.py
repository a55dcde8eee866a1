"""``deql data prepare``: one of the paper's data sets as the paper split it, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from deql.cli.data.split import SplitFile, show_split, split_facts, written_facts
from deql.cli.options import AsJson, Seed, show_steps
from deql.cli.output import console, file_size, print_json, rich_table, say
from deql.cli.written_files import check_outputs
from deql.datasets import public
from deql.errors import ParameterError

__all__ = ["prepare"]


def prepare(
    name: Annotated[str, typer.Argument(help="ml20m, netflix, msd, gowalla-1, games, beauty, gowalla, yelp2018 or "
                                             "amazon-book.", metavar="NAME")],
    folder: Annotated[Path, typer.Option("--from", help="Folder with the data set's public files.", metavar="DIR")],
    out: SplitFile,
    seed: Seed = None,
    json: AsJson = False,
) -> None:  # fmt: skip
    """Prepare one of the paper's data sets as the paper did, and say how its counts compare."""
    preset = public.PRESETS.get(name)
    if preset is not None and seed is not None and not preset.files:
        raise ParameterError(f"--seed does not belong to {name}, whose split is published")
    check_outputs(out, inputs=public.files_read(name, folder))
    made = public.prepare(name, folder, seed or 0)
    rows = public.compare_with_paper(name, made)
    made.save(out)
    if json:
        print_json(split_facts(made) | written_facts(out) | {"paper": rows})
        return
    show_steps(made.train.steps)
    shown = [
        (
            row["quantity"].replace("_", "-"),
            *(_number(row["quantity"], row[side]) for side in ("paper", "found")),
            "" if row["same"] else "differs",
        )
        for row in rows
    ]
    console().print(rich_table(f"{name}: the paper's counts and these", [name, "paper", "found", ""], shown))
    print(_verdict(rows, public.PRESETS[name].certain))
    show_split(made)
    say(f"wrote {out} ({file_size(out)})")


def _number(quantity: str, value: float) -> str:
    return {"density": f"{value:.2%}", "item_user_ratio": f"{value:.2f}"}.get(quantity, f"{value:,}")


def _verdict(rows: list[dict[str, Any]], certain: bool) -> str:
    """Whether the counts are the paper's; ``certain``: the paper says how it filtered the data set."""
    if all(row["same"] for row in rows):
        return "These are the paper's counts."
    if all(row["same"] for row in rows if row["quantity"] in ("users", "interactions")):
        return "Users and interactions are the paper's; items are those that train has, which depends on the seed."
    if certain:
        return "These are not the paper's counts: the files are not the ones that the paper started from."
    return "These are not the paper's counts: it does not say how it filtered this data set, and this is a guess."
