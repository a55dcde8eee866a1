"""The estimator behind the whole closed-form family: fit P once, P·W₀ for a prior, then a rule of two vectors."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.checks import check_range
from deql._system.describe import short_repr
from deql._system.progress import Stage, stages
from deql._system.tables import counted
from deql.data import Interactions
from deql.data.interactions import InteractionsLike
from deql.data.partitions import Data, PartitionedInteractions, TrainingData
from deql.data.recency import faded, latest_time, parse_half_life
from deql.errors import DataError, InaccurateInverseError, NotPositiveDefiniteError, ParameterError, Setting, name_some
from deql.io.model_file import ModelRecord
from deql.linalg.engines.engine import Engine, Problem, Solved
from deql.linalg.engines.neighbours import WHOLE_PRIOR
from deql.linalg.engines.resources import ProblemSize
from deql.linalg.engines.stored_rows import StoredRows
from deql.linalg.engines.torch_engine import Torch
from deql.linalg.gram import SharedGram, check_solvable_without_ridge, user_weights, weighted_diagonal
from deql.linalg.planner.choose import ENGINE_KEYS, ENGINES, as_engine, choose_engine, engine_from_config, solve
from deql.models.fitted_prior import FittedPrior, product_bytes
from deql.models.new_items import add_new_items
from deql.models.pruning import prune_model
from deql.models.sparse_prior import SparsePrior
from deql.models.update_verbs import UpdateVerbs
from deql.priors.matrix import Matrix, as_prior, is_matrix
from deql.priors.prior import Prior, PriorWeights
from deql.priors.saved import prior_from_config
from deql.ranking.quantised import QuantisedRows
from deql.rules import paper_l2
from deql.split.held_out import HeldOut

__all__ = ["LinearAutoencoder"]


@dataclass(eq=False, repr=False)
class LinearAutoencoder(UpdateVerbs):
    """Base of the models whose weights are W = P·diag(gain) + diag(shift), + left·rightᵀ·diag(scale) with a prior.

    Parameters
    ----------
    user_power : float, default 0
        Above 0, users with many items count for less: user u weighs |u|^(−γ) in the Gram matrix, with γ this.
    popularity_power : float, default 0
        Above 0, popular items are held back: column i of W is scaled by count_i^(−α), with α this.
    half_life : float or str, optional
        Interactions fade: one that is so much older than the latest counts half, for data with times. A number in their
        unit, or text such as ``"30d"`` (s, min, h, d, w) where they are in seconds, as those of files are.
    prior : object of :mod:`deql.priors`, n × n array or sparse matrix, or pair (U, V), optional
        Weights W₀ that the ridge pulls towards, instead of towards zero: ``deql.priors.LowPass(512)``. An array has
        rows and columns in the order of the data's items; a pair stands for U·Vᵀ.
    prior_weight : float, default 1
        The share of l2 that pulls towards the prior: 0 is a model without one, at 1 all of the ridge does, and more is
        allowed. It can be changed later, see :meth:`with_rule`.
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
    half_life: float | str | None = field(default=None, kw_only=True)
    prior: Prior | NDArray[Any] | Any = field(default=None, kw_only=True)
    prior_weight: float = field(default=1.0, kw_only=True)
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

    def __repr__(self) -> str:
        return short_repr(dataclasses.replace(self, prior=Matrix(self.prior)) if is_matrix(self.prior) else self)

    @property
    def paper_l2_(self) -> float:
        """The paper's λ that belongs to this l2, at a = 1 (b = 1 if a = 0)."""
        self._check_fitted()
        fitted = type(self)(**self.fitted_params_)
        return paper_l2(fitted._ridge, fitted._dropped, fitted._kept_weight)

    def _to_config(self, params: Mapping[str, Any]) -> dict[str, Any]:
        config = super()._to_config(params) | as_engine(params["engine"]).config
        prior = as_prior(config.pop("prior", None))
        if prior is None:  # as in files of versions that knew no priors
            config.pop("prior_weight", None)
            return config
        return config | {"prior": prior.config}

    @classmethod
    def _from_config(cls, config: dict[str, Any]) -> dict[str, Any]:
        if "precision" in config:  # what an arithmetic was called in files of version 0.1
            config["arithmetic"] = config.pop("precision")
        how: dict[str, Any] = {name: config.pop(name) for name in ("engine", "arithmetic", "k") if name in config}
        prior = {"prior": prior_from_config(config.pop("prior"))} if "prior" in config else {}
        return config | prior | {"engine": engine_from_config(how)}

    @classmethod
    def _from_record(cls, record: ModelRecord) -> Self:
        # An engine that is not known here, somebody's own or of a later version, has done its work: ``engine_`` still
        # tells its name.
        parameters = record.parameters
        if parameters.get("engine", "auto") not in ENGINES:
            parameters = {name: value for name, value in parameters.items() if name not in ENGINE_KEYS}
        return super()._from_record(dataclasses.replace(record, parameters=parameters))

    def _check_parameters(self) -> None:
        check_range("l2", getattr(self, "l2", 0.0), 0.0, np.inf)
        check_range("dropout", getattr(self, "dropout", 0.0), 0.0, 1.0, below=True)
        check_range("user_power", self.user_power, -np.inf, np.inf)
        check_range("popularity_power", self.popularity_power, -np.inf, np.inf)
        if self.half_life is not None:
            parse_half_life(self.half_life)
        check_range("prior_weight", self.prior_weight, 0.0, np.inf)
        prior = as_prior(self.prior)
        if prior is not None and self._ridge == 0:
            raise ParameterError(
                "a prior takes its share of l2, which is 0: set l2 above 0, or leave the prior out", parameter="l2"
            )
        engine = as_engine(self.engine)
        engine.check(self.dtype)
        if prior is not None and prior.is_whole and not engine.exact:
            raise ParameterError(WHOLE_PRIOR, parameter="prior")

    def fit_gram(self, data: Interactions, shared: SharedGram) -> Self:
        """Fit as :meth:`fit` does, with the Gram matrix of these data, this user_power and half_life already there.

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
        of = (shared.user_power, shared.matrix.dtype, shared.matrix.n, shared.half_life)
        if of != (self.user_power, np.dtype(self.dtype), data.n_items, self._half_life):
            raise ParameterError(
                f"the Gram matrix is of user_power {of[0]:g}, {of[1]}, {of[2]:,} items and half_life {of[3]}, "
                f"not {self.user_power:g}, {self.dtype}, {data.n_items:,} and {self._half_life}"
            )
        return self._fit(self._catalogue(data), partial(self._learn, known=data.n_items, shared=shared))

    def _training_data(self, data: InteractionsLike) -> TrainingData:
        if not isinstance(data, PartitionedInteractions):
            return super()._training_data(data)
        if self.half_life is not None:
            raise ParameterError(
                "half_life needs times, which partitions have none of: leave it out, or fit on what "
                "deql.read_interactions reads with them",
                parameter="half_life",
            )
        return data

    def _catalogue(self, data: Data) -> Data:
        prior = as_prior(self.prior)
        if prior is None:
            return data
        whole = prior.with_items(data)
        if whole.n_items > data.n_items and not as_engine(self.engine).exact:
            # A column of features alone has an entry for every item.
            more = counted(whole.n_items - data.n_items, "item that nobody has is", "items that nobody has are")
            print(f"deql: {more} left out, as the {as_engine(self.engine).name} engine places none", file=sys.stderr)
            return data
        return whole

    def fit_beside(self, data: Interactions, fitted: LinearAutoencoder) -> Self:
        """Fit as :meth:`fit` does, with the P of a model of the same ``_fit_key`` that was fitted on these data.

        That model's prior, if it has one, may have added no items: then P is solved for anew. So is it for a prior
        where P is sparse, as its images belong to one prior.

        Examples
        --------
        >>> import deql
        >>> from deql.priors import LowPass
        >>> data = deql.Interactions.from_pairs(list("aabbc"), list("xyxzz"))
        >>> plain = deql.EASE(l2=1.0).fit(data)
        >>> deql.LAE(l2=1.0, prior=LowPass(2)).fit_beside(data, plain).precision_ is plain.precision_
        True
        """
        if fitted.precision_.n != data.n_items or (self.prior is not None and not fitted.precision_.whole):
            return self.fit(data)
        return self._fit(self._catalogue(data), partial(self._learn, known=data.n_items, fitted=fitted))

    def _learn(
        self,
        data: TrainingData,
        known: int | None = None,
        shared: SharedGram | None = None,
        fitted: LinearAutoencoder | None = None,
        until: float | None = None,
    ) -> None:
        """Learn with what is there already; ``until`` is when an interaction counts in full, if not at the latest."""
        if self.half_life is not None:
            assert isinstance(data, Interactions)
            if until is None:
                until = latest_time(data) if fitted is None else fitted.until_
            assert until is not None
            self.until_ = until
            data = faded(data, self.half_life, self.until_)
        prior, towards = as_prior(self.prior), None
        n, known = data.n_items, known or data.n_items
        with stages(self.progress) as stage:
            if fitted is None and shared is None:  # what is wrong is told before the long work
                as_engine(self.engine).check_reachable(known, self.dtype)
            if prior is not None:
                device = self._device(data, shared, fitted)
                towards = prior.weights(data, device=device, report=stage("Prior"))
            if fitted is None:
                # P is copied as it grows, before the product is made.
                larger = ProblemSize(n, self.dtype).packed if known < n else 0
                beside = larger if towards is None else max(larger, product_bytes(towards))
                solved, self.gram_diagonal_ = self._solve(data, known, beside, shared, stage, towards)
            else:
                solved = Solved(fitted.precision_, fitted.residual_, fitted.engine_, fitted.on_device_)
                self.gram_diagonal_ = fitted.gram_diagonal_
            self.precision_, self.residual_ = solved.precision, solved.residual
            self.engine_, self.on_device_ = solved.engine, solved.on_device
            self.quantized_rows_: QuantisedRows | None = None
            del solved  # and with it the smaller P, once there is a larger one
            if known < n:
                self._grow(n - known)
            if towards is not None and self.precision_.whole:
                self.prior_ = FittedPrior.of(towards, self.precision_, self.on_device_, stage("P·prior"))
            elif towards is not None:
                self.prior_ = SparsePrior.of(towards, self.precision_)
        self._apply_rule()

    def _device(self, data: TrainingData, shared: SharedGram | None, fitted: LinearAutoencoder | None) -> str | None:
        """The device that P is computed on, or has been, as far as that can be told before; None for the processor."""
        if fitted is not None:
            return None if fitted.on_device_ is None else str(fitted.on_device_.device)
        if shared is not None:
            device = str(getattr(shared.matrix, "device", "cpu"))
        else:
            engine = choose_engine(data, engine=self.engine, dtype=self.dtype)
            device = (engine.device or "cuda") if isinstance(engine, Torch) else "cpu"
        return None if device == "cpu" else device

    def _solve(
        self,
        data: TrainingData,
        known: int,
        beside: int,
        shared: SharedGram | None,
        stage: Stage,
        prior: PriorWeights | None,
    ) -> tuple[Solved, NDArray[np.float64]]:
        """P and D of the first items; there is nothing to solve for the last ones, which only a prior knows."""
        rows: csr_array | StoredRows
        if isinstance(data, PartitionedInteractions):
            rows = StoredRows(data, self.user_power)
        else:
            rows = data.matrix if known == data.n_items else _narrowed(data.matrix, known)
        diagonal, weights = self._diagonal(data, known) if shared is None else (shared.diagonal, None)
        if not diagonal.max() / (1.0 - self._dropped) + self._ridge < np.finfo(self.dtype).max:
            largest = name_some(data.items[[int(diagonal.argmax())]])
            weighted = f" with user_power={self.user_power:g}" if self.user_power else ""
            raise DataError(f"the values of item {largest}{weighted}, or l2, are too large for {self.dtype}")
        if self._ridge == 0:
            check_solvable_without_ridge(data, diagonal, self._dropped)
        added = self._dropped / (1.0 - self._dropped) * diagonal + self._ridge
        try:
            towards = None if as_engine(self.engine).exact else prior
            problem = Problem(rows, added, weights, self.dtype, beside, towards)
            kept = None if shared is None else shared.matrix
            return solve(problem, self.engine, shared=kept, stage=stage), diagonal
        except (NotPositiveDefiniteError, InaccurateInverseError) as error:
            advice: tuple[Any, ...] = (f"; set l2 above {self._ridge:g}",)
            if self.dtype != "float64":
                advice += (" or use ", Setting("dtype", "float64"))
            if isinstance(error, InaccurateInverseError):
                raise InaccurateInverseError(*error.args, *advice) from None
            named = name_some(data.items[error.indices])
            said = f"the Gram matrix cannot be inverted at item {named}: it follows from the items before it"
            if not as_engine(self.engine).exact:
                said = f"the Gram matrix cannot be inverted around item {named}: items there follow from each other"
            raise NotPositiveDefiniteError((said, *advice), error.indices) from None

    def _diagonal(self, data: TrainingData, known: int) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """D of the first items, and the weights of all users, None for 1 each."""
        if isinstance(data, PartitionedInteractions) and not data.weighted and not self.user_power:
            return data.item_counts[:known].astype(np.float64), None  # no part needs to be read
        diagonal, of_users = np.zeros(known), []
        for block in data.blocks():
            of_users.append(user_weights(block, self.user_power))
            diagonal += weighted_diagonal(_narrowed(block, known), of_users[-1])
        return diagonal, np.concatenate(of_users) if self.user_power else None

    def add_items(self, features: Any, item: str | None = None) -> Self:
        """Add items that came after the fit, by their features: no refit, and nothing of the other items changes.

        For models fitted with :class:`deql.priors.ItemFeatures`. The new items get the weights that they would have if
        its table had had them. They are recommended, count as evidence, and are saved with the model. Quantised rows
        and a copy of P on a device are made anew. Another :meth:`fit` knows only the items of its own table.

        Parameters
        ----------
        features : path, frame or mapping
            As :class:`~deql.priors.ItemFeatures` takes them, with the same columns: a mapping has, for each new item,
            features by name, or a row of numbers where the model was fitted with a matrix. What categories and tags
            mean stays as it was learned: those that no item had are counted, told and left out.
        item : str, optional
            The column of item ids; found by common names if not given.

        Returns
        -------
        self

        Examples
        --------
        >>> import deql
        >>> from deql.priors import ItemFeatures
        >>> data = deql.Interactions.from_pairs(list("aabbc"), ["tea", "jam", "tea", "ale", "jam"])
        >>> kinds = {"tea": {"kind": "drink"}, "jam": {"kind": "food"}, "ale": {"kind": "drink"}}
        >>> model = deql.EASE(l2=1.0, prior=ItemFeatures(kinds)).fit(data)
        >>> model.add_items({"rum": {"kind": "drink"}}).recommend([["rum"]], k=2).ids.tolist()
        [['ale', 'tea']]
        """
        add_new_items(self, features, item)
        return self

    def prune(self, per_item: int, target: HeldOut | InteractionsLike | None = None) -> Self:
        """A smaller model of the same kind: in each column of W the diagonal and the largest weights, and no others.

        Everything but W is as it was, and this model stays as it is. The smaller one ranks as fast as its weights are
        few, but holds some entries of P alone: it cannot be updated. What that costs in accuracy is said on standard
        error, and kept as ``pruned_`` of the smaller model, though not in its file.

        Parameters
        ----------
        per_item : int
            How many weights of each column are kept beside the diagonal, those of the largest size.
        target : HeldOut, Interactions, sparse matrix or frame, optional
            Users to measure both models on: ``split.test``, or a table of users whom the model has not met, of which a
            fifth of each one's items is held out. If it is not given, users of the data that the model kept, on which
            it does too well; and if there are none, the share of the weights' squares that is kept is all that is said.

        Returns
        -------
        A fitted model.

        Examples
        --------
        >>> import deql
        >>> split = deql.split_strong(deql.datasets.debian())
        >>> model = deql.EASE(l2=10.0).fit(split.train)
        >>> facts = model.prune(per_item=200, target=split.test).pruned_
        >>> facts.weights == 201 * len(model.items_), facts.before["ndcg@20"] - facts.after["ndcg@20"] < 0.02
        (True, True)
        """
        return prune_model(self, per_item, target)

    @property
    def _half_life(self) -> float | None:
        """The half-life in the unit of the times."""
        return None if self.half_life is None else parse_half_life(self.half_life)

    @property
    def _needs_times(self) -> bool:
        return self.half_life is not None

    @property
    def _fit_key(self) -> Any:
        return self._ridge, self._dropped, self.user_power, self._half_life, self.dtype, as_engine(self.engine)

    @property
    def _prior_key(self) -> Any:
        return self.prior if isinstance(self.prior, Prior) or self.prior is None else id(self.prior)


def _narrowed(matrix: csr_array, n: int) -> csr_array:
    """The first n columns, of which no others have entries."""
    return csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], n))


_OF_ENGINES = {"memory": "Disk", "folder": "Disk", "device": "Torch", "arithmetic": "Torch", "precision": "Torch"}
