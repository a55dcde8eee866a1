import contextlib
import json
import os
import subprocess
import sys

import pytest

import deql
from deql.errors import JournalError
from deql.io.journal import Journal, journal_head, read_records
from deql.tuning.trainer import Trainer
from tests.tuning.common import SMALL, findings, market, steps

SEARCH = {"metric": "ndcg@20", "space": {"l2": (1.0, 2.0)}, "seed": 0}


@pytest.fixture(scope="module")
def split():
    return deql.split_strong(market(60, 12, seed=41), 0.2, 0.4)


@pytest.fixture(scope="module")
def finished(split, tmp_path_factory):
    """The journal of a whole search, and what it found."""
    path = tmp_path_factory.mktemp("journal") / "finished"
    return findings(deql.tune(split, SMALL, journal=path)), path.read_bytes()


@contextlib.contextmanager
def counted_fits():
    """How often points are fitted."""
    calls, evaluate = [], Trainer.evaluate

    def count(self, point, *arguments):
        calls.append(point)
        return evaluate(self, point, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "evaluate", count)
        yield calls


def test_what_is_appended_is_there_again(tmp_path):
    path = tmp_path / "j"
    records = [{"step": "point", "values": [0.1, 1 / 3, 2**-1074], "item": "é\n"}, {"step": "end"}]
    with Journal(path, SEARCH) as journal:
        for record in records:
            journal.append(record)
    with Journal(path, SEARCH) as journal:
        assert journal.records == records
    assert len(path.read_bytes().splitlines()) == 3


@pytest.mark.parametrize("end", [b"", b"\n\n", b'{"step'])
def test_the_last_step_can_be_taken_back(tmp_path, end):
    path = tmp_path / "j"
    with Journal(path, SEARCH, "updates") as journal:
        for step in "abc":
            journal.append({"step": step})
    path.write_bytes(path.read_bytes() + end)
    with Journal(path, SEARCH, "updates") as journal:
        journal.drop_last()
        journal.append({"step": "d"})
    with Journal(path, SEARCH, "updates") as journal:
        assert [record["step"] for record in journal.records] == list("abd")


def test_what_a_journal_was_begun_with(tmp_path):
    path = tmp_path / "j"
    assert journal_head(path) is None
    path.write_bytes(b'{"deql": "upd')  # torn
    assert journal_head(path, "updates") is None
    path.unlink()
    with Journal(path, {"first": "abc"}, "updates"):
        assert journal_head(path, "updates") == {"first": "abc"}
    with pytest.raises(JournalError, match="is not a journal of a search"):
        journal_head(path)


def test_a_journal_in_memory_leaves_no_file(tmp_path, monkeypatch, split):
    monkeypatch.chdir(tmp_path)
    deql.tune(split, SMALL)
    assert not list(tmp_path.iterdir())


def test_each_line_is_on_disk_before_the_search_goes_on(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda _: synced.append((tmp_path / "j").read_bytes()))
    with Journal(tmp_path / "j", SEARCH) as journal:
        for step in range(3):
            journal.append({"step": step})
            assert synced[-1].splitlines()[-1] == json.dumps({"step": step}).encode()
    assert len(synced) == 4


def test_a_finished_search_measures_and_writes_nothing(split, finished, tmp_path):
    expected, content = finished
    path = tmp_path / "j"
    path.write_bytes(content)
    with counted_fits() as fits:
        assert findings(deql.tune(split, SMALL, journal=path)) == expected
    assert len(fits) <= 1  # the rival, where it is at another point
    assert path.read_bytes() == content


def test_torn_at_every_byte_of_its_last_two_lines(split, finished, tmp_path):
    expected, content = finished
    lines = content.splitlines(keepends=True)
    assert json.loads(lines[-1])["step"] == "end"
    whole = [json.loads(line) for line in lines[1:]]
    search = json.loads(lines[0])["search"]
    path = tmp_path / "j"
    resumed = set()
    for cut in range(len(content) - len(lines[-1]) - len(lines[-2]), len(content) + 1):
        path.write_bytes(content[:cut])
        with Journal(path, search) as journal:
            kept = len(journal.records)
        assert journal.records == whole[:kept]
        assert len(whole) - kept == (2 if cut < len(content) - len(lines[-1]) else 1 if cut < len(content) else 0)
        assert path.read_bytes() == b"".join(lines[: kept + 1])
        if kept not in resumed or cut % 97 == 0:
            resumed.add(kept)
            path.write_bytes(content[:cut])
            assert findings(deql.tune(split, SMALL, journal=path)) == expected
            assert len(steps(path)) == len(set(steps(path))) == 4
    assert len(resumed) == 3


