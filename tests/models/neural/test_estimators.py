"""Networks as estimators: users by their ids, everybody else folded in, files, and what is refused."""

import math
import pickle
import sys
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

import deql
from deql.data.hashed_users import hash_users
from deql.errors import DataError, DeqlError, DeviceError, ModelFileError, NotFittedError, ParameterError, TooLargeError
from deql.io import model_file
from tests.models.contract import N, interactions
from tests.models.neural.small import DATA, KINDS, facts_of, small

torch = pytest.importorskip("torch")
from deql.models.neural import trainer  # noqa: E402
from deql.models.neural.lightgcn_network import LightGCNNetwork  # noqa: E402
from deql.models.neural.sgl_network import SGLNetwork  # noqa: E402

X = DATA.matrix.toarray()
ITEMS = DATA.items.tolist()
SOME = [40, 3, 77]
STRANGERS = replace(DATA, users=np.array([f"stranger {u}" for u in range(80)], object))
EMPTY = csr_array((1, N))


@pytest.fixture(scope="module", params=KINDS)
def model(request):
    return small(request.param, popularity_power=0.3).fit(DATA)


def table(found):
    """Scores of all items, in the order of the model's."""
    order = np.argsort([[ITEMS.index(item) for item in row] for row in found.ids.tolist()], axis=1)
    return np.take_along_axis(found.scores, order, axis=1)


def everything(model, asked, **options):
    return model.recommend(asked, k=N, exclude_seen=False, **options)


def assert_same_lists(found, expected):
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.scores.tobytes() == expected.scores.tobytes()


def of_users(model, X):
    return X @ model.left_.astype(float) + own_of(model, DATA)


def own_of(model, data):
    """Users' own vectors in the order of the data."""
    some = np.diff(data.matrix.indptr) > 0
    return model.own_[model._known.find(data.users[some], data.matrix[some])]


