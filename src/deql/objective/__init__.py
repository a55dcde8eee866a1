"""The loss in general: its moments, its value, and its minimiser for any distributions (definition of DEQL, eq. 8).

A loss is given by its moments: H^(i) = E[XᵀX] and v^(i) = E[XᵀY_i] of each column i, as a function
``moments(i)``. :func:`solve` minimises it. :class:`Corruption` has the moments of the losses that have a
formula, :func:`from_sampler` estimates those that have none, and :func:`solve_updates` is the fast way where
all H^(i) are close to one matrix. See docs/objectives.md.

:func:`moments`, :func:`expected_loss`, :func:`sampled_loss` and :func:`brute_force` are the paper's own loss
(eq. 5) in its own parameters, for checking and for study.
"""

from deql.objective.columns import solve
from deql.objective.corruption import Corruption
from deql.objective.loss import brute_force, expected_loss, moments, sampled_loss
from deql.objective.sampling import SampledMoments, from_sampler
from deql.objective.updates import Combination, Update, solve_updates

__all__ = [
    "Combination",
    "Corruption",
    "SampledMoments",
    "Update",
    "brute_force",
    "expected_loss",
    "from_sampler",
    "moments",
    "sampled_loss",
    "solve",
    "solve_updates",
]
