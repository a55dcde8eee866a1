"""The page of a search: rows and captions worked out by hand, and a page that is whole in every case."""

import dataclasses
import math
import re
from functools import cache

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import spearmanr

import deql
from deql import Interactions
from deql.plotting import plots
from deql.plotting.plots import Labels
from deql.report.point_leaderboard import point_leaderboard
from deql.report.tuning_page import rank_correlation, tuning_page
from deql.tuning.space import Space
from deql.tuning.tuning_result import BCurve
from tests.report.test_pages import NASTY, Outline
from tests.tuning.made import BETWEEN, GRID, made, row
from tests.tuning.test_importance import BASELINES


def captions(text):
    return re.findall(r"<figcaption>(.*?)</figcaption>", text)


def test_the_star_of_the_curve_over_b_is_at_the_b_that_is_saved():
    # It was at the best b of the curve, "which tried fewer values" beside a tie that was measured.
    pytest.importorskip("matplotlib", reason="reports need matplotlib")
    b, errors = [0.0, 0.5, 1.0, 2.0], [0.02] * 4
    for paired, words in ((0.003, "best at b = 0.5; the winner has 0"), (0.03, "tied with the winner&#39;s 0")):
        curve = BCurve(b, {"ndcg@20": [0.3, 0.31, 0.2, 0.1]}, {"ndcg@20": errors}, [paired] * 4)
        page = tuning_page("Tuning", {}, made([row(b=0.0), row(b=0.5, value=0.2)], curve=curve))
        (caption,) = [one for one in captions(page) if "by b (a = 1)" in one]
        assert words in caption
        figure = page[page.index('id="b-ndcg-20-title"') :]
        assert "b = 0<" in figure[: figure.index("</svg>")]


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
    "walk": lambda: made(GRID[:2], looks=[row(l2=l2, user_power=0.4)[:-1] for l2 in (1.0, 3.0, 10.0, 30.0)]),
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
        "complete", "dropout 0.2", "dropout 0.8", "The best b (1) is the largest tried: widen b upwards.",
    ):  # fmt: skip
        assert part in words
    assert "interrupted: this is the best up to then" in write("interrupted")
    assert "10 min" in write("interrupted")
    assert "Edges of the space" not in write("single")
    assert "The best l2 (41) is the smallest tried: widen l2 downwards." in write("narrow")


def test_each_metrics_best_b_is_marked_in_its_own_figure():
    text = write("grid")
    text = text[text.index("What b does") :]
    titles = re.findall(r"<title id[^>]*>(.*?)</title>", text)
    assert titles[:2] == ["recall@20 by b; best at b = 0.5", "ndcg@20 by b; best at b = 1"]
    drawings = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    for drawing, label in zip(drawings, ("b = 0.5", "b = 1"), strict=False):
        assert f">{label}</text>" in drawing
        assert "b = a</text>" in drawing
    assert any("xi = 0.1 and no b" in caption for caption in captions(write("xi")))


def test_what_mattered_comes_first_in_order():
    text = tuning_page("Tuning", {}, made(GRID, baselines=BASELINES))
    assert (
        text.index("What mattered") < text.index("Leaderboard") < text.index("What b does") < text.index("The search")
    )
    words = " ".join(Outline(text).texts)
    assert "In order: l2 (0.0300), then b (0.0300), then dropout (0.0100)." in words
    drawings = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)[:3]
    assert [re.search("<title[^>]*>(.*?)</title>", one)[1].split()[0] for one in drawings] == ["l2", "b", "dropout"]
    for drawing in drawings:
        assert ">EASE 0.3500</text>" in drawing
        assert ">popularity 0.0500 ↓</text>" in drawing
    assert "What mattered" not in write("single")
    assert "a value that it left early" not in words
    assert "a value that it left early" in tuning_page("Tuning", {}, made(GRID, points=108))


def test_the_winner_can_be_pasted():
    tuning = CASES["grid"]()
    assert f"<pre><code>{tuning.spec}</code></pre>" in write("grid")


def test_the_leaderboard_has_a_row_for_each_point_and_folds_the_other_rules():
    text = tuning_page("Tuning", {}, made(GRID, baselines=BASELINES))
    board = text[text.index("<h2>Leaderboard") : text.index("<h2>What b does")]
    outer = re.sub(r"<details>.*?</details>", "", board, flags=re.DOTALL)
    assert re.findall(r'<th scope="row">(.*?)</th>', outer) == ["1", "2", "3", "4", "5", "EASE", "popularity"]
    assert board.count("<details>") == 1
    assert "1 more rule</summary>" in board
    assert "All 5 points of 6 models, each with its best rule; these have user_power 0, popularity_power 0" in board
    assert "xi" not in board


