import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from deql.data.matrices import canonical
from deql.errors import InaccurateInverseError, NotPositiveDefiniteError, ParameterError, TileFileError
from deql.linalg.engines import disk
from deql.linalg.engines.disk import disk_needed, invert_on_disk, least_budget, working_memory
from deql.linalg.engines.engine import Problem
from deql.linalg.engines.memory import invert_in_memory
from deql.linalg.engines.tile_folder import TileFolder, remove_tiles
from deql.linalg.gram import gram, user_weights, weighted_diagonal
from deql.linalg.invert import check_inverse
from deql.linalg.packed import PackedSymmetric

N, TILE, PIVOT = 50, 8, 16  # four pivots, the last of two columns


def table(n=N, seed=0):
    generator = np.random.default_rng(seed)
    return canonical(generator.random((3 * n, n)) * (generator.random((3 * n, n)) < np.linspace(0.05, 0.6, n)))


def plus(n):
    return np.linspace(1.0, 3.0, n)


def fit(folder=None, n=N, tile=TILE, pivot=PIVOT, dtype=np.float64, seed=0, **options):
    R = table(n, seed)
    options = {"budget": working_memory(n, tile, dtype, pivot), "fingerprint": "a"} | options
    problem = Problem(R, options.pop("added", plus(n)), user_weights(R, 0.5), np.dtype(dtype).name)
    return invert_on_disk(problem, tile=tile, folder=folder, **options)


@pytest.fixture(scope="module")
def expected():
    return np.array(fit()[0].data)


class KillError(Exception):
    """Stands for the end of the process."""


def die_at(monkeypatch, call, name="pwritev", error=None):
    """Let one call of a function of os fail, as does everything after it; return how many there were."""
    real, calls = getattr(os, name), [0]

    def wrapped(*arguments):
        calls[0] += 1
        if calls[0] >= call:
            raise error or KillError
        return real(*arguments)

    monkeypatch.setattr(os, name, wrapped)
    return calls


def killed(folder, call, name="pwritev", **options):
    """A fit that dies at that call."""
    with pytest.MonkeyPatch.context() as patch:
        die_at(patch, call, name)
        with pytest.raises(KillError):
            fit(folder, **options)


