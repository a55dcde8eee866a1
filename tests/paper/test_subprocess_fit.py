import json
import os
import signal
import sys
import threading
import time
import warnings

import numpy as np
import polars as pl
import pytest

import deql
from deql.data import Interactions
from deql.errors import DeqlError
from deql.paper import subprocess_fit as module
from deql.paper.hyperparameters import Choice

pytestmark = pytest.mark.slow

CHOICE = Choice("DEQL(L2)", {"l2": 3.0, "dropout": 0.3, "b": 0.5}, "found")

NETWORK = Choice("LightGCN", {"layers": 2, "epochs": 30, "batch_size": 64, "learning_rate": 0.01}, "found")


@pytest.fixture(scope="module")
def file(random_matrix, tmp_path_factory):
    path = tmp_path_factory.mktemp("apart") / "data.split"
    deql.split_weak(Interactions.from_csr(random_matrix(60, 30)), seed=0).save(path)
    return path


def use(monkeypatch, script):
    """Another process is started instead."""
    monkeypatch.setattr(module, "_COMMAND", (sys.executable, "-S", "-c", script))


@pytest.mark.skipif(sys.platform != "linux", reason="the gauges of /proc")
def test_a_fit_is_weighed_by_itself(file):
    held = np.ones(600 * 2**20, np.uint8)  # of this process, and none of the fit's business
    sample = module.fit_in_subprocess(CHOICE, file, {"progress": False})
    assert sample.facts == {"engine": "memory"}
    assert 0 < sample.seconds < 60
    assert 0 <= sample.beyond_mib < 100
    assert 20 < sample.before_mib < held.nbytes / 2**20


class TestEvaluated:
    """NDCG@20 on what the file holds out, beside what the fit took."""

    def test_a_closed_form(self, file):
        facts = module.fit_in_subprocess(CHOICE, file, {}, evaluated=True).facts
        split = deql.load_split(file)
        found = deql.evaluate(CHOICE.model().fit(split.train), split.test, ["recall@20", "ndcg@20"])
        assert facts == {"engine": "memory", "errors": found.standard_errors} | found.means

    def test_a_network_and_how_it_came_there(self, file):
        pytest.importorskip("torch")
        took = module.fit_in_subprocess(NETWORK, file, {"device": "cpu"}, evaluated=True)
        seconds, ndcgs = zip(*took.facts["curve"], strict=True)
        assert len(seconds) == 10  # looks at 30 epochs: a dozen at most
        assert list(seconds) == sorted(seconds)
        assert seconds[ndcgs.index(max(ndcgs))] == took.seconds < 60
        split = deql.load_split(file)
        found = NETWORK.model(device="cpu").set_params(validate_every=3).fit(split.train, validation=split.test)
        assert took.facts["ndcg@20"] == deql.evaluate(found, split.test, ["ndcg@20"]).means["ndcg@20"]
        assert max(ndcgs) == pytest.approx(took.facts["ndcg@20"], abs=1e-6)

    def test_a_network_is_not_looked_at_unasked(self, file):
        pytest.importorskip("torch")
        assert module.fit_in_subprocess(NETWORK, file, {"device": "cpu"}).facts == {"engine": "torch"}


@pytest.mark.cuda
def test_memory_of_a_device_is_weighed_too(file):
    if not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("there is no CUDA device")
    facts = module.fit_in_subprocess(CHOICE, file, {"engine": "torch", "device": "cuda"}).facts
    assert facts["engine"] == "torch"
    assert 0 < facts["device_mib"] < 1024


@pytest.mark.parametrize(
    ("ends", "says"),
    [
        ("os.kill(os.getpid(), 9)", "memory ran out"),
        ("os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("sys.exit(3)", "exit code 3"),
        ("print('no JSON')", "without a result"),
    ],
)
def test_a_process_that_dies_is_one_sentence(file, monkeypatch, ends, says):
    use(monkeypatch, f"import os, sys; {ends}")
    with pytest.raises(DeqlError, match=rf"DEQL\(L2\) \(l2=3 dropout=0.3 b=0.5\).*{says}"):
        module.fit_in_subprocess(CHOICE, file, {})


def test_a_process_that_cannot_be_started_is_one_sentence(file, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_COMMAND", (str(tmp_path / "python"),))
    with pytest.raises(DeqlError, match=r"no process could be started to fit DEQL\(L2\) in: no such file"):
        module.fit_in_subprocess(CHOICE, file, {})


def test_ctrl_c_ends_the_process_too(file, monkeypatch, tmp_path):
    pl.DataFrame({"a": [1]}).lazy().collect()  # polars has a system call go on after a Ctrl-C
    told = tmp_path / "pid"
    use(monkeypatch, f"import os, time; open({str(told)!r}, 'w').write(str(os.getpid())); time.sleep(60)")

    def interrupt():
        while not told.exists() or not told.read_text():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        module.fit_in_subprocess(CHOICE, file, {})
    assert time.monotonic() - start < 30
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)


def test_notes_reach_who_asked(file, monkeypatch):
    told = {"seconds": 1, "cpu_seconds": 1, "peak_mib": 2, "before_mib": 1, "facts": {}, "notes": ["no device"]}
    use(monkeypatch, f"print({json.dumps(told)!r})")
    with pytest.warns(UserWarning, match="no device"):
        assert module.fit_in_subprocess(CHOICE, file, {}).beyond_mib == 1


class TestInside:
    """What the fresh process does, done in this one."""

    @pytest.fixture
    def ask(self, file, monkeypatch, capsys):
        monkeypatch.setattr(module, "_end_with_parent", lambda: None)

        def ask(split=file, **parameters):
            request = {
                "row": "EASE", "parameters": parameters, "split": str(split), "machine": {}, "threads": 1,
                "evaluated": False,
            }  # fmt: skip
            monkeypatch.setattr(sys, "argv", ["apart", json.dumps(request)])
            module.main()
            return json.loads(capsys.readouterr().out)

        yield ask
        deql.set_threads(None)

    def test_errors_are_told(self, ask):
        assert ask(l2=-1.0)["error"].startswith("l2 must be")
        assert "nowhere.split" in ask(split="nowhere.split", l2=1.0)["error"]
        assert "unexpected keyword" in ask(ridge=1.0)["error"]

    def test_too_little_memory_is_told(self, ask, monkeypatch):
        monkeypatch.setattr(deql.EASE, "_learn", lambda *_: np.ones(2**62, np.int8))
        assert "not enough memory" in ask(l2=1.0)["error"]

    def test_notes_are_told(self, ask, monkeypatch):
        learn = deql.EASE._learn
        monkeypatch.setattr(deql.EASE, "_learn", lambda *args: warnings.warn("odd", stacklevel=1) or learn(*args))
        told = ask(l2=1.0)
        assert told["notes"] == ["odd"]
        assert told["facts"] == {"engine": "memory"}
