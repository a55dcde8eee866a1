"""A laboratory for rankings that no model of the library makes: scores of all evaluated users, dense, on a device.

P comes from the library's own sweep, and stays packed; scores are sums in float64, kept in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from torch import Tensor

from deql.data import Interactions
from deql.linalg.engines.torch_invert import default_arithmetic, invert_on_device
from deql.linalg.engines.torch_packed import DevicePacked
from deql.linalg.gram import gram, user_weights, weighted_diagonal
from deql.linalg.tiling import device_tile
from deql.ranking.torch_rank import DeviceHistories, strips
from deql.rules import decoupled, scale_columns
from deql.split import HeldOut
from deql.tuning.tuning_data import TuningData

__all__ = ["Laboratory", "Row", "Solved", "Study", "Worth", "inverse", "multiply", "packed_gram"]

Vector = NDArray[np.float64]
Scores = Callable[[slice], Tensor]
"""Scores of a slice of the evaluated users, users × items, in a tensor that may be written to."""

K = 20
SLICE = 4_096
"""Users whose scores are looked at together, and those whose 20th score is the unit of a block."""
STRIP = 1_024
WIDTH, ROUNDS = 1_100, 8
"""Of the subspace iteration: a few more directions than are asked for."""
T = (0.05, 0.1, 0.2, 0.3, 0.5, 0.8)
"""Of a second block."""
AS_FLOAT32 = 1e-5
"""Residual up to which a device's fastest products are taken for as good as float32."""


class Worth(NamedTuple):
    """Means over the evaluated users."""

    recall: float
    ndcg: float


class Laboratory:
    """What is learned from, who is evaluated, and by what.

    Parameters
    ----------
    train : Interactions
    target : HeldOut
        Users with nothing held out are left out.
    device : torch.device

    Attributes
    ----------
    seen : csr_array
        Histories X of the evaluated users.
    counts : ndarray
        How many training users have each item.
    popularity : ndarray
        The same, at least 1.
    """

    def __init__(self, train: Interactions, target: HeldOut, device: torch.device) -> None:
        self.train, self.device = train, device
        self.n = train.n_items
        evaluated = np.flatnonzero(np.diff(target.held_out.matrix.indptr))
        self.users = target.seen.users[evaluated]
        self.seen = csr_array(target.seen.matrix[evaluated])
        held_out = csr_array(target.held_out.matrix[evaluated])
        held_out.sort_indices()
        self.counts = np.bincount(train.matrix.indices, minlength=self.n)
        self.popularity = np.maximum(self.counts, 1).astype(np.float64)
        self._seen, self._held_out = self._keys(self.seen), self._keys(held_out)
        self._sizes = torch.from_numpy(np.diff(held_out.indptr).astype(np.int64)).to(device)
        self._discounts = 1 / torch.log2(torch.arange(2, K + 2, dtype=torch.float64, device=device))
        self._ideal = self._discounts.cumsum(0)[self._sizes.clamp(max=K) - 1]

    def _keys(self, matrix: csr_array) -> Tensor:
        """Row·n + column of each entry, in the order of rows."""
        rows = np.repeat(np.arange(matrix.shape[0], dtype=np.int64), np.diff(matrix.indptr))
        return torch.from_numpy(rows * self.n + matrix.indices).to(self.device)

    def vector(self, values: Vector) -> Tensor:
        """Numbers of the items, for dense scores."""
        return torch.from_numpy(values).to(self.device).float()

    def evaluate(self, scores: Scores) -> Worth:
        """Recall@20 and NDCG@20 of the evaluated users, what they have seen left out."""
        hits = torch.cat([self._hits(scores, rows) for rows in self._slices()]).double()
        recall, ndcg = hits.sum(1) / self._sizes, hits @ self._discounts / self._ideal
        return Worth(float(recall.mean()), float(ndcg.mean()))

    def unit(self, scores: Scores) -> float:
        """The median 20th score of the first users: what the scores of a block are measured in."""
        return float(self._best(scores, next(self._slices())).values[:, -1].median())

    def _slices(self) -> Iterator[slice]:
        users = len(self.users)
        return (slice(first, min(first + SLICE, users)) for first in range(0, users, SLICE))

    def _best(self, scores: Scores, rows: slice) -> torch.return_types.topk:
        found = scores(rows)
        had = self._seen[int(self.seen.indptr[rows.start]) : int(self.seen.indptr[rows.stop])]
        found.view(-1)[had - rows.start * self.n] = -torch.inf
        return found.topk(K, dim=1)

    def _hits(self, scores: Scores, rows: slice) -> Tensor:
        """Which of the best items were held out, users × 20."""
        asked = torch.arange(rows.start, rows.stop, device=self.device)[:, None] * self.n
        asked = asked + self._best(scores, rows).indices
        place = torch.searchsorted(self._held_out, asked).clamp_(max=len(self._held_out) - 1)
        return self._held_out[place] == asked

    @cached_property
    def _leading(self) -> Tensor:
        """Eigenvectors of G = D^−½·RᵀU⁻¹R·D^−½, the largest eigenvalues first, by iterating on a seeded subspace.

        D and U are what each item and each user has. G itself, n × n, is never made.
        """
        matrix = self.train.matrix.astype(np.float64)
        half = csr_array(
            diags_array(user_weights(matrix, 0.5)) @ matrix @ diags_array(self.popularity**-0.5)
        )  # of G: G = halfᵀ·half
        forth, back = sparse(half, self.device), sparse(csr_array(half.T), self.device)
        start = torch.randn(self.n, min(WIDTH, self.n), generator=torch.Generator().manual_seed(0))
        Q = start.double().to(self.device)
        for _ in range(ROUNDS):
            Q = torch.linalg.qr(back @ (forth @ Q)).Q
        image = forth @ Q
        vectors: Tensor = torch.linalg.eigh(image.T @ image).eigenvectors
        return Q @ vectors.flip(1)

    def low_pass(self, k: int, power: float) -> tuple[Tensor, Tensor]:
        """X·D^−½·V and Vᵀ·D^power, whose product are the scores of the ideal low pass with k eigenvectors V."""
        V, popularity = self._leading[:, :k], torch.from_numpy(self.popularity).to(self.device)
        left = sparse(self.seen, self.device) @ (popularity[:, None] ** -0.5 * V)
        return left.float(), (V.T * popularity**power).float()


