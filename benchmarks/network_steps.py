"""What a step of each network takes, beside the sparse products it is made of and what memory allows for those.

    python benchmarks/network_steps.py gowalla --data DIR [--device cuda] [--batch 8192]

A sparse product reads for each edge, in both directions, a row of the vectors, a place and a weight, and writes all
rows once: that many bytes over the rate of a large copy on the same device, measured in the same run, is its bound
(rows that stay in a cache may beat it). ``step`` is the whole step: propagation, loss, gradient and optimiser. The
softmax of SSM and its gradient stand beside the same by PyTorch's logsumexp. Best of ten each. The last line is a JSON
object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from tabulate import tabulate
from torch.nn.functional import normalize

from _hold_outs import read_lines
from deql.models.neural.graph import BipartiteGraph, propagate
from deql.models.neural.lightgcn_network import LightGCNNetwork
from deql.models.neural.losses import sampled_softmax
from deql.models.neural.network import Network
from deql.models.neural.sgl_network import SGLNetwork
from deql.models.neural.ssm_network import SSMNetwork
from deql.models.neural.steps import Steps, make_optimizer

RANK, LAYERS, REPEATS, BEFORE = 64, 3, 10, 5
COPIED = 2**26


def best(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of the fastest run; the first ones make ready."""
    seconds = []
    for _ in range(BEFORE + REPEATS):
        finish(device)
        begin = perf_counter()
        work()
        finish(device)
        seconds.append(perf_counter() - begin)
    return min(seconds[BEFORE:])


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def bandwidth(device: torch.device) -> float:
    """Bytes a second of a copy, read and written."""
    source, target = torch.ones(COPIED, device=device), torch.empty(COPIED, device=device)
    return 2 * 4 * COPIED / best(lambda: target.copy_(source), device)


def networks(graph: BipartiteGraph) -> dict[str, Network]:
    return {
        "LightGCN": LightGCNNetwork(graph, LAYERS, 1e-4),
        "SGL": SGLNetwork(graph, LAYERS, 1e-4, 0.1, 0.1, 0.2),
        "SSM (MF)": SSMNetwork(graph, 0, 0.1, 1024, 1e-5),
        "SSM (GNN)": SSMNetwork(graph, LAYERS, 0.1, 1024, 1e-5),
    }


def softmax_seconds(batch: int, device: torch.device) -> tuple[float, float]:
    """Of the sampled softmax and its gradient, and of the same by logsumexp."""
    users, items = (torch.randn(batch, RANK, device=device, requires_grad=True) for _ in range(2))
    weights = torch.ones(batch, device=device)

    def ours() -> None:
        torch.autograd.grad(sampled_softmax(users, items, weights, 0.1, batch), [users, items])

    def plain() -> None:
        cosines = normalize(users) @ normalize(items).T / 0.1
        torch.autograd.grad((cosines.logsumexp(1) - cosines.diagonal()).mean(), [users, items])

    return best(ours, device), best(plain, device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("key", help="folder below DIR, with train.txt")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    device = torch.device(given.device)
    lines = read_lines(given.data / given.key / "train.txt")
    graph = BipartiteGraph.from_arrays(lines.starts, lines.items, np.ones(len(lines.items)), lines.n, device)
    vectors = torch.randn(graph.n_vertices, RANK, device=device)
    rate = bandwidth(device)
    edges = len(graph.users)
    product = 2 * edges * (4 * RANK + 4 + 4) + 4 * RANK * graph.n_vertices
    bound = product / rate
    spread = best(lambda: graph.spread(vectors), device)
    propagation = best(lambda: propagate(vectors, graph, LAYERS), device)
    rows = [
        ["one sparse product", spread * 1e3, bound * 1e3, spread / bound],
        [f"propagation, {LAYERS} layers", propagation * 1e3, LAYERS * bound * 1e3, propagation / (LAYERS * bound)],
    ]
    generator = torch.Generator(device).manual_seed(0)
    pairs = torch.randperm(edges, generator=generator, device=device)[: given.batch]
    ratios = {"spread": spread / bound, "propagation": propagation / (LAYERS * bound)}
    for name, network in networks(graph).items():
        E = torch.nn.Parameter(vectors * 0.01)
        steps = Steps(network, E, make_optimizer(E), len(pairs))
        network.begin_epoch(generator)
        steps.begin_epoch(0.01)
        took = best(lambda steps=steps: steps.take(pairs), device)
        products = 2 * network.layers * (3 if name == "SGL" else 1)
        rows.append([f"step, {name}", took * 1e3, products * bound * 1e3, took / (products * bound) if products else 0])
        ratios[name] = rows[-1][3]
    ours, plain = softmax_seconds(min(given.batch, 4096), device)
    ratios["softmax"] = plain / ours
    print(f"{given.key}: {graph.n_vertices:,} vertices, {edges:,} edges, rank {RANK}, batches of {len(pairs):,}")
    print(f"{device}, {torch.get_num_threads()} threads; a copy moves {rate / 1e9:.1f} GB/s")
    print(tabulate(rows, ["", "ms", "ms by memory", "ratio"], floatfmt=".2f"))
    print(f"the softmax of SSM: {ours * 1e3:.1f} ms, by logsumexp {plain * 1e3:.1f} ms")
    print(json.dumps({name: round(value, 2) for name, value in ratios.items()}))


if __name__ == "__main__":
    main()
