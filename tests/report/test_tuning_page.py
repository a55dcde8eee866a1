"""The page of a search: rows and captions worked out by hand, and a page that is whole in every case."""

import math
import re
from functools import cache

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array
from scipy.stats import spearmanr

import deql
from deql import DEQL, Interactions
from deql.models import RDLAE
from deql.report import plots
from deql.report.tables import text_table
from deql.report.tuning_page import edges, leaderboard_grid, rank_correlation, tuning_page
from deql.tuning.space import Space
from deql.tuning.tuning_result import Curve, Rival, Tuning
from tests.report.test_pages import NASTY, Outline

PARAMETERS = ["l2", "dropout", "user_power", "b", "xi", "popularity_power"]
B = [0.0, 0.5, 1.0, 2.0]


def made(rows, space=None, looks=(), metric="ndcg@20", **more):
    """A search with these rows, best first: parameters, then the metric, then recall@20."""
    metrics = list(dict.fromkeys([metric, "recall@20"]))
    table = pl.DataFrame([list(row) for row in rows], [*PARAMETERS, *metrics], orient="row").cast(pl.Float64)
    seen = pl.DataFrame([list(row) for row in looks], [*PARAMETERS, metric], orient="row") if looks else table.head(0)
    best = table.row(0, named=True)
    parameters = {name: best[name] for name in PARAMETERS if best[name] is not None}
    model = (DEQL if best["xi"] is None else RDLAE)(**parameters)
    model.gram_diagonal_ = np.array([5.0, 15.0])
    values = {"recall@20": [0.3, 0.4, 0.35, 0.2], "ndcg@20": [0.2, 0.25, 0.3, 0.1]}
    values.setdefault(metric, [0.2, 0.25, 0.1, 0.3])
    columns = {name: [row[name] for row in table.to_dicts()] for name in PARAMETERS}
    tried = {name: tuple(dict.fromkeys(v for v in column if v is not None)) for name, column in columns.items()}
    tuning = {
        "model": model, "table": table, "metric": metric, "best": best,
        "curve": Curve(B, values, {name: [0.01, 0.02, 0.03, 0.04] for name in values}),
        "rival": Rival(parameters | {"b": 0.0}, True, 0.2, 0.1, 0.01), "space": space or Space(**tried),
        "looks": seen, "judged": 1234, "how": "the split has 1,234 validation users", "complete": True,
        "points": len({row[:3] for row in rows}), "inverses": len({row[:3] for row in rows}), "seconds": 12.3,
        "left_out": 0, "failures": [], "journal": None,
    }  # fmt: skip
    return Tuning(**tuning | more)


def row(l2=10.0, dropout=0.5, user_power=0.0, b=1.0, xi=None, popularity_power=0.0, value=0.3, recall=0.4):
    return l2, dropout, user_power, b, xi, popularity_power, value, recall


def captions(text):
    return re.findall(r"<figcaption>(.*?)</figcaption>", text)


GRID = [
    row(l2=10.0, dropout=0.2, value=0.35, recall=0.40),
    row(l2=10.0, dropout=0.8, value=0.34, recall=0.45),
    row(l2=0.0, dropout=0.2, value=0.33),
    row(l2=30.0, dropout=0.2, value=0.32, b=0.5),
    row(l2=30.0, dropout=0.8, value=0.31),
    row(l2=30.0, dropout=0.2, value=0.30),
]
BETWEEN = [row(l2=3.79, dropout=0.61, user_power=0.7), row(l2=0.4, dropout=0.83, user_power=0.1, value=0.2)]


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


def test_rank_correlation_is_spearmans():
    generator = np.random.default_rng(0)
    x = generator.integers(0, 9, 40).astype(float)
    y = x + generator.normal(0, 3, 40)
    assert rank_correlation(x.tolist(), y.tolist()) == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)
    assert math.isnan(rank_correlation([1.0, 2.0], [1.0, 2.0]))
    assert math.isnan(rank_correlation([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]))


