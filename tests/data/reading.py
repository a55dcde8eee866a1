"""What the tests of reading share: files in, cells out, refusals in one line."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

from deql import DeqlError, read_interactions
from deql.data.readers import blocks


def cells(data):
    """{(user, item): value}."""
    return _by_pair(data, data.matrix.data)


def moments(data):
    """{(user, item): time}."""
    return _by_pair(data, data.times)


def _by_pair(data, values):
    rows = np.repeat(np.arange(data.n_users), np.diff(data.matrix.indptr))
    pairs = zip(data.users[rows].tolist(), data.items[data.matrix.indices].tolist(), strict=True)
    return dict(zip(pairs, values.tolist(), strict=True))


def put(path, content):
    """Write text or bytes, folders included; the path again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refusal(source, *columns, **choices):
    """The one line that a source is refused with."""
    with pytest.raises(DeqlError) as caught:
        read_interactions(source, *columns, **choices)
    text = str(caught.value)
    assert text.isprintable(), "one line, and nothing that a terminal would obey"
    return text


@contextmanager
def small_blocks(size):
    """Cut files every so many bytes, so that borders fall everywhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_BLOCK", size)
        yield
