"""The leaderboard and the edges of a space, worked out by hand."""

import pytest

from deql._system.tables import text_table
from deql.tuning.space import Space
from deql.tuning.tuning_result import edges, leaderboard_grid
from tests.tuning.made import GRID, made, row


def test_the_leaderboard_has_the_best_rows_and_says_what_they_share():
    grid = leaderboard_grid(made(GRID), rows=3)
    assert grid.title == "Best 3 of 6 models on 5 inverses; these have user_power 0, b 1, popularity_power 0"
    assert text_table(grid).splitlines() == [
        "#  l2  dropout   ndcg@20  recall@20",
        "───────────────────────────────────",
        "1  10      0.2  0.3500 ←   0.4000",
        "2  10      0.8  0.3400     0.4500 ←",
        "3   0      0.2  0.3300     0.4000",
    ]
    whole = leaderboard_grid(made(GRID))
    assert whole.title == "All 6 models on 5 inverses; these have user_power 0, popularity_power 0"
    assert whole.header == ["#", "l2", "dropout", "b", "ndcg@20", "recall@20"]


def test_the_mark_is_for_the_best_of_all_models_shown_or_not():
    grid = leaderboard_grid(made(GRID), rows=1)
    assert [cell.text for cell in grid.rows[0][1] if cell.best] == ["0.3500"]
    assert "l2" in grid.header  # of a single row nothing is left out but what it does not have
    assert "xi" not in grid.header


def test_a_small_error_is_the_best():
    grid = leaderboard_grid(made([row(value=0.1), row(b=2.0, value=0.2)], metric="mse"))
    assert [[cell.best for cell in cells][1] for _, cells in grid.rows] == [True, False]


def test_b_and_xi_beside_each_other():
    mixed = made([row(), row(b=None, xi=0.25, value=0.2)])
    shown = [[cell.text for cell in cells[:2]] for _, cells in leaderboard_grid(mixed).rows]
    assert shown == [["1", "–"], ["–", "0.25"]]
    left_out = made([row(), row(b=2.0)], space=Space(b=(1.0, 2.0), xi=(0.1,)))
    assert leaderboard_grid(left_out).title.endswith("popularity_power 0, no xi")


def test_everything_at_once_fits_into_80_columns():
    wild = [row(1000.0, 0.25, 0.4, 0.25, None, 0.3), row(3.0, 0.9, 0.8, None, 0.25, 0.1, 0.2)]
    lines = text_table(leaderboard_grid(made(wild))).splitlines()
    assert "popularity_power" in lines[0]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("axis", "values", "best", "words"),
    [
        ("l2", (1.0, 10.0), 10.0, "The best l2 (10) is the largest tried: widen --l2 upwards."),
        ("l2", (10.0, 30.0), 10.0, "The best l2 (10) is the smallest tried: widen --l2 downwards."),
        ("l2", (1.0, 10.0, 30.0), 10.0, None),
        ("l2", (10.0,), 10.0, None),
        ("l2", (0.0, 10.0), 0.0, None),
        ("dropout", (0.0, 0.5), 0.0, None),
        ("dropout", (0.1, 0.5), 0.1, "The best dropout (0.1) is the smallest tried: widen --dropout downwards."),
        ("user_power", (0.0, 0.4), 0.0, None),
        (
            "user_power", (-0.4, 0.0), -0.4,
            "The best user_power (-0.4) is the smallest tried: widen --user-power downwards.",
        ),
        ("b", (0.0, 4.0), 0.0, None),
        ("b", (0.0, 4.0), 4.0, "The best b (4) is the largest tried: widen --b upwards."),
        ("popularity_power", (0.0, 0.3), 0.0, None),
        (
            "popularity_power", (0.0, 0.3), 0.3,
            "The best popularity_power (0.3) is the largest tried: widen --popularity-power upwards.",
        ),
    ],
)  # fmt: skip
def test_edges(axis, values, best, words):
    fixed = {"l2": (10.0,), "dropout": (0.5,), "user_power": (0.0,), "b": (1.0,), "popularity_power": (0.0,)}
    others = [row(**{axis: value}, value=0.2) for value in values if value != best]
    found = made([row(**{axis: best}), *others], space=Space(**fixed | {axis: values}))
    assert edges(found) == ([] if words is None else [words])


def test_edges_of_xi():
    space = Space(l2=(10.0,), dropout=(0.5,), b=(0.0, 1.0), xi=(0.1, 1.0))
    assert edges(made([row(b=None, xi=1.0)], space)) == []
    (sentence,) = edges(made([row(b=None, xi=0.1)], space))
    assert sentence == "The best xi (0.1) is the smallest tried: widen --xi downwards."


def test_where_nothing_is_dropped_b_has_no_edge():
    assert edges(made([row(dropout=0.0, b=4.0)], Space(l2=(10.0,), dropout=(0.0, 0.5), b=(0.0, 4.0)))) == []


def test_edges_of_an_l2_that_follows_the_data():
    space = Space(dropout=(0.5,), user_power=(0.0, 0.8), b=(1.0,))
    rows = [row(l2=3.0, user_power=0.8), row(l2=1.0, user_power=0.8, value=0.2), row(l2=30.0, value=0.1)]
    largest = "The best l2 (3) is the largest tried: widen --l2 upwards."
    user_power = "The best user_power (0.8) is the largest tried: widen --user-power upwards."
    assert edges(made(rows, space)) == [largest, user_power]
    looked_at = [row(l2=10.0, user_power=0.8)[:-1]]
    assert edges(made(rows, space, looks=looked_at)) == [user_power]


@pytest.mark.parametrize(
    ("l2", "words"),
    [
        (0.31, "The best l2 (0.31) is next to the smallest of the space: widen --l2 downwards."),
        (3.79, None),
        (290.0, "The best l2 (290) is next to the largest of the space: widen --l2 upwards."),
    ],
)
def test_between_the_values_of_the_space_close_is_an_edge(l2, words):
    # The mean diagonal is 10, so l2 was searched from 0.3 to 300.
    found = edges(made([row(l2=l2, dropout=0.61)], Space(dropout=(0.0, 0.9), b=(1.0,))))
    assert found == ([] if words is None else [words])