class TestKnownUsers:
    @pytest.mark.parametrize("kind", KINDS)
    def test_are_ranked_by_the_vectors_that_were_trained(self, kind, monkeypatch):
        """Up to the square root of the weights that a user has, of which the largest counts 1."""
        trained, fold_in = [], trainer.fold_in
        monkeypatch.setattr(
            trainer, "fold_in", lambda graph, Z, passed_on: trained.append(Z) or fold_in(graph, Z, passed_on)
        )
        found = everything(small(kind).fit(DATA), DATA)
        Z = trained[-1].double().numpy()
        products = Z[: DATA.n_users] @ Z[DATA.n_users :].T
        expected = np.sqrt(X.sum(axis=1, keepdims=True) / X.max()) * products
        np.testing.assert_allclose(table(found), expected, rtol=1e-4, atol=1e-5)
        best = [ITEMS.index(row[0]) for row in found.ids.tolist()]
        assert best == products.argmax(axis=1).tolist()

    def test_score_as_the_factors_say(self, model):
        expected = of_users(model, X) @ model.right_.T
        np.testing.assert_allclose(table(everything(model, DATA)), expected, rtol=1e-4, atol=1e-6)

    def test_are_found_however_they_are_given(self, model):
        expected = everything(model, DATA)
        order = np.array([50, 3, 9])
        some = everything(model, DATA.take_users(order))
        assert some.scores.tobytes() == expected.scores[order].tobytes()
        assert_same_lists(everything(model, DATA, users=DATA.users[order].tolist()), some)
        shuffled = deql.Interactions.from_csr(DATA.matrix[:, ::-1], DATA.users, DATA.items[::-1])
        assert_same_lists(everything(model, shuffled), expected)

    def test_are_found_in_a_frame(self):
        plain = deql.Interactions.from_csr((DATA.matrix != 0).astype(float), DATA.users, DATA.items)
        model = small().fit(plain)
        rows, columns = DATA.matrix.nonzero()
        frame = pd.DataFrame({"user": DATA.users[rows], "item": DATA.items[columns]})
        found = model.recommend(frame, k=3)
        expected = model.recommend(plain, k=3)
        by_user = {user: part["item"].tolist() for user, part in found.groupby("user")}
        assert by_user == dict(zip(expected.users.tolist(), expected.ids.tolist(), strict=True))
        assert np.abs(expected.scores - model.recommend(plain.matrix, k=3).scores).max() > 1e-4

    @pytest.mark.parametrize("keep_data", [True, "hashed"])
    def test_are_found_in_data_that_were_kept(self, model, keep_data):
        kept = model.__class__(**model.get_params()).fit(DATA, keep_data=keep_data)
        names = DATA.users[SOME].tolist()
        expected = everything(model, DATA, users=names)
        assert_same_lists(everything(kept, None, users=names), expected)
        whole = everything(kept, None)
        places = [whole.users.tolist().index(user) for user in kept._user_keys(names).tolist()]
        assert whole.scores[places].tobytes() == expected.scores.tobytes()

    def test_may_be_numbers(self):
        data = deql.Interactions.from_csr(DATA.matrix, users=np.arange(80) * 7 - 3, items=DATA.items)
        found, expected = (everything(small().fit(data), table) for table in (data, DATA))
        assert np.abs(found.scores - expected.scores).max() > 1e-4
        assert_same_lists(found, everything(small().fit(DATA), DATA))

    @pytest.mark.parametrize(
        "change",
        [
            lambda R: R[::-1],  # those of others
            lambda R: R * (np.arange(N) != R.argmax(1)[:, None]),  # without an item
            lambda R: np.maximum(R, np.arange(N) == R.argmin(1)[:, None]),  # with one more
            lambda R: 2 * R,
        ],
    )
    def test_with_other_histories_are_folded_in_as_anybody(self, model, change):
        moved = replace(DATA, matrix=csr_array(change(X)))
        nobody = replace(moved, users=np.array([f"nobody {u}" for u in range(80)], object))
        assert_same_lists(everything(model, moved), everything(model, nobody))

    def test_may_have_items_besides_that_the_model_has_not(self, model):
        R = np.hstack([X, np.ones((80, 1))])
        more = deql.Interactions.from_csr(csr_array(R), DATA.users, [*ITEMS, "of today"])
        with pytest.warns(UserWarning, match="unknown"):
            found = everything(model, more)
        assert_same_lists(found, everything(model, DATA))

    def test_without_items_in_the_training_data_have_no_vector(self):
        R = X.copy()
        R[[0, 33]] = 0
        data = deql.Interactions.from_csr(csr_array(R), DATA.users, DATA.items)
        model = small().fit(data)
        assert len(model.own_) == 78
        assert model.recommend(data, k=2).from_popularity.nonzero()[0].tolist() == [0, 33]
        found = everything(model, DATA)
        expected = everything(model, DATA.matrix)
        assert found.scores[[0, 33]].tobytes() == expected.scores[[0, 33]].tobytes()
        some = np.delete(np.arange(80), [0, 33])
        vectors = R[some] @ model.left_.astype(float) + own_of(model, data)
        np.testing.assert_allclose(table(found)[some], vectors @ model.right_.T, rtol=1e-4, atol=1e-6)

    def test_never_get_what_they_have_seen(self, model):
        for user, items in zip(DATA.users.tolist(), model.recommend(DATA, k=N).ids.tolist(), strict=True):
            assert {item for item in items if item is not None} == set(ITEMS) - set(DATA.history(user))

    def test_are_scored_by_pairs_as_in_lists(self, model):
        lists = everything(model, DATA, users=DATA.users[SOME].tolist())
        pairs = model.score_pairs(DATA, lists.ids.tolist(), users=DATA.users[SOME].tolist())
        assert [row.tolist() for row in pairs] == lists.scores.tolist()

    def test_have_reasons_among_their_items(self, model):
        """The largest parts, as explained."""
        found = model.recommend(DATA, k=2, reasons=1)
        for user in SOME:
            row = DATA.take_users(np.array([user]))
            for item, reason in zip(found.ids[user].tolist(), found.reasons[user].tolist(), strict=True):
                parts = {ITEMS.index(part.item): part.value for part in model.explain(row, item)}
                best = max(parts, key=parts.get)
                assert reason == (str(DATA.titles[best]) if parts[best] > 0 else None)

    def test_of_an_earlier_fit_are_forgotten(self):
        model = small().fit(DATA)
        everything(model, DATA)
        other = interactions(users=50, seed=9)
        assert_same_lists(everything(model.fit(other), other), everything(small().fit(other), other))
        assert_same_lists(everything(model, DATA), everything(model, DATA.matrix))

    def test_without_an_id_are_refused_before_the_training(self):
        nameless = DATA.users.copy()
        nameless[5] = None
        model = small()
        with pytest.raises(DataError, match="a user's id is missing, at place 5"):
            model.fit(replace(DATA, users=nameless))
        with pytest.raises(NotFittedError):
            model.recommend(DATA)


