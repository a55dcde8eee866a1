"""The page and its model: it says what the model is, and shows nothing of another one."""

from __future__ import annotations

from dataclasses import replace

import pytest

import deql
from tests.serve.browsing import FIRST, best, chips, listed

pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")
pytest.importorskip("uvicorn", reason="the page is tested on a real server")
pytest.importorskip("fastapi", reason="the page is tested on a real server")

from tests.serve.running import Server

pytestmark = pytest.mark.browser


@pytest.fixture
def server(toy, tmp_path):
    deql.DEQL(1.0, dropout=0.3, b=0.25).fit(toy).save(tmp_path / "shop.deql")
    running = Server(tmp_path / "shop.deql", tmp_path / "log", token="secret").wait()
    yield running
    running.close()


@pytest.mark.parametrize("act", ["move b", "open a neighbourhood"])
def test_the_page_follows_a_swap_to_another_kind_of_model(visit, server, toy, act):
    """Whatever is done next, and though the page asks for a b that the new model refuses."""
    at, told = f"http://127.0.0.1:{server.port}", {"username": "me", "password": "secret"}
    with visit("/#h=tea&k=3&b=2", expected="422", at=at, http_credentials=told) as page:
        assert page.locator("#model b").inner_text() == "DEQL"
        slim = deql.SLIM(l1=0.01, l2=1.0).fit(toy)
        slim.save(server.model)
        assert server.reload()[0] == 200
        if act == "move b":
            page.locator("#b").press("ArrowRight")
        else:
            page.locator(".node:not(.centre)").first.click()
        page.wait_for_function("() => document.querySelector('#model b')?.textContent === 'SLIM'")
        assert listed(page) == best(slim, ["tea"], k=3)
        assert chips(page) == ["tea"]
        assert page.locator("input[type=range]").count() == 0
        assert page.locator("#banner").is_hidden()
        assert page.locator("#foot").inner_text().split()[4] in server.ask("GET", "/model")[1]["checksum"]


def test_titles_go_with_the_model_they_came_with(visit, serving, toy):
    titles = toy.items.copy()
    titles[:] = [f"fine {item}" for item in toy.items]
    serving(deql.EASE(1.0).fit(replace(toy, titles=titles)), ["tea"])
    with visit() as page:
        assert chips(page) == ["fine tea"]
        serving(deql.EASE(2.0).fit(toy), ["tea"], "other")
        page.locator("#b").press("End")
        page.wait_for_function("() => document.querySelector('.called')?.textContent === 'tea'")
        assert not any("fine" in name for name in page.locator(".row .name").all_inner_texts())


@pytest.mark.parametrize("written", ["#h=tea", "#h=tea&b=1"])
def test_an_address_may_leave_out_what_is_usual(visit, model, written):
    with visit(f"/{written}") as page:
        assert chips(page) == ["tea"]
        assert listed(page) == best(model, ["tea"], **({"b": 1.0} if "b" in written else {}))


def test_an_address_without_a_history_has_the_example(visit, model):
    with visit("/#b=1") as page:
        assert chips(page) == FIRST
        assert listed(page) == best(model, FIRST, b=1.0)
