"""Files that unpack to far more than any table: refused before they fill memory or take hours, unless allowed."""

import gzip

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array, save_npz

import deql
from deql.data.readers import blocks
from tests.cli.test_cli import answer, refusal

ROWS = b"".join(b"u%d,i%d\n" % (user, item) for user in range(50) for item in range(1, 12) if (user * item) % 3)


@pytest.fixture
def small_limit(monkeypatch):
    monkeypatch.setattr(blocks, "_MOST_UNPACKED", 2**22)


def packed_text(path):
    content = b"user,item\n" + ROWS * 4000
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content))
    else:
        path.write_bytes(blocks._zstd().compress(content))


def packed_matrix(path):
    save_npz(path, csr_array((np.ones(2**20, np.float64), (np.arange(2**20) // 1024, np.arange(2**20) % 1024))))


def packed_rows(path):
    pl.DataFrame({"user": np.arange(2**20) // 2**16, "item": np.zeros(2**20, np.int64)}).write_parquet(path)


WRITERS = {"a.csv.gz": packed_text, "a.csv.zst": packed_text, "a.npz": packed_matrix, "a.parquet": packed_rows}


@pytest.mark.parametrize("name", WRITERS)
def test_is_refused_unless_allowed(capsys, tmp_path, small_limit, name):
    path = tmp_path / name
    WRITERS[name](path)
    with pytest.raises(deql.DataError, match=r"as no table does.*allow more with max_unpacked=…"):
        deql.read_interactions(path)
    said = refusal(capsys, "data", "convert", path, "-o", tmp_path / "b.csv")
    assert "unpack it first or allow more with --max-unpacked" in said
    assert deql.read_interactions(path, max_unpacked="1GiB").n_interactions
    with pytest.raises(deql.DataError, match=r"more than 4 MiB, as allowed"):
        deql.read_interactions(path, max_unpacked=2**22)


def packed_titles(path):
    count = 2**19
    if path.suffix == ".parquet":
        pl.DataFrame({"item": ["i1"] * count, "title": ["Tea"] * count}).write_parquet(path)
        return
    row = b'{"item": "i1", "title": "Tea"}\n' if ".jsonl" in path.name else b"i1,Tea of the morning\n"
    path.write_bytes(gzip.compress((b"" if ".jsonl" in path.name else b"item,title\n") + row * count))


@pytest.mark.parametrize("name", ["t.csv.gz", "t.jsonl.gz", "t.parquet"])
def test_what_is_allowed_counts_for_titles_too(capsys, tmp_path, small_limit, name):
    packed_titles(tmp_path / name)
    (tmp_path / "a.csv").write_bytes(b"user,item\n" + ROWS)
    save_npz(tmp_path / "a.npz", csr_array(np.eye(3)))
    command = ("data", "info", tmp_path / "a.csv", "--items", tmp_path / name)
    assert f"{name} has" in (said := refusal(capsys, *command))
    assert "allow more with --max-unpacked" in said
    assert answer(capsys, *command, "--max-unpacked", "1GiB")["items"] == 8
    with pytest.raises(deql.DataError, match="no item has a title"):  # a matrix has numbers for items
        deql.read_interactions(tmp_path / "a.npz", items=tmp_path / name, max_unpacked="1GiB")


def test_a_folder_of_parts_and_an_ordinary_file_are_read(capsys, tmp_path, small_limit):
    generator = np.random.default_rng(0)
    rows = b"".join(b"%d,%d\n" % tuple(pair) for pair in generator.integers(0, 10**6, (10**5, 2)).tolist())
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"user,item\n" + rows))
    assert answer(capsys, "data", "info", tmp_path / "a.csv.gz")["interactions"] > 99_000
    packed_text(tmp_path / "b.csv.gz")
    assert "b.csv.gz" in refusal(capsys, "data", "info", tmp_path)
    assert answer(capsys, "data", "info", tmp_path, "--max-unpacked", "100MiB")["users"] > 50


def test_histories_to_recommend_for(capsys, tmp_path, small_limit):
    packed_text(tmp_path / "a.csv.gz")
    (tmp_path / "a.csv").write_bytes(b"user,item\n" + ROWS)
    deql.EASE(l2=1.0).fit(deql.read_interactions(tmp_path / "a.csv")).save(tmp_path / "shop.deql")
    command = ("recommend", tmp_path / "shop.deql", "--histories", tmp_path / "a.csv.gz", "-k", 1)
    assert "allow more with --max-unpacked" in refusal(capsys, *command)
    assert len(answer(capsys, *command, "--include-seen", "--max-unpacked", "1GiB")) == 33


def test_nonsense_is_refused(capsys, tmp_path):
    packed_text(tmp_path / "a.csv.gz")
    assert "--max-unpacked must be" in refusal(capsys, "data", "info", tmp_path / "a.csv.gz", "--max-unpacked", "much")


def test_a_star_in_a_name_is_a_letter(tmp_path):
    for name in ("a*.parquet", "ab.parquet"):
        pl.DataFrame({"user": [1, 2], "item": [ord(name[1]), 3]}).write_parquet(tmp_path / name)
    assert deql.read_interactions(tmp_path / "a*.parquet", "user", "item").items.tolist() == [3, ord("*")]
