"""EASE, LAE, DLAE, EDLAE, RLAE, RDLAE and DEQL: the same P, one rule each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deql._system.checks import check_range, check_switch
from deql.errors import ParameterError
from deql.models.linear import LinearAutoencoder
from deql.models.rule_model import RuleModel
from deql.rules import decoupled, relaxed, ridge_of_gram

__all__ = ["DEQL", "DLAE", "EASE", "EDLAE", "LAE", "RDLAE", "RLAE"]

Vectors = tuple[NDArray[np.float64], NDArray[np.float64]]


class _Decoupled(LinearAutoencoder):
    """Models that minimise the DEQL loss for some b, with or without a zero diagonal."""

    def _rule(self, precision_diagonal: NDArray[np.float64]) -> Vectors:
        return decoupled(
            precision_diagonal, self.gram_diagonal_, l2=self._ridge, dropout=self._dropped,
            b=self._kept_weight, zero_diagonal=self._zero_diagonal, prior=self._prior_diagonals(),
        )  # fmt: skip


@dataclass(eq=False, repr=False)
class EASE(_Decoupled):
    """Ridge regression of each item on the others: W_ji = −P_ji/P_ii, W_ii = 0 (eq. 1 of the paper).

    Parameters
    ----------
    l2 : float, default 250
        Ridge: what is added to the diagonal of the Gram matrix. More of it trusts rare items less.

    Examples
    --------
    >>> import numpy as np, deql
    >>> from scipy.sparse import csr_array
    >>> R = csr_array(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]))
    >>> deql.EASE(l2=1.0).fit(R).weights().round(3)
    array([[0. , 0.5, 0. ],
           [0.5, 0. , 0.5],
           [0. , 0.5, 0. ]], dtype=float32)
    """

    l2: float = 250.0

    @property
    def _zero_diagonal(self) -> bool:
        return True


@dataclass(eq=False, repr=False)
class LAE(_Decoupled):
    """Ridge regression of every item on all items, itself included: W = P·S.

    Parameters
    ----------
    l2 : float, default 250
        Ridge: what is added to the diagonal of the Gram matrix. More of it trusts rare items less.

    Examples
    --------
    >>> import numpy as np, deql
    >>> from scipy.sparse import csr_array
    >>> R = csr_array(np.array([[1.0, 1.0], [0.0, 1.0]]))
    >>> deql.LAE(l2=1.0).fit(R).weights().round(3)
    array([[0.4, 0.2],
           [0.2, 0.6]], dtype=float32)
    """

    l2: float = 250.0


@dataclass(eq=False, repr=False)
class DLAE(_Decoupled):
    """Denoising: the input loses a share of its entries, all of it is to be restored (a = b).

    Parameters
    ----------
    l2 : float, default 60
        Ridge as the Gram matrix sees it: what is added to its diagonal, λ/((1−p)²·κ) of the paper's λ.
    dropout : float, default 0.3
        Share of a user's items that training hides, from 0 to below 1; p in the paper.

    Examples
    --------
    >>> import numpy as np, deql
    >>> from scipy.sparse import csr_array
    >>> R = csr_array(np.array([[1.0, 1.0], [0.0, 1.0]]))
    >>> deql.DLAE(l2=1.0, dropout=0.5).fit(R).weights().round(3)
    array([[0.571, 0.429],
           [0.286, 0.714]], dtype=float32)
    """

    l2: float = 60.0
    dropout: float = 0.3


@dataclass(eq=False, repr=False)
class EDLAE(_Decoupled):
    """Emphasised denoising: only dropped entries count, and the diagonal is zero (b = 0; eq. 4 of the paper).

    Parameters
    ----------
    l2 : float, default 60
        Ridge as the Gram matrix sees it: what is added to its diagonal, λ/((1−p)²·κ) of the paper's λ.
    dropout : float, default 0.3
        Share of a user's items that training hides, from 0 to below 1; p in the paper.

    Examples
    --------
    >>> import numpy as np, deql
    >>> from scipy.sparse import csr_array
    >>> R = csr_array(np.array([[1.0, 1.0], [0.0, 1.0]]))
    >>> deql.EDLAE(l2=1.0, dropout=0.5).fit(R).weights().round(3)
    array([[0.   , 0.667],
           [0.4  , 0.   ]], dtype=float32)
    """

    l2: float = 60.0
    dropout: float = 0.3

    @property
    def _kept_weight(self) -> float:
        return 0.0


class _Relaxed(LinearAutoencoder):
    """Models whose diagonal may not pass a bound."""

    xi: float

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_range("xi", self.xi, 0.0, 1.0)

    def _rule(self, precision_diagonal: NDArray[np.float64]) -> Vectors:
        return relaxed(
            precision_diagonal, self.gram_diagonal_, l2=self._ridge, dropout=self._dropped, xi=self.xi,
            prior=self._prior_diagonals(),
        )  # fmt: skip


@dataclass(eq=False, repr=False)
class RLAE(_Relaxed):
    """LAE with a bounded diagonal, W_ii ≤ ξ: ξ = 0 is EASE, ξ = 1 is LAE.

    Parameters
    ----------
    l2 : float, default 250
        Ridge: what is added to the diagonal of the Gram matrix. More of it trusts rare items less.
    xi : float, default 0.1
        How much an item may speak for itself: the bound ξ of the diagonal, from 0 to 1.

    Examples
    --------
    >>> import numpy as np, deql
    >>> from scipy.sparse import csr_array
    >>> R = csr_array(np.array([[1.0, 1.0], [0.0, 1.0]]))
    >>> deql.RLAE(l2=1.0, xi=0.5).fit(R).diagonal().round(3)
    array([0.4, 0.5])
    """

    l2: float = 250.0
    xi: float = 0.1


@dataclass(eq=False, repr=False)
class RDLAE(_Relaxed):
    """DLAE with a bounded diagonal, (1−p)·W_ii ≤ ξ: ξ = 0 is EDLAE, ξ = 1 is DLAE.

    Parameters
    ----------
    l2 : float, default 60
        Ridge as the Gram matrix sees it: what is added to its diagonal, λ/((1−p)²·κ) of the paper's λ.
    dropout : float, default 0.3
        Share of a user's items that training hides, from 0 to below 1; p in the paper.
    xi : float, default 0.1
        How much an item may speak for itself: the bound ξ of the diagonal, from 0 to 1, for weights of inputs that
        are not rescaled after dropout.

    Examples
    --------
    >>> import numpy as np, deql
    >>> from scipy.sparse import csr_array
    >>> R = csr_array(np.array([[1.0, 1.0], [0.0, 1.0]]))
    >>> deql.RDLAE(l2=1.0, dropout=0.5, xi=0.3).fit(R).diagonal().round(3)
    array([0.571, 0.6  ])
    """

    l2: float = 60.0
    dropout: float = 0.3
    xi: float = 0.1


@dataclass(eq=False, repr=False)
class DEQL(_Decoupled):
    """The paper's model: any emphasis b on kept entries relative to dropped ones, b > 1 included.

    Some of each user's items are dropped from the input, and all are to be restored: errors at dropped items weigh a,
    those at kept ones b (eq. 5 of the paper, with the ridge of eq. 14). With ``l2=0`` it is the paper's DEQL(plain),
    with a ridge DEQL(L2), and with ``zero_diagonal=True`` DEQL(L2 + zero-diag), which is EDLAE at the same l2.

    Parameters
    ----------
    l2 : float, default 60
        Ridge as the Gram matrix sees it: what is added to its diagonal, λ/((1−p)²·κ) of the paper's λ, with
        κ = p·a² + (1−p)·b². At a fixed l2 only the ratio of b to a matters.
    dropout : float, default 0.3
        Share of a user's items that training hides, from 0 to below 1; p in the paper.
    b : float, default 0.5
        How much errors at kept items weigh beside those at dropped ones, b/a in the paper. 0 is EDLAE, 1 is DLAE,
        infinity stands for a = 0.
    zero_diagonal : bool, default False
        No item may speak for itself: the diagonal of W is constrained to zero (eq. 15, solved by eq. 17).

    Examples
    --------
    >>> import numpy as np, deql
    >>> from scipy.sparse import csr_array
    >>> R = csr_array(np.array([[1.0, 1.0], [0.0, 1.0]]))
    >>> model = deql.DEQL(l2=1.0, dropout=0.5, b=2.0).fit(R)
    >>> model.weights().round(3)
    array([[0.694, 0.232],
           [0.178, 0.815]], dtype=float32)
    >>> model.with_rule(b=0.0).weights().round(3)
    array([[0.   , 0.667],
           [0.4  , 0.   ]], dtype=float32)
    """

    l2: float = 60.0
    dropout: float = 0.3
    b: float = 0.5
    zero_diagonal: bool = False

    @classmethod
    def from_paper(
        cls, lam: float, p: float, a: float = 1.0, b: float = 1.0, zero_diagonal: bool = False, **other: Any
    ) -> DEQL:
        """The model for the paper's own parameters λ, p, a and b.

        Examples
        --------
        >>> import deql
        >>> deql.DEQL.from_paper(lam=10.0, p=0.5, a=2.0, b=1.0).get_params()["l2"]
        16.0
        """
        check_range("lam", lam, 0.0, np.inf)
        check_range("p", p, 0.0, 1.0, below=True)
        check_range("a", a, 0.0, np.inf)
        check_range("b", b, 0.0, np.inf)
        if np.isinf(b):
            raise ParameterError(
                "b must be finite in the paper's terms: for kept entries alone say a=0, b=1", parameter="b"
            )
        if p * a**2 + (1 - p) * b**2 == 0:
            raise ParameterError(
                f"the loss is empty at p={p:g}, a={a:g}, b={b:g}: neither dropped nor kept entries count"
            )
        ratio = b / a if a > 0 else np.inf
        return cls(ridge_of_gram(lam, p, a, b), p, ratio, zero_diagonal, **other)

    @property
    def _kept_weight(self) -> float:
        return float(self.b)

    @property
    def _zero_diagonal(self) -> bool:
        return bool(self.zero_diagonal)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_range("b", self.b, 0.0, np.inf)
        check_switch("zero_diagonal", self.zero_diagonal)


RuleModel._rule_kinds = (DEQL, RDLAE)
