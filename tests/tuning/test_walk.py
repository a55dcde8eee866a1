import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

import deql
from deql.errors import JournalError
from deql.tuning.space import Point
from deql.tuning.summary import best_by_point, edges
from deql.tuning.trial import TIE
from deql.tuning.walk import PointGrid, walk
from tests.tuning.common import findings, market, steps

GRID = {
    "l2": [0.2, 1, 5, 25, 125, 625],
    "dropout": [0.0, 0.2, 0.4, 0.6, 0.8],
    "user_power": [0, 0.4, 0.8],
    "b": [0, 1],
    "popularity_power": 0,
    "prior": None,
}
"""90 points."""


def grid_of(l2, dropout, user_power, mean_diagonal=lambda user_power, half_life: 10.0):
    """A grid of so many values on each axis."""
    values = product([10.0 ** (step - 1) for step in range(l2)], range(dropout), range(user_power))
    points = [Point(ridge, drop / 10, power / 5) for ridge, drop, power in values]
    return PointGrid(points, mean_diagonal)


@st.composite
def peaks(draw):
    """Values along an axis that rise up to some place and fall after it."""
    length = draw(st.integers(1, 7))
    top = draw(st.integers(0, length - 1))
    steps_down = draw(st.lists(st.floats(0.01, 10), min_size=length, max_size=length))
    return [-sum(steps_down[min(place, top) : max(place, top)]) for place in range(length)]


@given(st.tuples(peaks(), peaks(), peaks()), st.integers(0, 10**6), st.sampled_from([lambda x: x, math.exp, math.atan]))
def test_the_one_peak_is_found_from_anywhere(axes, seed, bend):
    grid = grid_of(*map(len, axes))
    places = [sorted({point[axis] for point in grid.points}) for axis in range(3)]
    worth = {
        point: bend(sum(axes[axis][places[axis].index(point[axis])] for axis in range(3)) / 10) for point in grid.points
    }
    asked = []

    def measure(point, here):
        asked.append(point)
        return worth[point]

    start = grid.points[seed % len(grid.points)]
    end = walk(start, grid.neighbours, measure)
    assert worth[end] == max(worth.values())
    assert len(set(asked)) == len(asked)
    # A straight way for each axis, and at most four neighbours beside each step of it.
    assert len(asked) <= 1 + 6 * sum(map(len, axes))


@given(st.lists(st.floats(-1, 1), min_size=60, max_size=60), st.integers(0, 59), st.floats(0, 0.5))
def test_on_any_surface_it_ends_where_no_neighbour_is_better(values, start, tie):
    grid = grid_of(5, 4, 3)
    worth, asked = dict(zip(grid.points, values, strict=True)), []

    def measure(point, here):
        assert point == here or point in grid.neighbours(here)
        asked.append(point)
        return worth[point]

    end = walk(grid.points[start], grid.neighbours, measure, lambda _: tie)
    assert len(set(asked)) == len(asked)
    assert set(grid.neighbours(end)) <= set(asked)
    assert all(worth[point] <= worth[end] + tie for point in grid.neighbours(end))


def test_ties_are_not_gone_after():
    line = grid_of(9, 1, 1)
    worth = {point: place / 100 for place, point in enumerate(line.points)}  # ever a little better
    for tie, count in ((0.0, 8), (0.02, 3)):
        asked = []
        walk(line.points[1], line.neighbours, lambda point, _: asked.append(point) or worth[point], lambda _: tie)  # noqa: B023
        assert len(asked) == count


def test_it_ends_where_nothing_can_be_measured_any_more():
    grid = grid_of(5, 4, 3)
    for budget in range(5):
        asked = []

        def measure(point, here, asked=asked, budget=budget):
            if len(asked) == budget:
                return None
            asked.append(point)
            return float(len(asked))

        assert walk(grid.start(), grid.neighbours, measure) == (asked[-1] if asked else grid.start())
        assert len(asked) == budget


