"""Models that follow their data without a fit: interactions and items that come and go, users who are forgotten."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from datetime import date
from typing import Any, Self

from deql.data.changes import Batch
from deql.data.hashed_users import hashed_batch
from deql.data.interactions import InteractionsLike, as_interactions, is_frame
from deql.data.moments import moment
from deql.errors import ParameterError, name_some
from deql.io.model_file import record_checksum
from deql.models.aging import age_model
from deql.models.attached_data import attach_data
from deql.models.certificate import Certificate, Removed, certify
from deql.models.updatable import Updatable
from deql.models.update import plan_update, update_model
from deql.models.update_report import UpdatePlan, UpdateReport

__all__ = ["UpdateVerbs"]

_UPDATED = "be updated, but fitted anew"


class UpdateVerbs(Updatable):
    """Verbs of the models that can be updated."""

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

    def forget(self, users: Hashable | Iterable[Hashable], *, prior: Any = None) -> Certificate:
        """Forget users with everything that the model learned of them, and certify it.

        The model becomes what a fit on the data of the others gives, up to rounding; see :meth:`update`.

        Parameters
        ----------
        users : user id or iterable of user ids
        prior : Prior, optional
            The prior once more, where a loaded model has only what it made.

        Returns
        -------
        Certificate
            Checksums of the model before and after, what was removed, under hashes that name nobody, and how to verify
            it: ``certificate.save("forgotten.json")``, ``deql verify forgotten.json MODEL --data FILE``.

        Examples
        --------
        >>> import deql
        >>> data = deql.Interactions.from_pairs(list("aabbc"), ["tea", "jam", "tea", "oat", "jam"])
        >>> model = deql.EASE(l2=1.0).fit(data, keep_data=True)
        >>> certificate = model.forget("b")
        >>> certificate.interactions, certificate.after == model.checksum(), model.n_users_
        (2, True, 2)
        """
        batch = self._batch(None, None, users, ())
        if not batch.forget_users:
            raise ParameterError("name at least one user to forget", parameter="users")
        data, before = self.data_, self._as_record()  # whose checksum takes long: not before an update is refused
        removed = None if data is None else Removed.of(data, batch.forget_users)
        report = update_model(self, batch, prior=prior)
        assert removed is not None  # else the update was refused
        parameters = self._to_config(self.fitted_params_)
        checksums = record_checksum(before), self.checksum()
        return certify(type(self).__name__, parameters, removed, report, *checksums)

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
        self._whole(_UPDATED)
        return age_model(self, moment(until, "until"))

    def attach_data(self, data: InteractionsLike, hash_users: bool = False) -> Self:
        """Give the model the data that it was fitted on and did not keep, so that everything of them can be updated.

        Parameters
        ----------
        data : Interactions, sparse matrix or frame
            What the model was fitted on, cleaned in the same way; users and items may be in any order. Whether they
            are its data is checked: how many users there are and have each item, what their weights sum to, and that
            P is the inverse that belongs to them.
        hash_users : bool, default False
            Keep salted hashes of the ids of users in their place, as ``fit(..., keep_data="hashed")`` does. A model
            that keeps hashes goes on to do so.

        Returns
        -------
        self

        Examples
        --------
        >>> import deql
        >>> data = deql.Interactions.from_pairs(list("aabbc"), ["tea", "jam", "tea", "oat", "jam"])
        >>> model = deql.EASE(l2=1.0).fit(data)
        >>> model.attach_data(data).update(forget_users=["c"]).plan.changes.forgotten_users
        1
        """
        self._check_fitted()
        self._whole(_UPDATED)
        attach_data(self, data, hash_users)
        return self

    def _batch(
        self,
        added: InteractionsLike | None,
        removed: InteractionsLike | None,
        forget_users: Hashable | Iterable[Hashable],
        retire_items: Hashable | Iterable[Hashable],
    ) -> Batch:
        """The batch with users under the ids that ``data_`` has."""
        self._check_fitted()
        self._whole(_UPDATED)
        data = self.data_
        if (self.until_ is not None or (data is not None and data.times is not None)) and is_frame(added):
            added = as_interactions(added, time=True)  # type: ignore[arg-type]
        parts = [None if part is None else self._with_ids(part) for part in (added, removed)]
        batch = Batch(parts[0], parts[1], _ids(forget_users, "forget_users"), _ids(retire_items, "retire_items"))
        return batch if self.user_salt_ is None else hashed_batch(batch, self.user_salt_)


def _ids(given: Any, parameter: str) -> tuple[Hashable, ...]:
    """Ids as a tuple: one that is text is one id, not its letters."""
    if is_frame(given):
        raise ParameterError(f"{parameter} must be a list of ids, got a frame: give its column", parameter=parameter)
    listed = given.tolist() if hasattr(given, "tolist") else given  # as arrays of all libraries give plain values
    ids = (listed,) if isinstance(listed, str | bytes) or not isinstance(listed, Iterable) else tuple(listed)
    for one in ids:
        if not isinstance(one, Hashable):
            raise ParameterError(
                f"{parameter}: an id must be a single value, such as a number or text, got {name_some([one])}",
                parameter=parameter,
            )
    return ids
