"""Small limits on addresses and data: fewer threads or one sentence, and no library that asks for memory for ever."""

import os
import resource
import subprocess
import sys

import pytest

from deql._system import limits
from deql.errors import TooLargeError

pytestmark = pytest.mark.slow

MIB = 2**20


@pytest.fixture
def limited(monkeypatch):
    """Pretends that this process has loaded nothing yet, under limits; gives the environment that comes of it."""

    def adapt(processors=2, **left):
        monkeypatch.delitem(sys.modules, "numpy", raising=False)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(processors))
        found = [limits.Limit(letter, size + 50 * MIB, size) for letter, size in left.items()]
        monkeypatch.setattr(limits, "limits_set", lambda: found)
        monkeypatch.setattr(limits, "_share_one_arena", lambda: None)
        environment = {}
        monkeypatch.setattr(limits.os, "environ", environment)
        limits.adapt_to_limits()
        return environment

    return adapt


def test_without_limits_nothing_is_held_back(limited):
    assert limited() == {}
    assert limited(v=8192 * MIB) == {}


def test_one_that_is_short_gets_fewer_threads(limited):
    assert limited(v=1500 * MIB)["OPENBLAS_NUM_THREADS"] == "1"
    assert limited(d=500 * MIB)["DEQL_THREADS"] == "1"
    assert limited(64, v=16384 * MIB)["POLARS_MAX_THREADS"] == "22"


@pytest.mark.parametrize("left", [{"v": 500 * MIB}, {"d": 300 * MIB}, {"v": 8192 * MIB, "d": 300 * MIB}], ids=str)
def test_one_that_is_too_small_is_told(limited, left):
    letter = list(left)[-1]
    with pytest.raises(TooLargeError, match=rf"ulimit -{letter} \d+\) is too small to load the libraries"):
        limited(**left)


@pytest.mark.parametrize("kind", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_blas_is_not_loaded_where_it_would_wait_for_ever(kind):
    """SciPy's OpenBLAS asked for its buffers without end, deaf to SIGTERM, where a limit left less than they need."""
    code = f"""if True:
        import resource
        import numba, scipy.sparse
        from deql import DeqlError
        from deql._system.threads import blas_limited
        from deql._system.limits import limits_set
        resource.setrlimit(resource.{kind}, (2**40, -1))
        taken = 2**40 - next(limit.left for limit in limits_set() if limit.bytes == 2**40)
        resource.setrlimit(resource.{kind}, (taken + 40 * 2**20, -1))
        try:
            with blas_limited():
                pass
        except DeqlError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "and BLAS needs" in done.stdout, done.stderr


COMMANDS = {
    "fit": ["fit", "{data}", "-o", "{out}"],
    "fit on disk": ["fit", "{data}", "-o", "{out}", "--engine", "disk", "--memory", "64MiB", "--threads", "1"],
    "evaluate": ["evaluate", "{data}", "ease"],
    "recommend": ["recommend", "{model}", "tea"],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    import deql

    place = tmp_path_factory.mktemp("limits")
    rows = [f"u{user},{item}" for user in range(30) for item in ("tea", "jam", f"x{user % 4}", f"y{user % 3}")]
    (place / "goods.csv").write_text("user,item\n" + "\n".join(rows) + "\n")
    deql.Popularity().fit(deql.read_interactions(place / "goods.csv", "user", "item")).save(place / "model.deql")
    return {"data": place / "goods.csv", "model": place / "model.deql", "out": place / "out.deql"}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("kind", "kib", "code"),
    [("AS", 200_000, 2), ("AS", 400_000, 2), ("AS", 800_000, 2), ("AS", 1_100_000, 0), ("AS", 2_000_000, 0),
     ("DATA", 200_000, 2), ("DATA", 600_000, 0)],
)  # fmt: skip
def test_commands_end(files, command, kind, kib, code):
    typed = [word.format(**files) for word in COMMANDS[command]]
    done = subprocess.run(
        [sys.executable, "-m", "deql", *typed], capture_output=True, text=True, timeout=120, check=False,
        preexec_fn=lambda: resource.setrlimit(getattr(resource, f"RLIMIT_{kind}"), (kib * 1024, kib * 1024)),
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    if code:
        assert len(done.stderr.splitlines()) == 1
        assert "raise it" in done.stderr
        assert not any(word in done.stderr for word in ("--threads", "--memory", "--engine"))
