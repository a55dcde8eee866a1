"""Search by name against looking at every name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("fastapi", reason="the service needs the extra serve")

from deql.serve import catalogue
from deql.serve.catalogue import Catalogue, plain

LETTERS = st.text("aÁb- \n", max_size=5)


@settings(max_examples=60)
@given(st.lists(st.tuples(LETTERS, st.integers(0, 3)), min_size=1, max_size=12), LETTERS, st.integers(1, 13))
def test_finds_what_every_name_says(entries, query, limit):
    names, counts = [name for name, _ in entries], np.array([count for _, count in entries])
    wanted = plain(query)

    def kind(name):
        name = plain(name)
        begins = any(name.startswith(wanted, at) and not name[at - 1].isalnum() for at in range(1, len(name)))
        return 0 if name == wanted else 1 if name.startswith(wanted) else 2 if begins else 3

    matches = [column for column, name in enumerate(names) if wanted in plain(name)]
    if wanted:
        matches.sort(key=lambda column: (kind(names[column]), -counts[column]))
    else:
        matches.sort(key=lambda column: -counts[column])
    assert Catalogue(names, counts).find(query, limit) == (matches[:limit], len(matches) > limit)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000])
def test_names_in_parts_are_as_all_at_once(count, monkeypatch):
    generator = np.random.default_rng(5)
    names = [f"{word:b}-x" for word in generator.integers(0, count, count).tolist()]  # some twice
    counts = generator.integers(0, 9, count)
    whole, most = Catalogue(names, counts), []
    monkeypatch.setattr(catalogue, "_NAMES_AT_ONCE", 64)
    monkeypatch.setattr(
        catalogue, "sorted", lambda values, **how: most.append(len(values)) or sorted(values, **how), raising=False
    )
    parts = Catalogue(names, counts)
    assert vars(parts).keys() == vars(whole).keys()
    assert all(np.array_equal(value, vars(whole)[name]) for name, value in vars(parts).items())
    assert most.pop(0) <= 1000 / 4 + 1  # the sample
    assert max(most) <= 3 * 64
