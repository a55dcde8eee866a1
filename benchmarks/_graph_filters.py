"""GF-CF and ChebyCF made again from their formulas, for the evaluator that our models have.

With U and D the counts of users and items, G = D^−½·RᵀU⁻¹R·D^−½ is the item graph, with eigenvalues from 0 to 1. A
history x, a row of zeros and ones, is scored by

- GF-CF (CIKM 2021): x·G + α·x·D^−½·V·Vᵀ·D^½, where V are the 256 leading eigenvectors of G;
- ChebyCF (SIGIR 2025): x·D^−β·( h(I − 2G) + α·V·Vᵀ )·D^β with η leading eigenvectors; h is the polynomial of order K
  through a plateau, ½·(1 − sign(t)·|t|^φ) at t = 1 − 2σ, from −1 (σ = 1) to 1 (σ = 0).

The authors of ChebyCF take the values of the plateau at the extrema cos(πj/K), rounded to three digits, and interpolate
them at the K + 1 zeros of the next Chebyshev polynomial; so does this.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from _dense import Laboratory, Scores, sparse

__all__ = ["ItemGraph", "chebycf", "coefficients", "gfcf"]

WIDER = 32
"""Least number of directions of the subspace beyond those that are asked for."""
ROUNDS, DEGREE = 4, 8


class ItemGraph:
    """G = D^−½·RᵀU⁻¹R·D^−½ of what is learned from; G itself, n × n, is never made."""

    def __init__(self, lab: Laboratory) -> None:
        self.n, self.device = lab.n, lab.device
        train = lab.train
        values = np.maximum(train.sizes, 1.0)[train.users] ** -0.5 * lab.popularity[train.items] ** -0.5
        exact = sparse(train, values, torch.device("cpu"))
        pair = exact, exact.t().to_sparse_csr()  # not on a device: not every one can turn them
        self._halves = {dtype: tuple(half.to(dtype).to(lab.device) for half in pair)
                        for dtype in (torch.float64, torch.float32)}  # fmt: skip

    def __matmul__(self, columns: Tensor) -> Tensor:
        forth, back = self._halves[columns.dtype]
        return back @ (forth @ columns)

    def leading(self, k: int) -> Tensor:
        """The k leading eigenvectors, n × k: a seeded subspace, filtered by Chebyshev polynomials.

        On [0, c], where c is the least of the subspace's eigenvalues, T_8 stays below 1 and grows fast above. In
        float64, as it grows to 1e10 for the first of them.
        """
        width = min(self.n, k + max(k // 4, WIDER))
        Q = torch.randn(self.n, width, generator=torch.Generator().manual_seed(0)).double().to(self.device)
        Q = torch.linalg.qr(self @ Q).Q
        for turn in range(ROUNDS + 1):
            image = self @ Q
            values, turned = torch.linalg.eigh(Q.T @ image)
            Q, image = Q @ turned, image @ turned
            if turn < ROUNDS:
                Q = torch.linalg.qr(self._grown(Q, image, float(values[0].clamp(min=1e-9)))).Q
        return Q.flip(1)[:, :k].float().contiguous()

    def _grown(self, before: Tensor, image: Tensor, least: float) -> Tensor:
        """T_8 of 2G/least − I on the columns ``before``, whose images by G are there."""
        last = 2 / least * image - before
        for _ in range(DEGREE - 1):
            before, last = last, 4 / least * (self @ last) - 2 * last - before
        return last


def gfcf(lab: Laboratory, graph: ItemGraph, V: Tensor, alpha: float = 0.3) -> Scores:
    """Scores of GF-CF with leading eigenvectors V."""
    root = lab.vector(lab.popularity**0.5)

    def scores(rows: slice) -> Tensor:
        history = lab.history(rows)
        linear = (graph @ history.T).T
        return linear.contiguous().addmm_((history / root) @ V, V.T * root, alpha=alpha)

    return scores


def chebycf(lab: Laboratory, graph: ItemGraph, V: Tensor, K: int, phi: float, alpha: float, beta: float) -> Scores:
    """Scores of ChebyCF with leading eigenvectors V."""
    scale = lab.vector(lab.popularity**beta)
    wanted = coefficients(K, phi)

    def scores(rows: slice) -> Tensor:
        signal = (lab.history(rows) / scale).T.contiguous()
        before, last = signal, signal - 2 * (graph @ signal)
        filtered = wanted[0] * before + wanted[1] * last
        for coefficient in wanted[2:]:
            # T_{k+1}(t) = 2t·T_k(t) − T_{k−1}(t) at t = I − 2G.
            before, last = last, 2 * last - 4 * (graph @ last) - before
            filtered += coefficient * last
        filtered += alpha * (V @ (V.T @ signal))
        return filtered.T.contiguous() * scale

    return scores


def coefficients(K: int, phi: float) -> NDArray[np.float64]:
    """Of T_0 … T_K in the polynomial through the plateau."""
    extrema = np.cos(np.pi * np.arange(K, -1, -1) / K).round(3)
    plateau = (0.5 - 0.5 * np.sign(extrema) * np.abs(extrema) ** phi).round(3)
    angles = np.pi * (np.arange(K, -1, -1) + 0.5) / (K + 1)
    found = 2 / (K + 1) * np.cos(np.arange(K + 1)[:, None] * angles) @ plateau
    found[0] /= 2
    return found
