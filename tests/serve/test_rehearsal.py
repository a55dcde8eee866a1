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
from deql.serve.schemas import OWN_RULE, RuleOverrides
from deql.serve.serving_model import Query, ServingModel


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
    for name in ("_MOST_COLUMNS", "_SOME_COLUMNS"):
        monkeypatch.setattr(rehearsal, name, 10)
    rehearse(ServingModel(deql.EASE(l2=1.0).fit(data)))


@pytest.mark.parametrize("prior", [None, deql.priors.LowPass(4)])
def test_models_of_some_entries_of_p_are_served(data, prior, tmp_path):
    deql.EDLAE(l2=2.0, prior=prior, engine=deql.engines.Neighbours(k=5)).fit(data).save(tmp_path / "model.deql")
    model = deql.load(tmp_path / "model.deql")
    serving = ServingModel(model)
    rehearse(serving)
    for rule in (OWN_RULE, RuleOverrides(b=2.0)):
        [ranked] = serving.rank([Query([3, 17], [1.0, 1.0], 7, rule=rule)])
        expected = (model if rule is OWN_RULE else model.with_rule(b=2.0)).recommend([[3, 17]], k=7)
        assert ranked.columns == expected.ids[0].tolist()
        assert ranked.scores == expected.scores[0].tolist()
