"""`deql serve` under load on this machine: many connections for half a minute, and the same while it reloads.

With ``--model`` and $DEQL_DATA/gowalla (LightGCN's split: a line is a user, then its items) the model is that file, or
EASE(l2=80), fitted and kept there first; the histories are the first 50 items of users who have as many, another user
in each request. Otherwise P is made up (a diagonal and a few factors, so that it is positive definite), and so are the
histories.

The load comes from one process on the same machine. Every answer must have status 200 and k items; one of 50 is
compared with what the library says, items and scores to the last bit. A reload renames another file to the model's
name, with another b on the same P, and asks for it.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from _measure import show

K = 20
HISTORY = 50
CONNECTIONS = 32
TARGETS = {"per_second": 300.0, "p99_ms": 200.0, "errors": 0, "growth_mib": 64.0}
SECONDS_TO_START = 600.0
CONNECTED_ALONE = "one connection"
"""What a server that has nothing else to do takes for an answer."""


def read_histories(source: Path, generator: np.random.Generator) -> NDArray[np.int64]:
    """The first items of each user who has enough, users in random order."""
    lines = (source / "train.txt").read_text().splitlines()
    lists = [list(map(int, line.split()[1 : HISTORY + 1])) for line in lines]
    return generator.permutation(np.array([items for items in lists if len(set(items)) == HISTORY]))


def made_up_histories(n: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Popular items are the first ones."""
    drawn = (n * generator.random((4_000, 4 * HISTORY)) ** 3).astype(np.int64)
    return np.array([row[np.sort(np.unique(row, return_index=True)[1])[:HISTORY]] for row in drawn])


