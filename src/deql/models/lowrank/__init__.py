"""LowRankDEQL: the estimator beside its two solvers."""

from deql.models.lowrank.lowrank import LowRankDEQL

__all__ = ["LowRankDEQL"]
