"""The paper's numbers: every row is known, every number can be what it is said to be."""

import pytest

from deql.datasets.public import PRESETS
from deql.paper.published import LINEAR, METRICS, WEIGHTED, WITH_PRIOR, _tables, reported

STRONG = ["games", "beauty", "gowalla-1", "ml20m", "netflix", "msd"]
WEAK = ["amazon-book", "yelp2018", "gowalla"]
DEEP = ["PinSage", "LightGCN", "DGCF", "SGL-ED", "SimpleX", "SSM (MF)", "SSM (GNN)"]
FITTED = ["EASE", "DLAE", "EDLAE", "DEQL(plain)", "DEQL(L2+zero-diag)", "DEQL(L2)"]


def test_every_data_set_of_the_paper_is_in_one_table():
    assert {name for name, preset in PRESETS.items() if preset.files} == set(STRONG)
    assert {name for name, preset in PRESETS.items() if not preset.files} == set(WEAK)
    assert {table: list(sets) for table, sets in _tables().items()} == {
        "weak": WEAK, "strong": STRONG, "splits": STRONG, "tests": STRONG, "cost": ["yelp2018"]
    }  # fmt: skip


@pytest.mark.parametrize(("table", "sets", "others"), [("weak", WEAK, [*DEEP, "ELSA"]), ("strong", STRONG, ["ELSA"])])
def test_accuracies(table, sets, others):
    for data in sets:
        found = reported(table, data)
        assert list(found) == [row for row in [*others, *FITTED] if (data, row) != ("gowalla", "SGL-ED")]
        for recall, ndcg in found.values():
            assert 0 < ndcg < recall < 0.5
        # Rows of one table are of one size: a slip of a digit would stand out.
        recalls = [recall for recall, _ in found.values()]
        assert max(recalls) < 3 * min(recalls)


def test_splits_and_tests():
    for data in STRONG:
        once = reported("strong", data)
        for row, (recall, recall_spread, ndcg, ndcg_spread) in reported("splits", data).items():
            assert (recall, ndcg) == pytest.approx(once[row], rel=0.2)
            assert 0 < recall_spread < 0.16 * recall
            assert 0 < ndcg_spread < 0.18 * ndcg
        assert list(reported("splits", data)) == ["EDLAE", "DEQL(L2+zero-diag)", "DEQL(L2)"]
        assert list(reported("tests", data)) == ["DEQL(L2+zero-diag)", "EDLAE"]
        for p_values in reported("tests", data).values():
            assert len(p_values) == len(METRICS)
            assert all(0 <= p <= 1 for p in p_values)


def test_a_small_p_value_belongs_to_a_larger_mean():
    for data in STRONG:
        splits = reported("splits", data)
        for row, p_values in reported("tests", data).items():
            for place, p in enumerate(p_values):
                assert (splits["DEQL(L2)"][2 * place] > splits[row][2 * place]) == (p < 0.5), (data, row, place)


def test_cost():
    found = reported("cost", "yelp2018")
    assert set(FITTED) <= found.keys()
    assert all(minutes > 0 and gigabytes > 0 for minutes, gigabytes in found.values())


def test_rows_that_are_fitted_are_those_of_the_paper_and_three_more():
    assert set(LINEAR) - set(FITTED) == {"RLAE", "RDLAE", WEIGHTED, WITH_PRIOR}


def test_what_is_returned_can_be_changed_and_what_is_not_there_is_empty():
    reported("weak", "gowalla").clear()
    assert reported("weak", "gowalla")["EASE"] == [0.1765, 0.1467]
    assert reported("splits", "debian") == reported("tests", "gowalla") == {}
