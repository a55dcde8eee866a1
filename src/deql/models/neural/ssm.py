"""SSM: the estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deql._system.checks import check_whole
from deql._system.lazy import lazy_module
from deql.errors import ParameterError
from deql.models.neural.network_model import NetworkModel, check_layers, check_temperature

if TYPE_CHECKING:
    from deql.models.neural import ssm_network
    from deql.models.neural.graph import BipartiteGraph
    from deql.models.neural.network import Network
else:
    ssm_network = lazy_module("deql.models.neural.ssm_network")

__all__ = ["SSM"]


@dataclass(eq=False, repr=False)
class SSM(NetworkModel):
    """Vectors of users and items, trained by a softmax of cosines over items of the batch (Wu et al., 2024).

    Training compares directions, over a temperature; ranking takes the products, in which the lengths of items' vectors
    count. With the backbone "lightgcn" the vectors are propagated as :class:`~deql.neural.LightGCN` does; with "mf",
    matrix factorisation, they are those that are trained. It needs torch.

    Parameters
    ----------
    epochs : int, default 25
        How often each interaction is seen, at most.
    batch_size : int, default 2048
        Interactions for each step.
    learning_rate : float, default 0.003
        Of Adam, at first; it falls to nothing along half a cosine over the epochs.
    weight_decay : float, default 1e-5
        What multiplies ½·‖e‖² of the trained vectors that a pair takes, in the loss.
    validate_every : int, default 1
        With validation data: how many epochs from one look at them to the next.
    backbone : {"lightgcn", "mf"}, default "lightgcn"
        Whether vectors are propagated.
    layers : int, default 1
        Steps of the propagation.
    temperature : float, default 0.12
        Of the softmax: the lower, the more the hardest negatives count.
    negatives : int, default 2048
        The items of so many pairs of the batch stand against each pair's own; of a smaller batch all.

    Examples
    --------
    >>> import deql
    >>> eaten = ["tea", "jam", "tea", "jam", "egg", "rye", "egg", "rye"]
    >>> data = deql.Interactions.from_pairs(list("aabbccdd"), eaten)
    >>> model = deql.neural.SSM(rank=4, epochs=40, device="cpu").fit(data)
    >>> model.similar_items("egg", k=1)[0].tolist()
    ['rye']
    """

    epochs: int = 25
    batch_size: int = 2048
    learning_rate: float = 0.003
    weight_decay: float = 1e-5
    validate_every: int = 1
    backbone: str = "lightgcn"
    layers: int = 1
    temperature: float = 0.12
    negatives: int = 2048

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.backbone not in ("lightgcn", "mf"):
            raise ParameterError(f"backbone must be lightgcn or mf, got {self.backbone!r}", parameter="backbone")
        check_layers(self.layers)
        check_whole("negatives", self.negatives)
        check_temperature(self.temperature)

    @property
    def _display_name(self) -> str:
        return "SSM (MF)" if self.backbone == "mf" else "SSM (GNN)"

    def _network(self, graph: BipartiteGraph) -> Network:
        layers = 0 if self.backbone == "mf" else self.layers
        return ssm_network.SSMNetwork(graph, layers, float(self.temperature), self.negatives, float(self.weight_decay))

    def _step_bytes(self, vertices: int, batch: int) -> int:
        # The exponentials, which their gradient takes again, and what is multiplied with them.
        return 4 * 2 * batch * min(batch, self.negatives)
