"""``help()`` of a model describes every parameter and fitted attribute, those that it shares with others included."""

import importlib.util
import inspect
import re

import numpy as np
import pytest

import deql
from deql import models
from deql.linalg.engines.engine import Engine
from deql.linalg.engines.memory import Memory
from deql.linalg.engines.resources import Requirement

MODELS = sorted(models.MODEL_NAMES)


def described(kind, section):
    text = kind.__doc__.split(f"\n{section}\n{'-' * len(section)}\n")[1].split("\n\n")[0]
    return [name.strip() for line in re.findall(r"^(\S.*?) :", text, re.MULTILINE) for name in line.split(",")]


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_once_and_no_other(name):
    kind = getattr(models, name)
    assert sorted(described(kind, "Parameters")) == sorted(kind().get_params())
    assert "eq:" not in kind.__doc__, "a label of the source, which no reader of the paper sees"


@pytest.mark.parametrize("name", MODELS)
def test_every_fitted_attribute(name, asymmetric_ratings):
    if name == "ELSA" and importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    kind = getattr(models, name)
    model = kind(lambda data: np.eye(data.n_items)) if name == "CustomLinear" else kind()
    model.fit(asymmetric_ratings)
    fitted = {attribute for attribute in vars(model) if attribute.endswith("_")}
    assert fitted <= set(described(kind, "Attributes"))
    assert {"items_", "item_counts_", "n_users_"} <= fitted


@pytest.mark.parametrize("verb", ["fit", "recommend", "explain"])
@pytest.mark.parametrize("name", MODELS)
def test_a_signature_names_what_it_takes(name, verb):
    signature = str(inspect.signature(getattr(getattr(models, name), verb)))
    assert "Any" not in re.findall(r"\w+", signature)


@pytest.mark.parametrize("verb", ["evaluate", "compare", "tune", "plan", "read_interactions"])
def test_a_functions_parameters_are_named_too(verb):
    for parameter in inspect.signature(getattr(deql, verb)).parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            assert "Any" not in re.findall(r"\w+", str(parameter.annotation)), parameter


def test_an_engine_of_ones_own_is_a_class_and_nothing_else(asymmetric_ratings, tmp_path):
    class Borrowed(Engine):
        name = "borrowed"

        def requirement(self, size, resources):
            return Requirement(self.name, size.packed)

        def solve(self, problem, stage):
            solved = Memory().solve(problem, stage)
            return type(solved)(solved.precision, solved.residual, self.name)

    model = deql.EASE(l2=1.0, engine=Borrowed()).fit(asymmetric_ratings)
    assert model.engine_ == "borrowed"
    assert (model.weights() == deql.EASE(l2=1.0).fit(asymmetric_ratings).weights()).all()
    assert repr(model) == "EASE(l2=1.0, engine=Borrowed())"
    model.save(tmp_path / "borrowed.deql")
    loaded = deql.load(tmp_path / "borrowed.deql")  # where nobody knows that engine
    assert (loaded.engine, loaded.engine_) == ("auto", "borrowed")
    loaded.with_rule(b=2.0).save(tmp_path / "again.deql")
    assert [need.engine for need in deql.plan(5000, engine=Borrowed(), calibrate=False).needs][-1] == "borrowed"


def test_an_engine_that_leaves_everything_to_another(asymmetric_ratings):
    class Borrowing(deql.engines.Engine):
        def requirement(self, size, resources):
            return deql.engines.Memory().requirement(size, resources)

        def solve(self, problem, stage):
            return deql.engines.Memory().solve(problem, stage)

    assert Borrowing.name == "borrowing"
    assert deql.EASE(l2=1.0, engine=Borrowing()).fit(asymmetric_ratings).engine_ == "memory"
    assert "5,000 items" in str(deql.plan(5000, engine=Borrowing(), calibrate=False))
