import time
from contextlib import nullcontext

import numpy as np
import pytest
from scipy.sparse import csr_array

import deql
from deql.errors import ParameterError
from deql.split import HeldOut
from deql.tuning.budget import Budget, inverses_of_screening, predict_seconds
from deql.tuning.trainer import Trainer
from deql.tuning.tuning_data import TuningData, hold_out_validation, sample_items
from tests.tuning.common import market


@pytest.mark.parametrize(
    ("budget", "inverses", "seconds"),
    [(7, 7, None), ("7", 7, None), ("90s", None, 90), ("1.5 h", None, 5400), (".5min", None, 30), (" 2H ", None, 7200),
     ("3m", None, 180), (None, None, None)],
)  # fmt: skip
def test_budgets(budget, inverses, seconds):
    assert Budget.parse(budget) == Budget(inverses, seconds)
    assert Budget.parse(budget).limited == (budget is not None)


@pytest.mark.parametrize("budget", [0, -1, 2.5, True, "0s", "0", "20 parsecs", "min", "", "1e3s", "-5min", "inf", [5]])
def test_what_is_no_budget(budget):
    with pytest.raises(ParameterError, match="a budget is a number of inverses from 1 up or a time"):
        Budget.parse(budget)


def held(items, users=0):
    """Few interactions and many items: an inverse takes nearly all of the time."""
    users = max(users, -(-items // 8))
    values = csr_array(
        (np.ones(8 * users), (np.repeat(np.arange(users), 8), np.arange(8 * users) % items)), shape=(users, items)
    )
    train = deql.Interactions.from_csr(values)
    some = train.take_users(slice(0, users // 10))
    return TuningData(train, HeldOut(some, some), train, "")


def test_screening_on_a_quarter_of_many_items_is_a_64th_of_an_inverse():
    data = held(20_000)
    share = inverses_of_screening(sample_items(data, 0.25, 2000, 0), data, rules=44)
    assert 1 / 70 < share < 1 / 45


def test_screening_of_few_items_costs_as_much_as_an_inverse():
    data = hold_out_validation(market(160, 40), 0)
    assert 0.9 < inverses_of_screening(sample_items(data, 0.25, 2000, 0), data, rules=44) <= 1


def test_predicted_time_grows_with_items_users_and_rules(monkeypatch):
    monkeypatch.setattr("deql.tuning.budget._SMALL", 10**6)  # without a look at the machine
    few = predict_seconds(held(2000), 44, "float32")
    assert predict_seconds(held(8000), 44, "float32") > 10 * few
    many = held(2000, users=40_000)
    assert predict_seconds(many, 44, "float32") > 1.2 * few
    assert predict_seconds(many, 440, "float32") > 1.5 * predict_seconds(many, 44, "float32")


def test_the_planner_says_how_long_an_inverse_takes(monkeypatch):
    class Planned:
        seconds = 1234.0

    monkeypatch.setattr("deql.tuning.budget.plan", lambda train, dtype: Planned())
    assert 1234 < predict_seconds(held(3000), 44, "float32") < 1236


def test_the_first_trial_compiles_and_the_next_ones_need_not(monkeypatch):
    """On a fresh machine a search of seconds said a minute, and a budget of one ended it after one point."""
    split, space = deql.split_strong(market(seed=2)), {"l2": [1, 3, 10, 30], "dropout": 0.5, "user_power": 0}
    space |= {"prior": None}
    deql.tune(split, space | {"l2": 1}, baselines=False)  # what a process loads once is not what is tested
    evaluate, seconds = Trainer.evaluate, [1.5]

    def evaluate_slowly(self, *given):
        if seconds:
            time.sleep(seconds.pop())
        return evaluate(self, *given)

    monkeypatch.setattr(Trainer, "evaluate", evaluate_slowly)
    monkeypatch.setattr("deql.tuning.trials.time_compiling", lambda: nullcontext(list(seconds)))
    told = []
    deql.tune(split, space, budget="3s", search="grid", prune=False, baselines=False, tell=told.append)
    assert sum("best so far" in line for line in told) == 4