def test_the_winner_stands_for_its_point():
    simpler = row(l2=10.0, dropout=0.2, b=0.0, value=0.3499, recall=0.1)
    tuning = made([GRID[0], simpler, GRID[2]])
    tuning = dataclasses.replace(tuning, best=tuning.table.row(1, named=True))
    grid, others = point_leaderboard(tuning)
    assert [cell.text for cell in grid.rows[0][1]] == ["0.3499", "0.1000", "10", "0"]
    assert "0.3500" in others[0]


def test_every_line_of_the_key_is_drawn():
    # Dropout 0.7 was screened with another user_power than the winner's, so it has no line.
    looks = [
        one[:-1] for one in [*GRID, row(l2=3.0, dropout=0.7, user_power=0.8), row(l2=9.0, dropout=0.7, user_power=0.8)]
    ]
    text = tuning_page("Tuning", {}, made(GRID, looks=looks))
    key = re.search(r'aria-label="Lines">(.*?)</ul>', text, flags=re.DOTALL)[1]
    assert re.findall(r"dropout ([\d.]+)", key) == ["0.2", "0.8"]


def test_a_figure_for_each_user_power_on_one_scale():
    told = [caption for caption in captions(write("user_powers")) if "by l2 and dropout" in caption]
    assert [re.search("user_power ([0-9.]+):", one)[1] for one in told] == ["0", "0.4"]
    assert "the best of its 2 models" in told[0]
    assert (
        "user_power 0: at each point the best of its model. It is the winner&#39;s; 5 others are not drawn."
        in (captions(write("many powers"))[-1])
    )
    looked_at = [row(l2=3.0, user_power=0.8)[:-1], row(l2=1.0, user_power=0.8)[:-1]]
    told = captions(tuning_page("Tuning", {}, made(GRID, looks=looked_at)))
    assert told[-1].endswith("Not drawn: 2 points with user_power 0.8, only screened.")


def test_points_that_form_no_lines():
    told = captions(write("between"))[-1]
    assert "the stronger, the better its place" in told
    assert "Points of all user_powers, 0.1 to 0.7." in told
    assert 'aria-label="Lines"' not in write("between")
    assert "the stronger" in captions(write("many"))[-1]


def test_a_single_point_has_nothing_to_draw():
    assert "Dropout and l2" not in write("single")
    assert len(captions(write("single"))) == 2


def test_how_screening_agrees():
    # Looks put the second best first and the best second: ranks 2, 3, 1 against 3, 2, 1 have a correlation of 0.5.
    looks = [(*GRID[1][:6], 0.9), (*GRID[0][:6], 0.8), (*GRID[2][:6], 0.7), row(l2=99.0, value=0.1)[:7]]
    told = captions(tuning_page("Tuning", {}, made(GRID, looks=looks)))
    assert "at the 3 of 4 points that have both. Rank correlation: 0.50" in told[-1]
    assert "By screening the winner was number 2 of 4." in told[-1]
    assert "Not drawn: 1 point with user_power 0, only screened." in told[-2]
    assert "Screening" not in write("grid")


def test_zero_stands_on_a_log_axis():
    lines = {0: {0.0: 0.1, 10.0: 0.3, 300.0: 0.2}}
    drawn = plots.interaction(Labels("i", "Interaction", "l2", "ndcg@20"), lines, (0.0, 0.1), (0.1, 0.3), log=True)
    labels = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert labels[:3] == ["0", "10", "300"]


def test_a_log_axis_has_the_values_tried_or_round_ones():
    def ticks(values):
        line = {0: dict.fromkeys(values, 0.1)}
        drawn = plots.interaction(Labels("i", "Interaction", "l2", "y"), line, None, (0.0, 0.2), log=True)
        return re.findall(r"<text[^>]*>([^<]*)</text>", drawn.partition("l2</text>")[0])

    assert ticks([10.0, 20.0, 50.0, 300.0]) == ["10", "20", "50", "300"]
    assert ticks([10.0, 10.5, 300.0]) == ["10", "300"]
    assert ticks([2.5 + step / 7 for step in range(200)]) == ["3", "10", "30"]
    assert ticks([40.0 + step for step in range(20)]) == ["40", "59"]


def test_a_page_of_a_real_search():
    pytest.importorskip("matplotlib", reason="reports need matplotlib")
    values = np.random.default_rng(0).random((200, 30)) < np.linspace(0.05, 0.4, 30)
    split = deql.split_strong(Interactions.from_csr(csr_array(values.astype(float))))
    found = deql.tune(split, {"l2": [1, 10], "dropout": [0, 0.5], "user_power": [0, 0.5], "xi": [0.1]}, prior="none")
    text = tuning_page("Tuning", {"Split": split.describe()}, found)
    assert f"{found.table.height:,} models on 8 inverses" in text
    assert text.count("<figure>") == 9  # five parameters, two metrics by b, two user_powers
    assert found.sentence in " ".join(Outline(text).texts)
    assert str(found).startswith("Best 10 of")
