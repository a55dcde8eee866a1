"""What is fuzzed: each target damages one of its files and uses it as people would."""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import xxhash
from safetensors.numpy import load_file, save

import deql
from deql.errors import DeqlError
from deql.io.container import digest
from deql.serve.api import create_app
from deql.serve.serving_model import ModelHolder, ServingModel
from deql.serve.settings import Settings, read_curve
from tests.fixtures.write_files import interactions
from tests.fuzz import folders, tiles
from tests.fuzz.mutate import damage_arrays, damage_bytes, damage_json, dump
from tests.fuzz.oracle import WrongError, check_error, check_interactions, check_model
from tests.fuzz.write_corpus import CORPUS, SPACE, tuning_split
from tests.serve.asking import Asker

_OF_A_MODEL = "slim.jsonl"

RELEASED = sorted((Path(__file__).parents[1] / "fixtures").glob("files-*"))


def seeds(target: str) -> list[Path]:
    """The files that a target begins with."""
    if target == "journal":
        return [_journal(), _model_journal()]
    if target in folders.FOLDERS:
        return folders.seeds(target)
    if target in ("table", "parquet"):
        every = sorted((CORPUS / "table").glob("*"))
        return [path for path in every if (path.suffix == ".parquet") == (target == "parquet")]
    own = sorted((CORPUS / target).glob("*"))
    endings = {"model": "*.deql", "split": "*.split"}
    return own + [path for folder in RELEASED for path in sorted(folder.glob(endings.get(target, "nothing")))]


@cache
def _journal() -> Path:
    """Of a search as this version makes it: one of another version is refused before anything else is read."""
    return _made("finished.jsonl", lambda path: deql.tune(_tuning_split(), SPACE, journal=path))


@cache
def _model_journal() -> Path:
    return _made(_OF_A_MODEL, _tune_model)


def _made(name: str, make: Callable[[Path], object]) -> Path:
    path = Path(tempfile.mkdtemp(prefix="deql-fuzz-")) / name
    make(path)
    atexit.register(shutil.rmtree, path.parent, ignore_errors=True)
    return path


def _tune_model(path: Path) -> None:
    deql.tune(_tuning_split(), {"l1": [0.1, 1.0], "l2": [1.0, 10.0]}, model=deql.SLIM(), search="grid", journal=path)


def make_case(target: str, random: Random, folder: Path) -> Path:
    """A damaged file in the folder; its name has the ending it should have."""
    source = random.choice(seeds(target))
    path = folder / source.name
    if target in ("model", "split") and random.random() < 0.7:
        path.write_bytes(_with_right_checksum(source, random))
    elif target == "tiles":
        _damage_tiles(folder, random)
    elif target in folders.FOLDERS:
        folders.damage(target, folder, random)
    elif source.suffix in (".json", ".jsonl", ".ndjson") and random.random() < 0.7:
        path.write_bytes(_damage_lines(source.read_bytes(), random))
    else:
        path.write_bytes(damage_bytes(source.read_bytes(), random))
    return path


def _damage_lines(content: bytes, random: Random) -> bytes:
    lines = content.rstrip(b"\n").split(b"\n")
    place = random.randrange(len(lines))
    lines[place] = dump(damage_json(json.loads(lines[place]), random))
    return b"\n".join(lines) + b"\n"


def _with_right_checksum(source: Path, random: Random) -> bytes:
    """A file whose contents are damaged and whose checksums are right: only looking at the contents tells."""
    content = source.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    [(key, text)] = header["__metadata__"].items()
    metadata, arrays = json.loads(text), load_file(source)
    if random.random() < 0.4:
        metadata = damage_json(metadata, random)
    else:
        arrays = damage_arrays(arrays, random)
    if isinstance(metadata, dict):
        items = {name: array for name, array in arrays.items() if name in ("items", "items_text", "items_ends")}
        if "vocabulary_checksum" in metadata:
            metadata["vocabulary_checksum"] = digest({}, items)
        metadata.pop("checksum", None)
        metadata["checksum"] = digest(metadata, arrays)
    return save(arrays, {key: dump(metadata).decode("utf-8", "replace")})


