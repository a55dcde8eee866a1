import json
import sys
from importlib.util import find_spec

import numpy as np
import pytest

import deql
from deql.cli import run

needs_serve = pytest.mark.skipif(not find_spec("fastapi"), reason="needs the extra serve")


@pytest.fixture
def model_file(tmp_path, toy):
    path = tmp_path / "shop.deql"
    deql.EASE(l2=1.0).fit(toy).save(path)
    return str(path)


@pytest.fixture
def told(monkeypatch):
    """What the server would have been told; it is not started."""
    server = pytest.importorskip("deql.serve.server", reason="needs the extra serve")
    settings = []
    monkeypatch.setattr(server, "run", lambda given, ready: settings.append(given) or 0)
    return settings


def test_options_become_settings(model_file, told):
    options = (
        "--port 0 --workers 3 --threads 2 --timeout 2.5 --max-k 7 --max-histories 8 --max-history 9 --max-body 2KiB"
    )
    assert run(["serve", model_file, *options.split(), "--token", " tea ", "--quiet"]) == 0
    [given] = told
    assert (given.host, given.port, given.workers, given.threads) == ("127.0.0.1", 0, 3, 2)
    assert given.models == {"shop": model_file}
    assert (given.timeout, given.token, given.quiet) == (2.5, "tea", True)
    limits = given.limits
    assert (limits.k, limits.histories, limits.history, limits.body) == (7, 8, 9, 2048)


def test_several_models_have_names(model_file, tmp_path, told, capsys):
    other = tmp_path / "a=b" / "shop.deql"
    other.parent.mkdir()
    other.write_bytes(b"")
    assert run(["serve", model_file, str(other), f"small={model_file}", f"shop-2={other}"]) == 0
    expected = {"shop": model_file, "shop-3": str(other), "small": model_file, "shop-2": str(other)}
    assert list(told[0].models.items()) == list(expected.items())
    assert run(["serve", f"a={model_file}", f"a={other}"]) == 2
    assert "two models cannot both be called a" in capsys.readouterr().err


def test_the_token_may_come_from_the_environment(model_file, told, monkeypatch, capsys):
    monkeypatch.setenv("DEQL_TOKEN", "jam")
    run(["serve", model_file])
    assert told[0].token == "jam"
    assert told[0].curve is None
    monkeypatch.setenv("DEQL_TOKEN", "")  # a secret that was not filled in must not open the door
    assert run(["serve", model_file]) == 2
    assert "the token is empty" in capsys.readouterr().err


@needs_serve
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "70000"], "--port"),
        (["--workers", "0"], "--workers"),
        (["--timeout", "0"], "--timeout"),
        (["--token", " "], "the token is empty"),
        (["--max-body", "tea"], "--max-body must be a number of bytes"),
        (["--host", ""], "the host is empty"),
        (["--journal", "nowhere"], "the journal nowhere cannot be read"),
        (["--host", "no.such.host.invalid"], "there is no address"),
    ],
)
def test_nonsense_is_one_sentence(model_file, options, message, capsys):
    assert run(["serve", model_file, *options]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


@needs_serve
def test_files_that_are_no_model(tmp_path, capsys):
    for content in (None, b"", b"tea,jam\n"):
        path = tmp_path / "x.deql"
        if content is not None:
            path.write_bytes(content)
        assert run(["serve", str(path), "--port", "0"]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "x.deql" in said


def test_without_the_extra_it_says_what_to_install(model_file, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    monkeypatch.setattr("deql.cli.serve.find_spec", lambda name: None)
    for command in (["serve", model_file], ["demo", "--serve"]):
        assert run(command) == 2
        assert 'pip install "deql[serve]"' in capsys.readouterr().err


def test_the_demo_is_served_with_its_history_and_curve(told, monkeypatch, capsys):
    some = deql.datasets.debian().take_users(np.arange(0, 17_432, 8))
    some = some.take_items(np.argsort(-some.matrix.sum(axis=0), kind="stable")[:800])
    monkeypatch.setattr(deql.datasets, "debian", lambda: some)
    assert run(["demo", "--serve", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    [given] = told
    assert given.example == facts["seen"]
    assert given.curve["metric"] == "ndcg@20"
    assert given.curve["best"]["ndcg@20"] == facts["best_b"]
    assert given.curve["values"]["ndcg@20"] == [point["ndcg@20"] for point in facts["b_sweep"]]
