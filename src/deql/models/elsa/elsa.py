"""ELSA: unit vectors for items, trained by mini-batches of users."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from deql._system.checks import check_range, check_whole, chosen_rank
from deql._system.lazy import lazy_module
from deql._system.machine import check_fits, free_memory
from deql._system.progress import Stage, stages
from deql._system.threads import thread_count
from deql.data import Interactions, as_interactions
from deql.data.interactions import InteractionsLike
from deql.errors import DataError, DeviceError, ParameterError, TooLargeError
from deql.io.model_file import fact
from deql.models.elsa import Epoch
from deql.models.kept_data import KeepData
from deql.models.stored import FactoredAutoencoder, row_products
from deql.ranking.histories import encode_histories
from deql.rules import popularity_scale
from deql.split import HeldOut, hold_out_users

if TYPE_CHECKING:
    import torch

    from deql.linalg.engines import torch_packed
    from deql.models.elsa import training
else:  # torch is loaded by who trains, not by who loads a model
    torch_packed = lazy_module("deql.linalg.engines.torch_packed")
    training = lazy_module("deql.models.elsa.training")

__all__ = ["ELSA"]

_WORTH_THREADS = 2**19
"""Numbers in A."""

_LEAST_RATE, _LARGEST_RATE = 1e-10, 1e30
"""Steps below would be lost beside A's float32, those above are infinite in it."""


