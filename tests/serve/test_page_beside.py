"""Two models on one history, side by side on the page."""

from __future__ import annotations

import pytest

import deql
from tests.serve.browsing import CONTRAST, FIRST, best, chips, listed

pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")
pytest.importorskip("uvicorn", reason="the page is tested on a real server")
pytest.importorskip("fastapi", reason="the page is tested on a real server")

pytestmark = pytest.mark.browser


@pytest.fixture
def other(host, model):
    """A second model beside the first, for a while: what is popular, so that many ranks differ."""
    from deql.serve.serving_model import ServingModel

    popular = model.with_rule(b=0.0, popularity_power=-1.0)
    host.swap(ServingModel(popular, "decaf", FIRST, served_as="popular"))
    yield popular
    del host._models["popular"]


def side(page, which):
    return page.locator(".side").nth(which).locator("li")


def wait_for_side(page, which, names):
    named = f"[...document.querySelectorAll('.side:{which}-child .name')].map(one => one.textContent).join()"
    page.wait_for_function(f"names => {named} === names", arg=",".join(names))


def told(page, which):
    """The items of a list with what is said of their places."""
    names = side(page, which).locator(".name").all_inner_texts()
    return dict(zip(names, side(page, which).locator(".moved span:first-child").all_inner_texts(), strict=True))


def expected(left, right, all_left, all_right):
    """What is to be said of the items of both lists."""
    ours, theirs = {}, {}
    for item in left:
        ours[item] = "" if item in right else f"#{all_right.index(item) + 1}"
    for at, item in enumerate(right):
        by = left.index(item) - at if item in left else 0
        theirs[item] = (
            f"#{all_left.index(item) + 1}" if item not in left else f"{'▲' if by > 0 else '▼'}{abs(by)}" if by else ""
        )
    return ours, theirs


def test_ranks_that_moved_are_drawn(visit, model, other):
    with visit("/#h=egg&h=jam&h=tea&k=5") as page:
        for b in (0.25, 4.0):
            rule = {"b": b}
            if b == 4.0:
                page.locator("#b").press("End")
            left, right = best(model, FIRST, 5, **rule), best(other, FIRST, 5)
            wait_for_side(page, "first", left)
            assert listed(page) == left
            ours, theirs = expected(left, right, best(model, FIRST, **rule), best(other, FIRST))
            assert told(page, 0) == ours
            assert told(page, 1) == theirs
            assert any(theirs.values())
            both = [item for item in left if item in right]
            assert page.locator(".lines path").evaluate_all("all => all.map(one => one.dataset.of)") == both
            assert page.locator("#beside-says").inner_text().startswith(f"{len(both)} of 5 items are on both lists")
        moved = next(at for at, item in enumerate(right) if theirs[item].startswith(("▲", "▼")))
        name = side(page, 1).nth(moved).locator(".name")
        name.focus()
        assert page.locator(".lines .lit").get_attribute("data-of") == right[moved]
        assert "place" in side(page, 1).nth(moved).locator(".unseen").inner_text()
        name.press("Enter")
        page.wait_for_function("name => document.querySelector('.node.centre').dataset.item === name", arg=right[moved])
        for width in (390, 768):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate(CONTRAST) == []


def test_either_model_may_be_looked_at(visit, model, other):
    with visit("/#h=tea&k=5") as page:
        page.get_by_label("Model", exact=True).select_option("popular")
        page.wait_for_function("() => /popular beside/.test(document.getElementById('beside-heading')?.textContent)")
        assert listed(page) == best(other, ["tea"], 5)
        assert chips(page) == ["tea"]
        assert page.locator("#foot").inner_text().split()[4] == "decaf"
        assert side(page, 1).locator(".name").all_inner_texts() == best(model, ["tea"], 5)
        page.go_back()
        page.wait_for_function("() => /model beside/.test(document.getElementById('beside-heading')?.textContent)")
        assert listed(page) == best(model, ["tea"], 5)


def test_a_swap_of_the_other_model_is_followed(visit, host, model, other):
    from deql.serve.serving_model import ServingModel

    with visit("/#h=tea&k=5") as page:
        side(page, 1).first.wait_for()
        slim = deql.SLIM(l1=0.01, l2=1.0).fit(
            deql.Interactions.from_pairs(["a", "a", "b", "b"], ["tea", "jam", "tea", "egg"])
        )
        host.swap(ServingModel(slim, "milk", served_as="popular"))
        page.locator("#search").fill("jam")
        page.locator("#search").press("Enter")
        wait_for_side(page, "last", best(slim, ["tea", "jam"], 5))


def test_one_model_has_nothing_beside_it(visit):
    with visit() as page:
        assert page.locator("#beside-card").is_hidden()
        assert page.locator("#model select").count() == 0
