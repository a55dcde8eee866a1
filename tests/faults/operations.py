"""What is done while calls fail: everything that the library writes, and what it reads again."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import shutil
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import deql
from deql.cli.app import run
from deql.data.write import write_table
from deql.errors import DeqlError
from deql.io.frame_stream import STREAM_ENDINGS
from deql.io.journal import Journal, read_records
from deql.linalg.engines.disk import invert_on_disk, working_memory
from deql.linalg.engines.engine import Problem
from tests.faults.folders import folder_operations
from tests.faults.injection import READING, Operation
from tests.fixtures.write_files import HISTORIES, interactions, numbered
from tests.tuning.common import findings, market

RELEASED = sorted((Path(__file__).parents[1] / "fixtures").glob("files-*"))[-1]
IO = ("write", "short write", "sync", "rename", "truncate", "open")
"""Without allocations, which are thousands in a whole fit; those of its parts are tried on their own."""


def operations() -> dict[str, Operation]:
    """All of them by name."""
    kinds = sorted(path.stem for path in RELEASED.glob("*.deql"))
    found = [_save_model(name, False) for name in kinds]
    found += [_save_model(name, True) for name in ("ease", "deql64")]
    found += [_load_model(name) for name in kinds]
    found += [_save_split(), _load_split(), _load_folder()]
    found += [_write_data(ending) for ending in (".csv", ".tsv", ".parquet", ".ndjson", ".inter", ".npz")]
    found += [_read_data(ending) for ending in (".csv", ".tsv", ".parquet", ".ndjson", ".inter", ".npz")]
    found += [_read_encoded(".csv"), _read_encoded(".csv.gz")]
    found += [_journal(), _tune(), _disk_fit(), *_commands(), _reload()]
    found += folder_operations()
    return {one.name: one for one in found}


# Models and splits


@cache
def _model(name: str) -> Any:
    return deql.load(RELEASED / f"{name}.deql")


def _expected(name: str) -> Any:
    return json.loads((RELEASED / "answers.json").read_text())[name]


def _answers_as_released(name: str, model: Any) -> None:
    histories = numbered(HISTORIES) if model.items_.dtype.kind == "i" else HISTORIES
    ids, scores = model.recommend(histories, k=3)
    assert ids.tolist() == _expected(name)["ids"]
    np.testing.assert_array_equal(scores, _expected(name)["scores"])


def _save_model(name: str, quantized_rows: bool) -> Operation:
    options = {"quantized_rows": True} if quantized_rows else {}
    return Operation(
        f"save {name}{' with rows' if quantized_rows else ''}",
        prepare=lambda folder: _model("popularity").save(folder / "shop.deql"),
        act=lambda folder: _model(name).save(folder / "shop.deql", **options),
        holds=lambda folder, _: _answers_as_released(name, deql.load(folder / "shop.deql")),
    )


def _load_model(name: str) -> Operation:
    return Operation(
        f"load {name}",
        prepare=lambda folder: shutil.copy(RELEASED / f"{name}.deql", folder / "shop.deql"),
        act=lambda folder: deql.load(folder / "shop.deql"),
        holds=lambda _, model: _answers_as_released(name, model),
        kinds=READING,
    )


@cache
def _split() -> deql.Split:
    return deql.split_strong(interactions(), test_users=0.3, validation_users=0.2, seed=1)


def _same_split(split: deql.Split) -> None:
    for mine, other in ((split.train, _split().train), (split.test.held_out, _split().test.held_out)):
        assert mine.matrix.toarray().tolist() == other.matrix.toarray().tolist()
        assert mine.users.tolist() == other.users.tolist()


def _save_split() -> Operation:
    return Operation(
        "save split",
        prepare=lambda folder: deql.split_weak(interactions(), held_out=0.4, seed=2).save(folder / "a.split"),
        act=lambda folder: _split().save(folder / "a.split"),
        holds=lambda folder, _: _same_split(deql.load_split(folder / "a.split")),
    )


def _load_split() -> Operation:
    return Operation(
        "load split",
        prepare=lambda folder: _split().save(folder / "a.split"),
        act=lambda folder: deql.load_split(folder / "a.split"),
        holds=lambda _, split: _same_split(split),
        kinds=READING,
    )


def _load_folder() -> Operation:
    """Tables of one's own split."""
    own = deql.split_weak(interactions(), held_out=0.4, seed=2)

    def prepare(folder: Path) -> None:
        write_table(own.train, folder / "train.csv")
        write_table(own.test.held_out, folder / "test.parquet")

    def holds(_: Path, split: deql.Split) -> None:
        assert split.sizes() == deql.Split(own.train, None, own.test.held_out).sizes()

    return Operation(
        "load split folder",
        prepare=prepare,
        act=lambda folder: deql.load_split(folder, user="user", item="item"),
        holds=holds,
        kinds=READING,
    )


