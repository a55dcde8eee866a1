"""What people give an update that is no batch, or not quite one: a sentence, and the model as it was."""

import copy
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from scipy.sparse import csr_array

import deql
from deql.engines import Torch
from deql.errors import DataError, DeqlError, ParameterError
from deql.models.verification import verify

USERS = ["a", "a", "b", "b", "c", "d", "d"]
ITEMS = ["tea", "jam", "tea", "oat", "jam", "oat", "egg"]


@pytest.fixture
def data():
    return deql.Interactions.from_pairs(USERS, ITEMS)


@pytest.fixture
def model(data):
    return deql.EDLAE(l2=1.0, dropout=0.3, dtype="float64").fit(data, keep_data=True)


def refused(model, error, said, **batch):
    before = model.checksum()
    with pytest.raises(error, match=said):
        model.update(**batch)
    assert model.checksum() == before


@pytest.mark.parametrize("ids", [[{"a": 1}], [["a"], "b"], [{"a"}], [["a"]]])
@pytest.mark.parametrize("which", ["forget_users", "retire_items"])
def test_an_id_that_is_several_values_is_refused(model, ids, which):
    refused(model, ParameterError, f"{which}: an id must be a single value", **{which: ids})


def test_a_frame_is_no_list_of_ids(model):
    refused(model, ParameterError, "got a frame: give its column", forget_users=pl.DataFrame({"user": ["a"]}))
    with pytest.raises(ParameterError, match="give its column"):
        model.forget(pl.DataFrame({"user": ["a"]}))


@pytest.mark.parametrize("ids", [np.array("a"), np.array(["a"]), pl.Series(["a"]), pa.array(["a"]), "a", iter(["a"])])
def test_ids_come_in_any_array(model, ids):
    model.update(forget_users=ids)
    assert model.data_.users.tolist() == ["b", "c", "d"]


def test_rows_of_a_matrix_are_users_by_their_numbers(model):
    rows = csr_array(np.eye(2, 4))
    numbered = deql.EDLAE(l2=1.0, dropout=0.3, dtype="float64").fit(csr_array(np.ones((3, 4))), keep_data=True)
    numbered.update(removed=rows)
    assert numbered.data_.history(0) == [1, 2, 3]
    refused(model, DataError, "text in the data and whole numbers in what is added", added=rows)


def test_times_of_a_frame_are_found_where_the_data_have_them(data):
    timed = replace(data, times=np.arange(7.0))
    model = deql.EASE(l2=1.0).fit(timed, keep_data=True)
    model.update(pl.DataFrame({"user": ["e"], "item": ["tea"], "timestamp": [50.0]}))
    assert model.data_.times.tolist() == [*np.arange(7.0), 50.0]


@pytest.mark.parametrize("time", [np.nan, np.inf, -np.inf])
def test_a_time_that_is_none_is_refused_as_the_model_could_not_be_saved(data, time):
    model = deql.EASE(l2=1.0).fit(replace(data, times=np.arange(7.0)), keep_data=True)
    added = replace(deql.Interactions.from_pairs(["e"], ["tea"]), times=np.array([time]))
    refused(model, DataError, "missing or not finite", added=added)


@pytest.mark.parametrize("which", ["added", "removed"])
def test_advice_on_ids_of_another_kind_can_be_followed(which):
    of_numbers = deql.EASE(l2=1.0).fit(deql.Interactions.from_pairs([1, 2], ["x", "y"]), keep_data=True)
    text, numbers = deql.Interactions.from_pairs(["1"], ["x"]), deql.Interactions.from_pairs([1], ["x"])
    refused(of_numbers, DataError, "text in what is .*: give whole numbers", **{which: text})
    of_text = deql.EASE(l2=1.0).fit(deql.Interactions.from_pairs(["1", "2"], ["x", "y"]), keep_data=True)
    refused(of_text, DataError, "whole numbers in what is .*: read it with ids='text'", **{which: numbers})


def test_users_that_are_said_to_be_new_and_are_not_are_named(model):
    refused(
        model, DataError, "'b' is not new", added=deql.Interactions.from_pairs(["b", "x"], ["u", "v"]), new_users=True
    )
    model.update(deql.Interactions.from_pairs(["x", "y"], ["u", "v"]), new_users=True)
    assert model.n_users_ == 6


def test_a_model_of_a_device_is_updated_where_there_is_none(data, tmp_path, monkeypatch):
    """A file says that torch made P, not on which device."""
    deql.EASE(l2=1.0, engine=Torch("cpu"), half_life=9.0).fit(replace(data, times=np.arange(7.0)), keep_data=True).save(
        tmp_path / "fitted.deql"
    )
    monkeypatch.setattr("deql.linalg.engines.resources.cuda_device", lambda *_: ())
    for method in ("auto", "low rank", "refit"):
        model = deql.load(tmp_path / "fitted.deql")
        assert model.engine == "torch"
        if (done := model.update(forget_users=["a"], method=method)).method == "refit":
            assert model.engine_ == "memory"
        assert method in ("auto", done.method)
    assert model.age(until=20.0).method == "refit"
    certificate = model.forget("b")
    assert all(check.passed for check in verify(certificate, model, model.checksum(), model.data_))


def test_a_lost_inverse_in_double_precision_is_not_told_to_use_it(data):
    model = deql.EASE(l2=1e-8, dtype="float64").fit(data, keep_data=True)
    added = deql.Interactions.from_pairs(["n", "n", "a"], ["tea", "rye", "rye"])
    with pytest.raises(DeqlError, match=r"fit the model again$"):
        model.update(added, retire_items=["oat"], forget_users=["b"], method="low rank")


@pytest.mark.parametrize("how", ["low rank", "refit"])
def test_a_copy_is_updated_and_the_model_stays(model, how):
    model.quantize_rows()
    before, ids = model.checksum(), model.recommend([["tea"]], k=2).ids.tolist()
    other = copy.copy(model)
    other.update(
        deql.Interactions.from_pairs(["e", "e"], ["rye", "jam"]), forget_users=["a"], retire_items=["tea"], method=how
    )
    assert model.checksum() == before
    assert model.recommend([["tea"]], k=2).ids.tolist() == ids
    assert other.recommend([["rye"]], k=1).ids.tolist() == [["jam"]]
