"""What docs/results says was measured: the published numbers are met, and the stored choices are those measured."""

import json
from pathlib import Path

import pytest

from deql.paper.hyperparameters import stored_choices
from deql.paper.measurement_log import hyper_parameters
from deql.paper.published import METRICS, reported

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture(scope="module")
def judged():
    lines = (RESULTS / "measured.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    records = [record for record in map(json.loads, lines) if record["step"] == "judged"]

    def find(data, choice):
        wanted = hyper_parameters(choice.model())
        found = [
            record["found"] for record in records
            if {name: value for name, value in record["key"].items() if name != "split"} == {"data": data} | wanted
        ]  # fmt: skip
        assert found, f"{data}: {choice.row} {choice.words} was not measured"
        return found[-1]

    return find


@pytest.mark.parametrize("data", ["gowalla", "yelp2018"])
def test_published_choices_meet_the_published_numbers(judged, data):
    paper = reported("weak", data)
    choices = [one for one in stored_choices(data) if one.origin == "published" and one.row in paper]
    assert {"EASE", "DLAE", "EDLAE", "DEQL(L2+zero-diag)"} <= {one.row for one in choices}
    for choice in choices:
        found = judged(data, choice)
        for metric, number in zip(METRICS, paper[choice.row], strict=True):
            assert found[metric] == pytest.approx(number, abs=2e-4), (data, choice.row, metric)


@pytest.mark.parametrize("data", ["gowalla", "yelp2018", "gowalla-1", "debian-strong", "debian-weak"])
def test_every_stored_choice_was_measured(judged, data):
    for choice in stored_choices(data):
        assert judged(data, choice)["users"] > 1000
