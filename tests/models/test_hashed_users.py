"""Models that keep their users under salted hashes: found by id, in memory and in files, and named nowhere."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import deql
from deql.data.hashed_users import hash_users, hashed_interactions
from deql.errors import DataError, ModelFileError, ParameterError
from deql.io import container, model_file
from deql.models.updatable import describe_updatable
from deql.priors import ItemFeatures
from tests.models.contract import cases, interactions
from tests.models.test_kept_data import assert_same, saved

NAMES = [f"user-{i:02}" for i in range(80)][::-1]
DATA = replace(interactions(), users=np.array(NAMES, object))


@pytest.fixture(scope="module")
def hashed():
    return deql.EASE(l2=2.0).fit(DATA, keep_data="hashed")


@pytest.mark.parametrize("case", cases())
def test_every_model_finds_them_and_its_file_names_nobody(case, tmp_path):
    model = saved(case.make().fit(DATA, keep_data="hashed"), tmp_path)
    assert b"user-" not in (tmp_path / "model.deql").read_bytes()
    assert_same(model.data_, hashed_interactions(DATA, model.user_salt_))
    asked = [NAMES[3], NAMES[70]]
    found, expected = model.recommend(users=asked, k=2), model.recommend(DATA, users=asked, k=2)
    assert found.users.tolist() == asked
    assert found.ids.tolist() == expected.ids.tolist()
    again = saved(model, tmp_path)
    assert again.user_salt_ == model.user_salt_
    assert again.data_.users.tolist() == model.data_.users.tolist()


def test_learning_is_the_same(hashed):
    plain = deql.EASE(l2=2.0).fit(DATA)
    assert np.array_equal(plain.precision_.data, hashed.precision_.data)
    assert plain.user_salt_ is None


def test_two_models_have_nothing_in_common():
    users = [set(deql.Popularity().fit(DATA, keep_data="hashed").data_.users) for _ in range(2)]
    assert not users[0] & users[1]


def test_all_of_them_come_out_under_their_hashes(hashed, tmp_path):
    assert hashed.recommend(k=1).users.tolist() == hashed.data_.users.tolist()
    hashed.write_recommendations(tmp_path / "lists.csv", k=1)
    assert "user-" not in (tmp_path / "lists.csv").read_text()


def test_lists_and_scores_are_under_the_ids_that_were_asked_for(hashed, tmp_path):
    plain = deql.EASE(l2=2.0).fit(DATA, keep_data=True)
    asked = [NAMES[5], NAMES[2]]
    hashed.write_recommendations(tmp_path / "lists.csv", users=asked, k=2)
    plain.write_recommendations(tmp_path / "plain.csv", users=asked, k=2)
    assert (tmp_path / "lists.csv").read_bytes() == (tmp_path / "plain.csv").read_bytes()
    items = [DATA.items[:2].tolist(), DATA.items[3:4].tolist()]
    found, expected = (model.score_pairs(items=items, users=asked) for model in (hashed, plain))
    assert found.users.tolist() == asked
    assert [row.tolist() for row in found] == [row.tolist() for row in expected]
    pairs = pd.DataFrame({"user": asked, "item": DATA.items[[0, 4]]})
    assert hashed.score_pairs(items=pairs).equals(plain.score_pairs(items=pairs))
    # Histories of one's own have ids of their own.
    assert hashed.score_pairs(DATA, pairs).equals(plain.score_pairs(DATA, pairs))


@pytest.mark.parametrize("given", [[7, 3], ["7", "3"], [7.0, 3.0]])
def test_numbers_are_found_as_whatever_they_are_given(given):
    data = deql.Interactions.from_csr(DATA.matrix, items=DATA.items)
    model = deql.EASE(l2=2.0).fit(data, keep_data="hashed")
    found = model.recommend(users=given, k=2)
    assert found.ids.tolist() == model.recommend(data, users=[7, 3], k=2).ids.tolist()
    assert found.users.tolist() == [7, 3] if given[0] == 7 else given


def test_unknown_ones_are_named_as_they_were_given(hashed):
    with pytest.raises(DataError, match=r"no data on the users 'zoe', 'yan'$"):
        hashed.recommend(users=["zoe", NAMES[0], "yan"], strict=True)
    with pytest.warns(UserWarning, match=r"1 user gets the popularity order, for want of data: 12$"):
        assert hashed.recommend(users=[12], k=1).from_popularity.all()
    with pytest.raises(ParameterError, match="all of one kind and none missing"):
        hashed.recommend(users=[NAMES[0], None])
    with pytest.raises(DataError, match="no user 'zoe' to forget"):
        hashed.update(forget_users=["zoe"])


def test_go_with_the_model_wherever_it_goes(hashed, tmp_path):
    one = NAMES[4]
    expected = hashed.recommend(users=[one], k=2).ids.tolist()
    for other in (hashed.with_rule(b=0.0), pickle.loads(pickle.dumps(hashed)), saved(hashed, tmp_path)):
        assert other.user_salt_ == hashed.user_salt_
        assert other.recommend(users=[one], k=2).ids.tolist() == expected
    model = deql.EASE(l2=2.0).fit(DATA, keep_data="hashed")
    model.fit(DATA, keep_data=True)
    assert model.user_salt_ is None
    assert model.data_.users.tolist() == NAMES


def test_stay_when_items_are_added():
    kinds = {item: {"kind": "ab"[place % 2]} for place, item in enumerate(DATA.items.tolist())}
    model = deql.EASE(l2=2.0, prior=ItemFeatures(kinds)).fit(DATA, keep_data="hashed")
    model.add_items({99: {"kind": "a"}})
    assert model.recommend(users=[NAMES[1]], k=2).users.tolist() == [NAMES[1]]
    assert model.data_.n_items == DATA.n_items + 1


@pytest.mark.parametrize("method", ["low rank", "refit"])
def test_are_updated_as_others_are(method, tmp_path):
    plain, model = (deql.EDLAE(l2=2.0, dropout=0.2).fit(DATA, keep_data=how) for how in (True, "hashed"))
    model = saved(model, tmp_path)
    salt = model.user_salt_
    item = DATA.items[0]
    for one in (plain, model):
        one.update(
            deql.Interactions.from_pairs([NAMES[2], "new"], [item, item]),
            DATA[8:9],
            forget_users=[NAMES[3], NAMES[40]],
            method=method,
        )
    assert np.allclose(model.weights(), plain.weights(), atol=1e-5)
    assert model.user_salt_ == salt
    assert model._user_keys(["new"])[0] in model.data_.users
    assert_same(hashed_interactions(plain.data_, salt), model.data_[np.argsort(model.data_.users)])
    with pytest.raises(DataError, match="there are no data"):
        model.recommend(users=[NAMES[3]], strict=True)


def test_keys_of_users_are_ids_or_hashes(hashed):
    assert hashed._user_keys(["a", 3]).tolist() == hash_users(["a", "3"], hashed.user_salt_).tolist()
    assert deql.Popularity().fit(DATA, keep_data=True)._user_keys(["a", "b"]).tolist() == ["a", "b"]


@pytest.mark.parametrize("keep_data", ["salted", None, 2])
def test_only_what_can_be_kept_is_taken(keep_data):
    with pytest.raises(ParameterError, match=r"keep_data must be True, False or 'hashed', got"):
        deql.Popularity().fit(DATA, keep_data=keep_data)


def damaged(model, path, **arrays):
    record = model._as_record()
    record.arrays.update(arrays)
    model_file.write(path, replace(record, arrays={k: v for k, v in record.arrays.items() if v is not None}))
    return path


@pytest.mark.parametrize("salt", [np.zeros(15, np.uint8), np.zeros(16, np.float32), np.zeros((4, 4), np.uint8)])
def test_a_salt_that_is_none_is_damage(hashed, salt, tmp_path):
    with pytest.raises(ModelFileError, match="damaged: the salt of its users is not 16 bytes"):
        deql.load(damaged(hashed, tmp_path / "model.deql", users_salt=salt))


def test_a_salt_without_data_is_damage(tmp_path):
    model = deql.Popularity().fit(DATA)
    with pytest.raises(ModelFileError, match="not 16 bytes beside its data"):
        deql.load(damaged(model, tmp_path / "model.deql", users_salt=np.zeros(16, np.uint8)))


def test_a_salt_beside_plain_ids_is_damage(tmp_path):
    model = deql.Popularity().fit(DATA, keep_data=True)
    model = deql.load(damaged(model, tmp_path / "model.deql", users_salt=np.zeros(16, np.uint8)))
    with pytest.raises(ModelFileError, match="its users are not all hashes"):
        model.recommend(users=["ann"])


def test_files_without_a_salt_are_as_before(tmp_path):
    model = saved(deql.Popularity().fit(DATA, keep_data=True), tmp_path)
    assert "users_salt" not in container.read(model_file._KIND, tmp_path / "model.deql")[1]
    assert model.user_salt_ is None


def test_take_forty_bytes_each_beside_four_an_interaction(tmp_path):
    generator = np.random.default_rng(0)
    data = deql.Interactions.from_csr((generator.random((3000, 40)) < 0.5) * np.float64(2))
    sizes = {}
    for weight in (1.0, 2.0):
        for keep in (False, "hashed"):
            model = deql.Popularity().fit(replace(data, matrix=data.matrix * (weight / 2)), keep_data=keep)
            model.save(tmp_path / "model.deql")
            sizes[weight, keep] = (tmp_path / "model.deql").stat().st_size
    of_users = 44 * data.n_users + 1000  # a hash, where it ends, where the row ends; names of arrays
    assert sizes[1.0, "hashed"] - sizes[1.0, False] < 4.2 * data.n_interactions + of_users
    assert sizes[2.0, "hashed"] - sizes[2.0, False] < 8.2 * data.n_interactions + of_users


def test_what_a_model_can_do_is_said(hashed):
    assert describe_updatable(hashed).startswith("it has its data, on 80 users under salted hashes of their ids: ")
    said = describe_updatable(deql.EASE(l2=2.0).fit(DATA))
    for part in ("add whole new users (new_users=True, --new-users)", "keep_data=True", "attach_data", "--data FILE"):
        assert part in said
