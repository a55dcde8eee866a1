"""Models of thin factors that are trained: epochs, early stopping, what a file keeps of that."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.checks import check_range, check_whole
from deql._system.lazy import lazy_module
from deql._system.machine import check_fits, free_memory
from deql._system.progress import ProgressCallback, stages
from deql._system.threads import thread_count
from deql.data import Interactions, as_interactions
from deql.data.hashed_users import hash_histories
from deql.data.interactions import InteractionsLike
from deql.errors import DataError, DeviceError, ParameterError, TooLargeError
from deql.io.model_file import fact
from deql.models.kept_data import KeepData
from deql.models.stored import FactoredAutoencoder
from deql.models.training import Epoch
from deql.ranking.histories import encode_histories
from deql.rules import popularity_scale
from deql.split import HeldOut

if TYPE_CHECKING:
    import torch

    from deql.linalg.engines import torch_packed
    from deql.models.training import sparse_rows, validation
else:  # torch is loaded by who trains, not by who loads a model
    torch_packed = lazy_module("deql.linalg.engines.torch_packed")
    sparse_rows = lazy_module("deql.models.training.sparse_rows")
    validation = lazy_module("deql.models.training.validation")

__all__ = ["Begin", "TrainedFactors", "check_memory", "training_device"]

Begin = Callable[[], ProgressCallback | None]
"""Shows that a training begins, and gives what is told how far it is."""

_WORTH_THREADS = 2**19
"""Numbers that are trained."""

_LEAST_RATE, _LARGEST_RATE = 1e-10, 1e30
"""Steps below would be lost beside the float32 of what is trained, those above are infinite in it."""

RowScale = Callable[[NDArray[Any], NDArray[Any]], NDArray[np.float32]]


@dataclass(eq=False, repr=False)
class TrainedFactors(FactoredAutoencoder):
    """Base of models whose thin factors are trained by mini-batches on one device, with early stopping.

    Parameters
    ----------
    patience : int, optional
        Early stopping: end after so many epochs without a better NDCG@20 on validation data. Those are what ``fit`` is
        given; without them some of the interactions choose the number of epochs, and all are trained on once more.
    device : str, optional
        Such as ``"cuda:1"`` or ``"cpu"``; a CUDA device if there is one, else the processor.

    Attributes
    ----------
    epochs_ : int
        After how many epochs the model is as it is.
    history_ : list of Epoch
        Loss, NDCG@20 on validation data, and seconds of each epoch that was run; where some interactions were held out
        here, of the run that chose the number of epochs.
    """

    rank: int | None = None
    epochs: int = 20
    batch_size: int = 1024
    learning_rate: float = 0.1
    patience: int | None = None
    seed: int = 0
    device: str | None = field(default=None, kw_only=True)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("epochs", "batch_size"):
            check_whole(name, getattr(self, name))
        if self.rank is not None:
            check_whole("rank", self.rank)
        check_range("learning_rate", self.learning_rate, 0.0, np.inf)
        if not _LEAST_RATE <= self.learning_rate <= _LARGEST_RATE:
            raise ParameterError(
                f"learning_rate must be from {_LEAST_RATE:g} to {_LARGEST_RATE:g}, got {self.learning_rate!r}",
                parameter="learning_rate",
            )
        if self.patience is not None:
            check_whole("patience", self.patience)
        check_whole("seed", self.seed, least=0)

    def fit(
        self, data: InteractionsLike, y: None = None, *, keep_data: KeepData = False, validation: HeldOut | None = None
    ) -> Self:
        """Learn from interactions.

        Parameters
        ----------
        data : Interactions, sparse matrix or frame
            Users × items; a plain matrix's ids are its column numbers. A frame has a row for each interaction, and its
            columns are found as :func:`deql.read_interactions` does.
        y : ignored
            Present for scikit-learn's conventions.
        keep_data : bool or "hashed", default False
            Keep the data as ``data_``, in the model file too: users can then be asked for by their ids. "hashed" keeps
            salted hashes of the ids in their place: the file names nobody, and users are still found by their ids.
        validation : HeldOut, optional
            Such as ``split.validation``: the model is evaluated on it as it is trained, and the best is kept (early
            stopping).

        Returns
        -------
        self
        """
        if validation is not None and not isinstance(validation, HeldOut):
            raise ParameterError(
                f"validation must be what is held out, such as split.validation, got {type(validation).__name__}",
                parameter="validation",
            )
        return self._fit_keeping(as_interactions(data), partial(self._learn, validation=validation), keep_data)

    def _learn(self, data: Interactions, validation: HeldOut | None = None) -> None:
        device = training_device(type(self).__name__, self.device)
        # Steps on little data are so short that threads would mostly wait for one another.
        threads = thread_count() if self._trained_numbers(data) >= _WORTH_THREADS else 1
        with stages(self.progress) as stage, torch_packed.threads_limited(threads):
            if validation is None and self.patience is not None:
                try:
                    kept, held_out = self._hold_out(data)
                except DataError as error:
                    said = "patience needs validation data, and fit was given none to use: "
                    raise DataError(said, *error.args) from None
                chosen = self._train(kept, held_out, device, partial(stage, "Choose epochs"), choosing=True)
                self._take(self._train(data, None, device, partial(stage, "Train"), chosen.epochs), chosen.history)
            else:
                found = self._train(data, validation, device, partial(stage, "Train"))
                self._take(found, found.history)

    @abstractmethod
    def _trained_numbers(self, data: Interactions) -> int:
        """How many numbers are trained; ParameterError if the data do not allow it."""

    @abstractmethod
    def _hold_out(self, data: Interactions) -> tuple[Interactions, HeldOut]:
        """Training and validation data for early stopping; DataError where there are too few."""

    @abstractmethod
    def _train(
        self,
        data: Interactions,
        validation: HeldOut | None,
        device: torch.device,
        begin: Begin,
        epochs: int | None = None,
        choosing: bool = False,
    ) -> Any:
        """Train on the device, for ``epochs`` and without early stopping if they are given.

        ``choosing`` says that the training after this one is for so many epochs as this one finds best.
        What it leaves has ``epochs``, after which it is as it is, and ``history``.
        """

    @abstractmethod
    def _take(self, found: Any, history: list[Epoch]) -> None:
        """Become fitted with what was trained."""

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays, facts = super()._state()
        return arrays, facts | {"epochs": self.epochs_, "history": self.history_}

    def _restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        super()._restore(arrays, facts)
        self.epochs_, self.history_ = fact(facts, "epochs", int), [Epoch(*epoch) for epoch in facts["history"]]

    def _validator(
        self, data: Interactions, held_out: HeldOut, device: torch.device, scale_rows: RowScale, personal: bool = False
    ) -> validation.ValidationNDCG:
        """What gives NDCG@20 on validation data: of users with a vector of their own, if models have those."""
        sizes = np.diff(held_out.held_out.matrix.indptr)
        evaluated = sizes > 0
        if not evaluated.any():
            raise DataError("no validation user has anything held out, so there is nothing to evaluate the epochs on")
        index = {item: column for column, item in enumerate(data.items.tolist())}
        seen, truth = (
            encode_histories(part.take_users(evaluated), index, data.items, strict=False, where=where)
            for part, where in (
                (held_out.seen, "validation histories"),
                (held_out.held_out, "what is held out, and counted as missed"),
            )
        )
        for part, what in ((truth, "held out from the"), (seen, "seen of the")):
            if not part.nnz:
                raise DataError(
                    f"nothing {what} validation users is an item of the training data, so no epoch would be better "
                    "than another"
                )
        counts = np.bincount(data.matrix.indices, minlength=data.n_items)
        popularity = np.empty(data.n_items)
        popularity[np.argsort(-counts, kind="stable")] = -np.arange(data.n_items)
        scale = popularity_scale(counts, self.popularity_power)
        rows = None
        if personal:
            users = held_out.seen.users[evaluated].tolist()
            rows = np.array([data.user_index.get(user, -1) for user in users], np.int64)
            same = hash_histories(seen, b"") == hash_histories(data.matrix, b"")[rows]
            rows[~same | (np.diff(seen.indptr) == 0)] = -1  # as _personal has it
        seen_rows, true_rows = (_on_device(part, device, scale_rows) for part in (seen, truth))
        return validation.ValidationNDCG(seen_rows, true_rows, sizes[evaluated], scale, popularity, rows)


def check_memory(what: str, needed: float, device: torch.device, advice: str) -> None:
    """Refuse what cannot fit; what is short of it by little is told when it runs out (``memory_watched``)."""
    here = device.type == "cpu"
    free = free_memory() if here else torch_packed.free_bytes(device)
    where, error = ("", TooLargeError) if here else (f" on {device}", DeviceError)
    check_fits(what, needed, free, advice, where=where, error=error)


def training_device(model: str, name: str | None) -> torch.device:
    """The device of this name; without one a CUDA device if there is one, else the processor."""
    try:
        import torch
    except ImportError:
        raise DeviceError(f'{model} needs torch, which is not installed: pip install "deql[neural]"') from None

    return torch_packed.open_device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


def _on_device(matrix: csr_array, device: torch.device, scale_rows: RowScale) -> sparse_rows.SparseRows:
    values = scale_rows(matrix.indptr, matrix.data)
    return sparse_rows.SparseRows.from_arrays(matrix.indptr, matrix.indices, values, matrix.shape[1], device)
