"""What people hand in: ids of the wrong type, weights, titles."""

from collections import Counter
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

import deql
from deql.errors import ParameterError, UnknownItemError
from deql.ranking.histories import encode_histories, encode_history, known_columns, weighted_columns

ITEMS = np.array(["egg", "jam", "oat", "tea"], object)
INDEX = {item: column for column, item in enumerate(ITEMS.tolist())}


def fitted(items, titles=None):
    matrix = csr_array(np.array([[1.0, 2, 0, 0], [3, 0, 1, 0], [0, 1, 1, 2], [1, 1, 0, 1]]))
    data = deql.Interactions.from_csr(matrix, items=items)
    titles = None if titles is None else np.array(titles, object)
    return deql.EASE(l2=1.0).fit(deql.Interactions(data.matrix, data.users, data.items, titles=titles))


@pytest.fixture(scope="module")
def numbers():
    return fitted([10, 20, 30, 40])


@pytest.fixture(scope="module")
def texts():
    return fitted(["10", "20", "30", "40"])


class TestWeights:
    @settings(deadline=None)
    @given(
        st.lists(
            st.dictionaries(
                st.sampled_from(ITEMS.tolist()), st.floats(-1e30, 1e30, allow_nan=False) | st.integers(-9, 9)
            )
        )
    )
    def test_of_mappings_are_the_values_of_the_matrix(self, histories):
        expected = np.zeros((len(histories), len(ITEMS)))
        for row, history in enumerate(histories):
            for item, weight in history.items():
                expected[row, INDEX[item]] = weight
        found = encode_histories(histories, INDEX, ITEMS, strict=True)
        assert found.has_canonical_format
        assert found.nnz == np.count_nonzero(expected)
        np.testing.assert_array_equal(found.toarray(), expected)

    @pytest.mark.parametrize("kind", [dict, Counter, MappingProxyType])
    def test_may_be_in_any_mapping(self, kind):
        assert known_columns(kind({"tea": 2, "egg": 3}), INDEX) == ([0, 3], [3.0, 2.0], [])

    def test_and_lists_may_stand_side_by_side(self):
        found = encode_histories([["tea", "egg", "tea"], {"tea": 2.5}, []], INDEX, ITEMS, strict=True)
        assert found.toarray().tolist() == [[1, 0, 0, 1], [0, 0, 0, 2.5], [0, 0, 0, 0]]

    def test_are_single_precision_where_that_loses_nothing(self):
        for history, dtype in ((["tea"], np.float32), ({"tea": 2.5}, np.float32), ({"tea": 0.1}, np.float64)):
            assert encode_histories([history], INDEX, ITEMS, strict=True).dtype == dtype

    @pytest.mark.parametrize("weight", [Decimal("2.5"), np.float16(2.5), Fraction(5, 2)])
    def test_are_numbers_of_any_type(self, weight):
        assert known_columns({"tea": weight, "egg": np.True_, "jam": np.False_}, INDEX) == ([0, 3], [1.0, 2.5], [])

    def test_of_one_item_that_add_up_to_too_much_are_refused(self):
        with pytest.raises(
            ParameterError, match=r"the weight of 'tea' in a history must be a finite number, got 6e\+38"
        ):
            weighted_columns([("tea", 3e38), ("tea", 3e38)], INDEX)

    def test_of_one_user_need_a_list_around_the_mapping(self, texts):
        with pytest.raises(ParameterError, match=r"got \{'10': 2.0\} \(for one user with weights, wrap the mapping"):
            texts.recommend({"10": 2.0})

    def test_in_pairs_are_taken_for_ids(self, texts):
        with pytest.warns(UserWarning, match=r"\('10', 2.0\), .*; weights are given as a mapping, \{'10': 2.0\}$"):
            texts.recommend([[("10", 2.0), ("20", 1.0)]])

    def test_ids_in_an_array_are_no_row(self, numbers):
        assert numbers.explain(np.array([10, 20]), 30) == numbers.explain([10, 20], 30)

    def test_a_frame_is_no_single_history(self, numbers):
        frame = pd.DataFrame({"user": [1], "item": [10]})
        with pytest.raises(ParameterError, match=r"^a history must be a list of item ids, got [^\n]*$"):
            numbers.explain(frame, 20)

    def test_what_is_refused_is_named_in_one_short_line(self, numbers):
        for wrong in (dict.fromkeys(range(10000), 1.0), [pl.DataFrame({"item": [10, 20]})]):
            with pytest.raises(ParameterError) as caught:
                numbers.recommend(wrong)
            assert "\n" not in str(caught.value)
            assert len(str(caught.value)) < 300

    def test_one_history_of_nothing(self):
        assert encode_history([], INDEX, ITEMS, strict=True).shape == (1, 4)