# Data


def _read(path: Path) -> deql.Interactions:
    with contextlib.redirect_stderr(io.StringIO()):  # which columns were taken
        return deql.read_interactions(path)


def _same_data(data: deql.Interactions) -> None:
    assert data.matrix.toarray().tolist() == interactions().matrix.toarray().tolist()


def _write_data(ending: str) -> Operation:
    return Operation(
        f"write {ending}",
        prepare=lambda folder: (folder / f"a{ending}").write_bytes(b"what was there before"),
        act=lambda folder: write_table(interactions(), folder / f"a{ending}"),
        holds=lambda folder, _: _same_data(_read(folder / f"a{ending}")),
    )


def _read_data(ending: str) -> Operation:
    return Operation(
        f"read {ending}",
        prepare=lambda folder: write_table(interactions(), folder / f"a{ending}"),
        act=lambda folder: _read(folder / f"a{ending}"),
        holds=lambda _, data: _same_data(data),
        kinds=READING,
    )


def _read_encoded(ending: str) -> Operation:
    """A table that is decoded on the way, with marks that are escaped."""
    text = "".join(f'"{user}";"{item} \\"é\\""\n' for user in "abc" for item in "xy").encode("utf-16")

    def holds(_: Path, data: deql.Interactions) -> None:
        assert data.items.tolist() == ['x "é"', 'y "é"']

    return Operation(
        f"read {ending} in utf-16",
        prepare=lambda folder: (folder / f"a{ending}").write_bytes(gzip.compress(text) if "gz" in ending else text),
        act=lambda folder: deql.read_interactions(folder / f"a{ending}", 1, 2, header=False, encoding="utf-16"),
        holds=holds,
        kinds=READING,
    )


# Long work that resumes


_SEARCH = {"metric": "ndcg@20"}
_STEPS = [{"step": "point", "l2": float(number), "values": {"ndcg@20": [0.1]}} for number in range(4)]


def _append(path: Path, steps: list[dict[str, Any]]) -> None:
    with Journal(path, _SEARCH) as journal:
        for step in steps[len(journal.records) :]:
            journal.append(step)


def _lines_kept(name: str, before: dict[str, bytes], folder: Path) -> None:
    """Whatever was there is there, and at most one torn line after it; no other file is."""
    kept = before.get(name, b"")
    assert {path.name for path in folder.iterdir()} <= {*before, name}
    assert (folder / name).read_bytes().startswith(kept) if kept else True
    for other in before.keys() - {name}:
        assert (folder / other).read_bytes() == before[other]


def _journal() -> Operation:
    def holds(folder: Path, _: Any) -> None:
        assert read_records(folder / "j.jsonl") == _STEPS

    return Operation(
        "journal",
        prepare=lambda folder: _append(folder / "j.jsonl", _STEPS[:2]),
        act=lambda folder: _append(folder / "j.jsonl", _STEPS),
        holds=holds,
        kinds=("write", "short write", "sync", "truncate", "open", "read", "allocation"),
        survived=partial(_lines_kept, "j.jsonl"),
    )


_SPACE = {"l2": [2, 20], "dropout": 0.3, "user_power": 0, "b": [0, 2], "popularity_power": 0, "prior": None}


@cache
def _tuning_split() -> deql.Split:
    return deql.split_strong(market(60, 12, seed=41), 0.2, 0.4)


@cache
def _found() -> dict[str, Any]:
    return findings(deql.tune(_tuning_split(), _SPACE))


def _tune() -> Operation:
    def begin(folder: Path) -> None:
        """A search that was killed after its first point."""
        deql.tune(_tuning_split(), _SPACE, journal=folder / "j.jsonl")
        lines = (folder / "j.jsonl").read_bytes().splitlines(keepends=True)
        (folder / "j.jsonl").write_bytes(b"".join(lines[:2]))

    def holds(_: Path, tuning: Any) -> None:
        assert findings(tuning) == _found()

    return Operation(
        "tune",
        prepare=begin,
        act=lambda folder: deql.tune(_tuning_split(), _SPACE, journal=folder / "j.jsonl"),
        holds=holds,
        kinds=("write", "short write", "sync", "truncate", "open"),
        survived=partial(_lines_kept, "j.jsonl"),
    )