def sparse(matrix: csr_array, device: torch.device) -> Tensor:
    """A sparse matrix in float64 on a device."""
    return _rows(matrix, device).compressed()


def multiply(matrix: csr_array, packed: DevicePacked) -> Tensor:
    """The product of a sparse and a packed matrix, dense."""
    product = torch.empty(matrix.shape, device=packed.device)
    for low, high, sums in strips(packed, _rows(matrix, packed.device), STRIP, np.ones(packed.n, bool)):
        product[:, low:high] = sums
    return product


def _rows(matrix: csr_array, device: torch.device) -> DeviceHistories:
    users, n = matrix.shape
    return DeviceHistories((matrix.indptr, matrix.indices, matrix.data), 0, users, n, device)


def packed_gram(matrix: csr_array, weights: Vector, device: torch.device) -> DevicePacked:
    """S = RᵀΛR with Λ = diag(weights)."""
    return DevicePacked.from_host(gram(matrix, weights=weights, tile=device_tile(matrix.shape[1])), device)


def inverse(S: DevicePacked, added: Vector) -> DevicePacked:
    """P = (S + diag(added))⁻¹; S stays as it is."""
    for arithmetic in dict.fromkeys((default_arithmetic("float32", S.device), "float32")):
        P = S.copy()
        P.add_to_diagonal(added)
        if invert_on_device(P, arithmetic) <= AS_FLOAT32:
            break
    return P


@dataclass(frozen=True)
class Row:
    """What was tried, and what it is worth; ``alone`` is the worth of a second block without the first."""

    part: str
    parameters: dict[str, float]
    worth: Worth
    alone: Worth | None = None

    def facts(self) -> dict[str, Any]:
        """The same as JSON has it."""
        alone = {} if self.alone is None else {"alone": self.alone._asdict()}
        return {"part": self.part, **self.parameters, **self.worth._asdict(), **alone}


class Solved(NamedTuple):
    """P with its diagonal, and the diagonal D of the Gram matrix."""

    P: DevicePacked
    diagonal: Vector
    D: Vector


class Study:
    """The choice on validation data, and what it takes to change it."""

    def __init__(self, held: TuningData, choice: dict[str, float], device: torch.device) -> None:
        self.lab = Laboratory(held.train, held.validation, device)
        self.choice = choice
        self.l2, self.p, self.gamma = choice["l2"], choice["dropout"], choice["user_power"]
        self.alpha = choice["popularity_power"]
        self.gram = self.gram_of(self.gamma)
        self.base = self.solve(*self.gram, self.l2)
        self.sums = multiply(self.lab.seen, self.base.P)
        self.scores = self.sums * self.gain(self.base)
        self.unit = self.lab.unit(self.chosen)

    def chosen(self, rows: slice) -> Tensor:
        return self.scores[rows].clone()

    def gram_of(self, user_power: float) -> tuple[DevicePacked, Vector]:
        """The Gram matrix with these weights of users, and its diagonal."""
        matrix = self.lab.train.matrix
        weights = user_weights(matrix, user_power)
        return packed_gram(matrix, weights, self.lab.device), weighted_diagonal(matrix, weights)

    def solve(self, S: DevicePacked, D: Vector, ridge: float | Vector, dropout: float | None = None) -> Solved:
        p = self.p if dropout is None else dropout
        P = inverse(S, p / (1 - p) * D + ridge)
        return Solved(P, P.diagonal(), D)

    def reweighted(self, user_power: float) -> tuple[Solved, float]:
        """P with other weights of users, and its l2, which keeps its ratio to the mean of D."""
        S, D = self.gram_of(user_power)
        l2 = self.l2 * float(D.mean() / self.base.D.mean())
        return self.solve(S, D, l2), l2

    def gain(self, solved: Solved, **changes: float) -> Tensor:
        """The gain of the choice, or of other parameters, on some P."""
        given = self.choice | changes
        gain, shift = decoupled(solved.diagonal, solved.D, l2=given["l2"], dropout=given["dropout"], b=given["b"])
        gain, _ = scale_columns(gain, shift, solved.diagonal, self.lab.counts, given["popularity_power"])
        return self.lab.vector(gain)

    def evaluate(self, sums: Tensor, gain: Tensor) -> Worth:
        return self.lab.evaluate(lambda rows: sums[rows] * gain)

    def best(self, part: str, tried: Iterable[tuple[dict[str, float], Worth]], alone: Worth | None = None) -> Row:
        parameters, worth = max(tried, key=lambda one: one[1].ndcg)
        return Row(part, parameters, worth, alone)

    def blend(self, part: str, block: Tensor, **parameters: float) -> Row:
        """The choice's scores plus t times a block's."""
        unit = self.unit / self.lab.unit(lambda rows: block[rows].clone())

        def both(t: float) -> Scores:
            return lambda rows: torch.add(self.scores[rows], block[rows], alpha=t * unit)

        tried = ((parameters | {"t": t}, self.lab.evaluate(both(t))) for t in T)
        return self.best(part, tried, self.lab.evaluate(lambda rows: block[rows].clone()))
