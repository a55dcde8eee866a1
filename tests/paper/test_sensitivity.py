"""Curves over b, against models fitted one by one and SciPy's tests; and what is said of them."""

import json
from pathlib import Path

import pytest
from scipy import stats

import deql
from deql.engines import Memory, Torch
from deql.errors import TooLargeError
from deql.paper import sensitivity, sensitivity_curves
from deql.paper.hyperparameters import Choice, write_choices
from deql.paper.paper_datasets import PaperDataset
from deql.paper.published import METRICS
from deql.paper.sensitivity import b_sensitivity, verdict
from deql.paper.sensitivity_curves import FixedLambdaCurve, MetricCurve, SensitivityCurve
from deql.paper.table_request import TableRequest
from deql.tuning.winner import CURVE
from tests.paper.common import table_request
from tests.tuning.common import market

pytest.importorskip("matplotlib", reason="documents need matplotlib")

ROW = "DEQL(L2)"
FOUND = Choice(ROW, {"l2": 5.0, "dropout": 0.4, "b": 0.45}, "found", "a search")
PUBLISHED = Choice(ROW, {"l2": 2.0, "dropout": 0.2, "b": 3.0}, "published", "a paper")


@pytest.fixture
def undrawn(monkeypatch):
    """Figures take longer than all the rest."""
    for name in ("_figure", "_fixed_figure"):
        monkeypatch.setattr(sensitivity, name, lambda *_: None)


def choices(folder, *chosen):
    path = folder / "own.toml"
    path.write_text(write_choices({"debian-strong": chosen}), encoding="utf-8")
    return path


def text(section):
    return " ".join([*section.words, *section.remarks])


def test_curves_are_those_of_models_fitted_one_by_one(small, undrawn, tmp_path):
    wanted = table_request(tmp_path, own=choices(tmp_path, FOUND, PUBLISHED))
    _, sections = b_sensitivity(wanted)
    split = deql.split_strong(small)
    records = [record for record in wanted.log.used if "lambda" not in record["key"]]
    assert len(records) == 2
    for choice, record in zip((FOUND, PUBLISHED), records, strict=True):
        found = record["found"]
        bs = found["b"]
        assert bs == sorted({*CURVE, 0.45, 3.0})
        tops = {metric: max(range(len(bs)), key=found[metric]["means"].__getitem__) for metric in METRICS}
        models = {
            place: deql.DEQL(**choice.parameters | {"b": bs[place]}) for place in {*range(0, 25, 6), *tops.values()}
        }
        judged = {place: deql.evaluate(model.fit(split.train), split.test) for place, model in models.items()}
        assert found["users"] == len(judged[0].users)
        for metric in METRICS:
            kept, zero, best = found[metric], judged[0].per_user[metric], judged[tops[metric]].per_user[metric]
            for place, one in judged.items():
                assert kept["means"][place] == one.means[metric]
                values = one.per_user[metric]
                for name, more, less in (("over_zero", values, zero), ("under_peak", best, values)):
                    p = stats.ttest_rel(more, less, alternative="greater").pvalue if (more != less).any() else 1.0
                    assert kept[name][place] == pytest.approx(p)
    # What is kept is as long as the curve, whatever the number of users.
    assert all(len(values) == len(bs) for metric in METRICS for values in found[metric].values())
    shown = {names[0]: [str(cell) for cell in cells] for names, cells in sections[-1].grids[0].rows}
    assert shown["0.45"][1] == f"{records[0]['found']['ndcg@20']['means'][bs.index(0.45)]:.4f}"
    assert shown["3"][2] == f"{records[1]['found']['recall@20']['means'][bs.index(3.0)]:.4f}"


