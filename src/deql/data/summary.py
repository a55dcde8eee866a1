"""What kind of data is this? Counts, shapes and skew of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql.data.interactions import Interactions

__all__ = ["profile"]


def profile(data: Interactions) -> dict[str, Any]:
    """Numbers that describe a table, as plain values.

    Returns
    -------
    dict
        ``users``, ``items``, ``interactions``, ``density`` and ``item_user_ratio`` as in the paper's table
        of data sets; quartiles of ``items_per_user`` and ``users_per_item``; the ``top_share`` of
        interactions that go to the most popular tenth of the items; ``weights`` and ``times`` if there are any.

    Examples
    --------
    >>> facts = profile(Interactions.from_pairs(["ann", "ann", "bob"], ["tea", "jam", "tea"]))
    >>> facts["density"], facts["items_per_user"]["median"]
    (0.75, 1.5)
    """
    per_user = np.diff(data.matrix.indptr)
    per_item = np.bincount(data.matrix.indices, minlength=data.n_items)
    most = np.sort(per_item)[::-1][: max(1, round(0.1 * data.n_items))]
    facts: dict[str, Any] = {
        "users": data.n_users,
        "items": data.n_items,
        "interactions": data.n_interactions,
        "density": data.n_interactions / max(1, data.n_users * data.n_items),
        "item_user_ratio": data.n_items / max(1, data.n_users),
        "items_per_user": _spread(per_user),
        "users_per_item": _spread(per_item),
        "top_share": float(most.sum() / max(1, data.n_interactions)),
    }
    if (data.matrix.data != 1).any():
        facts["weights"] = _spread(data.matrix.data)
    if data.times is not None:
        facts["times"] = {"first": float(data.times.min()), "last": float(data.times.max())}
    return facts


def _spread(values: NDArray[Any]) -> dict[str, float]:
    low, quarter, median, three, high = np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).tolist()
    return {"min": low, "quarter": quarter, "median": median, "mean": float(values.mean()),
            "three_quarters": three, "max": high}  # fmt: skip