@dataclass(eq=False, repr=False)
class ELSA(FactoredAutoencoder):
    """W = A·Aᵀ − I with unit rows of A, and hence a zero diagonal (Vančura et al., 2022).

    A, n × rank, is trained from random rows so that every user's scores point where the history does: the mean of
    ‖x/‖x‖ − y/‖y‖‖² over users, with y = W·x, by Nesterov's Adam. It needs torch. Memory is about eight arrays of
    the size of A and some 30 bytes for each interaction; validation takes a third of a GiB more.

    Parameters
    ----------
    rank : int, optional
        Length of an item's vector; 256 if not given, or as many as there are items if those are fewer. More is better
        until it overfits; thousands are not too many.
    epochs : int, default 20
        How often each user is seen, at most.
    batch_size : int, default 1024
        Users for each step. Larger batches are calmer: they need more epochs, and often end better.
    learning_rate : float, default 0.1
        Of Nesterov's Adam.
    patience : int, optional
        Early stopping: end after so many epochs without a better NDCG@20 on validation data. Those are what ``fit`` is
        given; without them a tenth of the users choose the number of epochs, and A is trained once more on all.
    seed : int, default 0
        For the first A, the order of users, and who is held out. The same seed gives the same model on a processor.
    device : str, optional
        Such as ``"cuda:1"`` or ``"cpu"``; a CUDA device if there is one, else the processor.

    Attributes
    ----------
    left_, right_ : ndarray of float32, n × rank
        A, twice; right_ with the popularity power.
    epochs_ : int
        How many epochs A was trained.
    history_ : list of Epoch
        Loss, NDCG@20 on validation data, and seconds of each epoch that was run; if users were held out here, of
        the run that chose the number of epochs.

    Examples
    --------
    >>> import deql
    >>> eaten = ["tea", "jam", "tea", "jam", "egg", "rye", "egg", "rye"]
    >>> data = deql.Interactions.from_pairs(list("aabbccdd"), eaten)
    >>> model = deql.ELSA(rank=2, epochs=50, device="cpu").fit(data)
    >>> model.similar_items("egg", k=1)[0].tolist()
    ['rye']
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
            Such as ``split.validation``: A is evaluated on it after each epoch, and the best is kept (early stopping).

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
        rank = chosen_rank(self.rank, data.n_items)
        device = _open(self.device)
        config = training.TrainingConfig(
            rank, self.epochs, self.batch_size, float(self.learning_rate), self.patience, self.seed
        )
        # Steps on little data are so short that threads would mostly wait for one another.
        threads = thread_count() if data.n_items * rank >= _WORTH_THREADS else 1
        with stages(self.progress) as stage, torch_packed.threads_limited(threads):
            if validation is None and self.patience is not None:
                kept, held_out = _hold_out(data, self.seed)
                few = replace(config, rank=min(rank, kept.n_items))
                chosen = self._train(kept, held_out, few, device, stage, "Choose epochs")
                config = replace(config, epochs=chosen.epochs, patience=None)
                found = self._train(data, None, config, device, stage)._replace(history=chosen.history)
            else:
                found = self._train(data, validation, config, device, stage)
        self.epochs_, self.history_ = found.epochs, found.history
        # Minus the rows' squared lengths as they are in float32: then the diagonal is zero, not nearly so.
        self._keep(found.factors, found.factors, -row_products(found.factors, found.factors))

    def _train(
        self,
        data: Interactions,
        validation: HeldOut | None,
        config: training.TrainingConfig,
        device: torch.device,
        stage: Stage,
        label: str = "Train",
    ) -> training.Trained:
        _check_memory(data, config, device)
        what = f"{data.n_items:,} items at rank {config.rank:,}"
        with torch_packed.memory_watched(what, device, "lower rank or batch_size"):
            histories = _on_device(data.matrix, device)
            validate = None if validation is None else self._validator(data, validation, device)
            return training.train(histories, config, validate, stage(label))

    def _validator(self, data: Interactions, validation: HeldOut, device: torch.device) -> training.ValidationNDCG:
        sizes = np.diff(validation.held_out.matrix.indptr)
        evaluated = sizes > 0
        if not evaluated.any():
            raise DataError("no validation user has anything held out, so there is nothing to evaluate the epochs on")
        index = {item: column for column, item in enumerate(data.items.tolist())}
        seen, held_out = (
            encode_histories(part.take_users(evaluated), index, data.items, strict=False, where=where)
            for part, where in (
                (validation.seen, "validation histories"),
                (validation.held_out, "what is held out, and counted as missed"),
            )
        )
        for part, what in ((held_out, "held out from the"), (seen, "seen of the")):
            if not part.nnz:
                raise DataError(
                    f"nothing {what} validation users is an item of the training data, so no epoch would be better "
                    "than another"
                )
        counts = np.bincount(data.matrix.indices, minlength=data.n_items)
        popularity = np.empty(data.n_items)
        popularity[np.argsort(-counts, kind="stable")] = -np.arange(data.n_items)
        scale = popularity_scale(counts, self.popularity_power)
        parts = _on_device(seen, device), _on_device(held_out, device)
        return training.ValidationNDCG(*parts, sizes[evaluated], scale, popularity)

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays, facts = super()._state()
        return arrays, facts | {"epochs": self.epochs_, "history": self.history_}

    def _restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        super()._restore(arrays, facts)
        self.epochs_, self.history_ = fact(facts, "epochs", int), [Epoch(*epoch) for epoch in facts["history"]]


def _open(name: str | None) -> torch.device:
    """The device to train on."""
    try:
        import torch
    except ImportError:
        raise DeviceError('ELSA needs torch, which is not installed: pip install "deql[gpu]"') from None

    return torch_packed.open_device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


def _on_device(matrix: csr_array, device: torch.device) -> training.SparseRows:
    values = training.scale_rows(matrix.indptr, matrix.data)
    return training.SparseRows.from_arrays(matrix.indptr, matrix.indices, values, matrix.shape[1], device)


def _check_memory(data: Interactions, config: training.TrainingConfig, device: torch.device) -> None:
    """Refuse what cannot fit; what is short of it by little is told when it runs out (memory_watched)."""
    here = device.type == "cpu"
    n, batch = data.n_items, min(config.batch_size, data.n_users)
    # A, V, both moments of Adam, the gradient and what it is made of; batches × rank; the histories in their order.
    needed = 4 * config.rank * (7 * n + 4 * batch) + 24 * data.n_interactions
    free = free_memory() if here else torch_packed.free_bytes(device)
    check_fits(
        f"rank {config.rank:,} of {n:,} items", needed, free, "choose a lower rank",
        where="" if here else f" on {device}", error=TooLargeError if here else DeviceError,
    )  # fmt: skip


def _hold_out(data: Interactions, seed: int) -> tuple[Interactions, HeldOut]:
    """Training and validation data for early stopping."""
    try:
        return hold_out_users(data, seed)
    except DataError as error:
        raise DataError("patience needs validation data, and fit was given none to use: ", *error.args) from None