def test_one_inverse_for_a_curve_and_none_for_one_that_is_remembered(small, undrawn, tmp_path, monkeypatch):
    monkeypatch.setattr(sensitivity_curves, "AFFORDABLE", 0)
    fits, solve = [], deql.models.linear.solve
    monkeypatch.setattr(deql.models.linear, "solve", lambda *args, **more: fits.append(1) or solve(*args, **more))
    said = []
    wanted = table_request(tmp_path, own=choices(tmp_path, FOUND), journal=tmp_path / "a.jsonl", tell=said.append)
    with wanted.log.journal:
        before = b_sensitivity(wanted)
    assert len(fits) == 1
    assert said == [
        "Debian (bundled): fitting DEQL(L2) l2=5 dropout=0.4 b=0.45 for 25 values of b, one inverse of 90 items"
    ]
    again = table_request(tmp_path, own=wanted.own, journal=tmp_path / "a.jsonl")
    with again.log.journal:
        assert b_sensitivity(again) == before
    assert len(fits) == 1
    assert "with 90 items (more than 8,000) it is left out here; on a GPU, --engine torch makes it" in text(
        before[1][0]
    )
    assert before[0].startswith("Debian (bundled): at a fixed l2, Recall@20 peaks at b = ")
    # Another split or another ridge is another curve.
    key = json.loads((tmp_path / "a.jsonl").read_text("utf-8").splitlines()[1])["key"]
    assert (key["data"], key["l2"], key["dropout"]) == ("debian-strong", 5.0, 0.4)
    assert key["split"] == again.datasets[0].fingerprint


def test_at_a_fixed_lambda_each_b_is_the_papers_model(small, undrawn, tmp_path):
    wanted = table_request(tmp_path, own=choices(tmp_path, FOUND))
    dataset = wanted.datasets[0]
    found = sensitivity_curves.at_fixed_lambda(wanted.log, dataset, FOUND)
    assert found.b == [0, 0.25, 0.45, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2]
    kappa = 0.4 + 0.6 * 0.45**2
    assert found.lam == pytest.approx(5.0 * 0.6**2 * kappa)
    assert found.l2[2] == 5.0
    judged = []
    for b, l2 in zip(found.b, found.l2, strict=True):
        model = deql.DEQL.from_paper(found.lam, 0.4, 1.0, b)
        assert l2 == pytest.approx(model.l2)
        judged.append(deql.evaluate(model.fit(dataset.first.train), dataset.first.test).per_user)
    for line in found.lines:
        values = [one[line.metric] for one in judged]
        assert line.means == pytest.approx([one.mean() for one in values], abs=1e-3)
        p = stats.ttest_rel(values[8], values[0], alternative="greater").pvalue
        assert line.over_zero[8] == pytest.approx(p, abs=0.05)


@pytest.mark.parametrize(
    ("machine", "engine", "made"),
    [
        ({}, Torch(), True), ({}, Memory(), False), ({"engine": "torch", "device": "cpu"}, Torch("cpu"), False),
        ({}, TooLargeError("too large"), False),
    ],
)  # fmt: skip
def test_many_items_have_a_fixed_lambda_on_a_gpu_or_once_it_is_remembered(
    small, tmp_path, monkeypatch, machine, engine, made
):
    monkeypatch.setattr(sensitivity_curves, "AFFORDABLE", 0)
    monkeypatch.setattr(sensitivity_curves, "fit_and_evaluate", lambda models, *_: dict.fromkeys(models, 0))
    flat = {"means": [0.1] * 10, "over_zero": [None] * 10, "under_peak": [None] * 10}
    monkeypatch.setattr(
        sensitivity_curves, "curve_facts", lambda bs, _: {"b": bs, "users": 1} | dict.fromkeys(METRICS, flat)
    )

    def choose(*_, **__):
        if isinstance(engine, Exception):
            raise engine
        return engine

    monkeypatch.setattr(sensitivity_curves, "choose_engine", choose)
    wanted = table_request(tmp_path, machine=machine)
    found = sensitivity_curves.at_fixed_lambda(wanted.log, wanted.datasets[0], FOUND)
    assert (found is not None) is made
    if made:
        monkeypatch.setattr(sensitivity_curves, "choose_engine", lambda *_, **__: Memory())
        again = sensitivity_curves.at_fixed_lambda(wanted.log, wanted.datasets[0], FOUND)
        assert again.l2 == found.l2
        assert len(wanted.log.used) == 1
        (key,) = (record["key"] for record in wanted.log.journal.records)
        assert key["lambda"] == found.lam
        assert "l2" not in key


