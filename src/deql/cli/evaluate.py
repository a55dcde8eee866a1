"""``deql evaluate``: how good models are on what they have not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import polars as pl
import typer

from deql import cluster, evaluation
from deql._system.tables import Cell, Grid, number
from deql.cli import data_source
from deql.cli.model_specs import parse_specs, spec_files
from deql.cli.options import AsJson, TableOptions, with_options
from deql.cli.output import print_grid, print_json, progress_wanted, say
from deql.cli.written_files import check_outputs
from deql.errors import DataError, ParameterError
from deql.evaluation import Evaluation
from deql.evaluation.model_groups import fit_and_evaluate, parameters
from deql.evaluation.result_tables import evaluation_grid, evaluation_legend
from deql.io.atomic import write_text, write_whole
from deql.report.evaluation_page import curve_metrics, evaluation_page
from deql.report.page import need_report_extra
from deql.split import Split

__all__ = ["evaluate"]


Part = Literal["test", "validation"]


@dataclass(frozen=True)
class EvaluationOutputs:
    """What is shown and written, as asked for on the command line."""

    section: ClassVar[str] = "Output"

    intervals: Annotated[bool, typer.Option("--intervals", help="Show 95 % bootstrap intervals too.")] = False
    report: data_source.Report = None
    save_per_user: Annotated[
        Path | None, typer.Option(help="Every user's values to write.", metavar="FILE.parquet")
    ] = None
    json: AsJson = False

    def check(self, *inputs: Path | None) -> None:
        """Whatever is wrong with the files is said before the long work."""
        if self.report is not None:
            need_report_extra()
        if self.save_per_user is not None and self.save_per_user.suffix not in (".parquet", ".csv"):
            raise ParameterError(f"--save-per-user must end in .parquet or .csv, got {self.save_per_user}")
        check_outputs(self.report, self.save_per_user, inputs=inputs)


@with_options
def evaluate(
    data: data_source.Data,
    models: data_source.Models,
    metrics: data_source.Metrics = "recall@20,ndcg@20",
    on: Annotated[Part, typer.Option(help="Which users to evaluate on.")] = "test",
    protocol: Annotated[data_source.ProtocolName | None, typer.Option(help="How to split a table (strong).")] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(help="Have a Dask cluster evaluate model files: its address.", metavar="ADDRESS"),
    ] = None,
    *,
    output: EvaluationOutputs,
    split_options: data_source.SplitOptions,
    table: TableOptions,
) -> None:
    """Fit models on a split's training part, or load them, and evaluate them on the users held out."""
    wanted = data_source.metric_list(metrics)
    named, loaded = parse_specs(models)
    output.check(data, table.items, *spec_files(models))
    if scheduler is not None and (unfitted := [name for name in named if name not in loaded]):
        raise ParameterError(
            f"--scheduler evaluates model files that the workers see: fit {unfitted[0]} first, and name its file"
        )
    chosen = split_options.chosen(protocol)
    timed = any(model._needs_times for name, model in named.items() if name not in loaded)
    found = data_source.open_source(data, table, protocol, chosen, output.json, find_time=timed)
    split = data_source.as_split(found, protocol, chosen)
    target = split.test if on == "test" else split.validation
    if target is None:
        raise ParameterError(f"{data} has no validation part: say --on test")
    if not output.json:
        say(split.describe())
    for name in loaded:
        _note_loaded(name, named[name], split)
    for model in named.values():
        model.progress = progress_wanted()
    measured = list(dict.fromkeys(wanted + (curve_metrics(wanted) if output.report else [])))
    fresh = {name: model for name, model in named.items() if name not in loaded}
    tell = (lambda names: say(f"fitting {names}")) if progress_wanted() else None
    results: dict[str, Evaluation] = fit_and_evaluate(fresh, split.train, target, measured, tell)
    if scheduler is None:
        results |= {name: evaluation.evaluate(named[name], target, measured) for name in loaded}
    else:
        for name, file in zip(named, spec_files(models), strict=True):
            results[name] = cluster.evaluate(file, target, measured, scheduler, progress=progress_wanted())
    results = {name: results[name] for name in named}
    if output.json:
        print_json(_facts(data, split, on, named, results, wanted, output.intervals))
    else:
        _show(results, wanted, output.intervals)
    if output.save_per_user is not None:
        _write_per_user(output.save_per_user, results, wanted)
    if output.report is not None:
        about = {
            "Data": f"{data.name}: {split.train.n_users:,} training users, {split.train.n_items:,} items, "
                    f"{split.train.n_interactions:,} interactions",
            "Split": split.describe(), "Evaluated on": f"the {on} part",
        }  # fmt: skip
        hyper = {name: parameters(model) for name, model in named.items()}
        title = f"Evaluation on {data.name}"
        write_text(output.report, evaluation_page(title, about, hyper, results, target, wanted))
    for path in filter(None, (output.report, output.save_per_user)):
        say(f"wrote {path}")


def _note_loaded(name: str, model: Any, split: Split) -> None:
    """What a reader must know of a model that was not fitted here."""
    known = len(set(model.items_.tolist()) & set(split.train.items.tolist()))
    if not known:
        raise DataError(f"{name} knows none of the items of this split: it was fitted on other data")
    if known < split.train.n_items:
        say(f"note: {name} knows {known:,} of the {split.train.n_items:,} items; others count as missed")
    say(f"note: {name} is evaluated as it was saved; if it was fitted on what is held out here, it looks too good")


def _facts(
    data: Path, split: Split, on: Part, named: Mapping[str, Any], results: Mapping[str, Evaluation],
    metrics: Sequence[str], intervals: bool,
) -> dict[str, Any]:  # fmt: skip
    first = next(iter(results.values()))
    evaluated = [metric for metric in metrics if metric in first.per_user]
    return {
        "data": str(data), "on": on, "users": len(first.users), "skipped": first.skipped,
        "split": {"protocol": split.protocol, "seed": split.seed, "parameters": split.parameters,
                  "parts": split.sizes(), "dropped": split.dropped},
        "models": [
            {
                "name": name, "model": type(named[name]).__name__, "parameters": parameters(named[name]),
                "means": {metric: result.means[metric] for metric in metrics},
                "standard_errors": {metric: result.standard_errors[metric] for metric in evaluated},
            } | ({"intervals": {metric: list(result.interval(metric)) for metric in evaluated}} if intervals else {})
            for name, result in results.items()
        ],
    }  # fmt: skip


def _show(results: Mapping[str, Evaluation], metrics: Sequence[str], intervals: bool) -> None:
    print_grid(evaluation_grid(results, metrics))
    first = next(iter(results.values()))
    print(evaluation_legend(results))
    evaluated = [metric for metric in metrics if metric in first.per_user]
    if intervals and evaluated:
        rows = [
            ([name], [Cell("{} to {}".format(*map(number, result.interval(metric)))) for metric in evaluated])
            for name, result in results.items()
        ]
        print()
        print_grid(Grid("95 % bootstrap intervals", ["model", *evaluated], rows))


def _write_per_user(path: Path, results: Mapping[str, Evaluation], metrics: Sequence[str]) -> None:
    """A row for each model and user, a column for each metric that has values of users."""
    frame = pl.concat([
        pl.DataFrame({"model": [name] * len(result.users), "user": result.users.tolist()}
                     | {metric: result.per_user[metric] for metric in metrics if metric in result.per_user})
        for name, result in results.items()
    ])  # fmt: skip
    write_whole(path, frame.write_csv if path.suffix == ".csv" else frame.write_parquet)
