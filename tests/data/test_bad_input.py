"""Bad input: one sentence with the file, the line and what to do; exit code 2; nothing half-written."""

import gzip
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from backports import zstd
from scipy.sparse import csr_array, save_npz

from deql import DeqlError, read_interactions
from deql.cli import run
from tests.data.reading import cells, put, refusal, small_blocks

LONG = "user,item\n" + "".join(f"{i},{i * 7 % 1001}\n" for i in range(50_000))
CUT_GZ, CUT_ZST = gzip.compress(LONG.encode()), zstd.compress(LONG.encode())

# name of the file: (what is in it, what the sentence says after the file's name); all columns are used.
BAD = {
    "empty.csv": (b"", " is empty"),
    "empty.csv.gz": (b"", " is empty"),
    "empty.csv.zst": (b"", " is empty"),
    "nothing-packed.csv.gz": (gzip.compress(b""), " is empty"),
    "blank.csv": ("\n \n\r\n", " is empty"),
    "mark.csv": ("\ufeff", " is empty"),
    "header.csv": ("user,item,weight\n", " has no rows"),
    "header-without-end.csv": ("user,item,weight", " has no rows"),
    "header.inter": ("user_id:token\titem_id:token\trating:float\n", " has no rows"),
    "one-column.csv": ("user\n1\n2\n", " has no column that looks like the item's: say item=… with one of 'user'"),
    "strange.csv": ("who,what,when\n1,2,3\n", " has no column that looks like the user's: say user=…"),
    "word.csv": (
        "user,item,weight\n1,2,3\n1,3,much\n",
        ", line 3: 'much' in column weight is not a number: correct it",
    ),
    "comma.csv": ("user;item;weight\n1;2;3\n1;3;1,5\n", ", line 3: '1,5' in column weight is not a number"),
    "infinite.csv": ("user,item,weight\n1,2,3\n\n1,3,inf\n", ", line 4: 'inf' in column weight is not finite"),
    "nan.csv": ("user,item,weight\n1,2,NaN\n1,3,1\n", ", line 2: 'NaN' in column weight is not finite"),
    "huge.csv": ("user,item,weight\n1,2,1e999\n", ", line 2: '1e999' in column weight is not finite"),
    "negative.csv": ("user,item,weight\n1,2,1\n1,3,-1.5\n", ", line 3: the weight -1.5 is negative: .*min_weight"),
    "hole.csv": ("user,item,weight\n1,2,3\n1,,3\n", ", line 3: column item is empty here: fill in or remove the row"),
    "hole-first.csv": ("user,item,weight\n1,2,3\n,2,3\n", ", line 3: column user is empty here"),
    "hole-quoted.csv": ('user,item,weight\n1,2,3\n1,"",3\n', ", line 3: column item is empty here"),
    "hole-weight.csv": ("user,item,weight\n1,2,3\n1,5,\n", ", line 3: column weight is empty here"),
    "nothing-in-row.csv": ("user,item,weight\na,b,3\n,,\nc,d,x\n", ", line 3: column user is empty here"),
    "few.csv": ("user,item,weight\n1,2,3\n1,3\n", ", line 3: column weight is empty here"),
    "many.csv": ("user,item,weight\n1,2,3\n1,3,4,5\n", ", line 3: 4 fields where the table has 3: quote"),
    "again.csv": (
        "user,item,weight\n1,2,3\nuser,item,weight\n1,3,4\n",
        ", line 3: the header stands here again .*remove",
    ),
    "again-text.csv": ("user,item,weight\na,b,3\n\nuser,item,weight\n", ", line 4: the header stands here again"),
    "again-quoted.csv": (
        'user,item,weight\n"a","b\nc",3\nuser,item,weight\n',
        ", line 4: the header stands here again",
    ),
    "null.csv": ("user,item,weight\n1,2,3\n2,2,3\nNULL,2,3\n", ", line 4: 'NULL' in column user, .*correct or remove"),
    "null-item.csv": ('user,item,weight\n"1",2,3\n2,2,3\n3,none,3\n', ", line 4: 'none' in column item, .*ids='text'"),
    "open.csv": ('user,item,weight\na,b,1\na,"b,1\nc,d,2\n', ", line 3: a quotation mark is opened and never closed"),
    "inch.csv": ('user,item,weight\na,b,1\nc,5" nail,1\nd,e,2\n', ", line 3.*quotation mark"),
    "latin.csv": (
        "user,item,weight\na,b,1\na,café,2\n".encode("latin-1"),
        ", line 3: byte 6 is not UTF-8: say encoding='latin-1'",
    ),
    "latin.json": (
        '{"user": "a", "item": 1}\n{"user": "é", "item": 1}\n'.encode("latin-1"),
        ", line 2: .*UTF-8: say encoding='latin-1'",
    ),
    "latin.txt": ("0 1 2\n1 caf\xe9\n".encode("latin-1"), ", line 2: .*UTF-8: say encoding='latin-1'"),
    "utf16.csv": ("user,item\n1,2\n".encode("utf-16"), " looks like utf-16: say encoding='utf-16'"),
    "noise.csv": (bytes(range(256)) * 20, ""),
    "noise.json": (b"\xff\xfe\x00\x81" * 50, ""),
    "noise.inter": (b"\xfe\x81\x92\n" * 50, ""),
    "noise.parquet": (b"\xff\xfe\x00\x81" * 50, " cannot be read as Parquet .*: is it whole"),
    "noise.npz": (b"\xff\xfe\x00\x81" * 50, " is not a sparse matrix saved by scipy.sparse.save_npz"),
    "empty.parquet": (b"", " cannot be read as Parquet"),
    "empty.npz": (b"", " is not a sparse matrix"),
    "sheet.xlsx": (b"PK\x03\x04\x14\x00\x06\x00", " is not a text file"),
    "packed-inside.csv": (gzip.compress(b"user,item\n1,2\n"), " is not a text file"),
    "prose.txt": ("It was a dark night.\nAnd a stormy one.\n", " has no column that looks like the user's"),
    "plain.csv.gz": ("user,item\n1,2\n", " cannot be read .*gzip.*: copy or download it again, .*ending"),
    "plain.csv.zst": ("user,item\n1,2\n", " cannot be read .*: copy or download it again, .*ending"),
    "tail.csv.gz": (gzip.compress(b"user,item\n1,2\n") + b"tail", " cannot be read .*: copy or download it again"),
    "cut.csv.gz": (CUT_GZ[: len(CUT_GZ) // 2], " is cut short: .*copy or download it again"),
    "cut-early.csv.gz": (CUT_GZ[:12], " is cut short"),
    "cut-late.csv.gz": (CUT_GZ[:-3], " is cut short"),
    "cut.csv.zst": (CUT_ZST[: len(CUT_ZST) // 2], " is cut short: .*copy or download it again"),
    "cut-late.csv.zst": (CUT_ZST[:-2], " is cut short"),
    "flipped.csv.gz": (CUT_GZ[:-6] + b"\0\1\2" + CUT_GZ[-3:], " cannot be read .*: copy or download it again"),
    "array.json": ('[{"user": 1, "item": 2}]\n', " holds a JSON array: write one object a line"),
    "pretty.json": ('{\n "user": 1,\n "item": 2\n}\n', ", line 1: this is not JSON .*one object"),
    "broken.json": ('{"user": 1, "item": 2}\n\n{"user": 1, "item": 2\n', ", line 3: this is not JSON .*one object"),
    "cut.json": ('{"user": 1, "item": 2}\n{"user": 1, "i', ", line 2: this is not JSON"),
    "two.json": ('{"user": 1, "item": 2}\n{"user": 1, "item": 2} {"user": 1, "item": 3}\n', ", line 2: .*one object"),
    "list.json": ('{"user": 1, "item": 2}\n[1, 2]\n', ", line 2: this is JSON but no object"),
    "number.json": ('{"user": 1, "item": 2}\n17\n', ", line 2: this is JSON but no object"),
    "lists.json": ('{"user": 1, "item": ["a", "b"]}\n', ", line 1: item is .* here: it must be a number or text"),
    "truth.json": ('{"user": true, "item": 1}\n', ", line 1: user is .* here: it must be a number or text"),
    "kinds.json": (
        '{"user": 1, "item": 1}\n{"user": "a", "item": 1}\n',
        ", line 2: user is text here and a number .*write all alike",
    ),
    "kinds2.json": (
        '{"user": "a", "item": 1}\n{"user": 1, "item": 1}\n',
        ", line 2: user is a number here and text .*write all alike",
    ),
    "key.json": ('{"user": 1, "item": 2}\n\n{"user": 1}\n', ", line 3: column item is empty here"),
    "null.json": ('{"user": 1, "item": 2}\n{"user": null, "item": 2}\n', ", line 2: column user is empty here"),
    "keys.json": ('{"who": 1, "what": 2, "when": 3}\n', " has no column that looks like the user's: say user=…"),
    "csv.json": ("user,item\n1,2\n", ", line 1: this is not JSON"),
    "film.txt": ("1:\n5,3,2005-01-01\n6,x,2005-01-01\n", ""),
    "early.txt": ("1:\n2:\n", " has no rows"),
    "longest.csv": ("user,item,weight\n1,2,3\n1," + "4" * 10_000_000 + ",1\n", ", line 3 is longer than 4 MiB"),
    "longest-text.csv": ("user,item,weight\n1,2,3\n1," + "x" * 10_000_000 + ",1\n", ", line 3 is longer than 4 MiB"),
    "longest-first.csv": ("x" * 10_000_000, ", line 1 is longer than 4 MiB"),
    "longest.json": ('{"user": 1, "item": 2}\n{"user": "' + "x" * 10_000_000, ", line 2 is longer than 4 MiB"),
}
WEIGHTED = {
    name
    for name, (content, _) in BAD.items()
    if b"weight" in (content if isinstance(content, bytes) else content.encode())[:40]
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(tmp_path, capsys, name):
    content, message = BAD[name]
    path = put(tmp_path / name, content)
    weight = "weight" if name in WEIGHTED else True if name == "film.txt" else None
    text = refusal(path, weight=weight)
    assert re.match(re.escape(str(path)) + message, text), text
    assert len(text) < 450 + len(str(path))

    capsys.readouterr()
    option = ["--weight", "weight"] if name in WEIGHTED else ["--weight", "rating"] if name == "film.txt" else []
    assert run(["fit", str(path), "-o", str(tmp_path / "out.deql"), *option]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith(f"deql: error: {path}")
    assert sum("error" in line for line in err.splitlines() if not line.startswith(f"deql: {path}")) == 1
    assert sorted(found.name for found in tmp_path.iterdir()) == [name]


def test_a_file_that_is_not_there(tmp_path, capsys):
    for name in ("none.csv", "none.npz", "none.parquet", "none"):
        assert f"there is no file {tmp_path / name}" in refusal(tmp_path / name)
    assert run(["fit", str(tmp_path / "none.csv"), "-o", str(tmp_path / "out.deql")]) == 2
    assert capsys.readouterr().err == f"deql: error: there is no file {tmp_path / 'none.csv'}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["cut.csv.gz", "cut.csv.zst"])
def test_a_cut_file_says_about_how_far_it_reaches(tmp_path, kind):
    text = refusal(put(tmp_path / kind, BAD[kind][0]))
    lines = int(re.search(r"([\d,]+) line", text)[1].replace(",", ""))
    assert 10_000 < lines < 40_000, text


# ---- line numbers -----------------------------------------------------------------------------------------------


def plain_rows(count):
    return "".join(f"{i % 37},{i % 11},1\n" for i in range(count))


def text_rows(count):
    return "".join(f"u{i % 37},i{i % 11},1\n" for i in range(count))


def quoted_rows(count):
    """Three lines each, one of them blank."""
    return "".join(f'u{i},"i\n\n{i % 11}",1\n' for i in range(count))


@pytest.mark.parametrize(("rows", "height"), [(plain_rows, 1), (text_rows, 1), (quoted_rows, 3)])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("u1,i1,x\n", "'x' in column weight"),
        ("u1,i1,-1\n", "the weight -1 is negative"),
        ("u1,,1\n", "column item is empty"),
        ("u1\n", "column item is empty"),
        ("user,item,weight\n", "the header stands here again"),
        ("u1,i1,1,1\n", "4 fields where the table has 3"),
        (b"u1,i\xff,1\n", "byte 5 is not UTF-8"),
    ],
)
@pytest.mark.parametrize("size", [64, 300, 2**20])
def test_the_line_is_the_right_one(tmp_path, rows, height, bad, message, size):
    bad = bad if isinstance(bad, bytes) else bad.encode()
    raw = b"\n\nuser,item,weight\n" + rows(40).encode() + b"\n \r\n" + bad + rows(20).encode()
    path = put(tmp_path / "t.csv", raw)
    with small_blocks(size):
        text = refusal(path, "user", "item", "weight", header=True)
    assert text.startswith(f"{path}, line {3 + 40 * height + 2 + 1:,}: {message}"), text


def test_the_line_beyond_real_blocks(tmp_path):
    for rows in (plain_rows, text_rows):
        raw = "user,item,weight\n" + rows(400_000) + "u7,i5,bad\n" + rows(10)
        path = put(tmp_path / "t.csv", raw)
        assert refusal(path, weight="weight").startswith(f"{path}, line 400,002: 'bad' in column weight")


def test_the_line_in_a_later_file(tmp_path):
    good = "user,item,weight\n" + text_rows(5)
    put(tmp_path / "parts" / "a.csv", good)
    put(tmp_path / "parts" / "b.csv", good + "u1,i1,bad\n")
    put(tmp_path / "parts" / "c.csv", good + "u1,i1,bad\n")
    assert refusal(tmp_path / "parts", weight="weight").startswith(f"{tmp_path / 'parts' / 'b.csv'}, line 7: 'bad'")


def test_the_first_of_several_errors_is_told_whatever_the_threads(tmp_path, monkeypatch):
    path = put(
        tmp_path / "t.csv", "user,item,weight\n" + text_rows(50) + "u1,i1,bad\n" + text_rows(50) + "u1,i1,worse\n"
    )
    for threads in ("1", "4"):
        monkeypatch.setenv("DEQL_THREADS", threads)
        with small_blocks(50):
            assert ", line 52: 'bad'" in refusal(path, "user", "item", "weight", header=True)


@pytest.mark.parametrize("size", [30, 64, 2**20])
def test_lines_of_json(tmp_path, size):
    good = "".join(f'{{"user": "u{i}", "item": {i}, "weight": 1}}\n' for i in range(20))
    for bad, message in [
        ('{"user": "u", "item": 3, "weight": "x"}\n', "'x' in column weight is not a number"),
        ('{"user": "u", "item": 3, "weight": -2}\n', "the weight -2 is negative"),
        ('{"user": "u", "item": 3}\n', "column weight is empty here"),
        ('{"user": "u", "item": 3, "weight": NaN}\n', ""),
        ('{"user": "u", "item": "tea", "weight": 1}\n', "item is text here"),
        ('{"user": "u", "item": 3, "weight": 1\n', "this is not JSON"),
    ]:
        path = put(tmp_path / "t.json", good + "\n\n" + bad + good)
        with small_blocks(size):
            text = refusal(path, "user", "item", "weight")
        assert text.startswith(f"{path}, line 23: {message}"), text


@pytest.mark.parametrize("size", [30, 64, 2**20])
def test_lines_of_grouped_texts(tmp_path, size):
    path = put(tmp_path / "a.txt", "0 1 2\n1 2\n\n2 3 4 5\n3 4 x 6 7\n4 5\n")
    with small_blocks(size):
        assert f"{path}, line 5: 'x' in column item" in refusal(path, format="lightgcn")
    path = put(
        tmp_path / "combined_data_1.txt", "1:\n5,3,2005-01-01\n6,4,2005-01-02\n2:\n\n5,bad,2005-01-01\n7,1,2005-01-04\n"
    )
    with small_blocks(size):
        assert f"{path}, line 6: 'bad' in column rating" in refusal(path, weight=True)
    path = put(tmp_path / "combined_data_2.txt", "1:\n5,3,2005-01-01\n6,4,2005-13-02\n")
    with small_blocks(size):
        assert f"{path}, line 3: " in refusal(path, time=True)
    path = put(tmp_path / "late.txt", "\n5,3,2005-01-01\n1:\n6,4,2005-10-02\n")
    with small_blocks(size):
        assert f"{path}, line 2: a rating stands before any film" in refusal(path, format="netflix")


@pytest.mark.parametrize("bad", ["yesterday", "2005-02-30", "12:61"])
def test_times_that_are_none(tmp_path, bad):
    path = put(tmp_path / "t.csv", f"user,item,time\na1,b1,2005-09-06\na1,b2,{bad}\n")
    assert refusal(path, time=True).startswith(f"{path}, line 3: ")
    path = put(tmp_path / "u.csv", f"user,item,time\n1,2,1126000800\n1,3,{bad}\n")
    assert refusal(path, time=True).startswith(f"{path}, line 3: ")


def test_a_long_field_before_the_bad_row(tmp_path):
    path = put(tmp_path / "t.csv", 'user,item,weight\na,"' + "x" * 200_000 + '",5\nb,c,bad\n')
    assert refusal(path, weight="weight").startswith(f"{path}, line 3: 'bad'")


@pytest.mark.parametrize("blank", ["", "\n", " \n"])
def test_a_return_inside_a_field(tmp_path, blank):
    """Lines end where a line feed stands, for Python's csv module too."""
    path = put(tmp_path / "t.csv", f"user,item,weight\na\rb,c,1\n{blank}d,e\rf,2\n")
    assert cells(read_interactions(path, weight="weight")) == {("a\rb", "c"): 1, ("d", "e\rf"): 2}
    put(path, f"user,item,weight\na\rb,c,1\n{blank}d,e\rf,bad\n")
    assert refusal(path, weight="weight").startswith(f"{path}, line {3 + len(blank.split(chr(10))) - 1}: 'bad'")


def test_long_values_are_shortened(tmp_path):
    path = put(tmp_path / "t.csv", "user,item,weight\na,b," + "y" * 100_000 + "\n")
    assert len(refusal(path, weight="weight")) < 400


def test_what_a_terminal_would_obey_is_not_repeated(tmp_path):
    path = put(tmp_path / "t.csv", "user,item,weight\na,b,\x1b[31m\a\n")
    refusal(path, weight="weight")
    path = put(tmp_path / "u.csv", "\x1b[31mwho,what,when\n1,2,3\n")
    refusal(path)


# ---- folders ----------------------------------------------------------------------------------------------------


def test_folders_that_cannot_be_read(tmp_path):
    assert "is a folder without files: name a table" in refusal(tmp_path)
    put(tmp_path / "_SUCCESS", "")
    assert "is a folder without files" in refusal(tmp_path)
    put(tmp_path / "a.csv", "user,item\n1,2\n")
    put(tmp_path / "b.json", "{}\n")
    assert f"{tmp_path} holds files of several kinds ('.csv', '.json'): name the one to read" in refusal(tmp_path)


def test_parts_that_do_not_fit_together(tmp_path):
    put(tmp_path / "a.csv", "user,item\n1,2\n")
    put(tmp_path / "b.csv", "item,user\n1,2\n")
    assert f"{tmp_path / 'b.csv'} has other columns than {tmp_path / 'a.csv'}" in refusal(tmp_path)
    put(tmp_path / "b.csv", "")
    assert f"{tmp_path / 'b.csv'} is empty" in refusal(tmp_path)


def test_a_published_split_is_not_one_table(tmp_path):
    put(tmp_path / "train.txt", "0 1 2\n1 2\n")
    put(tmp_path / "test.txt", "0 3\n1 4\n")
    assert "holds a published split" in refusal(tmp_path)


def test_parquet_parts_of_which_one_is_broken(tmp_path):
    pl.DataFrame({"user": [1], "item": [2]}).write_parquet(tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    put(tmp_path / "b.parquet", whole[:-20])
    assert str(tmp_path) in refusal(tmp_path)
    put(tmp_path / "b.parquet", whole[:4] + b"\xff" * (len(whole) - 12) + whole[-8:])
    assert str(tmp_path) in refusal(tmp_path)
    pl.DataFrame({"user": ["x"], "item": [2]}).write_parquet(tmp_path / "b.parquet")
    assert str(tmp_path) in refusal(tmp_path)


def test_parquet_rows_that_are_missing(tmp_path):
    pl.DataFrame({"user": [1, None], "item": [2, 3]}).write_parquet(tmp_path / "a.parquet")
    text = refusal(tmp_path / "a.parquet")
    assert text.startswith(f"{tmp_path / 'a.parquet'}, row 2: column user is empty here"), text


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_matrices_with_values_that_are_no_numbers(tmp_path, value):
    save_npz(tmp_path / "m.npz", csr_array([[1, 0], [0, value]]))
    assert "m.npz" in refusal(tmp_path / "m.npz")
    assert "row 1, column 1" in refusal(csr_array([[1, 0], [0, value]]))


def test_arrays_in_npz(tmp_path):
    np.savez(tmp_path / "m.npz", np.eye(2))
    assert f"{tmp_path / 'm.npz'} is not a sparse matrix" in refusal(tmp_path / "m.npz")


def without_privileges(folder, sources):
    """What reading says to somebody who is not root, a line for each source."""
    script = f"""
        import os
        import deql, polars, narwhals
        for ids in ("auto", "text"):  # imports what is needed while that may be read
            deql.read_interactions({str(folder / "good.csv")!r}, "user", "item", ids=ids)
        if os.geteuid() == 0:
            os.setegid(65534)
            os.seteuid(65534)
        for source in {[str(folder / source) for source in sources]}:
            try:
                print(deql.read_interactions(source, "user", "item"))
            except deql.DeqlError as error:
                print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="needs the permissions of POSIX")
def test_files_and_folders_without_permission():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for file in ("good.csv", "locked/part.csv", "outer/part-0.csv", "outer/inner/part-1.csv", "secret.csv"):
            put(folder / file, "user,item\n1,2\n")
        pl.DataFrame({"user": [1], "item": [2]}).write_parquet(folder / "secret.parquet")
        closed = [folder / name for name in ("locked", "outer/inner", "secret.csv", "secret.parquet")]
        for path in closed:
            path.chmod(0)
        try:
            sources = ["locked", "locked/part.csv", "outer", "secret.csv", "secret.parquet"]
            said = without_privileges(folder, sources)
        finally:
            for path in closed:
                path.chmod(0o755)
    at_fault = ["locked", "locked", "inner", "secret.csv", "secret.parquet"]
    for source, place, text in zip(sources, at_fault, said, strict=True):
        assert place in text, (source, text)
        assert re.search("permission|may not be read", text), (source, text)


def test_nothing_else_than_our_errors_from_random_bytes(tmp_path):
    """Whatever the bytes, it is read or refused in one line."""
    generator = np.random.default_rng(3)
    alphabets = [b'0123456789,\n\r" ', b'ab,"\n:;|\t 1-.', b'{}[]":,user item12\n', bytes(range(256))]
    messages = []
    for trial in range(400):
        alphabet = np.frombuffer(alphabets[trial % 4], np.uint8)
        raw = generator.choice(alphabet, generator.integers(1, 80)).tobytes()
        head = (b"", b"user,item\n", b'{"user": 1, "item": 2}\n', b"1:\n")[trial // 4 % 4]
        path = put(tmp_path / f"noise{('.csv', '.json', '', '.inter')[trial // 16 % 4]}", head + raw)
        try:
            assert read_interactions(path, time=(None, True)[trial % 2]).n_interactions
        except DeqlError as error:
            messages.append(str(error))
    assert 0 < len(messages) < 400
    assert [text for text in messages if not (text.isprintable() and str(tmp_path / "noise") in text)] == []
