"""Five splits and their tests, against deql.compare and SciPy's tests on the same values."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import deql
from deql._system.tables import number, p_value
from deql.io.journal import Journal
from deql.paper.hyperparameters import Choice
from deql.paper.measurement_log import MeasurementLog
from deql.paper.published import METRICS, WEIGHTED, reported
from deql.paper.significance_table import SEEDS, _identities, significance
from deql.paper.split_tests import SplitTest
from tests.paper.common import SMALL, table_request, write_checkins, write_small

pytest.importorskip("matplotlib", reason="documents need matplotlib")

ABLATED = "DEQL(L2), diagonal set to 0"
ROWS = ["EDLAE", "DEQL(L2+zero-diag)", "DEQL(L2)", ABLATED, WEIGHTED]
APART = {"DEQL(L2+zero-diag)": {"l2": 20.0, "dropout": 0.5}}
"""A zero diagonal with another ridge than EDLAE's."""


@pytest.fixture
def undrawn(monkeypatch):
    """Figures take longer than all the rest."""
    monkeypatch.setattr("deql.paper.significance_table._figures", lambda *_: [])


def table(grid):
    """Cells as text by the names of their rows."""
    return {
        tuple(names): dict(zip(grid.header[len(names) :], map(str, cells), strict=True)) for names, cells in grid.rows
    }


@pytest.fixture
def oracle(small):
    """The same models on the same splits by deql.compare; values of users, each on their first split."""
    models = dict(zip(ROWS, [
        deql.EDLAE(2.0, 0.5), deql.DEQL(20.0, 0.5, zero_diagonal=True), deql.DEQL(5.0, 0.4, 0.5), deql.EDLAE(5.0, 0.4),
        deql.DEQL(**SMALL[WEIGHTED]),
    ], strict=True))  # fmt: skip
    compared = deql.compare(models, small, splits=5)
    met, values = set(), {metric: [] for metric in METRICS}
    for seed in SEEDS:
        split = deql.split_strong(small, seed=seed)
        judged = {row: deql.evaluate(model.fit(split.train), split.test) for row, model in models.items()}
        for place, user in enumerate(judged["EDLAE"].users):
            if user not in met:
                met.add(user)
                for metric in METRICS:
                    values[metric].append([judged[row].per_user[metric][place] for row in ROWS])
    return compared, {metric: np.array(several) for metric, several in values.items()}


def test_means_and_tests_are_those_of_independent_code(oracle, undrawn, tmp_path):
    compared, of_users = oracle
    lead, (section, last) = significance(table_request(tmp_path, own=write_small(tmp_path, **APART)))
    means, tests, values = map(table, section.grids)
    assert last.heading == "What five splits can show"
    (remark,) = section.remarks
    assert remark.startswith(f"“{ABLATED}” has the l2 and dropout that were chosen for DEQL(L2)")
    assert list(section.key) == ROWS
    share = np.mean([split["judged"] / split["train"]["users"] for split in compared.splits])
    for metric, short in zip(METRICS, ("R@20", "N@20"), strict=True):
        full = {"R@20": "Recall@20", "N@20": "NDCG@20"}[short]
        columns = dict(zip(ROWS, compared.values[metric].T, strict=True))
        users = dict(zip(ROWS, of_users[metric].T, strict=True))
        pairs = [("DEQL(L2)", "DEQL(L2+zero-diag)"), ("DEQL(L2)", "EDLAE"), ("DEQL(L2)", ABLATED),
                 (WEIGHTED, "DEQL(L2)"), (WEIGHTED, "EDLAE")]  # fmt: skip
        plain = {pair: stats.ttest_rel(*(columns[row] for row in pair), alternative="greater").pvalue for pair in pairs}
        ranked = sorted(pairs, key=plain.get)
        for row in ROWS:
            words = next(cells for names, cells in means.items() if names[0] == row)
            assert words[short] == f"{number(columns[row].mean())} ± {number(columns[row].std(ddof=1))}"
            assert list(values[row, full].values()) == [number(value) for value in columns[row]]
        for pair in pairs:
            cells, d = tests[f"{pair[0]} ≤ {pair[1]}", full], columns[pair[0]] - columns[pair[1]]
            assert cells["difference"] == f"{d.mean():+.4f}"
            assert cells["here"] == f"{'Rej' if plain[pair] < 0.05 else 'Acc'} {p_value(plain[pair])}"
            steps = [min(1.0, (5 - place) * plain[one]) for place, one in enumerate(ranked)]
            assert cells["p Holm"] == p_value(max(steps[: ranked.index(pair) + 1]))
            t = d.mean() / np.sqrt((1 / 5 + share) * d.var(ddof=1))
            assert cells["p overlap"] == p_value(stats.t.sf(t, 4))
            over_users = stats.ttest_rel(users[pair[0]], users[pair[1]], alternative="greater").pvalue
            assert cells["p users"] == p_value(over_users)
    assert f"{tests['DEQL(L2) ≤ EDLAE', 'Recall@20']['difference'].replace('-', '−')} in Recall@20" in lead


