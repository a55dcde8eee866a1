"""Quotation marks that a backslash escapes, wherever the first one stands."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deql import DataError, read_interactions
from deql.data.readers.blocks import LONGEST_LINE, blocks
from deql.data.readers.quotes import double_escaped, misplaced_marks, undo_escapes
from tests.data.reading import cells, put, refusal, small_blocks


def written(rows, escaped):
    """Rows as a program writes them that quotes every field and escapes marks, or doubles them."""
    mark = '\\"' if escaped else '""'
    return "".join(";".join('"' + cell.replace('"', mark) + '"' for cell in row) + "\r\n" for row in rows)


NAMES = st.lists(st.sampled_from(["a", "b", '"', "\\n", "\\", " ", ",", "é", "7", "\n"]), min_size=1, max_size=6)
# A backslash at a field's end, or before a mark, is what nobody can tell from an escape; nor an escape before a line
# end from a field's end, where a block ends just there.
FIELDS = NAMES.map(lambda parts: "".join(parts).strip()).filter(
    lambda name: name and "\\\\" not in name and not name.endswith("\\") and '\\"' not in name and '"\n' not in name
)


@settings(deadline=None, max_examples=150)
@given(st.lists(FIELDS, min_size=1, max_size=8), st.booleans(), st.integers(1, 300))
def test_escaped_marks_are_read_as_doubled_ones_are(tmp_path_factory, items, escaped, size):
    rows = [("user", "item"), *((f"u{place}", item) for place, item in enumerate(items)), ("u", "z")]
    path = put(tmp_path_factory.mktemp("quotes") / "t.csv", written(rows, escaped))
    with small_blocks(size):
        data = read_interactions(path, "user", "item", ids="text")
    assert set(cells(data)) == set(rows[1:])


@pytest.mark.parametrize("size", [7, 64, 2**21])
def test_both_kinds_in_one_file(tmp_path, size):
    path = put(tmp_path / "t.csv", 'user,item\na,"b ""c"" d"\na,"e \\"f\\""\na,"C:\\new"\n')
    with small_blocks(size):
        assert read_interactions(path, "user", "item").items.tolist() == ["C:\\new", 'b "c" d', 'e "f"']


@pytest.mark.parametrize("field", ["C:\\new", "C:\\dir\\", "abc\\\\", "\\", "\\N", "a\\b"])
def test_backslashes_that_escape_nothing_stay(tmp_path, field):
    path = put(tmp_path / "t.csv", f'user,item\n"a","{field}"\n"b","{field}"\n"b","c"\n')
    assert read_interactions(path, "user", "item").history("a") == [field]


def test_the_first_one_far_below_the_first_lines(tmp_path):
    lines = [f'"{row % 999}";"B{row % 77}";"{row % 5}"\r\n'.encode() for row in range(300_000)]
    lines[250_000] = b'"7";"say \\"B\\"";"1"\r\n'
    data = read_interactions(put(tmp_path / "t.csv", b'"user";"item";"n"\r\n' + b"".join(lines)), "user", "item")
    assert 'say "B"' in data.history(7)
    assert (data.n_items, data.steps[0].interactions) == (78, 300_000)


def test_a_mark_that_is_never_closed_is_said_with_its_line(tmp_path):
    lines = ['"1";"2";"3"\n'] * (LONGEST_LINE // 4)
    lines[200_000] = '"1";"2" nails";"3"\n'
    path = put(tmp_path / "t.csv", "".join(lines))
    with pytest.raises(
        DataError, match=r"t\.csv, line 200,001 .*a quotation mark is opened and never closed; close it"
    ):
        list(blocks(path, delimiter=";"))
    assert "longer than" not in refusal(path)


@pytest.mark.parametrize(
    ("text", "places"),
    [
        (b"", []),
        (b'"', []),
        (b'"a"', []),
        (b'a"', [1]),
        (b'"a"b";', [2, 4]),
        (b'"a"\r\n"b";""\n', []),
        (b'"a""";"b"', []),
    ],
)
def test_misplaced_marks(text, places):
    assert misplaced_marks(text, b";").tolist() == places


@given(st.text(st.sampled_from('\\"a'), max_size=30).map(str.encode))
def test_doubling_is_done_once(text):
    doubled = double_escaped(text)
    assert len(doubled) == len(text)
    assert double_escaped(doubled) == doubled


def test_a_long_row_of_backslashes_takes_no_time():
    text = b"\\" * 2**22
    assert double_escaped(text + b'"') == text + b'"'
    assert undo_escapes(b'"' + text + b'a \\"', b",", True, False) is None
