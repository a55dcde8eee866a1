"""Columns of ids against Python's sorted(set(...)), whatever the parts they come in."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deql import DeqlError, read_interactions
from deql.data.readers.ids import IdEncoder, as_whole_numbers
from tests.data.reading import put, small_blocks

NUMBERS = st.one_of(st.integers(-5, 5), st.integers(2**31 - 3, 2**31 + 3), st.integers(-(2**63), 2**63 - 1))
TEXTS = st.one_of(st.text(max_size=3), st.sampled_from(["é", "日本", "a" * 100, "10", "9", "Z", "a"]))


def collect(parts):
    column = IdEncoder()
    for part in parts:
        column.add(part)
    return column.finish()


@settings(deadline=None)
@given(st.lists(st.lists(NUMBERS, max_size=8), max_size=5), st.sampled_from(["1", "3"]))
def test_numbers(parts, threads):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEQL_THREADS", threads)
        ids, codes = collect(np.array(part, np.int64) for part in parts)
    flat = [number for part in parts for number in part]
    assert ids.dtype == np.int64
    assert ids.tolist() == sorted(set(flat))
    assert ids[codes].tolist() == flat
    assert codes.dtype == np.int32


@settings(deadline=None)
@given(st.lists(st.one_of(st.lists(NUMBERS, max_size=6), st.lists(TEXTS, max_size=6)), max_size=6))
def test_numbers_become_text_with_the_first_text(parts):
    made = [
        np.array(part, np.int64) if part and isinstance(part[0], int) else pl.Series(part, dtype=pl.String)
        for part in parts
    ]
    ids, codes = collect(made)
    texts = any(isinstance(part, pl.Series) for part in made)
    flat = [str(one) if texts else one for part in parts for one in part]
    assert ids.tolist() == sorted(set(flat))
    assert ids[codes].tolist() == flat


@given(
    st.lists(
        st.one_of(NUMBERS.map(str), TEXTS, st.sampled_from(["007", "-0", "+1", "1.0", " 1", "1 ", "", "٣", "1_0"])),
        max_size=5,
    )
)
def test_whole_numbers_are_those_that_python_writes_so(texts):
    def written(text):
        try:
            return str(int(text)) == text and -(2**63) <= int(text) < 2**63
        except ValueError:
            return False

    numbers = as_whole_numbers(pl.Series(texts, dtype=pl.String))
    assert (numbers is not None) == all(map(written, texts))
    if numbers is not None:
        assert numbers.tolist() == [int(text) for text in texts]


CASES = {
    "plain": (["10", "9", "0"], [0, 9, 10]),
    "signed": (["-3", "7"], [-3, 7]),
    "zeros in front": (["007", "7"], ["007", "7"]),
    "an ISBN": (["0195153448", "1"], ["0195153448", "1"]),
    "18 digits": (["999999999999999999", "1"], [1, 999999999999999999]),
    "19 digits": (["9223372036854775807", "1"], [1, 9223372036854775807]),
    "least of 64 bits": (["-9223372036854775808", "1"], [-9223372036854775808, 1]),
    "beyond 64 bits": (["9223372036854775808", "1"], ["1", "9223372036854775808"]),
    "unsigned": (["18446744073709551615", "5"], ["18446744073709551615", "5"]),
    "plus": (["+1", "1"], ["+1", "1"]),
    "minus nothing": (["-0", "0"], ["-0", "0"]),
    "decimals": (["1.0", "1"], ["1", "1.0"]),
    "codes": (["B00YQ6", "0000013714", "12"], ["0000013714", "12", "B00YQ6"]),
    "beyond ASCII": (["é1", "e1", "日本1"], ["e1", "é1", "日本1"]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("size", [16, 2**20])
def test_what_is_a_number_and_what_is_text(tmp_path, name, quote, size):
    written, expected = CASES[name]
    text = "user,item\n" + "".join(f"{quote}{one}{quote},{place}\n" for place, one in enumerate(written))
    with small_blocks(size):
        data = read_interactions(put(tmp_path / "t.csv", text), "user", "item", header=True)
    assert data.users.tolist() == expected
    assert data.items.dtype == np.int64
    lines = "".join(f'{{"user": "{one}", "item": {place}}}\n' for place, one in enumerate(written))
    assert read_interactions(put(tmp_path / "t.json", lines)).users.tolist() == expected


def test_a_late_text_makes_text_of_all_numbers_before(tmp_path):
    path = put(tmp_path / "t.csv", "user,item\n" + "".join(f"{i},{i}\n" for i in range(2000)) + "1,x9\n")
    for size in (64, 2**20):
        with small_blocks(size):
            data = read_interactions(path, "user", "item", header=True)
        assert data.items.tolist() == sorted([*map(str, range(2000)), "x9"])
        assert data.users.tolist() == list(range(2000))


def test_numbers_far_apart_need_no_table(tmp_path):
    numbers = [2**62, 5, -(2**40), 5, 2**33]
    path = put(tmp_path / "t.csv", "user,item\n" + "".join(f"{one},{one}\n" for one in numbers))
    data = read_interactions(path, "user", "item")
    assert data.users.tolist() == sorted(set(numbers)) == data.items.tolist()
    assert (data.matrix.toarray() == np.eye(4)).all()


def test_a_word_among_numbers_is_seen_wherever_blocks_begin(tmp_path):
    """Blocks without a word count too: nine tenths are whole numbers, one tenth has letters, one id is NULL."""
    ids = [f"A{i}" if i % 10 == 0 else str(i) for i in range(1, 400)] + ["NULL"]
    path = put(tmp_path / "t.csv", "user,item\n" + "".join(f"{one},7\n" for one in ids))
    for size in (64, 512, 2**20):
        with small_blocks(size), pytest.raises(DeqlError, match="line 401: 'NULL' in column user"):
            read_interactions(path, "user", "item")


@pytest.mark.parametrize("length", [1, 7, 40])
def test_many_texts(length):
    texts = [f"x{number:0{length}d}" for number in range(9000)]
    parts = [texts[:3000], texts[2000:2500], texts, texts[::-1]]
    ids, codes = collect(map(pl.Series, parts))
    assert ids.tolist() == sorted(set(texts))
    assert ids[codes].tolist() == [text for part in parts for text in part]


def test_long_and_strange_texts():
    texts = ["", "a", "aa", "é", "日本", "\0", "a\0", "x" * 300, "é" * 200_000, "c" * 70_000]
    ids, codes = collect([pl.Series(texts), pl.Series(texts[::-1])])
    assert ids.tolist() == sorted(texts)
    assert ids[codes].tolist() == texts + texts[::-1]


@settings(deadline=None)
@given(st.lists(st.lists(NUMBERS, max_size=6), max_size=4))
def test_numbers_as_text(parts):
    column = IdEncoder(text_ids=True)
    for part in parts:
        column.add(np.array(part, np.int64))
    ids, codes = column.finish()
    flat = [str(number) for part in parts for number in part]
    assert ids.tolist() == sorted(set(flat))
    assert ids[codes].tolist() == flat


def test_tables_read_at_once_do_not_mix(tmp_path):
    """Polars keeps the categories of all columns in one table."""
    paths = [
        put(tmp_path / f"{name}.csv", "user,item\n" + "".join(f"{name}{i % 97},b{i % 89}\n" for i in range(20_000)))
        for name in "abcd"
    ]
    with ThreadPoolExecutor(4) as pool:
        tables = list(pool.map(lambda path: read_interactions(path, "user", "item"), paths))
    for name, data in zip("abcd", tables, strict=True):
        assert data.users.tolist() == sorted(f"{name}{i}" for i in range(97))
        assert data.items.tolist() == sorted(f"b{i}" for i in range(89))
        assert data.n_interactions == len({(i % 97, i % 89) for i in range(20_000)})
