"""Whether a model is what a fit on some data gives, and a certificate true of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._system.tables import counted
from deql.data import Interactions
from deql.errors import DataError, ParameterError, Setting
from deql.linalg.packed import PackedSymmetric
from deql.models.attached_data import check_sums, in_order_of
from deql.models.certificate import Certificate
from deql.models.updatable import Updatable
from deql.priors.saved import SavedPrior

__all__ = ["TOLERANCE", "Check", "largest_difference", "verify"]

TOLERANCE = {"float32": 1e-3, "float64": 1e-8}
"""How far numbers of two models on the same data may be from each other, relatively: what rounding adds up to."""

_PROBES = 8
_AT_ONCE = 2**24


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes
    ----------
    what : str
    found : str
        In words.
    passed : bool
    difference, limit : float or None
        The largest relative difference and what is accepted, where it is one.
    """

    what: str
    found: str
    passed: bool
    difference: float | None = None
    limit: float | None = None


def verify(
    certificate: Certificate, model: Updatable, checksum: str, data: Interactions, prior: Any = None
) -> list[Check]:
    """Check a certificate by a fit on the data as they are now.

    Parameters
    ----------
    certificate : Certificate
    model : fitted model
        The one that is said to have forgotten.
    checksum : str
        Of its file.
    data : Interactions
        What it should have learned from. Users of the certificate that are in them are left out.
    prior : Prior, optional
        The prior once more, where the model has only what it made.

    Returns
    -------
    list of Check
        The certificate is true if all of them passed.

    Examples
    --------
    >>> import deql
    >>> data = deql.Interactions.from_pairs(list("aabbc"), ["tea", "jam", "tea", "oat", "jam"])
    >>> model = deql.EASE(l2=1.0).fit(data, keep_data=True)
    >>> certificate = model.forget("b")
    >>> all(check.passed for check in verify(certificate, model, model.checksum(), data))
    True
    """
    params = model.fitted_params_ | ({} if prior is None else {"prior": prior})
    refuse_saved_prior(params["prior"])
    same = checksum == certificate.after
    words = "the one that the certificate is of" if same else "another model, or changed since the certificate was made"
    checks = [Check("the file", words, same)]
    if model.data_ is not None:
        there = int(certificate.among(model.data_.users).sum())
        checks.append(Check("users in the data it keeps", f"{there:,} of {len(certificate.users):,}", not there))
    left_out = certificate.among(model._user_keys(data.users.tolist()))
    if left_out.any():
        data = data.take_users(~left_out)
        checks.append(Check("users in the table", f"{int(left_out.sum()):,}, left out", True))
    try:
        own = in_order_of(model, data.without_empty())
        check_sums(model, own)
    except DataError as error:
        return [*checks, Check("the data", str(error), False)]
    users = counted(own.n_users, "user", "users")
    checks.append(Check("the data", f"{users} and all counts as in the model", True))
    fresh = type(model)(**params)
    fresh.progress = model.progress
    fresh._fit_on(own, model)
    return checks + _compared(model, fresh)


def refuse_saved_prior(prior: Any) -> None:
    """Raise ParameterError for a prior of which a model file kept only what it made."""
    if isinstance(prior, SavedPrior) and prior.name == "features":
        raise ParameterError("the model file does not have the features of its items: say ", Setting("item_features"))
    if isinstance(prior, SavedPrior):
        raise ParameterError(
            f"the model file kept what its prior made, not the prior ({prior.name}), so that it cannot be fitted again"
        )


def _compared(model: Updatable, fresh: Updatable) -> list[Check]:
    """The numbers of two models with the same columns."""
    limit = TOLERANCE[str(model.precision_.dtype)]
    with_prior = limit if model.prior_ is None else TOLERANCE["float32"]  # its factors are of that type
    probes = np.random.default_rng(0).choice([-1.0, 1.0], (len(model.items_), _PROBES))
    differences = [
        ("P", largest_difference(model.precision_, fresh.precision_), limit),
        ("D", _relative(model.gram_diagonal_, fresh.gram_diagonal_), limit),
        ("gain", _relative(model.gain_, fresh.gain_), with_prior),
        ("shift", _relative(model.shift_, fresh.shift_), with_prior),
        ("W", _relative(_product(model, probes), _product(fresh, probes)), with_prior),
    ]
    return [
        Check(what, f"differs by {value:.1e}, relatively", value <= most, value, most)
        for what, value, most in differences
    ]


def _relative(mine: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    largest = float(np.abs(other).max())
    return float(np.abs(mine - other).max()) / (largest or 1.0)


def _product(model: Updatable, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """W·x."""
    image = model.precision_.matvec(model.gain_[:, None] * x) + model.shift_[:, None] * x
    if model.prior_ is not None and model.prior_scale_ is not None:
        scaled = model.prior_scale_[:, None] * x
        image += model.prior_.left @ (scaled if model.prior_.right is None else model.prior_.right.T @ scaled)
    return np.asarray(image)


def largest_difference(mine: PackedSymmetric, other: PackedSymmetric) -> float:
    """The largest of |P_ij − Q_ij| / √(Q_ii·Q_jj), in whatever tiles they are: no entry of Q passes √(Q_ii·Q_jj).

    Examples
    --------
    >>> Q = PackedSymmetric.from_dense(np.diag([4.0, 1.0, 1.0]), tile=2)
    >>> P = PackedSymmetric.from_dense(np.array([[4.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]]), tile=1)
    >>> largest_difference(P, Q)
    0.25
    """
    scale = 1.0 / np.sqrt(other.diagonal())
    largest = 0.0
    for start, stop in pairwise(sorted({*range(0, mine.n, mine.tile), *range(0, mine.n, other.tile), mine.n})):
        for rows, one, two in _same_columns(mine, other, start, stop):
            difference = np.abs(one.astype(np.float64) - two) * scale[rows, None] * scale[start:stop]
            largest = max(largest, float(difference.max()))
    return largest


def _same_columns(
    mine: PackedSymmetric, other: PackedSymmetric, start: int, stop: int
) -> Iterator[tuple[slice, NDArray[Any], NDArray[Any]]]:
    """Rows of some columns, which lie in one block of either, from the first of them on."""
    parts = [
        packed.block(start // packed.tile)[start % packed.tile :, start % packed.tile :][:, : stop - start]
        for packed in (mine, other)
    ]
    step = max(1, _AT_ONCE // (stop - start))
    for top in range(0, mine.n - start, step):
        one, two = (part[top : top + step] for part in parts)
        yield slice(start + top, start + top + len(one)), one, two