class TestIdsOfAnotherType:
    TEXT = "the model's ids are whole numbers and '10' is text: give 10"
    NUMBER = "the model's ids are text and 10 is a number: give '10'"

    def test_are_known_if_they_are_equal(self, numbers):
        expected = numbers.recommend([[10, 40]], k=2)
        for history in ([10.0, 40.0], [np.int8(10), np.uint64(40)], np.array([10, 40], np.int16), np.array([10.0, 40])):
            assert numbers.recommend([history], k=2, strict=True).ids.tolist() == expected.ids.tolist()

    @pytest.mark.parametrize("model", ["numbers", "texts"])
    def test_are_told_in_every_message(self, model, request):
        wrong, hint = ("10", self.TEXT) if model == "numbers" else (10, self.NUMBER)
        right = 20 if model == "numbers" else "20"
        model = request.getfixturevalue(model)
        for history in ([right, wrong], [right, "gin", wrong], {right: 2.0, wrong: 1.0}):
            with pytest.warns(UserWarning, match=rf"^ignored \d unknown items? in histories: .*; {hint}$"):
                model.recommend([history])
            with pytest.raises(UnknownItemError, match=f"histories name items the model does not know: .*; {hint}$"):
                model.recommend([history], strict=True)
        for ask in (model.similar_items, model.neighbours, lambda item: model.explain([right], item)):
            with pytest.raises(UnknownItemError, match=f"^the model does not know the item {wrong!r}: {hint}$"):
                ask(wrong)
        for name in ("candidates", "exclude"):
            with pytest.warns(UserWarning, match=f"^ignored 1 unknown item in {name}: {wrong!r}; {hint}$"):
                model.recommend([[right]], **{name: [right, wrong]})
        with pytest.raises(UnknownItemError, match=f"none of the candidates: {wrong!r}; {hint}$"):
            model.recommend([[right]], candidates=[wrong])

    def test_that_would_not_be_known_either_are_only_unknown(self, numbers, texts):
        for model, item in ((numbers, "11"), (numbers, 10.5), (texts, 11), (texts, float("nan")), (texts, "9" * 5000)):
            with pytest.warns(UserWarning, match="^ignored 1 unknown item in histories: [^;]*$"):
                model.recommend([[item]])

    def test_tables_are_read_as_the_model_s_were(self, numbers, texts):
        """A file of whole numbers, once read as such and once as text."""
        for model, other in ((numbers, texts), (texts, numbers)):
            table = deql.Interactions.from_csr(csr_array([[0.0, 2.0]]), items=other.items_[:2])
            found = model.recommend(table, k=2, strict=True)
            assert found.scores.tolist() == model.recommend([{model.items_[1]: 2.0}], k=2).scores.tolist()


class TestTitles:
    @pytest.fixture(scope="class")
    @classmethod
    def films(cls):
        return fitted([10, 20, 30, 40], ["Toy Story (1995)", "Heat (1995)", "10", "Amélie (2001)"])

    def test_are_ids_whatever_their_case(self, films):
        assert films.recommend([["TOY STORY (1995)", "amélie (2001)"]], k=1, strict=True).ids.tolist() == [[20]]

    def test_that_look_like_an_id_of_another_type_are_titles(self, films):
        assert films.similar_items("10", k=1)[0].tolist() == films.similar_items(30, k=1)[0].tolist()

    def test_that_are_misspelt_are_suggested(self, films):
        for wrong in ("Toy Story (1996)", "toy story"):
            with pytest.raises(
                UnknownItemError, match=r"^the model does not know the item '.*' \(did you mean Toy Sto"
            ):
                films.similar_items(wrong)

    def test_are_not_looked_at_for_known_ids(self, films, monkeypatch):
        """A million of them would take a second."""
        monkeypatch.setattr("deql.ranking.item_lookup.TitleIndex.column", None)
        films.recommend([[10, 20], {30: 2.0}], exclude=[40], candidates=[10, 40], strict=True)
        films.explain([10], 20)
        films.similar_items(10)