def test_torn_in_its_first_line(split, finished, tmp_path):
    expected, content = finished
    head = content.splitlines(keepends=True)[0]
    path = tmp_path / "j"
    for cut in range(len(head)):
        path.write_bytes(head[:cut])
        with Journal(path, json.loads(head)["search"]) as journal:
            assert journal.records == []
        assert path.read_bytes() == head
    path.write_bytes(head[:30])
    assert findings(deql.tune(split, SMALL, journal=path)) == expected


@pytest.mark.parametrize(
    "tail", [b"\0" * 50, b"\0" * 50 + b"\n", b"\xff\xfe\n", b'{"step": "point", "l2"\n', b"3\n", b"[]\n"]
)
def test_a_last_line_that_did_not_reach_the_disk(split, finished, tail, tmp_path):
    expected, content = finished
    lines = content.splitlines(keepends=True)
    path = tmp_path / "j"
    path.write_bytes(b"".join(lines[:3]) + tail)
    assert findings(deql.tune(split, SMALL, journal=path)) == expected
    assert len(steps(path)) == 4


@pytest.mark.parametrize("garbage", [b"garbage", b"{}", b"\0\0\0", b'{"step": "poi', b"[1]", b"", b'{"l2": 3}'])
def test_a_damaged_line_is_named(split, finished, garbage, tmp_path):
    lines = finished[1].splitlines()
    lines[3] = garbage
    path = tmp_path / "j"
    path.write_bytes(b"\n".join(lines) + b"\n")
    before = path.read_bytes()
    with pytest.raises(JournalError, match=rf"^line 4 of {path} is damaged: delete that line"):
        deql.tune(split, SMALL, journal=path)
    assert path.read_bytes() == before
    # What the message says to do helps.
    del lines[3]
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert findings(deql.tune(split, SMALL, journal=path)) == finished[0]
    assert len(set(steps(path))) == len(steps(path)) == 4


PLACE = {"l2": 2, "dropout": 0, "user_power": 0, "seconds": 1}


@pytest.mark.parametrize(
    "record",
    [
        {"step": "point"},
        {"step": "look", **PLACE, "l2": "x", "values": {}},
        {"step": "point", **PLACE, "values": {"ndcg@20": ["x"]}},
        {"step": "point", **PLACE, "values": 3},
        {"step": "point", **PLACE, "values": {}},
        {"step": "point", **PLACE, "values": {"ndcg@20": [0.1], "recall@20": [0.1]}},
    ],
)
def test_a_step_that_lacks_something(split, finished, record, tmp_path):
    lines = finished[1].splitlines()
    lines[3] = json.dumps(record).encode()
    (tmp_path / "j").write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(JournalError, match="is damaged"):
        deql.tune(split, SMALL, journal=tmp_path / "j")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"metric": "recall@20"}, "metric"),
        ({"seed": 1}, "seed"),
        ({"dtype": "float64"}, "dtype"),
        ({"prune": False}, "prune"),
        ({"space": SMALL | {"b": [0, 1]}}, "space"),
        ({"space": SMALL | {"l2": [2, 20.0000001]}}, "space"),
        ({"data": deql.split_strong(market(60, 12, seed=42), 0.2, 0.4)}, "data"),
        ({"data": deql.split_strong(market(60, 12, seed=42), 0.2, 0.4), "metric": "mse"}, "data, metric"),
    ],
)
def test_the_journal_of_another_search_is_refused_and_left_alone(split, finished, change, named, tmp_path):
    path = tmp_path / "j"
    path.write_bytes(finished[1] + b'{"torn')
    with pytest.raises(JournalError, match=f"^{path} is the journal of a search with other {named}: "):
        deql.tune(**{"data": split, "space": SMALL, "journal": path} | change)
    assert path.read_bytes() == finished[1] + b'{"torn'


