"""ELSA: unit vectors for items, trained by mini-batches of users."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deql._system.checks import chosen_rank
from deql._system.lazy import lazy_module
from deql.data import Interactions
from deql.models.stored import row_products
from deql.models.training import Epoch
from deql.models.training.estimator import Begin, TrainedFactors, check_memory
from deql.split import HeldOut, hold_out_users

if TYPE_CHECKING:
    import torch

    from deql.linalg.engines import torch_packed
    from deql.models.elsa import training
    from deql.models.training import sparse_rows
else:  # torch is loaded by who trains, not by who loads a model
    torch_packed = lazy_module("deql.linalg.engines.torch_packed")
    training = lazy_module("deql.models.elsa.training")
    sparse_rows = lazy_module("deql.models.training.sparse_rows")

__all__ = ["ELSA"]


@dataclass(eq=False, repr=False)
class ELSA(TrainedFactors):
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

    Attributes
    ----------
    left_, right_ : ndarray of float32, n × rank
        A, twice; right_ with the popularity power.

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

    def _trained_numbers(self, data: Interactions) -> int:
        return data.n_items * chosen_rank(self.rank, data.n_items)

    def _hold_out(self, data: Interactions) -> tuple[Interactions, HeldOut]:
        return hold_out_users(data, self.seed)

    def _train(
        self,
        data: Interactions,
        validation: HeldOut | None,
        device: torch.device,
        begin: Begin,
        epochs: int | None = None,
        choosing: bool = False,
    ) -> training.Trained:
        # Early stopping may leave fewer items than the rank.
        rank = chosen_rank(None if self.rank is None else min(self.rank, data.n_items), data.n_items)
        config = training.TrainingConfig(
            rank, self.epochs, self.batch_size, float(self.learning_rate), self.patience, self.seed
        )
        if epochs is not None:
            config = replace(config, epochs=epochs, patience=None)
        batch = min(config.batch_size, data.n_users)
        # A, V, both moments of Adam, the gradient and what it is made of; batches × rank; the histories in their order.
        needed = 4 * config.rank * (7 * data.n_items + 4 * batch) + 24 * data.n_interactions
        check_memory(f"rank {config.rank:,} of {data.n_items:,} items", needed, device, "choose a lower rank")
        what = f"{data.n_items:,} items at rank {config.rank:,}"
        with torch_packed.memory_watched(what, device, "lower rank or batch_size"):
            scaled = training.scale_rows(data.matrix.indptr, data.matrix.data)
            histories = sparse_rows.SparseRows.from_arrays(
                data.matrix.indptr, data.matrix.indices, scaled, data.n_items, device
            )
            if validation is None:
                return training.train(histories, config, None, begin())
            ndcg = self._validator(data, validation, device, training.scale_rows)
            return training.train(histories, config, lambda A: ndcg(A, A), begin())

    def _take(self, found: training.Trained, history: list[Epoch]) -> None:
        self.epochs_, self.history_ = found.epochs, history
        # Minus the rows' squared lengths as they are in float32: then the diagonal is zero, not nearly so.
        self._keep(found.factors, found.factors, -row_products(found.factors, found.factors))
