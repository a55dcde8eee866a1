"""Runs cases in a process with little memory, which says where it is, so that whatever ends it is known."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.fuzz.targets import NOT_OURS, make_case, seeds, use

MORE_MEMORY = 2**30
"""Bytes that a case may take beyond what the process has when it begins."""

LONGEST = 5.0
_HANGS = 10.0
"""Seconds: a case that takes longer than the first is told, one that takes longer than the second ends the process."""


@dataclass(frozen=True)
class Finding:
    """A case that did harm: which, what it was, and where."""

    target: str
    seed: int
    number: int
    what: str
    trace: str = ""

    @property
    def name(self) -> str:
        """What is given to ``python -m tests.fuzz --case``."""
        return f"{self.target}/{self.seed}/{self.number}"


@dataclass
class Session:
    """Cases of one target from a number on, until a time or a number is reached."""

    target: str
    seed: int
    first: int = 0
    last: int = 2**62
    seconds: float = 60.0
    tried: int = 0
    ended: int = 0
    """Processes that another library ended."""

    def run(self) -> Iterator[Finding]:
        """Try them; a process that dies is started again behind the case that killed it."""
        end = time.monotonic() + self.seconds
        number = self.first
        while number < self.last and time.monotonic() < end:
            with tempfile.TemporaryDirectory(prefix="deql-fuzz-") as folder:
                job = {"target": self.target, "seed": self.seed, "first": number, "last": self.last,
                       "seconds": end - time.monotonic(), "folder": folder}  # fmt: skip
                command = [sys.executable, "-m", "tests.fuzz.runner", json.dumps(job)]
                known = os.environ | {"DEQL_THREADS": "1", "POLARS_MAX_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
                                      "MALLOC_ARENA_MAX": "2"}  # fmt: skip
                done = subprocess.run(command, capture_output=True, text=True, env=known, errors="replace")
                place = Path(folder, "place")
                at = int(place.read_text().split()[0]) if place.exists() else number
                for line in done.stdout.splitlines():
                    if line.startswith("{"):
                        yield Finding(**json.loads(line))
                if done.returncode:
                    what = f"the process ended with {done.returncode}"
                    if not place.exists():
                        raise RuntimeError(f"{what}: {done.stderr[-2000:]}")
                    if self.target in NOT_OURS:
                        self.ended += 1
                    else:
                        yield Finding(self.target, self.seed, at, what, done.stderr[-3000:])
                self.tried += at + 1 - number
                number = at + 1


def try_case(target: str, seed: int, number: int, folder: Path) -> Finding | None:
    """Make one case and use it."""
    random = Random(f"{target}/{seed}/{number}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    path = make_case(target, random, folder)
    begin = time.monotonic()
    finding = judge(target, path, random)
    if finding is None and time.monotonic() - begin > LONGEST:
        finding = f"it took {time.monotonic() - begin:.1f} s", ""
    return None if finding is None else Finding(target, seed, number, *finding)


def judge(target: str, path: Path, random: Random) -> tuple[str, str] | None:
    """Use a file; what was wrong, and where."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            use(target, path, random)
    except BaseException as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/deql/" in frame.filename]
        where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
        what = f"{type(error).__name__}{where}: {str(error)[:300]}"
        return what, "".join(traceback.format_exception(error))[-3000:]
    return None


def _work(job: dict[str, object]) -> None:
    target, seed = str(job["target"]), int(str(job["seed"]))
    folder = Path(str(job["folder"]))
    end = time.monotonic() + float(str(job["seconds"]))
    for path in seeds(target) * 2:  # imports, kernels, threads with memory of their own
        shutil.rmtree(folder / "case", ignore_errors=True)
        (folder / "case").mkdir()
        judge(target, Path(shutil.copy(path, folder / "case")), Random(0))
    for number in range(10):
        try_case(target, -1, number, folder / "case")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MORE_MEMORY, resource.RLIM_INFINITY))
    place = os.open(folder / "place", os.O_WRONLY | os.O_CREAT)
    for number in range(int(str(job["first"])), int(str(job["last"]))):
        os.pwrite(place, f"{number:<20}".encode(), 0)
        faulthandler.dump_traceback_later(_HANGS, exit=True)
        finding = try_case(target, seed, number, folder / "case")
        faulthandler.cancel_dump_traceback_later()
        if finding is not None:
            print(json.dumps(vars(finding)), flush=True)
        if time.monotonic() > end:
            break


if __name__ == "__main__":
    _work(json.loads(sys.argv[1]))
