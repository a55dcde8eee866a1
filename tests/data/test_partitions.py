"""Partitions: the same interactions as those of the table read at once, and folders that are whole or not at all."""

import json
import pickle
import re
import subprocess
import sys
import zlib
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deql
from deql.data import partition_folder, partition_runs, partition_writer
from deql.data.partition_folder import MANIFEST, new_folder
from deql.errors import DataError, ParameterError


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "eaten.parquet"
    r = np.random.default_rng(0)
    frame = pl.DataFrame({"user": r.integers(0, 40, 300), "item": r.integers(0, 25, 300), "rating": r.random(300)})
    frame.write_parquet(path)
    return path


def same(joined, whole):
    assert joined.users.tolist() == whole.users.tolist()
    assert joined.items.tolist() == whole.items.tolist()
    assert joined.items.dtype == whole.items.dtype
    assert joined.users.dtype == whole.users.dtype
    assert (joined.matrix != whole.matrix).nnz == 0
    assert joined.matrix.dtype == whole.matrix.dtype


@pytest.mark.parametrize("weight", [None, "rating"])
@pytest.mark.parametrize("partitions", [None, 1, 7, 1000])
def test_parts_hold_the_same_interactions(table, partitions, weight):
    data = deql.read_partitions(table, "user", "item", weight, partitions=partitions)
    whole = deql.read_interactions(table, "user", "item", weight)
    same(data.to_interactions(), whole)
    assert (data.n_users, data.n_items, data.n_interactions) == (*whole.shape, whole.n_interactions)
    assert data.item_counts.tolist() == np.bincount(whole.matrix.indices, minlength=whole.n_items).tolist()
    assert data.weighted is (weight is not None)
    assert data.pairs == int((np.diff(whole.matrix.indptr).astype(int) ** 2).sum())
    owners = [user for part in data.parts for user in part.load_with_users()[0].tolist()]
    assert sorted(owners) == whole.users.tolist()  # nobody is in two parts
    for part, block in zip(data.parts, data.blocks(), strict=True):
        assert (part.n_users, part.n_interactions) == (block.shape[0], block.nnz)
        assert block.has_sorted_indices
        assert block.indices.dtype == np.int32
        assert block.shape[1] == whole.n_items


IDS = st.one_of(
    st.lists(st.integers(-5, 30), min_size=1, max_size=30),
    st.lists(st.sampled_from(["7", "07", "x1", "é2", "-3", "tea 1", "9"]), min_size=1, max_size=30),
)


@settings(max_examples=60, deadline=None)
@given(
    users=IDS,
    items=IDS,
    weights=st.one_of(st.none(), st.lists(st.sampled_from([0.0, 0.1, 1.0, 2.5]), min_size=30, max_size=30)),
    run=st.integers(1, 12),
    fan=st.integers(2, 64),
    partitions=st.one_of(st.none(), st.integers(1, 9)),
    as_csv=st.booleans(),
)
def test_any_table(tmp_path_factory, users, items, weights, run, fan, partitions, as_csv):
    rows = min(len(users), len(items))
    columns = {"user": users[:rows], "item": items[:rows]} | ({} if weights is None else {"w": weights[:rows]})
    path = tmp_path_factory.mktemp("table") / ("t.csv" if as_csv else "t.parquet")
    frame = pl.DataFrame(columns)
    frame.write_csv(path) if as_csv else frame.write_parquet(path)
    weight = None if weights is None else "w"
    options = {"user": "user", "item": "item", "weight": weight}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_writer, "_RUN", run)
        patch.setattr(partition_runs, "_FAN", fan)
        try:
            whole = deql.read_interactions(path, **options)
        except DataError as error:
            with pytest.raises(DataError, match=re.escape(str(error))):
                deql.read_partitions(path, **options, partitions=partitions)
            return
        data = deql.read_partitions(path, **options, partitions=partitions)
    same(data.to_interactions(), whole)
    assert data.weighted == bool((whole.matrix.data != 1).any())