def test_points_that_give_no_model_are_left():
    line = grid_of(6, 1, 1)
    worth = dict(zip(line.points, [-math.inf, -math.inf, 1.0, 3.0, 2.0, -math.inf], strict=True))
    assert walk(line.points[1], line.neighbours, lambda point, _: worth[point]) == line.points[3]


def test_another_user_power_keeps_the_ratio_of_l2_to_the_mean_diagonal():
    means = {0.0: 100.0, 0.4: 10.0, 0.8: 1.0}
    points = [Point(float(l2), 0.5, power) for power in means for l2 in (0, 1, 10, 100, 1000)]
    grid = PointGrid(points, lambda power, half_life: means[power])
    assert grid.start() == Point(10.0, 0.5, 0.4)
    assert Point(100.0, 0.5, 0.4) in grid.neighbours(Point(1000.0, 0.5, 0.0))
    assert Point(1.0, 0.5, 0.8) in grid.neighbours(Point(10.0, 0.5, 0.4))
    assert Point(0.0, 0.5, 0.4) in grid.neighbours(Point(0.0, 0.5, 0.8))
    empty = PointGrid(points, lambda user_power, half_life: 0.0)
    assert Point(10.0, 0.5, 0.4) in empty.neighbours(Point(10.0, 0.5, 0.0))
    assert empty.start() in points


@pytest.fixture(scope="module")
def split():
    return deql.split_strong(market(400, 60, seed=21), 0.1, 0.4)


@pytest.fixture
def screening(monkeypatch):
    """Screening on data as small as the tests', where it is a share of an inverse as on large ones."""
    monkeypatch.setattr("deql.tuning.tuner._LEAST_ITEMS", 10)
    monkeypatch.setattr("deql.tuning.budget._OVERHEAD_SECONDS", 0.0)


def test_it_is_what_tune_does(split):
    tuning, whole = deql.tune(split, GRID), deql.tune(split, GRID, search="grid", prune=False)
    assert tuning.points == 90
    assert tuning.inverses <= 25
    measured = best_by_point(whole)
    assert all(measured[point] == value for point, value in best_by_point(tuning).items())
    error = tuning.curve.errors["ndcg@20"][tuning.curve.b.index(tuning.best["b"])]
    assert tuning.best["ndcg@20"] >= whole.best["ndcg@20"] - error
    winner = Point.of(tuning.best)
    grid = PointGrid(list(measured), lambda power, half_life: _mean_diagonal(split, power))
    tried = best_by_point(tuning)
    assert any(
        set(grid.neighbours(point)) <= set(tried) and tried[point] >= tried[winner] - TIE * error for point in tried
    )


def _mean_diagonal(split, power):
    lengths = split.train.matrix.sum(axis=1)
    return float((lengths ** (1 - power)).sum() / split.train.n_items)


def test_a_space_of_few_points_is_measured_whole(split):
    assert deql.tune(split, GRID | {"l2": [1, 5], "user_power": 0}).inverses == 10


@pytest.mark.parametrize("prune", [False, True])
def test_a_search_cut_off_anywhere_goes_on_to_the_same_end(split, screening, prune, tmp_path):
    whole = tmp_path / "whole"
    expected = findings(deql.tune(split, GRID, prune=prune, journal=whole))
    assert bool(expected["looks"]) == prune
    lines = whole.read_bytes().splitlines(keepends=True)
    for kept in range(1, len(lines)):
        cut = tmp_path / f"{kept}"
        cut.write_bytes(b"".join(lines[:kept]) + lines[kept][:20])
        assert findings(deql.tune(split, GRID, prune=prune, journal=cut)) == expected
        assert steps(cut) == steps(whole)


def test_screening_finds_the_start(split, screening, tmp_path):
    tuning = deql.tune(split, GRID, journal=tmp_path / "j")
    done = steps(tmp_path / "j")
    looks = [step for step in done if step[0] == "look"]
    assert done[: len(looks)] == looks
    assert 0 < len(looks) < 60
    best = tuning.looks.row(0, named=True)
    assert done[len(looks)][1:] == (best["l2"], best["dropout"], best["user_power"])


