"""Priors as a model file describes them."""

import numpy as np
import pytest

from deql.errors import ParameterError
from deql.priors import LowPass, Matrix
from deql.priors.saved import prior_from_config


def test_what_its_parameters_make_is_made_again():
    prior = LowPass(rank=7, power_in=0.2)
    assert prior_from_config(prior.config) == prior


def test_of_anything_else_the_description_stays(toy):
    saved = prior_from_config(Matrix(np.eye(2)).config)
    assert saved.config == {"prior": "matrix"}
    assert saved == prior_from_config(saved.config)
    assert hash(saved) == hash(prior_from_config(saved.config))
    for ask in (saved.with_items, saved.weights):
        with pytest.raises(ParameterError, match="give prior=… again"):
            ask(toy)


@pytest.mark.parametrize("config", ["lowpass", None, [], {}, {"rank": 3}, {"prior": "lowpass", "rank": 0}])
def test_what_is_none_is_refused(config):
    with pytest.raises((ValueError, TypeError, KeyError)):
        prior_from_config(config)
