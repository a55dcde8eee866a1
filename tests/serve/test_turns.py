"""Nobody is starved: who waits holds nothing that another needs, and what takes long is done in turn."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

import deql

pytest.importorskip("fastapi", reason="the service needs the extra serve")
pytest.importorskip("prometheus_client", reason="the service needs the extra serve")

from deql.serve import turns
from deql.serve.api import create_app
from deql.serve.rehearsal import rehearse
from deql.serve.serving_model import ModelHolder, ServingModel
from deql.serve.settings import Settings
from deql.serve.turns import LongAnswers
from tests.serve.asking import Asker
from tests.serve.running import wait_for


@pytest.fixture
def served(toy):
    """A model that notes the lengths of lists of each batch, which takes a moment; and those notes."""
    model, batches = ServingModel(deql.DEQL(1.0, b=0.5).fit(toy)), []
    rehearse(model)
    rank = model.rank

    def noted(queries):
        time.sleep(0.01)
        batches.append([query.k for query in queries])
        return rank(queries)

    model.rank = noted
    return model, batches


def ask_together(model, bodies):
    app = create_app(ModelHolder(model), Settings({"x": "x.deql"}, quiet=True))
    return Asker(app).together([("POST", "/recommend", body) for body in bodies])


def test_a_short_request_does_not_wait_for_all_of_a_long_one(served, monkeypatch):
    monkeypatch.setattr(turns, "_ITEMS_AT_ONCE", 2)
    model, batches = served
    long = {"histories": [["egg"], ["tea"], ["jam"]], "k": 3}
    short = {"histories": [["egg"]], "k": 2}
    answers = ask_together(model, [long, long, short])
    assert [status for status, _ in answers] == [200, 200, 200]
    assert any(2 in batch for batch in batches[:2])
    assert sum(map(len, batches)) == 7
    assert max(map(len, batches)) == 2


def test_requests_for_reasons_are_ranked_with_all_others(served):
    """With a slot that each held from its beginning to its end there were two of them in a batch."""
    model, batches = served
    plain, explained = {"histories": [["egg"]], "k": 2}, {"histories": [["tea"]], "k": 3, "explain": 2}
    answers = ask_together(model, [plain, explained] * 20)
    assert [status for status, _ in answers] == [200] * 40
    assert sum(map(len, batches)) == 40
    assert len(batches) <= 4
    assert all(len(answer["results"][0]["recommendations"][0]["because"]) == 1 for _, answer in answers[1::2])


def test_long_bodies_are_ranked_with_all_others(served):
    """Their slot is for parsing: who held it while it was ranked kept the others from being ranked with it."""
    model, batches = served
    plain, long = {"histories": [["egg"]], "k": 2}, {"histories": [["tea"]], "k": 3, "exclude": ["x" * 70_000]}
    answers = ask_together(model, [plain, long] * 20)
    assert [status for status, _ in answers] == [200] * 40
    assert sum(map(len, batches)) == 40
    assert len(batches) <= 4


def test_a_long_answer_gives_way(monkeypatch):
    """The event loop is not asked between two moments: that is what starved those who wanted reasons."""
    monkeypatch.setattr(turns, "_MOMENT", 0.0)
    order = []

    def steps(name, count):
        for number in range(count):
            order.append(name)
            yield number

    async def ask():
        answers = LongAnswers()
        await answers.call(time.sleep, 0.0)
        made = [answers.make(steps(name, count)) for name, count in (("long", 50), ("other", 30), ("short", 1))]
        tasks = [asyncio.ensure_future(one) for one in made]
        await asyncio.sleep(0)  # they begin
        wait_for(lambda: len(order) == 81, 10)  # it is the event loop that waits
        return await asyncio.gather(*tasks)

    assert asyncio.run(ask()) == [list(range(50)), list(range(30)), [0]]
    assert order.index("short") < 10  # it has just come
    assert order.index("other", order.index("other") + 1) > 49  # of two that go on the first goes on


def test_what_was_given_up_is_not_worked_on():
    done = []

    def steps():
        while True:
            done.append(time.sleep(0.001))
            yield

    async def ask():
        answers = LongAnswers()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await answers.make(steps())
        assert await answers.call(len, "ab") == 2
        before = len(done)
        await asyncio.sleep(0.02)
        assert len(done) == before

    asyncio.run(ask())


def test_what_was_given_up_before_it_began_is_not_begun():
    calls, go_on = [], threading.Event()

    async def ask():
        answers = LongAnswers()
        first = asyncio.ensure_future(answers.call(go_on.wait, 10))
        given_up = asyncio.ensure_future(answers.call(calls.append, "given up"))
        await asyncio.sleep(0)  # both are in the thread's queue
        given_up.cancel()
        await asyncio.sleep(0)
        go_on.set()
        assert await first
        await answers.call(calls.append, "last")

    asyncio.run(ask())
    assert calls == ["last"]


def test_an_error_is_that_of_its_request():
    async def ask():
        answers = LongAnswers()
        with pytest.raises(ValueError, match="not 2"):
            await answers.make(_fails(number) for number in range(4))
        assert await answers.make(iter("ab")) == ["a", "b"]

    asyncio.run(ask())


def _fails(number):
    if number == 2:
        raise ValueError("not 2")
    return number
