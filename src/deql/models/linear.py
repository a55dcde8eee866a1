"""The estimator behind the whole closed-form family: fit P once, then a rule of two vectors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np

from deql._system.checks import check_range
from deql._system.progress import stages
from deql.data import Interactions
from deql.errors import DataError, InaccurateInverseError, NotPositiveDefiniteError, ParameterError, Setting, name_some
from deql.io.model_file import ModelRecord
from deql.linalg.engines.engine import Engine, Problem
from deql.linalg.gram import SharedGram, check_solvable_without_ridge, user_weights, weighted_diagonal
from deql.linalg.planner.choose import ENGINES, as_engine, engine_from_config, solve
from deql.models.rule_model import RuleModel
from deql.ranking.quantised import QuantisedRows
from deql.rules import paper_l2

__all__ = ["LinearAutoencoder"]


@dataclass(eq=False, repr=False)
class LinearAutoencoder(RuleModel):
    """Base of the models whose weights are W = P·diag(gain) + diag(shift).

    Parameters
    ----------
    user_power : float, default 0
        Above 0, users with many items count for less: user u weighs |u|^(−γ) in the Gram matrix, with γ this.
    popularity_power : float, default 0
        Above 0, popular items are held back: column i of W is scaled by count_i^(−α), with α this.
    engine : {"auto", "memory", "disk", "torch"} or an object of :mod:`deql.engines`, default "auto"
        Where the inverse is computed: ``deql.engines.Disk(memory="4GiB")``, or a name if its own parameters may stay as
        they are by default. ``engine_`` says which one ran. See docs/engines.md.
    dtype : {"float32", "float64"}, default "float32"
        Type of the Gram matrix and its inverse.
    progress : bool, default False
        Show progress bars on standard error.

    Attributes
    ----------
    paper_l2_ : float
        The paper's λ that belongs to l2, at a = 1.
    """

    user_power: float = field(default=0.0, kw_only=True)
    popularity_power: float = field(default=0.0, kw_only=True)
    engine: str | Engine = field(default="auto", kw_only=True)
    dtype: str = field(default="float32", kw_only=True)
    progress: bool = field(default=False, kw_only=True)

    def __new__(cls, *_given: Any, **named: Any) -> Self:
        """Tell who gives a parameter of an engine to the model, as in version 0.1, where it goes."""
        for name, engine in _OF_ENGINES.items():
            if name in named and name not in cls.__dataclass_fields__:
                now = {"precision": "arithmetic"}.get(name, name)
                raise ParameterError(
                    f"{name} is the engine's: say engine=deql.engines.{engine}({now}={named[name]!r})", parameter=name
                )
        return super().__new__(cls)

    @property
    def paper_l2_(self) -> float:
        """The paper's λ that belongs to this l2, at a = 1 (b = 1 if a = 0)."""
        self._check_fitted()
        fitted = type(self)(**self.fitted_params_)
        return paper_l2(fitted._ridge, fitted._dropped, fitted._kept_weight)

    def _to_config(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return super()._to_config(params) | as_engine(params["engine"]).config

    @classmethod
    def _from_config(cls, config: dict[str, Any]) -> dict[str, Any]:
        # An arithmetic was called a precision in files of version 0.1.
        how = {
            "engine": config.pop("engine", "auto"),
            "arithmetic": config.pop("precision", config.pop("arithmetic", None)),
        }
        return config | {"engine": engine_from_config(how)}

    @classmethod
    def _from_record(cls, record: ModelRecord) -> Self:
        # An engine that is not known here, somebody's own or of a later version, has done its work: ``engine_`` still
        # tells its name.
        parameters = {**record.parameters}
        if parameters.get("engine", "auto") not in ENGINES:
            parameters["engine"] = "auto"
        return super()._from_record(dataclasses.replace(record, parameters=parameters))

    def _check_parameters(self) -> None:
        check_range("l2", getattr(self, "l2", 0.0), 0.0, np.inf)
        check_range("dropout", getattr(self, "dropout", 0.0), 0.0, 1.0, below=True)
        check_range("user_power", self.user_power, -np.inf, np.inf)
        check_range("popularity_power", self.popularity_power, -np.inf, np.inf)
        as_engine(self.engine).check(self.dtype)

    def fit_gram(self, data: Interactions, shared: SharedGram) -> Self:
        """Fit as :meth:`fit` does, with the Gram matrix of these data and this user_power already there.

        S is copied, so that it serves other values of l2 and dropout too. It is inverted where it is, in memory
        or on a device, whatever ``engine`` says.

        Parameters
        ----------
        data : Interactions
        shared : SharedGram
            In the type that ``dtype`` names.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np, deql
        >>> from deql.linalg.gram import SharedGram, gram
        >>> eaten = ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"]
        >>> data = deql.Interactions.from_pairs(list("aabbcccd"), eaten)
        >>> S = gram(data.matrix)
        >>> shared = SharedGram(0.0, S, S.diagonal())
        >>> models = [deql.EASE(l2).fit_gram(data, shared) for l2 in (1.0, 10.0)]
        >>> np.array_equal(models[0].gain_, deql.EASE(1.0).fit(data).gain_)
        True
        """
        of = (shared.user_power, shared.matrix.dtype, shared.matrix.n)
        if of != (self.user_power, np.dtype(self.dtype), data.n_items):
            raise ParameterError(
                f"the Gram matrix is of user_power {of[0]:g}, {of[1]} and {of[2]:,} items, "
                f"not {self.user_power:g}, {self.dtype} and {data.n_items:,}"
            )
        return self._fit(data, partial(self._learn, shared=shared))

    def _learn(self, data: Interactions, shared: SharedGram | None = None) -> None:
        weights = None
        if shared is None:
            of_users = user_weights(data.matrix, self.user_power)
            diagonal = weighted_diagonal(data.matrix, of_users)
            weights = of_users if self.user_power else None
        else:
            diagonal = shared.diagonal
        if not diagonal.max() / (1.0 - self._dropped) + self._ridge < np.finfo(self.dtype).max:
            largest = name_some(data.items[[int(diagonal.argmax())]])
            weighted = f" with user_power={self.user_power:g}" if self.user_power else ""
            raise DataError(f"the values of item {largest}{weighted}, or l2, are too large for {self.dtype}")
        if self._ridge == 0:
            check_solvable_without_ridge(data, diagonal, self._dropped)
        added = self._dropped / (1.0 - self._dropped) * diagonal + self._ridge
        with stages(self.progress) as stage:
            try:
                problem = Problem(data.matrix, added, weights, self.dtype)
                kept = None if shared is None else shared.matrix
                solved = solve(problem, self.engine, shared=kept, stage=stage)
            except (NotPositiveDefiniteError, InaccurateInverseError) as error:
                advice: tuple[Any, ...] = (f"; set l2 above {self._ridge:g}",)
                if self.dtype != "float64":
                    advice += (" or use ", Setting("dtype", "float64"))
                if isinstance(error, InaccurateInverseError):
                    raise InaccurateInverseError(*error.args, *advice) from None
                said = (
                    f"the Gram matrix cannot be inverted at item {name_some(data.items[error.indices])}: "
                    "it follows from the items before it"
                )
                raise NotPositiveDefiniteError((said, *advice), error.indices) from None
        self.precision_, self.residual_, self.gram_diagonal_ = solved.precision, solved.residual, diagonal
        self.engine_, self.on_device_ = solved.engine, solved.on_device
        self.quantized_rows_: QuantisedRows | None = None
        self._apply_rule()

    @property
    def _fit_key(self) -> Any:
        return self._ridge, self._dropped, self.user_power, self.dtype, as_engine(self.engine)


_OF_ENGINES = {"memory": "Disk", "folder": "Disk", "device": "Torch", "arithmetic": "Torch", "precision": "Torch"}