def test_of_another_kind_of_search(split, finished, tmp_path):
    pytest.importorskip("optuna")
    path = tmp_path / "j"
    path.write_bytes(finished[1])
    with pytest.raises(JournalError, match="with other search: "):
        deql.tune(split, SMALL, search="optuna", journal=path)


def test_the_same_search_said_otherwise(split, finished, tmp_path):
    path = tmp_path / "j"
    path.write_bytes(finished[1])
    space = {
        name: tuple(map(float, values)) if isinstance(values, list) else [values]
        for name, values in SMALL.items()
        if name != "prior"
    } | {"prior": "none"}
    with counted_fits() as fits:
        assert findings(deql.tune(split, space, "ndcg@20", budget=100, journal=str(path))) == finished[0]
    assert len(fits) <= 1


def test_a_later_version_is_refused(split, finished, tmp_path):
    path = tmp_path / "j"
    path.write_bytes(finished[1].replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(JournalError, match="is of version 2, this library reads 1"):
        deql.tune(split, SMALL, journal=path)


@pytest.mark.parametrize(
    "content",
    [b"user,item\na,b\nc,d", b"user,item\n", b"hello\nworld\n", b"x", b"\n", b'{"a": 1}\n{"b": 2}\n', b"{}", b"[]\n",
     b"\0" * 99, b'{"deql": "model"}\n'],
)  # fmt: skip
def test_a_file_that_is_no_journal_is_left_alone(split, content, tmp_path):
    path = tmp_path / "events.csv"
    path.write_bytes(content)
    with pytest.raises(JournalError, match=f"^{path} is not a journal of a search: name another file$"):
        deql.tune(split, SMALL, journal=path)
    assert path.read_bytes() == content


def test_an_empty_file_becomes_the_journal(split, finished, tmp_path):
    (tmp_path / "j").touch()
    assert findings(deql.tune(split, SMALL, journal=tmp_path / "j")) == finished[0]


def test_places_where_no_journal_can_be(split, tmp_path):
    with pytest.raises(JournalError, match="not a plain file"):
        deql.tune(split, SMALL, journal=tmp_path)
    with pytest.raises(JournalError, match="cannot be used: no such file or directory"):
        deql.tune(split, SMALL, journal=tmp_path / "missing" / "j")
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match="cannot be used: not a directory"):
        deql.tune(split, SMALL, journal=tmp_path / "file" / "j")
    if os.path.exists("/dev/full"):
        with pytest.raises(JournalError, match="not a plain file"):
            deql.tune(split, SMALL, journal="/dev/full")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written(split, finished, tmp_path):
    path = tmp_path / "j"
    path.write_bytes(finished[1])
    path.chmod(0o400)
    with pytest.raises(JournalError, match="cannot be used: permission denied"):
        deql.tune(split, SMALL, journal=path)


