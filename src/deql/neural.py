"""Networks on the graph of users and items, trained by gradient descent: the paper's other side. See docs/networks.md.

They need torch (the extra ``neural``), and have the same verbs as every other model.

>>> from deql.neural import LightGCN
>>> LightGCN(layers=2).set_params(epochs=200).epochs
200
"""

from deql.models.neural.lightgcn import LightGCN
from deql.models.neural.sgl import SGL
from deql.models.neural.ssm import SSM

__all__ = ["SGL", "SSM", "LightGCN"]