class TestOthers:
    def test_are_folded_in(self, model):
        expected = X @ model.left_.astype(float) @ model.right_.T
        for asked in (STRANGERS, DATA.matrix, [dict(zip(ITEMS, row, strict=True)) for row in X.tolist()]):
            np.testing.assert_allclose(table(everything(model, asked)), expected, rtol=1e-4, atol=1e-6)
        assert np.abs(expected - of_users(model, X) @ model.right_.T).max() > 1e-3

    def test_do_not_depend_on_who_else_is_asked_for(self, model):
        mixed = replace(DATA, users=np.where(np.arange(80) % 2 == 0, DATA.users, STRANGERS.users))
        found = everything(model, mixed).scores
        known, others = (everything(model, data).scores for data in (DATA, STRANGERS))
        assert found[::2].tobytes() == known[::2].tobytes()
        assert found[1::2].tobytes() == others[1::2].tobytes()

    def test_are_ranked_much_as_their_twins_who_are_known(self):
        """Folding in estimates the vector that training would have found."""
        model = small("LightGCN", epochs=40, rank=8).fit(DATA)
        known, others = (table(everything(model, data)) for data in (DATA, STRANGERS))
        alike = [np.corrcoef(one, other)[0, 1] for one, other in zip(known, others, strict=True)]
        assert np.median(alike) > 0.8

    def test_with_nothing_get_the_popularity_order(self, model):
        expected = deql.Popularity().fit(DATA).recommend([[]], k=N)
        stranger = deql.Interactions.from_csr(EMPTY, ["stranger"], DATA.items)
        for asked in ([[]], EMPTY, stranger):
            found = model.recommend(asked, k=N)
            assert found.from_popularity.all()
            assert_same_lists(found, expected)

    def test_of_a_plain_matrix_are_nobody_s_to_know(self):
        """Its rows have numbers, and no ids, also where those of the training data had none."""
        model = small(epochs=20).fit(DATA.matrix)
        others = csr_array(DATA.matrix[:5:-1])
        nobody = deql.Interactions.from_csr(others, users=[f"nobody {u}" for u in range(74)])
        assert_same_lists(everything(model, others), everything(model, nobody))
        assert model.score(others) == model.score(nobody)
        assert deql.evaluate(model, others).means == deql.evaluate(model, nobody).means


class TestExplaining:
    def test_adds_up_to_the_score_of_a_known_user(self, model):
        lists = everything(model, DATA)
        for user in SOME:
            row = DATA.take_users(np.array([user]))
            for item, score in zip(lists.ids[user].tolist(), lists.scores[user].tolist(), strict=True):
                why = model.explain(row, item)
                values = [part.value for part in why]
                assert math.fsum([*values, why.rest]) == sum(values) + why.rest == why.score == score
                assert {part.item for part in why} == set(DATA.history(DATA.users[user]))

    def test_gives_items_their_weights_and_the_user_the_rest(self, model):
        user, target = 3, 5
        why = model.explain(DATA.take_users(np.array([user])), ITEMS[target])
        W = model.left_.astype(float) @ model.right_[target]
        for item, value in why:
            assert value == pytest.approx(X[user, ITEMS.index(item)] * W[ITEMS.index(item)], rel=1e-4, abs=1e-7)
        assert why.rest == pytest.approx(float(own_of(model, DATA)[user] @ model.right_[target]), rel=1e-4, abs=1e-6)

    def test_has_no_rest_for_others(self, model):
        known, stranger = (model.explain(data.take_users(np.array([3])), ITEMS[5]) for data in (DATA, STRANGERS))
        assert dict(known) == pytest.approx(dict(stranger), rel=1e-12)
        assert abs(stranger.rest) < 1e-12 < abs(known.rest)
        assert model.explain(DATA.matrix[[3]], ITEMS[5]) == stranger

    def test_says_what_is_said_of_a_known_user_without_a_history(self, model):
        """Whatever their list is, the score is the one that it has."""
        nothing = deql.Interactions.from_csr(EMPTY, DATA.users[3:4], DATA.items)
        lists = everything(model, nothing)
        for item, score in zip(lists.ids[0].tolist(), lists.scores[0].tolist(), strict=True):
            why = model.explain(nothing, item)
            assert (len(why), why.score, why.rest) == (0, score, score)


