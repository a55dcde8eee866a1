"""``deql compare``: which model is better, on several splits, and whether that is more than chance."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import typer

from deql.cli import data_source
from deql.cli.model_specs import parse_specs, spec_files, split_name
from deql.cli.options import AsJson, TableOptions, with_options
from deql.cli.output import print_grid, progress_wanted, say
from deql.cli.written_files import check_outputs
from deql.errors import ParameterError
from deql.evaluation.comparison import compare as run
from deql.evaluation.comparison_result import Comparison
from deql.evaluation.model_groups import model_spec
from deql.evaluation.result_tables import comparison_grid, comparison_legend, significance_grids
from deql.io.atomic import write_text
from deql.linalg.engines.neighbours import Neighbours
from deql.models import CustomLinear
from deql.priors.saved import SavedPrior
from deql.priors.specs import PRIOR_KINDS, prior_kind
from deql.report.comparison_page import comparison_page
from deql.report.page import need_report_extra
from deql.split import Split

__all__ = ["compare"]


Format = Literal["text", "markdown", "latex", "json"]


@dataclass(frozen=True)
class RepeatedSplitOptions(data_source.SplitOptions):
    """How a table is split, and how often."""

    splits: Annotated[int | None, typer.Option(help="How many splits of a table (5).")] = None


@dataclass(frozen=True)
class ComparisonOutputs:
    """What is written and how, as asked for on the command line."""

    section: ClassVar[str] = "Output"

    form: Annotated[Format, typer.Option("--as", help="How to write the result.")] = "text"
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File for the result.")] = None
    report: data_source.Report = None
    json: AsJson = False

    def check(self, *inputs: Path | None) -> None:
        """Whatever is wrong with the files is said before the long work."""
        if self.report is not None:
            need_report_extra()
        check_outputs(self.out, self.report, inputs=inputs)


@with_options
def compare(
    data: data_source.Data,
    models: data_source.Models,
    metrics: data_source.Metrics = "recall@20,ndcg@20",
    baseline: Annotated[
        str | None, typer.Option(help="The model that others are to beat, as typed or as shown.")
    ] = None,
    protocol: Annotated[
        data_source.RepeatedProtocolName | None, typer.Option(help="How to split a table (strong).")
    ] = None,
    *,
    output: ComparisonOutputs,
    split_options: RepeatedSplitOptions,
    table: TableOptions,
) -> None:
    """Fit models on several splits: mean ± sd, one-sided paired tests, Holm's correction."""
    if output.json and output.form not in ("text", "json"):
        raise ParameterError(f"--json and --as {output.form} contradict each other: say one of them")
    form: Format = "json" if output.json else output.form
    wanted = data_source.metric_list(metrics)
    named, loaded = parse_specs(models)
    for name in loaded:
        if isinstance(named[name], CustomLinear):
            raise ParameterError(
                f"{name} has weights of its own, which cannot be fitted anew on every split: use deql evaluate"
            )
        precision, engine = getattr(named[name], "precision_", None), getattr(named[name], "engine_", "")
        if precision is not None and not precision.whole and engine != Neighbours.name:
            raise ParameterError(
                f"{name} is pruned, and a fit on every split would not be: use deql evaluate, or say "
                f"{model_spec(named[name])} to compare what it was pruned from"
            )
        prior = getattr(named[name], "prior", None)
        if isinstance(prior, SavedPrior):
            kind, spec = prior_kind(prior), model_spec(named[name])
            typed = f", or say {spec.replace(f'prior={kind}', f'prior={kind}:FILE')}" if kind in PRIOR_KINDS else ""
            raise ParameterError(
                f"{name} does not hold what its prior was made from, so it cannot be fitted anew on every split: use "
                f"deql evaluate{typed}"
            )
    base = None if baseline is None else _find_baseline(baseline, models, list(named))
    output.check(data, table.items, *spec_files(models))
    chosen = split_options.chosen(protocol)
    timed = any(model._needs_times for model in named.values())
    found = data_source.open_source(data, table, protocol, chosen, form != "text", find_time=timed)
    for name in named:
        named[name].progress = progress_wanted()
        if name in loaded and form == "text":
            spec = model_spec(named[name])
            say(f"note: {name} is fitted anew on every split, with the parameters it was saved with: {spec}")
    tell = say if progress_wanted() else None
    if isinstance(found, Split):
        comparison = run(named, found, metrics=wanted, baseline=base, tell=tell)
        about = {"Data": data.name, "Split": found.describe()}
    else:
        how = protocol or "strong"
        options = {name: value for name, value in chosen.items() if name not in ("seed", "splits")}
        first, count = chosen.get("seed", 0), chosen.get("splits", 5)
        comparison = run(named, found, count, wanted, how, base, first, tell=tell, **options)
        about = {
            "Data": f"{data.name}: {found.n_users:,} users, {found.n_items:,} items, "
            f"{found.n_interactions:,} interactions",
            "Splits": f"{len(comparison.splits)} × {how}",
        }
        about |= {name.replace("_", " ").capitalize(): str(value) for name, value in options.items()}
    if output.out is not None:
        write_text(output.out, _written(comparison, form).rstrip("\n") + "\n")
    elif form == "text" and sys.stdout.isatty():
        _show(comparison)
    else:
        print(_written(comparison, form).rstrip("\n"))
    if output.report is not None:
        write_text(output.report, comparison_page(f"Comparison on {data.name}", about, comparison))
    for path in filter(None, (output.out, output.report)):
        say(f"wrote {path}")


def _find_baseline(text: str, typed: Sequence[str], names: Sequence[str]) -> str:
    """The model meant: its name as shown, its specification, or its kind where only one has it."""
    by_spec = dict(zip(typed, names, strict=True)) | dict(
        zip((split_name(one)[1] for one in typed), names, strict=True)
    )
    kinds = [name for name in names if name.split()[0].lower() == text.lower()]
    if text in names:
        return text
    if text in by_spec:
        return by_spec[text]
    if len(kinds) == 1:
        return kinds[0]
    if kinds:
        specs = [spec for spec, name in by_spec.items() if name in kinds]
        raise ParameterError(
            f"the baseline {text!r} may be any of {', '.join(kinds)}: say which one, such as --baseline {specs[0]}"
        )
    raise ParameterError(f"the baseline {text!r} is not one of the models: {', '.join(names)}")


def _written(comparison: Comparison, form: Format) -> str:
    return {
        "text": comparison.__str__, "markdown": comparison.to_markdown,
        "latex": comparison.to_latex, "json": comparison.to_json,
    }[form]()  # fmt: skip


def _show(comparison: Comparison) -> None:
    print_grid(comparison_grid(comparison))
    numbers, star = comparison_legend(comparison)
    print(f"{numbers} Bold: best. * {star}\n")
    for grid in significance_grids(comparison):
        print_grid(grid)
