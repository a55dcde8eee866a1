from pathlib import Path

import pytest

import deql
from deql._system.measure import Measurement
from deql.data import Interactions
from deql.errors import DeqlError
from deql.io.journal import Journal
from deql.paper import cost, table_request
from deql.paper.hyperparameters import Choice
from deql.paper.measurement_log import MeasurementLog
from deql.paper.paper_datasets import PaperDataset
from deql.paper.published import WEIGHTED
from deql.paper.table_request import TableRequest

DEQL_L2 = Choice("DEQL(L2)", {"l2": 3.0, "dropout": 0.3, "b": 0.5}, "found")
EASE = Choice("EASE", {"l2": 3.0}, "found")
RLAE = Choice("RLAE", {"l2": 3.0, "xi": 0.1}, "found")


@pytest.fixture(scope="module")
def split(random_matrix):
    return deql.split_weak(Interactions.from_csr(random_matrix(60, 30)), seed=0)


def make_dataset(split, name="yelp2018"):
    dataset = PaperDataset(name, "weak", None if name == "debian" else Path())
    dataset.__dict__["first"] = split  # where the property keeps it
    return dataset


def make_request(dataset, *choices, monkeypatch, **machine):
    monkeypatch.setattr(table_request, "stored_choices", lambda key, own: list(choices))
    return TableRequest(MeasurementLog(Journal(None, {}, "reproduction"), machine), [dataset])


@pytest.fixture
def weighed(monkeypatch):
    """No process is started: each fit takes 60 s of 1.5 cores and 2 GiB, of which a half is imports and data."""
    calls = []

    def fit_in_subprocess(choice, file, machine):
        assert deql.load_split(file).train.n_items
        calls.append((choice.row, dict(machine)))
        return Measurement(60.0, 90.0, 2048.0, 1024.0, {"engine": "memory"})

    monkeypatch.setattr(cost, "fit_in_subprocess", fit_in_subprocess)
    return calls


def cells(section, row, grid=0):
    found = section.grids[grid]
    values = next([*names, *map(str, cells)] for names, cells in found.rows if names[0] == row)
    return dict(zip(found.header, values, strict=True))


def test_the_papers_numbers_stand_beside_ours(split, weighed, monkeypatch):
    request = make_request(make_dataset(split), EASE, RLAE, DEQL_L2, monkeypatch=monkeypatch)
    lead, (section,) = cost.cost(request)
    assert cells(section, "DEQL(L2)") == {
        "model": "DEQL(L2)", "hyper-parameters": "l2=3 dropout=0.3 b=0.5", "minutes paper": "8", "GB paper": "80",
        "seconds here": "60.0", "cores": "1.50", "GiB here": "2.00", "GiB of the fit": "1.00",
        "memory, paper ÷ here": "37.3",  # 80e9 / 2³¹
    }  # fmt: skip
    assert [cells(section, "RLAE")[name] for name in ("minutes paper", "GB paper", "memory, paper ÷ here")] == ["–"] * 3
    assert cells(section, "SimpleX (GNN)", grid=1) == {"model": "SimpleX (GNN)", "minutes": "130", "GB": "1"}
    assert "takes 8 minutes and 80 GB, without a GPU; here it takes 60.0 s" in lead
    assert lead.endswith("and 2.00 GiB: 37.3 × less memory.")
    told = " ".join(section.remarks)
    assert "reports 27.9 to 37.3 times the memory" in told  # EASE: 60e9 / 2³¹
    assert "96 cores" in told
    assert "one half is kept, in float32: less than 0.01 GiB, so that memory is of the process" in told
    assert "weighs users" not in told
    assert "DLAE, EDLAE, RDLAE" in told
    assert "paper, on a GPU" in section.figures[0].svg


def test_other_data_have_no_column_of_the_paper(split, weighed, monkeypatch):
    request = make_request(make_dataset(split, "debian"), EASE, monkeypatch=monkeypatch)
    lead, (section,) = cost.cost(request)
    assert list(cells(section, "EASE")) == [
        "model", "hyper-parameters", "seconds here", "cores", "GiB here", "GiB of the fit"
    ]  # fmt: skip
    assert len(section.grids) == 1
    assert "a fit takes 60.0 s" in lead


