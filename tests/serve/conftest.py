"""A small model, served, and a browser that looks at its page."""

from __future__ import annotations

import contextlib
import threading
import time

import numpy as np
import pytest

import deql
from tests.serve.browsing import CHROMIUM, CURVE, FIRST, NAMES, behind, settle


@pytest.fixture(scope="module")
def shopping():
    generator = np.random.default_rng(3)
    taste = generator.random((4, len(NAMES))) ** 3
    chance = taste[generator.integers(0, 4, 120)] * np.linspace(0.4, 1.2, len(NAMES))
    users, items = np.nonzero(generator.random(chance.shape) < chance)
    return deql.Interactions.from_pairs([f"u{u}" for u in users], np.array(NAMES, object)[items])


@pytest.fixture(scope="module")
def model(shopping):
    return deql.DEQL(l2=1.0, dropout=0.3, b=0.25).fit(shopping)


@pytest.fixture(scope="module")
def host(model):
    from deql.serve.rehearsal import rehearse
    from deql.serve.serving_model import ModelHolder, ServingModel

    served = ServingModel(model, "c0ffee", FIRST, CURVE)
    rehearse(served)
    return ModelHolder(served)


@pytest.fixture(scope="module")
def address(host):
    import uvicorn

    from deql.serve.api import create_app
    from deql.serve.settings import Settings

    app = create_app(host, Settings({"tiny": "tiny.deql"}, quiet=True))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    latest = time.monotonic() + 10
    while not server.started:
        assert time.monotonic() < latest, "the server did not start"
        time.sleep(0.01)
    host_name, port = server.servers[0].sockets[0].getsockname()[:2]
    yield f"http://{host_name}:{port}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def visit(browser, address):
    """Opens the page; at the end nothing may have been written to the console, refused by the policy or popped up."""
    wrong: list[str] = []

    @contextlib.contextmanager
    def opened(path="/", expected="", under="", at=address, **how):
        context = browser.new_context(reduced_motion="reduce", **({"viewport": {"width": 1280, "height": 900}} | how))
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", lambda said: wrong.append(said.text) if not (expected and expected in said.text) else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        if under:
            page.route("**/*", lambda route: behind(under, route))
        page.goto(at + under + path, wait_until="commit")
        page.wait_for_selector(".row, .operation")
        settle(page)
        yield page
        context.close()

    yield opened
    assert wrong == []


@pytest.fixture
def serving(host):
    """Serves another model for a while."""
    from deql.serve.serving_model import ServingModel

    before = host.current

    def swap(model, example, checksum="beef", curve=None, **other):
        host.swap(ServingModel(model, checksum, example, curve, **other))

    yield swap
    host.swap(before)
