"""What the networks share as estimators: training, users with a vector of their own, what a file keeps."""

from __future__ import annotations

import hashlib
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from deql._system.checks import check_range, check_whole
from deql._system.lazy import lazy_module
from deql._system.tables import counted
from deql.data import Interactions, as_interactions
from deql.data.hashed_users import SALT_BYTES
from deql.data.interactions import UserId
from deql.data.partitions import TrainingData
from deql.errors import DataError, ParameterError
from deql.io.container import digest
from deql.io.model_file import refuse_infinite
from deql.models.kept_data import KeepData
from deql.models.neural.known_users import KnownUsers
from deql.models.training import Epoch
from deql.models.training.estimator import Begin, TrainedFactors, check_memory
from deql.split import HeldOut, split_weak

if TYPE_CHECKING:
    import torch

    from deql.linalg.engines import torch_packed
    from deql.models.neural import checkpoint as checkpoints
    from deql.models.neural import trainer
    from deql.models.neural.graph import BipartiteGraph
    from deql.models.neural.network import Network
    from deql.models.training import validation as looks
else:  # torch is loaded by who trains, not by who loads a model
    torch_packed = lazy_module("deql.linalg.engines.torch_packed")
    checkpoints = lazy_module("deql.models.neural.checkpoint")
    trainer = lazy_module("deql.models.neural.trainer")
    looks = lazy_module("deql.models.training.validation")

__all__ = ["NetworkModel", "check_layers", "check_temperature"]

_VALIDATION_SHARE = 0.1
_MOST_LAYERS = 64
_LEAST_TEMPERATURE = 0.025
"""Below, the share of an item in a softmax of cosines may be less than float32 can tell from nothing."""


