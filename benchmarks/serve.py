"""`deql serve` under load on this machine: many connections for half a minute, with reasons, and while it reloads.

With ``--model`` and $DEQL_DATA/gowalla (LightGCN's split: a line is a user, then its items) the model is that file, or
EASE(l2=80), fitted and kept there first; the histories are the first 50 items of users who have as many, another user
in each request. Otherwise P is made up (a diagonal and a few factors, so that it is positive definite), and so are the
histories. ``--prior RANK`` gives that model a prior of so many made-up factors.

The load comes from one process on the same machine. Every answer must have status 200 and k items; one of 50 is
compared with what the library says, items, scores and reasons to the last bit. A reload renames another file to the
model's name, with another b on the same P, and asks for it.

``--explain-connections N`` also has N connections ask plainly and N with the reasons that the page asks for, at the
same time. A request's *share* is the median that its kind has when all 2N connections are of that kind: each then has
1/2N of the server, so this is what a request of such a cost takes when the server's time is divided evenly among all
connections, whatever the others ask. No kind's p99 may be more than five times its share.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from _measure import show
from _server import Memory, Server, serving

K = 20
HISTORY = 50
PRIOR_WEIGHT = 0.2
REASONS = 40
"""What the page asks for with each item."""

CONNECTIONS = 32
TARGETS = {"per_second": 300.0, "p99_ms": 200.0, "errors": 0, "growth_mib": 64.0, "p99_of_share": 5.0}
CONNECTED_ALONE = "one connection"
"""What a server that has nothing else to do takes for an answer."""

PLAIN, EXPLAINED = "plain", "with reasons"


def read_histories(source: Path, generator: np.random.Generator) -> NDArray[np.int64]:
    """The first items of each user who has enough, users in random order."""
    lines = (source / "train.txt").read_text().splitlines()
    lists = [list(map(int, line.split()[1 : HISTORY + 1])) for line in lines]
    return generator.permutation(np.array([items for items in lists if len(set(items)) == HISTORY]))


def made_up_histories(n: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Popular items are the first ones."""
    drawn = (n * generator.random((4_000, 4 * HISTORY)) ** 3).astype(np.int64)
    return np.array([row[np.sort(np.unique(row, return_index=True)[1])[:HISTORY]] for row in drawn])


