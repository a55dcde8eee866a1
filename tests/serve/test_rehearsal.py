"""A model that answers nonsense is found out before it is served; others are served, whatever their kind."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

pytest.importorskip("fastapi", reason="the service needs the extra serve")

import deql
from deql.errors import ModelFileError
from deql.ranking.quantised import QuantisedRows
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


def _other_rows(model):
    """Rows in a file that are not those of its P."""
    order = np.random.default_rng(0).permutation(len(model.items_))
    rows = model.quantized_rows_
    model.quantized_rows_ = QuantisedRows(model.precision_, rows.codes[order], rows.steps)


@pytest.mark.parametrize("fault", [_nan_gain, _other_rows])
def test_models_that_answer_nonsense_are_refused(data, fault):
    model = deql.EASE(l2=1.0).fit(data).quantize_rows()
    rehearse(ServingModel(model))
    fault(model)
    with pytest.raises(ModelFileError, match="asked before it is served, the model gives"):
        rehearse(ServingModel(model))


def test_wrong_scores_are_found(data, monkeypatch):
    served = ServingModel(deql.EASE(l2=1.0).fit(data))
    rank = served.rank

    def doubled(queries):
        return [one._replace(scores=[2 * score for score in one.scores]) for one in rank(queries)]

    monkeypatch.setattr(served, "rank", doubled)
    with pytest.raises(ModelFileError, match="that should be"):
        rehearse(served)


def test_of_many_items_some_are_looked_at(data, monkeypatch):
    monkeypatch.setattr(rehearsal, "_MOST_COLUMNS", 10)
    rehearse(ServingModel(deql.EASE(l2=1.0).fit(data)))
