"""Models that hold P: how they rank, explain, move to a device, and are saved."""

from __future__ import annotations

import os
from collections.abc import Sequence
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
from deql.ranking.kernels import contributions, score_pairs
from deql.ranking.quantised import QuantisedRows
from deql.ranking.rank import rank
from deql.ranking.shortlist import user_bounds

if TYPE_CHECKING:
    from deql.linalg.engines.torch_packed import DevicePacked

__all__ = ["PrecisionModel"]


class PrecisionModel(Recommender):
    """Base of the models whose weights are W = P·diag(gain) + diag(shift), however P was come by.

    Attributes
    ----------
    precision_ : PackedSymmetric
        P, the inverse of A = RᵀΛR + p/(1−p)·diag(D) + l2·I, in half of n² numbers.
    gain_, shift_ : ndarray of float64
        The weights: W = P·diag(gain_) + diag(shift_).
    gram_diagonal_ : ndarray of float64
        D, the diagonal of the Gram matrix RᵀΛR.
    residual_ : float
        How far P·A was from the identity on random vectors.
    engine_ : str
        Name of the engine that ran.
    on_device_ : DevicePacked or None
        P once more, on the device that ranks; see :meth:`to`.
    quantized_rows_ : QuantisedRows or None
        P once more, by rows in 8 bits; see :meth:`quantize_rows`.
    """

    dtype: str
    precision_: PackedSymmetric
    gain_: NDArray[np.float64]
    shift_: NDArray[np.float64]
    gram_diagonal_: NDArray[np.float64]
    residual_: float
    engine_: str
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
    def _shared_fit(self) -> object | None:
        return getattr(self, "precision_", None)

    def _pair_scores(self, matrix: csr_array, pairs: csr_array) -> NDArray[np.float64]:
        """The exact scores of the columns stored in ``pairs``, row by row."""
        packed, out = self.precision_, np.zeros(pairs.nnz)
        run_slices(
            score_pairs, user_bounds(matrix.shape[0]), *packed.stored(), self.gain_, self.shift_,
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
        score = contributions(*packed.stored(), self.gain_, self.shift_, columns, weights, target, parts)
        return parts, score
