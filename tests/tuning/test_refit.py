"""What the winner is fitted on in the end."""

import numpy as np
import pytest

import deql
from deql.errors import ParameterError
from deql.tuning.tuning_data import all_interactions
from tests.tuning.common import SMALL, findings, market


def cells(data):
    """{(user, item): value} of each interaction."""
    rows = np.repeat(np.arange(data.n_users), np.diff(data.matrix.indptr))
    keys = zip(data.users[rows].tolist(), data.items[data.matrix.indices].tolist(), strict=True)
    return dict(zip(keys, data.matrix.data.tolist(), strict=True))


@pytest.mark.parametrize("make", [deql.split_strong, deql.split_weak])
def test_all_of_a_split_is_what_was_split(make):
    data = market(160, 24, seed=3, weighted=True)
    split = make(data)
    assert not any(split.dropped.values())
    whole = all_interactions(split)
    assert cells(whole) == cells(data)
    assert whole.items.tolist() == split.train.items.tolist()


def test_titles_stay():
    data = deql.datasets.debian().take_users(slice(0, 400)).without_empty()
    titled = deql.Interactions(
        data.matrix, data.users, data.items, titles=np.array([f"no. {one}" for one in data.items])
    )
    split = deql.split_strong(titled)
    assert all_interactions(split).titles.tolist() == split.train.titles.tolist()


def test_the_winner_is_fitted_on_everything(tmp_path):
    split = deql.split_strong(market(160, 24, seed=3), 0.2, 0.3)
    plain = deql.tune(split, SMALL, journal=tmp_path / "j")
    tuning = deql.tune(split, SMALL, refit="all", journal=tmp_path / "j")  # the same search
    assert tuning.best == plain.best
    assert tuning.table.equals(plain.table)
    assert tuning.model.get_params() == plain.model.get_params()
    assert (plain.model.n_users_, tuning.model.n_users_) == (split.train.n_users, 160)
    expected = type(tuning.model)(**tuning.model.get_params()).fit(all_interactions(split))
    np.testing.assert_array_equal(tuning.model.weights(), expected.weights())


def test_or_on_what_is_given():
    data = market(160, 24, seed=3)
    tuning = deql.tune(deql.split_strong(data), SMALL, refit=data.matrix)
    np.testing.assert_array_equal(
        tuning.model.weights(), type(tuning.model)(**tuning.model.get_params()).fit(data).weights()
    )


def test_data_that_are_not_split_are_fitted_whole_in_any_case():
    data = market(160, 24, seed=3)
    assert findings(deql.tune(data, SMALL, refit="all")) == findings(deql.tune(data, SMALL))


def test_nonsense():
    with pytest.raises(ParameterError, match="refit must be 'train', 'all' or interactions, got 'some'"):
        deql.tune(market(), SMALL, refit="some")
