"""The page and its model: it says what the model is, and shows nothing of another one."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import numpy as np
import pytest

import deql
from tests.serve.browsing import CURVE, FIRST, IMAGE, NAMES, best, chips, listed

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


@pytest.mark.parametrize("act", ["move b", "search", "open a neighbourhood"])
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
        elif act == "search":
            page.locator("#search").fill("egg")
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


def test_a_warning_names_a_few_and_counts_the_others(visit):
    with visit("/#h=tea&" + "&".join(f"h=x{at}" for at in range(40))) as page:
        assert page.locator("#note").inner_text() == "The model does not know x0, x1, x2 and 37 more."


def meaning(page):
    return page.locator("#b-says").inner_text()


OVERLAPS = """() => {
  const boxes = (what) => [...document.querySelectorAll(what)].map((one) => one.getBoundingClientRect());
  const apart = (one, other) => one.right <= other.left || other.right <= one.left || one.bottom <= other.top
    || other.bottom <= one.top;
  const words = boxes(".naming label, .naming output, .asks, .tick, .meaning, .switch label");
  return boxes(".marks .own").filter((marker) => words.some((word) => word.width && !apart(marker, word))).length;
}"""


def test_b_is_explained_at_every_width(visit):
    with visit() as page:
        assert "lets you turn its one knob, b" in page.locator("#lead").inner_text()
        for width in (1440, 768, 390, 360):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.locator("#b-says").is_visible()
            assert meaning(page) == "what was dropped counts more than what was kept"
            assert page.evaluate(OVERLAPS) == 0
        button = page.get_by_role("button", name="what is b?")
        button.press("Enter")
        assert button.get_attribute("aria-expanded") == "true"
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        cells = page.locator("#costs tr").all_inner_texts()
        assert [cell.split("\t") for cell in cells] == [
            ["egg", "dropped", "0.5", "0.5² = 0.25"],
            ["jam", "kept", "0.8", "0.25² × 0.2² = 0.0025"],
            ["tea", "kept", "0.9", "0.25² × 0.1² = 0.00062"],
        ]
        page.locator("#b").press("End")
        assert page.locator("#share").inner_text() == "At b = 4 the two that were kept make up 76 % of the cost."
        assert meaning(page) == "what was kept counts more than what was dropped"
        button.press("Enter")
        assert page.locator("#what").is_hidden()


def test_the_page_says_what_the_data_are(visit, serving, model):
    serving(model, FIRST, note="Goods of a shop; what ann bought.")
    with visit() as page:
        assert page.locator(".lead").inner_text().endswith("knob, b. Goods of a shop; what ann bought.")


def test_moving_b_says_that_xi_is_let_go(visit, serving, toy):
    serving(deql.RDLAE(1.0, dropout=0.3, xi=0.2).fit(toy), ["tea"])
    with visit() as page:
        assert meaning(page) == "no item speaks for itself more than ξ = 0.2; another b lets go of ξ"
        page.locator("#alpha").press("End")
        assert "lets go of" in meaning(page)
        page.locator("#b").press("Home")
        assert meaning(page) == "ξ = 0.2 is let go: EDLAE: only what was dropped must be found again"
        page.locator("#reset").click()
        page.locator("label[for=zero]").click()
        assert meaning(page) == "ξ = 0.2 is let go: with a zero diagonal every b gives the same model"


def test_the_curve_follows_the_diagonal_and_fades_where_nobody_measured(visit, serving, model):
    def faded(page):
        return page.locator("#curve.faded").count() == 1

    with visit() as page:
        assert page.locator(".here").inner_text() == "≈ 0.3250 at 0.25"
        page.locator("label[for=zero]").click()
        assert page.locator(".here").inner_text() == "0.3000 at every b"  # that of b = 0
        assert page.locator("svg.flat").count() == 1
        page.locator("#alpha").press("End")
        assert faded(page)
        assert page.locator(".here").inner_text() == ""
        says = "Measured at α = 0: how good each b is at α = 1, nobody has measured."
        assert page.locator("#curve-says").inner_text() == says
        page.locator("#reset").click()
        assert not faded(page)
    serving(model, FIRST, curve=CURVE | {"parameters": {"l2": 20.0}})
    with visit() as page:
        assert faded(page)
        assert page.locator("#curve-says").inner_text().startswith("Measured with l2 20: this model, with 1,")


@pytest.fixture
def with_prior(shopping):
    thin = np.random.default_rng(8).random((2, len(NAMES), 3))
    return deql.DEQL(l2=1.0, dropout=0.3, b=0.25, prior=(thin[0], thin[1]), prior_weight=0.4).fit(shopping)


def test_a_priors_weight_has_a_slider(visit, serving, with_prior):
    serving(with_prior, FIRST)
    with visit("/#h=egg&k=5&prior=0.9") as page:
        assert listed(page) == best(with_prior, ["egg"], k=5, prior_weight=0.9)
        assert page.locator("#prior").get_attribute("aria-valuetext") == "0.90"
        page.locator("#prior").press("Home")
        assert listed(page) == best(with_prior, ["egg"], k=5, prior_weight=0.0)
        page.locator("#reset").click()
        assert page.locator("#prior").get_attribute("aria-valuetext") == "0.40, the model’s own"
        assert listed(page) == best(with_prior, ["egg"], k=5)
        assert "Matrix(" in page.locator("#model").inner_text()


def test_a_model_without_a_prior_has_no_slider_for_it(visit, model):
    with visit("/#h=egg&k=5&prior=0.9") as page:
        assert page.locator("#prior").count() == 0
        assert listed(page) == best(model, ["egg"], k=5)


def test_how_long_ago_the_model_was_updated(visit, serving, shopping):
    updated = deql.EASE(l2=1.0).fit(shopping, keep_data=True)
    updated.update(forget_users=["u1"])
    updated.updated_ = replace(updated.updated_, time=time.time() - 150)
    serving(updated, FIRST)
    with visit() as page:
        said = page.locator("#model time")
        assert page.locator("#model").inner_text().endswith("interactions, updated 2 minutes ago")
        assert said.get_attribute("datetime").startswith(time.strftime("%Y-", time.gmtime()))
        assert said.get_attribute("title")
        page.clock.install()
        page.reload()
        page.wait_for_selector(".row")
        page.clock.fast_forward("01:00:00")
        page.wait_for_function("() => document.querySelector('#model time').textContent === '1 hour ago'")
        page.clock.fast_forward(72 * 3600 * 1000)
        page.wait_for_function("() => document.querySelector('#model time').textContent === '3 days ago'")


def test_a_model_that_was_never_updated_says_nothing_of_it(visit):
    with visit() as page:
        assert "updated" not in page.locator("#model").inner_text()


def test_an_open_page_follows_an_update(visit, toy, tmp_path):
    deql.EASE(1.0).fit(toy, keep_data=True).save(tmp_path / "shop.deql")
    running = Server(tmp_path / "shop.deql", tmp_path / "log", token="secret").wait()
    told = {"username": "me", "password": "secret"}
    try:
        with visit("/#h=tea&k=3", at=f"http://127.0.0.1:{running.port}", http_credentials=told) as page:
            batch = {"add": [{"user": "zoe", "item": "tea"}, {"user": "zoe", "item": IMAGE}]}
            assert running.ask("POST", "/update", json.dumps(batch).encode())[0] == 200
            page.locator("#search").fill("img")
            page.wait_for_function("() => document.querySelector('#model time')?.textContent === 'just now'")
            page.locator("#search").fill("img")
            page.wait_for_selector("#found li")
            assert IMAGE in page.locator("#found").inner_text()
    finally:
        running.close()
