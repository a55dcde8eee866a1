"""Data that are kept with a model: in memory, in its file, and what becomes of a file that is damaged."""

import hashlib
import pickle
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

import deql
from deql.data.matrices import shortest_float
from deql.errors import ModelFileError
from deql.io import container, model_file
from tests.models.contract import IDS, cases, interactions

DATA = replace(interactions(), users=np.arange(80))


def saved(model, tmp_path):
    model.save(tmp_path / "model.deql")
    return deql.load(tmp_path / "model.deql")


def assert_same(found, expected):
    for field in ("indptr", "indices", "data"):
        one, other = getattr(found.matrix, field), getattr(expected.matrix, field)
        assert one.dtype == (shortest_float(other) if field == "data" else other).dtype
        assert one.tolist() == other.tolist()
    assert found.users.tolist() == expected.users.tolist()
    assert found.items.tolist() == expected.items.tolist()
    assert (found.titles is None) == (expected.titles is None)
    assert (found.times is None) == (expected.times is None)
    if found.times is not None:
        assert found.times.tolist() == expected.times.tolist()


@pytest.mark.parametrize("case", cases())
def test_every_model_keeps_them_in_its_file(case, tmp_path):
    model = saved(case.make().fit(DATA, keep_data=True), tmp_path)
    assert_same(model.data_, DATA)
    assert model.recommend(users=[3], k=2).ids.tolist() == model.recommend(DATA, k=2).ids[[3]].tolist()
    assert_same(saved(model, tmp_path).data_, DATA)


@pytest.mark.parametrize("case", cases())
def test_every_model_is_saved_as_before_without_them(case, tmp_path):
    model = case.make().fit(DATA)
    assert model.data_ is None
    assert saved(model, tmp_path).data_ is None
    names = set(container.read(model_file._KIND, tmp_path / "model.deql")[1])
    assert not {name for name in names if name.startswith(("users", "interactions_"))}


def test_the_bytes_of_a_file_without_them_are_those_of_one_that_never_had_them(tmp_path):
    plain = deql.EASE(l2=2.0).fit(DATA)
    again = deql.EASE(l2=2.0).fit(DATA, keep_data=True).fit(DATA)
    digests = []
    for model in (plain, again):
        model.save(tmp_path / "model.deql")
        digests.append(hashlib.sha256((tmp_path / "model.deql").read_bytes()).hexdigest())
    assert digests[0] == digests[1]


@pytest.mark.parametrize("users", [[f"user {i}" for i in range(80)], [i - 2**40 for i in range(80)]])
@pytest.mark.parametrize("times", [False, True])
@pytest.mark.parametrize("weights", [1.0, 0.1])
def test_of_any_kind_come_back(users, times, weights, tmp_path):
    data = deql.Interactions.from_csr((DATA.matrix != 0) * weights, users=users, items=IDS["unicode"])
    if times:
        data = replace(data, times=np.random.default_rng(0).random(data.n_interactions))
    model = deql.Popularity().fit(data, keep_data=True)
    found = saved(model, tmp_path).data_
    assert found.matrix.toarray().tolist() == data.matrix.toarray().tolist()
    assert found.users.tolist() == users
    assert (found.times is None) == (not times)
    stored = container.read(model_file._KIND, tmp_path / "model.deql")[1]
    assert ("interactions_weights" in stored) == (weights != 1)


def test_of_binary_data_take_four_bytes_an_interaction(tmp_path):
    generator = np.random.default_rng(0)
    data = deql.Interactions.from_csr((generator.random((3000, 40)) < 0.5).astype(np.float32))
    sizes = []
    for keep in (False, True):
        deql.Popularity().fit(data, keep_data=keep).save(tmp_path / "model.deql")
        sizes.append((tmp_path / "model.deql").stat().st_size)
    assert sizes[1] - sizes[0] < 4 * data.n_interactions + 12 * data.n_users + 1000


def test_are_shared_with_models_on_the_same_inverse():
    model = deql.EASE(l2=2.0).fit(DATA, keep_data=True)
    assert model.with_rule(b=2.0).data_ is DATA
    assert pickle.loads(pickle.dumps(model)).data_.n_interactions == DATA.n_interactions
    assert clone(model).data_ is None


def test_are_forgotten_by_a_fit_without_them():
    model = deql.EASE(l2=2.0).fit(DATA, keep_data=True)
    assert model.fit(DATA).data_ is None


def test_of_users_with_odd_ids_cannot_be_saved(tmp_path):
    data = deql.Interactions.from_pairs([1.5, 2.5], ["a", "b"])
    model = deql.Popularity().fit(data, keep_data=True)
    with pytest.raises(ModelFileError, match="only if user ids are integers or text"):
        model.save(tmp_path / "model.deql")
    assert not list(tmp_path.iterdir())
    assert "fitted on" in model._repr_html_()  # which has nothing to do with files


def test_without_some_times_cannot_be_saved(tmp_path):
    data = replace(DATA, times=np.full(DATA.n_interactions, np.nan))
    with pytest.raises(ModelFileError, match="only if all their times are finite"):
        deql.Popularity().fit(data, keep_data=True).save(tmp_path / "model.deql")


@pytest.mark.filterwarnings("ignore:divide by zero|invalid value")
@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("users", lambda users: users[:-1], "not one for each"),
        ("users", np.zeros_like, "not one for each"),
        ("interactions_indices", lambda indices: indices + 5, "damaged"),
        ("interactions_indices", lambda indices: indices * 0, "other numbers of users|damaged"),
        ("interactions_indptr", lambda indptr: indptr[::-1].copy(), "damaged"),
        ("interactions_indices", np.sort, "an item twice, or items out of order"),
        ("interactions_weights", lambda weights: weights * np.nan, "not all finite"),
        ("interactions_weights", lambda weights: weights.astype(np.int32), "not all finite numbers"),
        ("interactions_times", lambda times: times[1:], "one for each interaction"),
        ("interactions_times", lambda times: times / 0, "times are not all finite"),
    ],
)
def test_that_make_no_sense_are_refused_at_their_first_use(name, change, said, tmp_path):
    data = replace(DATA, times=np.arange(DATA.n_interactions, dtype=float))
    model = deql.Popularity().fit(data, keep_data=True)
    record = model._as_record()
    record.arrays[name] = np.ascontiguousarray(change(record.arrays[name]))
    model_file.write(tmp_path / "model.deql", record)
    model = deql.load(tmp_path / "model.deql")
    assert model.recommend([[]], k=1).from_popularity.all()
    with pytest.raises(ModelFileError, match=said):
        model.recommend(users=[3])


def test_a_file_without_its_users_is_damaged(tmp_path):
    record = deql.Popularity().fit(DATA, keep_data=True)._as_record()
    del record.arrays["users"]
    model_file.write(tmp_path / "model.deql", record)
    with pytest.raises(ModelFileError, match="kept with this model are damaged: there is no users"):
        _ = deql.load(tmp_path / "model.deql").data_


def test_an_altered_byte_is_found_when_the_file_is_loaded(tmp_path):
    path = tmp_path / "model.deql"
    deql.Popularity().fit(DATA, keep_data=True).save(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="checksum"):
        deql.load(path)