def made_up_model(n: int, generator: np.random.Generator) -> Any:
    """A model of n items without a fit."""
    import deql
    from deql.linalg.packed import PackedSymmetric
    from deql.linalg.tiling import choose_tile

    model = deql.DEQL(l2=80.0, b=0.5).fit(csr_array(np.eye(2, dtype=np.float32)))
    packed = PackedSymmetric(n, choose_tile(n))
    factors = 0.02 * generator.standard_normal((n, 16), np.float32)
    for start, block in packed.blocks():
        np.matmul(factors[start:], factors[start : start + block.shape[1]].T, out=block)
    packed.mirror_diagonal_tiles()
    packed.add_to_diagonal(generator.uniform(0.5, 2.0, n))
    model.precision_, model.items_, model.gram_diagonal_ = packed, np.arange(n), np.ones(n)
    model.item_counts_ = np.maximum(1, 50_000 // np.arange(1, n + 1))
    model._apply_rule()
    return model


def save_models(given: Path | None, data: Path | None, items: int, folder: Path, generator: np.random.Generator) -> Any:
    """Two model files that share P: the one to begin with, and the one to reload, which has another b."""
    import deql

    if data is None:
        model = made_up_model(items, generator)
    else:
        assert given is not None
        if not given.exists():
            deql.EASE(l2=80.0).fit(deql.read_interactions(data / "train.txt")).save(given)
        model = deql.load(given, verify=False)
    files = folder / "a.deql", folder / "b.deql"
    for file, b in zip(files, (0.0, 0.5), strict=True):
        model.with_rule(b=b, zero_diagonal=False).save(file)
    return files


class Memory(NamedTuple):
    """MiB of a server's processes together; what they share counts once."""

    anonymous: float
    file: float
    shared: float

    @property
    def own(self) -> float:
        """What is the server's alone: pages of files can go whenever others need the room."""
        return self.anonymous + self.shared


class Server:
    """A server that was started as people do."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, token: str) -> None:
        self.process, self.token = process, token
        address = urllib.parse.urlsplit(url)
        self.host, self.port = str(address.hostname), int(address.port or 80)

    def processes(self) -> list[int]:
        """Its own number and those of all that it started."""
        parents = {}
        for status in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        family = [self.process.pid]
        for one in family:
            family += [child for child, parent in parents.items() if parent == one]
        return family

    def memory(self) -> Memory:
        """What it holds now. A file in memory takes what it takes, however much of it a process has looked at."""
        gauges = {"Pss_Anon": 0, "Pss_File": 0}
        in_memory: dict[str, int] = {}
        for process in self.processes():
            for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]:
                name, value = line.split()[:2]
                if name[:-1] in gauges:
                    gauges[name[:-1]] += int(value) * 1024
            for line in Path(f"/proc/{process}/maps").read_text().splitlines():
                place, _, offset, _, file, *name = line.split()
                if name[:1] and name[0].startswith("/memfd:"):
                    first, last = (int(end, 16) for end in place.split("-"))
                    in_memory[file] = max(in_memory.get(file, 0), int(offset, 16) + last - first)
        return Memory(*(value / 2**20 for value in (*gauges.values(), sum(in_memory.values()))))

    def cpu_seconds(self) -> float:
        ticks = 0
        for process in self.processes():
            ticks += sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def reload(self) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://{self.host}:{self.port}/admin/reload",
            method="POST",
            headers={"Authorization": f"Bearer {self.token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"the reload was refused: {error.read().decode()}") from None


@contextmanager
def serving(model: Path, log: Path, options: list[str]) -> Iterator[Server]:
    """A server of this model, until the block ends."""
    token = secrets.token_urlsafe()
    program = Path(sys.executable).with_name("deql")
    command = [str(program), "serve", str(model), "--port", "0", *options]
    with log.open("wb") as lines:
        process = subprocess.Popen(command, stdout=lines, stderr=lines, env=os.environ | {"DEQL_TOKEN": token})
    try:
        yield Server(process, _address(process, log), token)
        process.send_signal(signal.SIGTERM)
        if process.wait(60):
            raise RuntimeError(f"the server ended with {process.returncode}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the log says where the server listens."""
    end = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < end and process.poll() is None:
        for line in log.read_text().splitlines():
            with suppress(ValueError):
                if (told := json.loads(line)).get("event") == "start":
                    return str(told["url"])
        time.sleep(0.1)
    raise RuntimeError(f"the server did not start:\n{log.read_text()[-2000:]}")


def load(
    server: Server, bodies: Path, connections: int, seconds: float, swaps: list[tuple[Path, Path]]
) -> dict[str, Any]:
    """Put a server under load, reload it meanwhile, and tell how it went."""
    settings = {
        "host": server.host, "port": server.port, "token": server.token, "bodies": str(bodies),
        "connections": connections, "seconds": seconds, "k": K,
    }  # fmt: skip
    client = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("_load.py"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert client.stdin is not None
    assert client.stdout is not None
    with client:
        client.stdin.write(json.dumps(settings).encode() + b"\n")
        client.stdin.flush()
        client.stdout.readline()
        begun, busy, memory, reloads = time.monotonic(), server.cpu_seconds(), [server.memory()], []
        # The load goes on until the last one is over.
        moments = [(part + 0.5) * seconds / (len(swaps) + 0.5) for part in range(len(swaps))]
        for moment, (source, target) in zip(moments, swaps, strict=True):
            time.sleep(max(0.0, begun + moment - time.monotonic()))
            fresh = target.with_suffix(".new")
            os.link(source, fresh)
            fresh.rename(target)
            asked = time.monotonic()
            changed = server.reload()["changed"]
            reloads.append({"at": asked - begun, "seconds": time.monotonic() - asked, "changed": changed})
        time.sleep(max(0.0, begun + seconds / 2 - time.monotonic()))
        memory.append(server.memory())
        time.sleep(max(0.0, begun + seconds - 0.5 - time.monotonic()))
        cpu = (server.cpu_seconds() - busy) / (time.monotonic() - begun)
        client.stdin.close()
        seen: dict[str, Any] = json.loads(client.stdout.readline())
    time.sleep(1.0)
    memory.append(server.memory())
    return seen | {"connections": connections, "server_cpu": cpu, "memory": memory, "reloads": reloads}


def wrong_answers(kept: list[tuple[int, str]], histories: NDArray[np.int64], files: tuple[Path, ...]) -> int:
    """How many answers are not those of the model whose checksum they bear."""
    import deql
    from deql.io.model_file import checksum

    models = {checksum(file): deql.load(file, verify=False) for file in files}
    wrong = 0
    for of, model in models.items():
        answers = [(number, body) for number, text in kept if (body := json.loads(text))["checksum"] == of]
        if answers:
            ids, scores = model.recommend([histories[number].tolist() for number, _ in answers], k=K)
            for expected, its_scores, (_, body) in zip(ids.tolist(), scores.tolist(), answers, strict=True):
                found = body["results"][0]["recommendations"]
                wrong += [(one["item"], one["score"]) for one in found] != list(zip(expected, its_scores, strict=True))
    return wrong + sum(json.loads(text)["checksum"] not in models for _, text in kept)


def main() -> int:
    """Start a server, put it under load, print what was seen; 1 if an answer failed or was wrong, 2 if it was slow."""
    parser = argparse.ArgumentParser(description="Put deql serve under load.")
    parser.add_argument("--model", type=Path, help="file of a model of Gowalla; fitted if it is not there")
    parser.add_argument("--items", type=int, help="a made-up model of so many items instead")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each run")
    parser.add_argument("--reloads", type=int, default=5, help="during the last run; 0 leaves it out")
    parser.add_argument("--folder", type=Path, help="where two copies of the model may lie")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("options", nargs="*", help="options for deql serve, after --")
    options = parser.parse_args()
    generator = np.random.default_rng(options.seed)
    data = Path(os.environ.get("DEQL_DATA", "nowhere"), "gowalla")
    real = options.items is None and options.model is not None and data.is_dir()
    n = options.items or 40_000
    histories = read_histories(data, generator) if real else made_up_histories(n, generator)
    with TemporaryDirectory(dir=options.folder) as given:
        folder = Path(given)
        files = save_models(options.model, data if real else None, n, folder, generator)
        bodies, model = folder / "bodies.jsonl", folder / "model.deql"
        bodies.write_text("\n".join(json.dumps({"histories": [row], "k": K}) for row in histories.tolist()))
        os.link(files[0], model)
        swaps = [(files[(turn + 1) % 2], model) for turn in range(options.reloads)]
        runs: dict[str, dict[str, Any]] = {}
        with serving(model, folder / "log.jsonl", options.options) as server:
            load(server, bodies, CONNECTIONS, min(3.0, options.seconds), [])  # not counted: pages come into memory
            runs[CONNECTED_ALONE] = load(server, bodies, 1, options.seconds / 3, [])
            runs[f"{CONNECTIONS} connections"] = load(server, bodies, CONNECTIONS, options.seconds, [])
            if swaps:
                runs[f"{CONNECTIONS}, {len(swaps)} reloads"] = load(server, bodies, CONNECTIONS, options.seconds, swaps)
        compared = {label: len(run["kept"]) for label, run in runs.items()}
        wrong = {label: wrong_answers(run.pop("kept"), histories, files) for label, run in runs.items()}
    show(
        f"deql serve, {'a model of Gowalla' if real else f'a made-up model of {n:,} items'}, "
        f"histories of {HISTORY}, k = {K}",
        ("run", "requests/s", "p50 ms", "p95", "p99", "max", "errors", "wrong", "cores: server", "client"),
        (
            (label, run["per_second"], *run["ms"].values(), run["errors"], f"{wrong[label]} of {compared[label]}",
             run["server_cpu"], run["client_cpu"])
            for label, run in runs.items()
        ),
    )  # fmt: skip
    show(
        "The server's memory, MiB: anonymous + pages of files + files in memory",
        ("run", "start", "middle", "end"),
        (
            (label, *(" + ".join(f"{part:,.0f}" for part in now) for now in run["memory"]))
            for label, run in runs.items()
        ),
    )
    for label, run in runs.items():
        for error in run["first_errors"]:
            print(f"{label}: {error}")
        for one in run["reloads"]:
            print(f"{label}: reload after {one['at']:.1f} s took {one['seconds']:.1f} s, changed: {one['changed']}")
    result = {
        "targets": TARGETS,
        "model": "gowalla" if real else "made up",
        "users": len(histories),
        "runs": {
            label: {name: run[name] for name in ("requests", "per_second", "ms", "errors", "server_cpu", "client_cpu")}
            | {
                "wrong": wrong[label],
                "compared": compared[label],
                "growth_mib": run["memory"][-1].own - run["memory"][0].own,
                "reloads": run["reloads"],
            }
            for label, run in runs.items()
        },
    }
    print(json.dumps(result))
    if any(run["errors"] or wrong[label] for label, run in runs.items()):
        return 1
    missed = [label for label, run in runs.items() if label != CONNECTED_ALONE and _missed(run)]
    print(*(f"below the targets: {label}" for label in missed), sep="\n", end="\n" if missed else "", file=sys.stderr)
    return 2 if missed else 0


def _missed(run: dict[str, Any]) -> bool:
    # Two models at once are what a reload takes, so that only what stays counts there, too.
    grown = run["memory"][-1].own - run["memory"][0].own
    return bool(
        run["per_second"] < TARGETS["per_second"]
        or run["ms"]["p99"] > TARGETS["p99_ms"]
        or grown > TARGETS["growth_mib"]
    )


if __name__ == "__main__":
    sys.exit(main())
