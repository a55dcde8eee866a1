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
from deql.errors import ParameterError
from deql.io import model_file
from deql.linalg.packed import PackedSymmetric
from deql.linalg.sparse_precision import SparsePrecision
from deql.models.base import Recommender
from deql.models.fitted_prior import FittedPrior
from deql.models.packed_weights import PackedWeights
from deql.models.sparse_prior import SparsePrior
from deql.models.sparse_weights import SparseWeights
from deql.models.stored_precision import precision_from_state, precision_state
from deql.ranking.prior_term import PriorTerm
from deql.ranking.quantised import QuantisedRows

if TYPE_CHECKING:
    from deql.linalg.engines.torch_packed import DevicePacked

__all__ = ["PrecisionModel"]


class PrecisionModel(Recommender):
    """Base of the models whose weights are W = P·diag(gain) + diag(shift), however P was come by.

    With a prior, + left·rightᵀ·diag(prior_scale): two thin factors more.

    Attributes
    ----------
    precision_ : PackedSymmetric or SparsePrecision
        P, the inverse of A = RᵀΛR + p/(1−p)·diag(D) + l2·I, in half of n² numbers; or some of its entries.
    gain_, shift_ : ndarray of float64
        The weights: W = P·diag(gain_) + diag(shift_).
    prior_ : FittedPrior, SparsePrior or None
        The thin factors ``left`` and ``right``, if there is a prior, and what rules need of it. Of a sparse P its
        product with the prior is in the same places.
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
    precision_: Any  # what needs a whole P asks for it: see _whole
    gain_: NDArray[np.float64]
    shift_: NDArray[np.float64]
    prior_: Any = None
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
            whole = self._whole("be ranked on a device")
            from deql.linalg.engines.torch_packed import DevicePacked, open_device

            self.on_device_ = DevicePacked.from_host(whole, open_device(device))
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
        self.quantized_rows_ = QuantisedRows.fill(self._whole("hold quantised rows"), right=self._right_factor)
        return self

    def save(
        self, path: str | os.PathLike[str], *, quantized_rows: bool = False, shards: bool | int | str = False
    ) -> None:
        """Write the model to one file, or to a folder of several, which :func:`deql.load` reads.

        The file is written beside its final name and renamed, so a crash leaves the old one whole.

        Parameters
        ----------
        path : path
        quantized_rows : bool, default False
            Keep the rows of :meth:`quantize_rows` in the file, which is then half as large again: who loads it, or
            serves it, has them at once.
        shards : bool, int or str, default False
            Write a folder with P in several files, of about 1 GiB or of as many bytes as are said ("256MiB"). Files
            that workers of a cluster wrote are linked into it, and not written again.

        Examples
        --------
        >>> import os, tempfile, deql
        >>> model = deql.EASE(l2=1.0).fit(deql.Interactions.from_pairs(list("aab"), list("xyx")))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "letters.deql")
        ...     model.save(path, shards=True)
        ...     print(os.path.isdir(path), deql.load(path).checksum() == model.checksum())
        True True
        """
        self._check_fitted()
        record = self._as_record()
        if quantized_rows:
            rows = self.quantized_rows_
            if rows is None or not rows.hold(self._right_factor):
                rows = QuantisedRows.fill(self._whole("hold quantised rows"), right=self._right_factor)
            record.arrays.update(rows.arrays())
        model_file.write(Path(path), record, shards)

    def weights(self) -> NDArray[Any]:
        """W as a dense n × n array, for small n: scores are X @ W, column i predicts item i."""
        self._check_fitted()
        dense: NDArray[Any] = self.precision_.to_dense()
        dense *= self.gain_.astype(dense.dtype)
        if self.prior_ is not None and self.prior_scale_ is not None:
            dense += self.prior_.to_dense() * self.prior_scale_
        i = np.arange(len(dense))
        dense[i, i] = self.diagonal()
        return dense

    def diagonal(self) -> NDArray[np.float64]:
        """The diagonal of W."""
        self._check_fitted()
        own: NDArray[np.float64] = self.precision_.diagonal() * self.gain_
        if self.prior_ is not None and self.prior_scale_ is not None:
            own += self.prior_scale_ * self.prior_.products
        return own + self.shift_

    def _whole(self, what: str) -> PackedSymmetric:
        """P, for what needs all of it; ParameterError where there are some entries alone."""
        if isinstance(self.precision_, PackedSymmetric):
            return self.precision_
        raise ParameterError(
            f"this {type(self).__name__} holds some entries of P alone, and cannot {what}: that needs a model fitted "
            "with an exact engine, and not pruned"
        )

    def _as_record(self) -> model_file.ModelRecord:
        record = super()._as_record()
        name = record.name + model_file.WITH_SPARSE_P * (not self.precision_.whole)
        name += model_file.WITH_HALF_LIFE * (self.until_ is not None)
        return replace(record, name=name + model_file.WITH_PRIOR * (self.prior_ is not None))

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays, facts = super()._state()
        of_precision, told = precision_state(self.precision_)
        arrays |= of_precision
        arrays |= {"gain": self.gain_, "shift": self.shift_, "gram_diagonal": self.gram_diagonal_}
        facts |= told | {"residual": self.residual_, "engine": self.engine_}
        facts |= {} if self.until_ is None else {"until": self.until_}
        if self.prior_ is not None and self.prior_scale_ is not None:
            of_prior, told = self.prior_.state()
            arrays, facts = arrays | of_prior | {"prior_factor": self.prior_scale_}, facts | told
        return arrays, facts

    def _restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        super()._restore(arrays, facts)
        n = len(self.items_)
        self.precision_ = precision_from_state(arrays, facts, n, self.dtype)
        self.gain_, self.shift_, self.gram_diagonal_ = (
            model_file.vector(arrays, name, n) for name in ("gain", "shift", "gram_diagonal")
        )
        self.residual_, self.engine_ = model_file.fact(facts, "residual", float), str(facts["engine"])
        if self.half_life is not None:
            self.until_ = model_file.time_fact(facts, "until")
        self.on_device_ = self.quantized_rows_ = None
        if self.prior is not None:
            if isinstance(self.precision_, PackedSymmetric):
                self.prior_ = FittedPrior.from_state(arrays, facts, n)
            else:
                self.prior_ = SparsePrior.from_state(arrays, facts, self.precision_)
            self.prior_scale_ = model_file.vector(arrays, "prior_factor", n)
        elif "prior_left" in arrays or "prior_images" in arrays:
            raise ValueError("it has factors of a prior, and no prior")
        if "row_codes" in arrays:
            if not isinstance(self.precision_, PackedSymmetric):
                raise ValueError("it has quantised rows of a P of which it has some entries alone")
            self.quantized_rows_ = QuantisedRows.from_arrays(self.precision_, arrays, self._right_factor)

    def _weights(self) -> PackedWeights | SparseWeights:
        """W, as whatever there is of P scores and ranks."""
        if isinstance(self.precision_, SparsePrecision):
            return SparseWeights(self.precision_, self.gain_, self.shift_, self._popularity_order, self.prior_scale_)
        prior = self._prior_term(self.prior_scale_)
        return PackedWeights(self.precision_, self.gain_, self.shift_, prior, self.on_device_, self.quantized_rows_)

    def _weights_of(self, models: Sequence[Any]) -> PackedWeights | SparseWeights:
        """W of each of several models that share P."""
        gains, shifts = (np.stack([getattr(model, name) for model in models]) for name in ("gain_", "shift_"))
        scales = None if self.prior_scale_ is None else np.stack([model.prior_scale_ for model in models])
        if isinstance(self.precision_, SparsePrecision):
            return SparseWeights(self.precision_, gains, shifts, self._popularity_order, scales)
        # Models that share P share its copy on a device, whichever of them was sent there.
        devices = (getattr(model, "on_device_", None) for model in models)
        on_device = next((device for device in devices if device is not None), None)
        return PackedWeights(self.precision_, gains, shifts, self._prior_term(scales), on_device)

    def _rank(
        self, matrix: csr_array, k: int, exclude_seen: bool, allowed: NDArray[np.bool_], report: ProgressCallback | None
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        return self._weights().rank(matrix, k, exclude_seen, allowed, report)

    def _rank_group(
        self,
        models: Sequence[Recommender],
        matrix: csr_array,
        k: int,
        squares: NDArray[np.float64] | None,
        report: ProgressCallback | None,
    ) -> NDArray[np.int32]:
        return self._weights_of(models).rank_all(matrix, k, squares, report)

    def _cold(self, indptr: NDArray[np.integer], indices: NDArray[np.integer]) -> NDArray[np.bool_]:
        weights = self._weights()
        return weights.cold(indptr, indices) if isinstance(weights, SparseWeights) else super()._cold(indptr, indices)

    @property
    def _right_factor(self) -> NDArray[np.float32] | None:
        """The right factor of a thin prior, which quantised rows hold once more."""
        return self.prior_.right if isinstance(self.prior_, FittedPrior) else None

    def _prior_term(self, scale: NDArray[np.float64] | None) -> PriorTerm | None:
        """What a prior of thin factors adds to W, if its columns are scaled like this."""
        if scale is None or not isinstance(self.prior_, FittedPrior):
            return None
        return PriorTerm(self.prior_.left, self.prior_.right, scale)

    @property
    def _shared_fit(self) -> tuple[object, ...] | None:
        if not hasattr(self, "precision_"):
            return None
        return self.precision_, *((None,) if self.prior_ is None else self.prior_.factors)

    def _pair_scores(self, matrix: csr_array, pairs: csr_array) -> NDArray[np.float64]:
        """The exact scores of the columns stored in ``pairs``, row by row."""
        return self._weights().pair_scores(matrix, pairs)

    def _shared_features(self, source: int, target: int) -> tuple[str, ...]:
        features = None if self.prior_ is None else self.prior_.features
        return () if features is None or source == target else features.shared(source, target)

    def _contributions(
        self, columns: NDArray[np.int32], values: NDArray[np.floating], target: int
    ) -> tuple[NDArray[np.float64], float]:
        return self._weights().contributions(columns, values, target)
