"""What tests of the page see of it in a browser, and the model they see."""

from __future__ import annotations

import shutil

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SETTLED = "() => document.getElementById('list')?.getAttribute('aria-busy') === 'false'"

IMAGE, QUOTES, RIGHT_TO_LEFT = "<img src=x onerror=alert(1)>", "a/b \"c\" 'd' %2F&#?=", "\u202eabc\u2066 \u05d0\u05d1"
NAMES = [
    IMAGE, QUOTES, RIGHT_TO_LEFT, "a name that goes on and on until no column of any list could ever hold it", "tea",
    "jam", "tamarind", "egg", "rye", "oat", "Éclair", "milk", "salt", "rice", "plum", "leek",
]  # fmt: skip
FIRST = ["egg", "jam", "tea"]
CURVE = {
    "metric": "ndcg@20", "b": [0.0, 0.5, 1.0, 4.0], "values": {"ndcg@20": [0.30, 0.35, 0.33, 0.20]},
    "errors": {"ndcg@20": [0.01, 0.01, 0.01, 0.01]}, "best": {"ndcg@20": 0.5}, "parameters": {"l2": 1.0},
}  # fmt: skip

# Texts that are too faint against what is behind them.
CONTRAST = """() => {
  const light = (colour) => {
    const linear = (v) => (v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    const [r, g, b] = colour.match(/[\\d.]+/g).map((part) => linear(Number(part) / 255));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)$/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const wrong = [];
  for (const element of document.querySelectorAll("body *")) {
    const says = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    const style = getComputedStyle(element);
    if (!says || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const ink = element.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const [one, other] = [light(ink), light(behind(element))].sort((a, b) => b - a);
    const ratio = (one + .05) / (other + .05);
    if (ratio < 4.5) wrong.push(`${element.tagName}.${element.className} ${ratio.toFixed(2)}`);
  }
  return wrong;
}"""


def behind(prefix, route):
    """A proxy that has the server at a path, and nothing at any other."""
    path = route.request.url.split("/", 3)[3]
    if not f"/{path}".startswith(f"{prefix}/"):
        return route.abort()
    there = route.request.url.replace(f"{prefix}/", "/", 1)
    return route.fulfill(response=route.fetch(url=there))


def settle(page):
    if page.locator("#list").count():
        page.wait_for_function(SETTLED)


def listed(page):
    settle(page)
    return page.evaluate("[...document.querySelectorAll('.row')].map(row => row.dataset.item)")


def chips(page):
    return page.locator(".chip .called").all_inner_texts()


def best(model, history, k=20, **rule):
    ruled = model.with_rule(**rule) if rule else model
    ids = ruled.recommend([history], k=k).ids[0].tolist()
    return [item for item in ids if item not in (None, -1)]


def shown_b(page):
    return float(page.locator(".control.b output").inner_text())