def test_users_are_counted_once(small, undrawn, tmp_path):
    wanted = table_request(tmp_path)
    significance(wanted)
    counts = [record["found"]["sums"]["DEQL(L2) ≤ EDLAE"]["ndcg@20"][0] for record in wanted.log.used]
    tested = [set(deql.split_strong(small, seed=seed).test.seen.users.tolist()) for seed in SEEDS]
    assert counts == [len(users.difference(*tested[:place])) for place, users in enumerate(tested)]
    assert sum(counts) < sum(map(len, tested))


class TestOneModelUnderTwoNames:
    def made(self, tmp_path, **changed):
        wanted = table_request(tmp_path, own=write_small(tmp_path, **changed))
        _, (section, _) = significance(wanted)
        return section, " ".join(section.remarks), [set(record["found"]["means"]) for record in wanted.log.used]

    def test_one_test_serves_both_nulls(self, small, undrawn, tmp_path):
        section, remarks, measured = self.made(tmp_path)
        assert "DEQL(L2+zero-diag) is EDLAE here" in remarks
        assert "The same model, the same test" in remarks
        assert measured == [set(ROWS) - {"DEQL(L2+zero-diag)"}] * 5
        assert section.key == [row for row in ROWS if row != "DEQL(L2+zero-diag)"]
        means, tests, _ = map(table, section.grids)
        assert means["EDLAE", "l2=2 dropout=0.5"] == means["DEQL(L2+zero-diag)", "l2=2 dropout=0.5"]
        assert means[ABLATED, "l2=5 dropout=0.4"] not in (
            means["EDLAE", "l2=2 dropout=0.5"], means["DEQL(L2)", "l2=5 dropout=0.4 b=0.5"],
        )  # fmt: skip
        for metric in ("Recall@20", "NDCG@20"):
            assert tests["DEQL(L2) ≤ EDLAE", metric] == tests["DEQL(L2) ≤ DEQL(L2+zero-diag)", metric]
            several = [cells for (null, name), cells in tests.items() if name == metric and "zero-diag" not in null]
            smallest = min(several, key=lambda cells: float(cells["here"].split()[1].lstrip("<")))
            # Four tests by each metric, not five.
            p, corrected = (cell.split()[-1] for cell in (smallest["here"], smallest["p Holm"]))
            assert p == corrected == "<0.0001" or float(corrected) == pytest.approx(4 * float(p), abs=3e-4)

    def test_the_ablation_may_be_edlae_too(self, small, undrawn, tmp_path):
        section, remarks, measured = self.made(tmp_path, **{"DEQL(L2)": {"l2": 2.0, "dropout": 0.5, "b": 1.0}})
        assert f"{ABLATED} is the same model as EDLAE here." in remarks
        assert "DEQL(L2) has b = 1 here, which makes it DLAE." in remarks
        assert measured == [{"EDLAE", "DEQL(L2)", WEIGHTED}] * 5
        tests = table(section.grids[1])
        assert tests["DEQL(L2) ≤ EDLAE", "NDCG@20"] == tests[f"DEQL(L2) ≤ {ABLATED}", "NDCG@20"]

    def test_weights_without_b(self, small, undrawn, tmp_path):
        _, remarks, _ = self.made(tmp_path, **{WEIGHTED: SMALL[WEIGHTED] | {"b": 0.0}})
        assert f"{WEIGHTED} has b = 0 here, which makes it EDLAE with weights." in remarks
        assert "DLAE." not in remarks

    def test_weights_of_zero(self, small, tmp_path):
        same = SMALL["DEQL(L2)"] | {"user_power": 0.0, "popularity_power": 0.0}
        section, remarks, _ = self.made(tmp_path, **{WEIGHTED: same})
        assert f"{WEIGHTED} is the same model as DEQL(L2) here." in remarks
        assert f"{WEIGHTED} ≤ DEQL(L2) cannot be tested: the two have the same values on every split" in remarks
        cells = table(section.grids[1])[f"{WEIGHTED} ≤ DEQL(L2)", "NDCG@20"]
        assert cells == {"difference": "+0.0000"} | dict.fromkeys(["here", "p Holm", "p overlap", "p users"], "–")
        assert len(section.figures) == 4

    def test_by_one_metric_only(self):
        rows = {row: Choice(row, SMALL[row], "found") for row in ROWS[:3]}
        tests = [
            SplitTest(("DEQL(L2)", "EDLAE"), metric, np.full(5, 0.1 * place)) for place, metric in enumerate(METRICS)
        ]
        assert _identities(rows, {row: row for row in rows}, tests)[-1] == (
            "DEQL(L2) ≤ EDLAE cannot be tested by Recall@20: the two have the same values on every split."
        )


