import numpy as np
import pytest

import deql
from deql import DEQL, DLAE, EASE, EDLAE, LAE, RDLAE, RLAE, Interactions, Popularity
from deql.errors import ParameterError
from deql.evaluation.model_groups import describe, fit_and_evaluate, name_models, parameters
from deql.models.linear import LinearAutoencoder

METRICS = ["recall@5", "ndcg@5"]


@pytest.fixture(scope="module")
def split(random_matrix):
    return deql.split_strong(Interactions.from_csr(random_matrix(200, 40)), 0.3, 0.1, held_out=0.4, seed=1)


def test_names_say_what_was_changed():
    models = [EASE(), EASE(80.0), DEQL(dropout=0.5, zero_diagonal=True, user_power=0.5), Popularity(), EASE(80.0)]
    expected = ["EASE", "EASE l2=80", "DEQL dropout=0.5 zero_diagonal user_power=0.5", "Popularity", "EASE l2=80 (2)"]
    assert list(name_models(models)) == expected
    assert list(name_models({"mine": EASE()})) == ["mine"]
    assert list(name_models(EASE(np.float64(7)))) == ["EASE l2=7"]
    assert describe(EASE(250.0), shown=["l2"]) == "EASE l2=250"


def test_parameters_are_plain():
    assert type(parameters(EASE(np.float32(7)))["l2"]) is float


@pytest.mark.parametrize(
    ("models", "message"),
    [([], "at least one"), ({}, "at least one"), (["ease"], "must be a model"), ([EASE(-1.0)], "l2 must be")],
)
def test_bad_models(models, message):
    with pytest.raises(ParameterError, match=message):
        name_models(models)


def test_sharing_an_inverse_changes_nothing(split, monkeypatch):
    models = name_models([
        EASE(5.0), DEQL(5.0, 0.3, 0.5), LAE(5.0), RLAE(5.0, 0.2), EDLAE(5.0, 0.3), DLAE(5.0, 0.3), Popularity(),
        RDLAE(5.0, 0.3, 0.2), EASE(5.0, popularity_power=0.4), EASE(5.0, user_power=0.5), EASE(5.0, dtype="float64"),
    ])  # fmt: skip
    alone = {
        name: deql.evaluate(type(m)(**m.get_params()).fit(split.train), split.test, METRICS)
        for name, m in models.items()
    }
    fits, told = [], []
    learn = LinearAutoencoder._learn
    monkeypatch.setattr(LinearAutoencoder, "_learn", lambda self, data: (fits.append(self), learn(self, data)))
    together = fit_and_evaluate(models, split.train, split.test, METRICS, told.append)
    assert len(fits) == 4  # (5, 0), (5, 0.3), the user weights, the dtype
    assert len(told) == 5
    assert list(together) == list(models)
    for name, result in together.items():
        for metric in METRICS:
            np.testing.assert_array_equal(result.per_user[metric], alone[name].per_user[metric])
    assert not any(hasattr(model, "items_") for model in models.values())
