"""The learned diagonal against dense weights, its counts against plain loops, and what is said of it."""

from pathlib import Path

import numpy as np
import pytest

import deql
from deql.paper import diagonal as module
from deql.paper.diagonal import BELOW, QUANTILES, by_popularity, diagonal, distribution
from deql.paper.hyperparameters import Choice, write_choices
from deql.paper.paper_datasets import PaperDataset
from deql.paper.table_request import TableRequest
from tests.paper.common import table_request, write_small

pytest.importorskip("matplotlib", reason="documents need matplotlib")


def test_what_is_found_is_of_the_dense_weights(small, tmp_path):
    wanted = table_request(tmp_path)
    lead, sections = diagonal(wanted)
    (record,) = wanted.log.used
    found = record["found"]
    train = deql.split_strong(small).train
    model = deql.DEQL(5.0, 0.4, 0.5, dtype="float64").fit(train)
    W, zero = model.weights(), model.with_rule(b=0.0).weights()
    values = np.diag(W)
    assert found["items"] == len(values)
    assert found["quantiles"] == pytest.approx(np.quantile(values, list(QUANTILES.values())), rel=1e-4)
    assert found["below"] == [np.count_nonzero(values < bound) / len(values) for bound in BELOW]
    assert found["mean"] == pytest.approx(values.mean(), rel=1e-5)
    # For unseen items, b changes each column by a factor, and that is what the report says it is.
    beta = 0.25 / (0.4 + 0.6 * 0.25)
    factors = 1 - 0.6 * beta * values
    off = ~np.eye(len(W), dtype=bool)
    np.testing.assert_allclose(W[off], (zero * factors)[off], rtol=1e-9)
    counts = np.bincount(train.matrix.indices, minlength=train.n_items)
    for group in found["groups"]:
        inside = (counts >= group["low"]) & (counts <= group["high"])
        assert group["items"] == inside.sum()
        assert group["mean"] == pytest.approx(values[inside].mean(), rel=1e-4)
        assert group["ratio"] == pytest.approx(factors[inside].mean(), rel=1e-4)
    assert f"Debian (bundled) {np.median(values):.3f}" in lead
    assert "does not rank unseen items" in " ".join(sections[-1].words)


def test_it_is_remembered_without_the_items_values(small, tmp_path, monkeypatch):
    journal, said = tmp_path / "a.jsonl", []
    first = table_request(tmp_path, ("strong", "weak"), journal=journal, tell=said.append, machine={"folder": "unused"})
    with first.log.journal:
        before = diagonal(first)
    assert [text.partition(",")[0] for text in said] == [
        "Debian (bundled): fitting DEQL(L2) l2=5 dropout=0.4 b=0.5"
    ] * 2
    assert [section.heading for section in before[1][:2]] == ["Debian (bundled), strong", "Debian (bundled), weak"]
    assert len({figure.svg.partition(">")[0] for section in before[1] for figure in section.figures}) == 4
    # Two splits of the same data differ.
    assert first.log.used[0]["found"] != first.log.used[1]["found"]
    monkeypatch.setattr(deql.DEQL, "fit", None)
    second = table_request(tmp_path, ("strong", "weak"), journal=journal)
    with second.log.journal:
        assert diagonal(second) == before


@pytest.mark.parametrize("scale", [1e-5, 0.02, 1.0])
def test_a_histogram_at_any_scale(scale):
    values = np.random.default_rng(0).beta(2, 5, 3000) * scale
    found = distribution(values)
    counts, width = found["counts"], found["width"]
    assert 40 <= np.quantile(values, 0.99) / width < 101
    for place in (0, 7, len(counts) - 1):
        assert counts[place] == sum(place * width <= value < (place + 1) * width for value in values)
    assert sum(counts) + found["beyond"] == 3000
    assert found["mode"] == pytest.approx((np.argmax(counts) + 0.5) * width)
    assert abs(found["mode"] - 0.2 * scale) < 0.08 * scale  # (α − 1)/(α + β − 2)