@dataclass(eq=False, repr=False)
class NetworkModel(TrainedFactors):
    """Base of networks: vectors of users and items, trained on the graph of both.

    A user of the training data is known by the id, as Interactions or a frame have it, and with the history of training
    ranked by the vector that was trained. Everybody else, whoever has other items by now, and every history without an
    id are folded in: the vector is estimated from the items' by least squares, linear in the history, so that
    W = left_·right_ᵀ ranks and explains them. The model file keeps salted hashes of ids and histories: it names nobody.

    Parameters
    ----------
    rank : int, default 64
        Length of the vectors.
    epochs : int
        How often each interaction is seen, at most.
    batch_size : int
        Interactions for each step.
    learning_rate : float
        Of Adam, at first; it falls to nothing along half a cosine over the epochs.
    weight_decay : float
        What multiplies ½·‖e‖² of the trained vectors that a pair takes, in the loss.
    seed : int, default 0
        For the first vectors, the order of interactions, and what else is drawn. The same seed gives the same model on
        a processor.
    validate_every : int
        With validation data: how many epochs from one look at them to the next.
    checkpoint : path, optional
        A file that is written after an epoch, at most twice a minute. A training that was killed resumes from it, bit
        for bit where the device computes alike; it is removed at the end.

    Attributes
    ----------
    left_, right_ : ndarray of float32, n × rank
        W = left_·right_ᵀ, for histories.
    own_ : ndarray of float32, users × rank
        What training learned of each user beyond the history: the score of item i is (x·left_ + own)·right_[i].
    """

    rank: int = 64
    epochs: int = 100
    batch_size: int = 8192
    learning_rate: float = 0.01
    weight_decay: float = 1e-4
    validate_every: int = field(default=5, kw_only=True)
    checkpoint: str | os.PathLike[str] | None = field(default=None, kw_only=True)

    _is_linear = False

    @abstractmethod
    def _network(self, graph: BipartiteGraph) -> Network:
        """What is to be trained on this graph."""

    @abstractmethod
    def _step_bytes(self, vertices: int, batch: int) -> int:
        """Memory of a step beside what every network's takes."""

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_whole("rank", self.rank)
        check_whole("validate_every", self.validate_every)
        if self.checkpoint is not None and not isinstance(self.checkpoint, str | os.PathLike):
            raise ParameterError(f"checkpoint must be a file, got {self.checkpoint!r}", parameter="checkpoint")
        check_range("weight_decay", self.weight_decay, 0.0, np.inf)

    def _trained_numbers(self, data: Interactions) -> int:
        return (data.n_users + data.n_items) * self.rank

    def _hold_out(self, data: Interactions) -> tuple[Interactions, HeldOut]:
        split = split_weak(data, _VALIDATION_SHARE, 0, self.seed)
        return split.train, split.test

    def _fit_keeping(self, data: TrainingData, learn: Callable[..., None], keep_data: KeepData) -> Self:
        users, matrix = _learning_users(as_interactions(data))
        known = KnownUsers.of(users, matrix, _salt_of(matrix))  # what is wrong with ids is told before the long work
        self._checkpoints: list[checkpoints.Checkpoint] = []  # those of this fit
        try:
            super()._fit_keeping(data, learn, keep_data)
            # If the data are kept under hashes, these are users' names here, too.
            salt = self.user_salt_
            self._know(known if salt is None else KnownUsers.of(users, matrix, salt), users, matrix, self.own_)
            for written in self._checkpoints:
                written.remove()
        finally:
            del self._checkpoints
        return self

    def _keep_data(self, data: Interactions, keep_data: KeepData) -> None:
        super()._keep_data(data, keep_data)
        if self.user_salt_ is not None:
            users, matrix = _learning_users(data)
            own = self.own_[self._known.find(users, matrix)]
            self._know(KnownUsers.of(users, matrix, self.user_salt_), users, matrix, own)

    def _know(self, known: KnownUsers, users: NDArray[Any], matrix: csr_array, own: NDArray[np.float32]) -> None:
        """Put users' own vectors, in the order of some data, into that of the known users."""
        ordered = np.empty_like(own)
        ordered[known.find(users, matrix)] = own
        self._known = known
        self._join(ordered)

    def _train(
        self,
        data: Interactions,
        validation: HeldOut | None,
        device: torch.device,
        begin: Begin,
        epochs: int | None = None,
        choosing: bool = False,
    ) -> trainer.Trained:
        matrix = data.matrix
        if nothing := int(np.count_nonzero(~(matrix.data > 0))):
            raise DataError(
                f"{counted(nothing, 'interaction weighs', 'interactions weigh')} 0 or less, and a network learns from "
                "what users have: leave such rows out"
            )
        largest = matrix.data.max()
        if not np.finfo(np.float32).tiny <= largest <= np.finfo(np.float32).max:
            raise DataError(f"the largest weight, {largest:g}, is none that float32 can hold: scale the weights")
        config = trainer.TrainingConfig(
            int(self.rank), int(self.epochs), int(self.epochs), int(self.batch_size), float(self.learning_rate),
            self.patience, int(self.validate_every), int(self.seed),
        )  # fmt: skip
        if epochs is not None:
            config = replace(config, last_epoch=epochs, patience=None)
        self._check_memory(data, device, validation)
        resumed = None
        if self.checkpoint is not None:
            # The training that chooses the number of epochs has a file of its own, which stays until the other is done:
            # chosen again, the number could be another one, as sums may be made in another order.
            path = Path(f"{self.checkpoint}.choosing" if choosing else self.checkpoint)
            resumed = checkpoints.Checkpoint(path, self._training(data, validation, config))
            self._checkpoints.append(resumed)
        what = f"{data.n_users:,} users and {data.n_items:,} items at rank {self.rank:,}"
        with torch_packed.memory_watched(what, device, "lower rank or batch_size"):
            from deql.models.neural.graph import BipartiteGraph

            values = matrix.data.astype(np.float64) / largest  # whose sums are finite, whatever the weights
            graph = BipartiteGraph.from_arrays(matrix.indptr, matrix.indices, values, data.n_items, device)
            validate = None
            if validation is not None:
                ndcg = self._validator(data, validation, device, _divided_by(float(largest)), personal=True)
                validate = lambda found: ndcg(*found)  # noqa: E731
            found = trainer.train(self._network(graph), config, validate, resumed, begin())
        some = np.diff(matrix.indptr) > 0
        return found._replace(left=found.left / np.float32(largest), own=found.own[some])

    def _training(
        self, data: Interactions, validation: HeldOut | None, config: trainer.TrainingConfig
    ) -> dict[str, Any]:
        """What the result of a training depends on."""
        held_out = {}
        if validation is not None:
            held_out = {"validation": [_digest_ids(part) for part in (validation.seen, validation.held_out)]}
        return (
            {"model": type(self).__name__, "data": _digest_ids(data)}
            | held_out
            | self._to_config(self.get_params())
            | {"last_epoch": config.last_epoch, "patience": config.patience}
        )

    def _check_memory(self, data: Interactions, device: torch.device, validation: HeldOut | None) -> None:
        vertices, batch = data.n_users + data.n_items, min(self.batch_size, data.n_interactions)
        # E, its gradient and best, and both moments; in propagation the sum, two powers and their gradients; of an edge
        # its ends, weight and order, by users and by items, and what a draw of negatives and of an order takes.
        kept, made = 4 * self.rank * 5 * vertices, 4 * self.rank * (7 * vertices + 8 * batch)
        made += self._step_bytes(vertices, batch)
        if device.type == "cuda":
            made *= 2  # a recorded step has memory of its own, beside that of an epoch's last batch
        needed = kept + made + 112 * data.n_interactions
        if validation is not None:
            needed += looks.validation_bytes(validation.seen.n_users, data.n_items)
        what = f"rank {self.rank:,} on a graph of {vertices:,} users and items"
        what += f" with {data.n_interactions:,} interactions"
        check_memory(what, needed, device, "choose a lower rank or batch_size")

    def _take(self, found: trainer.Trained, history: list[Epoch]) -> None:
        self.epochs_, self.history_ = found.epochs, history
        self._keep(found.left, found.right)
        self._join(found.own)

    def _join(self, own: NDArray[np.float32]) -> None:
        """Put users' own vectors under the items': the row of a known user has one column more, which takes theirs."""
        self._encoders = np.concatenate([self.left_, own])
        self.left_, self.own_ = self._encoders[: len(self.left_)], self._encoders[len(self.left_) :]

    def _personal(self, matrix: csr_array, users: Iterable[UserId]) -> csr_array:
        rows = self._known.find(users, matrix)
        known = np.flatnonzero(rows >= 0)
        own = csr_array((np.ones(len(known), matrix.dtype), (known, rows[known])), (matrix.shape[0], len(self.own_)))
        return csr_array(hstack([matrix, own], format="csr"))

    def _scores(self, matrix: csr_array) -> NDArray[np.floating]:
        scores: NDArray[np.floating] = (matrix.astype(np.float32) @ self._encoders[: matrix.shape[1]]) @ self.right_.T
        return scores

    def _stored(self) -> tuple[Any, ...]:
        return self._encoders, self.right_, self.shift_

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        arrays, facts = super()._state()
        return arrays | self._known.arrays() | {"own": self.own_}, facts

    def _restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        super()._restore(arrays, facts)
        self._known, own = KnownUsers.from_arrays(arrays), arrays["own"]
        if own.dtype != np.float32 or own.shape != (len(self._known.hashes), self.left_.shape[1]):
            raise ValueError("its users and their vectors differ in number")
        refuse_infinite("users' vectors", own)
        self._join(np.array(own))