def made_up_model(n: int, generator: np.random.Generator) -> Any:
    """A model of n items without a fit."""
    import deql
    from deql.linalg.packed import PackedSymmetric
    from deql.linalg.tiling import choose_tile

    model = deql.DEQL(l2=80.0, b=0.5).fit(csr_array(np.eye(2, dtype=np.float32)))
    packed = PackedSymmetric(n, choose_tile(n))
    factors = 0.02 * generator.standard_normal((n, 16), np.float32)
    for start, block in packed.blocks():
        np.matmul(factors[start:], factors[start : start + block.shape[1]].T, out=block)
    packed.mirror_diagonal_tiles()
    packed.add_to_diagonal(generator.uniform(0.5, 2.0, n))
    model.precision_, model.items_, model.gram_diagonal_ = packed, np.arange(n), np.ones(n)
    model.item_counts_ = np.maximum(1, 50_000 // np.arange(1, n + 1))
    model._apply_rule()
    return model


def made_up_prior(model: Any, rank: int, generator: np.random.Generator) -> Any:
    """The same model with a prior as a low pass is: columns of length about 1, less of the later ones in scores."""
    import deql
    from deql.models.fitted_prior import FittedPrior
    from deql.priors.prior import PriorWeights

    n, counts = len(model.items_), model.item_counts_.astype(np.float64)
    V = generator.standard_normal((n, rank), np.float32) * np.float32(n**-0.5)
    U = (V * np.arange(1, rank + 1, dtype=np.float32) ** -0.5) * (counts**-0.3)[:, None].astype(np.float32)
    weights = PriorWeights(U, V, 10.0 * counts**0.5, np.zeros(n))
    return model._with_prior(
        deql.priors.LowPass(rank), FittedPrior.of(weights, model.precision_), prior_weight=PRIOR_WEIGHT
    )


def save_models(
    given: Path | None, data: Path | None, items: int, prior: int, folder: Path, generator: np.random.Generator
) -> Any:
    """Two model files that share P: the one to begin with, and the one to reload, which has another b."""
    import deql

    if data is None:
        model = made_up_model(items, generator)
        if prior:
            model = made_up_prior(model, prior, generator)
    else:
        assert given is not None
        if not given.exists():
            deql.EASE(l2=80.0).fit(deql.read_interactions(data / "train.txt")).save(given)
        model = deql.load(given, verify=False)
    files = folder / "a.deql", folder / "b.deql"
    for file, b in zip(files, (0.0, 0.5), strict=True):
        model.with_rule(b=b, zero_diagonal=False).save(file)
    return files


class Run(NamedTuple):
    """What one kind of requests saw of a server, and what the server took for all of them meanwhile."""

    kind: str
    seen: dict[str, Any]
    server_cpu: float
    client_cpu: float
    memory: list[Memory]
    reloads: list[dict[str, Any]]

    @property
    def growth(self) -> float:
        """MiB that stayed; two models at once are what a reload takes, so what it takes meanwhile does not count."""
        return self.memory[-1].own - self.memory[0].own


def load(
    server: Server, asking: dict[str, int], bodies: dict[str, Path], seconds: float, swaps: list[tuple[Path, Path]]
) -> list[Run]:
    """Put a server under load by so many connections of each kind, reload it meanwhile, and tell how it went."""
    settings = {
        "host": server.host, "port": server.port, "token": server.token, "seconds": seconds, "k": K,
        "kinds": [{"bodies": str(bodies[kind]), "connections": count} for kind, count in asking.items()],
    }  # fmt: skip
    client = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("_load.py"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert client.stdin is not None
    assert client.stdout is not None
    with client:
        client.stdin.write(json.dumps(settings).encode() + b"\n")
        client.stdin.flush()
        client.stdout.readline()
        begun, busy, memory, reloads = time.monotonic(), server.cpu_seconds(), [server.memory()], []
        # The load goes on until the last one is over.
        moments = [(part + 0.5) * seconds / (len(swaps) + 0.5) for part in range(len(swaps))]
        for moment, (source, target) in zip(moments, swaps, strict=True):
            time.sleep(max(0.0, begun + moment - time.monotonic()))
            fresh = target.with_suffix(".new")
            os.link(source, fresh)
            fresh.rename(target)
            asked = time.monotonic()
            changed = server.reload()["changed"]
            reloads.append({"at": asked - begun, "seconds": time.monotonic() - asked, "changed": changed})
        time.sleep(max(0.0, begun + seconds / 2 - time.monotonic()))
        memory.append(server.memory())
        time.sleep(max(0.0, begun + seconds - 0.5 - time.monotonic()))
        cpu = (server.cpu_seconds() - busy) / (time.monotonic() - begun)
        client.stdin.close()
        told = json.loads(client.stdout.readline())
    time.sleep(1.0)
    memory.append(server.memory())
    return [
        Run(kind, seen, cpu, told["client_cpu"], memory, reloads)
        for kind, seen in zip(asking, told["kinds"], strict=True)
    ]


def wrong_answers(run: Run, histories: NDArray[np.int64], files: tuple[Path, ...]) -> int:
    """How many of the answers kept are not those of the model whose checksum they bear."""
    import deql
    from deql.io.model_file import checksum

    models = {checksum(file): deql.load(file, verify=False) for file in files}
    wrong, kept = 0, run.seen["kept"]
    for of, model in models.items():
        answers = [(number, body) for number, text in kept if (body := json.loads(text))["checksum"] == of]
        if answers:
            ids, scores = model.recommend([histories[number].tolist() for number, _ in answers], k=K)
            for expected, its_scores, (number, body) in zip(ids.tolist(), scores.tolist(), answers, strict=True):
                found = body["results"][0]["recommendations"]
                same = [(one["item"], one["score"]) for one in found] == list(zip(expected, its_scores, strict=True))
                if same and run.kind == EXPLAINED:
                    same = all(_reasons(model, histories[number], one) == one["because"] for one in found)
                wrong += not same
    return wrong + sum(json.loads(text)["checksum"] not in models for _, text in kept)


def _reasons(model: Any, history: NDArray[np.int64], one: dict[str, Any]) -> list[dict[str, Any]]:
    why = model.explain(history.tolist(), one["item"], REASONS)
    return [{"item": part.item, "value": part.value} for part in why]


def run_all(server: Server, bodies: dict[str, Path], options: argparse.Namespace, swaps: Any) -> dict[str, Run]:
    """One run after the other; those of several kinds under a label for each."""
    runs: dict[str, Run] = {}
    seconds, both = options.seconds, options.explain_connections
    load(server, {PLAIN: CONNECTIONS}, bodies, min(3.0, seconds), [])  # not counted: pages come into memory
    [runs[CONNECTED_ALONE]] = load(server, {PLAIN: 1}, bodies, seconds / 3, [])
    [runs[f"{CONNECTIONS} connections"]] = load(server, {PLAIN: CONNECTIONS}, bodies, seconds, [])
    if swaps:
        [runs[f"{CONNECTIONS}, {len(swaps)} reloads"]] = load(server, {PLAIN: CONNECTIONS}, bodies, seconds, swaps)
    if both:
        for kind in bodies:
            [runs[alone(both, kind)]] = load(server, {kind: 2 * both}, bodies, seconds, [])
        for run in load(server, dict.fromkeys(bodies, both), bodies, seconds, []):
            runs[mixed(both, run.kind)] = run
    return runs


def alone(both: int, kind: str) -> str:
    """The label of a run with twice so many connections of one kind."""
    return f"{2 * both} {kind}"


def mixed(both: int, kind: str) -> str:
    """The label of what one kind saw beside as many connections of the other."""
    return f"{both} + {both}: {kind}"


def main() -> int:
    """Start a server, put it under load, print what was seen; 1 if an answer failed or was wrong, 2 if it was slow."""
    parser = argparse.ArgumentParser(description="Put deql serve under load.")
    parser.add_argument("--model", type=Path, help="file of a model of Gowalla; fitted if it is not there")
    parser.add_argument("--items", type=int, help="a made-up model of so many items instead")
    parser.add_argument("--prior", type=int, default=0, metavar="RANK", help="a prior of this rank, made up, too")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each run")
    parser.add_argument("--reloads", type=int, default=5, help="during one run more; 0 leaves it out")
    parser.add_argument(
        "--explain-connections", type=int, default=0, metavar="N", help="N plain ones, and N that want reasons, too"
    )
    parser.add_argument("--folder", type=Path, help="where two copies of the model may lie")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("options", nargs="*", help="options for deql serve, after --")
    options = parser.parse_args()
    generator = np.random.default_rng(options.seed)
    data = Path(os.environ.get("DEQL_DATA", "nowhere"), "gowalla")
    real = options.items is None and options.model is not None and data.is_dir()
    n = options.items or 40_000
    histories = read_histories(data, generator) if real else made_up_histories(n, generator)
    with TemporaryDirectory(dir=options.folder) as given:
        folder = Path(given)
        files = save_models(options.model, data if real else None, n, options.prior, folder, generator)
        bodies, model = {}, folder / "model.deql"
        for kind, extra in ((PLAIN, {}), (EXPLAINED, {"explain": REASONS})):
            asked = [json.dumps({"histories": [row], "k": K, **extra}) for row in histories.tolist()]
            bodies[kind] = folder / f"{len(bodies)}.jsonl"
            bodies[kind].write_text("\n".join(asked))
        os.link(files[0], model)
        swaps = [(files[(turn + 1) % 2], model) for turn in range(options.reloads)]
        with serving(model, folder / "log.jsonl", options.options) as server:
            runs = run_all(server, bodies, options, swaps)
        wrong = {label: wrong_answers(run, histories, files) for label, run in runs.items()}
    prior = f" and a prior of rank {options.prior}" if options.prior else ""
    what = "a model of Gowalla" if real else f"a made-up model of {n:,} items{prior}"
    return tell(runs, wrong, options.explain_connections, what)


def tell(runs: dict[str, Run], wrong: dict[str, int], both: int, model: str) -> int:
    """Print tables, and all of it as JSON; the exit code."""
    show(
        f"deql serve, {model}, histories of {HISTORY}, k = {K}",
        ("run", "requests/s", "p50 ms", "p95", "p99", "max", "errors", "wrong", "cores: server", "client"),
        (
            (label, run.seen["per_second"], *run.seen["ms"].values(), run.seen["errors"],
             f"{wrong[label]} of {len(run.seen['kept'])}", run.server_cpu, run.client_cpu)
            for label, run in runs.items()
        ),
    )  # fmt: skip
    shares = {}
    if both:
        for kind in (PLAIN, EXPLAINED):
            share, p99 = runs[alone(both, kind)].seen["ms"]["p50"], runs[mixed(both, kind)].seen["ms"]["p99"]
            shares[kind] = {"share_ms": share, "p99_ms": p99, "p99_of_share": p99 / share}
        show(
            f"{both} connections of each kind: p99 beside the share",
            ("kind", "share ms", "p99", "p99 / share"),
            ((kind, *of.values()) for kind, of in shares.items()),
        )
    show(
        "The server's memory, MiB: anonymous + pages of files + files in memory",
        ("run", "start", "middle", "end"),
        ((label, *(" + ".join(f"{part:,.0f}" for part in now) for now in run.memory)) for label, run in runs.items()),
    )
    for label, run in runs.items():
        for error in run.seen["first_errors"]:
            print(f"{label}: {error}")
        for one in run.reloads:
            print(f"{label}: reload after {one['at']:.1f} s took {one['seconds']:.1f} s, changed: {one['changed']}")
    result = {
        "targets": TARGETS,
        "model": model,
        "shares": shares,
        "runs": {
            label: {name: run.seen[name] for name in ("requests", "per_second", "ms", "errors")}
            | {
                "server_cpu": run.server_cpu,
                "client_cpu": run.client_cpu,
                "wrong": wrong[label],
                "compared": len(run.seen["kept"]),
                "growth_mib": run.growth,
                "reloads": run.reloads,
            }
            for label, run in runs.items()
        },
    }
    print(json.dumps(result))
    if any(run.seen["errors"] or wrong[label] for label, run in runs.items()):
        return 1
    missed = [label for label, run in runs.items() if label.startswith(f"{CONNECTIONS}") and is_slow(run)]
    missed += [mixed(both, kind) for kind, of in shares.items() if of["p99_of_share"] > TARGETS["p99_of_share"]]
    print(*(f"below the targets: {label}" for label in missed), sep="\n", end="\n" if missed else "", file=sys.stderr)
    return 2 if missed else 0


def is_slow(run: Run) -> bool:
    """Whether a run of the usual number of connections missed a target."""
    return bool(
        run.seen["per_second"] < TARGETS["per_second"]
        or run.seen["ms"]["p99"] > TARGETS["p99_ms"]
        or run.growth > TARGETS["growth_mib"]
    )


if __name__ == "__main__":
    sys.exit(main())
