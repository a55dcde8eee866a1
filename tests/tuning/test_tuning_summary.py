"""The leaderboard and the edges of a space, worked out by hand."""

from dataclasses import replace

import pytest

from deql._system.tables import text_table
from deql.tuning.space import WITHOUT_PRIOR, Space
from deql.tuning.summary import edges, leaderboard_grid, summary_sentences
from deql.tuning.tuning_result import BaselineComparison, BCurve, Tie
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
        ("l2", (1.0, 10.0), 10.0, "The best l2 (10) is the largest tried: widen l2 upwards."),
        ("l2", (10.0, 30.0), 10.0, "The best l2 (10) is the smallest tried: widen l2 downwards."),
        ("l2", (1.0, 10.0, 30.0), 10.0, None),
        ("l2", (10.0,), 10.0, None),
        ("l2", (0.0, 10.0), 0.0, None),
        ("dropout", (0.0, 0.5), 0.0, None),
        ("dropout", (0.1, 0.5), 0.1, "The best dropout (0.1) is the smallest tried: widen dropout downwards."),
        ("user_power", (0.0, 0.4), 0.0, None),
        (
            "user_power", (-0.4, 0.0), -0.4,
            "The best user_power (-0.4) is the smallest tried: widen user_power downwards.",
        ),
        # 0 is a limit below, not above: an optimum at the end of two values was passed over.
        ("user_power", (-0.4, 0.0), 0.0, "The best user_power (0) is the largest tried: widen user_power upwards."),
        (
            "popularity_power", (-0.3, 0.0), 0.0,
            "The best popularity_power (0) is the largest tried: widen popularity_power upwards.",
        ),
        (
            "dropout", (0.5, 0.9), 0.9,
            "The best dropout (0.9) is the largest tried: widen dropout upwards, such as 0.95; it stays below 1.",
        ),
        ("dropout", (0.5, 0.99), 0.99, None),
        ("b", (0.0, 4.0), 0.0, None),
        ("b", (1.0, float("inf")), float("inf"), None),
        ("b", (0.0, 4.0), 4.0, "The best b (4) is the largest tried: widen b upwards."),
        ("popularity_power", (0.0, 0.3), 0.0, None),
        (
            "popularity_power", (0.0, 0.3), 0.3,
            "The best popularity_power (0.3) is the largest tried: widen popularity_power upwards.",
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
    assert sentence == "The best xi (0.1) is the smallest tried: widen xi downwards."


def test_where_nothing_is_dropped_b_has_no_edge():
    assert edges(made([row(dropout=0.0, b=4.0)], Space(l2=(10.0,), dropout=(0.0, 0.5), b=(0.0, 4.0)))) == []


def test_edges_of_an_l2_that_follows_the_data():
    space = Space(dropout=(0.5,), user_power=(0.0, 0.8), b=(1.0,))
    rows = [row(l2=3.0, user_power=0.8), row(l2=1.0, user_power=0.8, value=0.2), row(l2=30.0, value=0.1)]
    largest = "The best l2 (3) is the largest tried: widen l2 upwards."
    user_power = "The best user_power (0.8) is the largest tried: widen user_power upwards."
    assert edges(made(rows, space)) == [largest, user_power]
    looked_at = [row(l2=10.0, user_power=0.8)[:-1]]
    assert edges(made(rows, space, looks=looked_at)) == [user_power]


@pytest.mark.parametrize(
    ("l2", "words"),
    [
        (0.31, "The best l2 (0.31) is next to the smallest of the space: widen l2 downwards."),
        (3.79, None),
        (290.0, "The best l2 (290) is next to the largest of the space: widen l2 upwards."),
    ],
)
def test_between_the_values_of_the_space_close_is_an_edge(l2, words):
    # The mean diagonal is 10, so l2 was searched from 0.3 to 300.
    found = edges(made([row(l2=l2, dropout=0.61)], Space(dropout=(0.0, 0.9), b=(1.0,))))
    assert found == ([] if words is None else [words])


@pytest.mark.parametrize(
    ("l2", "words"), [(1.01, "smallest"), (9.9, "largest"), (3.0, None)]
)  # fmt: skip
def test_two_ridges_that_a_search_goes_between_have_edges(l2, words):
    # Where dropout and user_power are fixed, nothing else shows that the search went between the values.
    space = Space(l2=(1.0, 10.0), dropout=(0.5,), b=(1.0,))
    found = edges(made([row(l2=l2), row(l2=2.0, value=0.2)], space, ridges=(1.0, 10.0)))
    assert [words is not None and f"is next to the {words} of the space" in one for one in found] == [True] * bool(
        words
    )


def rival(difference, error, p_value=0.017):
    return BaselineComparison({"b": 0.0}, True, 0.3, difference, p_value, error)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            rival(0.00001, 0.000001),
            "It is tied with the best with b = 0 (0.3000): they differ by less than 0.0001.",
        ),
        (
            rival(0.00007, 0.0004),  # it was "by 7e-05"
            "It is tied with the best with b = 0 (0.3000): they differ by less than 0.0001.",
        ),
        (
            rival(0.002, 0.003, 0.2),
            "It is tied with the best with b = 0 (0.3000): they differ by 0.002, less than one standard error (0.003).",
        ),
        (rival(-0.002, 0.003, 0.8), "they differ by 0.002, less than one standard error (0.003)."),
        (rival(0.004, 0.003, 0.1), "0.0040 (1.33%) better than the best with b = 0 (0.3000), which may be chance"),
        (rival(0.01, 0.001), "That is 0.0100 (3.33%) better than the best with b = 0 (0.3000), which is significant"),
        (rival(0.01, float("nan")), "which is significant"),
    ],
)  # fmt: skip
def test_below_a_standard_error_the_word_is_tied(found, words):
    # It was: "That is 0.0000 (0.00%) better than the best with b = 0, which is significant (p = 0.017)".
    sentence = made([row()], rival=found).sentence
    assert words in sentence
    assert ("significant" in sentence) == (found.p_value < 0.05 and "tied" not in sentence)
    assert "0.0000 (" not in sentence


