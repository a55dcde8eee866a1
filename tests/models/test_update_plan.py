"""Which way an update takes, on machines that are made up."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

import deql
import deql.linalg.gram_change
from deql.errors import TooLargeError
from deql.linalg.engines.resources import Resources
from deql.linalg.planner import calibration, choose, update_cost
from deql.linalg.planner.update_cost import UpdateSize, update_disk, update_memory, update_seconds
from deql.models import update_plan

GIB = 2**30
RATES = {"products": 1e11, "memory": 5e9, "read": 1e9, "write": 5e8, "device": 2e13, "copy": 1e10}


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine of known speed with so much free, in bytes, whose fits need as much as they do; nothing is small."""

    def make(memory=64 * GIB, disk=500 * GIB, rates=RATES):
        def find(folder=None, devices=True, device=None):
            return Resources(memory, disk, Path(folder or tmp_path), True)

        for module in (choose, update_cost, update_plan):
            monkeypatch.setattr(module, "find_resources", find)
        monkeypatch.setattr(choose, "_SMALL", 0)
        monkeypatch.setattr(update_plan, "small_update", lambda n: False)
        for module in (update_cost, update_plan):
            monkeypatch.setattr(module, "quick_rates", lambda *asked: rates)

    return make


@pytest.fixture(scope="module")
def model():
    generator = np.random.default_rng(0)
    R = csr_array((generator.random((400, 120)) < np.linspace(0.01, 0.3, 120)).astype(np.float32))
    return deql.EDLAE(l2=5.0, dropout=0.3).fit(deql.Interactions.from_csr(R), keep_data=True)


def without_data(model):
    other = model.with_rule()
    other._kept = None
    return other


def test_the_faster_way_is_taken_and_said(machine, model):
    machine()
    few = model.plan_update(forget_users=[0])
    assert few.method == "low rank"
    assert few.seconds["low rank"] < few.seconds["refit"]
    assert few.reason == f"P changes by {few.rank} of 120 columns: under 0.1 s predicted, a refit under 0.1 s."
    machine(rates=RATES | {"products": 1e8})
    many = model.plan_update(forget_users=range(200))
    assert (many.method, many.rank) == ("refit", 120)
    assert many.seconds["low rank"] > many.seconds["refit"]
    assert many.reason.startswith("P is computed anew: under 0.1 s predicted, changing 120 of 120 columns 0.")
    assert str(many) == f"{many.changes}. {many.reason}"
    for method in ("low rank", "refit"):
        assert model.plan_update(forget_users=range(200), method=method).method == method


def test_times_are_said_as_exactly_as_two_need_to_be_compared():
    assert [update_plan._brief(seconds) for seconds in (0.01, 0.24, 3.14, 14.2, 400.0)] == [
        "under 0.1 s", "0.2 s", "3.1 s", "14 s", "7 min",
    ]  # fmt: skip


def test_where_a_refit_is_impossible_columns_change(machine, model):
    machine(rates=RATES | {"products": 1e8})
    more = deql.Interactions.from_csr(model.data_.matrix[:200], users=np.arange(1000, 1200))
    plan = without_data(model).plan_update(more, new_users=True)
    assert plan.method == "low rank"
    assert plan.reason.endswith("predicted, a refit would need the data.")
    assert [*plan.seconds] == [*plan.memory] == ["low rank"]


def test_memory_decides_before_time(machine, model):
    machine()
    enough = model.plan_update(forget_users=[0]).memory["low rank"]
    machine(memory=2**14, disk=0)
    with pytest.raises(TooLargeError, match="too many: in memory it needs"):
        model.plan_update(forget_users=[0])
    with pytest.raises(
        TooLargeError, match=r"changing P by .* takes too much: it needs .* What would fit: .*a machine"
    ):
        without_data(model).plan_update(deql.Interactions.from_pairs([999] * 60, range(60)), new_users=True)
    machine(memory=enough - 1)  # the new store may lie on a disk, where a refit may not
    fitted_in_memory = model.with_rule()
    fitted_in_memory.fitted_params_ = model.fitted_params_ | {"engine": "memory"}
    plan = fitted_in_memory.plan_update(forget_users=[0])
    assert plan.method == "low rank"
    assert plan.reason.endswith("a refit would not fit.")
    with pytest.raises(TooLargeError, match="are too many for the memory engine"):
        fitted_in_memory.plan_update(forget_users=[0], method="refit")