def _damage_tiles(folder: Path, random: Random) -> None:
    for path in seeds("tiles"):
        shutil.copyfile(path, folder / path.name)
    manifest = folder / "deql-tiles.json"
    if random.random() < 0.6:
        outer = json.loads(manifest.read_bytes())
        inner = dump(damage_json(json.loads(outer["content"]), random)).decode("utf-8", "replace")
        outer |= {"content": inner, "checksum": xxhash.xxh3_64_hexdigest(inner.encode())}
        if random.random() < 0.2:
            outer = damage_json(outer, random)
        manifest.write_bytes(dump(outer))
    else:
        path = folder / random.choice([one.name for one in seeds("tiles")])
        path.write_bytes(damage_bytes(path.read_bytes(), random))


def use(target: str, path: Path, random: Random) -> None:
    """Use a file; WrongError, or any error that is not one of ours, is something to mend."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            _USES[target](path, random)
    except DeqlError as error:
        check_error(error)


def _use_model(path: Path, random: Random) -> None:
    check_model(deql.load(path, verify=random.random() < 0.8), path)


def _use_split(path: Path, random: Random) -> None:
    split = deql.load_split(path)
    split.describe()
    for part in (split.train, split.test.seen, split.test.held_out):
        check_interactions(part, None)
    split.save(path.with_suffix(".again"))
    if deql.load_split(path.with_suffix(".again")).sizes() != split.sizes():
        raise WrongError("saved and loaded again it is another split")
    deql.evaluate(deql.Popularity().fit(split.train), split.test)


@cache
def _tuning_split() -> deql.Split:
    return tuning_split()


def _use_journal(path: Path, random: Random) -> None:
    if random.random() < 0.3:
        read_curve(path)
    elif path.name == _OF_A_MODEL:
        _tune_model(path)
    else:
        deql.tune(_tuning_split(), SPACE, journal=path)


def _use_table(path: Path, random: Random) -> None:
    options: dict[str, Any] = {}
    for name in ("weight", "time"):
        if random.random() < 0.3:
            options[name] = True
    if random.random() < 0.2:
        options["min_weight"] = 1.0
    if random.random() < 0.2:
        options["ids"] = "text"
    if random.random() < 0.1:
        options["items"] = path
    if random.random() < 0.3:
        options["on_missing"] = "skip"
    if random.random() < 0.3:
        options["encoding"] = random.choice(
            ("latin-1", "utf-16", "utf-8-sig", "gb18030", "shift_jis", "utf-7", "ascii")
        )
    if random.random() < 0.1:
        data = deql.read_interactions(path, **options)
        check_interactions(deql.join(data, data), None)
        check_interactions(deql.Split(data, None, (data, data.keep(data.matrix.indices > 0))).test.held_out, None)
        return
    check_interactions(deql.read_interactions(path, **options), path.with_name("again.parquet"))


def _use_tiles(path: Path, random: Random) -> None:
    if tiles.fit(path.parent).tobytes() not in tiles.inverses(CORPUS / "tiles"):
        raise WrongError("another inverse")


@cache
def _app() -> Asker:
    model = deql.DEQL(1.0, 0.3, 0.5).fit(interactions())
    return Asker(create_app(ModelHolder(ServingModel(model)), Settings({"x": "x.deql"}, quiet=True)))


def _use_http(path: Path, random: Random) -> None:
    body = path.read_bytes()
    route = f"/{path.stem.partition('-')[0]}"
    if random.random() < 0.2:  # as text in an address
        query = "".join(
            f"%{byte:02x}" if random.random() < 0.5 or byte < 33 else chr(byte % 128) for byte in body[:200]
        )
        route = random.choice(("/items?q=", "/items?limit=", "/items/tea/similar?k=", "/items/", "/model/diagonal?b="))
        method, route, body = "GET", route + query, b""
    else:
        method = "POST"
    status, answer = _app().ask(method, route, body)
    if status >= 500 or (status >= 400 and set(answer) != {"error"}):
        raise WrongError(f"{method} {route[:80]} {body[:80]!r}: {status} {str(answer)[:200]}")
    if status >= 400 and ("\n" in answer["error"]["message"] or not answer["error"]["message"]):
        raise WrongError(f"unclear: {answer}")


_USES: dict[str, Callable[[Path, Random], None]] = {
    "model": _use_model, "split": _use_split, "journal": _use_journal, "table": _use_table, "parquet": _use_table,
    "tiles": _use_tiles, "http": _use_http, "shards": folders.use_shards, "partitions": folders.use_partitions,
}  # fmt: skip
TARGETS = tuple(_USES)

NOT_OURS = ("parquet",)
"""Where a process may end: polars takes the sizes that a Parquet file states for true, and ends where memory does."""
