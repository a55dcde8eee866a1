"""The estimator behind the whole closed-form family: fit P once, then a rule of two vectors."""

from __future__ import annotations

import dataclasses
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.checks import check_range
from deql._system.progress import ProgressCallback, stages
from deql._system.threads import run_slices
from deql.data import Interactions
from deql.errors import DataError, InaccurateInverseError, NotPositiveDefiniteError, ParameterError, Setting, name_some
from deql.io import model_file
from deql.io.model_file import ModelRecord
from deql.linalg.engines.engine import Engine, Problem
from deql.linalg.gram import SharedGram, check_solvable_without_ridge, user_weights, weighted_diagonal
from deql.linalg.packed import PackedSymmetric
from deql.linalg.planner.choose import ENGINES, as_engine, engine_from_config, solve
from deql.linalg.tiling import STRIP
from deql.models.base import Recommender
from deql.ranking.kernels import contributions, score_pairs
from deql.ranking.prior_term import prior_arrays
from deql.ranking.quantised import QuantisedRows
from deql.ranking.rank import rank
from deql.ranking.shortlist import user_bounds
from deql.rules import paper_l2, scale_columns

__all__ = ["LinearAutoencoder"]


@dataclass(eq=False, repr=False)
class LinearAutoencoder(Recommender):
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
    precision_ : PackedSymmetric
        P, the inverse of A = RᵀΛR + p/(1−p)·diag(D) + l2·I, in half of n² numbers.
    gain_, shift_ : ndarray of float64
        The weights: W = P·diag(gain_) + diag(shift_).
    gram_diagonal_ : ndarray of float64
        D, the diagonal of the Gram matrix RᵀΛR.
    paper_l2_ : float
        The paper's λ that belongs to l2, at a = 1.
    residual_ : float
        How far P·A was from the identity on random vectors.
    engine_ : str
        Name of the engine that ran.
    on_device_ : DevicePacked or None
        P once more, on the device that ranks; see :meth:`to`.
    quantized_rows_ : QuantisedRows or None
        P once more, by rows in 8 bits; see :meth:`quantize_rows`.
    """

    _rule_kinds: ClassVar[tuple[type[LinearAutoencoder], ...]] = ()
    """What :meth:`with_rule` can make of any model: DEQL, then RDLAE, as the family says, which is built on this."""

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

    @abstractmethod
    def _rule(self, precision_diagonal: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Gain and shift before the popularity power."""

    @property
    def _ridge(self) -> float:
        """What is added to the Gram matrix's diagonal: l2."""
        return float(getattr(self, "l2", 0.0))

    @property
    def _dropped(self) -> float:
        """The share of entries dropped; 0 for models without dropout."""
        return float(getattr(self, "dropout", 0.0))

    @property
    def _kept_weight(self) -> float:
        """The ratio b/a of the model's loss."""
        return 1.0

    @property
    def _zero_diagonal(self) -> bool:
        """Whether the diagonal of W is constrained to zero."""
        return False

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

    def _apply_rule(self) -> None:
        diagonal = self.precision_.diagonal()
        gain, shift = self._rule(diagonal)
        with np.errstate(over="ignore", invalid="ignore"):
            gain, shift = scale_columns(gain, shift, diagonal, self.item_counts_, self.popularity_power)
            # |P_ji| ≤ √(P_ii·P_jj), so that this bounds every weight, and gain itself, which is cast to the type of P.
            largest = np.abs(gain).max() * max(diagonal.max(), 1.0) + np.abs(shift).max()
        if not largest < np.finfo(self.dtype).max:
            culprit = "popularity_power" if self.popularity_power else "l2"
            raise ParameterError(
                f"{culprit}={getattr(self, culprit, 0.0):g} makes weights too large for {self.dtype}: "
                f"take one nearer {0 if self.popularity_power else 'to what the data have'}",
                parameter=culprit,
            )
        self.gain_, self.shift_ = gain, shift

    def with_rule(self, **changes: Any) -> LinearAutoencoder:
        """Another model on the same P, with other values of what the rule alone uses: O(n).

        Parameters
        ----------
        **changes
            ``b`` and ``zero_diagonal`` give a :class:`~deql.DEQL`, ``xi`` an :class:`~deql.RDLAE`,
            unless the model itself has that parameter; ``popularity_power`` goes with either. What
            is not named stays as it is, and so does all that P depends on.

        Returns
        -------
        A fitted model.

        Examples
        --------
        >>> import deql
        >>> eaten = ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"]
        >>> data = deql.Interactions.from_pairs(list("aabbcccd"), eaten)
        >>> model = deql.EDLAE(l2=1.0, dropout=0.3).fit(data)
        >>> other = model.with_rule(b=2.0)
        >>> type(other).__name__, other.precision_ is model.precision_
        ('DEQL', True)
        """
        self._check_fitted()
        kinds = (type(self), *self._rule_kinds)
        kind = next((kind for kind in kinds if set(changes) <= _rule_parameters(kind)), None)
        if kind is None:
            free = sorted({name for kind in kinds[:2] for name in _rule_parameters(kind)})
            raise ParameterError(
                f"with_rule cannot change {', '.join(sorted(changes))} at once: it takes {', '.join(free)}, or xi with "
                "popularity_power; l2, dropout and user_power need another fit"
            )
        fitted = type(self)(**self.fitted_params_)  # P belongs to these, whatever was set since
        params: dict[str, Any] = {
            "dropout": fitted._dropped,
            "b": fitted._kept_weight,
            "zero_diagonal": fitted._zero_diagonal,
        }
        params |= self.fitted_params_ | changes
        other = kind(**{field.name: params[field.name] for field in dataclasses.fields(kind)})
        other._check_parameters()
        other.share_fit(self)
        return other

    def share_fit(self, fitted: LinearAutoencoder) -> None:
        """Become fitted with the P of a model that agrees in all that P depends on: O(n)."""
        self.__dict__.update({name: getattr(fitted, name) for name in _FROM_FIT})
        self._apply_rule()
        self.fitted_params_ = self.get_params()

    def __getstate__(self) -> dict[str, Any]:
        """All but other copies of P: that on a device, which others may not have, and that of rows."""
        return self.__dict__ | {name: None for name in ("on_device_", "quantized_rows_") if name in self.__dict__}

    def to(self, device: str) -> Self:
        """Rank on a device from now on, or on the processor again: ``"cuda"``, ``"cuda:1"``, ``"cpu"``.

        P is copied there; lists and scores stay the same to the last bit. A model fitted by the torch engine
        is there already.

        Examples
        --------
        >>> import deql
        >>> model = deql.EASE(l2=1.0).fit(deql.Interactions.from_pairs(list("aab"), list("xyx")))
        >>> model.to("cpu").on_device_ is None
        True
        """
        self._check_fitted()
        if str(device) == "cpu":
            self.on_device_ = None
        else:
            from deql.linalg.engines.torch_packed import DevicePacked, open_device

            self.on_device_ = DevicePacked.from_host(self.precision_, open_device(device))
        return self

    def quantize_rows(self) -> Self:
        """Hold P once more by whole rows, in 8 bits: a few histories at a time are ranked many times faster.

        Takes about half the memory of P in float32 again, and a second or two for 40,000 items. Lists and scores
        stay the same to the last bit. Models made by :meth:`with_rule` share the rows.

        Examples
        --------
        >>> import deql
        >>> model = deql.EASE(l2=1.0).fit(deql.Interactions.from_pairs(list("aab"), list("xyx")))
        >>> model.quantize_rows().recommend([["y"]], k=1).ids.tolist()
        [['x']]
        """
        self._check_fitted()
        self.quantized_rows_ = QuantisedRows.fill(self.precision_)
        return self

    def save(self, path: str | os.PathLike[str], *, quantized_rows: bool = False) -> None:
        """Write the model to one file, which :func:`deql.load` reads.

        The file is written beside its final name and renamed, so a crash leaves the old one whole.

        Parameters
        ----------
        path : path
        quantized_rows : bool, default False
            Keep the rows of :meth:`quantize_rows` in the file, which is then half as large again: who loads it, or
            serves it, has them at once.
        """
        self._check_fitted()
        record = self._as_record()
        if quantized_rows:
            rows = self.quantized_rows_ or QuantisedRows.fill(self.precision_)
            # Bytes, which older versions read, too, and pass over.
            record.arrays.update(row_codes=rows.codes.view(np.uint8), row_steps=rows.steps)
        model_file.write(Path(path), record)

    def weights(self) -> NDArray[Any]:
        """W as a dense n × n array, for small n: scores are X @ W, column i predicts item i."""
        self._check_fitted()
        dense = self.precision_.to_dense()
        dense *= self.gain_.astype(dense.dtype)
        i = np.arange(len(dense))
        dense[i, i] = self.diagonal()
        return dense

    def diagonal(self) -> NDArray[np.float64]:
        """The diagonal of W."""
        self._check_fitted()
        return self.precision_.diagonal() * self.gain_ + self.shift_

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays, facts = super()._state()
        arrays |= {
            "precision": self.precision_.data,
            "gain": self.gain_,
            "shift": self.shift_,
            "gram_diagonal": self.gram_diagonal_,
        }
        return arrays, facts | {"tile": self.precision_.tile, "residual": self.residual_, "engine": self.engine_}

    def _restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        super()._restore(arrays, facts)
        n = len(self.items_)
        self.precision_ = PackedSymmetric(n, model_file.fact(facts, "tile", int), arrays["precision"])
        if self.precision_.dtype != self.dtype:
            raise ValueError(f"its P is of {self.precision_.dtype}, and its dtype {self.dtype}")
        diagonal = self.precision_.diagonal()
        if not (fine := np.isfinite(diagonal) & (diagonal > 0)).all():
            raise ValueError(f"the diagonal of its P is not positive at place {int(fine.argmin())}")
        self.gain_, self.shift_, self.gram_diagonal_ = (
            model_file.vector(arrays, name, n) for name in ("gain", "shift", "gram_diagonal")
        )
        if self.precision_.tile < len(self.items_) and self.precision_.tile % STRIP:
            raise ValueError(f"tiles of {self.precision_.tile}")
        self.residual_, self.engine_ = model_file.fact(facts, "residual", float), str(facts["engine"])
        self.on_device_ = self.quantized_rows_ = None
        if "row_codes" in arrays:
            codes, steps = arrays["row_codes"].view(np.int8), arrays["row_steps"]
            if steps.dtype != np.float32:
                raise ValueError(f"its quantised rows have steps of {steps.dtype}")
            self.quantized_rows_ = QuantisedRows(self.precision_, codes, steps)

    def _rank(
        self, matrix: csr_array, k: int, exclude_seen: bool, allowed: NDArray[np.bool_], report: ProgressCallback | None
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        return rank(
            self.precision_, self.gain_, self.shift_, matrix,
            k=k, exclude_seen=exclude_seen, allowed=allowed, on_device=self.on_device_,
            rows=self.quantized_rows_, report=report,
        )  # fmt: skip

    def _rank_group(
        self,
        models: Sequence[Recommender],
        matrix: csr_array,
        k: int,
        squares: NDArray[np.float64] | None,
        report: ProgressCallback | None,
    ) -> NDArray[np.int32]:
        gains, shifts = (np.stack([getattr(model, name) for model in models]) for name in ("gain_", "shift_"))
        # Models that share P share its copy on a device, whichever of them was sent there.
        devices = (getattr(model, "on_device_", None) for model in models)
        return rank(
            self.precision_, gains, shifts, matrix, k=k, squares=squares, exact=False,
            on_device=next((device for device in devices if device is not None), None), report=report,
        )[0]  # fmt: skip

    @property
    def _fit_key(self) -> Any:
        return self._ridge, self._dropped, self.user_power, self.dtype, as_engine(self.engine)

    @property
    def _shared_fit(self) -> object | None:
        return getattr(self, "precision_", None)

    def _pair_scores(self, matrix: csr_array, pairs: csr_array) -> NDArray[np.float64]:
        """The exact scores of the columns stored in ``pairs``, row by row."""
        packed, out = self.precision_, np.zeros(pairs.nnz)
        run_slices(
            score_pairs, user_bounds(matrix.shape[0]), *packed.stored(), self.gain_, self.shift_, *prior_arrays(None),
            matrix.indptr, matrix.indices, matrix.data.astype(packed.dtype, copy=False),
            pairs.indptr, pairs.indices, out,
        )  # fmt: skip
        return out

    def _contributions(
        self, columns: NDArray[np.int32], values: NDArray[np.floating], target: int
    ) -> tuple[NDArray[np.float64], float]:
        packed = self.precision_
        parts = np.zeros(len(columns))
        weights = values.astype(packed.dtype, copy=False)
        score = contributions(
            *packed.stored(), self.gain_, self.shift_, *prior_arrays(None), columns, weights, target, parts
        )
        return parts, score


_OF_ENGINES = {"memory": "Disk", "folder": "Disk", "device": "Torch", "arithmetic": "Torch", "precision": "Torch"}
_SHARED = [field.name for field in dataclasses.fields(LinearAutoencoder)]
_FROM_FIT = (
    "precision_",
    "gram_diagonal_",
    "residual_",
    "engine_",
    "on_device_",
    "quantized_rows_",
    "items_",
    "titles_",
    "item_counts_",
    "n_users_",
    "weighted_",
    "_kept",
)


def _rule_parameters(kind: type[LinearAutoencoder]) -> set[str]:
    """Hyper-parameters that P does not depend on."""
    names = {field.name for field in dataclasses.fields(kind)} - {"l2", "dropout"} - set(_SHARED)
    return names | {"popularity_power"}
