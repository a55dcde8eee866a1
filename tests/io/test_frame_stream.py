"""Frames written as they come: the same rows, an error where it happened, an interruption heard."""

import signal
import subprocess
import sys
import time

import polars as pl
import pytest

from deql.errors import DataError
from deql.io import frame_stream
from deql.io.frame_stream import STREAM_ENDINGS, write_frames

SCHEMA = {"user": pl.String, "rank": pl.Int64}
READ = {".parquet": pl.read_parquet, ".csv": pl.read_csv, ".ndjson": pl.read_ndjson}


def frames(count, rows=5):
    for number in range(count):
        yield pl.DataFrame({"user": [f"user {number}"] * rows, "rank": range(rows)})


@pytest.mark.parametrize("ending", STREAM_ENDINGS)
def test_are_read_as_one(tmp_path, ending):
    path = tmp_path / f"a{ending}"
    write_frames(path, frames(40), SCHEMA)
    assert READ[ending](path).equals(pl.concat(frames(40)))
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", STREAM_ENDINGS)
def test_an_error_between_two_leaves_nothing(tmp_path, ending):
    def broken():
        yield from frames(3)
        raise DataError("no more")

    with pytest.raises(DataError, match="no more"):
        write_frames(tmp_path / f"a{ending}", broken(), SCHEMA)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", STREAM_ENDINGS)
def test_a_disk_that_is_full_ends_it(tmp_path, ending, monkeypatch):
    full = "/dev/full"
    monkeypatch.setattr(frame_stream, "write_whole", lambda path, write: write(full))
    with pytest.raises((pl.exceptions.PolarsError, OSError), match=r"os error 28|No space left"):
        write_frames(tmp_path / f"a{ending}", frames(200, rows=20_000), SCHEMA)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_process_that_is_ended_leaves_no_file(tmp_path, number):
    script = f"""
import time, sys
from pathlib import Path
import polars as pl
from deql.io.frame_stream import write_frames

def frames():
    for step in range(1000):
        if step == 3:
            print("begun", flush=True)
        time.sleep(0.01)
        yield pl.DataFrame({{"rank": [step]}})

write_frames(Path({str(tmp_path / "a.parquet")!r}), frames(), {{"rank": pl.Int64}})
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout.readline() == b"begun\n"
    begin = time.monotonic()
    process.send_signal(number)
    process.wait()
    process.stdout.close()
    assert time.monotonic() - begin < 5  # all of it would take ten
    assert process.returncode != 0
    assert not (tmp_path / "a.parquet").exists()
    if number == signal.SIGINT:
        assert not list(tmp_path.iterdir())