def test_weights_that_add_up_to_zero(tmp_path):
    """They are no interactions, as in a table that is read at once; whom nothing else is left of goes with them."""
    path = tmp_path / "t.csv"
    rows = ["ann,ale,2", "ann,ale,-2", "ann,tea,1", "bob,jam,3", "bob,jam,-3", "eve,tea,1", "eve,oat,2", "eve,oat,-1"]
    path.write_text("\n".join(["user,item,w", *rows]) + "\n")
    data = deql.read_partitions(path, "user", "item", "w", min_weight=-5.0, partitions=3)
    whole = deql.read_interactions(path, "user", "item", "w", min_weight=-5.0)
    same(data.to_interactions(), whole)
    assert (data.n_interactions, data.item_counts.tolist(), data.weighted) == (3, [1, 2], False)
    assert sum(block.nnz for block in data.blocks()) == 3
    assert data.steps[-2:] == (("repeated pairs merged", 5), ("weights that add up to 0 left out", 3))
    path.write_text("user,item,w\nann,ale,2\nann,ale,-2\n")
    with pytest.raises(DataError, match=r"nothing is left of .* after the step “weights that add up to 0 left out”"):
        deql.read_partitions(path, "user", "item", "w", min_weight=-5.0, folder=tmp_path / "parts")
    assert [file.name for file in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.parametrize("fan", [2, 64])
def test_text_that_begins_as_numbers(tmp_path, monkeypatch, fan):
    monkeypatch.setattr(partition_writer, "_RUN", 2)
    monkeypatch.setattr(partition_runs, "_FAN", fan)
    path = tmp_path / "t.parquet"
    users = ["1", "2", "1", "2", "a", "1", "2", "a"]
    pl.DataFrame({"user": users, "item": ["5", "6", "6", "7", "b", "7", "5", "5"]}).write_parquet(
        path, row_group_size=2
    )
    from deql.data.readers import frames

    monkeypatch.setattr(frames, "_BATCH", 2)
    data = deql.read_partitions(path, "user", "item", partitions=5)
    same(data.to_interactions(), deql.read_interactions(path, "user", "item"))


@pytest.mark.parametrize("kind", [int, str])
def test_runs_are_merged_without_a_trace(tmp_path, monkeypatch, kind):
    """So many rows that runs are merged on several levels: every file is that of one run, to the last byte."""
    r = np.random.default_rng(0)
    users, items = r.integers(0, 500, 3000), r.integers(0, 40, 3000)
    table = tmp_path / "t.parquet"
    frame = pl.DataFrame({"user": [kind(user) for user in users], "item": [kind(item) for item in items]})
    frame.with_columns(w=pl.Series(r.random(3000))).write_parquet(table)
    monkeypatch.setattr("deql.data.readers.frames._BATCH", 7)
    folders = {}
    for name, run, fan in (("one", 4000, 64), ("many", 50, 3), ("unmerged", 50, 1000)):
        monkeypatch.setattr(partition_writer, "_RUN", run)
        monkeypatch.setattr(partition_runs, "_FAN", fan)
        deql.read_partitions(table, "user", "item", "w", folder=tmp_path / name, partitions=20)
        folders[name] = {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
    assert len(folders["one"]) == 22
    assert folders["one"] == folders["many"] == folders["unmerged"]


def test_files_are_opened_about_as_often_as_there_are_rows(tmp_path, monkeypatch):
    """Where no runs are merged every part reads some of every run: 2,938 files here, 15 times those of 2,000 rows."""
    for module, name, rows in (
        ("readers.frames", "_BATCH", 200), ("partition_writer", "_RUN", 200), ("partition_writer", "_PART", 100)
    ):  # fmt: skip
        monkeypatch.setattr(f"deql.data.{module}.{name}", rows)
    monkeypatch.setattr(partition_runs, "_FAN", 4)
    opened, scan = [], pl.scan_ipc
    monkeypatch.setattr(pl, "scan_ipc", lambda path: opened.append(path) or scan(path))
    counts = []
    for rows in (2000, 8000):
        users = np.random.default_rng(0).integers(0, rows, rows)
        pl.DataFrame({"user": users, "item": users % 30}).write_parquet(tmp_path / "t.parquet")
        opened.clear()
        deql.read_partitions(tmp_path / "t.parquet", "user", "item")
        counts.append(len(opened))
    assert counts[1] < min(1000, 7 * counts[0])


def test_options_of_reading(table, capsys):
    data = deql.read_partitions(table, min_weight=0.5)
    assert "user = user, item = item" in capsys.readouterr().err
    same(data.to_interactions(), deql.read_interactions(table, min_weight=0.5))
    assert [what for what, _ in data.steps] == ["read", "rating ≥ 0.5", "repeated pairs merged"]
    text = deql.read_partitions(table, "user", "item", ids="text")
    same(text.to_interactions(), deql.read_interactions(table, "user", "item", ids="text"))


def test_a_pattern_and_a_folder_of_files(tmp_path, table):
    frame = pl.read_parquet(table)
    (tmp_path / "logs").mkdir()
    for place in range(3):
        frame[place::3].write_parquet(tmp_path / "logs" / f"{place}.parquet")
    whole = deql.read_interactions(table, "user", "item")
    for source in (tmp_path / "logs", tmp_path / "logs" / "*.parquet"):
        same(deql.read_partitions(source, "user", "item").to_interactions(), whole)
    with pytest.raises(DataError, match="no file is like"):
        deql.read_partitions(tmp_path / "logs" / "*.csv")


def test_a_folder_is_kept_and_opened_again(tmp_path, table):
    made = deql.read_partitions(table, "user", "item", "rating", folder=tmp_path / "parts", partitions=4)
    assert [part.path.name for part in made.parts] == [f"part-{place:05d}.parquet" for place in range(4)]
    assert made.parts[0].path.parent == tmp_path / "parts"
    again = deql.read_partitions(tmp_path / "parts")
    same(again.to_interactions(), made.to_interactions())
    assert repr(again) == repr(made)
    assert repr(made).startswith("PartitionedInteractions(40 users × 25 items, ")
    names = {path.name for path in (tmp_path / "parts").iterdir()}
    assert names == {MANIFEST, "items.parquet", *(part.path.name for part in made.parts)}
    part = pickle.loads(pickle.dumps(again.parts[0]))
    assert (part.load() != made.parts[0].load()).nnz == 0


def test_scratch_goes_with_the_last_object(table):
    data = deql.read_partitions(table, "user", "item")
    folder, copy = data.folder, pickle.loads(pickle.dumps(data))
    wider = replace(data, items=np.append(data.items, 99))
    del data, copy
    assert [block.shape[1] for block in wider.blocks()] == [26]
    del wider
    assert not folder.exists()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda folder: (folder / "part-00001.parquet").unlink(), "part-00001.parquet is missing"),
        (lambda folder: (folder / "items.parquet").unlink(), "items.parquet is missing"),
        (lambda folder: (folder / "items.parquet").write_bytes(b"PAR1"), "items.parquet is damaged"),
        (lambda folder: (folder / MANIFEST).write_text("{"), "partitions.json is damaged"),
        (lambda folder: (folder / MANIFEST).write_text("{}"), "is no manifest"),
        (lambda folder: _rewrite(folder, users=3), "partitions.json is damaged"),
        (lambda folder: _rewrite(folder, version=9), "update deql"),
    ],
)
def test_damaged_folders(tmp_path, table, harm, said):
    folder = tmp_path / "parts"
    deql.read_partitions(table, "user", "item", folder=folder, partitions=3)
    harm(folder)
    with pytest.raises(DataError, match=said):
        deql.read_partitions(folder)


