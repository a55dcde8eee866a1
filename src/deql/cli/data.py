"""``deql data split`` and ``deql data prepare``: honest splits as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deql.cli import source
from deql.cli.options import AsJson, Seed, TableOptions, check_out, show_steps, with_options
from deql.cli.show import console, print_json, say, table
from deql.errors import ParameterError

if TYPE_CHECKING:
    from deql.split import Split

__all__ = ["prepare", "split"]

OutFile = Annotated[Path, typer.Option("--out", "-o", help="Split file to write.")]


@with_options
def split(
    data: Annotated[Path, typer.Argument(help="Table with a row for each interaction.", metavar="FILE")],
    out: OutFile,
    protocol: Annotated[
        source.Protocol,
        typer.Option(help="strong: users held out whole; weak: a share of each user; leave-last: by time."),
    ] = source.Protocol.strong,
    json: AsJson = False,
    *,
    cut: source.SplitOptions,
    table: TableOptions,
) -> None:
    """Read a table, clean it, split it for honest evaluation, and save the split."""
    from deql.split import PROTOCOLS

    chosen = cut.chosen(protocol)
    check_out(out, data, table.items)
    interactions = table.read(data, quiet=json, find_time=protocol is source.Protocol.leave_last)
    made = PROTOCOLS[protocol.value](interactions, **chosen)
    made.save(out)
    if json:
        print_json(_facts(made, out))
    else:
        _show(made, out)


def prepare(
    name: Annotated[str, typer.Argument(help="ml20m, netflix, msd, gowalla-1, games, beauty, gowalla, yelp2018 or "
                                             "amazon-book.", metavar="NAME")],
    folder: Annotated[Path, typer.Option("--from", help="Folder with the data set's public files.", metavar="DIR")],
    out: OutFile,
    seed: Seed = None,
    json: AsJson = False,
) -> None:  # fmt: skip
    """Prepare one of the paper's data sets as the paper did, and say how its counts compare."""
    from deql.datasets.public import PRESETS, compare_with_paper
    from deql.datasets.public import prepare as prepared

    if name in PRESETS and seed is not None and not PRESETS[name].files:
        raise ParameterError(f"--seed does not belong to {name}, whose split is published")
    check_out(out)
    made = prepared(name, folder, seed or 0)
    rows = compare_with_paper(name, made)
    made.save(out)
    if json:
        print_json(_facts(made, out) | {"paper": rows})
        return
    show_steps(made.train.steps)
    written = [
        (
            row["quantity"].replace("_", "-"),
            *(_written(row["quantity"], row[side]) for side in ("paper", "found")),
            "" if row["same"] else "differs",
        )
        for row in rows
    ]
    console().print(table(f"{name}: the paper's counts and these", [name, "paper", "found", ""], written))
    if all(row["same"] for row in rows):
        print("These are the paper's counts.")
    elif all(row["same"] for row in rows if row["quantity"] in ("users", "interactions")):
        print("Users and interactions are the paper's; items are those that train has, which depends on the seed.")
    elif PRESETS[name].certain:
        print("These are not the paper's counts: the files are not the ones that the paper started from.")
    else:
        print("These are not the paper's counts: it does not say how it filtered this data set, and this is a guess.")
    _show(made, out)


def _written(quantity: str, value: float) -> str:
    return {"density": f"{value:.2%}", "item_user_ratio": f"{value:.2f}"}.get(quantity, f"{value:,}")


def _show(made: Split, out: Path) -> None:
    rows = [
        (
            row["part"],
            *("" if row[name] is None else f"{row[name]:,}" for name in ("users", "items", "seen", "held_out")),
        )
        for row in made.sizes()
    ]
    console().print(table("", ["part", "users", "items", "seen", "held out"], rows))
    print(made.describe())
    say(f"wrote {out} ({out.stat().st_size / 2**20:,.1f} MiB)")


def _facts(made: Split, out: Path) -> dict[str, Any]:
    from deql.data.clean import describe_steps

    return {
        "protocol": made.protocol,
        "seed": made.seed,
        "parameters": made.parameters,
        "steps": describe_steps(made.train.steps),
        "parts": made.sizes(),
        "dropped": made.dropped,
        "file": str(out),
        "bytes": out.stat().st_size,
    }
