"""A search killed at random moments and started again ends as if nothing had happened."""

import json
import multiprocessing
import os
import signal
import time

import numpy as np
import pytest

from tests.tuning import searches
from tests.tuning.common import findings, steps

pytestmark = pytest.mark.slow

KILLS = 10


@pytest.fixture(scope="module")
def start():
    """Starts a function in a process that has the library imported already, so that it gets to work at once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.tuning.searches", "polars", "scipy.special"])
    began = []

    def begin(function, *arguments):
        process = context.Process(target=function, args=arguments, daemon=True)
        process.start()
        began.append(process)
        return process

    yield begin
    for process in began:
        process.kill()
        process.join()


def kill_after(process, seconds):
    """Whether the process was still at work when it was killed."""
    process.join(seconds)
    alive = process.is_alive()
    process.kill()  # SIGKILL
    process.join()
    assert alive or process.exitcode == 0
    return alive


@pytest.mark.slow
@pytest.mark.parametrize("search", ["walk", "grid", "optuna"])
def test_killed_ten_times_it_ends_the_same(search, start, tmp_path):
    if search == "optuna":
        pytest.importorskip("optuna")
    undisturbed = searches.run(search, tmp_path / "undisturbed")
    expected = findings(undisturbed)
    assert expected["looks"]

    journal = tmp_path / "journal"
    total = steps_so_far(tmp_path / "undisturbed")
    moments = np.random.default_rng(7)
    after = np.sort(moments.choice(total - 3, min(KILLS, total - 3), replace=False))
    for done in after:
        process = start(searches.run, search, journal)
        while process.is_alive() and steps_so_far(journal) < done:
            time.sleep(0.001)
        # Then within a step, or between two.
        assert kill_after(process, moments.uniform(0, undisturbed.seconds / total))
    resumed = searches.run(search, journal)
    assert findings(resumed) == expected
    done = steps(journal)
    assert len(done) == len(set(done))
    assert sorted(done) == sorted(steps(tmp_path / "undisturbed"))
    assert resumed.seconds > 0


def steps_so_far(journal):
    return max(0, journal.read_bytes().count(b"\n") - 1) if journal.exists() else 0


def interrupted_by_hand(search, journal):
    """A search that must end by itself, interrupted or not; what it found goes next to its journal."""
    tuning = searches.run(search, journal, prune=False)
    name = "complete" if tuning.complete else "interrupted"
    journal.with_name(f"{name}-{tuning.inverses}").write_text(str(tuning.table["ndcg@20"].max()))


@pytest.mark.slow
@pytest.mark.parametrize("search", ["walk", "grid", "optuna"])
def test_interrupted_it_ends_with_the_best_so_far(search, start, tmp_path):
    if search == "optuna":
        pytest.importorskip("optuna")
    expected = findings(searches.run(search, prune=False))
    journal = tmp_path / "journal"
    moments = np.random.default_rng(5).uniform(0, 0.06, 2 if search == "walk" else 5)  # a walk is soon done
    done = ended = 0
    for moment in moments:
        process = start(interrupted_by_hand, search, journal)
        # A point is in the journal before it is in memory, and before the first one is there is no best so far.
        while process.is_alive() and points_so_far(journal) <= max(done, 1):
            time.sleep(0.002)
        process.join(moment)
        try:
            os.kill(process.pid, signal.SIGINT)
        except ProcessLookupError:  # it is done, and there is nothing left to interrupt
            break
        process.join(60)
        done = points_so_far(journal)
        if process.exitcode:  # it was at the end already, where nothing is left to be chosen among
            assert not list(tmp_path.glob("*-*"))
            continue
        ended += 1
        (found,) = tmp_path.glob("*-*")
        kind, _, inverses = found.name.partition("-")
        assert kind == "interrupted"
        assert done - 1 <= int(inverses) <= done  # the last one may have come between the file and memory
        values = [max(record["values"]["ndcg@20"]) for record in records(journal)
                  if record["step"] in ("point", "prior")]  # fmt: skip
        assert float(found.read_text()) in (max(values), max(values[:-1], default=None))
        assert not any(record["complete"] for record in records(journal) if record["step"] == "end")
        found.unlink()
    assert ended or search == "walk"
    assert findings(searches.run(search, journal, prune=False)) == expected
    assert len(steps(journal)) == len(set(steps(journal)))


def records(journal):
    return [json.loads(line) for line in journal.read_bytes().splitlines()[1:]]


def points_so_far(journal):
    return journal.read_bytes().count(b'{"step": "point"') if journal.exists() else 0