def _rewrite(folder, **facts):
    path = folder / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))


def test_what_another_process_has_begun_meanwhile_stays(tmp_path, monkeypatch):
    whole, begun = partition_folder.sync, tmp_path / ".parts.partial"

    def sync(path):
        whole(path)
        if path == tmp_path:  # the folder has its name by then
            begun.mkdir()

    monkeypatch.setattr(partition_folder, "sync", sync)
    with new_folder(tmp_path / "parts") as building:
        (building / "a").write_text("tea")
    assert begun.is_dir()
    assert (tmp_path / "parts" / "a").read_text() == "tea"


def test_a_folder_without_its_manifest_is_no_table(tmp_path, table):
    deql.read_partitions(table, "user", "item", folder=tmp_path / "parts")
    (tmp_path / "parts" / MANIFEST).unlink()
    for read in (deql.read_interactions, deql.read_partitions):
        with pytest.raises(DataError, match=r"parts has partitions, but not their manifest, partitions\.json"):
            read(tmp_path / "parts")


def test_what_lies_in_a_folder_is_no_table(tmp_path, table):
    """Read as one, its items would be numbers of columns in place of ids."""
    deql.read_partitions(table, "user", "item", folder=tmp_path / "parts")
    for name in ("", "part-00000.parquet", "part-*.parquet", "*.parquet", "items.parquet"):
        with pytest.raises(DataError, match="parts is a folder of partitions: name a table here, or open it with"):
            deql.read_interactions(tmp_path / "parts" / name, "user", "item")


def test_a_damaged_part_is_told_when_it_is_read(tmp_path, table):
    data = deql.read_partitions(table, "user", "item", folder=tmp_path / "parts", partitions=3)
    path = data.parts[1].path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert zlib.crc32(content) != data.parts[1].checksum
    with pytest.raises(DataError, match=r"part-00001.parquet is damaged: .* partition the table again"):
        data.to_interactions()


