"""Hyper-parameters far out of all that makes sense: an error of ours, or weights that are finite."""

import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array

import deql

VALUES = [
    10**400,
    -(10**400),
    10**5000,
    np.inf,
    np.nan,
    1e308,
    -1e308,
    3e38,
    5e-324,
    50,
    -50,
    300,
    -300,
    True,
    "1",
    None,
]
PARAMETERS = {
    deql.EASE: ["l2", "user_power", "popularity_power"],
    deql.DEQL: ["l2", "dropout", "b", "user_power", "popularity_power", "zero_diagonal"],
    deql.RDLAE: ["xi", "popularity_power"],
    deql.LowRankDEQL: ["rank", "l2", "dropout", "user_power", "popularity_power", "tolerance"],
    deql.SLIM: ["l1", "l2", "user_power", "popularity_power", "tolerance", "max_sweeps"],
    deql.CustomLinear: ["popularity_power"],
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in PARAMETERS.items() for name in names])
def test_no_weight_is_infinite(random_matrix, kind, name):
    matrix = random_matrix(60, 15)
    given = {"W": np.ones((15, 15))} if kind is deql.CustomLinear else {}
    refused = 0
    for value in VALUES:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = kind(**given, **{name: value}).fit(matrix)
        except deql.DeqlError:
            refused += 1
        else:
            assert np.isfinite(model.weights()).all()
            assert np.isfinite(model.recommend([[1, 2]], k=3).scores).all()
    assert refused


@pytest.mark.parametrize("power", [-50, -300, 10**400])
def test_nor_by_another_rule(random_matrix, power):
    model = deql.EASE(1.0).fit(random_matrix(60, 15))
    with pytest.raises(deql.ParameterError, match="popularity_power"):
        model.with_rule(popularity_power=power)


def test_a_ridge_too_large_is_named():
    matrix = np.eye(3)
    for dtype, l2 in (("float32", 10**400), ("float64", 10**400), ("float32", 1e39)):
        with pytest.raises(deql.DeqlError, match="l2"):
            deql.EASE(l2, dtype=dtype).fit(csr_array(matrix))
