import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deql.errors import ParameterError
from deql.tuning import Space
from deql.tuning.space import DEFAULT, NAMED, Point, as_space, ridges_around


def test_values_take_the_place_of_the_defaults():
    space = as_space({"l2": [10, 100], "b": 1, "xi": np.array([0.1, 0.2])})
    assert space == Space(
        l2=(10.0, 100.0), dropout=DEFAULT.dropout, user_power=DEFAULT.user_power, b=(1.0,), xi=(0.1, 0.2),
        popularity_power=DEFAULT.popularity_power, prior="lowpass",
    )  # fmt: skip
    assert as_space({}) == as_space("default") == DEFAULT
    assert as_space({"l2": None}) == DEFAULT
    assert as_space(space) is space


@pytest.mark.parametrize(
    "values", [3, 3.0, np.float32(3), np.int64(3), np.array(3), [3], (3, 3.0), range(3, 4), {3}, iter([3])]
)
def test_one_value_however_it_is_given(values):
    space = as_space({"l2": values})
    assert space.l2 == (3.0,)
    assert isinstance(space.l2[0], float)


def test_a_value_given_twice_counts_once():
    space = as_space({"b": [0, 0.5, 0.0, 0.5, 1], "l2": [1, 1.0, 2], "xi": [0.1, 0.1]})
    assert (space.b, space.l2, space.xi) == ((0.0, 0.5, 1.0), (1.0, 2.0), (0.1,))
    assert len(set(space.points(lambda *_: 1.0))) == len(space.points(lambda *_: 1.0))


def test_points_and_rules_are_all_combinations():
    space = as_space({"l2": [1, 2], "dropout": [0, 0.5], "user_power": [0, 1], "b": [0, 2], "xi": 0.1,
                      "popularity_power": [0, 0.3]})  # fmt: skip
    points = space.points(lambda *_: 1.0)
    assert set(points) == {Point(l2, dropout, power) for l2 in (1, 2) for dropout in (0, 0.5) for power in (0, 1)}
    assert len(points) == 8
    assert [point.user_power for point in points] == [0] * 4 + [1] * 4  # one Gram matrix each
    rules = space.rules()
    assert len(rules) == 6
    assert {"xi": 0.1, "popularity_power": 0.3} in rules
    assert {"b": 2.0, "popularity_power": 0.0} in rules


def test_without_b_there_is_xi():
    space = as_space({"b": [], "xi": [0.1, 0.3], "popularity_power": 0})
    assert space.rules() == [{"xi": 0.1, "popularity_power": 0.0}, {"xi": 0.3, "popularity_power": 0.0}]


def test_infinity_is_a_b():
    assert as_space({"b": [1, math.inf]}).b == (1.0, math.inf)


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({"zero_diagonal": [True, False]}, "zero_diagonal is no axis of the space: at the same l2 it is b = 0"),
        ({"lambda": 3}, "a space has no 'lambda': it has l2, dropout, user_power, b, xi, popularity_power"),
        ({"engine": "auto"}, "a space has no 'engine'"),
        ({3: 3}, "a space has no 3"),
        ({"l2": []}, "the space needs at least one value of l2"),
        ({"dropout": ()}, "the space needs at least one value of dropout"),
        ({"popularity_power": []}, "the space needs at least one value of popularity_power"),
        ({"b": []}, "the space needs at least one value of b or of xi"),
        ({"l2": -1}, "l2 must be a number from 0 up, got -1.0"),
        ({"l2": math.inf}, "l2 must be a number from 0 up, got inf"),
        ({"l2": [1, math.nan]}, "l2 must be a number from 0 up, got nan"),
        ({"dropout": 1}, "dropout must be a number from 0 to below 1, got 1.0"),
        ({"dropout": [0.1, -0.1]}, "dropout must be a number from 0 to below 1, got -0.1"),
        ({"b": -0.5}, "b must be a number from 0 up, got -0.5"),
        ({"xi": 1.5}, "xi must be a number from 0 to 1, got 1.5"),
        ({"user_power": math.inf}, "user_power must be a number, got inf"),
        ({"l2": "ten"}, "l2 must be a number or a list of numbers, got 'ten'"),
        ({"b": ["a", "b"]}, "b must be a number or a list of numbers, got 'a'"),
        ({"b": True}, "b must be a number or a list of numbers, got True"),
        ({"l2": "3"}, "l2 must be a number or a list of numbers, got '3'"),
        ({"b": None}, "b must be a number or a list of numbers, got None"),
        ({"b": [[0, 1]]}, "b must be a number or a list of numbers"),
        ("papers", "there is no space 'papers': say default, quick, paper, or give values"),
        (7, "a space is a name, a dict of values or a Space, got 7"),
        (None, "a space is a name, a dict of values or a Space, got None"),
    ],
)
def test_what_is_no_space_is_said_in_one_sentence(axes, words):
    with pytest.raises(ParameterError, match=f"^{words.replace('.', '[.]')}"):
        as_space(axes)


@pytest.mark.parametrize("values", [1.0, np.array([1.0, 2.0]), (1, 1.0), [3, 2], iter([5])])
def test_a_space_of_its_own_is_as_forgiving_as_a_dict(values):
    values = list(values) if hasattr(values, "__next__") else values
    assert Space(l2=values) == as_space(vars(Space()) | {"l2": values})
    assert all(type(value) is float for value in Space(l2=values).l2)


@given(st.floats(1e-6, 1e12))
def test_ridges_lie_around_the_mean_diagonal_whatever_its_size(mean):
    ridges = ridges_around(mean)
    assert list(ridges) == sorted(set(ridges))
    assert min(abs(np.log10(np.array(ridges) / mean))) < 0.27  # one of them is near it
    assert ridges[0] < mean / 5
    assert ridges[-1] > 10 * mean
    assert {f"{value:e}"[0] for value in ridges} == {"1", "3"}
    np.testing.assert_allclose(np.diff(np.log10(ridges)), 0.5, atol=0.03)  # no step is left out


@pytest.mark.parametrize("mean", [0.0, math.inf, math.nan])
def test_no_ridges_around_nothing(mean):
    with pytest.raises(ParameterError, match="give values of l2"):
        ridges_around(mean)


def test_each_user_power_has_ridges_of_its_own():
    space = Space(dropout=(0.5,), user_power=(0.0, 1.0))
    points = space.points(lambda power, half_life: 1000.0 if power == 0 else 0.01)
    assert [point.l2 for point in points] == [*ridges_around(1000.0), *ridges_around(0.01)]


def test_the_papers_grid():
    paper = NAMED["paper"]
    assert len(paper.rules()) == 9
    assert len(paper.points(lambda *_: 1.0)) == 48
    assert paper.user_power == paper.popularity_power == (0.0,)


def test_a_space_is_plain_values():
    assert as_space({"l2": 1, "b": 0}).to_dict()["l2"] == (1.0,)
    assert list(Space().to_dict()) == ["l2", "dropout", "user_power", "b", "xi", "popularity_power"]
