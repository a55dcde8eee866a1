"""Forgetting with a certificate: what it says, that it names nobody, that it is true, and that lies are found."""

import dataclasses
import json

import numpy as np
import pytest

import deql
from deql.data.hashed_users import hash_users
from deql.linalg.packed import PackedSymmetric
from deql.models.certificate import Certificate
from deql.models.verification import largest_difference, verify
from deql.priors import LowPass


def market(seed=3, users=60, items=14, weights=False):
    generator = np.random.default_rng(seed)
    share = generator.uniform(0.1, 0.6, items)
    dense = (generator.random((users, items)) < share) * (generator.uniform(0.5, 3, (users, items)) if weights else 1.0)
    dense[np.arange(items), np.arange(items)] = 1.0
    names = np.array([f"user-{number}" for number in range(users)], object)
    return deql.Interactions.from_csr(dense, names, np.array([f"item {number}" for number in range(items)], object))


def without(data, *users):
    return data.take_users(~np.isin(data.users, users))


@pytest.fixture
def data():
    return market()


@pytest.fixture
def model(data):
    return deql.DEQL(l2=3.0, dropout=0.3, b=0.7, dtype="float64").fit(data, keep_data=True)


class TestForget:
    def test_it_tells_what_was_done(self, data, model):
        before = model.checksum()
        certificate = model.forget(["user-7", "user-9"])
        theirs = data.matrix[[7, 9]]
        assert certificate.before == before != certificate.after == model.checksum()
        assert certificate.interactions == theirs.nnz
        assert certificate.items == len(np.unique(theirs.indices))
        assert (certificate.model, certificate.parameters["b"]) == ("DEQL", 0.7)
        assert certificate.method in ("low rank", "refit")
        assert certificate.residual == model.residual_ < 1e-10
        assert model.n_users_ == 58

    def test_the_model_is_that_of_a_fit_without_them(self, data, model):
        model.forget("user-7")
        fresh = deql.DEQL(l2=3.0, dropout=0.3, b=0.7, dtype="float64").fit(without(data, "user-7"))
        np.testing.assert_allclose(model.weights(), fresh.weights(), rtol=1e-9, atol=1e-12)

    def test_it_names_nobody_and_lets_be_found_who_is_known(self, model):
        certificate = model.forget("user-7")
        assert "user-7" not in certificate.to_json()
        assert certificate.among(["user-7", "user-8"]).tolist() == [True, False]
        other = model.forget("user-8")
        assert other.salt != certificate.salt

    def test_of_hashed_users(self, data):
        model = deql.EASE(l2=3.0).fit(data, keep_data="hashed")
        certificate = model.forget("user-7")
        assert certificate.among(hash_users(["user-7", "user-8"], model.user_salt_)).tolist() == [True, False]
        checks = verify(certificate, model, model.checksum(), data)
        assert all(check.passed for check in checks)
        assert "1, left out" in [check.found for check in checks]

    def test_ids_may_be_numbers(self, data):
        numbered = dataclasses.replace(data, users=np.arange(100, 160))
        model = deql.EASE(l2=3.0).fit(numbered, keep_data=True)
        assert model.forget(107).among([107, 108]).tolist() == [True, False]

    @pytest.mark.parametrize("users", ["nobody", ["user-1", "nobody"], []], ids=str)
    def test_nothing_is_done_for_users_that_are_not_there(self, model, users):
        before = model.checksum()
        with pytest.raises(deql.errors.DeqlError):
            model.forget(users)
        assert model.checksum() == before

    def test_it_needs_the_data(self, data):
        with pytest.raises(deql.ParameterError, match="this model cannot forget users"):
            deql.EASE(l2=3.0).fit(data).forget("user-7")


