"""Random interaction matrices for the oracle tests: real values, uneven columns, never symmetric."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st


@st.composite
def ratings(draw, min_items=2, max_items=8, binary=None):
    """Users × items with more users than items and no empty column; binary or real-valued."""
    n = draw(st.integers(min_items, max_items))
    m = draw(st.integers(n + 2, 3 * n + 4))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    share = generator.uniform(0.2, 0.8, n)  # each item with a popularity of its own
    R = (generator.random((m, n)) < share).astype(float)
    if not (draw(st.booleans()) if binary is None else binary):
        R *= generator.uniform(0.5, 2.0, (m, n))
    # An item that nobody has is tested on its own; n distinct users make S invertible.
    R[np.arange(n), np.arange(n)] = 1 + generator.random(n)
    return R