def test_outliers_and_zeros_leave_a_histogram_as_it_is():
    values = np.full(1000, 0.0215)
    values[:3] = 0.9
    found = distribution(values)
    assert (found["beyond"], found["mode"], found["width"]) == (3, 0.02125, 0.0005)
    nothing = distribution(np.zeros(5))
    assert (sum(nothing["counts"]), nothing["beyond"], nothing["below"]) == (5, 0, [1.0, 1.0, 1.0])


def test_groups_of_popularity_have_enough_items():
    counts = np.array([1, 1, 2, *[5] * 9, *[7] * 11, *range(8, 20), 700, 9000])
    values = np.random.default_rng(1).random(len(counts))
    rows = by_popularity(values, 1 - values, counts)
    assert [(row["low"], row["high"], row["items"]) for row in rows] == [(1, 7, 23), (8, 9000, 14)]
    assert rows[0]["users"] == pytest.approx((1 + 1 + 2 + 45 + 77) / 23)
    for row in rows:
        sample = [value for value, count in zip(values, counts, strict=True) if row["low"] <= count <= row["high"]]
        assert row["mean"] == pytest.approx(sum(sample) / len(sample))
        assert row["ratio"] == pytest.approx(1 - row["mean"])
    # Fewer than ten in all are one group; an item that nobody has is with the rarest.
    assert [(row["low"], row["items"]) for row in by_popularity(values[:3], values[:3], np.array([0, 1, 50]))] == [
        (0, 3)
    ]
    assert [module._users({"low": low, "high": high}) for low, high in ((0, 0), (1, 1), (2, 2), (2, 1000))] == [
        "0 users", "1 user", "2 users", "2–1,000 users"
    ]  # fmt: skip


@pytest.mark.parametrize(("medians", "said"), [((0.3, 0.1), "and so it is here"), ((0.1, 0.3), "which does not hold")])
def test_larger_where_the_paper_finds_it_larger(tmp_path, monkeypatch, medians, said):
    facts = {
        name: distribution(np.linspace(0, 2 * median, 200)) | {"groups": []}
        for name, median in zip(("yelp2018", "gowalla"), medians, strict=True)
    }
    monkeypatch.setattr(module, "_measure", lambda _log, dataset, _choice: facts[dataset.name])
    monkeypatch.setattr(module, "_section", lambda *_: None)
    own = tmp_path / "own.toml"
    choice = Choice("DEQL(L2)", {"l2": 1.0}, "found")
    own.write_text(write_choices({name: [choice] for name in facts}), encoding="utf-8")
    wanted = TableRequest(table_request(tmp_path).log, [PaperDataset(name, "weak", Path()) for name in facts], own=own)
    lead, _ = diagonal(wanted)
    assert f"Yelp2018 {medians[0]:.3f}" in lead
    assert said in lead


def test_with_b_0_there_is_nothing_to_tell(small, tmp_path):
    wanted = table_request(tmp_path, own=write_small(tmp_path, **{"DEQL(L2)": {"l2": 5.0, "dropout": 0.5, "b": 0.0}}))
    lead, (section, _) = diagonal(wanted)
    assert lead == "With b = 0 the diagonal is zero on Debian (bundled)."
    assert section.words[0].endswith("With b = 0 the diagonal is zero.")
    assert not [*section.grids, *section.figures, *section.remarks]


def test_bins_of_one_item_have_no_mode():
    few = distribution(np.array([0.02, 0.05, 0.09])) | {"groups": by_popularity(*np.full((2, 3), 0.5), np.arange(1, 4))}
    assert module._remarks(few)[0] == (
        "No bin of width 0.002 has two items, so there is no mode; 100.0 % of the items are below 0.1."
    )
    assert str(module._grid(few).rows[1][1][0]) == "–"
    assert (
        module._summary({"X": (PaperDataset("gowalla", "weak", Path()), few)})
        == "Median of the learned diagonal: X 0.050."
    )


def test_data_without_choices(small, tmp_path, monkeypatch):
    monkeypatch.setattr("deql.paper.table_request.stored_choices", lambda *_: [])
    lead, sections = diagonal(table_request(tmp_path, own=write_small(tmp_path, rows={})))
    assert lead == ""
    assert "deql reproduce choices --only debian-strong" in sections[0].words[0]