def _learning_users(data: Interactions) -> tuple[NDArray[Any], csr_array]:
    """Users with items, and their rows: others learn nothing."""
    some = np.diff(data.matrix.indptr) > 0
    return data.users[some], data.matrix[some]


def check_layers(layers: int) -> None:
    """Refuse a number of steps that would only take time: after some dozens all vectors are alike."""
    check_whole("layers", layers)
    if layers > _MOST_LAYERS:
        raise ParameterError(f"layers must be at most {_MOST_LAYERS}, got {layers:,}", parameter="layers")


def check_temperature(temperature: float) -> None:
    """Refuse a temperature that is not a number, or too low."""
    check_range("temperature", temperature, 0.0, np.inf)
    if not temperature >= _LEAST_TEMPERATURE:
        raise ParameterError(
            f"temperature must be at least {_LEAST_TEMPERATURE:g}, got {temperature:g}", parameter="temperature"
        )


def _salt_of(matrix: csr_array) -> bytes:
    """A salt that differs from data to data, and is the same for the same."""
    return hashlib.blake2b(_digest(matrix).encode(), digest_size=SALT_BYTES).digest()


def _digest_ids(data: Interactions) -> list[str]:
    """Checksums of interactions, and of the ids that tell which users and items are the same elsewhere."""
    ids = [np.frombuffer("\n".join(map(str, some.tolist())).encode(), np.uint8) for some in (data.users, data.items)]
    return [_digest(data.matrix), digest({}, dict(zip(("users", "items"), ids, strict=True)))]


def _digest(matrix: csr_array) -> str:
    return digest({}, {"indptr": matrix.indptr, "indices": matrix.indices, "data": matrix.data})


def _divided_by(largest: float) -> Callable[[NDArray[Any], NDArray[Any]], NDArray[np.float32]]:
    def scale(indptr: NDArray[Any], values: NDArray[Any]) -> NDArray[np.float32]:
        return (values.astype(np.float64) / largest).astype(np.float32)

    return scale
