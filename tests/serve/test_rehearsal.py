"""A model that answers nonsense is found out before it is served; one that does not is served, whatever its kind."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

pytest.importorskip("fastapi", reason="the service needs the extra serve")

import deql
from deql.errors import ModelFileError
from deql.serve import rehearsal
from deql.serve.rehearsal import rehearse
from deql.serve.serving_model import ServingModel


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(5)
    return deql.Interactions.from_csr(csr_array((generator.random((200, 40)) < 0.1).astype(np.float32)))


@pytest.mark.parametrize("kind", ["EASE", "DEQL", "RDLAE", "Popularity", "SLIM", "LowRankDEQL"])
def test_models_that_are_fitted_may_be_served(data, kind):
    rehearse(ServingModel(getattr(deql, kind)().fit(data)))


def test_few_items(toy):
    rehearse(ServingModel(deql.EASE(l2=1.0).fit(toy)))


def _nan_gain(model):
    model.gain_[7] = np.nan


def _infinite_shift(model):
    model.shift_[7] = np.inf


def _other_rows(model):
    """Rows in a file that are not those of its P."""
    order = np.random.default_rng(0).permutation(len(model.items_))
    model.quantized_rows_.codes[:] = model.quantized_rows_.codes[order]


@pytest.mark.parametrize("fault", [_nan_gain, _infinite_shift, _other_rows])
def test_models_that_answer_nonsense_are_refused(data, fault):
    model = deql.EASE(l2=1.0).fit(data).quantize_rows()
    rehearse(ServingModel(model))
    fault(model)
    with pytest.raises(ModelFileError, match="asked before it is served, the model gives"):
        rehearse(ServingModel(model))


def test_wrong_scores_are_found(data, monkeypatch):
    served = ServingModel(deql.EASE(l2=1.0).fit(data))
    rank = served.rank
    monkeypatch.setattr(
        served, "rank", lambda queries: [one._replace(scores=[2 * s for s in one.scores]) for one in rank(queries)]
    )
    with pytest.raises(ModelFileError, match="that should be"):
        rehearse(served)


def test_of_many_items_some_are_looked_at(data, monkeypatch):
    monkeypatch.setattr(rehearsal, "_MOST_COLUMNS", 10)
    rehearse(ServingModel(deql.EASE(l2=1.0).fit(data)))
