"""LightGCN: the estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deql._system.lazy import lazy_module
from deql.models.neural.network_model import NetworkModel, check_layers

if TYPE_CHECKING:
    from deql.models.neural import lightgcn_network
    from deql.models.neural.graph import BipartiteGraph
    from deql.models.neural.network import Network
else:
    lightgcn_network = lazy_module("deql.models.neural.lightgcn_network")

__all__ = ["LightGCN"]


@dataclass(eq=False, repr=False)
class LightGCN(NetworkModel):
    """Vectors of users and items, averaged over steps of propagation, trained by pairs of items (He et al., 2020).

    The mean of E, ÂE … Â^layers·E over the normalised graph of users and items ranks; E is trained so that items which
    a user has score above others, by Bayesian personalised ranking with one other item for each. It needs torch.

    Parameters
    ----------
    epochs : int, default 100
        How often each interaction is seen, at most.
    batch_size : int, default 8192
        Interactions for each step. A step propagates over the whole graph, so large batches are faster, up to where an
        epoch has too few steps to learn from.
    learning_rate : float, default 0.01
        Of Adam, at first; it falls to nothing along half a cosine over the epochs.
    weight_decay : float, default 1e-4
        What multiplies ½·‖e‖² of the trained vectors that a pair and its other item take, in the loss.
    validate_every : int, default 5
        With validation data: how many epochs from one look at them to the next.
    layers : int, default 3
        Steps of the propagation.

    Examples
    --------
    >>> import deql
    >>> eaten = ["tea", "jam", "tea", "jam", "egg", "rye", "egg", "rye"]
    >>> data = deql.Interactions.from_pairs(list("aabbccdd"), eaten)
    >>> model = deql.neural.LightGCN(rank=4, epochs=40, device="cpu").fit(data)
    >>> model.similar_items("egg", k=1)[0].tolist()
    ['rye']
    """

    layers: int = 3

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_layers(self.layers)

    def _network(self, graph: BipartiteGraph) -> Network:
        return lightgcn_network.LightGCNNetwork(graph, self.layers, float(self.weight_decay))

    def _step_bytes(self, vertices: int, batch: int) -> int:
        return 0
