"""Quotation marks in delimited text: where quoted fields end, and marks that a backslash escapes."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

__all__ = ["ESCAPED", "double_escaped", "last_line_end", "misplaced_marks", "undo_escapes"]

ESCAPED = b'\\"'
"""A mark with a backslash before it, as MySQL and others write one that is part of a field."""

_MARK, _NEWLINE, _RETURN = ord('"'), ord("\n"), ord("\r")
# An odd number of backslashes. None stands before them, else each of a long row of them would begin a search.
_ESCAPES = re.compile(rb'(?<!\\)((?:\\\\)*)\\"')


def double_escaped(text: bytes) -> bytes:
    r"""The same text with ``""`` in place of ``\"``, which the parsers know, and which is as long.

    Every other backslash stays, so that ``C:\new`` is what it was, and so does one before a mark that another
    backslash escapes.

    Examples
    --------
    >>> print(double_escaped(rb'"a \"b\" c";"C:\new";"d\\"').decode())
    "a ""b"" c";"C:\new";"d\\"
    """
    return _ESCAPES.sub(rb'\1""', text) if b"\\" + ESCAPED in text else text.replace(ESCAPED, b'""')


def misplaced_marks(text: bytes, delimiter: bytes) -> NDArray[np.intp]:
    """Places of the marks that neither open a field nor close one, in text that begins with a record.

    Examples
    --------
    >>> misplaced_marks(b'"a";"b ""c"" d"\\n"5" nail";1\\n', b";").tolist()
    [18, 24]
    """
    letters = np.frombuffer(text, np.uint8)
    marks = np.flatnonzero(letters == _MARK)
    ends = [delimiter[0], _NEWLINE, _MARK]
    opening = marks[0::2]
    before = np.where(opening > 0, letters[opening - 1], _NEWLINE)
    closing = marks[1::2]
    after = letters[np.minimum(closing + 1, len(letters) - 1)]  # the very last is a mark itself
    wrong = [opening[~np.isin(before, ends)], closing[~np.isin(after, [*ends, _RETURN])]]
    return np.sort(np.concatenate(wrong))


def undo_escapes(text: bytes, delimiter: bytes, whole: bool, usual: bool) -> bytes | None:
    r"""Text in which marks are doubled, if in this text they are escaped; None if not.

    ``"C:\dir\"`` ends a field where marks are doubled and does not where they are escaped. So it is read both ways,
    and what leaves fewer marks in the middle of a field is right: a mark that is taken the wrong way turns the inside
    of fields out as far as the text goes. This is asked of every block, and not of the first lines only, because
    the first such mark may stand millions of lines below them.

    Parameters
    ----------
    text : bytes
        Begins with a record.
    delimiter : bytes
    whole : bool
        Whether the last record is whole.
    usual : bool
        What holds if both readings are as good: whether the text before had escapes.

    Examples
    --------
    >>> undo_escapes(rb'1;"a \"b\" c"', b";", True, False)
    b'1;"a ""b"" c"'
    >>> undo_escapes(rb'"C:\dir\";"a"', b";", True, False) is None
    True
    """
    doubled = double_escaped(text)
    plain, escaped = (misplaced_marks(one, delimiter).size + (whole and one.count(b'"') % 2) for one in (text, doubled))
    return doubled if escaped < plain or (usual and escaped == plain) else None


def last_line_end(buffer: bytearray, size: int, quoted: bool) -> int:
    """Where the last whole line ends; 0 if none does. If quoted, line ends between marks do not count."""
    end = buffer.rfind(b"\n", 0, size) + 1
    if not quoted or b'"' not in buffer or buffer.count(b'"', 0, end) % 2 == 0:
        return end
    text = np.frombuffer(buffer, np.uint8)[:end]
    outside = np.cumsum(text == _MARK) % 2 == 0
    ends = np.flatnonzero((text == _NEWLINE) & outside)
    return int(ends[-1]) + 1 if ends.size else 0