class TestChecksum:
    def test_is_that_of_the_file(self, model, tmp_path):
        model.save(tmp_path / "a.deql")
        model.save(tmp_path / "rows.deql", quantized_rows=True)
        assert deql.io.model_file.checksum(tmp_path / "a.deql") == model.checksum()
        assert deql.io.model_file.checksum(tmp_path / "rows.deql") != model.checksum()
        for name in ("a.deql", "rows.deql"):
            assert deql.io.model_file.model_checksum(tmp_path / name) == model.checksum()
            loaded = deql.load(tmp_path / name)
            assert loaded.checksum() == model.checksum()
            assert loaded.data_ is not None
            assert loaded.checksum() == model.checksum()

    def test_of_models_without_an_inverse(self, data):
        assert deql.Popularity().fit(data).checksum() == deql.Popularity().fit(data).checksum()


class TestFile:
    def test_comes_back(self, model, tmp_path):
        certificate = model.forget("user-7")
        certificate.save(tmp_path / "c.json")
        assert Certificate.load(tmp_path / "c.json") == certificate
        assert json.loads((tmp_path / "c.json").read_text())["deql"] == "certificate"

    @pytest.mark.parametrize(
        "change",
        [
            {"users": []}, {"users": [3]}, {"users": "abc"}, {"salt": "xyz"}, {"salt": ""}, {"after": None},
            {"interactions": 1.5}, {"interactions": True}, {"deql": "tuning"}, {"format_version": 2},
            {"format_version": None}, {"residual": "0"},
        ],
        ids=str,
    )  # fmt: skip
    def test_damage_is_told(self, model, tmp_path, change):
        whole = json.loads(model.forget("user-7").to_json())
        path = tmp_path / "c.json"
        path.write_text(json.dumps(whole | change))
        with pytest.raises(deql.DataError, match=r"c\.json"):
            Certificate.load(path)

    @pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b"{}"])
    def test_what_is_no_certificate_is_told(self, tmp_path, text):
        (tmp_path / "c.json").write_bytes(text)
        with pytest.raises(deql.DataError, match=r"c\.json is not a certificate"):
            Certificate.load(tmp_path / "c.json")
        with pytest.raises(deql.DataError, match="cannot be read: no such file"):
            Certificate.load(tmp_path / "none.json")

    def test_a_missing_part_is_named(self, model, tmp_path):
        whole = json.loads(model.forget("user-7").to_json())
        del whole["after"]
        (tmp_path / "c.json").write_text(json.dumps(whole))
        with pytest.raises(deql.DataError, match="damaged: it has no after"):
            Certificate.load(tmp_path / "c.json")


def failed(checks):
    return [check.what for check in checks if not check.passed]


