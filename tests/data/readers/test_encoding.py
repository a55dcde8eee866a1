"""Text in any encoding, a chunk at a time, and advice that works for text in an unknown one."""

import gzip
import re

import pytest
from backports import zstd

from deql import ParameterError, read_interactions
from deql.data.readers import encoding
from tests.data.reading import cells, put, refusal, small_blocks

TABLE = "user,item\nann,thé\nbob,café\nann,jam\n"
JAPANESE = "user,item\nann,お茶\nbob,珈琲\n"


@pytest.mark.parametrize("chunk", [1, 3, 2**16])
@pytest.mark.parametrize("size", [5, 2**21])
@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("latin-1", TABLE), ("cp1252", TABLE), ("utf-16", TABLE), ("utf-16-be", "\ufeff" + TABLE), ("utf-32", TABLE),
        ("utf-8", TABLE), ("UTF8", TABLE), ("utf-8-sig", TABLE), ("utf-7", TABLE), ("utf-16-le", JAPANESE),
        ("shift_jis", JAPANESE), ("gb18030", JAPANESE), ("iso2022_jp", JAPANESE), ("euc_jp", JAPANESE),
    ],
)  # fmt: skip
def test_every_encoding_gives_the_same(tmp_path, monkeypatch, name, table, chunk, size, packing):
    expected = read_interactions(put(tmp_path / "utf8.csv", table), "user", "item")
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstd.compress}[packing]
    path = put(tmp_path / f"t.csv{packing}", pack(table.encode(name)))
    monkeypatch.setattr(encoding, "_CHUNK", chunk)
    with small_blocks(size):
        assert cells(read_interactions(path, "user", "item", encoding=name)) == cells(expected)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".json", ".inter"])
def test_every_text_format(tmp_path, ending):
    table = {
        ".csv": TABLE,
        ".tsv": TABLE.replace(",", "\t"),
        ".inter": TABLE.replace(",", "\t").replace("user\titem", "user:token\titem:token"),
        ".json": '{"user": "ann", "item": "thé"}\n{"user": "bob", "item": "café"}\n{"user": "ann", "item": "jam"}\n',
    }[ending]
    data = read_interactions(put(tmp_path / f"t{ending}", table.encode("latin-1")), "user", "item", encoding="latin-1")
    assert set(cells(data)) == {("ann", "thé"), ("bob", "café"), ("ann", "jam")}


def advice(text):
    """The encoding that an error says to name."""
    return re.search(r"say encoding='([\w-]+)'", text)[1]


@pytest.mark.parametrize("name", ["latin-1", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("ending", [".csv", ".tsv", ".json"])
def test_the_advice_for_what_is_not_utf8_works(tmp_path, name, ending):
    table = TABLE.replace(",", "\t") if ending == ".tsv" else TABLE
    if ending == ".json":
        table = '{"user": "ann", "item": "thé"}\n{"user": "bob", "item": "café"}\n{"user": "ann", "item": "jam"}\n'
    path = put(tmp_path / f"t{ending}", table.encode(name))
    data = read_interactions(path, "user", "item", encoding=advice(refusal(path, "user", "item")))
    assert set(cells(data)) == {("ann", "thé"), ("bob", "café"), ("ann", "jam")}


@pytest.mark.parametrize("name", ["hex", "rot13", "base64", "zlib", "nonsense", "\0", "", 7, None])
def test_what_is_no_encoding_of_text(tmp_path, name):
    with pytest.raises(
        ParameterError, match=r"^encoding must be one that Python knows, such as utf-8, latin-1"
    ) as error:
        read_interactions(put(tmp_path / "t.csv", TABLE), encoding=name)
    assert error.value.parameter == "encoding"
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"", "latin-1", " is empty"),
        (b"", "utf-16", " is empty"),
        ("\ufeff".encode("utf-16-le"), "utf-16", " is empty"),
        (gzip.compress(b"", mtime=0), "latin-1", " is empty"),
        ("user,item\n1,2\n3,4\n".encode("utf-16-be")[:-1], "utf-16-be", ", line 3: this is not utf-16-be: name the"),
        ("user,item\na,".encode("utf-16-le") + b"\0\xd8" + "\n".encode("utf-16-le"), "utf-16-le", ", line 2: this is"),
        (b"user,item\na,b\nc,\\ud800\n", "unicode_escape", ", line 3: this is not unicode-escape"),
        (b"user,item\na,b\nc,\xe9\n", "ascii", ", line 3: this is not ascii: .*encoding=…; latin-1 takes every byte"),
        ("user,item\na,b\nc,お".encode("shift_jis")[:-1], "shift_jis", ", line 3: this is not shift_jis"),
        (TABLE.encode("utf-16-be"), "utf-16", " has no byte order mark: say encoding='utf-16-be'"),
        (b"\0", "utf-32", ""),
        (b"\xff\xfe\0", "utf-16", ", line 1: this is not utf-16"),
        (b"\x00\xd8" * 9, "utf-16", ", line 1: this is not utf-16"),
        (TABLE.encode("utf-16"), "utf-8", " looks like utf-16: say encoding='utf-16'"),
        (TABLE.encode("utf-16"), "latin-1", " is not a text file"),
        (b"PK\x03\x04\x14\x00\x06\x00", "latin-1", " is not a text file"),
    ],
)
def test_what_cannot_be_decoded(tmp_path, content, name, message):
    ending = "csv.gz" if content[:2] == b"\x1f\x8b" else "csv"
    path = put(tmp_path / f"t.{ending}", content)
    assert re.match(re.escape(str(path)) + message, refusal(path, encoding=name))


@pytest.mark.parametrize(("name", "bad"), [("utf-16", b"\0\xd8"), ("shift_jis", b"\xff")])
def test_the_line_is_right_far_below(tmp_path, name, bad):
    rows = ["user,item\n", *(f"u{row},i{row}\n" for row in range(30_000))]
    path = put(tmp_path / "t.csv", "".join(rows).encode(name) + bad + "\n".encode("utf-16-le") + b"x")
    assert ", line 30,002: this is not" in refusal(path, "user", "item", encoding=name)


def test_a_packed_file_in_another_encoding_may_not_unpack_without_end(tmp_path):
    path = put(tmp_path / "t.csv.gz", gzip.compress(("user,item\n" + "1,2\n" * 50_000).encode("utf-16")))
    assert "unpacks to more than" in refusal(path, "user", "item", encoding="utf-16", max_unpacked=1000)


def test_titles_too(tmp_path):
    data = put(tmp_path / "t.csv", TABLE.encode("utf-16"))
    titles = put(tmp_path / "titles.csv", "item,title\nthé,Thé “vert”\n".encode("utf-16"))
    read = read_interactions(data, "user", "item", items=titles, encoding="utf-16")
    assert read.titles.tolist() == ["café", "jam", "Thé “vert”"]


def test_what_is_no_text_has_no_encoding(tmp_path):
    import polars as pl

    frame = pl.DataFrame({"user": ["a"], "item": ["é"]})
    frame.write_parquet(tmp_path / "t.parquet")
    for source in (frame, tmp_path / "t.parquet"):
        assert read_interactions(source, "user", "item", encoding="utf-16").items.tolist() == ["é"]
