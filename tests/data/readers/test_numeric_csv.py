"""The kernel for plain numbers against Python's int and float, digit for digit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deql.data.readers.numeric_csv import ITEM, SKIP, TIME, USER, WEIGHT, parse_numbers

IDS = st.integers(0, 10**18 - 1).map(str)
SMALL = st.integers(0, 99).map(str)
DECIMALS = st.from_regex(r"-?([0-9]{1,8}\.?[0-9]{0,7}|\.[0-9]{1,15})", fullmatch=True).filter(
    lambda text: sum(map(str.isdigit, text)) <= 15
)
NOTES = st.text(st.characters(codec="utf-8", exclude_characters='"\n\r,;|:\t '), max_size=5)


def parse(text, roles, delimiter=b","):
    raw = np.frombuffer(text.encode(), np.uint8)
    return parse_numbers(raw, delimiter, np.array(roles, np.int8), text.count("\n"))


@st.composite
def lines(draw):
    fields = {USER: IDS, ITEM: SMALL, WEIGHT: DECIMALS, TIME: DECIMALS, SKIP: NOTES}
    roles = draw(
        st.permutations(
            [USER, ITEM, *draw(st.sets(st.sampled_from([WEIGHT, TIME]))), *draw(st.lists(st.just(SKIP), max_size=2))]
        )
    )
    rows = draw(st.lists(st.tuples(*(fields[role] for role in roles)), max_size=12))
    delimiter, ending = draw(st.sampled_from([",", "\t", "::", " ", "|", ";"])), draw(st.sampled_from(["\n", "\r\n"]))
    blank = draw(st.sampled_from(["", ending]))
    return roles, rows, delimiter, "".join(blank + delimiter.join(row) + ending for row in rows) or ending


@settings(deadline=None, max_examples=150)
@given(lines())
def test_every_number_is_what_python_reads(made):
    roles, rows, delimiter, text = made
    columns = dict(zip(roles, zip(*rows, strict=True), strict=True)) if rows else {}
    users, items, weights, times = parse(text, roles, delimiter.encode())
    assert users.tolist() == [int(cell) for cell in columns.get(USER, [])]
    assert items.tolist() == [int(cell) for cell in columns.get(ITEM, [])]
    assert weights.tolist() == [float(cell) for cell in columns.get(WEIGHT, [])]
    assert times.tolist() == [float(cell) for cell in columns.get(TIME, [])]


@pytest.mark.parametrize(
    "line",
    [
        '"1",2,3',
        '1,2,"3"',
        "1,2",
        "1,2,3,4",
        "1,,3",
        ",2,3",
        "1,2,",
        "01,2,3",
        "1,007,3",
        "00,2,3",
        "-1,2,3",
        "+1,2,3",
        "1.0,2,3",
        "1,2,+3",
        "1,2,1e3",
        "1,2,nan",
        "1,2,1.2.3",
        "1,2,.",
        "1,2,-",
        "1,2,--1",
        "1,2,1-",
        "1 ,2,3",
        "1, 2,3",
        "1,2,3 ",
        " 1,2,3",
        "1,2,1234567890123456",
        "9999999999999999999,2,3",
        "12345678901234567890123,2,3",
        "1;2;3",
        "1,2,3\r4",
        "a,b,c",
        "1,2,٣",
        ",,",
        "1",
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_everything_else_is_left_to_a_real_parser(line, place):
    rows = ["5,6,7", "8,9,1"]
    assert parse("\n".join([*rows, ""]), [USER, ITEM, WEIGHT]) is not None
    rows.insert(place, line)
    assert parse("\n".join([*rows, ""]), [USER, ITEM, WEIGHT]) is None


def test_quotation_marks_matter_in_fields_nobody_wants():
    """A delimiter or line end may stand between them."""
    assert parse('1,"a,b",2\n', [USER, SKIP, ITEM]) is None
    assert parse("1,ab,2\n", [USER, SKIP, ITEM]) is not None


def test_single_colons_do_not_part_fields():
    users, items, _, _ = parse("1::5::Alien\n2::6::Toys\n", [USER, ITEM, SKIP], b"::")
    assert (users.tolist(), items.tolist()) == ([1, 2], [5, 6])
    assert parse("1:5:2\n", [USER, ITEM, SKIP], b"::") is None


def test_ids_take_no_more_room_than_they_need():
    users, items, _, _ = parse("2147483647,2147483648\n1,1\n", [USER, ITEM])
    assert (users.dtype, items.dtype) == (np.int32, np.int64)
    assert items.tolist() == [2147483648, 1]