@settings(max_examples=15, deadline=None)
@given(n=st.integers(1, 40), tile=st.integers(1, 15), tiles=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_the_inverse_whatever_divides_what(n, tile, tiles, seed):
    R = table(n, seed).toarray()
    weights = np.maximum((R != 0).sum(axis=1), 1) ** -0.5
    P, residual = fit(n=n, tile=tile, pivot=tile * tiles, seed=seed)
    np.testing.assert_allclose(P.to_dense(), np.linalg.inv((R.T * weights) @ R + np.diag(plus(n))), atol=1e-12)
    assert residual < 1e-12


@pytest.mark.parametrize("pivot", [64, 192, 320])
def test_agrees_with_the_memory_engine(pivot):
    R = table(300)
    memory = gram(R, weights=user_weights(R, 0.5), tile=64)
    memory.add_to_diagonal(plus(300))
    invert_in_memory(memory)
    P, residual = fit(n=300, tile=64, pivot=pivot, dtype=np.float32)
    assert P.dtype == np.float32
    assert residual < 5e-5
    np.testing.assert_allclose(P.to_dense(), memory.to_dense(), atol=1e-6 * np.abs(memory.data).max())
    for _, block in P.blocks():  # as scoring reads them
        own = block[: block.shape[1]]
        np.testing.assert_array_equal(own, own.T)


def test_the_widest_pivot_in_the_budget_is_taken(tmp_path):
    for pivot in (8, 16, 24):
        budget = working_memory(N, TILE, np.float64, pivot + TILE) - 1
        fit(tmp_path / str(pivot), budget=budget)
        with TileFolder(tmp_path / str(pivot), about()) as folder:
            assert folder.checkpoint.pivot == pivot


def about(fingerprint="a"):
    return {"fingerprint": fingerprint, "n": N, "tile": TILE, "dtype": "float64"}


def test_killed_at_any_write_it_goes_on_to_the_same_bits(tmp_path, expected):
    with pytest.MonkeyPatch.context() as patch:
        writes = die_at(patch, 10**9)
        fit(tmp_path / "whole")
    resumed = 0
    for call in range(1, writes[0] + 1, 7):
        folder = tmp_path / str(call)
        killed(folder, call)
        resumed += folder.exists()
        np.testing.assert_array_equal(fit(folder)[0].data, expected)
    assert resumed > 8  # the others died in the Gram matrix


@pytest.mark.parametrize("call", [1, 2, 3, 5])
def test_killed_at_a_manifest_it_goes_on_to_the_same_bits(tmp_path, call, expected):
    killed(tmp_path, call, "replace")
    np.testing.assert_array_equal(fit(tmp_path)[0].data, expected)


def test_a_killed_process_leaves_a_folder_to_go_on_with(tmp_path, expected):
    script = (
        "import os, signal\n"
        "from tests.linalg.engines import test_disk\n"
        "real, calls = os.pwritev, []\n"
        "def write(*arguments):\n"
        "    calls.append(1)\n"
        "    if len(calls) == 80: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return real(*arguments)\n"
        "os.pwritev = write\n"
        f"test_disk.fit({str(tmp_path / 'tiles')!r})\n"
    )
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", script], cwd=root, timeout=60).returncode == -signal.SIGKILL
    with TileFolder(tmp_path / "tiles", about()) as folder:
        assert 0 < folder.checkpoint.done < 4
    np.testing.assert_array_equal(fit(tmp_path / "tiles")[0].data, expected)


def test_an_interruption_stops_all_threads_and_can_go_on(tmp_path, expected):
    threads = threading.active_count()

    def interrupt(done, total):
        if done == 2 * total // 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, stage=lambda label: interrupt if label == "Inverse" else None)
    assert threading.active_count() == threads
    seen = []
    P, _ = fit(tmp_path, stage=lambda label: lambda done, total: seen.append((label, done / total)))
    np.testing.assert_array_equal(P.data, expected)
    assert {label for label, _ in seen} == {"Inverse"}
    assert seen == sorted(seen)
    assert 0.5 < seen[0][1] < 2 / 3
    assert seen[-1][1] == 1


def test_an_interruption_before_the_first_checkpoint_leaves_nothing(tmp_path):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "tiles", stage=lambda label: interrupt)
    assert not any(tmp_path.iterdir())


def test_a_finished_folder_answers_at_once(tmp_path, monkeypatch, expected):
    first, residual = fit(tmp_path)
    assert len(list(tmp_path.glob("*.bin"))) == 1
    monkeypatch.setattr(disk, "gram_bands", None)
    monkeypatch.setattr(disk.SlicedProducts, "solve", None)
    again, same = fit(tmp_path, budget=1)  # nothing is left to do
    np.testing.assert_array_equal(again.data, expected)
    assert same == residual
    remove_tiles(tmp_path)
    assert not tmp_path.exists()
    np.testing.assert_array_equal(first.data, expected)  # still mapped
    tmp_path.mkdir()


def begun(folder):
    """A folder with one pivot done."""
    killed(folder, 3, "replace")
    with TileFolder(folder, about()) as tiles:
        return folder / f"deql-tiles-{tiles.checkpoint.generation}.bin"


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (flip, "bin is damaged: rows 48 to 49 of its columns 8 to 15 do not match their checksum; delete the folder"),
        (lambda path: os.truncate(path, 1000), "bin is not of its size"),
        (lambda path: path.unlink(), "bin is missing: delete the folder to begin again"),
        (lambda path: flip(path.with_name("deql-tiles.json")), "json is damaged: delete the folder"),
        (lambda path: path.with_name("deql-tiles.json").write_text("{}"), "json is damaged"),
        (lambda path: flip(path.with_name("deql-probes.npy")), "npy is missing or damaged"),
        (lambda path: path.with_name("deql-probes.npy").unlink(), "npy is missing or damaged"),
        (lambda path: path.with_name("notes.txt").touch(), "holds other files, notes.txt for one: name an empty"),
    ],
)
def test_what_is_damaged_is_said_and_left_alone(tmp_path, damage, message):
    holds = begun(tmp_path)
    damage(holds)

    def contents():  # of all but the file that is written next
        return {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.suffix != ".bin" or path == holds}

    before = contents()
    with pytest.raises(TileFileError, match=message):
        fit(tmp_path)
    assert contents() == before