def saved(model, path):
    model.save(path)
    return deql.load(path)


def damaged(model, path, **arrays):
    """The file with other arrays, or without those that are None, and with a checksum that matches."""
    record = model._as_record()
    changed = record.arrays | arrays
    model_file.write(path, replace(record, arrays={name: part for name, part in changed.items() if part is not None}))
    return path


class TestFiles:
    @pytest.mark.parametrize("keep_data", [False, True, "hashed"])
    def test_bring_back_the_lists_of_all_users(self, model, keep_data, tmp_path):
        model = model.__class__(**model.get_params()).fit(DATA, keep_data=keep_data)
        for again in (saved(model, tmp_path / "model.deql"), pickle.loads(pickle.dumps(model))):
            for asked in (DATA, STRANGERS, [ITEMS[2:5]]):
                assert_same_lists(everything(again, asked), everything(model, asked))
            row = DATA.take_users(np.array([3]))
            assert again.explain(row, ITEMS[5]) == model.explain(row, ITEMS[5])
            assert facts_of(again) == facts_of(model)
            assert again.history_ == model.history_

    def test_name_nobody(self, model, tmp_path):
        model.save(tmp_path / "model.deql")
        contents = (tmp_path / "model.deql").read_bytes()
        assert b"user 3 of" not in contents
        assert hash_users(DATA.users[3:4], bytes(16))[0].encode() not in contents

    def test_have_a_salt_that_other_data_have_not(self):
        salts = [small(epochs=1).fit(data)._as_record().arrays["own_salt"].tobytes() for data in (DATA, DATA, DATA[1:])]
        assert salts[0] == salts[1] != salts[2]

    @pytest.mark.parametrize("own_salt", [np.zeros(15, np.uint8), np.zeros(16, np.float32), np.zeros((4, 4), np.uint8)])
    def test_with_a_salt_that_is_none_are_damaged(self, model, own_salt, tmp_path):
        path = damaged(model, tmp_path / "model.deql", own_salt=own_salt)
        with pytest.raises(ModelFileError, match=r"is damaged: the salt of its users is not 16 bytes$"):
            deql.load(path)

    @pytest.mark.parametrize("change", [lambda own: own[:-1], lambda own: own[:, :-1], lambda own: own.astype(float)])
    def test_with_vectors_that_are_not_users_are_damaged(self, model, change, tmp_path):
        path = damaged(model, tmp_path / "model.deql", own=change(model.own_))
        with pytest.raises(ModelFileError, match=r"is damaged: its users and their vectors differ in number$"):
            deql.load(path)

    @pytest.mark.parametrize("wrong", [np.nan, np.inf])
    def test_with_vectors_that_are_no_numbers_are_damaged(self, model, wrong, tmp_path):
        own = model.own_.copy()
        own[7, 1] = wrong
        with pytest.raises(ModelFileError, match=r"is damaged: its users' vectors are not all finite$"):
            deql.load(damaged(model, tmp_path / "model.deql", own=own))

    @pytest.mark.parametrize("name", ["own", "own_salt", "own_users_text", "own_users_ends"])
    def test_without_an_array_are_damaged(self, model, name, tmp_path):
        with pytest.raises(ModelFileError, match=f"is damaged: .*{name}"):
            deql.load(damaged(model, tmp_path / "model.deql", **{name: None}))

    def test_keep_users_in_the_order_of_their_hashes(self, model, tmp_path):
        """The order of data may name users."""
        hashes = model._known.hashes.tolist()
        assert hashes == sorted(hashes)
        hashed = small().fit(DATA, keep_data="hashed")
        assert hashed._known.hashes.tolist() == hashed.data_.users.tolist()
        assert own_of(hashed, DATA).tobytes() == own_of(small().fit(DATA), DATA).tobytes()

    def test_that_were_cut_off_are_damaged(self, model, tmp_path):
        model.save(tmp_path / "model.deql")
        whole = (tmp_path / "model.deql").read_bytes()
        (tmp_path / "model.deql").write_bytes(whole[:-50])
        with pytest.raises(ModelFileError, match="damaged"):
            deql.load(tmp_path / "model.deql")