def test_sections_figures_and_data_without_choices(small, tmp_path, monkeypatch):
    monkeypatch.setattr(sensitivity_curves, "AT_FIXED_LAMBDA", (0.0, 1.0))
    lead, sections = b_sensitivity(table_request(tmp_path, ("strong", "weak"), own=choices(tmp_path, FOUND, PUBLISHED)))
    headings = [
        "Debian (bundled), strong",
        "Debian (bundled), weak",
        "How to read it",
        "The numbers behind the figures",
    ]
    assert [section.heading for section in sections] == headings
    strong, weak = sections[:2]
    assert weak.words == [
        "No hyper-parameters of DEQL(L2) chosen on validation data are known for debian-weak: deql reproduce choices "
        "--only debian-weak searches for them."
    ]
    assert lead.startswith("Debian (bundled), strong: at a fixed λ, Recall@20 ")
    assert [grid.title for grid in strong.grids] == [
        "Peaks at l2=5 dropout=0.4, chosen on validation data", "Peaks at l2=2 dropout=0.2, published choice"
    ]  # fmt: skip
    assert strong.key == ["chosen on validation data: l2=5 dropout=0.4", "published choice: l2=2 dropout=0.2"]
    assert len(strong.figures) == 4
    assert all(" b = a" in figure.svg for figure in strong.figures)
    assert [">3</text>" in figure.svg for figure in strong.figures] == [True, True, False, False]
    assert len({figure.svg.partition(">")[0] for figure in strong.figures}) == 4


def test_where_nothing_is_dropped_there_is_no_second_figure(small, undrawn, tmp_path):
    plain = Choice(ROW, {"l2": 5.0, "dropout": 0.0, "b": 1.0}, "found", "a search")
    section = b_sensitivity(table_request(tmp_path, own=choices(tmp_path, plain)))[1][0]
    assert "every b above 0 gives one model" in text(section)
    assert len(section.figures) == 2


BS = [0.0, 0.5, 0.9, 1.0, 1.2, 2.0]


def line(peak, rivals=(), metric="ndcg@20"):
    """A curve with its peak at a place; ``rivals`` are places that cannot be told from it."""
    means = [0.4 - 0.01 * abs(place - peak) for place in range(len(BS))]
    under = [1.0 if place == peak else 0.3 if place in rivals else 0.001 for place in range(len(BS))]
    return MetricCurve(metric, BS, means, [1.0, *[0.04] * (len(BS) - 1)], under)


@pytest.mark.parametrize(
    ("peak", "claim", "agrees"),
    [
        (0, "below", False), (1, "below", True), (3, "below", True), (4, "below", False), (1, "near", False),
        (2, "near", True), (5, "near", True), (3, "above", False), (4, "above", True),
    ],
)  # fmt: skip
def test_where_a_peak_should_lie(peak, claim, agrees):
    assert verdict(line(peak), claim)[0] is agrees


def test_a_peak_that_chance_may_have_moved_decides_nothing():
    agrees, told = verdict(line(3, rivals=[4]), "above")
    assert agrees is None
    assert told == (
        "NDCG@20 peaks at b = 1, which would not agree, but b = 1.2, which would, is only 0.0100 less (p = 0.3000): "
        "that decides nothing."
    )
    # Agreement takes as much as disagreement: b = 0 and every b above a are told from the peak.
    assert verdict(line(1, rivals=[0]), "below")[0] is None
    assert verdict(line(1, rivals=[5]), "below")[0] is None
    assert verdict(line(1, rivals=[2, 3]), "below")[0] is True
    # One that is told from the peak, beside others that are not.
    assert verdict(line(3, rivals=[2]), "above")[0] is False
    assert line(3, rivals=[0, 2, 4]).as_good == (0.9, 1.2)


class Made(PaperDataset):
    """A data set of 24 items and 160 users, or the other way round."""

    def split(self, seed=0):
        data = market(160, 24) if self.protocol == "strong" else market(24, 160)
        return deql.split_weak(data, seed=seed)