class TestVerify:
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("power", [0.0, 0.4])
    def test_what_is_true(self, dtype, power):
        data = market(weights=True)
        model = deql.DEQL(l2=3.0, dropout=0.3, b=0.7, dtype=dtype, user_power=power).fit(data, keep_data=True)
        certificate = model.forget("user-7")
        for table in (data, without(data, "user-7"), without(data, "user-7")[::-1]):
            checks = verify(certificate, model, certificate.after, table)
            assert not failed(checks)
            assert len([check for check in checks if check.limit is not None]) == 5 + (table is data)

    def test_a_user_who_is_still_in_the_model(self, data, model):
        certificate = model.forget("user-7")
        back = deql.DEQL(l2=3.0, dropout=0.3, b=0.7, dtype="float64").fit(data, keep_data=True)
        found = failed(verify(certificate, back, back.checksum(), without(data, "user-7")))
        assert found[:2] == ["the file", "users in the data it keeps"]
        assert "the data" in found

    def test_a_model_that_only_says_it_forgot(self, data, model):
        """The numbers of before with the counts of after: only the fit tells."""
        certificate = model.forget("user-7")
        before = deql.DEQL(l2=3.0, dropout=0.3, b=0.7, dtype="float64").fit(data)
        model.precision_ = before.precision_
        model._apply_rule()
        assert {"P", "gain", "W"} <= set(failed(verify(certificate, model, certificate.after, data)))

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_a_share_of_users_that_is_below_the_tolerance_is_found(self, dtype):
        """A thousandth of P is what one of many users makes of it, and what float32 is allowed to be off by."""
        data = market(users=4000, items=30)
        params = {"l2": 20.0, "dropout": 0.2, "user_power": 0.3, "dtype": dtype}
        model = deql.EDLAE(**params).fit(data, keep_data=True)
        before = model.precision_
        certificate = model.forget("user-7")
        assert not failed(verify(certificate, model, certificate.after, data))
        for share in (0.1, 0.5):
            forgotten = model.precision_
            mixed = share * before.data.astype(np.float64) + (1 - share) * forgotten.data
            model.precision_ = PackedSymmetric(before.n, before.tile, mixed.astype(dtype))
            found = verify(certificate, model, certificate.after, data)
            model.precision_ = forgotten
            assert "what is left of them" in failed(found)
            assert found[-1].difference == pytest.approx(share, rel=0.1)
            assert ("P" in failed(found)) == (dtype == "float64")

    def test_users_of_whose_items_nothing_is_left(self, data, model):
        own = deql.Interactions.from_pairs(["hermit"], ["cave"])
        model.update(own)
        model.update(retire_items=["item 3"])
        more = deql.join(data, own)
        theirs = deql.DEQL(l2=3.0, dropout=0.3, b=0.7, dtype="float64").fit(more, keep_data=True)
        certificate = theirs.forget("hermit")
        theirs.update(retire_items=["cave"])
        checks = verify(certificate, theirs, theirs.checksum(), more)
        assert failed(checks) == ["the file"]
        assert "what is left of them" not in [check.what for check in checks]

    def test_other_data_are_told_by_the_first_item_that_differs(self, data, model):
        certificate = model.forget("user-7")
        fewer = without(data, "user-7", "user-8")
        last = verify(certificate, model, certificate.after, fewer)[-1]
        assert not last.passed
        assert last.what == "the data"
        assert "'item " in last.found
        more = deql.join(data, deql.Interactions.from_pairs(["user-3"], ["else"]))
        assert "'else' has 1 user here and is not in the model" in verify(certificate, model, "", more)[-1].found

    @pytest.mark.parametrize("changes", [{"model": "EASE"}, {"parameters": {"l2": 99.0}}])
    def test_a_certificate_that_tells_of_another_model(self, data, model, changes):
        certificate = dataclasses.replace(model.forget("user-7"), **changes)
        assert failed(verify(certificate, model, model.checksum(), data)) == ["kind and parameters"]

    def test_what_a_file_keeps_of_parameters_is_what_the_certificate_has(self, data, tmp_path):
        timed = dataclasses.replace(data, times=np.arange(float(data.n_interactions)))
        engine = deql.engines.Disk(memory="64MiB", folder=tmp_path / "tiles")
        fitted = deql.DEQL(l2=3.0, dropout=0.3, b=np.inf, half_life="2 h", engine=engine, prior=LowPass(2))
        model = fitted.fit(timed, keep_data=True)
        certificate = model.forget("user-7")
        model.save(tmp_path / "model")
        again = deql.load(tmp_path / "model")
        assert not failed(verify(certificate, again, again.checksum(), timed))

    def test_a_prior_that_is_not_in_the_file(self, data, model, tmp_path):
        certificate = model.forget("user-7")
        with_prior = deql.EASE(l2=3.0, prior=np.eye(14)).fit(data)
        with_prior.save(tmp_path / "m.deql")
        with pytest.raises(deql.ParameterError, match=r"not the prior \(matrix\), so that it cannot be fitted again"):
            verify(certificate, deql.load(tmp_path / "m.deql"), "", data)


@pytest.mark.parametrize("tiles", [(2, 3), (4, 4), (7, 1), (9, 5)])
def test_largest_difference_whatever_the_tiles(tiles):
    generator = np.random.default_rng(0)
    one, two = (lambda root: root @ root.T)(generator.normal(size=(9, 9))), np.diag(generator.uniform(1, 2, 9))
    expected = (np.abs(one - two) / np.sqrt(np.outer(np.diag(two), np.diag(two)))).max()
    packed = [PackedSymmetric.from_dense(dense, tile) for dense, tile in zip((one, two), tiles, strict=True)]
    assert largest_difference(*packed) == pytest.approx(expected, rel=1e-14)
