"""k-fold: every user is tested exactly once, and never learned from in that split."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import deql
from deql import DataError, ParameterError
from tests.data.reading import put
from tests.split.common import cells, fingerprint, tables


@given(tables(min_users=8), st.integers(2, 5), st.sampled_from([0, 0.2]), st.integers(0, 5))
def test_everyone_is_tested_once(data, folds, validation, seed):
    try:
        splits = list(deql.k_fold(data, folds, validation, seed=seed))
    except DataError:
        assume(False)
    tested, whole = [], cells(data)
    for number, split in enumerate(splits, start=1):
        users = split.test.seen.users.tolist()
        tested += users
        groups = [users, split.train.users.tolist()]
        groups += [split.validation.seen.users.tolist()] if validation else []
        assert len({user for group in groups for user in group}) == sum(map(len, groups)), "no user in two parts"
        known = {item for _, item, _ in cells(split.train)}
        assert split.train.items.tolist() == [item for item in data.items.tolist() if item in known]
        both = cells(split.test.seen) | cells(split.test.held_out)
        assert both == {cell for cell in whole if cell[0] in users and cell[1] in known}
        assert cells(split.train) == {cell for cell in whole if cell[0] in split.train.users}
        assert not cells(split.test.seen) & cells(split.test.held_out)
        assert (split.protocol, split.seed) == ("k-fold", seed)
        assert split.parameters == {"folds": folds, "fold": number, "validation_users": validation, "held_out": 0.2}
        left = data.n_users - split.train.n_users - sum(map(len, groups[:1] + groups[2:]))
        assert split.dropped["users"] == left
    assert len(tested) == len(set(tested))
    assert len(splits) == folds
    for user in set(data.users.tolist()) - set(tested):  # who has no two items that the others have
        known = [set(split.train.items.tolist()) for split in splits if user not in split.train.users.tolist()]
        assert min(len(items & {item for one, item, _ in whole if one == user}) for items in known) < 2


@pytest.fixture(scope="module")
def data():
    return deql.datasets.debian().take_users(slice(0, 501)).without_empty()


def test_is_the_same_for_ever(data):
    splits = list(deql.k_fold(data, 3, seed=7))
    assert [fingerprint(split) for split in splits] == [fingerprint(split) for split in deql.k_fold(data, 3, seed=7)]
    assert len({fingerprint(split) for split in splits}) == 3
    assert fingerprint(next(deql.k_fold(data, 3, seed=8))) != fingerprint(splits[0])
    assert fingerprint(splits[0])[:16] == "28add0ba22671aeb"
    validating = [set(split.validation.seen.users.tolist()) for split in splits]
    assert not set.intersection(*validating), "each fold has validation users of its own"


def test_saved_and_loaded(data, tmp_path):
    for split in deql.k_fold(data, 2):
        split.save(tmp_path / "a.split")
        again = deql.load_split(tmp_path / "a.split")
        assert fingerprint(again) == fingerprint(split)
        assert (again.parameters, again.protocol, again.seed) == (split.parameters, "k-fold", 0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"folds": 1}, ParameterError, "folds must be a whole number from 2 up, got 1"),
        ({"folds": 2.5}, ParameterError, "folds must be a whole number"),
        ({"seed": -1}, ParameterError, "seed must be"),
        ({"held_out": 1}, ParameterError, "held_out must be a share"),
        ({"validation_users": 0.9, "folds": 2}, DataError, "users cannot be split into 2 folds with"),
        ({"folds": 10_000}, DataError, "cannot be split into 10,000 folds"),
    ],
)
def test_wrong_options_are_said_before_the_first_split(data, options, error, message):
    with pytest.raises(error, match=message):
        deql.k_fold(data, **options)


def test_compare_takes_folds(data, tmp_path, capsys):
    from deql.cli import run

    models = [deql.Popularity(), deql.EASE(10.0)]
    found = deql.compare(models, data, 3, "ndcg@20", "k-fold", seed=2)
    expected = [
        deql.evaluate(deql.Popularity().fit(split.train), split.test, "ndcg@20").means["ndcg@20"]
        for split in deql.k_fold(data, 3, seed=2)
    ]
    np.testing.assert_array_equal(found.values["ndcg@20"][:, 0], expected)
    assert "(k-fold, seed 2, " in str(found)
    with pytest.raises(ParameterError, match="a k-fold split takes held_out, validation_users, not test"):
        deql.compare(models, data, 3, "ndcg@20", "k-fold", test=1)
    rows = "".join(f"u{user},i{item}\n" for user in range(12) for item in range(user % 3, 9, 2))
    path = put(tmp_path / "t.csv", f"user,item\n{rows}")
    assert run(["compare", str(path), "popularity", "ease:l2=1", "--protocol", "k-fold", "--splits", "3"]) == 0
    assert "over 3 splits (k-fold, seed 0" in capsys.readouterr().out
    assert run(["evaluate", str(path), "popularity", "--protocol", "k-fold"]) == 2
