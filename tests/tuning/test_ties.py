"""Of models on one inverse that are tied with the best the simplest wins, and the words say so."""

import json

import pytest

import deql
from deql.errors import JournalError
from tests.tuning.common import findings, market, parameters_of, separate, simplest_tied

SPACE = {
    "l2": [2, 20],
    "dropout": [0.3, 0.6],
    "user_power": [0, 0.5],
    "b": [0, 0.5, 1, 2],
    "popularity_power": [0, 0.1],
    "prior": None,
}


@pytest.fixture(scope="module")
def split():
    return deql.split_strong(market(200, 30, seed=6), 0.1, 0.4)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("metric", ["ndcg@20", "mse"])
def test_the_winner_is_what_separate_fits_say(seed, metric):
    split = deql.split_strong(market(120, 20, seed=seed), 0.1, 0.4)
    tuning = deql.tune(split, SPACE, metric, search="grid", dtype="float64")
    rows = separate(SPACE, split.train, split.validation, [metric], "float64")
    assert parameters_of(tuning.best) == parameters_of(simplest_tied(rows, metric))
    assert tuning.model.get_params()["b"] == tuning.best["b"]
    if tuning.tie is not None:
        assert parameters_of(tuning.tie.parameters) == parameters_of(rows[0])
        assert 0 <= tuning.tie.difference < max(tuning.tie.error, 0.00005)


def test_a_tie_is_told_and_kept(split, tmp_path):
    tuning = deql.tune(split, SPACE, journal=tmp_path / "j")
    assert tuning.tie is not None
    assert any(note.endswith("the simpler model was taken.") for note in tuning.notes)
    assert "none above 0 did better" not in tuning.sentence
    assert findings(deql.tune(split, SPACE, journal=tmp_path / "j")) == findings(tuning)


@pytest.mark.parametrize(
    "change",
    [
        lambda end: end["best"].update(b=77.0),
        lambda end: end.pop("best"),
        lambda end: end["tie"].update(error="wide"),
        lambda end: end["tie"].pop("error"),
        lambda end: end["baselines"].update(EASE=0.1),
    ],
)
def test_a_tie_that_makes_no_sense_is_not_believed(split, tmp_path, change):
    path = tmp_path / "j"
    deql.tune(split, SPACE, journal=path)
    *lines, last = path.read_text().splitlines()
    end = json.loads(last)
    change(end)
    path.write_text("\n".join([*lines, json.dumps(end)]) + "\n")
    with pytest.raises(JournalError, match=r"the last step of .* is damaged"):
        deql.tune(split, SPACE, journal=path)
