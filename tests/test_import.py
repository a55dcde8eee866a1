import inspect
import json
import subprocess
import sys

import pytest

import deql
from deql.models import Recommender

HEAVY = {"numpy", "scipy", "numba", "polars", "rich", "typer", "safetensors", "xxhash", "torch", "sklearn", "pandas"}

MEASURE = """
import json, sys, time
start = time.perf_counter()
import deql
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "modules": sorted(sys.modules)}))
"""


@pytest.fixture(scope="module")
def runs():
    def run():
        return json.loads(subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, check=True).stdout)

    return [run() for _ in range(3)]


def test_importing_is_quick(runs):
    assert min(run["seconds"] for run in runs) < 0.5


def test_importing_loads_nothing_heavy(runs):
    assert not HEAVY & set(runs[0]["modules"])


def test_every_public_name_is_there():
    for name in deql.__all__:
        assert getattr(deql, name) is not None
    assert dir(deql) == sorted(deql.__all__) == sorted(set(deql.__all__))


def test_any_other_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'deql' has no attribute 'EASY'"):
        _ = deql.EASY
    assert not hasattr(deql, "numpy")


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [
        (deql, "read_interactions", ["source", "user", "item", "weight", "time"]),
        (deql, "clean", ["data"]),
        (deql.Interactions, "from_csr", ["csr", "users", "items"]),
        (deql, "split_strong", ["data", "test_users", "validation_users", "held_out", "seed"]),
        (deql, "split_weak", ["data", "held_out", "validation", "seed"]),
        (deql, "split_leave_last", ["data", "test", "validation"]),
        (deql, "load_split", ["path"]),
        (deql, "evaluate", ["model", "target", "metrics"]),
        (deql, "compare", ["models", "data", "splits"]),
        (deql, "load", ["path"]),
        (deql.DEQL, "from_paper", ["lam", "p", "a", "b", "zero_diagonal"]),
        (Recommender, "fit", ["data"]),
        (Recommender, "recommend", ["histories", "k", "exclude_seen", "exclude", "candidates"]),
        (Recommender, "similar_items", ["item", "k"]),
        (Recommender, "explain", ["history", "item", "k"]),
        (Recommender, "save", ["path"]),
        (deql.DEQL, "weights", []),
    ],
)
def test_functions_are_called_as_designed(owner, name, parameters):
    found = [parameter for parameter in inspect.signature(getattr(owner, name)).parameters if parameter != "self"]
    assert found[: len(parameters)] == parameters


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("DEQL", ["l2", "dropout", "b", "zero_diagonal"]),
        ("EASE", ["l2"]),
        ("LAE", ["l2"]),
        ("DLAE", ["l2", "dropout"]),
        ("EDLAE", ["l2", "dropout"]),
        ("RLAE", ["l2", "xi"]),
        ("RDLAE", ["l2", "dropout", "xi"]),
    ],
)
def test_models_take_the_designed_parameters(name, parameters):
    found = inspect.signature(getattr(deql, name)).parameters.values()
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    assert [parameter.name for parameter in found if parameter.kind is not keyword_only] == parameters
    assert {"user_power", "popularity_power", "engine", "dtype", "progress"} <= {
        parameter.name for parameter in found if parameter.kind is keyword_only
    }


def test_every_error_is_a_deql_error_and_a_value_error():
    from deql import errors

    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, Exception)]
    assert len(kinds) > 5
    assert all(issubclass(kind, deql.DeqlError) and issubclass(kind, ValueError) for kind in kinds)
