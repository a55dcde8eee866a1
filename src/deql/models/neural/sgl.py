"""SGL: the estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from deql._system.checks import check_range
from deql._system.lazy import lazy_module
from deql.models.neural.lightgcn import LightGCN
from deql.models.neural.network_model import check_temperature

if TYPE_CHECKING:
    from deql.models.neural import sgl_network
    from deql.models.neural.graph import BipartiteGraph
    from deql.models.neural.network import Network
else:
    sgl_network = lazy_module("deql.models.neural.sgl_network")

__all__ = ["SGL"]


@dataclass(eq=False, repr=False)
class SGL(LightGCN):
    """LightGCN that also learns to know a vertex again without some edges: SGL-ED (Wu et al., 2021).

    For each epoch two graphs are drawn, each without some edges; beside LightGCN's own loss, the vectors of the batch's
    users and items in one of these graphs are to tell theirs in the other from those of all others in the batch
    (InfoNCE). A step propagates three times as often as LightGCN's and compares all pairs of the batch, but far fewer
    steps will do. It needs torch.

    Parameters
    ----------
    epochs : int, default 20
        How often each interaction is seen, at most.
    batch_size : int, default 2048
        Interactions for each step.
    learning_rate : float, default 0.003
        Of Adam, at first; it falls to nothing along half a cosine over the epochs.
    edge_dropout : float, default 0.1
        Share of the edges that each of the two graphs is without.
    contrast_weight : float, default 0.1
        What multiplies that part of the loss.
    temperature : float, default 0.2
        Of it: the lower, the more the nearest others count.

    Examples
    --------
    >>> import deql
    >>> eaten = ["tea", "jam", "tea", "jam", "egg", "rye", "egg", "rye"]
    >>> data = deql.Interactions.from_pairs(list("aabbccdd"), eaten)
    >>> model = deql.neural.SGL(rank=4, epochs=40, device="cpu").fit(data)
    >>> model.similar_items("egg", k=1)[0].tolist()
    ['rye']
    """

    epochs: int = 20
    batch_size: int = 2048
    learning_rate: float = 0.003
    edge_dropout: float = 0.1
    contrast_weight: float = 0.1
    temperature: float = 0.2

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_range("edge_dropout", self.edge_dropout, 0.0, 1.0, below=True)
        check_range("contrast_weight", self.contrast_weight, 0.0, np.inf)
        check_temperature(self.temperature)

    def _network(self, graph: BipartiteGraph) -> Network:
        return sgl_network.SGLNetwork(
            graph, self.layers, float(self.weight_decay), float(self.edge_dropout), float(self.contrast_weight),
            float(self.temperature),
        )  # fmt: skip

    def _step_bytes(self, vertices: int, batch: int) -> int:
        # Two views of the propagation and their gradients, and what compares them.
        return 4 * (8 * vertices * self.rank + 3 * batch**2)