_N, _TILE, _PIVOT = 30, 8, 16  # two pivots, the last of fewer columns


@cache
def _problem() -> Problem:
    return Problem(market(90, _N, seed=3).matrix, np.linspace(1.0, 3.0, _N), None, "float64")


def _invert(folder: Path | None) -> Any:
    budget = working_memory(_N, _TILE, np.float64, _PIVOT)
    return invert_on_disk(_problem(), budget, folder=folder, fingerprint="a", tile=_TILE)


@cache
def _inverse() -> bytes:
    return np.array(_invert(None)[0].data).tobytes()


def _disk_fit() -> Operation:
    def holds(_: Path, found: Any) -> None:
        assert found[0].data.tobytes() == _inverse()

    def survived(_: dict[str, bytes], folder: Path) -> None:
        """What is left is what the engine goes on from, or nothing at all."""
        names = {path.name for path in (folder / "tiles").glob("*")}
        allowed = {"deql-tiles.json", "deql-probes.npy", "deql-tiles.lock", "deql-tiles-0.bin", "deql-tiles-1.bin"}
        assert names <= allowed, names - allowed
        assert not names or "deql-tiles.json" in names, "tiles without a checkpoint"

    return Operation(
        "disk fit",
        prepare=lambda folder: None,
        act=lambda folder: _invert(folder / "tiles"),
        holds=holds,
        kinds=(*IO, "map", "read", "allocation"),
        survived=survived,
    )


# The command line


class RefusedError(DeqlError):
    """A command that ended as it does for bad input."""


def _command(*arguments: str) -> Callable[[Path], None]:
    """A command in the folder; what it says when it fails is one line, after notes."""

    def act(folder: Path) -> None:
        told, printed = io.StringIO(), io.StringIO()
        here = os.getcwd()
        os.chdir(folder)
        try:
            with contextlib.redirect_stderr(told), contextlib.redirect_stdout(printed):
                code = run(list(arguments))
        finally:
            os.chdir(here)
        lines = told.getvalue().splitlines()
        errors = [line for line in lines if line.startswith("deql: error: ")]
        assert "Traceback" not in told.getvalue(), lines
        if code == 0:
            assert not errors, errors
            return
        assert (code, len(errors)) == (2, 1), (code, lines)
        assert lines[-1] == errors[0] or "kept in" in lines[-1], lines
        raise RefusedError(errors[0])

    return act


