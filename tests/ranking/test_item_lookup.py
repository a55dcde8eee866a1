import numpy as np
import polars as pl
import pytest

from deql.errors import ParameterError, UnknownItemError
from deql.ranking.item_lookup import TitleIndex, find_column, known_column, suggest_items, wrong_kind

ITEMS = np.array(["a", "b", "c", "d", "e", "f", "g"], object)
TITLES = np.array(["Tea", "b", "Straße", "tea", "TEA", "Tea ", "c"], object)


def test_an_id_comes_before_a_title():
    index = {item: column for column, item in enumerate(ITEMS.tolist())}
    titles = TitleIndex(TITLES, ITEMS)
    assert [find_column(item, index, titles) for item in ("b", "c", "STRASSE", "x", 5, None)] == [
        1,
        2,
        2,
        None,
        None,
        None,
    ]
    with pytest.raises(ParameterError, match=r"a single value, got \['a'\]"):
        find_column(["a"], index, titles)


def test_all_items_with_a_title_are_named():
    with pytest.raises(UnknownItemError, match=r"^3 items are called 'teA': say which by its id, 'a', 'd', 'e'$"):
        TitleIndex(TITLES, ITEMS).column("teA")


def test_suggestions_come_from_what_people_read():
    assert suggest_items("stra", ITEMS, TITLES) == " (did you mean Straße?)"
    assert suggest_items("aa", ITEMS, None) == " (did you mean a?)"
    assert suggest_items("1", np.arange(3), None) == suggest_items(1, ITEMS, TITLES) == ""


def test_of_very_many_names_only_those_with_the_text_in_them_are_suggested(monkeypatch):
    monkeypatch.setattr("deql.ranking.item_lookup._MOST_COMPARED", 3)
    assert suggest_items("strasse", ITEMS, TITLES) == " (did you mean Straße?)"
    assert suggest_items("Straßf", ITEMS, TITLES) == ""


@pytest.mark.parametrize("item", [np.int64(7), np.uint8(7), np.float32(7), 7.0, 7])
def test_numbers_of_any_type_are_told_from_text(item):
    assert wrong_kind([item], {"7": 0}).endswith("is a number: give '7'")
    assert wrong_kind([item], {"8": 0}) == ""


def test_what_is_unknown_is_named_whatever_it_is():
    for item in (np.array([1, 2]), pl.Series([1, 2])):
        with pytest.raises(UnknownItemError, match=r"^the model does not know the item [^\n]*$"):
            known_column(item, {"7": 0}, ITEMS)