def baselines(ease=0.28, edlae=0.29):
    names = ["l2", "dropout", "user_power", "b", "xi", "popularity_power", "ndcg@20", "recall@20"]
    plain = {"EASE": row(30.0, 0.0, 0.0, 0.0, value=ease), "EDLAE": row(3.0, 0.5, 0.0, 0.0, value=edlae)}
    without = WITHOUT_PRIOR | {"half_life": None}
    known = {name: without | dict(zip(names, one, strict=True)) for name, one in plain.items()}
    return {"popularity": without | dict.fromkeys(names[:6]) | {"ndcg@20": 0.1, "recall@20": 0.2}} | known


def test_what_people_know_is_below_the_leaderboard():
    grid = leaderboard_grid(made(GRID, baselines=baselines(), baseline_inverses=4), rows=2)
    assert (
        grid.title
        == "Best 2 of 6 models on 5 inverses, 4 more to compare with; these have user_power 0, popularity_power 0"
    )
    assert text_table(grid).splitlines()[2:] == [
        "1           10      0.2  1  0.3500 ←   0.4000",
        "2           10      0.8  1  0.3400     0.4500 ←",
        "EDLAE        3      0.5  0  0.2900     0.4000",
        "EASE        30        0  0  0.2800     0.4000",
        "popularity   –        –  –  0.1000     0.2000",
    ]


def test_what_was_gained_over_what_people_know():
    sentence = summary_sentences(made(GRID, baselines=baselines()))[1]
    assert sentence == (
        "On the same users popularity has 0.1000, EASE (l2=30) has 0.2800 (the winner is 25.0% better), "
        "EDLAE (l2=3, dropout=0.5) has 0.2900 (the winner is 20.7% better)."
    )


