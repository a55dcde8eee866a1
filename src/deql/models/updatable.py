"""Models that follow their data without a fit: interactions and items that come and go, users who are forgotten."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from datetime import date
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from deql.data import Interactions, as_interactions
from deql.data.changes import Batch
from deql.data.interactions import InteractionsLike, is_frame
from deql.data.moments import moment
from deql.data.recency import faded
from deql.linalg.gram import user_weights, weighted_diagonal
from deql.models.aging import age_model
from deql.models.rule_model import RuleModel
from deql.models.update import plan_update, update_model
from deql.models.update_report import UpdatePlan, UpdateReport, UpdateState

__all__ = ["Updatable"]


class Updatable(RuleModel):
    """Base of the models that can be updated.

    Attributes
    ----------
    updated_ : UpdateState or None
        How often the model was updated since its fit, and when last; None if never.
    """

    updated_: UpdateState | None = None
    user_power: float

    def update(
        self,
        added: InteractionsLike | None = None,
        removed: InteractionsLike | None = None,
        *,
        forget_users: Iterable[Hashable] = (),
        retire_items: Iterable[Hashable] = (),
        new_users: bool = False,
        method: str = "auto",
        prior: Any = None,
    ) -> UpdateReport:
        """Follow changes of the data without a fit: the model becomes what a fit on the changed data gives.

        The changed rows of R touch few items, so that A changes by few columns and P with it (Woodbury's identity).
        Where a fit is faster, one is done. Whatever goes wrong, the model stays as it was.

        Parameters
        ----------
        added : Interactions, sparse matrix or frame, optional
            Interactions that come: of users and items that are known or new. One that is there adds up as in
            :func:`deql.join`. New items become the last columns.
        removed : likewise, optional
            Interactions that go, whatever they weigh. They go before others come, so that one in both is replaced.
        forget_users : iterable of user ids, optional
            Users who go with everything; see :meth:`forget` for a certificate.
        retire_items : iterable of item ids, optional
            Items that go with everything.
        new_users : bool, default False
            That all users of ``added`` are new, where the model does not have its data and cannot tell.
        method : {"auto", "low rank", "refit"}, default "auto"
            The way: whichever is predicted to be faster, unless it is said.
        prior : Prior, optional
            The prior once more, where a loaded model has only what it made.

        Returns
        -------
        UpdateReport

        Examples
        --------
        >>> import deql
        >>> data = deql.Interactions.from_pairs(list("aabbc"), ["tea", "jam", "tea", "oat", "jam"])
        >>> model = deql.EASE(l2=1.0).fit(data, keep_data=True)
        >>> report = model.update(deql.Interactions.from_pairs(["c", "d"], ["tea", "egg"]))
        >>> report.plan.changes.new_users, model.items_.tolist()
        (1, ['jam', 'oat', 'tea', 'egg'])
        """
        batch = self._batch(added, removed, forget_users, retire_items)
        return update_model(self, batch, new_users=new_users, method=method, prior=prior)

    def plan_update(
        self,
        added: InteractionsLike | None = None,
        removed: InteractionsLike | None = None,
        *,
        forget_users: Iterable[Hashable] = (),
        retire_items: Iterable[Hashable] = (),
        new_users: bool = False,
        method: str = "auto",
        prior: Any = None,
    ) -> UpdatePlan:
        """What :meth:`update` would do with the same arguments, and how long that would take, without doing it.

        Examples
        --------
        >>> import deql
        >>> data = deql.Interactions.from_pairs(list("aabbc"), ["tea", "jam", "tea", "oat", "jam"])
        >>> model = deql.EASE(l2=1.0).fit(data, keep_data=True)
        >>> model.plan_update(forget_users=["c"]).touched
        1
        """
        batch = self._batch(added, removed, forget_users, retire_items)
        return plan_update(self, batch, new_users=new_users, method=method, prior=prior)[1]

    def age(self, until: float | str | date) -> UpdateReport:
        """Move on the moment at which an interaction counts in full: the model becomes what a fit at that moment gives.

        For models with a half-life. Updates alone leave ``until_`` where the fit put it, so that what comes later
        counts more than in full. All fades alike, so that P is computed anew: from the data if they were kept, else
        from P itself, as A' = f²·(A − l2·I) + l2·I. Whatever goes wrong, the model stays as it was.

        Parameters
        ----------
        until : float, str or date
            A time as the data have it; or a date such as ``"2015-03-04"`` or ``"2015-03-04 17:30"``, in UTC, where
            these are seconds since 1970. It may be before ``until_``, too.

        Returns
        -------
        UpdateReport

        Examples
        --------
        >>> from dataclasses import replace
        >>> import numpy as np, deql
        >>> data = deql.Interactions.from_pairs(list("aabbc"), ["tea", "jam", "tea", "oat", "jam"])
        >>> data = replace(data, times=np.array([3.0, 1.0, 2.0, 2.0, 5.0]))
        >>> model = deql.EASE(l2=1.0, half_life=2).fit(data, keep_data=True)
        >>> report = model.age(until=9)
        >>> report.method, model.until_
        ('refit', 9.0)
        """
        self._check_fitted()
        return age_model(self, moment(until, "until"))

    def _batch(
        self,
        added: InteractionsLike | None,
        removed: InteractionsLike | None,
        forget_users: Iterable[Hashable],
        retire_items: Iterable[Hashable],
    ) -> Batch:
        self._check_fitted()
        if self._needs_times and is_frame(added):
            added = as_interactions(added, time=True)  # type: ignore[arg-type]
        parts = [None if part is None else self._with_ids(part) for part in (added, removed)]
        return Batch(parts[0], parts[1], _ids(forget_users), _ids(retire_items))

    def _updatable_words(self) -> str:
        """What the model can do without its data, and how to make it updatable."""
        return (
            "it does not have its data, so that it can only add users who are new (new_users=True); fit it with "
            "keep_data=True"
        )

    def _as_learned(self, data: Interactions) -> Interactions:
        """Rows as the Gram matrix sums them up."""
        half_life = self.fitted_params_["half_life"]
        if half_life is None or self.until_ is None or not data.n_interactions:
            return data
        return faded(data, half_life, self.until_)

    def _diagonal_of(self, data: Interactions) -> NDArray[np.float64]:
        """D of all data."""
        rows = self._as_learned(data).matrix
        return weighted_diagonal(rows, user_weights(rows, self.fitted_params_["user_power"]))

    def _gram_product(self, data: Interactions) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
        """A·x from the data."""
        rows = self._as_learned(data).matrix.astype(np.float64)
        weights = user_weights(rows, self.fitted_params_["user_power"])
        fitted = type(self)(**self.fitted_params_)
        added = fitted._dropped / (1.0 - fitted._dropped) * self.gram_diagonal_ + fitted._ridge

        def product(x: NDArray[np.float64]) -> NDArray[np.float64]:
            image = rows.T @ (weights[:, None] * (rows @ x))
            return np.asarray(image + added[:, None] * x)

        return product

    @property
    def _fitted_ridge(self) -> float:
        return type(self)(**self.fitted_params_)._ridge

    def _can_refit(self, prior: Any) -> bool:
        """Whether there is all that a fit needs but the data."""
        return True

    def _fit_on(self, data: Interactions, like: Updatable) -> None:
        """Fit as the other model was, at its moment, on these data, whose columns are all items."""
        learn: Any = self._learn
        self._fit(data, partial(learn, until=like.until_))

    def _copy_fitted(self) -> Self:
        """Another model on the same P."""
        other = type(self)(**self.fitted_params_)
        other.share_fit(self, self.prior_)
        return other

    def _move_copies(self, before: Updatable) -> None:
        """Copies of P by rows and on a device, where the model had them."""
        self.quantized_rows_ = self.on_device_ = None
        if before.on_device_ is not None:
            self.to(str(before.on_device_.device))
        if before.quantized_rows_ is not None:
            self.quantize_rows()

    def _become(self, other: Updatable) -> None:
        """Take over all that a fit left of another model of this kind."""
        for cached in ("_item_index", "_title_index"):
            self.__dict__.pop(cached, None)
        keep = {"fitted_params_"}
        self.__dict__.update({
            name: value
            for name, value in other.__dict__.items()
            if name == "_kept" or (name.endswith("_") and name not in keep)
        })  # fmt: skip

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays, facts = super()._state()
        return arrays, facts | ({} if self.updated_ is None else self.updated_.to_facts())

    def _restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        super()._restore(arrays, facts)
        self.updated_ = UpdateState.from_facts(facts)


def _ids(given: Iterable[Hashable]) -> tuple[Hashable, ...]:
    """Ids as a tuple: one that is text is one id, not its letters."""
    return (given,) if isinstance(given, str | bytes) or not isinstance(given, Iterable) else tuple(given)