def test_a_refit_is_taken_where_only_it_fits(machine, model, monkeypatch):
    machine()
    monkeypatch.setattr(update_plan, "update_memory", lambda size, engine: 100 * GIB)
    plan = model.plan_update(forget_users=[0])
    assert plan.method == "refit"
    assert "it needs 100 GiB of" in plan.reason or "it needs 100.0 GiB of memory" in plan.reason
    assert [*plan.seconds] == ["refit"]
    with pytest.raises(TooLargeError, match="changing P by"):
        model.plan_update(forget_users=[0], method="low rank")


def test_predictions_grow_with_what_there_is_to_do():
    size = UpdateSize(12_000, "float32", 60, 60)
    seconds = update_seconds(size, "memory", RATES)
    # n²·k flops, and P read and written, and read once more
    assert 12_000**2 * 60 / 1e11 < seconds < 0.5
    for more in (
        {"rank": 700, "touched": 700}, {"touched": 400}, {"retired": 5}, {"new_items": 5}, {"prior_flops": 1e10},
        {"dtype": "float64"}, {"interactions": 10**7},
    ):  # fmt: skip
        assert update_seconds(replace(size, **more), "memory", RATES) > seconds
    assert update_seconds(size, "disk", RATES) > seconds
    assert update_seconds(replace(size, rank=700, touched=700), "torch", RATES) < update_seconds(
        replace(size, rank=700, touched=700), "memory", RATES
    )


def test_memory_is_the_new_store_beside_panels_and_core():
    size = UpdateSize(12_000, "float32", 700, 700)
    store = size.stores[0]
    assert update_memory(size, "memory") == store + 12_000 * 700 * 4 + 6 * 8 * 700**2
    assert update_memory(size, "disk") == update_memory(size, "memory") - store
    assert (update_disk(size, "disk"), update_disk(size, "memory")) == (store, 0)
    # Retiring goes through two stores, and new items through one more: two of them are there at once.
    assert store < update_disk(replace(size, retired=3, new_items=2), "disk") < 2.1 * store
    assert update_disk(UpdateSize(12_000, "float32", 0, 0), "disk") == 0


def test_nothing_is_measured_for_few_items(model, monkeypatch):
    def measured(*asked):
        raise AssertionError("a plan for few items measured something")

    monkeypatch.setattr(calibration, "product_rate", measured)
    monkeypatch.setattr(calibration, "memory_rate", measured)
    assert model.plan_update(forget_users=[0]).method == "low rank"


def test_rates_are_measured_once(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(calibration, "product_rate", lambda *asked: calls.append(asked) or 1e11)
    calibration.quick_rates.cache_clear()
    for _ in range(3):
        assert calibration.quick_rates("memory", "float32", 64, tmp_path, "cpu")["products"] == 1e11
    assert len(calls) == 1
    assert {"read", "write"} <= {*calibration.quick_rates("disk", "float32", 64, tmp_path, "cpu")}
    calibration.quick_rates.cache_clear()


def test_the_machine_is_measured_only_where_that_may_decide(machine, monkeypatch):
    generator = np.random.default_rng(0)
    R = csr_array((generator.random((300, 1300)) < 0.02).astype(np.float32))
    model = deql.EASE(l2=5.0).fit(deql.Interactions.from_csr(R), keep_data=True)
    measured = []
    machine()
    for module in (update_cost, update_plan):
        monkeypatch.setattr(module, "quick_rates", lambda *asked: measured.append(asked) or RATES)
    report = model.update(forget_users=[0])
    assert (report.method, measured) == ("low rank", [])
    assert report.plan.seconds["refit"] > 8 * report.plan.seconds["low rank"]
    model.update(forget_users=range(1, 220))
    assert measured
    measured.clear()
    assert model.plan_update(forget_users=[250]).seconds
    assert measured  # who asks for a plan wants to know


def test_a_plan_makes_nothing_of_all_touched_items_squared(machine, model, monkeypatch):
    machine(rates=RATES | {"products": 1e8})
    monkeypatch.setattr(deql.linalg.gram_change.RowsChange, "change", property(lambda rows: pytest.fail("made")))
    assert model.plan_update(forget_users=range(200)).method == "refit"
    other = model.with_rule()
    assert other.update(forget_users=range(200)).method == "refit"
