"""LowRankDEQL: the estimator beside its two solvers."""
