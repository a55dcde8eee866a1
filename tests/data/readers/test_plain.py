"""The kernel for text without quotation marks: where fields lie, which are whole numbers, words or headers."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deql.data.readers.digits import ITEM, SKIP, TIME, USER, WEIGHT
from deql.data.readers.plain import parse_plain

LETTERS = st.characters(codec="utf-8", exclude_characters='"\n\r,;|:\t ')
IDS = st.one_of(
    st.text(LETTERS, min_size=1, max_size=5),
    st.integers(-99, 99).map(str),
    st.sampled_from(["007", "-0", "-", "0", "a b", "+1", "--1"]),
    st.integers(-(10**18) + 1, 10**18 - 1).map(str),
)
NUMBERS = st.sampled_from(["1", "0.5", "-2.25", "3.", ".125", "1112486027"])


def parse(text, roles, delimiter=b",", names=(b"", b"")):
    return parse_plain(
        np.frombuffer(text.encode(), np.uint8), delimiter, np.array(roles, np.int8), names, text.count("\n")
    )


def is_whole(text):
    return bool(re.fullmatch(r"0|-?[1-9][0-9]*", text)) and abs(int(text)) < 10**18


def assert_field(field, expected, name):
    assert [field.text[row] for row in range(len(field.text))] == expected
    whole = [row for row, text in enumerate(expected) if is_whole(text)]
    assert field.whole == len(whole)
    assert field.numbers[whole].tolist() == [int(expected[row]) for row in whole]
    assert field.word == next((row for row, text in enumerate(expected) if not re.search("[0-9]", text)), -1)
    assert field.header == next((row for row, text in enumerate(expected) if name and text == name), -1)


@settings(deadline=None, max_examples=200)
@given(
    st.permutations([USER, ITEM, WEIGHT, TIME, SKIP]),
    st.lists(st.tuples(IDS, IDS, NUMBERS, NUMBERS, IDS | st.just("")), max_size=10),
    st.sampled_from([",", "\t", "::", "|"]),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.sampled_from(["", "a", "0", "é"]),
)
def test_fields(roles, rows, delimiter, ending, blank, name):
    # What ends in half a delimiter runs into the next one.
    rows = [[cell.replace(delimiter[0], "_") for cell in row] for row in rows]
    cells = [dict(zip((USER, ITEM, WEIGHT, TIME, SKIP), row, strict=True)) for row in rows]
    text = "".join(ending * blank + delimiter.join(cell[role] for role in roles) + ending for cell in cells) or ending
    users, items, weights, times = parse(text, roles, delimiter.encode(), (name.encode(), name.encode()))
    assert_field(users, [cell[USER] for cell in cells], name)
    assert_field(items, [cell[ITEM] for cell in cells], name)
    assert weights.tolist() == [float(cell[WEIGHT]) for cell in cells]
    assert times.tolist() == [float(cell[TIME]) for cell in cells]


@pytest.mark.parametrize(
    "line",
    [
        '"a",b,1',
        'a,b"c,1',
        "a,b",
        "a,b,1,2",
        "a,,1",
        ",b,1",
        "a,b,",
        " a,b,1",
        "a ,b,1",
        "a,b ,1",
        "a,b,x",
        "a,b,1e3",
        "a,b, 1",
        "  ",
        ",,",
    ],
)
def test_everything_else_is_left_to_a_real_parser(line):
    assert parse(f"c,d,1\n{line}\n", [USER, ITEM, WEIGHT]) is None
    assert parse("c,d,1\ne,f g,2\n", [USER, ITEM, WEIGHT]) is not None


def test_whole_numbers_that_may_not_fit_are_left_to_a_real_parser():
    assert parse("1,2\n999999999999999999,3\n", [USER, ITEM])[0].whole == 2
    for digits in ("1000000000000000000", "-9223372036854775808", "9999999999999999999"):
        assert parse(f"1,2\n{digits},3\n", [USER, ITEM]) is None
    for text in ("x1000000000000000000", "18446744073709551615"):
        assert parse(f"1,2\n{text},3\n", [USER, ITEM])[0].whole == 1
