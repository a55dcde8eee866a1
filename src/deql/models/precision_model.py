"""Models that hold P: how they rank, explain, move to a device, and are saved."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.progress import ProgressCallback
from deql._system.threads import run_slices
from deql.io import model_file
from deql.linalg.packed import PackedSymmetric
from deql.linalg.tiling import STRIP
from deql.models.base import Recommender
from deql.models.fitted_prior import FittedPrior
from deql.ranking.kernels import contributions, score_pairs
from deql.ranking.prior_term import PriorTerm, prior_arrays
from deql.ranking.quantised import QuantisedRows
from deql.ranking.rank import rank
from deql.ranking.shortlist import user_bounds

if TYPE_CHECKING:
    from deql.linalg.engines.torch_packed import DevicePacked

__all__ = ["PrecisionModel"]


class PrecisionModel(Recommender):
    """Base of the models whose weights are W = P·diag(gain) + diag(shift), however P was come by.

    With a prior, + left·rightᵀ·diag(prior_scale): two thin factors more.

    Attributes
    ----------
    precision_ : PackedSymmetric
        P, the inverse of A = RᵀΛR + p/(1−p)·diag(D) + l2·I, in half of n² numbers.
    gain_, shift_ : ndarray of float64
        The weights: W = P·diag(gain_) + diag(shift_).
    prior_ : FittedPrior or None
        The thin factors ``left`` and ``right``, if there is a prior, and what rules need of it.
    prior_scale_ : ndarray of float64 or None
        What multiplies the columns of left·rightᵀ: W = P·diag(gain_) + diag(shift_) + left·rightᵀ·diag(prior_scale_).
    gram_diagonal_ : ndarray of float64
        D, the diagonal of the Gram matrix RᵀΛR.
    residual_ : float
        How far P·A was from the identity on random vectors.
    engine_ : str
        Name of the engine that ran.
    until_ : float or None
        With a half-life, the time at which an interaction counts in full: the latest of the data, or what :meth:`age`
        moved it to.
    on_device_ : DevicePacked or None
        P once more, on the device that ranks; see :meth:`to`.
    quantized_rows_ : QuantisedRows or None
        P once more, by rows in 8 bits; see :meth:`quantize_rows`.
    """

    dtype: str
    prior: Any
    half_life: float | str | None
    precision_: PackedSymmetric
    gain_: NDArray[np.float64]
    shift_: NDArray[np.float64]
    prior_: FittedPrior | None = None
    prior_scale_: NDArray[np.float64] | None = None
    gram_diagonal_: NDArray[np.float64]
    residual_: float
    engine_: str
    until_: float | None = None
    on_device_: DevicePacked | None
    quantized_rows_: QuantisedRows | None

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
        self.quantized_rows_ = QuantisedRows.fill(self.precision_, right=self._right_factor)
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
            rows = self.quantized_rows_
            if rows is None or not rows.hold(self._right_factor):
                rows = QuantisedRows.fill(self.precision_, right=self._right_factor)
            record.arrays.update(rows.arrays())
        model_file.write(Path(path), record)

    def weights(self) -> NDArray[Any]:
        """W as a dense n × n array, for small n: scores are X @ W, column i predicts item i."""
        self._check_fitted()
        dense = self.precision_.to_dense()
        dense *= self.gain_.astype(dense.dtype)
        if self.prior_ is not None and self.prior_scale_ is not None:
            dense += self.prior_.to_dense() * self.prior_scale_
        i = np.arange(len(dense))
        dense[i, i] = self.diagonal()
        return dense

    def diagonal(self) -> NDArray[np.float64]:
        """The diagonal of W."""
        self._check_fitted()
        own = self.precision_.diagonal() * self.gain_
        if self.prior_ is not None and self.prior_scale_ is not None:
            own += self.prior_scale_ * self.prior_.products
        return own + self.shift_

    def _as_record(self) -> model_file.ModelRecord:
        record = super()._as_record()
        name = record.name + model_file.WITH_HALF_LIFE * (self.until_ is not None)
        return replace(record, name=name + model_file.WITH_PRIOR * (self.prior_ is not None))

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays, facts = super()._state()
        arrays |= {
            "precision": self.precision_.data,
            "gain": self.gain_,
            "shift": self.shift_,
            "gram_diagonal": self.gram_diagonal_,
        }
        facts |= {"tile": self.precision_.tile, "residual": self.residual_, "engine": self.engine_}
        facts |= {} if self.until_ is None else {"until": self.until_}
        if self.prior_ is not None and self.prior_scale_ is not None:
            of_prior, told = self.prior_.state()
            arrays, facts = arrays | of_prior | {"prior_factor": self.prior_scale_}, facts | told
        return arrays, facts

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
        if self.half_life is not None:
            self.until_ = model_file.time_fact(facts, "until")
        self.on_device_ = self.quantized_rows_ = None
        if self.prior is not None:
            self.prior_ = FittedPrior.from_state(arrays, facts, n)
            self.prior_scale_ = model_file.vector(arrays, "prior_factor", n)
        elif "prior_left" in arrays:
            raise ValueError("it has factors of a prior, and no prior")
        if "row_codes" in arrays:
            self.quantized_rows_ = QuantisedRows.from_arrays(self.precision_, arrays, self._right_factor)

    def _rank(
        self, matrix: csr_array, k: int, exclude_seen: bool, allowed: NDArray[np.bool_], report: ProgressCallback | None
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        return rank(
            self.precision_, self.gain_, self.shift_, matrix,
            k=k, exclude_seen=exclude_seen, allowed=allowed, on_device=self.on_device_,
            rows=self.quantized_rows_, prior=self._prior_term(), report=report,
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
            on_device=next((device for device in devices if device is not None), None),
            prior=self._prior_term(models), report=report,
        )[0]  # fmt: skip

    @property
    def _right_factor(self) -> NDArray[np.float32] | None:
        """The right factor of a thin prior, which quantised rows hold once more."""
        return None if self.prior_ is None else self.prior_.right

    def _prior_term(self, models: Sequence[Any] = ()) -> PriorTerm | None:
        """What the prior adds to W; with a row of scales for each of the models, if any are given."""
        if self.prior_ is None or self.prior_scale_ is None:
            return None
        scale = np.stack([model.prior_scale_ for model in models]) if models else self.prior_scale_
        return PriorTerm(self.prior_.left, self.prior_.right, scale)

    @property
    def _shared_fit(self) -> tuple[object, ...] | None:
        if not hasattr(self, "precision_"):
            return None
        # Of a prior the factors: how their columns are scaled is each model's own.
        return self.precision_, *((None, None) if self.prior_ is None else (self.prior_.left, self.prior_.right))

    def _pair_scores(self, matrix: csr_array, pairs: csr_array) -> NDArray[np.float64]:
        """The exact scores of the columns stored in ``pairs``, row by row."""
        packed, out = self.precision_, np.zeros(pairs.nnz)
        run_slices(
            score_pairs, user_bounds(matrix.shape[0]), *packed.stored(), self.gain_, self.shift_,
            *prior_arrays(self._prior_term()),
            matrix.indptr, matrix.indices, matrix.data.astype(packed.dtype, copy=False),
            pairs.indptr, pairs.indices, out,
        )  # fmt: skip
        return out

    def _shared_features(self, source: int, target: int) -> tuple[str, ...]:
        features = None if self.prior_ is None else self.prior_.features
        return () if features is None or source == target else features.shared(source, target)

    def _contributions(
        self, columns: NDArray[np.int32], values: NDArray[np.floating], target: int
    ) -> tuple[NDArray[np.float64], float]:
        packed = self.precision_
        parts = np.zeros(len(columns))
        weights = values.astype(packed.dtype, copy=False)
        factors = prior_arrays(self._prior_term())
        score = contributions(*packed.stored(), self.gain_, self.shift_, *factors, columns, weights, target, parts)
        return parts, score
