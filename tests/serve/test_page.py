"""The page in a real browser: what people see is what the model says, whatever items are called."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import deql
from tests.serve.browsing import CONTRAST, FIRST, IMAGE, QUOTES, RIGHT_TO_LEFT, best, chips, listed, settle, shown_b

pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")
pytest.importorskip("uvicorn", reason="the page is tested on a real server")
pytest.importorskip("fastapi", reason="the page is tested on a real server")

PAGE = Path(deql.__file__).parent / "serve" / "page"

pytestmark = pytest.mark.browser


def test_picking_by_keyboard_gives_the_models_list(visit, model):
    with visit() as page:
        assert chips(page) == FIRST
        assert listed(page) == best(model, FIRST)
        box = page.locator("#search")
        box.fill("eclair")
        page.wait_for_selector("[role=option][aria-selected=true]")
        assert page.locator(f"#{box.get_attribute('aria-activedescendant')}").inner_text().startswith("Éclair")
        box.press("Enter")
        box.fill("tamar")
        box.press("Enter")  # at once: the answer to what was typed is meant, not the list from before
        page.locator(".chip", has_text="tamarind").wait_for()
        assert chips(page) == [*FIRST, "Éclair", "tamarind"]
        assert listed(page) == best(model, [*FIRST, "Éclair", "tamarind"])
        box.press("Backspace")
        page.get_by_role("button", name="Remove jam").click()
        assert chips(page) == ["egg", "tea", "Éclair"]
        assert listed(page) == best(model, ["egg", "tea", "Éclair"])
        page.go_back()
        assert chips(page) == [*FIRST, "Éclair"]
        page.locator(".row .add").first.click()
        assert chips(page)[-1] == best(model, [*FIRST, "Éclair"])[0]


def test_moving_b_ranks_as_with_rule_does(visit, model):
    with visit() as page:
        slider = page.locator("#b")
        box = slider.bounding_box()
        middle = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + 0.125 * box["width"], middle)
        page.mouse.down()
        seen = []
        for place in (0.3, 0.6, 0.98):
            page.mouse.move(box["x"] + place * box["width"], middle, steps=4)
            seen.append(listed(page))
            assert seen[-1] == best(model, FIRST, b=shown_b(page))
        page.mouse.up()
        assert seen[0] != seen[-1]
        assert page.locator(".badge.up, .badge.down").count() > 0
        assert page.locator(".own:not(.same)").count() > 0
        for key, b in (("Home", 0.0), ("ArrowRight", 0.01), ("End", 4.0)):
            slider.press(key)
            assert shown_b(page) == b
            assert listed(page) == best(model, FIRST, b=b)
        scores = page.locator(".row .score").evaluate_all("all => all.map(one => Number(one.title))")
        assert scores == model.with_rule(b=4.0).recommend([FIRST]).scores[0][: len(scores)].tolist()
        page.locator("#reset").click()
        assert slider.get_attribute("aria-valuetext") == "0.25, the model’s own"
        assert listed(page) == best(model, FIRST)


def test_the_other_two_controls(visit, model):
    with visit() as page:
        page.locator("label[for=zero]").click()
        page.locator("#alpha").press("End")
        assert listed(page) == best(model, FIRST, zero_diagonal=True, popularity_power=1.0)
        page.wait_for_function("() => document.getElementById('diagonal-says').textContent.includes('from 0 to 0,')")
        assert page.locator(".b.idle").count() == 1
        page.locator("#alpha").dblclick()
        assert listed(page) == best(model, FIRST, zero_diagonal=True)


def test_reasons_add_up(visit, model):
    with visit() as page:
        page.locator("#b").press("End")
        listed(page)
        for row in page.locator(".row").all()[:4]:
            row.locator(".why").click()
            values = row.locator(".parts td").evaluate_all("all => all.map(one => Number(one.dataset.value))")
            pieces = row.locator(".piece").evaluate_all("all => all.map(one => Number(one.dataset.value))")
            assert math.fsum(values[:-1]) == values[-1] == float(row.locator(".score").get_attribute("title"))
            assert math.fsum(pieces) == values[-1]
            why = model.with_rule(b=4.0).explain(FIRST, row.get_attribute("data-item"))
            assert values[:-1] == [part.value for part in why]


def test_the_neighbourhood_is_that_of_the_weights(visit, model):
    def edges(page):
        drawn = page.locator(".edge:not(.self)").evaluate_all("all => all.map(one => ({...one.dataset}))")
        return {(one["from"], one["to"]): float(one["weight"]) for one in drawn}

    def agree(page, W):
        index = {item: at for at, item in enumerate(model.items_.tolist())}
        for (source, target), weight in edges(page).items():
            assert weight == pytest.approx(W[index[source], index[target]], rel=1e-6, abs=1e-12)

    with visit() as page:
        target = listed(page)[2]
        page.locator(".row .name").nth(2).click()
        page.wait_for_function("name => document.querySelector('.node.centre')?.dataset.item === name", arg=target)
        assert {end for edge in edges(page) for end in edge} > {target}
        agree(page, model.weights())
        before = edges(page)
        was = page.locator(".spoke").first.get_attribute("data-weight")
        page.locator("#b").press("End")
        page.wait_for_function("was => document.querySelector('.spoke').dataset.weight !== was", arg=was)
        agree(page, model.with_rule(b=4.0).weights())
        node = page.locator(".node:not(.centre)").first
        node.focus()
        assert "→" in page.locator("#graph-says").inner_text()
        other = node.get_attribute("data-item")
        node.press("Enter")
        page.wait_for_function("name => document.querySelector('.node.centre').dataset.item === name", arg=other)
        page.locator("#graph-back").click()
        page.wait_for_function("name => document.querySelector('.node.centre').dataset.item === name", arg=target)
        page.locator("#graph-table").click()
        assert page.locator(".edges tbody tr").count() == len(before)


def test_names_are_never_html(visit, model):
    def centred(page, name):
        page.wait_for_function("name => document.querySelector('.node.centre title')?.textContent === name", arg=name)
        assert page.locator("#graph-heading").text_content() == f"Neighbourhood of {name}"

    with visit() as page:
        for name in (IMAGE, QUOTES, RIGHT_TO_LEFT):
            box = page.locator("#search")
            box.fill(name[:5])
            page.wait_for_function("name => document.querySelector('.found bdi')?.textContent === name", arg=name)
            box.press("Enter")
            assert page.locator(".chip bdi").last.text_content() == name
            assert listed(page) == best(model, [*FIRST, name])
            box.press("Backspace")
            row = page.locator(".row").nth(listed(page).index(name))
            assert row.locator("bdi").first.text_content() == name
            row.locator(".name").click()
            centred(page, name)
        page.locator("#graph-table").click()
        assert RIGHT_TO_LEFT in page.locator(".edges bdi").all_text_contents()
        page.locator("#graph-table").click()
        page.reload()
        centred(page, RIGHT_TO_LEFT)
        assert page.locator("img").count() == 1  # the page's own sign


def test_the_address_holds_the_view(visit, model):
    with visit() as page:
        page.locator("#b").press("End")
        page.locator("#alpha").press("Home")
        page.locator("#k").select_option("10")
        page.get_by_role("button", name="Remove egg").click()
        expected = listed(page)
        assert expected == best(model, ["jam", "tea"], k=10, b=4.0, popularity_power=-0.5)
        page.reload()
        settle(page)
        assert chips(page) == ["jam", "tea"]
        assert listed(page) == expected
        assert shown_b(page) == 4.0
        page.evaluate("location.hash = '#h=nobody+has+this&h=tea&k=5'")
        page.wait_for_selector(".chip.unknown")
        assert page.locator("#note").inner_text() == "The model does not know nobody has this."
        assert listed(page) == best(model, ["tea"], k=5)
        page.evaluate("location.hash = '#k=5&b=1e300&alpha=-999'")
        page.get_by_role("heading", name="What most people have").wait_for()
        assert chips(page) == []
        assert page.locator("#banner").is_hidden()


def test_the_curve_sets_b(visit, model):
    with visit() as page:
        picture = page.locator("svg.curve")
        box = picture.bounding_box()
        picture.click(position={"x": 10 + (box["width"] - 20) * 100 / 240, "y": 40})
        assert shown_b(page) == 1.0
        assert page.locator(".here").inner_text() == "0.3300 at 1"
        assert listed(page) == best(model, FIRST, b=1.0)


def test_the_page_recovers_by_itself(visit):
    with visit(expected="Failed to load resource") as page:
        page.route("**/recommend", lambda route: route.abort())
        page.locator("#b").press("End")
        page.wait_for_selector("#banner:not([hidden])")
        assert "does not answer" in page.locator("#banner").inner_text()
        page.unroute("**/recommend")
        page.wait_for_selector("#banner", state="hidden")
        error = {"error": {"code": "limit_exceeded", "message": "histories: too many"}}
        page.route("**/recommend", lambda route: route.fulfill(status=422, json=error))
        page.locator("#b").press("ArrowLeft")
        page.wait_for_selector("#banner:not([hidden])")
        assert page.locator("#banner").inner_text() == "histories: too many"
        page.unroute("**/recommend")
        page.locator("#reset").click()
        page.wait_for_selector("#banner", state="hidden")


def test_a_long_history_takes_two_lines_and_few_reasons(visit, serving):
    generator = np.random.default_rng(5)
    users, items = np.nonzero(generator.random((200, 70)) < 0.3)
    names = np.array([f"package-{at:02}" for at in range(70)], object)
    model = deql.DEQL(l2=1.0, dropout=0.3, b=0.25).fit(
        deql.Interactions.from_pairs([f"u{user}" for user in users], names[items])
    )
    history = names[:60].tolist()
    serving(model, history)
    with visit() as page:
        assert listed(page) == best(model, history)
        for width in (360, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            # What fitted the other width is on one line here, or on several: two mean that it was laid out again.
            page.wait_for_function(
                "() => new Set([...document.querySelectorAll('#chips > li')].map(one => one.offsetTop)).size == 2"
            )
            tops = page.locator("#chips > li").evaluate_all("all => all.map(one => one.offsetTop)")
            assert len(set(tops)) == 2
            shown = page.locator(".chip").count()
            page.get_by_role("button", name=f"and {60 - shown} more").wait_for()
            assert chips(page)[-1] == history[-1]
        page.locator(".more").click()
        assert chips(page) == history
        page.locator(".more").click()
        assert page.locator(".chip").count() == shown
        row = page.locator(".row").first
        row.locator(".why").click()
        values = row.locator(".parts td").evaluate_all("all => all.map(one => Number(one.dataset.value))")
        pieces = row.locator(".piece").evaluate_all("all => all.map(one => Number(one.dataset.value))")
        assert len(values) == 8 + 3  # the largest, the sum of those told, the sum of the others, the score
        assert math.fsum(values[:-1]) == values[-1] == pytest.approx(math.fsum(pieces))
        assert len(pieces) <= 8 + 2  # a colour each, and one grey piece of each sign
        row.get_by_role("button", name="32 more").press("Enter")
        told = row.locator(".parts td").evaluate_all("all => all.map(one => Number(one.dataset.value))")
        assert len(told) == 40 + 2
        assert told[:8] == values[:8]
        assert told[-2:] == values[-2:]
        page.evaluate("names => location.hash = `#k=5&${names.map((name) => `h=${name}`).join('&')}`", names.tolist())
        page.get_by_text("nothing is left to recommend").wait_for()


def test_a_late_answer_does_not_open_the_search_again(visit):
    with visit() as page:
        box = page.locator("#search")
        page.evaluate(
            "() => { const at_once = fetch; window.answers = 0;"
            "window.fetch = async (...what) => { const answer = await at_once(...what);"
            "await new Promise((done) => setTimeout(done, 100)); window.answers += 1; return answer; } }"
        )
        box.fill("tam")
        box.press("Escape")
        page.wait_for_function("() => window.answers === 2")  # to the focus and to the word
        page.wait_for_timeout(50)
        assert page.locator("#found").is_hidden()
        box.press("ArrowDown")
        page.locator("#found").wait_for()


def test_the_page_works_behind_a_path(visit, model):
    with visit(under="/shop/recs") as page:
        assert listed(page) == best(model, FIRST)
        page.locator("#search").fill("tamar")
        page.locator("#search").press("Enter")
        page.locator(".chip", has_text="tamarind").wait_for()
        assert listed(page) == best(model, [*FIRST, "tamarind"])
        page.wait_for_selector(".node.centre")
        page.get_by_role("link", name="API").click()
        page.wait_for_selector(".operation")
        assert "/shop/recs/v1/recommend'" in page.locator("#post-recommend .copied pre").inner_text()
        home = page.get_by_role("link", name="The page").evaluate("link => link.href")
        assert home.endswith("/shop/recs/")


def test_a_model_without_a_rule_has_no_sliders(visit, serving, toy):
    serving(deql.Popularity().fit(toy), ["tea"])
    with visit("/#h=tea&k=5&b=1&alpha=1&diagonal=zero", expected="422") as page:
        assert page.locator("input[type=range]").count() == 0
        assert "no slider" in page.locator("#rule").inner_text()
        assert listed(page)[0] == "egg"
        assert page.locator("#banner").is_hidden()


def test_numbers_are_shown_by_their_titles(visit, serving, toy):
    titles = np.array([IMAGE, "jam", "Oat", "rye", "tea"], object)
    # Next to each other where a double, which is what numbers are in a browser, has no two.
    ids = 2**60 + np.arange(1, 6)
    model = deql.DEQL(l2=1.0, b=0.5).fit(replace(toy, items=ids, titles=titles))
    serving(model, ids[1:2].tolist())
    with visit() as page:
        assert chips(page) == ["jam"]
        page.locator("#search").fill("oat")
        page.locator("#search").press("Enter")
        page.locator(".chip", has_text="Oat").wait_for()
        expected = [str(item) for item in best(model, ids[1:3].tolist())]
        assert listed(page) == expected
        page.reload()
        assert listed(page) == expected
        assert chips(page) == ["jam", "Oat"]
        assert set(page.locator(".node title").all_text_contents()) == set(titles)
        page.goto(f"{page.url.split('#')[0]}docs")
        page.wait_for_selector(".operation")
        asked = page.locator("#post-recommend")
        assert str(ids[1]) in asked.locator(".copied pre").inner_text()
        asked.locator("summary").click()
        asked.locator(".send").click()
        asked.locator(".try pre").wait_for()
        assert str(ids[2]) in asked.locator(".try pre").inner_text()


NAMELESS = """() => {
  const named = (one) => one.getAttribute("aria-label") || one.labels?.[0]?.textContent || one.textContent.trim()
    || document.getElementById(one.getAttribute("aria-labelledby"))?.textContent;
  const all = document.querySelectorAll("input, select, textarea, button, a, section, .node");
  return [...all].filter((one) => !named(one)).map((one) => one.outerHTML);
}"""


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_readable_by_day_and_night_on_a_phone_and_on_a_desk(visit, path):
    with visit(path, has_touch=True) as page:
        if path == "/":
            page.locator(".why").first.click()
            page.locator(".asks").click()
            page.locator("label[for=zero]").click()
            settle(page)
        for width in (360, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                assert page.evaluate(CONTRAST) == []
        assert page.evaluate(NAMELESS) == []


def test_every_example_of_the_reference_can_be_sent(visit):
    with visit("/docs", expected="422") as page:
        page.evaluate(
            "document.querySelectorAll('.try').forEach(one => (one.open = true, one.querySelector('.send').click()))"
        )
        page.wait_for_function("() => [...document.querySelectorAll('.status')].every(one => one.textContent)")
        assert page.locator(".status b").all_inner_texts() == ["200"] * 12
        page.locator(".operation textarea").first.fill('{"histories": [["tea"]], "k": 0}')
        page.locator(".send").first.click()
        page.wait_for_selector(".status.bad")
        assert json.loads(page.locator(".try pre").first.inner_text())["error"]["code"] == "invalid_request"


def test_the_files_are_small_plain_and_our_own():
    files = [path for path in PAGE.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 130_000
    for path in files:
        text = path.read_text("utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), path.name
        assert set(re.findall(r"https?://[\w./]+", text)) <= {"http://www.w3.org/2000/svg"}, path.name
        if path.suffix == ".html":
            assert not re.search(r"\sstyle=|<style|\son\w+=|<script(?![^>]*\ssrc=)", text), path.name
        if path.suffix == ".js":
            assert len(text.splitlines()) < 300, path.name