def _commands() -> list[Operation]:
    def table(folder: Path) -> None:
        write_table(interactions(), folder / "data.csv")

    def with_old(name: str) -> Callable[[Path], None]:
        def prepare(folder: Path) -> None:
            table(folder)
            (folder / name).write_bytes(b"what was there before")

        return prepare

    def with_split(folder: Path) -> None:
        market_split = _tuning_split()
        market_split.save(folder / "a.split")
        _model("popularity").save(folder / "best.deql")

    def loads(folder: Path, _: Any) -> None:
        assert deql.load(folder / "shop.deql").recommend([["tea"]], k=1).ids.shape == (1, 1)

    def is_page(folder: Path, _: Any) -> None:
        assert (folder / "page.html").read_text().rstrip().endswith("</html>")

    def tuned(folder: Path, _: Any) -> None:
        model = deql.load(folder / "best.deql")
        assert model.l2 == _found()["best"]["l2"]

    def tune_survived(before: dict[str, bytes], folder: Path) -> None:
        names = {path.name for path in folder.iterdir()}
        assert names <= {*before, "best.tuning.jsonl"}, names
        assert (folder / "a.split").read_bytes() == before["a.split"]
        deql.load(folder / "best.deql")  # the old or the new

    def with_model(folder: Path) -> None:
        model = deql.EASE(l2=1.0).fit(interactions(), keep_data=True)
        model.save(folder / "shop.deql")
        (folder / "user").write_text(f"{model.data_.users[0]}\n")

    def forget(folder: Path) -> None:
        """Forget, and say so in the journal, unless an earlier try has done so after all."""
        asked = ("--forget-users", "user", "--journal", "log", "--certificate", "gone.json", "-o", "new.deql")
        try:
            _command("update", "shop.deql", *asked)(folder)
        except RefusedError as error:
            if "log goes on from this model" not in str(error):
                raise

    def forgotten(folder: Path, _: Any) -> None:
        model = deql.load(folder / "new.deql")
        assert model.n_users_ == interactions().n_users - 1
        [line] = [one for one in read_records(folder / "log", "updates") if one["step"] == "update"]
        assert line["after"] == model.checksum()

    def update_survived(before: dict[str, bytes], folder: Path) -> None:
        """The new model is whole or not there, a certificate only beside it, a line of the journal not confirmed."""
        names = {path.name for path in folder.iterdir()}
        assert names <= {*before, "log", "new.deql", "gone.json"}, names
        assert "new.deql" in names or "gone.json" not in names
        assert (folder / "shop.deql").read_bytes() == before["shop.deql"]
        if "new.deql" in names:
            deql.load(folder / "new.deql")

    axes = ("--l2", "2,20", "--dropout", "0.3", "--user-power", "0", "--b", "0,2", "--popularity-power", "0")
    return [
        Operation(
            "deql fit", with_old("shop.deql"), _command("fit", "data.csv", "-o", "shop.deql", "--l2", "1"), loads, IO
        ),
        Operation(
            "deql fit on disk",
            with_old("shop.deql"),
            _command("fit", "data.csv", "-o", "shop.deql", "--l2", "1", "--engine", "disk"),
            loads,
            IO,
            _fit_survived,
        ),
        Operation(
            "deql data convert",
            with_old("out.parquet"),
            _command("data", "convert", "data.csv", "-o", "out.parquet"),
            lambda folder, _: _same_data(_read(folder / "out.parquet")),
            IO,
        ),
        Operation(
            "deql data split",
            with_old("a.split"),
            _command("data", "split", "data.csv", "-o", "a.split", "--test-users", "0.3", "--validation-users", "0.2"),
            lambda folder, _: assert_true(deql.load_split(folder / "a.split").train.n_users),
            IO,
        ),
        Operation(
            "deql evaluate --report",
            lambda folder: (with_split(folder), (folder / "page.html").write_bytes(b"what was there before")),
            _command("evaluate", "a.split", "ease:l2=1", "--report", "page.html"),
            is_page,
            ("write", "short write", "sync", "rename"),  # drawing takes a second, and opens what matplotlib wants
        ),
        *(_recommend(with_old, ending) for ending in STREAM_ENDINGS),
        Operation(
            "deql update",
            with_model,
            forget,
            forgotten,
            IO,
            update_survived,
        ),
        Operation(
            "deql tune",
            with_split,
            _command("tune", "a.split", "-o", "best.deql", *axes),
            tuned,
            IO,
            tune_survived,
        ),
    ]


def assert_true(value: object) -> None:
    assert value


def _fit_survived(before: dict[str, bytes], folder: Path) -> None:
    """The old model is there or the new one; beside it at most what the same command goes on from."""
    assert (folder / "data.csv").read_bytes() == before["data.csv"]
    if (folder / "shop.deql").read_bytes() != before["shop.deql"]:
        deql.load(folder / "shop.deql")
    for path in folder.iterdir():
        if path.name not in before:
            assert path.is_dir(), path
            assert (path / "deql-tiles.json").exists(), list(path.iterdir())


# Reloading


def _reload() -> Operation:
    from tests.faults.reloading import Reloading

    reloading = cache(Reloading)  # a server, which is not to be there for who wants the names of operations
    return Operation(
        "reload",
        prepare=lambda _: reloading(),
        again=lambda folder: reloading().prepare(folder),
        act=lambda folder: reloading().act(folder),
        holds=lambda folder, result: reloading().holds(folder, result),
        kinds=("write", "short write", "map", "truncate", "open", "read", "allocation"),
        survived=lambda before, folder: reloading().survived(before, folder),
        end=lambda: reloading().close(),
    )


if sys.platform != "linux":
    raise ImportError("faults are injected on Linux only")


def _recommend(with_old: Callable[[str], Callable[[Path], object]], ending: str) -> Operation:
    """Lists written as they are made."""
    name = f"lists{ending}"
    read = {".parquet": pl.read_parquet, ".csv": pl.read_csv, ".ndjson": pl.read_ndjson}[ending]
    return Operation(
        f"deql recommend {ending}",
        lambda folder: (with_old(name)(folder), shutil.copy(RELEASED / "ease.deql", folder / "shop.deql")),
        _command("recommend", "shop.deql", "--histories", "data.csv", "-o", name),
        lambda folder, _: assert_true(read(folder / name).columns[0] == "user"),
        IO,
    )
