"""Tables of new users where what is held out was expected: a fifth of each one's items is to be found."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import deql
from deql.errors import DataError, ParameterError
from deql.split.new_users import hold_out_items
from tests.models.contract import interactions

KNOWN, OTHERS = interactions(), interactions(users=50, seed=3)


@pytest.fixture(scope="module")
def model():
    return deql.EASE(2.0).fit(KNOWN)


def test_a_fifth_of_each_user_is_to_be_found(model):
    part = hold_out_items(OTHERS)
    sizes = np.diff(OTHERS.matrix.indptr)
    assert part.seen.users.tolist() == OTHERS.users[sizes > 1].tolist()
    expected = np.clip(np.round(0.2 * sizes[sizes > 1]), 1, None)
    assert np.diff(part.held_out.matrix.indptr).tolist() == expected.tolist()
    whole = (part.seen.matrix + part.held_out.matrix) != OTHERS.matrix[sizes > 1]
    assert whole.nnz == 0


def test_interactions_matrices_and_frames_are_evaluated_alike(model):
    expected = deql.evaluate(model, hold_out_items(OTHERS))
    for table in (OTHERS, OTHERS.matrix, OTHERS.matrix.toarray()):
        assert deql.evaluate(model, table).means == expected.means
    assert deql.evaluate([model, model], OTHERS)[1].means == expected.means
    frame = OTHERS.to_frame()
    expected = deql.evaluate(model, hold_out_items(deql.read_interactions(frame, "user", "item")))
    for table in (frame, frame.lazy(), pd.DataFrame(frame.to_dicts())):
        with pytest.warns(UserWarning, match="every row of the frame counts 1"):
            assert deql.evaluate(model, table).means == expected.means


def test_the_data_of_the_fit_are_warned_of(model):
    with pytest.warns(UserWarning, match="look like the data that the model was fitted on") as caught:
        deql.evaluate(model, KNOWN)
    assert caught[0].filename == __file__


def test_what_is_no_table_is_refused(model):
    for target in (None, "test", 3, [["item 1"]]):
        with pytest.raises(ParameterError, match="or what is held out, such as"):
            deql.evaluate(model, target)


def test_nobody_with_two_items(model):
    with pytest.raises(DataError, match="no user has two items"):
        deql.evaluate(model, np.eye(12))


FRAME = pl.DataFrame(interactions(users=60).to_frame()).with_columns(pl.int_range(pl.len()).alias("timestamp"))


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_splits_searches_and_comparisons_take_frames(kind, capsys):
    frame = FRAME if kind == "polars" else pd.DataFrame(FRAME.to_dicts())
    data = deql.read_interactions(FRAME, "user", "item", time="timestamp")
    for make in (deql.split_strong, deql.split_weak, deql.split_leave_last):
        found, expected = make(frame), make(data)
        assert found.describe() == expected.describe()
        assert (found.test.held_out.matrix != expected.test.held_out.matrix).nnz == 0
    space = {"l2": [2, 20], "dropout": 0.3, "user_power": 0, "b": [0], "popularity_power": 0, "prior": None}
    assert deql.tune(frame, space).best == deql.tune(data, space).best
    models = [deql.Popularity(), deql.EASE(2.0)]
    assert deql.compare(models, frame, splits=2).means == deql.compare(models, data, splits=2).means
    assert deql.clean(frame, k_core=2).n_users == deql.clean(data, k_core=2).n_users
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "deql: the frame: user = user, item = item; not used: weight, title, timestamp"
    assert "time = timestamp" in told[2]