def test_a_data_set_without_choices_says_what_to_do(split, monkeypatch):
    lead, (section,) = cost.cost(make_request(make_dataset(split), monkeypatch=monkeypatch))
    assert lead == ""
    assert "deql reproduce choices --only yelp2018" in section.words[0]


def test_a_row_that_cannot_be_fitted_leaves_the_others(split, weighed, monkeypatch):
    fit_in_subprocess = cost.fit_in_subprocess

    def fails(choice, *rest):
        if choice is EASE:
            raise DeqlError("EASE (l2=3) could not be fitted: an item has no users")
        return fit_in_subprocess(choice, *rest)

    monkeypatch.setattr(cost, "fit_in_subprocess", fails)
    request = make_request(make_dataset(split), EASE, DEQL_L2, monkeypatch=monkeypatch)
    _, (section,) = cost.cost(request)
    assert [names[0] for names, _ in section.grids[0].rows] == ["EASE", "DEQL(L2)"]
    row = list(cells(section, "EASE").values())
    assert row[2:] == ["2", "60", *["–"] * 5]
    assert "EASE (l2=3) could not be fitted: an item has no users." in section.remarks
    assert "for them: DLAE, EDLAE" in section.remarks[-1]
    with pytest.raises(DeqlError, match="an item has no users"):
        cost.cost(make_request(make_dataset(split), EASE, monkeypatch=monkeypatch))


def test_only_what_the_journal_lacks_is_fitted(split, weighed, monkeypatch):
    request = make_request(make_dataset(split), EASE, monkeypatch=monkeypatch, engine="memory", progress=True)
    first = cost.cost(request)
    assert cost.cost(request) == first
    assert weighed == [("EASE", {"engine": "memory", "progress": True})]
    request.log.machine["progress"] = False  # says nothing of the time
    cost.cost(request)
    assert len(weighed) == 1
    request.log.machine["engine"] = "disk"
    cost.cost(request)
    monkeypatch.setattr(cost, "thread_count", lambda: 77)
    cost.cost(request)
    other = make_dataset(deql.split_weak(split.train, seed=1))
    cost.cost(TableRequest(request.log, [other]))
    assert len(weighed) == 4
    assert len({str(record["key"]) for record in request.log.journal.records}) == 4


def test_tiles_on_disk_are_fresh_for_each_fit(split, weighed, monkeypatch, tmp_path):
    folder = tmp_path / "tiles"
    request = make_request(make_dataset(split), EASE, RLAE, monkeypatch=monkeypatch, engine="disk", folder=str(folder))
    cost.cost(request)
    places = [Path(machine["folder"]) for _, machine in weighed]
    assert len(set(places)) == 2
    assert all(place.parent == folder for place in places)
    assert not any(folder.iterdir())


def test_memory_of_a_device_has_a_column(split, monkeypatch):
    facts = {"engine": "torch", "device_mib": 4096.0}
    monkeypatch.setattr(cost, "fit_in_subprocess", lambda *_: Measurement(0.5, 0.5, 2048.0, 1024.0, facts))
    lead, (section,) = cost.cost(make_request(make_dataset(split), DEQL_L2, monkeypatch=monkeypatch, device="cuda"))
    assert cells(section, "DEQL(L2)")["GiB on the device"] == "4.00"
    assert "4.00 GiB on the device: 12.4 × less" in lead  # 80e9 / (6 · 2³⁰)
    assert "torch" in " ".join(section.remarks)
    assert "with that of the device" in section.figures[0].caption


def test_more_memory_than_in_the_paper_and_a_row_with_weights(split, monkeypatch):
    monkeypatch.setattr(
        cost, "fit_in_subprocess", lambda *_: Measurement(7200, 9e3, 153_600.0, 1.0, {"engine": "memory"})
    )
    weights = Choice(WEIGHTED, {"l2": 3.0, "dropout": 0.3, "b": 0.5, "user_power": 0.5}, "found")
    lead, (section,) = cost.cost(make_request(make_dataset(split), DEQL_L2, weights, monkeypatch=monkeypatch))
    assert "it takes 2.00 hours" in lead
    assert lead.endswith("and 150 GiB: 2.01 × more memory.")  # 150·2³⁰ / 80e9
    assert "DEQL(L2) + weights weighs users, too, and may take longer" in " ".join(section.remarks)
