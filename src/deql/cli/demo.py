"""``deql demo``: a real recommender fitted, tuned, evaluated and explained while one watches."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

import deql
from deql.cli.options import AsJson
from deql.cli.output import console, curve_table, explanation_table, print_json, progress_wanted, rich_table
from deql.cli.serve import need_serve, serve_with
from deql.serve.settings import Settings, curve_of
from deql.split import HeldOut
from deql.tuning.tuning_result import BCurve

__all__ = ["demo"]

# Chosen on the validation users of this split from a grid of l2 and dropout; b is chosen on them below.
EASE_L2 = 10.0
L2, DROPOUT = 10.0, 0.2
SWEEP = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
METRICS = ("recall@20", "ndcg@20")
FAVOURITES = ("inkscape", "gimp", "vlc", "blender", "audacity", "darktable", "calibre", "kdenlive", "krita")


def demo(
    serve: Annotated[bool, typer.Option("--serve", help="Then open the page, with the example filled in.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="With --serve: its port; 0 for a free one.")] = 0,
    json: AsJson = False,
) -> None:
    """Fit, tune, evaluate and explain on the bundled data: Debian's package index. No network, no arguments."""
    if serve:
        need_serve()
    begin = time.perf_counter()
    screen = console()
    screen.quiet = json
    screen.print("[bold]deql demo[/bold]: which packages belong together? Learned from Debian's package index.\n")
    with screen.status("reading the bundled data"):
        data = deql.datasets.debian()
        split = deql.split_strong(data)
    assert split.validation is not None
    screen.print(
        f"{data.n_users:,} packages name {data.n_items:,} others, {data.n_interactions:,} times. "
        f"{split.train.n_users:,} packages are for training, {split.validation.seen.n_users:,} to choose b and "
        f"{split.test.seen.n_users:,} to evaluate: the model does not learn from these, is shown four fifths of the "
        "names in each and must find the others.\n"
    )

    show = progress_wanted() and not json
    popularity = deql.Popularity().fit(split.train)
    ease = deql.EASE(EASE_L2, progress=show).fit(split.train)
    first = deql.DEQL(L2, DROPOUT, progress=show).fit(split.train)
    for model in (ease, first):
        model.progress = False

    swept = [(b, first.with_rule(b=b)) for b in SWEEP]
    swept_results = deql.evaluate([model for _, model in swept], split.validation, METRICS)
    curve = [(b, result.means["ndcg@20"]) for b, result in zip(SWEEP, swept_results, strict=True)]
    best_b = max(curve, key=lambda point: point[1])[0]
    title = "How much should kept entries count? Every b from one inverse (validation packages, axis cut)"
    screen.print(curve_table(title, "NDCG@20", curve, best_b))

    chosen = dict(swept)[best_b]
    models = {
        "Popularity": popularity,
        f"EASE    l2={EASE_L2:g}": ease,
        f"EDLAE   l2={L2:g} dropout={DROPOUT:g}": first.with_rule(b=0.0),
        f"DEQL    l2={L2:g} dropout={DROPOUT:g} b={best_b:g}": chosen,
    }
    evaluated = {name: result.means for name, result in deql.evaluate(models, split.test, METRICS).items()}
    rows = [(name, *(f"{means[metric]:.4f}" for metric in METRICS)) for name, means in evaluated.items()]
    screen.print(rich_table("On the test packages", ["model", "Recall@20", "NDCG@20"], rows))

    package, seen, hidden = _example(split.test)
    # Plug-ins name the package they belong to, so its own name may be an item too.
    found = chosen.recommend([seen], k=10, exclude={package} & set(chosen.items_.tolist()))
    why = chosen.explain(seen, found.ids[0][0], k=6)
    screen.print(f"[bold]{package}[/bold] names {len(seen) + len(hidden)} packages. The model is shown {len(seen)}:")
    screen.print(", ".join(seen) + "\n", markup=False, style="dim")
    hits = [
        (name, f"{score:.3f}", "✓ hidden name found" if name in hidden else "")
        for name, score in zip(found.ids[0].tolist(), found.scores[0], strict=True)
    ]
    screen.print(rich_table(f"{package} should also name", ["package", "score", ""], hits))
    screen.print(explanation_table(why))
    seconds = time.perf_counter() - begin
    screen.print(
        f"Two inverses, {len(SWEEP)} values of b, {seconds:.0f} seconds. Your own table: [bold]deql fit --help[/bold]"
    )
    if json:
        print_json({
            "b_sweep": [{"b": b, "ndcg@20": value} for b, value in curve], "best_b": best_b, "test": evaluated,
            "package": package, "seen": seen, "hidden": hidden, "recommended": found.ids[0],
            "explanation": {"item": why.item, "score": why.score, "rest": why.rest, "parts": [list(p) for p in why]},
            "seconds": seconds,
        })  # fmt: skip
    if serve:
        measured = ("ndcg@20", "recall@20")  # first what b was chosen by
        values = {metric: [result.means[metric] for result in swept_results] for metric in measured}
        errors = {metric: [result.standard_errors[metric] for result in swept_results] for metric in measured}
        _serve(chosen, seen, BCurve(list(SWEEP), values, errors), port)


def _serve(model: Any, example: list[str], curve: BCurve, port: int) -> None:
    """Open the page, on a model file that is gone afterwards."""
    parameters = {"l2": L2, "dropout": DROPOUT, "b": model.b}
    with tempfile.TemporaryDirectory(prefix="deql-demo-") as folder:
        path = Path(folder, "debian.deql")
        model.save(path)
        settings = Settings(
            {"debian": str(path)}, port=port, example=example, curve=curve_of(curve, parameters), quiet=True
        )
        serve_with(settings, _open_page)


def _open_page(address: str) -> None:
    """Open the page where people sit in front of a screen; elsewhere its address is enough."""
    screen = sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if screen and sys.stderr.isatty():
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def _example(target: HeldOut) -> tuple[str, list[str], list[str]]:
    """A test package that people know, its shown and its hidden names; else the one with most of them."""
    users = set(target.seen.users.tolist())
    sizes = target.seen.matrix.sum(axis=1)
    package = next((name for name in FAVOURITES if name in users), target.seen.users[int(sizes.argmax())])
    return package, target.seen.history(package), target.held_out.history(package)