def test_without_the_row_of_weights_or_any_choices(small, undrawn, tmp_path):
    papers = {row: SMALL[row] for row in ROWS[:3]}
    _, (section, _) = significance(table_request(tmp_path, own=write_small(tmp_path, rows=papers)))
    assert [names[0] for names, _ in section.grids[0].rows] == ROWS[:4]
    assert len(section.grids[1].rows) == 6
    for left in papers:
        rows = {row: SMALL[row] for row in papers if row != left}
        lead, (section,) = significance(table_request(tmp_path, own=write_small(tmp_path, rows=rows)))
        assert lead == ""
        (words,) = section.words
        assert words.startswith(f"No hyper-parameters of {left} chosen on validation data are known for debian-strong")


def test_the_papers_numbers_stand_beside(small, undrawn, tmp_path):
    write_checkins(tmp_path / "data" / "gowalla-1")
    own = write_small(tmp_path, keys=("gowalla-1", "debian-strong"))
    lead, (section, bundled, _) = significance(table_request(tmp_path, data=tmp_path / "data", own=own))
    assert (section.heading, bundled.heading) == ("Gowalla-1", "Debian (bundled)")
    means, tests, _ = map(table, section.grids)
    paper = reported("splits", "gowalla-1")["EDLAE"]
    cells = means["EDLAE", "l2=2 dropout=0.5"]
    assert cells["N@20 paper"] == f"{paper[2]:.4f} ± {paper[3]:.4f}"
    here = float(cells["N@20 here"].partition(" ")[0])
    assert float(section.grids[0].rows[0][1][-1].text) == pytest.approx(here - paper[2], abs=1.01e-4)
    assert tests["DEQL(L2) ≤ EDLAE", "Recall@20"]["paper"] == "Rej 0.0083"
    assert tests["DEQL(L2) ≤ DEQL(L2+zero-diag)", "NDCG@20"]["paper"] == "Rej 0.0164"
    assert tests[f"{WEIGHTED} ≤ EDLAE", "NDCG@20"]["paper"] == "–"
    assert tests[f"DEQL(L2) ≤ {ABLATED}", "NDCG@20"]["paper"] == "–"
    decided = [cells["here"][:3] == cells["paper"][:3] for cells in tests.values() if cells["paper"] != "–"]
    assert len(decided) == 4
    assert (
        f"{sum(decided)} of the paper's 4 decisions come out the same; one test serves both null hypotheses, as "
        "DEQL(L2+zero-diag) is EDLAE here." in lead
    )
    assert "paper" not in bundled.grids[1].header
    assert "does not say how it filtered" in section.remarks[-1]
    assert "filtered" not in " ".join(bundled.remarks)