def test_without_a_budget_it_ends_at_eleven_inverses_where_they_are_long(split, screening):
    tuning = deql.tune(split, GRID)
    assert tuning.inverses <= 10
    assert deql.tune(split, GRID, budget=40).inverses >= tuning.inverses


def values_in_order(path):
    """The best value of each point and its tie, in the order measured."""
    import json

    records = [json.loads(line) for line in path.read_bytes().splitlines()[1:]]
    points = [record for record in records if record["step"] == "point"]
    return [max(record["values"]["ndcg@20"]) for record in points], [TIE * record["error"] for record in points]


@pytest.mark.parametrize("patience", [1, 2, 3])
def test_a_walk_that_screened_ends_where_nothing_improves(split, screening, tmp_path, patience):
    tuning = deql.tune(split, GRID, patience=patience, journal=tmp_path / "j")
    values, ties = values_in_order(tmp_path / "j")
    best, idle = -math.inf, 0
    for value, tie in zip(values, ties, strict=True):
        assert idle < patience
        best, idle = (value, 0) if value > best + tie else (best, idle + 1)
    assert idle <= patience
    assert tuning.left_out == 0
    again = deql.tune(split, GRID, patience=patience, journal=tmp_path / "j")
    assert findings(again) == findings(tuning)
    more = deql.tune(split, GRID, patience=0, journal=tmp_path / "j")
    assert more.inverses >= tuning.inverses


def test_without_screening_it_goes_on_until_no_neighbour_is_better(split):
    assert findings(deql.tune(split, GRID, patience=1)) == findings(deql.tune(split, GRID, patience=0))


def test_a_larger_budget_goes_on(split, screening, tmp_path):
    for budget in (2, 4, 3, 7, 40):
        tuning = deql.tune(split, GRID, budget=budget, journal=tmp_path / "j")
        assert len(set(steps(tmp_path / "j"))) == len(steps(tmp_path / "j"))
    assert tuning.left_out == 0
    assert tuning.notes == [] or "ended early" not in tuning.notes[0]


def test_what_a_budget_leaves_is_told(split):
    tuning = deql.tune(split, GRID, budget=4)
    assert tuning.inverses == 3
    assert tuning.left_out > 0
    assert tuning.notes[0].startswith("The search ended early: ")


def test_the_end_of_an_axis_is_told(split):
    wide = deql.tune(split, GRID)
    assert not [line for line in edges(wide) if "l2" in line]
    ridges = [ridge for ridge in GRID["l2"] if ridge >= 8 * wide.best["l2"]]
    narrow = deql.tune(split, GRID | {"l2": [*ridges, 5000, 10**5]})
    assert narrow.best["l2"] == min(ridges)
    assert f"The best l2 ({min(ridges):g}) is the smallest tried: widen l2 downwards." in edges(narrow)


def test_an_early_end_is_no_end_of_an_axis(split):
    for budget in (2, 3, 4):
        tuning = deql.tune(split, GRID, budget=budget)
        for line in edges(tuning):
            name = line.split()[2]
            values = tuning.ridges if name == "l2" else GRID[name]
            assert tuning.best[name] in (min(values), max(values))


def test_a_journal_of_the_grid_is_refused_in_a_sentence(split, tmp_path):
    deql.tune(split, GRID, search="grid", prune=False, budget=2, journal=tmp_path / "j")
    with pytest.raises(JournalError, match=r"is the journal of a search with other .*search") as refusal:
        deql.tune(split, GRID, journal=tmp_path / "j")
    assert "\n" not in str(refusal.value)


def test_lines_of_earlier_versions_have_no_error(split, tmp_path):
    import json

    path = tmp_path / "j"
    expected = findings(deql.tune(split, GRID, search="grid", budget=4, journal=path))
    head, *records = map(json.loads, path.read_bytes().splitlines())
    older = [{name: value for name, value in record.items() if name != "error"} for record in records[:-1]]
    path.write_text("".join(json.dumps(record) + "\n" for record in [head, *older]))
    assert findings(deql.tune(split, GRID, search="grid", budget=4, journal=path)) == expected
