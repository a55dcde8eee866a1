"""Files in blocks: every byte once, cut only where a line ends."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from deql.data.readers.blocks import LONGEST_LINE, blocks, uncompressed_suffix
from deql.errors import DataError
from tests.data.reading import put, small_blocks


def joined(parts):
    return b"".join(map(bytes, parts))


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.text(st.sampled_from('ab,é\r"'), max_size=12).map(str.encode), min_size=1, max_size=12),
    st.booleans(), st.integers(1, 40), st.sampled_from(["", ".gz", ".zst"]),
)  # fmt: skip
def test_every_byte_once_and_lines_whole(tmp_path_factory, lines, ends, size, packing):
    raw = b"\n".join(lines) + (b"\n" if ends else b"")
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstd.compress}[packing]
    path = put(tmp_path_factory.mktemp("blocks") / f"t.csv{packing}", pack(raw))
    with small_blocks(size):
        parts = list(blocks(path))
    assert joined(parts) == (raw if raw.endswith(b"\n") or not raw else raw + b"\n")
    line = 1
    for part in parts:
        assert bytes(part).endswith(b"\n")
        assert (part.first_line, part.lines) == (line, bytes(part).count(b"\n"))
        line += part.lines
    positions = [part.position for part in parts]
    assert positions == sorted(positions)
    assert all(position <= path.stat().st_size for position in positions)


@pytest.mark.parametrize("size", range(4, 40, 3))
def test_quoted_line_ends_do_not_cut(tmp_path, size):
    rows = [b'1,"a\n\nb"\n', b"2,c\n", b'3,"d ""\n"" e"\n', b'4,"f\n"\n']
    path = put(tmp_path / "t.csv", b"".join(rows))
    with small_blocks(size):
        parts = list(map(bytes, blocks(path, delimiter=",")))
        cut = list(map(bytes, blocks(path)))
    assert joined(parts) == joined(cut) == b"".join(rows)
    borders = np.cumsum([0, *map(len, rows)]).tolist()
    assert set(np.cumsum([0, *map(len, parts)]).tolist()) <= set(borders)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_the_header_and_the_mark_of_byte_order_are_left_out(tmp_path, size, mark):
    path = put(tmp_path / "t.csv", mark + b"\n  \r\nuser,item\n1,2\n3,4\n")
    with small_blocks(size):
        parts = list(blocks(path, header=True))
        whole = joined(blocks(path))
    assert joined(parts) == b"1,2\n3,4\n"
    assert parts[0].first_line == 4
    assert whole == b"\n  \r\nuser,item\n1,2\n3,4\n"


def test_lines_that_are_too_long(tmp_path):
    path = put(tmp_path / "t.csv", b"a,b\n" + b"x" * (LONGEST_LINE + 2**21) + b"\n")
    with pytest.raises(DataError, match=r"t\.csv, line 2 is longer than 4 MiB: .*is this the right file"):
        list(blocks(path))
    path = put(tmp_path / "u.csv", b'a,b\n1,2\n3,"' + b"x,y\n" * (LONGEST_LINE // 4 + 2**20))
    with pytest.raises(DataError, match=r"u\.csv, line 3 or soon after: a quotation mark is opened and never closed"):
        list(blocks(path, delimiter=","))


def test_lines_that_are_just_long(tmp_path):
    raw = b"a,b\n" + b"x" * (3 * 2**20) + b"\n" + b"c,d\n"
    assert joined(blocks(put(tmp_path / "t.csv", raw))) == raw


def test_errors_say_where(tmp_path):
    path = put(tmp_path / "t.csv", "a\n" * 1500)
    with small_blocks(2000):
        _, last = blocks(path)
    assert str(last.error(2, "odd")) == f"{path}, line 1,003: odd"


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("a.csv", ".csv"),
        ("a.CSV.GZ", ".csv"),
        ("a.json.zst", ".json"),
        ("a.gz", ""),
        ("a", ""),
        ("a.b.tsv", ".tsv"),
        (".gz", ""),
    ],
)
def test_plain_suffix(name, suffix):
    assert uncompressed_suffix(Path(name)) == suffix