@pytest.mark.parametrize(
    ("zero", "told"),
    [
        ({"l2": 2.0, "dropout": 0.5}, "None of the paper's 4 decisions could be tested here."),
        (APART["DEQL(L2+zero-diag)"], "2 of the paper's 4 decisions could be tested here, and {} of them come out"),
    ],
)
def test_a_test_that_was_not_made_counts_for_nothing(small, undrawn, tmp_path, zero, told):
    """With b = 0 DEQL(L2) is EDLAE; the paper rejects all four."""
    write_checkins(tmp_path / "data" / "gowalla-1")
    alike = {"DEQL(L2)": {"l2": 2.0, "dropout": 0.5, "b": 0.0}, "DEQL(L2+zero-diag)": zero}
    wanted = table_request(tmp_path, data=tmp_path / "data", own=write_small(tmp_path, keys=("gowalla-1",), **alike))
    lead, (section, *_) = significance(wanted)
    tests = table(section.grids[1])
    assert tests["DEQL(L2) ≤ EDLAE", "NDCG@20"]["here"] == "–"
    rejected = sum(cells["here"].startswith("Rej") for cells in tests.values() if cells["paper"] != "–")
    assert told.format(rejected) in lead
    assert "+0.0000 in Recall@20 (the same values)" in lead


def test_it_goes_on_after_a_kill(small, undrawn, tmp_path):
    """Every split is in the journal as soon as it is finished."""
    whole = significance(table_request(tmp_path))

    def tell(text):
        if "split 4 of 5" in text:
            raise KeyboardInterrupt

    first = table_request(tmp_path, journal=tmp_path / "measured.jsonl", tell=tell)
    with first.log.journal, pytest.raises(KeyboardInterrupt):
        significance(first)
    steps = [json.loads(line).get("step") for line in (tmp_path / "measured.jsonl").read_text().splitlines()]
    assert steps == [None, "split 0", "split 1", "split 2"]

    later = []
    with Journal(tmp_path / "measured.jsonl", {}, "reproduction") as journal:
        log = MeasurementLog(journal, tell=later.append)
        again = significance(replace(first, log=log))
        assert len(log.used) == 5
    assert {text.partition(":")[0] for text in later} == {f"Debian (bundled), split {n} of 5" for n in (4, 5)}
    assert again == whole


def test_another_precision_is_measured_anew(small, undrawn, tmp_path):
    def tell(text):
        raise KeyboardInterrupt

    wanted = table_request(tmp_path)
    significance(wanted)
    significance(replace(wanted, log=MeasurementLog(wanted.log.journal, tell=tell)))
    with pytest.raises(KeyboardInterrupt):
        significance(replace(wanted, log=MeasurementLog(wanted.log.journal, {"arithmetic": "tf32"}, tell)))


def test_other_hyper_parameters_or_data_are_measured_anew(small, undrawn, tmp_path, monkeypatch):
    wanted = table_request(tmp_path)
    significance(wanted)
    write_small(tmp_path, **{"DEQL(L2)": {"l2": 5.0, "dropout": 0.4, "b": 0.5000001}})
    significance(wanted)
    assert len(wanted.log.journal.records) == 10
    other = small.take_users(np.arange(1, small.n_users))
    monkeypatch.setattr("deql.datasets.debian", lambda: other)
    significance(replace(table_request(tmp_path, own=wanted.own), log=wanted.log))
    assert len(wanted.log.journal.records) == 15
