import os
import resource
import signal
import subprocess
import sys

import polars as pl
import pytest
from scipy.sparse import eye_array, save_npz

import deql
from deql.errors import DataError
from deql.io.atomic import replace_file, write_text, write_whole


def test_what_fails_half_way_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old é")
    assert path.read_text(encoding="utf-8") == "old é"

    def half(place):
        place.write_text("ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(path, half)
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text(encoding="utf-8") == "old é"


def test_a_place_that_cannot_be_written(tmp_path):
    with pytest.raises(DataError, match="could not be written"):
        write_text(tmp_path / "none" / "a.txt", "x")
    with pytest.raises(DataError, match="could not be written"):
        write_text(tmp_path, "x")


def test_text_that_is_not_unicode_is_still_written(tmp_path):
    write_text(tmp_path / "a.txt", "a\ud800b")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "a?b"


def test_a_file_that_a_killed_process_left_is_written_over(tmp_path):
    (tmp_path / "a.new").write_text("what was cut short, and is longer than what comes")
    replace_file(tmp_path / "a", lambda place: place.write_text(f"by way of {place.name}"), "a.new")
    assert [one.name for one in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "by way of a.new"


def write_and_die(path, how):
    """A process that is killed while it writes to ``path``, or one that goes on."""
    code = (
        "import sys, os, time; from pathlib import Path; from deql.io.atomic import write_whole\n"
        "def half(place):\n"
        "    place.write_text('half'); print('here', flush=True); time.sleep(60)\n"
        f"write_whole(Path({str(path)!r}), half)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "here\n"
    if how == "killed":
        process.kill()
        process.wait(20)
        process.stdout.close()
    return process


def names(folder):
    return sorted(one.name for one in folder.iterdir())


def test_what_a_killed_process_left_goes_with_the_next_save(tmp_path):
    for _ in range(2):
        write_and_die(tmp_path / "a.txt", "killed")
        assert len(names(tmp_path)) == 1
        write_text(tmp_path / "b.txt", "of another name")
        assert len(names(tmp_path)) == 2
        write_text(tmp_path / "a.txt", "new")
        assert names(tmp_path) == ["a.txt", "b.txt"]
        for path in tmp_path.iterdir():
            path.unlink()


def test_what_a_killed_save_left_goes_when_the_file_is_loaded(tmp_path):
    path, link = tmp_path / "m.deql", tmp_path / "link.deql"
    deql.EASE(l2=1.0).fit(deql.Interactions.from_pairs(list("aabb"), list("xyyz"))).save(path)
    link.symlink_to(path)
    write_and_die(path, "killed")
    assert len(names(tmp_path)) == 3
    deql.load(link)
    assert names(tmp_path) == ["link.deql", "m.deql"]


def test_what_a_living_process_writes_stays(tmp_path):
    other = write_and_die(tmp_path / "a.txt", "lives")
    try:
        theirs = names(tmp_path)
        write_text(tmp_path / "a.txt", "new")
        assert names(tmp_path) == [*theirs, "a.txt"]
    finally:
        other.kill()
        other.wait(20)
        other.stdout.close()


def test_what_another_machine_may_be_writing_stays_for_a_day(tmp_path):
    left = [tmp_path / f".a.txt.{mark}.tmp" for mark in ("01234567", "0123456789abcdef")]
    others = [tmp_path / name for name in (".a.txt.tmp", ".a.txt.xyz.tmp", ".b.txt.01234567.tmp", "a.txt.01234567.tmp")]
    for path in (*left, *others):
        path.touch()
    write_text(tmp_path / "a.txt", "new")
    assert all(path.exists() for path in (*left, *others))
    for path in (*left, *others):
        os.utime(path, (1e9, 1e9))
    write_text(tmp_path / "a.txt", "new")
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in others)


def test_where_there_are_no_locks_files_are_written_and_nothing_is_taken_for_stale(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(95, "Operation not supported")

    write_and_die(tmp_path / "a.txt", "killed")
    monkeypatch.setattr("fcntl.flock", refuse)
    write_text(tmp_path / "a.txt", "new")
    assert len(names(tmp_path)) == 2
    assert (tmp_path / "a.txt").read_text() == "new"


FRAME = pl.DataFrame({"user": [str(one) * 40 for one in range(5000)], "value": range(5000)})
WRITERS = {
    "csv": FRAME.write_csv,
    "parquet": FRAME.write_parquet,
    "ndjson": FRAME.write_ndjson,
    "text": lambda place: place.write_text("x" * 100_000),
    "npz": lambda place: save_matrix(place),
}


def save_matrix(place):
    with open(place, "wb") as file:
        save_npz(file, eye_array(30_000, format="csr"), compressed=False)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_full_disk_is_told_and_leaves_the_old_file(tmp_path, kind):
    """As a limit on the size of files, which fails writes at the same place."""
    path = tmp_path / "a.bin"
    path.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(DataError) as caught:
            write_whole(path, WRITERS[kind])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert str(caught.value) == f"{path} could not be written: file too large"
    assert names(tmp_path) == ["a.bin"]
    assert path.read_text() == "old"
