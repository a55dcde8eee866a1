"""Data given back to a model that did not keep them, in any order, if they are its own."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import deql
from deql.errors import DataError, NotFittedError
from deql.priors import ItemFeatures
from tests.models.contract import interactions
from tests.models.test_kept_data import saved

DATA = replace(interactions(), users=np.arange(80))
ITEMS = np.array([f"item {column}" for column in range(DATA.n_items)], object)
NAMED = replace(DATA, items=ITEMS, times=np.arange(DATA.n_interactions, dtype=float))


def shuffled(data, seed):
    """The same interactions with users and items in another order."""
    generator = np.random.default_rng(seed)
    rows, columns = generator.permutation(data.n_users), generator.permutation(data.n_items)
    own = data.matrix
    places = csr_array((np.arange(1, own.nnz + 1), own.indices, own.indptr), own.shape)
    moved = csr_array(places[rows][:, columns])
    moved.sort_indices()
    order = moved.data - 1
    matrix = csr_array((own.data[order], moved.indices, moved.indptr), moved.shape)
    times = None if data.times is None else data.times[order]
    return deql.Interactions(matrix, data.users[rows], data.items[columns], times)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 1000), st.sampled_from([0.0, 0.7]), st.sampled_from(["float32", "float64"]), st.booleans(),
)  # fmt: skip
def test_they_are_put_in_the_order_of_the_model(seed, user_power, dtype, hash_users):
    model = deql.EDLAE(l2=2.0, dropout=0.3, user_power=user_power, dtype=dtype).fit(NAMED)
    assert model.attach_data(shuffled(NAMED, seed), hash_users=hash_users) is model
    users = NAMED.users[[7, 3]]
    rows = [model.data_.user_index[key] for key in model._user_keys(users.tolist()).tolist()]
    found, expected = model.data_.take_users(np.array(rows)), NAMED.take_users(np.array([7, 3]))
    assert found.matrix.toarray().tolist() == expected.matrix.toarray().tolist()
    assert found.times.tolist() == expected.times.tolist()
    assert found.items.tolist() == ITEMS.tolist()
    assert (model.user_salt_ is not None) == hash_users


def test_a_loaded_model_is_updatable_with_them(tmp_path):
    model = saved(deql.DEQL(l2=2.0, dropout=0.3, b=0.5, dtype="float64").fit(NAMED), tmp_path)
    model = saved(model.attach_data(shuffled(NAMED, 1)), tmp_path)
    model.update(forget_users=[5], method="low rank")
    refit = deql.DEQL(l2=2.0, dropout=0.3, b=0.5, dtype="float64").fit(NAMED[np.arange(80) != 5])
    assert np.allclose(model.weights(), refit.weights(), atol=1e-8)


@pytest.mark.parametrize("hash_users", [False, True])
def test_of_a_model_with_a_half_life_their_times_count(tmp_path, hash_users):
    model = saved(deql.EASE(l2=2.0, half_life=100.0, user_power=0.5).fit(NAMED), tmp_path)
    with pytest.raises(DataError, match="the squared weights of item"):
        model.attach_data(replace(NAMED, times=NAMED.times[::-1]))
    model = saved(model.attach_data(shuffled(NAMED, 3), hash_users=hash_users), tmp_path)
    model.age(until=500.0)
    assert model.recommend(users=[3], k=2).users.tolist() == [3]
    assert (model.user_salt_ is not None) == hash_users
    faded = NAMED.matrix.data * 2 ** ((NAMED.times - 500.0) / 100.0)
    by_hand = csr_array((faded, NAMED.matrix.indices, NAMED.matrix.indptr), NAMED.matrix.shape)
    refit = deql.EASE(l2=2.0, user_power=0.5).fit(replace(NAMED, matrix=by_hand))
    assert np.allclose(model.weights(), refit.weights(), atol=1e-5)


def test_items_that_a_prior_knows_may_be_missing():
    kinds = {item: {"kind": "ab"[place % 2]} for place, item in enumerate([*ITEMS.tolist(), "cold"])}
    model = deql.EASE(l2=2.0, prior=ItemFeatures(kinds)).fit(NAMED)
    assert model.attach_data(shuffled(NAMED, 2)).data_.n_items == DATA.n_items + 1


def test_numbers_and_text_of_items_are_the_same():
    model = deql.EASE(l2=2.0).fit(replace(DATA, items=np.arange(DATA.n_items)))
    as_text = replace(DATA, items=np.array([str(column) for column in range(DATA.n_items)], object))
    assert model.attach_data(as_text).data_.items.dtype == np.int64


def exchanged(matrix):
    """Two users with an item of each exchanged: all items have as many users as before."""
    dense = matrix.toarray()
    one, other = (np.flatnonzero((dense[:, column] > 0) & (dense[:, 1 - column] == 0))[0] for column in (0, 1))
    dense[[one, other], :2] = dense[[other, one], :2]
    return dense


def without(data, user, item):
    mask = np.ones(data.n_interactions, bool)
    column = data.item_index[item]
    begin, end = data.matrix.indptr[user : user + 2]
    mask[begin:end][data.matrix.indices[begin:end] == column] = False
    return data.keep(mask)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: without(data, 0, data.history(0)[0]),
         r"^item 'item \d+' has \d+ users here and \d+ in the model: "),
        (lambda data: replace(data, items=np.array([*ITEMS[:-1], "new"], object)),
         r"^item 'new' has \d+ users here and is not in the model: "),
        (lambda data: replace(data, matrix=data.matrix * 2),
         r"^the squared weights of item 'item 0' sum to \d+ here and to \d+ in the model"),
        (lambda data: deql.Interactions(csr_array(np.vstack([data.matrix.toarray(), np.zeros((1, data.n_items))])),
                                        np.arange(81), data.items),
         "^there are 81 users here and 80 in the model: "),
        (lambda data: replace(data, matrix=csr_array(exchanged(data.matrix))),
         r"have as many users here .* not the same"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kept", [False, True])
def test_others_are_refused_and_change_nothing(change, said, kept):
    binary = replace(DATA, items=ITEMS, matrix=csr_array((DATA.matrix.toarray() != 0).astype(np.float32)))
    model = deql.EASE(l2=2.0).fit(binary, keep_data=kept)
    with pytest.raises(DataError, match=said) as refused:
        model.attach_data(change(binary))
    assert str(refused.value).endswith("give the table that it was fitted on, cleaned the same way")
    assert (model.data_ is binary) == kept


def test_weights_of_another_sign_are_refused():
    model = deql.EASE(l2=2.0).fit(NAMED)
    signs = np.where(np.arange(NAMED.n_interactions) % 3, 1.0, -1.0)
    other = csr_array((NAMED.matrix.data * signs, NAMED.matrix.indices, NAMED.matrix.indptr), NAMED.matrix.shape)
    with pytest.raises(DataError, match="not the same"):
        model.attach_data(replace(NAMED, matrix=other))


def test_a_model_must_be_fitted():
    with pytest.raises(NotFittedError):
        deql.EASE().attach_data(DATA)


def test_what_cannot_be_done_without_them_says_so():
    model = deql.EASE(l2=2.0).fit(DATA)
    with pytest.raises(deql.errors.ParameterError, match="cannot forget users: it does not have its data"):
        model.update(forget_users=[3])


def test_a_model_that_names_nobody_goes_on_to_name_nobody():
    model = deql.EASE(l2=2.0).fit(NAMED, keep_data="hashed")
    salt = model.user_salt_
    model.attach_data(shuffled(NAMED, 1))
    assert model.user_salt_ not in (None, salt)
    assert model.recommend(users=[3], k=2).users.tolist() == [3]