CASES = {
    "grid": lambda: made(GRID),
    "user_powers": lambda: made([*GRID, row(user_power=0.4, value=0.2), row(l2=30.0, user_power=0.4, value=0.1)]),
    "single": lambda: made([row()]),
    "no ridge": lambda: made([row(l2=0.0, dropout=0.1), row(l2=0.0, dropout=0.2, value=0.2)]),
    "one l2": lambda: made([row(dropout=0.1), row(dropout=0.3, value=0.2), row(dropout=0.2, value=0.1)]),
    "narrow": lambda: made([row(l2=41.0), row(l2=47.0, value=0.2)]),
    "wide": lambda: made([row(l2=10.0**step, value=0.3 - 0.01 * step) for step in range(8)]),
    "between": lambda: made(BETWEEN, Space(dropout=(0.0, 0.9), user_power=(0.0, 0.8))),
    "equal": lambda: made([row(dropout=0.1), row(dropout=0.2), row(l2=3.0, dropout=0.2)]),
    "xi": lambda: made([row(b=None, xi=0.1), row(value=0.2)]),
    "mse": lambda: made([row(value=0.1), row(l2=3.0, value=0.2)], metric="mse"),
    "many": lambda: made([row(dropout=step / 20, value=0.3 - 0.01 * step) for step in range(12)]),
    "looks": lambda: made(GRID, looks=[one[:-1] for one in [GRID[1], GRID[0], GRID[2], row(l2=99.0)]]),
    "many powers": lambda: made(
        [row(user_power=step / 10, l2=l2, value=0.3 - 0.01 * step) for step in range(6) for l2 in (3.0, 10.0)]
    ),
    "interrupted": lambda: made(GRID, complete=False, seconds=600.0),
}


@cache
def write(case):
    pytest.importorskip("matplotlib", reason="reports need matplotlib")
    return tuning_page("Tuning of " + NASTY, {"Data": NASTY}, CASES[case]())


@pytest.fixture(params=CASES)
def page(request):
    text = write(request.param)
    assert text == write.__wrapped__(request.param)
    return text


def test_every_page_is_whole(page):
    outline = Outline(page)
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids)) > 20
    assert set(outline.targets) <= set(outline.ids)
    tags = {tag for tag, _ in outline.seen}
    assert not tags & {"script", "img", "link", "iframe", "object"}
    assert "http" not in page
    drawings = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    assert len(drawings) == page.count("<figure>") >= 2
    for drawing in drawings:
        assert re.match(r'<svg role="img" aria-labelledby="([^"]+)" viewBox="[^"]+"><title id="\1">.', drawing)
        assert not re.findall(r"(?:fill|stroke): #[0-9a-f]+", drawing)
        assert "nan" not in drawing
    assert "nan" not in " ".join(captions(page))


def test_what_the_page_says():
    text = write("grid")
    words = " ".join(Outline(text).texts)
    for part in (
        CASES["grid"]().sentence, "ndcg@20 (higher is better) of 1,234 users: the split has 1,234 validation users",
        "l2 10, 0, 30; dropout 0.2, 0.8; user_power 0; b 1, 0.5; popularity_power 0", "6 models on 5 inverses, 12 s",
        "complete", "dropout 0.2", "dropout 0.8", "The best b (1) is the largest tried: widen --b upwards.",
    ):  # fmt: skip
        assert part in words
    assert "interrupted: this is the best up to then" in write("interrupted")
    assert "10 min" in write("interrupted")
    assert "Edges of the space" not in write("single")
    assert "The best l2 (41) is the smallest tried: widen --l2 downwards." in write("narrow")


def test_each_metrics_best_b_is_marked_in_its_own_figure():
    text = write("grid")
    titles = re.findall(r"<title id[^>]*>(.*?)</title>", text)
    assert titles[:2] == ["recall@20 by b; best at b = 0.5", "ndcg@20 by b; best at b = 1"]
    drawings = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    for drawing, label in zip(drawings, ("b = 0.5", "b = 1"), strict=False):
        assert f">{label}</text>" in drawing
        assert "b = a</text>" in drawing
    assert "xi = 0.1 and no b" in captions(write("xi"))[0]


