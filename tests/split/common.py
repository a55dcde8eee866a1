"""What the tests of all protocols look at."""

from __future__ import annotations

import hashlib

import numpy as np
from hypothesis import strategies as st
from scipy.sparse import csr_array

from deql import Interactions
from deql.data import Step


def cells(data):
    """The interactions as a set of (user, item, value)."""
    rows = np.repeat(np.arange(data.n_users), np.diff(data.matrix.indptr))
    ids = zip(data.users[rows].tolist(), data.items[data.matrix.indices].tolist(), strict=True)
    return {(*pair, value) for pair, value in zip(ids, data.matrix.data.tolist(), strict=True)}


def parts(split):
    judged = [part for part in (split.validation, split.test) if part is not None]
    return [split.train, *(half for part in judged for half in (part.seen, part.held_out))]


def fingerprint(split):
    digest = hashlib.sha256()
    for part in parts(split):
        digest.update(repr((part.users.tolist(), part.items.tolist(), sorted(cells(part)))).encode())
    return digest.hexdigest()


@st.composite
def tables(draw, min_users=2):
    """Weighted interactions with times (some tied), titles and steps; some users and items may have none."""
    m, n = draw(st.integers(min_users, min_users + 12)), draw(st.integers(2, 9))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = generator.integers(1, 6, (m, n)) * (generator.random((m, n)) < generator.uniform(0.2, 1.0, n))
    values[: max(2, m // 2), :2] = 3  # something to learn from and to find
    matrix = csr_array(values.astype(np.float32))
    return Interactions(
        matrix,
        np.array([f"u{u:02}" for u in range(m)], object),
        np.arange(n) * 10,
        times=generator.integers(0, 4, matrix.nnz).astype(float),
        titles=np.array([f"title {i * 10}" for i in range(n)], object),
        steps=(Step("read", m, n, matrix.nnz),),
    )
