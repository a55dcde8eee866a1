"""``deql fit``: a table in, a model file out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

import deql
from deql.cli.data_source import open_partitions, open_source
from deql.cli.engine_options import (
    EngineOptions,
    cluster_words,
    engine_option,
    fit_resumably,
    kept_until_saved,
)
from deql.cli.model_specs import MODEL_KINDS, parse_spec, spec_files, typed_parameters
from deql.cli.options import AsJson, HashUsers, KeepData, TableOptions, with_options
from deql.cli.output import file_size, option_name, print_json, print_words, progress_wanted, say, sizes
from deql.cli.prior_options import PriorOptions, fitted_facts, fitted_words, planned_columns, planned_words
from deql.cli.written_files import check_outputs
from deql.data.partition_folder import is_partition_folder
from deql.data.partitions import PartitionedInteractions, TrainingData
from deql.errors import ParameterError, TileFileError
from deql.evaluation.model_groups import parameters
from deql.io.model_file import model_bytes
from deql.linalg.engines.tile_folder import remove_tiles
from deql.linalg.planner.choose import as_engine, engine_from_config
from deql.models import DEQL
from deql.models.linear import LinearAutoencoder
from deql.split import Split
from deql.tuning import Space
from deql.tuning.space import NAMED, with_axes
from deql.tuning.summary import summary_sentences

__all__ = ["fit"]


@with_options
def fit(
    data: Annotated[
        Path,
        typer.Argument(
            help="Table with a row for each interaction, folder of partitions, or split, whose training part counts.",
            metavar="DATA",
        ),
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Model file to write.")] = None,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help=f"{', '.join(MODEL_KINDS)}; parameters may follow: slim:l1=2,l2=10.",
        ),
    ] = "deql",
    auto: Annotated[
        bool, typer.Option("--auto", help="Choose on validation users what is not given here (deql).")
    ] = False,
    l2: Annotated[float | None, typer.Option(help="Ridge added to the Gram matrix.")] = None,
    dropout: Annotated[float | None, typer.Option(help="Share of entries dropped in training, p.")] = None,
    b: Annotated[float | None, typer.Option(help="Weight of kept relative to dropped entries, b/a (deql).")] = None,
    zero_diagonal: Annotated[
        bool | None, typer.Option("--zero-diagonal", help="Items may not speak for themselves (deql).")
    ] = None,
    xi: Annotated[float | None, typer.Option(help="Largest diagonal entry (rlae, rdlae, or --auto).")] = None,
    user_power: Annotated[float | None, typer.Option(help="Hold back heavy users: weight |u|^-power.")] = None,
    popularity_power: Annotated[float | None, typer.Option(help="Hold back popular items: count^-power.")] = None,
    half_life: Annotated[
        str | None, typer.Option(help="Age at which an interaction counts half: 30d, 12h, or a number.", metavar="30d")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="float32 or float64.")] = None,
    keep_data: KeepData = False,
    hash_users: HashUsers = False,
    shards: Annotated[
        bool, typer.Option("--shards", help="Save the model as a folder, P in several files of about 1 GiB.")
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Of a network: file from which a training that was killed goes on.", metavar="FILE"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say which engine would be used, and what it takes.")
    ] = False,
    json: AsJson = False,
    *,
    priors: PriorOptions,
    engines: EngineOptions,
    table: TableOptions,
) -> None:
    """Fit a model on a table of who did what and save it."""
    given = {
        "l2": l2, "dropout": dropout, "b": b, "zero_diagonal": zero_diagonal, "xi": xi,
        "user_power": user_power, "popularity_power": popularity_power, "half_life": half_life, "dtype": dtype,
    }  # fmt: skip
    chosen = {name: value for name, value in given.items() if value is not None} | priors.chosen(searched=auto)
    if auto:
        engines.refuse_with("--auto", ", which chooses that itself: leave out one of them")
    if auto and checkpoint is not None:
        raise ParameterError("--auto chooses among models that are solved, and --checkpoint is for those that are "
                             "trained: leave out one of them")  # fmt: skip
    space = _space(model, chosen) if auto else None
    trained = {} if checkpoint is None else {"checkpoint": str(checkpoint)}
    estimator: Any = None if auto else _estimator(model, chosen | trained, engines.parameters(), priors)
    if dry_run and not isinstance(estimator, LinearAutoencoder):
        raise ParameterError(f"--dry-run plans one inverse: leave out {'--auto' if auto else f'-m {model}'}")
    asked = estimator.engine if isinstance(estimator, LinearAutoencoder) else "auto"
    tiles = engines.tiles(out, asked)
    if out is not None:
        read = [data, table.items, *spec_files([model]), *priors.files()]
        check_outputs(model=out, shards=shards, inputs=read, tiles=tiles, shared=engines.shared(asked))
    elif not dry_run:
        raise ParameterError("say with -o where to save the model, or ask for --dry-run")
    engines.use()
    timed = half_life is not None or (estimator is not None and estimator._needs_times)
    source: Split | TrainingData
    if is_partition_folder(data):
        whole = {"--auto": auto, "--hash-users": hash_users, "--keep-data": keep_data}
        source = _open_partitions(data, table, [option for option, typed in whole.items() if typed])
    else:
        source = open_source(data, table, None, {}, quiet=json, find_time=timed)
    interactions = source.train if isinstance(source, Split) else source
    if not json:
        say(f"read {sizes(interactions)}")
    if out is None or dry_run:
        catalogue = estimator._catalogue(interactions)
        columns = planned_columns(estimator, interactions, catalogue)
        plan = deql.plan(**engines.planned(catalogue, dtype, tiles), prior_rank=columns)
        prior = planned_words(estimator, interactions, catalogue)
        cluster = cluster_words(as_engine(estimator.engine), catalogue.n_items, estimator.dtype)
        if json:
            said = {"prior": prior, "cluster": cluster}
            print_json(plan.to_dict() | {name: words for name, words in said.items() if words is not None})
        else:
            print(plan, *filter(None, [prior, cluster]), sep="\n\n")
        return
    begin = time.perf_counter()
    tuning = None
    if isinstance(estimator, LinearAutoencoder):
        fit_resumably(estimator, interactions, tiles)
    elif space is None:
        estimator.fit(interactions)
    else:
        tell = None if json else say
        tuning = deql.tune(source, space, dtype=dtype or "float32", progress=progress_wanted(), tell=tell)
        estimator = tuning.model
    seconds = time.perf_counter() - begin
    estimator.progress = False
    if keep_data or hash_users:
        estimator._keep_data(estimator._catalogue(interactions), "hashed" if hash_users else True)
    kind = type(estimator).__name__
    engine, residual = getattr(estimator, "engine_", None), getattr(estimator, "residual_", None)
    solver = getattr(estimator, "solver_", None)
    with kept_until_saved(tiles if engine == "disk" else None):
        estimator.save(out, shards=shards)
    if tiles.is_dir() and (engine == "disk" or tiles != engines.folder):  # an earlier run may have left them
        with suppress(TileFileError):
            remove_tiles(tiles, keep_folder=tiles == engines.folder)
    if json:
        facts = {
            "model": kind,
            "parameters": parameters(estimator),
            "users": interactions.n_users,
            "items": interactions.n_items,
            "interactions": interactions.n_interactions,
            "seconds": round(seconds, 3),
            "engine": engine or solver,
            "residual": residual,
            "file": str(out),
            "bytes": model_bytes(out),
        }
        names = (
            "best",
            "spec",
            "sentence",
            "notes",
            "baselines",
            "inverses",
            "baseline_inverses",
            "seconds",
            "complete",
        )
        facts |= fitted_facts(estimator, interactions)
        print_json(facts | ({"tuning": {name: getattr(tuning, name) for name in names}} if tuning else {}))
    else:
        if tuning:
            for sentence in summary_sentences(tuning):
                print_words(sentence)
            print_words(f"As it can be typed: {tuning.spec}")
        if (prior := fitted_words(estimator)) is not None:
            say(prior)
        ran = [f"{engine} engine"] if engine else [f"{solver} solver"] if solver else []
        ran += [] if residual is None else [f"residual {residual:.0e}"]
        how = f" ({', '.join(ran)})" if ran else ""
        print(f"{kind} {'tuned' if tuning else 'fitted'} in {seconds:.1f} s{how} and saved as {out} "
              f"({file_size(out)})")  # fmt: skip
    if tuning and not tuning.complete:
        say(f"the search was not complete: this is the best of {tuning.inverses}")
        raise typer.Exit(130)


def _open_partitions(path: Path, table: TableOptions, whole: Sequence[str]) -> PartitionedInteractions:
    """What is fitted part by part, if nothing is asked for that needs all of it at once, or a table."""
    if whole:
        raise ParameterError(f"{whole[0]} needs all interactions in memory: give the table that {path} is made of")
    return open_partitions(path, table)


def _estimator(spec: str, chosen: Mapping[str, Any], engine: Mapping[str, Any], priors: PriorOptions) -> Any:
    """The model as asked for, not fitted yet; ``engine`` is what was typed of that."""
    estimator: Any = parse_spec(spec, files=False)
    linear = isinstance(estimator, LinearAutoencoder)
    name = spec.partition(":")[0].strip().lower()
    for parameter in (*chosen, *engine):
        option = engine_option(parameter) if parameter in engine else priors.option(parameter)
        if parameter not in estimator.get_params() and not (linear and parameter in engine):
            advice = (
                f": say {name}:solver=sparse or dense" if parameter == "engine" and hasattr(estimator, "solver") else ""
            )
            raise ParameterError(f"{option} does not belong to the model {name}{advice}")
        if parameter in typed_parameters(spec):
            raise ParameterError(f"{parameter} is given twice, in {spec} and as {option}")
    given = {**chosen, **engine}
    if linear:
        given = {**chosen, "engine": engine_from_config({**as_engine(estimator.engine).config, **engine})}
    estimator.set_params(**given, progress=progress_wanted())
    if "prior_weight" in chosen and estimator.prior is None:
        raise ParameterError("--prior-weight needs a prior: say --prior lowpass, or --item-features FILE")
    estimator._check_parameters()
    return estimator


def _space(model: str, chosen: Mapping[str, Any]) -> Space:
    """The quick space, with what was typed held fixed."""
    if model.strip().lower() != "deql":
        raise ParameterError(f"--auto chooses among the models of deql: leave out -m {model}, or --auto")
    one_of = [name for name in ("b", "zero_diagonal", "xi") if name in chosen]
    if len(one_of) > 1:
        both = " and ".join(map(option_name, one_of))
        raise ParameterError(f"with --auto, {both} exclude each other: say one of them")
    DEQL(dtype=chosen.get("dtype", "float32"))._check_parameters()
    axes = {name: value for name, value in chosen.items() if name not in ("zero_diagonal", "dtype")}
    if "zero_diagonal" in chosen:
        axes["b"] = 0.0  # EDLAE both, at the same l2; a prior would give b = 0 a diagonal
        axes.setdefault("prior", None)
    if "xi" in chosen:
        axes["b"] = []
    return with_axes(NAMED["quick"], axes)