def test_a_figure_for_each_user_power_on_one_scale():
    told = [caption for caption in captions(write("user_powers")) if "by l2 and dropout" in caption]
    assert [re.search("user_power ([0-9.]+):", one)[1] for one in told] == ["0", "0.4"]
    assert "the best of its 2 models" in told[0]
    assert (
        "user_power 0: at each point the best of its model. It is the winner&#x27;s; 5 others are not drawn."
        in (captions(write("many powers"))[-1])
    )
    looked_at = [row(l2=3.0, user_power=0.8)[:-1], row(l2=1.0, user_power=0.8)[:-1]]
    told = captions(tuning_page("Tuning", {}, made(GRID, looks=looked_at)))
    assert told[-1].endswith("Not drawn: 2 points with user_power 0.8 that had a first look only.")


def test_points_that_form_no_lines():
    told = captions(write("between"))[-1]
    assert "the stronger, the better its place" in told
    assert "Points of all user_powers, 0.1 to 0.7." in told
    assert 'aria-label="Lines"' not in write("between")
    assert "the stronger" in captions(write("many"))[-1]


def test_a_single_point_has_nothing_to_draw():
    assert "Dropout and l2" not in write("single")
    assert len(captions(write("single"))) == 2


def test_how_first_looks_agree():
    # Looks put the second best first and the best second: ranks 2, 3, 1 against 3, 2, 1 have a correlation of 0.5.
    looks = [(*GRID[1][:6], 0.9), (*GRID[0][:6], 0.8), (*GRID[2][:6], 0.7), row(l2=99.0, value=0.1)[:7]]
    told = captions(tuning_page("Tuning", {}, made(GRID, looks=looks)))
    assert "at the 3 of 4 points that have both. Rank correlation: 0.50" in told[-1]
    assert "By first look the winner was number 2 of 4." in told[-1]
    assert "Not drawn: 1 point with user_power 0 that had a first look only." in told[-2]
    assert "First looks" not in write("grid")


def test_zero_stands_on_a_log_axis():
    lines = {0: {0.0: 0.1, 10.0: 0.3, 300.0: 0.2}}
    drawn = plots.interaction("i", "Interaction", lines, (0.0, 0.1), (0.1, 0.3), "l2", "ndcg@20", log=True)
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert labels[:3] == ["0", "10", "300"]


def test_a_log_axis_has_the_values_tried_or_round_ones():
    def ticks(values):
        line = {0: dict.fromkeys(values, 0.1)}
        drawn = plots.interaction("i", "Interaction", line, None, (0.0, 0.2), "l2", "y", log=True)
        return re.findall(r"<text[^>]*>([^<]*)</text>", drawn.partition("l2</text>")[0])

    assert ticks([10.0, 20.0, 50.0, 300.0]) == ["10", "20", "50", "300"]
    assert ticks([10.0, 10.5, 300.0]) == ["10", "300"]
    assert ticks([2.5 + step / 7 for step in range(200)]) == ["3", "10", "30"]
    assert ticks([40.0 + step for step in range(20)]) == ["40", "59"]


def test_a_page_of_a_real_search():
    pytest.importorskip("matplotlib", reason="reports need matplotlib")
    values = np.random.default_rng(0).random((200, 30)) < np.linspace(0.05, 0.4, 30)
    split = deql.split_strong(Interactions.from_csr(csr_array(values.astype(float))))
    found = deql.tune(split, {"l2": [1, 10], "dropout": [0, 0.5], "user_power": [0, 0.5], "xi": [0.1]})
    text = tuning_page("Tuning", {"Split": split.describe()}, found)
    assert f"{found.table.height:,} models on 8 inverses" in text
    assert text.count("<figure>") == 4
    assert found.sentence in " ".join(Outline(text).texts)
    assert str(found).startswith("Best 10 of")
