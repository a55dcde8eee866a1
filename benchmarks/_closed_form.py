"""The library's models with dense P on a device, for many settings on one hold-out: what a search on a GPU needs.

The same formulas (:mod:`deql.rules`) and units as the library's; NumPy and torch alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from _dense import Laboratory, Scores, Vector, Worth, dense, slices, sparse
from _graph_filters import ItemGraph
from deql.rules import PriorDiagonals, decoupled, popularity_scale, scale_columns

__all__ = ["ClosedForm", "Setting"]


@dataclass(frozen=True)
class Setting:
    """Hyper-parameters; ``ridge`` is l2 in means of the Gram matrix's diagonal."""

    ridge: float = 4.0
    dropout: float = 0.8
    user_power: float = 0.5
    b: float = 0.0
    popularity_power: float = 0.0
    rank: int = 512
    power_in: float = 0.5
    power_out: float = 0.5
    prior_weight: float = 0.0

    def __str__(self) -> str:
        prior = ("rank", "power_in", "power_out", "prior_weight") if not self.prior_weight else ()
        return " ".join(f"{name}={value:g}" for name, value in asdict(self).items() if name not in prior)


class Solved(NamedTuple):
    """P with its diagonal, X·P, and l2."""

    P: Tensor
    diagonal: Vector
    sums: Tensor
    l2: float


class LowPass(NamedTuple):
    """W₀ = U·Vᵀ·diag(scale), P·U and X·P·U, and the diagonals of W₀ and of P·W₀."""

    V: Tensor
    sums: Tensor
    scale: Vector
    own: Vector
    image: Vector


class ClosedForm:
    """Models on the training part of a laboratory; the last inverse, product and Gram matrix are kept."""

    def __init__(self, lab: Laboratory, rank: int) -> None:
        self.lab, self._rank = lab, rank
        self._grams: dict[float, Tensor] = {}
        self._solved: dict[tuple[float, ...], Solved] = {}
        self._passed: dict[tuple[float, ...], LowPass] = {}
        self._fits: dict[tuple[float, ...], float] = {}

    @cached_property
    def V(self) -> Tensor:
        """The leading eigenvectors of the item graph."""
        return ItemGraph(self.lab).leading(self._rank)

    def evaluate(self, setting: Setting) -> Worth:
        return self.lab.evaluate(self.scores(setting))

    def l2(self, setting: Setting) -> float:
        """The ridge in the library's unit."""
        return setting.ridge * float(self._diagonal(setting.user_power).mean())

    def setting(self, l2: float, user_power: float, **others: Any) -> Setting:
        """The setting that has this l2."""
        return Setting(l2 / float(self._diagonal(user_power).mean()), user_power=user_power, **others)

    def scores(self, setting: Setting) -> Scores:
        """X·W for a slice of users, with W = P·diag(gain) + m·P·W₀; what is on the diagonal ranks nothing unseen."""
        solved, D = self._solve(setting), self._diagonal(setting.user_power)
        outward = popularity_scale(self.lab.counts, setting.popularity_power)
        prior = self._low_pass(setting, solved) if setting.prior_weight else None
        m = setting.prior_weight * solved.l2
        known = None if prior is None else PriorDiagonals(m, prior.own, prior.image)
        gain, shift = decoupled(solved.diagonal, D, l2=solved.l2, dropout=setting.dropout, b=setting.b, prior=known)
        scaled, _ = scale_columns(gain, shift, solved.diagonal, self.lab.counts, setting.popularity_power)
        factor = self.lab.vector(scaled)
        if prior is None:
            return lambda rows: solved.sums[rows] * factor
        right = prior.V.T * self.lab.vector(m * prior.scale * outward)
        return lambda rows: (solved.sums[rows] * factor).addmm_(prior.sums[rows], right)

    def _diagonal(self, user_power: float) -> Vector:
        """D = diag(S)."""
        train = self.lab.train
        return np.bincount(train.items, np.maximum(train.sizes, 1.0)[train.users] ** -user_power, minlength=self.lab.n)

    def _gram(self, user_power: float) -> Tensor:
        """S = Rᵀ·diag(|u|^−user_power)·R, dense."""
        if user_power not in self._grams:
            self._grams.clear()
            lab, train = self.lab, self.lab.train
            weights = np.maximum(train.sizes, 1.0) ** -user_power
            S = torch.zeros(lab.n, lab.n, device=lab.device)
            for rows in slices(len(train.sizes)):
                part = dense(train, rows, lab.device)
                S.addmm_(part.T * lab.vector(weights[rows]), part)
            self._grams[user_power] = S
        return self._grams[user_power]

    def _solve(self, setting: Setting) -> Solved:
        key = setting.ridge, setting.dropout, setting.user_power
        if key not in self._solved:
            self._solved.clear()
            self._passed.clear()
            D, l2 = self._diagonal(setting.user_power), self.l2(setting)
            A = self._gram(setting.user_power).clone()
            A.diagonal().add_(self.lab.vector(setting.dropout / (1 - setting.dropout) * D + l2))
            P = torch.cholesky_inverse(torch.linalg.cholesky(A, out=A))
            del A
            sums = torch.cat([self.lab.history(rows) @ P for rows in slices(len(self.lab.seen.sizes))])
            self._solved[key] = Solved(P, P.diagonal().double().cpu().numpy(), sums, l2)
        return self._solved[key]

    def _low_pass(self, setting: Setting, solved: Solved) -> LowPass:
        key = setting.rank, setting.power_in, setting.power_out
        if key not in self._passed:
            lab, V = self.lab, self.V[:, : setting.rank].contiguous()
            U = V * lab.vector(lab.popularity**-setting.power_in)[:, None]
            image = solved.P @ U
            sums = torch.cat([lab.history(rows) @ image for rows in slices(len(lab.seen.sizes))])
            scale = self._fit(setting) * lab.popularity**setting.power_out
            diagonals = (scale * (left.double() * V).sum(1).cpu().numpy() for left in (U, image))
            self._passed[key] = LowPass(V, sums, scale, *diagonals)
        return self._passed[key]

    def _fit(self, setting: Setting) -> float:
        """c = ⟨R, R·W₀⟩ / ‖R·W₀‖², with which R·W₀ fits R best."""
        key = setting.rank, setting.power_in, setting.power_out
        if key not in self._fits:
            lab, train = self.lab, self.lab.train
            R = sparse(train, np.ones(len(train.items)), lab.device)
            V = self.V[:, : setting.rank].double()
            powers = torch.from_numpy(lab.popularity).to(lab.device)[:, None]
            left, right = R @ (V * powers**-setting.power_in), V * powers**setting.power_out
            alike = float(((R @ right) * left).sum())
            self._fits[key] = alike / float(((left.T @ left) * (right.T @ right)).sum())
        return self._fits[key]
