"""Whether a model is what a fit on some data gives, and a certificate true of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.formatting import as_json
from deql._system.tables import counted
from deql.data import Interactions
from deql.errors import DataError, ParameterError, Setting
from deql.linalg.gram import user_weights
from deql.linalg.gram_change import gram_change
from deql.linalg.low_rank import low_rank_step
from deql.linalg.packed import PackedSymmetric
from deql.linalg.planner.choose import ENGINE_KEYS
from deql.models.attached_data import check_sums, in_order_of
from deql.models.certificate import Certificate
from deql.models.updatable import Updatable
from deql.priors.saved import SavedPrior
from deql.ranking.histories import ids_of_kind

__all__ = ["LARGEST_SHARE", "TOLERANCE", "Check", "largest_difference", "refuse_saved_prior", "share_left", "verify"]

TOLERANCE = {"float32": 1e-3, "float64": 1e-8}
"""How far numbers of two models on the same data may be from each other, relatively: what rounding adds up to."""

LARGEST_SHARE = 0.05
"""How much of what users would make of P may be found in it, as rounding is never quite without direction."""

_PROBES = 8
_AT_ONCE = 2**22


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
    refuse_saved_prior(model.fitted_params_["prior"] if prior is None else prior)
    same = checksum == certificate.after
    words = "the one that the certificate is of" if same else "another model, or changed since the certificate was made"
    checks = [Check("the file", words, same), _same_model(certificate, model)]
    if model.data_ is not None:
        there = int(certificate.among(model.data_.users).sum())
        checks.append(Check("users in the data it keeps", f"{there:,} of {len(certificate.users):,}", not there))
    left_out = certificate.among(model._user_keys(data.users.tolist()))
    theirs = data.take_users(left_out)
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
    fresh = model._unfitted(prior)
    fresh._fit_on(own, model.until_)
    return checks + _compared(model, fresh) + _left_of(model, fresh, theirs)


def _same_model(certificate: Certificate, model: Updatable) -> Check:
    """Whether the certificate tells the model's kind and hyper-parameters; where it is computed does not count."""
    told = {"model": certificate.model} | as_json(certificate.parameters)
    own = {"model": type(model).__name__} | as_json(model._to_config(model.fitted_params_))
    other = [
        f"{name} {value} in the certificate and {own.get(name)} here"
        for name, value in told.items()
        if isinstance(value, int | float | str) and name not in ENGINE_KEYS and own.get(name) != value
    ]
    return Check("kind and parameters", "; ".join(other) or "as the certificate has them", not other)


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


def _left_of(model: Updatable, fresh: Updatable, theirs: Interactions) -> list[Check]:
    """How much of what users would make of P is in it: differences that rounding may explain may be theirs, too."""
    known = [item in model._item_index for item in ids_of_kind(theirs.items, model.items_)]
    theirs = in_order_of(model, theirs.take_items(np.array(known, bool)).without_empty())
    if not theirs.n_interactions:
        return []
    rows, dropped = fresh._as_learned(theirs).matrix, fresh._dropped
    weights = user_weights(rows, fresh.user_power)
    nothing = csr_array(rows.shape, dtype=rows.dtype)
    change = gram_change(nothing, rows, np.zeros_like(weights), weights, dropped / (1.0 - dropped)).change
    with_them = low_rank_step(fresh.precision_, change).precision(fresh.precision_, store=fresh._store)
    made, differs = (largest_difference(one, fresh.precision_) for one in (with_them, model.precision_))
    words = f"of {made:.1e} that they would make of P"
    if made <= differs / 2:
        return [Check("what is left of them", f"cannot be told: rounding is more {words}", True)]
    share = abs(share_left(model.precision_, fresh.precision_, with_them))
    return [
        Check("what is left of them", f"a share of {share:.1e} {words}", share <= LARGEST_SHARE, share, LARGEST_SHARE)
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
    parts = _same_parts(mine, other)
    return max(
        float((np.abs(one - two) * scale[rows, None] * scale[columns]).max()) for rows, columns, one, two in parts
    )


def share_left(mine: PackedSymmetric, without: PackedSymmetric, with_them: PackedSymmetric) -> float:
    """How much of the way from one matrix to another a third one is: the c nearest to P = Q + c·(Q' − Q).

    Rounding errors of many entries cancel out in it, so that it finds what is far below the largest of them.

    Examples
    --------
    >>> Q, with_them = (PackedSymmetric.from_dense(np.diag([1.0, value, 1.0]), tile=2) for value in (1.0, 3.0))
    >>> share_left(PackedSymmetric.from_dense(np.diag([1.0, 1.5, 1.0]), tile=3), Q, with_them)
    0.25
    """
    scale = 1.0 / np.sqrt(without.diagonal())
    along = length = 0.0
    for rows, columns, one, two, three in _same_parts(mine, without, with_them):
        weights = (scale[rows, None] * scale[columns]) ** 2
        step = three - two
        along += float((weights * step * (one - two)).sum())
        length += float((weights * step * step).sum())
    return along / length


def _same_parts(*stores: PackedSymmetric) -> Iterator[tuple[Any, ...]]:
    """Parts that cover the lower triangle: rows, columns, and the numbers of each store in float64."""
    n = stores[0].n
    cuts = sorted({n, *(start for packed in stores for start in range(0, n, packed.tile))})
    for start, stop in pairwise(cuts):  # which lie in one block of each
        whole = [
            packed.block(start // packed.tile)[start % packed.tile :, start % packed.tile :][:, : stop - start]
            for packed in stores
        ]
        step = max(1, _AT_ONCE // (stop - start))
        for top in range(0, n - start, step):
            parts = [np.asarray(part[top : top + step], np.float64) for part in whole]
            yield slice(start + top, start + top + len(parts[0])), slice(start, stop), *parts
