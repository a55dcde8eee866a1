import copy
import inspect
import pickle

import numpy as np
import pytest

import deql
from deql import errors
from deql.errors import DeqlError, NotPositiveDefiniteError, ParameterError, Setting

CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, DeqlError)]


def through_pickle(error):
    return pickle.loads(pickle.dumps(error))


@pytest.mark.parametrize("again", [through_pickle, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("kind", CLASSES)
def test_errors_cross_processes_whole(kind, again):
    parts = ("no ridge: say ", Setting("l2"), " or use ", Setting("dtype", "float64"))
    attributes = {NotPositiveDefiniteError: {"indices": [3, 5]}, ParameterError: {"parameter": "l2"}}.get(kind, {})
    error = kind(parts, np.array([3, 5])) if kind is NotPositiveDefiniteError else kind(*parts, **attributes)
    error.add_note("in fold 2")
    for _ in range(2):
        error = again(error)
        assert type(error) is kind
        assert error.args == parts
        assert str(error) == "no ridge: say l2=… or use dtype='float64'"
        assert vars(error) == attributes | {"__notes__": ["in fold 2"]}


def test_what_a_fit_raises_crosses_processes():
    with pytest.raises(NotPositiveDefiniteError) as caught:
        deql.EASE(l2=0.0).fit(deql.Interactions.from_pairs(list("aabb"), list("xyxy")))
    error = through_pickle(caught.value)
    assert (str(error), error.indices) == (str(caught.value), caught.value.indices)


DATA = deql.Interactions.from_pairs(list("aaabbbccc"), list("xyzxywxzw"))


@pytest.mark.parametrize(
    ("call", "parameter"),
    [
        (lambda: deql.split_strong(DATA, held_out=2), "held_out"),
        (lambda: deql.split_weak(DATA, held_out="half"), "held_out"),
        (lambda: deql.tune(DATA, metric="ndgc@20"), "metric"),
        (lambda: deql.tune(DATA, metric="coverage@20"), "metric"),
        (lambda: deql.tune(DATA, search="luck"), "search"),
        (lambda: deql.tune(DATA, budget="soon"), "budget"),
        (lambda: deql.tune(DATA, {"l2": "many"}), "l2"),
        (lambda: deql.tune(DATA, "moon"), "space"),
        (lambda: deql.compare([deql.Popularity()], DATA), "models"),
        (lambda: deql.clean(DATA, k_core=0), "k_core"),
        (lambda: deql.clean(DATA, min_weight="much"), "min_weight"),
        (lambda: deql.read_interactions("a.csv", ids="words"), "ids"),
        (lambda: deql.read_interactions("a.csv", min_weight="much"), "min_weight"),
        (lambda: deql.read_interactions(__file__, format="word"), "format"),
        (lambda: deql.set_threads(0), "threads"),
        (lambda: deql.EASE(l2=-1).fit(DATA), "l2"),
        (lambda: deql.CustomLinear("W").fit(DATA), "W"),
        (lambda: deql.Popularity().fit(DATA).recommend("x"), "histories"),
    ],
)
def test_the_parameter_at_fault_is_named(call, parameter):
    with pytest.raises(ParameterError) as caught:
        call()
    assert caught.value.parameter == parameter