def test_what_cannot_be_partitioned(tmp_path, table):
    (tmp_path / "there").mkdir()
    deql.read_partitions(table, "user", "item", folder=tmp_path / "parts")
    pl.DataFrame({"user": [], "item": []}, schema={"user": pl.Int64, "item": pl.Int64}).write_parquet(
        tmp_path / "empty.parquet"
    )
    pl.DataFrame({"user": [1], "item": [2], "w": [-1.0]}).write_parquet(tmp_path / "signed.parquet")
    pl.DataFrame({"user": [1], "item": [2], "w": [0.0]}).write_parquet(tmp_path / "zero.parquet")
    for source, options, said in [
        (table, {"folder": tmp_path / "there"}, "exists already"),
        (table, {"folder": tmp_path / "parts"}, "is a folder of partitions already"),
        (table, {"folder": tmp_path / "no" / "parts"}, "there is no folder"),
        (table, {"user": "nobody"}, "has no column 'nobody'"),
        (tmp_path / "empty.parquet", {}, "has no rows"),
        (tmp_path / "gone.parquet", {}, "there is no file"),
        (tmp_path / "signed.parquet", {"weight": "w"}, "row 1: the weight -1 is negative"),
        (tmp_path / "zero.parquet", {"weight": "w"}, "nothing is left"),
    ]:
        with pytest.raises(DataError, match=said):
            deql.read_partitions(source, **{"user": "user", "item": "item"} | options)
    for options in ({"partitions": 0}, {"partitions": 2**20}, {"ids": "roman"}):
        with pytest.raises(ParameterError):
            deql.read_partitions(table, "user", "item", **options)
    frame = pl.read_parquet(table)
    for source, options, said in [
        *(
            (source, {}, "^expected a table's path, or a list of several, got")
            for source in (None, frame, [frame], [], 5)
        ),
        (table, {"folder": 5}, "^folder must be a path, got int"),
        (tmp_path, {"folder": tmp_path / "sub"}, "would be read with .* from then on: name a folder outside of it"),
    ]:
        with pytest.raises(ParameterError, match=said):
            deql.read_partitions(source, **options)
    with pytest.raises(ParameterError, match="partitioned already: leave out partitions"):
        deql.read_partitions(tmp_path / "parts", partitions=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["eaten.parquet", "empty.parquet", "signed.parquet", "zero.parquet", "there", "parts"]
    )


def test_an_interrupted_write_leaves_nothing(tmp_path, table, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(partition_writer, "write_manifest", interrupted)
    with pytest.raises(KeyboardInterrupt):
        deql.read_partitions(table, "user", "item", folder=tmp_path / "parts")
    assert [path.name for path in tmp_path.iterdir()] == ["eaten.parquet"]


def test_what_a_killed_process_left_is_taken_over(tmp_path, table):
    left = tmp_path / ".parts.partial"
    left.mkdir()
    (left / "run-00000.arrow").write_bytes(b"x")
    deql.read_partitions(table, "user", "item", folder=tmp_path / "parts")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["eaten.parquet", "parts"]
    assert not list((tmp_path / "parts").glob("run*"))


def test_a_full_disk_is_told(tmp_path, table, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(partition_writer, "write_frame", full)
    with pytest.raises(DataError, match="parts could not be written: no space left on device"):
        deql.read_partitions(table, "user", "item", folder=tmp_path / "parts")
    assert not (tmp_path / ".parts.partial").exists()


def test_too_large_to_join(table, monkeypatch):
    data = deql.read_partitions(table, "user", "item", partitions=2)
    monkeypatch.setattr("deql.data.partitions.free_memory", lambda: 1000)
    with pytest.raises(deql.TooLargeError, match=r"[0-9]+ interactions take .* reads the 2 parts one by one"):
        data.to_interactions()


_PEAK = """
import resource, sys
import numpy as np, polars as pl
import deql
from deql.data import partition_writer
partition_writer._RUN = partition_writer._PART = 2**18
deql.read_partitions(sys.argv[1], "user", "item")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
deql.read_partitions(sys.argv[2], "user", "item")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path):
    r = np.random.default_rng(0)
    for name, rows in (("small", 10**6), ("large", 8 * 10**6)):
        frame = pl.DataFrame({"user": r.integers(0, rows // 8, rows), "item": r.integers(0, 5000, rows)})
        frame.write_parquet(tmp_path / f"{name}.parquet", row_group_size=2**17)
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, tmp_path / "small.parquet", tmp_path / "large.parquet"],
        capture_output=True,
        text=True,
        check=True,
    )
    # The rows themselves would take 128 MB as they are read.
    assert int(done.stdout) < 80 * 10**6