@contextlib.contextmanager
def disk_of(size):
    """No file can grow beyond so many bytes, which is what a full disk looks like."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_keeps_what_was_measured(split, finished, tmp_path):
    expected, content = finished
    path = tmp_path / "j"
    lines = content.splitlines(keepends=True)
    for extra in (1, len(lines[3]) - 1, len(lines[3])):
        path.unlink(missing_ok=True)
        size = len(b"".join(lines[:3])) - 10 + extra
        with disk_of(size), pytest.raises(JournalError, match="could not be written"):
            deql.tune(split, SMALL, journal=path)
        with counted_fits() as fits:
            assert findings(deql.tune(split, SMALL, journal=path)) == expected
        assert len(fits) <= 4
        assert len(steps(path)) == len(set(steps(path))) == 4


def test_a_disk_that_is_full_from_the_start(split, tmp_path):
    with disk_of(10), pytest.raises(JournalError, match="cannot be used: file too large"):
        deql.tune(split, SMALL, journal=tmp_path / "j")
    assert deql.tune(split, SMALL, journal=tmp_path / "j").inverses == 4


def test_two_processes_cannot_share_a_journal(split, finished, tmp_path):
    pytest.importorskip("fcntl")
    path = tmp_path / "j"
    holder = (
        "import fcntl, sys; f = open(sys.argv[1], 'a+b'); fcntl.flock(f, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(JournalError, match=f"^the journal {path} is in use: another process works with it$"):
            deql.tune(split, SMALL, journal=path)
        assert path.read_bytes() == b""
        other.communicate()
    assert findings(deql.tune(split, SMALL, journal=path)) == finished[0]


def test_nor_can_two_searches_of_one_process(tmp_path):
    pytest.importorskip("fcntl")
    with Journal(tmp_path / "j", SEARCH), pytest.raises(JournalError, match="in use"):
        Journal(tmp_path / "j", SEARCH)
    Journal(tmp_path / "j", SEARCH).close()


def test_a_search_that_fails_lets_the_file_go(split, tmp_path):
    def tell(line):
        if line.startswith("1 of"):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        deql.tune(split, SMALL, journal=tmp_path / "j", tell=tell)
    assert len(steps(tmp_path / "j")) == 1
    assert deql.tune(split, SMALL, journal=tmp_path / "j").inverses == 4


def test_failures_are_remembered(tmp_path):
    split = deql.split_strong(market(40, 24, seed=7), 0.2, 0.3)
    space = SMALL | {"l2": [0, 5]}
    expected = findings(deql.tune(split, space, journal=tmp_path / "j"))
    with counted_fits() as fits:
        assert findings(deql.tune(split, space, journal=tmp_path / "j")) == expected
    assert len(fits) <= 1
    assert sum(b'"failure"' in line for line in (tmp_path / "j").read_bytes().splitlines()) == 1


def test_records_can_be_read_while_another_process_writes(tmp_path, finished):
    path = tmp_path / "journal"
    path.write_bytes(finished[1])
    with Journal(path, json.loads(finished[1].split(b"\n")[0])["search"]) as journal:
        assert read_records(path) == journal.records
    path.write_bytes(finished[1] + b'{"step": "to')
    assert read_records(path) == journal.records
    for content, message in [
        (b"", "not a journal"),
        (b"tea,jam\n", "not a journal"),
        (b'{"deql": 1}\n', "not a journal"),
    ]:
        path.write_bytes(content)
        with pytest.raises(JournalError, match=message):
            read_records(path)
    with pytest.raises(JournalError, match="cannot be read"):
        read_records(tmp_path / "nowhere")


def test_a_journal_has_the_curve_for_the_page(tmp_path, finished):
    curves = pytest.importorskip("deql.serve.settings", reason="the page needs the extra serve")
    path = tmp_path / "journal"
    path.write_bytes(finished[1])
    found = curves.read_curve(path)
    end = json.loads(finished[1].strip().split(b"\n")[-1])
    assert found["b"] == end["curve"]["b"]
    assert found["values"] == end["curve"]["values"]
    decided = found["values"][found["metric"]]
    assert found["metric"] == "ndcg@20"
    assert decided[found["b"].index(found["best"]["ndcg@20"])] == max(decided)
    path.write_bytes(b"\n".join(finished[1].strip().split(b"\n")[:-1]) + b"\n")
    with pytest.raises(JournalError, match="not finished"):
        curves.read_curve(path)
    path.write_bytes(finished[1].replace(b'"curve"', b'"swerve"'))
    with pytest.raises(JournalError, match="damaged"):
        curves.read_curve(path)


@pytest.mark.parametrize("name", ["curve", "rival", "judged"])
@pytest.mark.parametrize("value", ["x", {"b": [1.0], "values": {"ndcg@20": []}, "errors": {}}], ids=str)
def test_an_end_without_sense(split, finished, tmp_path, name, value):
    *lines, last = finished[1].splitlines()
    end = json.loads(last)
    assert end["step"] == "end"
    end[name] = [value]
    path = tmp_path / "j"
    path.write_bytes(b"\n".join([*lines, json.dumps(end).encode(), b""]))
    with pytest.raises(JournalError, match=r"the last step of .* is damaged"):
        deql.tune(split, SMALL, journal=path)