def test_the_file_that_does_not_hold_the_matrix_may_be_gone(tmp_path, expected):
    holds = begun(tmp_path)
    for path in tmp_path.glob("*.bin"):
        if path != holds:
            path.unlink()
    np.testing.assert_array_equal(fit(tmp_path)[0].data, expected)


def test_a_damaged_result_is_not_given_out(tmp_path):
    fit(tmp_path)
    flip(next(tmp_path.glob("*.bin")))
    with pytest.raises(TileFileError, match="do not match their checksum"):
        fit(tmp_path)


def test_a_folder_of_another_fit_or_in_use_is_refused(tmp_path):
    begun(tmp_path)
    with pytest.raises(TileFileError, match="tiles of another fit"):
        fit(tmp_path, fingerprint="b")
    with pytest.raises(TileFileError, match="tiles of another fit"):
        fit(tmp_path, dtype=np.float32)
    with TileFolder(tmp_path, about()):
        with pytest.raises(TileFileError, match="in use"):
            fit(tmp_path)
        with pytest.raises(TileFileError, match="in use"):
            remove_tiles(tmp_path)
    fit(tmp_path)


def test_another_version_is_refused(tmp_path):
    manifest = begun(tmp_path).with_name("deql-tiles.json")
    manifest.write_text(manifest.read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(TileFileError, match="version 2, this library reads 1"):
        fit(tmp_path)


@pytest.mark.parametrize(("make", "message"), [(Path.touch, "exists"), (lambda path: None, "no such")])
def test_a_folder_that_cannot_be_is_said(tmp_path, make, message):
    make(tmp_path / "tiles")
    with pytest.raises(TileFileError, match=message):
        fit(tmp_path / "tiles" if message == "exists" else tmp_path / "no" / "tiles")


def test_a_full_disk_is_said_and_the_fit_can_go_on(tmp_path, monkeypatch, expected):
    with monkeypatch.context() as patch:
        die_at(patch, 90, error=OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(TileFileError, match="no space left on device; put that right and fit with the same folder"):
            fit(tmp_path)
    np.testing.assert_array_equal(fit(tmp_path)[0].data, expected)


def test_a_full_disk_at_a_manifest_is_said_and_the_fit_can_go_on(tmp_path, monkeypatch, expected):
    with monkeypatch.context() as patch:
        die_at(patch, 3, "replace", OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(TileFileError, match="json cannot be written: no space left on device; put that right"):
            fit(tmp_path)
    np.testing.assert_array_equal(fit(tmp_path)[0].data, expected)


def test_a_folder_that_disappears_is_said(tmp_path):
    def remove(done, total):
        shutil.rmtree(tmp_path / "tiles", ignore_errors=True)

    with pytest.raises(TileFileError, match="cannot be written: no such file"):
        fit(tmp_path / "tiles", stage=lambda label: remove if label == "Inverse" else None)


def test_a_full_disk_without_a_folder_is_said(monkeypatch):
    die_at(monkeypatch, 90, error=OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(TileFileError, match="no space left on device; name a folder with more room"):
        fit()


def test_too_little_room_is_said_before_the_work(tmp_path, monkeypatch):
    room = disk_needed(N, np.float64, TILE)
    usage = namedtuple("usage", "free")
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(room - 1))
    with pytest.raises(TileFileError, match="the tiles take"):
        fit(tmp_path / "tiles")
    assert not any(tmp_path.iterdir())
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage(room))
    fit(tmp_path / "tiles")


def test_a_budget_that_is_too_small_names_one_that_works(tmp_path):
    least = least_budget(300, np.float32, 64)
    with pytest.raises(ParameterError, match=r"300 items on disk: at least 1 MiB are needed"):
        fit(tmp_path / "tiles", n=300, tile=64, dtype=np.float32, budget=least - 1)
    assert not any(tmp_path.iterdir())
    assert fit(n=200, tile=64, budget=least_budget(200, np.float64, 64))[1] < 1e-12


def test_a_fit_goes_on_with_its_own_pivots_or_not_at_all(tmp_path, expected):
    begun(tmp_path)
    with pytest.raises(ParameterError, match="too little to go on"):
        fit(tmp_path, budget=working_memory(N, TILE, np.float64, PIVOT) - 1)
    np.testing.assert_array_equal(fit(tmp_path, budget=2**30)[0].data, expected)


_PEAK = """
import sys, tracemalloc
from tests.linalg.engines.test_disk import Problem, fit, invert_on_disk, np, table
n, budget, folder, tile = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
fit(n=10)  # imports
R, empty = table(n), np.zeros(n)
tracemalloc.start()
# It goes on, so that the Gram matrix is not counted.
invert_on_disk(Problem(R, empty), budget, folder=folder, fingerprint="a", tile=tile)
print(tracemalloc.get_traced_memory()[1])
"""


def test_no_more_memory_is_taken_than_the_budget(tmp_path):
    n, tile, pivot = 640, 32, 160
    killed(tmp_path, 2, "replace", n=n, tile=tile, pivot=pivot, dtype=np.float32)
    budget = working_memory(n, tile, np.float32, pivot)
    # In a process of its own, as threads of other tests' clusters take memory, too.
    command = [sys.executable, "-c", _PEAK, str(n), str(budget), str(tmp_path), str(tile)]
    ended = subprocess.run(command, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, text=True, check=True)
    peak = int(ended.stdout)
    at_once = 3 * min(pivot, 256) ** 2 * 4  # what mirror_lower copies, however wide the pivot
    assert 0.8 * budget < peak < budget + at_once + 2**17


@pytest.mark.parametrize("left", [-1.0, 1e-3])  # of the diagonal: seen before the work, and at the pivot
def test_what_has_no_inverse_is_said_and_not_kept(tmp_path, left):
    own = weighted_diagonal(table(), user_weights(table(), 0.5))
    with pytest.raises(NotPositiveDefiniteError) as caught:
        fit(tmp_path / "tiles", added=np.where(np.arange(N) == 37, left - own, 1.0))
    assert caught.value.indices == [37]
    assert not any(tmp_path.iterdir())


def test_an_inaccurate_inverse_is_refused_and_not_kept(tmp_path, monkeypatch):
    monkeypatch.setitem(check_inverse.__globals__, "LARGEST_RESIDUAL", 1e-30)
    with pytest.raises(InaccurateInverseError):
        fit(tmp_path / "tiles")
    assert not any(tmp_path.iterdir())


def test_removing_tiles_leaves_other_files(tmp_path):
    fit(tmp_path)
    (tmp_path / "notes.txt").touch()
    remove_tiles(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(TileFileError, match="holds no tiles"):
        remove_tiles(tmp_path)
    with pytest.raises(TileFileError, match="no folder"):
        remove_tiles(tmp_path / "none")


def test_sizes_for_the_planner():
    assert disk_needed(100, np.float64, 30) == 2 * 8 * PackedSymmetric.stored_numbers(100, 30)
    assert least_budget(20_108, "float32") < 2**27
    assert least_budget(20_108, "float64") < 2**28


@pytest.mark.parametrize(
    "change",
    [
        {"pivot": 0}, {"pivot": "x"}, {"pivot": 12}, {"done": -1}, {"done": 99}, {"done": 1.5}, {"generation": 7},
        {"checksums": ["a"]}, {"checksums": None}, {"matrix": None, "probes": None},
    ],
    ids=repr,
)  # fmt: skip
def test_a_manifest_without_sense_and_with_a_right_checksum(tmp_path, change):
    killed(tmp_path, 3, "replace")
    place = tmp_path / "deql-tiles.json"
    content = json.loads(json.loads(place.read_text())["content"]) | change
    text = json.dumps({name: value for name, value in content.items() if value is not None})
    checksum = xxhash.xxh3_64_hexdigest(text.encode())
    place.write_text(json.dumps({"deql": "tiles", "version": 1, "checksum": checksum, "content": text}))
    with pytest.raises(TileFileError, match="is damaged"):
        fit(tmp_path)


def test_probes_whose_header_is_none(tmp_path):
    killed(tmp_path, 3, "replace")
    probes = tmp_path / "deql-probes.npy"
    probes.write_bytes(probes.read_bytes().replace(b"}", b"(", 1))
    with pytest.raises(TileFileError, match="missing or damaged"):
        fit(tmp_path)