class TestWeights:
    """What weights are, and what becomes of them."""

    def test_times_a_number_are_the_same_training(self):
        plain = small().fit(DATA)
        for factor in (0.25, 2.0**40):
            data = replace(DATA, matrix=DATA.matrix * factor)
            scaled = small().fit(data)
            assert scaled.right_.tobytes() == plain.right_.tobytes()
            assert own_of(scaled, data).tobytes() == own_of(plain, DATA).tobytes()
            np.testing.assert_allclose(scaled.left_ * factor, plain.left_, rtol=1e-6)

    def test_count_in_the_training(self):
        weighted, plain = (small().fit(given).right_ for given in (DATA.matrix, (DATA.matrix != 0).astype(float)))
        assert np.abs(weighted - plain).max() > 0.01

    @pytest.mark.parametrize("factor", [1e-200, 1e200])
    def test_that_float32_cannot_hold_are_refused_or_leave_a_model_that_can_be_loaded(self, factor, tmp_path):
        with suppress(DataError):
            model = small(epochs=2).fit(DATA.matrix * factor)
            assert saved(model, tmp_path / "model.deql").left_.any()

    def test_far_apart_leave_a_loss_that_is_a_number(self):
        """A batch may have none but those that are nothing beside the largest."""
        matrix = DATA.matrix * 1e-20
        matrix.data[5] = 1e30
        model = small(epochs=2, batch_size=4, learning_rate=0.001).fit(matrix)
        assert all(np.isfinite(epoch.loss) for epoch in model.history_)

    @pytest.mark.parametrize(("weights", "count"), [([-1.0, -0.5, -2.0], 3), ([-1e-30, 2.0, 1.0], 1)])
    def test_of_0_or_less_are_refused(self, weights, count):
        matrix = DATA.matrix.copy()
        matrix.data[[4, 9, 40]] = weights
        with pytest.raises(DataError, match=f"^{count} interactions? weighs? 0 or less, .*: leave such rows out$"):
            small().fit(matrix)