def test_below_a_standard_error_a_baseline_is_tied():
    # It was: "the winner: +20.7%", whatever the error.
    errors = {"EASE": 0.01, "EDLAE": 0.07}
    sentence = summary_sentences(made(GRID, baselines=baselines(), baseline_errors=errors))[1]
    assert "EASE (l2=30) has 0.2800 (the winner is 25.0% better)" in sentence
    assert "EDLAE (l2=3, dropout=0.5) has 0.2900 (tied)." in sentence
    space = Space(l2=(10.0,), dropout=(0.2, 0.8), b=(0.5, 1.0))
    better = made(GRID, space, baselines=baselines(0.4), baseline_errors={"EASE": 0.06})
    assert not any("EASE does better" in one for one in summary_sentences(better))


def test_what_was_gained_in_an_error_is_the_other_way_around():
    # It was: "the winner: +2.7%" of a mean squared error that is larger.
    names = ["l2", "dropout", "user_power", "b", "xi", "popularity_power", "mse", "recall@20"]
    ease = WITHOUT_PRIOR | {"half_life": None} | dict(zip(names, row(30.0, 0.0, 0.0, 0.0, value=0.2), strict=True))
    tuning = made([row(value=0.25), row(b=2.0, value=0.3)], metric="mse", baselines={"EASE": ease})
    assert "EASE (l2=30) has 0.2000 (the winner is 25.0% worse)." in summary_sentences(tuning)[1]


def test_a_baseline_that_is_another_or_the_winner_is_told_as_such():
    known = baselines()
    tuning = made([row(30.0, 0.0, 0.0, 0.0, value=0.28), row()], baselines=known | {"EDLAE": known["EASE"]})
    assert summary_sentences(tuning)[1].endswith(
        "EASE (l2=30) has 0.2800 (the winner itself), and so has EDLAE, which is best where nothing is dropped."
    )


def test_a_single_model_is_not_all_of_them():
    assert leaderboard_grid(made([row()])).title == "1 model on 1 inverse"


def test_a_baseline_outside_the_space_that_does_better_is_told():
    found = summary_sentences(made(GRID, Space(l2=(10.0,), dropout=(0.2, 0.8), b=(0.5, 1.0)), baselines=baselines(0.4)))
    assert "EASE does better, and this space does not have it: add 0 to --dropout and --b." in found


def test_the_winner_is_shown_among_the_first_rows():
    space = Space(l2=(10.0,), dropout=(0.5,), b=(0.0, 1.0, 2.0, 3.0))
    rows = [row(b=b, value=0.3 - b / 1000) for b in (3.0, 2.0, 1.0, 0.0)]
    tuning = made(rows, space)
    simple = replace(tuning, best=tuning.table.row(3, named=True), tie=Tie(tuning.best, 0.003, 0.004))
    assert [names[0] for names, _ in leaderboard_grid(simple, rows=2).rows] == ["1", "4"]
    (note,) = [one for one in simple.notes if "tied" in one]
    assert note == (
        "With b = 3 it has 0.2970, which is tied (they differ by 0.003, less than one standard error (0.004)): "
        "the simpler model was taken."
    )


def test_a_b_that_does_no_better_than_a_passed_over_tie_is_not_advised():
    # It was: "b = 0.7, which the search did not try, does 0.0003 better: add it with --b", which changed nothing.
    values = {"ndcg@20": [0.3, 0.302, 0.2, 0.1]}
    curve = BCurve([0.0, 0.7, 1.0, 2.0], values, {"ndcg@20": [0.01] * 4}, [0.001] * 4)
    rows = [row(b=1.0, popularity_power=0.1, value=0.304), row(b=0.0)]
    tuning = replace(made(rows, curve=curve), best=made(rows).table.row(1, named=True))
    assert any("b = 0.7, which the search did not try" in note for note in tuning.notes)
    tied = replace(tuning, tie=Tie(made(rows).best, 0.004, 0.005))
    assert not any("did not try" in note for note in tied.notes)