@pytest.mark.parametrize(
    ("name", "protocol", "peaks", "said"),
    [
        ("yelp2018", "weak", (5, 4), "that is what the paper says of Yelp2018."),
        ("yelp2018", "weak", (1, 3), "that is not what the paper says of Yelp2018."),
        ("netflix", "strong", (1, 4), "that is what the paper says of Netflix by Recall@20, and not by NDCG@20."),
        ("msd", "strong", (0, 4), "that is not what the paper says of MSD."),
        (
            "gowalla",
            "weak",
            (0, 1),
            "that is not what the paper says of data with so many items per user (6.33; Yelp2018 has 1.20).",
        ),
        (
            "gowalla-1",
            "strong",
            (3, 1),
            "that is what the paper says of data with so few items per user (0.15; Yelp2018 has 1.20).",
        ),
    ],
)
def test_what_is_said_of_data(tmp_path, monkeypatch, undrawn, name, protocol, peaks, said):
    lines = [line(peak, metric=metric) for peak, metric in zip(peaks, METRICS, strict=True)]
    monkeypatch.setattr(sensitivity, "at_fixed_l2", lambda *_: SensitivityCurve(FOUND, 0.5, lines, 77))
    monkeypatch.setattr(sensitivity, "at_fixed_lambda", lambda *_: None)
    monkeypatch.setattr(TableRequest, "choices", lambda *_: [FOUND])
    wanted = TableRequest(table_request(tmp_path).log, [Made(name, protocol, Path())])
    lead, sections = b_sensitivity(wanted)
    assert lead.endswith(said)
    told = text(sections[0])
    assert "77 users are evaluated" in told
    for peak, metric in zip(peaks, ("Recall@20", "NDCG@20"), strict=True):
        where = {
            0: "peaks at b = 0, which is EDLAE", 3: "peaks at b = 1, at a",
            5: "still rises at b = 2, the largest tried, above a",
        }.get(peak, f"peaks at b = {BS[peak]:g}, {'below' if peak < 3 else 'above'} a")  # fmt: skip
        assert f"{metric} {where}" in told
    if 4 in peaks:
        assert (
            "with 0.4000: +0.0400 over b = 0 (p = 0.0400, read off the peak), and +0.0100 over b = a (p = 0.0010). "
            "b = 0.5, which validation data chose, has +0.0100 over b = 0, more than chance (p = 0.0400), and is "
            "0.0300 below the peak (p = 0.0010)." in told
        )
    if name == "gowalla":
        assert "with 6.33 of them (1.20 on Yelp2018) the curve should peak near b = a" in told
        assert "So more items per user than Yelp2018 has do not put the peak there by themselves." in told
        assert "Recall@20 peaks at b = 0, which is EDLAE, NDCG@20 peaks at b = 0.5, below a (+0.0100" in lead
        assert (
            "b that was tried is better. b = 0.5, which validation data chose, is 0.0100 below the peak (p = " in told
        )


def test_the_paper_is_judged_on_the_curve_that_it_draws(tmp_path, monkeypatch, undrawn):
    def lines(*peaks):
        return [line(peak, metric=metric) for peak, metric in zip(peaks, METRICS, strict=True)]

    monkeypatch.setattr(sensitivity, "at_fixed_l2", lambda *_: SensitivityCurve(FOUND, 0.5, lines(1, 1), 77))
    fixed = FixedLambdaCurve(3.0, [6.0, 5.0, 4.0, 3.0, 2.0, 1.0], lines(4, 5))
    monkeypatch.setattr(sensitivity, "at_fixed_lambda", lambda *_: fixed)
    monkeypatch.setattr(TableRequest, "choices", lambda *_: [FOUND])
    wanted = TableRequest(table_request(tmp_path).log, [Made("yelp2018", "weak", Path())])
    lead, sections = b_sensitivity(wanted)
    assert lead == (
        "Yelp2018: at a fixed λ, Recall@20 peaks at b = 1.2, above a (+0.0400 over b = 0), NDCG@20 still rises at b = "
        "2, the largest tried, above a (+0.0500 over b = 0); that is what the paper says of Yelp2018."
    )
    told = text(sections[0])
    assert "At a fixed λ, as the paper's curve is: Recall@20 peaks at b = 1.2, which agrees" in told
    assert "Recall@20 then peaks at b = 1.2 with 0.4000 (at a fixed l2: b = 0.5, 0.4000)" in told
    monkeypatch.setattr(sensitivity, "at_fixed_lambda", lambda *_: None)
    lead, sections = b_sensitivity(wanted)
    assert lead.startswith("Yelp2018: at a fixed l2, Recall@20 peaks at b = 0.5")
    assert lead.endswith("that is not what the paper says of Yelp2018.")
    assert "At a fixed l2, which the paper's curve is not: Recall@20 peaks at b = 0.5, which does not agree" in text(
        sections[0]
    )