class TestRefusals:
    @pytest.mark.parametrize(
        ("kind", "parameters", "words"),
        [
            ("LightGCN", {"layers": 0}, "layers must be a whole number from 1 up, got 0"),
            ("SGL", {"layers": 1.5}, r"layers must be a whole number from 1 up, got 1\.5"),
            ("SSM, lightgcn", {"layers": 0}, "layers must be a whole number from 1 up, got 0"),
            ("LightGCN", {"rank": 0}, "rank must be a whole number from 1 up, got 0"),
            ("LightGCN", {"epochs": 0}, "epochs must be a whole number from 1 up"),
            ("LightGCN", {"batch_size": 2.5}, "batch_size must be a whole number from 1 up"),
            ("LightGCN", {"patience": 0}, "patience must be a whole number from 1 up"),
            ("LightGCN", {"validate_every": 0}, "validate_every must be a whole number from 1 up"),
            ("LightGCN", {"seed": -1}, "seed must be a whole number from 0 up"),
            ("LightGCN", {"weight_decay": -0.1}, r"weight_decay must be a number from 0 up, got -0\.1"),
            ("LightGCN", {"weight_decay": math.nan}, "weight_decay must be a number from 0 up, got nan"),
            ("LightGCN", {"learning_rate": 0.0}, r"learning_rate must be from 1e-10 to 1e\+30, got 0\.0"),
            ("LightGCN", {"learning_rate": -1}, "learning_rate must be a number from 0 up, got -1"),
            ("LightGCN", {"learning_rate": "fast"}, "learning_rate must be a number from 0 up, got 'fast'"),
            ("LightGCN", {"learning_rate": math.nan}, "learning_rate must be a number from 0 up, got nan"),
            ("LightGCN", {"learning_rate": 1e31}, r"learning_rate must be from 1e-10 to 1e\+30, got 1e\+31"),
            ("SSM, mf", {"backbone": "gcn"}, "backbone must be lightgcn or mf, got 'gcn'"),
            ("SSM, mf", {"backbone": None}, "backbone must be lightgcn or mf, got None"),
            ("SSM, mf", {"negatives": 0}, "negatives must be a whole number from 1 up, got 0"),
            ("SSM, mf", {"temperature": 0.02}, r"temperature must be at least 0\.025, got 0\.02"),
            ("SSM, mf", {"temperature": -1}, "temperature must be a number from 0 up, got -1"),
            ("SGL", {"temperature": 0.0}, r"temperature must be at least 0\.025, got 0"),
            ("SGL", {"temperature": math.inf}, "temperature must be a number from 0 up, got inf"),
            ("SGL", {"edge_dropout": 1}, "edge_dropout must be a number from 0 to below 1, got 1"),
            ("SGL", {"edge_dropout": -0.1}, r"edge_dropout must be a number from 0 to below 1, got -0\.1"),
            ("SGL", {"contrast_weight": -1.0}, r"contrast_weight must be a number from 0 up, got -1\.0"),
        ],
    )
    def test_of_parameters_out_of_range(self, kind, parameters, words):
        with pytest.raises(ParameterError, match=f"^{words}$" if "got" in words else f"^{words}") as caught:
            small(kind, **parameters).fit(DATA)
        assert caught.value.parameter == next(iter(parameters))

    @pytest.mark.parametrize("kind", KINDS)
    def test_without_torch(self, kind, monkeypatch):
        monkeypatch.setitem(sys.modules, "torch", None)
        name = type(small(kind)).__name__
        words = rf'^{name} needs torch, which is not installed: pip install "deql\[neural\]"$'
        with pytest.raises(DeviceError, match=words):
            small(kind).fit(DATA)

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
    def test_of_a_device_that_is_not_there(self):
        for device in ("cuda", "cuda:1"):
            with pytest.raises(DeviceError, match=f"^the device {device} cannot be used: ") as caught:
                small(device=device).fit(DATA)
            assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("device", ["mps", "gpu", "cuda:x"])
    def test_of_a_device_that_is_none(self, device):
        with pytest.raises(DeviceError, match=f"^the device {device} cannot be used"):
            small(device=device).fit(DATA)

    @pytest.mark.parametrize("kind", KINDS)
    def test_of_a_graph_that_does_not_fit(self, kind, monkeypatch):
        monkeypatch.setattr("deql.models.training.estimator.free_memory", lambda: 1000)
        words = (
            rf"^rank 4 on a graph of 92 users and items with {DATA.n_interactions} interactions needs about 0\.0 GiB, "
            r"and 0\.0 GiB are free: choose a lower rank or batch_size$"
        )
        with pytest.raises(TooLargeError, match=words):
            small(kind).fit(DATA)

    def test_of_a_training_that_runs_out_of_memory(self, monkeypatch):
        def allocate(*given):
            torch.empty(2**60)

        monkeypatch.setattr(trainer, "train", allocate)
        words = "^there is too little memory for 80 users and 12 items at rank 4: lower rank or batch_size$"
        with pytest.raises(TooLargeError, match=words):
            small().fit(DATA)

    @pytest.mark.parametrize("kind", KINDS)
    def test_of_a_loss_that_is_no_longer_a_number(self, kind):
        words = r"^the loss is no longer a number in epoch \d: lower learning_rate from 1e\+30, or weight_decay$"
        with pytest.raises(DataError, match=words):
            small(kind, learning_rate=1e30).fit(DATA)

    def test_of_patience_with_too_few_data(self):
        words = "^patience needs validation data, and fit was given none to use: 4 users with 4 interactions cannot be"
        with pytest.raises(DataError, match=words):
            small(patience=1).fit(csr_array(np.eye(4)))

    def test_of_validation_that_is_none(self):
        split = deql.split_weak(DATA)
        with pytest.raises(ParameterError, match=r"^validation must be what is held out, .*, got Split$"):
            small().fit(split.train, validation=split)

    def test_leave_the_earlier_fit(self):
        model = small().fit(DATA)
        expected = everything(model, DATA)
        for changed in ({"learning_rate": 1e30}, {"popularity_power": -1e300}):
            with pytest.raises(DeqlError):
                model.set_params(**changed).fit(interactions(users=50, seed=9))
            assert_same_lists(everything(model, DATA), expected)
            model = model.set_params(learning_rate=0.05, popularity_power=0.0)


