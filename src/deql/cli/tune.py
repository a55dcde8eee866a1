"""``deql tune``: the best hyper-parameters for a data set, found on validation users and saved as a model."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer

import deql
from deql._system.tables import counted
from deql.cli import data_source
from deql.cli.options import AsJson, HashUsers, KeepData, TableOptions, with_options
from deql.cli.output import (
    console,
    curve_table,
    did_you_mean,
    file_size,
    option_name,
    print_grid,
    print_json,
    print_words,
    progress_wanted,
    say,
)
from deql.cli.prior_options import typed_files, typed_prior
from deql.cli.tune_model import ModelOptions, show_model_tuning
from deql.cli.written_files import check_outputs
from deql.errors import ParameterError
from deql.io.atomic import write_text
from deql.io.model_file import model_bytes
from deql.models import DEQL
from deql.report.page import need_report_extra
from deql.report.tuning_page import tuning_page
from deql.split import Split
from deql.tuning import ModelTuning, Space, Tuning, forecast_tuning
from deql.tuning.budget import Budget
from deql.tuning.forecast import Forecast
from deql.tuning.measured_metrics import metrics_for
from deql.tuning.search import need_optuna
from deql.tuning.space import NAMED, with_axes
from deql.tuning.summary import leaderboard_grid, summary_sentences
from deql.tuning.tuning_data import VALIDATIONS, refit_data

__all__ = ["tune"]

_EVALUATED_BY = ("recall@20", "ndcg@20")
"""What ``deql evaluate`` shows unless asked for something else."""


Search = Literal["walk", "grid", "optuna"]
Refit = Literal["train", "all"]


@dataclass(frozen=True)
class SpaceOptions:
    """Where to search, as asked for on the command line."""

    section: ClassVar[str] = "What to search"

    space: Annotated[str, typer.Option(help="Where to search: default, quick or paper.")] = "default"
    l2: Annotated[
        str | None, typer.Option(help="Values of l2 in place of the space's, with commas between: 10,50,100.")
    ] = None
    dropout: Annotated[str | None, typer.Option(help="The same for dropout.")] = None
    user_power: Annotated[str | None, typer.Option(help="The same for user_power.")] = None
    half_life: Annotated[
        str | None,
        typer.Option(help="Ages at which an interaction counts half, for data with times: 30d,90d,none."),
    ] = None
    b: Annotated[str | None, typer.Option(help="The same for b/a; many cost no more than one.")] = None
    xi: Annotated[str | None, typer.Option(help="Bounds of the diagonal to try beside b (rdlae).")] = None
    popularity_power: Annotated[str | None, typer.Option(help="The same for popularity_power.")] = None
    prior: Annotated[
        str | None,
        typer.Option(
            help="What to try as a prior: lowpass, features:items.parquet, model:last-month.deql, or none.",
            metavar="PRIOR",
        ),
    ] = None
    item_features: Annotated[
        Path | None,
        typer.Option(help="Table of items' features, also of new ones: --prior features:FILE.", metavar="FILE"),
    ] = None
    prior_rank: Annotated[str | None, typer.Option(help="The same for the rank of the low pass.")] = None
    prior_power_in: Annotated[str | None, typer.Option(help="The same for its power_in.")] = None
    prior_power_out: Annotated[str | None, typer.Option(help="The same for its power_out.")] = None
    prior_weight: Annotated[str | None, typer.Option(help="The same for the weight of the prior.")] = None


@dataclass(frozen=True)
class SearchOptions:
    """How to search, as asked for on the command line."""

    section: ClassVar[str] = "How to search"

    metric: Annotated[
        str,
        typer.Option("--metric", "--metrics", help="What decides; of several, with commas between, the first."),
    ] = "ndcg@20"
    budget: Annotated[
        str | None,
        typer.Option(help="At most so many inverses (20) or so much time (30min), for everything.", metavar="20|30min"),
    ] = None
    search: Annotated[
        Search, typer.Option(help="From point to better neighbour, every point, or those that Optuna asks for.")
    ] = "walk"
    patience: Annotated[
        int,
        typer.Option(help="End a walk after so many inverses that bring nothing; 0: when all neighbours are known."),
    ] = 3
    no_prune: Annotated[
        bool, typer.Option("--no-prune", help="No screening on a quarter of the items: whole inverses only.")
    ] = False
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32"


@dataclass(frozen=True)
class HoldOutOptions(data_source.SplitOptions):
    """How to split a table, and what to hold out of it to choose on."""

    validation: Annotated[
        Any,  # a number in other commands
        typer.Option(
            parser=str,
            help="What to choose on: auto, random or last (the end of each history). Or a number as the protocol "
            "has it: weak, time: share of what the test leaves (0.1); leave-last: how many (1); 0: none.",
            metavar="last|random|NUMBER",
        ),
    ] = None

    def parsed(self) -> tuple[data_source.SplitOptions, str]:
        """The options with a number, and what to hold out."""
        given = vars(self).copy()
        text = given.pop("validation")
        if text is None or text in VALIDATIONS:
            return data_source.SplitOptions(**given), text or "auto"
        try:
            return data_source.SplitOptions(**given, validation=float(text)), "auto"
        except ValueError:
            meant = did_you_mean(text, VALIDATIONS)
            raise ParameterError(
                f"--validation must be {', '.join(VALIDATIONS)}, or a number, got {text!r}{meant}"
            ) from None


@dataclass(frozen=True)
class TuningOutputs:
    """What is written beside the model, as asked for on the command line."""

    section: ClassVar[str] = "Output"

    journal: Annotated[
        Path | None, typer.Option(help="File that keeps every point (MODEL.tuning.jsonl).", metavar="FILE.jsonl")
    ] = None
    report: data_source.Report = None
    json: AsJson = False


@with_options
def tune(
    data: data_source.Data,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Model file to write: the best, fitted.")] = None,
    refit: Annotated[
        Refit, typer.Option(help="What to fit the best on: the training part, or everything, to deploy it.")
    ] = "train",
    keep_data: KeepData = False,
    hash_users: HashUsers = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how many points and inverses, and how long it takes.")
    ] = False,
    *,
    where: SpaceOptions,
    other: ModelOptions,
    how: SearchOptions,
    protocol: Annotated[data_source.ProtocolName | None, typer.Option(help="How to split a table (strong).")] = None,
    output: TuningOutputs,
    hold_out: HoldOutOptions,
    table: TableOptions,
) -> None:
    """Find the best hyper-parameters on validation users, and save the model that has them.

    The same command resumes where it was killed. Ctrl-C ends with the best so far. The test part is not read.
    """
    metrics, report = data_source.metric_list(how.metric), output.report
    model = other.chosen(_typed_axes(where), _of_the_family(where, how, report, dry_run))
    space = _space(where) if model is None else model[1]
    _check(how, metrics)
    split_options, validation = hold_out.parsed()
    if out is None and not dry_run:
        ask = ", or ask for --dry-run" if other.model is None else ""
        raise ParameterError(f"say with -o where to save the model{ask}")
    read = [data, table.items, *typed_files(where.prior, where.item_features)]
    journal = None if out is None else _check_files(out, output.journal, report, read)
    if protocol == "weak" and validation == "last":  # in place of its share at random
        split_options = replace(split_options, validation=0.0)
    chosen = replace(split_options, seed=None).chosen(protocol)
    timed = validation == "last" or (isinstance(space, Space) and space.half_life != (None,))
    found = data_source.open_source(data, table, protocol, chosen, output.json, find_time=timed)
    if split_options.seed is not None and not isinstance(found, Split) and protocol != "leave-last":
        chosen["seed"] = split_options.seed
    split = data_source.as_split(found, protocol, chosen)
    if not output.json:
        say(split.describe())
    # A table has more than its split, which leaves out what the training part does not know.
    final = "train" if refit == "train" else "all" if isinstance(found, Split) else found
    asked: dict[str, Any] = {
        "search": how.search, "seed": split_options.seed or 0, "refit": final, "validation": validation
    }  # fmt: skip
    asked |= {"prune": not how.no_prune, "dtype": how.dtype} if model is None else {"model": model[0]}
    if out is None or journal is None or dry_run:
        _show_forecast(forecast_tuning(split, space, metrics, how.budget, **asked), output.json)
        return
    if model is None:
        asked["patience"] = how.patience
    if not output.json:
        _say_journal(journal)
    try:
        tuning: Tuning | ModelTuning = deql.tune(
            split, space, metrics, how.budget, journal=journal, progress=progress_wanted(),
            tell=None if output.json else say, **asked,
        )  # fmt: skip
    except KeyboardInterrupt:
        say(f"no model was saved, but what was measured is kept in {journal}: the same command goes on from there")
        raise
    tuning.model.progress = False
    if keep_data or hash_users:
        everything = refit_data(split, final)
        kept = split.train if everything is None else everything
        tuning.model._keep_data(tuning.model._catalogue(kept), "hashed" if hash_users else True)
    tuning.model.save(out)
    if report is not None and isinstance(tuning, Tuning):
        about = {"Data": data.name, "Split": split.describe(), "Search": how.search}
        if how.budget is not None:
            about["Budget"] = f"{how.budget} inverses" if how.budget.isdigit() else how.budget
        write_text(report, tuning_page(f"Tuning on {data.name}", about, tuning))
    if output.json:
        print_json(tuning.to_dict() | {"file": str(out), "bytes": model_bytes(out)})
    else:
        show_model_tuning(tuning) if isinstance(tuning, ModelTuning) else _show(tuning)
        options = ({"protocol": protocol} if protocol else {}) | chosen | table.typed()
        options |= {} if set(metrics) <= set(_EVALUATED_BY) else {"metrics": ",".join(metrics)}
        print_words(f"As it can be typed: {tuning.spec}")
        on, what = ("the training part", "it") if refit == "train" else ("everything", "a fit on the training part")
        print_words(f"Saved as {out} ({file_size(out)}), fitted on {on}. "
                     f"The test part has not been {'read' if refit == 'train' else 'chosen on'}; "
                     f"this evaluates {what} there:")  # fmt: skip
        files = [f"./{path}" if str(path).startswith("-") else str(path) for path in (data, out)]
        files[1] = files[1] if refit == "train" else tuning.spec
        print("    " + shlex.join(["deql", "evaluate", *files, *data_source.typed_options(options)]))
    if report is not None:
        say(f"wrote {report}")
    if not tuning.complete:
        say("this is the best so far: the same command goes on with the search")
        raise typer.Exit(130)


def _show_forecast(ahead: Forecast, json: bool) -> None:
    if json:
        print_json(vars(ahead))
        return
    points = "" if ahead.points is None else f" The space has {ahead.points:,} points."
    print_words(f"This would take {ahead}.{points}")


def _space(where: SpaceOptions) -> Space:
    """The named space with the values that were typed."""
    axes = vars(where).copy()
    name = axes.pop("space")
    if name not in NAMED:
        raise ParameterError(f"there is no space {name!r}{did_you_mean(name, NAMED)}: say {', '.join(NAMED)}")
    space = NAMED[name]
    space = with_axes(space, typed_prior(axes.pop("prior"), axes.pop("item_features"), searched=True))
    for axis, text in axes.items():
        if text is None:
            continue
        option = option_name(axis)
        if axis.startswith("prior_") and space.prior is None:
            raise ParameterError(f"{option} needs a prior: leave it out, or say --prior lowpass")
        try:
            space = with_axes(space, {axis: _typed_values(axis, option, text)})
        except ParameterError as error:
            raise ParameterError(f"{option} {text}: {error}") from None
    return space


def _typed_axes(where: SpaceOptions) -> dict[str, str]:
    """Values of parameters that other models may have, too, as they were typed."""
    names = ("l2", "dropout", "user_power", "popularity_power")
    return {name: text for name in names if (text := getattr(where, name)) is not None}


def _of_the_family(where: SpaceOptions, how: SearchOptions, report: Path | None, dry_run: bool) -> dict[str, bool]:
    """Options that mean nothing for another model, and whether they were typed."""
    options = {
        option_name(one.name): getattr(given, one.name) != one.default
        for given in (where, how) for one in fields(given)
        if one.name not in (*_typed_axes(where), "metric", "budget", "search")
    }  # fmt: skip
    optuna = {"--search optuna": how.search == "optuna"}
    return options | optuna | {"--report": report is not None, "--dry-run": dry_run}


def _typed_values(axis: str, option: str, text: str) -> list[Any]:
    """What stands between commas: numbers, or half-lives, of which none is none."""
    if axis == "half_life":
        return [None if part.strip().lower() == "none" else part.strip() for part in text.split(",")]
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ParameterError(f"{option} must be numbers with commas between, such as 0.2,0.5, got {text!r}") from None


def _check(how: SearchOptions, metrics: list[str]) -> None:
    """What can be refused before anything is read."""
    if how.search == "optuna":
        need_optuna()
    metrics_for(metrics)
    Budget.parse(how.budget)
    DEQL(dtype=how.dtype)._check_parameters()


def _check_files(out: Path, journal: Path | None, report: Path | None, inputs: list[Path | None]) -> Path:
    """Whatever is wrong with the files is said before the long work; the journal may be there already."""
    check_outputs(model=out)  # it names the journal
    journal = journal or out.with_name(out.name.removesuffix(".deql") + ".tuning.jsonl")
    if report is not None:
        need_report_extra()
    check_outputs(journal, report, model=out, inputs=inputs)
    return journal


def _say_journal(path: Path) -> None:
    """Where the journal is, and what of the search it has."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []  # what follows the last one is torn
    points, looks, fits = (
        sum(line.startswith(b'{"step": "%b"' % step) for line in lines) for step in (b"point", b"look", b"fit")
    )
    if points or looks or fits:
        screened = f" and {looks:,} screened" if looks else ""
        known = counted(fits, "setting", "settings") if fits else counted(points, "point", "points")
        say(f"going on with {known}{screened} from {path}")
    else:
        say(f"every point is kept in {path}: should this end early, the same command goes on from there")


def _show(tuning: Tuning) -> None:
    print_grid(leaderboard_grid(tuning, rows=10))
    print()
    metric = tuning.metric
    # The mark is at the model that is saved: a b that does better by less than a standard error is a tie.
    best = tuning.curve.best(metric) if tuning.best["b"] is None else tuning.best["b"]
    mark = "best" if best == tuning.curve.best(metric) else "taken"
    curve = [
        (b, value)
        for b, value in zip(tuning.curve.b, tuning.curve.values[metric], strict=True)
        if b == best or round(5 * b, 6).is_integer()  # steps of 0.2 fit on a screen
    ]
    title = f"{metric} by b, all else as the best has it ({tuning.judged:,} validation users, axis cut)"
    console().print(curve_table(title, metric, curve, best, mark))
    for sentence in summary_sentences(tuning):
        print_words(sentence)
