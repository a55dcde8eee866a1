"""The strong and weak tables: numbers, which of the paper's are met, and what the remarks may say."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

import deql
from deql.io.journal import Journal
from deql.paper import accuracy
from deql.paper.hyperparameters import Choice
from deql.paper.measurement_log import MeasurementLog
from deql.paper.paper_datasets import PaperDataset
from deql.paper.published import METRICS, WITH_PRIOR
from deql.paper.table_request import TableRequest
from deql.priors import LowPass

CHOICES = [
    Choice("EASE", {"l2": 10.0}, "found", "x", {"recall@20": 0.3, "ndcg@20": 0.2}),
    Choice("EASE", {"l2": 50.0}, "published", "y"),
    Choice("DEQL(L2)", {"l2": 10.0, "dropout": 0.3, "b": 0.5}, "found", "x", {"recall@20": 0.3, "ndcg@20": 0.4}),
    Choice("DEQL(L2)", {"l2": 7.0, "dropout": 0.3, "b": 0.5}, "test", "z"),
]


@pytest.fixture
def judged(small, monkeypatch):
    monkeypatch.setattr("deql.paper.table_request.stored_choices", lambda data, own: CHOICES)

    def made(paper):
        monkeypatch.setattr(accuracy, "reported", lambda table, data: paper)
        dataset = PaperDataset("debian", "weak", None)
        return dataset, accuracy.accuracy(TableRequest(MeasurementLog(Journal(None, {}, "reproduction")), [dataset]))

    return made


def cells(grid, row):
    names, values = next(entry for entry in grid.rows if entry[0][0] == row)
    return dict(zip(grid.header, [*names, *map(str, values)], strict=True))


class TestSection:
    def test_numbers_are_those_of_evaluate(self, judged):
        dataset, (_, [section]) = judged({})
        model = deql.DEQL(10.0, 0.3, b=0.5).fit(dataset.first.train)
        means = deql.evaluate(model, dataset.first.test, METRICS).means
        found = cells(section.grids[0], "DEQL(L2)")
        assert found["R@20"] == f"{means['recall@20']:.4f}"
        assert found["N@20"] == f"{means['ndcg@20']:.4f}"
        assert found["N@20 validation"] == "0.4000"
        assert found["hyper-parameters"] == "l2=10 dropout=0.3 b=0.5"

    def test_one_table_for_each_origin(self, judged):
        _, (_, [section]) = judged({})
        assert [grid.title for grid in section.grids] == [
            "Hyper-parameters: chosen on validation data", "Hyper-parameters: published choice",
            "Hyper-parameters: chosen on the test part",
        ]  # fmt: skip
        assert [len(grid.rows) for grid in section.grids] == [2, 1, 1]

    def test_the_lead_names_the_row_that_validation_data_chose(self, judged):
        _, (lead, _) = judged({})
        assert "DEQL(L2), chosen on validation data, has Recall@20" in lead

    def test_differences_from_the_paper(self, judged):
        dataset, _ = judged({})
        model = deql.EASE(50.0).fit(dataset.first.train)
        recall, ndcg = (deql.evaluate(model, dataset.first.test, METRICS).means[metric] for metric in METRICS)
        paper = {"EASE": [round(recall, 4), round(ndcg, 4)], "DEQL(L2)": [0.9, 0.9], "SSM": [0.01, 0.9]}
        _, (lead, [section]) = judged(paper)
        row = dict(
            zip(section.grids[1].header, [*section.grids[1].rows[0][0], *section.grids[1].rows[0][1]], strict=True)
        )
        assert str(row["difference"]) in ("+0.0000", "-0.0000")
        assert [entry[0] for entry in section.grids[-1].rows] == [["SSM"]]
        assert "not above" in lead
        assert "SSM in NDCG@20" in lead
        said = " ".join(section.remarks)
        assert "met to ±0.0002: EASE with the published hyper-parameters" in said
        assert "Not met with any hyper-parameters tried: DEQL(L2)" in said
        assert "below the paper's numbers, by up to 0." in said

    def test_a_number_met_only_on_the_test_part_is_called_so(self, judged):
        dataset, _ = judged({})
        model = deql.DEQL(7.0, 0.3, b=0.5).fit(dataset.first.train)
        means = deql.evaluate(model, dataset.first.test, METRICS).means
        _, (_, [section]) = judged({"DEQL(L2)": [means[metric] for metric in METRICS]})
        assert "DEQL(L2) only with hyper-parameters chosen on the test part" in " ".join(section.remarks)

    def test_what_was_chosen_on_the_ends_of_lines(self, judged, monkeypatch):
        """A table of its own, as its validation values compare with each other alone; and the lead tells of it."""
        ends = Choice(
            WITH_PRIOR,
            {"l2": 10.0, "dropout": 0.3, "b": 0.5, "prior": "lowpass:rank=8,power_in=0.2", "prior_weight": 0.5},
            "ends", "the last tenth of each line", {"recall@20": 0.2, "ndcg@20": 0.1},
        )  # fmt: skip
        judged({})
        monkeypatch.setattr("deql.paper.table_request.stored_choices", lambda data, own: [*CHOICES, ends])
        dataset = PaperDataset("debian", "weak", None)
        lead, [section] = accuracy.accuracy(TableRequest(MeasurementLog(Journal(None, {}, "reproduction")), [dataset]))
        assert f"{WITH_PRIOR}, chosen on the ends of lines, has Recall@20" in lead
        assert section.grids[1].title == "Hyper-parameters: chosen on the ends of lines"
        model = deql.DEQL(10.0, 0.3, b=0.5, prior=LowPass(8, 0.2), prior_weight=0.5).fit(dataset.first.train)
        means = deql.evaluate(model, dataset.first.test, METRICS).means
        found = cells(section.grids[1], WITH_PRIOR)
        assert (found["R@20"], found["N@20"]) == tuple(f"{means[metric]:.4f}" for metric in METRICS)
        assert found["N@20 validation"] == "0.1000"
        assert "prior=lowpass:rank=8,power_in=0.2 prior_weight=0.5" in found["hyper-parameters"]
        assert "instead of towards zero" in " ".join(section.remarks)
        assert f"{WITH_PRIOR} (line ends)" in section.figures[0].svg


class TestNetworks:
    """Rows that are trained: where torch is, or the journal has them."""

    LIGHTGCN = Choice(
        "LightGCN", {"layers": 2, "epochs": 2, "batch_size": 512, "learning_rate": 0.01}, "found", "x",
        {"recall@20": 0.1, "ndcg@20": 0.1},
    )  # fmt: skip

    @pytest.fixture
    def table(self, judged, monkeypatch):
        def table(paper, journal):
            dataset, _ = judged(paper)
            monkeypatch.setattr("deql.paper.table_request.stored_choices", lambda data, own: [self.LIGHTGCN, *CHOICES])
            _, [section] = accuracy.accuracy(TableRequest(MeasurementLog(journal), [dataset]))
            return dataset, section

        return table

    @pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
    def test_are_trained_and_compared_by_shares(self, table):
        with Journal(None, {}, "reproduction") as journal:
            dataset, section = table({"LightGCN": [0.5, 0.0001], "PinSage": [0.1, 0.1]}, journal)
        found = cells(section.grids[0], "LightGCN")
        model = self.LIGHTGCN.model().fit(dataset.first.train)
        means = deql.evaluate(model, dataset.first.test, METRICS).means
        assert (found["R@20 here"], found["N@20 here"]) == tuple(f"{means[metric]:.4f}" for metric in METRICS)
        assert found["hyper-parameters"] == "layers=2 epochs=2 batch_size=512 learning_rate=0.01"
        assert [names for names, _ in section.grids[-1].rows] == [["PinSage"]]
        said = " ".join(section.remarks)
        assert f"LightGCN against the paper's: {means['recall@20'] / 0.5 - 1:+.1%} in Recall@20" in said
        assert "below it by more than 2%" in said
        assert "met to" not in said
        assert "LightGCN (paper)" not in section.figures[0].svg

    def test_without_torch_the_journal_knows_or_the_remarks_say_why(self, table, monkeypatch):
        monkeypatch.setattr("deql.paper.measurement_log.find_spec", lambda name: None)
        paper = {"LightGCN": [0.5, 0.4]}
        _, section = table(paper, Journal(None, {}, "reproduction"))
        assert [names for names, _ in section.grids[-1].rows] == [["LightGCN"]]
        said = 'LightGCN: not trained here, as torch is not installed: pip install "deql[neural]".'
        assert said in section.remarks

        journal = Journal(None, {}, "reproduction")
        log = MeasurementLog(journal)
        dataset = PaperDataset("debian", "weak", None)
        worth = {"recall@20": 0.51, "ndcg@20": 0.41, "errors": {"recall@20": 0.01, "ndcg@20": 0.01}, "users": 400}
        log.append("judged", log.key(dataset, self.LIGHTGCN.model()), worth, 1.0)
        _, section = table(paper, journal)
        assert cells(section.grids[0], "LightGCN")["R@20 here"] == "0.5100"
        assert said not in section.remarks
        assert "+2.0% in Recall@20 and +2.5% in NDCG@20; not below it by more than 2%." in " ".join(section.remarks)


@pytest.mark.parametrize(
    ("here", "words"),
    [
        ((0.3, 0.3), "above every row of the paper in both metrics"),
        ((0.20004, 0.3), "above 1 of 2 rows of the paper in both metrics; not above B in Recall@20"),
        ((0.3, 0.05), "above 0 of 2 rows of the paper in both metrics; not above A in NDCG@20, B in NDCG@20"),
    ],
)  # fmt: skip
def test_what_is_passed(here, words):
    assert accuracy.rows_passed(here, {"A": [0.1, 0.15], "B": [0.2, 0.1]}) == words
