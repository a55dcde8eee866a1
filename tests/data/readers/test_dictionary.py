"""The hash table against a dict."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deql.data.readers.dictionary import Dictionary, TextPart, text_part

TEXTS = st.one_of(st.text(max_size=4), st.sampled_from(["", "a", "aa", "é", "日本", "\0", "a\0", "x" * 300]))


def series(texts):
    return pl.Series(texts, dtype=pl.String)


def assert_agrees(parts, make=lambda texts: text_part(series(texts))):
    words, numbers = Dictionary(), {}
    for texts in parts:
        expected = [numbers.setdefault(text, len(numbers)) for text in texts]
        assert words.encode(make(texts)).tolist() == expected
    assert words.texts() == list(numbers)


@settings(deadline=None)
@given(st.lists(st.lists(TEXTS, max_size=12), max_size=5))
def test_agrees_with_a_dict(parts):
    assert_agrees(parts)


@settings(deadline=None)
@given(st.lists(st.lists(TEXTS, max_size=12), max_size=3), st.sampled_from([0, 4095, 2**64 - 1]))
def test_texts_with_the_same_hash_stay_apart(parts, shared):
    def clashing(texts):
        part = text_part(series(texts))
        return TextPart(part.buffer, part.begins, part.lengths, np.full(len(part), shared, np.uint64))

    assert_agrees(parts, clashing)


@pytest.mark.parametrize("length", [1, 7, 40])
def test_grows(length):
    texts = [f"{number:0{length}d}" for number in range(9000)]
    assert_agrees([texts[:3000], texts[2000:2500], texts, texts[::-1]])


def test_a_text_longer_than_all_room():
    assert_agrees([["a", "é" * 200_000, "b"], ["é" * 200_000, "c" * 70_000]])


def test_parts_of_a_buffer():
    buffer = np.frombuffer(b"tea,jam,tea", np.uint8)
    part = TextPart.of(buffer, np.array([8, 4, 0]), np.array([3, 3, 3], np.int32))
    assert [part[row] for row in range(len(part))] == ["tea", "jam", "tea"]
    assert Dictionary().encode(part).tolist() == [0, 1, 0]