def test_a_b_that_prints_like_another_has_a_model_of_its_own(small, undrawn, tmp_path, monkeypatch):
    monkeypatch.setattr(sensitivity_curves, "AT_FIXED_LAMBDA", (0.0, 1.0))
    close = Choice(ROW, {"l2": 5.0, "dropout": 0.4, "b": 1.00000001}, "found", "a search")
    wanted = table_request(tmp_path, own=choices(tmp_path, close))
    _, sections = b_sensitivity(wanted)
    at_l2, at_lambda = wanted.log.used
    assert at_lambda["found"]["b"] == [0.0, 1.0, 1.00000001]
    for record in (at_l2, at_lambda):
        assert all(len(record["found"][metric]["means"]) == len(record["found"]["b"]) for metric in METRICS)
    assert len(sections[-1].grids[0].rows) == len(CURVE) + 1
    assert at_l2["key"]["b"].startswith("0, 0.1, ")  # as in journals of before
    assert "0.9, 1, 1.00000001, 1.1" in at_l2["key"]["b"]


def test_a_flat_line_has_no_peak_and_a_single_user_no_p_value(small, undrawn, tmp_path, monkeypatch):
    nothing = [float("nan")] * len(BS)
    flat = MetricCurve("recall@20", BS, [1.0] * len(BS), nothing, nothing)
    tied = MetricCurve("ndcg@20", BS, [0.4, 0.4, 0.4, 0.3, 0.3, 0.3], nothing, nothing)
    published = Choice(ROW, FOUND.parameters, "published", "a paper")
    monkeypatch.setattr(
        sensitivity, "at_fixed_l2", lambda _log, _dataset, one, _bs: SensitivityCurve(one, 0.5, [flat, tied], 1)
    )
    monkeypatch.setattr(sensitivity, "at_fixed_lambda", lambda *_: None)
    monkeypatch.setattr(TableRequest, "choices", lambda *_: [FOUND, published])
    lead, sections = b_sensitivity(table_request(tmp_path))
    told = text(sections[0])
    assert (
        "Recall@20 is the same at every b, NDCG@20 peaks at b = 0, which is EDLAE; the users evaluated do not" in lead
    )
    assert "1 user is evaluated." in told
    assert sections[0].remarks[0] == "Recall@20 is the same at every b, 1.0000."
    assert "b = 0.5, which validation data chose, is as good as the peak." in told
    assert "but b = 0.9, which would, is as good: that decides nothing." in verdict(tied, "near")[1]
    assert "(p" not in told
    assert "0.0000" not in told
    # The published choice is the same, and is not shown again.
    assert sections[-1].grids[0].header == ["b", "Recall@20", "NDCG@20"]
    assert len(sections[0].grids) == 1


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ((None, None), "the users evaluated do not decide whether that is what the paper says of X"),
        ((True, None), "that is what the paper says of X by Recall@20, and undecided by NDCG@20"),
        ((None, False), "that is not what the paper says of X by NDCG@20, and undecided by Recall@20"),
    ],
)
def test_metrics_that_decide_nothing(told, said):
    assert sensitivity._agreement(dict(zip(METRICS, told, strict=True)), "of X") == said


@pytest.mark.parametrize(("place", "told"), [(2, False), (4, True)])
def test_two_curves_of_the_same_data_may_peak_on_either_side(small, tmp_path, monkeypatch, undrawn, place, told):
    def made(_log, _dataset, choice, _bs):
        return SensitivityCurve(
            choice, 0.5, [line(1 if choice is FOUND else place, metric=metric) for metric in METRICS], 77
        )

    monkeypatch.setattr(sensitivity, "at_fixed_l2", made)
    monkeypatch.setattr(sensitivity, "at_fixed_lambda", lambda *_: None)
    monkeypatch.setattr(TableRequest, "choices", lambda *_: [FOUND, PUBLISHED])
    section = b_sensitivity(table_request(tmp_path))[1][0]
    assert ("where one peaks depends on l2 and dropout" in text(section)) is told