class TestParameters:
    def test_may_be_numbers_of_numpy(self):
        whole = {"rank": 4, "epochs": 3, "batch_size": 32, "layers": 2, "negatives": 9, "seed": 3, "validate_every": 2}
        found, expected = (
            small("SSM, lightgcn", **{name: kind(value) for name, value in whole.items()}).fit(DATA)
            for kind in (np.int64, int)
        )
        assert facts_of(found) == facts_of(expected)

    @pytest.mark.parametrize(
        ("kind", "changed"),
        [
            ("LightGCN", {"layers": 1}),
            ("LightGCN", {"weight_decay": 0.1}),
            ("LightGCN", {"learning_rate": 0.04}),
            ("LightGCN", {"batch_size": 32}),
            ("LightGCN", {"epochs": 5}),
            ("SSM, lightgcn", {"backbone": "mf"}),
            ("SSM, lightgcn", {"temperature": 0.3}),
            ("SSM, lightgcn", {"negatives": 5}),
            ("SGL", {"edge_dropout": 0.1}),
            ("SGL", {"contrast_weight": 0.5}),
            ("SGL", {"temperature": 0.5}),
        ],
    )
    def test_all_change_the_model(self, kind, changed):
        found, expected = (small(kind, **given).fit(DATA).right_ for given in (changed, {}))
        assert np.abs(found - expected).max() > 1e-4

    def test_ssm_without_layers_does_not_ask_for_them(self):
        found, expected = (small("SSM, mf", layers=layers).fit(DATA) for layers in (1, 3))
        assert facts_of(found) == facts_of(expected)

    def test_sgl_without_contrast_is_lightgcn(self, monkeypatch):
        """But for its first vectors, and for the order in which a batch is summed, as views are drawn in between."""
        monkeypatch.setattr(SGLNetwork, "initial_deviation", LightGCNNetwork.initial_deviation)
        found, expected = (
            small(kind, layers=2, batch_size=1000, **given).fit(DATA).right_
            for kind, given in (("SGL", {"contrast_weight": 0.0}), ("LightGCN", {}))
        )
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)

    def test_the_rank_may_be_above_the_number_of_items(self):
        assert small(rank=50).fit(DATA).right_.shape == (N, 50)

    def test_evaluation_knows_them_apart(self):
        shown = [model._display_name for model in map(small, KINDS)]
        assert shown == ["LightGCN", "SSM (MF)", "SSM (GNN)", "SGL"]


class TestLittleData:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("shape", [(1, 1), (1, 4), (5, 1), (3, 2)])
    def test_where_everybody_has_everything_are_no_obstacle(self, kind, shape):
        model = small(kind, epochs=2).fit(csr_array(np.ones(shape)))
        assert np.isfinite(model.right_).all()
        assert model.own_.shape == (shape[0], 4)

    def test_items_that_nobody_has_are_ranked(self):
        R = X.copy()
        R[:, 4] = 0
        model = small().fit(deql.Interactions.from_csr(csr_array(R), DATA.users, DATA.items))
        found = everything(model, [ITEMS[2:4]])
        assert set(found.ids[0].tolist()) == set(ITEMS)
        assert not model.left_[4].any()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("kind", KINDS)
def test_a_device_learns_as_much(kind):
    """What is drawn in an epoch differs from device to device, so the losses are alike, and no more."""
    here, there = (small(kind, device=device, epochs=20).fit(DATA).history_ for device in ("cpu", "cuda"))
    assert there[-1].loss == pytest.approx(here[-1].loss, rel=0.1)
