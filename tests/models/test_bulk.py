"""Many users at once: scores of given pairs, similar items, reasons, users by id, lists written as they are made."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import deql
from deql.errors import DataError, ParameterError, UnknownItemError
from deql.io.frame_stream import STREAM_ENDINGS
from deql.models import bulk, reasons
from tests.models.contract import IDS, N, cases, interactions

ITEMS = IDS["text"]
FRAMES = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "pyarrow": pa.table,
}


@pytest.fixture(scope="module")
def data():
    return replace(interactions(), users=np.arange(80))


@pytest.fixture(scope="module")
def others():
    return replace(interactions(users=30, seed=1), users=np.arange(30))


@pytest.fixture(scope="module", params=cases())
def model(request, data):
    return request.param.make().fit(data, keep_data=True)


@pytest.fixture(scope="module")
def ease(data):
    return deql.EASE(l2=2.0).fit(data, keep_data=True)


def columns_of(frame):
    if isinstance(frame, pa.Table):
        return frame.to_pydict()
    return {name: frame[name].to_list() for name in frame.columns}


class TestScorePairs:
    def test_are_the_scores_of_recommend_to_the_last_bit(self, model, others):
        lists = model.recommend(others, k=N, exclude_seen=False)
        generator = np.random.default_rng(0)
        asked = [generator.permutation(N)[: generator.integers(0, N)] for _ in range(others.n_users)]
        found = model.score_pairs(others, [model.items_[row].tolist() for row in asked])
        assert len(found) == others.n_users
        for scores, row, ids, expected in zip(found, asked, *lists, strict=True):
            by_item = dict(zip(ids.tolist(), expected.tolist(), strict=True))
            assert scores.tolist() == [by_item[item] for item in model.items_[row].tolist()]

    def test_of_one_item_twice_and_of_an_empty_history(self, model):
        found = model.score_pairs([[ITEMS[3]], []], [[ITEMS[5], ITEMS[5]], [ITEMS[2]]])
        assert found[0][0] == found[0][1]
        assert found[1].tolist() == [model.item_counts_[2] / model.n_users_]
        assert found.from_popularity.tolist() == [False, True]
        assert found[-1].tolist() == found[1:][0].tolist()

    @pytest.mark.parametrize("kind", FRAMES)
    def test_of_a_frame_come_as_such_a_frame_in_its_order(self, ease, data, kind):
        users, items = [5, 3, 5, 3, 5], [ITEMS[i] for i in (2, 0, 9, 0, 1)]
        pairs = FRAMES[kind]({"user": users, "item": items, "bid": [1, 2, 3, 4, 5]})
        found = ease.score_pairs(items=pairs)
        assert type(found) is type(pairs)
        table = columns_of(found)
        assert list(table) == ["user", "item", "title", "score", "from_popularity"]
        assert table["user"] == users
        assert table["item"] == items
        expected = [
            ease.score_pairs(users=[user], items=[[item]])[0][0] for user, item in zip(users, items, strict=True)
        ]
        assert table["score"] == expected
        assert not any(table["from_popularity"])

    def test_of_a_frame_with_other_histories(self, ease, others):
        pairs = pl.DataFrame({"user": [7, 2], "item": [ITEMS[1], ITEMS[0]]})
        found = ease.score_pairs(others, pairs)["score"].to_list()
        expected = ease.score_pairs(others.take_users(np.array([7, 2])), [[ITEMS[1]], [ITEMS[0]]])
        assert found == [scores[0] for scores in expected]

    def test_of_unknown_items_are_missing(self, ease):
        with pytest.warns(UserWarning, match=r"^1 item that the model does not know has no score: 'gin'$"):
            found = ease.score_pairs([[ITEMS[0]]], [["gin", ITEMS[1]]])
        assert np.isnan(found[0]).tolist() == [True, False]
        assert found.to_frame()["title"].to_list() == [None, "Item No. 1"]
        assert repr(found).startswith("ScoredPairs(2 pairs of 1 user: gin nan, Item No. 1 ")
        with pytest.raises(UnknownItemError, match="pairs name items the model does not know: 'gin'"):
            ease.score_pairs([[ITEMS[0]]], [["gin"]], strict=True)

    def test_of_ids_of_the_wrong_type_say_so(self, data):
        numbers = deql.EASE(l2=2.0).fit(data.matrix)
        with pytest.warns(
            UserWarning, match=r"no score: '1'; the model's ids are whole numbers and '1' is text: give 1$"
        ):
            numbers.score_pairs([[0]], [["1"]])

    @pytest.mark.parametrize(
        "make", [lambda ids: pd.Series(ids, dtype=float), lambda ids: pd.Series(ids, dtype="category")]
    )
    def test_of_ids_that_a_frame_holds_otherwise(self, data, make):
        numbers = deql.EASE(l2=2.0).fit(data.matrix, keep_data=True)
        pairs = numbers.score_pairs(items=pd.DataFrame({"user": make([3, 1]), "item": make([2, 0])}))
        assert pairs[["user", "item"]].values.tolist() == [[3, 2], [1, 0]]
        assert pairs[["user", "item"]].dtypes.tolist() == [np.int64, np.int64]
        assert pairs["score"].tolist() == [
            numbers.score_pairs(items=[[item]], users=[user])[0][0] for user, item in ((3, 2), (1, 0))
        ]

    def test_of_numbers_in_a_frame_are_those_of_text_ids(self):
        data = deql.Interactions.from_pairs([1, 1, 2, 2, 3], ["7", "8", "7", "x", "8"])
        model = deql.EASE(l2=1.0).fit(data, keep_data=True)
        found = model.score_pairs(items=pd.DataFrame({"user": [1, 3], "item": [7, 7]}))
        assert found["score"].tolist() == [row[0] for row in model.score_pairs(items=[["7"], ["7"]], users=[1, 3])]

    @pytest.mark.parametrize("kept", [True, False])
    def test_of_text_that_looks_like_numbers(self, kept):
        frame = pd.DataFrame({"user": ["1", "1", "2", "2", "3"], "item": ["7", "8", "7", "9", "8"]})
        data = deql.read_interactions(frame, "user", "item", ids="text")
        model = deql.EASE(l2=1.0).fit(data, keep_data=True)
        found = model.score_pairs(None if kept else frame, frame)
        assert found["item"].tolist() == frame["item"].tolist()
        assert found["score"].tolist() == [
            model.score_pairs(items=[[item]], users=[user])[0][0] for user, item in frame.values.tolist()
        ]
        assert found["user"].astype(str).tolist() == frame["user"].tolist()
        assert found["user"].tolist() == frame["user"].tolist() or not kept

    @pytest.mark.parametrize(
        ("frame", "said"),
        [
            (pl.DataFrame({"user": [[1]], "item": ["a"]}), "row 1: column user holds List"),
            (
                pl.LazyFrame({"user": ["a"], "item": ["a"]}).with_columns(pl.col("user").cast(pl.Int64)),
                "cannot be read",
            ),
            (pl.DataFrame({"user": [1.0, float("nan")], "item": ["a", "b"]}), "row 2: the user is missing$"),
        ],
    )
    def test_of_a_frame_that_does_not_serve(self, ease, frame, said):
        with pytest.raises(DataError, match=rf"^the frame.*{said}"):
            ease.score_pairs(items=frame)

    @pytest.mark.parametrize("items", [None, "item 1", ["item 1"], 3])
    def test_need_a_list_for_each(self, ease, items):
        with pytest.raises(ParameterError, match="items must be a list for each history"):
            ease.score_pairs([[ITEMS[0]]], items)

    def test_need_as_many_lists(self, ease):
        with pytest.raises(ParameterError, match=r"^2 histories need as many lists of items, got 1$"):
            ease.score_pairs([[ITEMS[0]], []], [[ITEMS[1]]])

    def test_a_frame_names_its_users(self, ease):
        with pytest.raises(ParameterError, match="leave out users"):
            ease.score_pairs(items=pl.DataFrame({"user": [1], "item": [ITEMS[1]]}), users=[1])

    def test_a_frame_with_gaps_is_refused(self, ease):
        with pytest.raises(DataError, match="row 2: the item is missing"):
            ease.score_pairs(items=pl.DataFrame({"user": [1, 1], "item": [ITEMS[1], None]}))


class TestSimilarItems:
    def test_of_several_are_those_of_each(self, model):
        asked = [ITEMS[7], ITEMS[0], ITEMS[7]]
        for given in (asked, np.array(asked, object)):
            found = model.similar_items(given, k=4)
            assert found.items.tolist() == asked
            for row, item in enumerate(asked):
                ids, scores = model.similar_items(item, k=4)
                assert found.ids[row].tolist() == ids.tolist()
                assert found.scores[row].tobytes() == scores.tobytes()

    def test_of_one_have_titles_too(self, ease):
        found, several = ease.similar_items(ITEMS[7], k=3), ease.similar_items([ITEMS[7]], k=3)
        assert found.titles.tolist() == several.titles[0].tolist()
        assert found.to_frame().equals(several.to_frame())
        assert repr(found) == repr(several)
        assert found._repr_html_() == several._repr_html_()
        assert pickle.loads(pickle.dumps(found)).titles.tolist() == found.titles.tolist()

    def test_as_a_frame(self, ease):
        frame = ease.similar_items([ITEMS[7], ITEMS[0]], k=2).to_frame()
        assert frame.columns == ["item", "rank", "similar", "title", "score"]
        assert frame["item"].to_list() == [ITEMS[7], ITEMS[7], ITEMS[0], ITEMS[0]]
        assert frame["title"].to_list() == [f"Item No. {ITEMS.index(item)}" for item in frame["similar"]]

    def test_of_none(self, ease):
        assert ease.similar_items([]).ids.shape == (0, 10)

    def test_one_that_is_unknown_is_named(self, ease):
        with pytest.raises(UnknownItemError, match="does not know the item 'gin'"):
            ease.similar_items([ITEMS[0], "gin"])


class TestReasons:
    def test_are_the_largest_positive_parts(self, model, others, monkeypatch):
        monkeypatch.setattr(reasons, "_PARTS", 40)  # several users at a time, and one that is too large alone
        binary = deql.Interactions.from_csr((others.matrix != 0).astype(float), items=others.items)
        found = model.recommend(binary, k=4, reasons=2)
        titles = dict(zip(ITEMS, model.titles_, strict=True))
        for user in range(binary.n_users):
            history = binary.history(user)
            for rank in range(4):
                item = found.ids[user, rank]
                if item is None:
                    assert found.reasons[user, rank] is None
                    continue
                parts = [part for part in model.explain(history, item) if part.value > 0]
                parts.sort(key=lambda part: (-part.value, ITEMS.index(part.item)))
                expected = "; ".join(titles[part.item] for part in parts[:2]) or None
                assert found.reasons[user, rank] == expected

    def test_weights_count(self):
        # Having 0 speaks for 2 less than having 1 does, unless it weighs more.
        W = np.array([[0, 0, 1], [0, 0, 2], [0, 0, 0]], float)
        model = deql.CustomLinear(W).fit(np.eye(3))
        assert model.recommend(np.array([[1.0, 1, 0], [3, 1, 0]]), k=1, reasons=1).reasons.tolist() == [["1"], ["0"]]

    def test_there_are_none_for_the_popularity_order(self, ease):
        found = ease.recommend([[], [ITEMS[1]]], k=3, reasons=1)
        assert found.reasons[0].tolist() == [None] * 3
        assert found.to_frame().columns[-1] == "reason"

    def test_there_are_none_for_cold_starts_alone(self, model):
        assert model.recommend([[], []], k=2, reasons=1).reasons.tolist() == [[None] * 2] * 2

    def test_there_are_none_unless_asked_for(self, ease):
        assert ease.recommend([[ITEMS[1]]]).reasons is None
        with pytest.raises(ParameterError, match="reasons must be a whole number"):
            ease.recommend([[ITEMS[1]]], reasons=-1)


class TestUsers:
    def test_by_id_get_the_lists_of_their_rows(self, model, data):
        whole = model.recommend(data, k=5)
        some = model.recommend(users=[7, 3, 7], k=5)
        assert some.users.tolist() == [7, 3, 7]
        assert some.ids.tolist() == whole.ids[[7, 3, 7]].tolist()
        assert some.scores.tobytes() == whole.scores[[7, 3, 7]].tobytes()

    def test_all_of_them_if_none_is_named(self, model, data):
        found, expected = model.recommend(k=3), model.recommend(data, k=3)
        assert found.users.tolist() == data.users.tolist()
        assert found.ids.tolist() == expected.ids.tolist()

    def test_of_given_histories(self, ease, others):
        expected = ease.recommend(others, k=3)
        assert ease.recommend(others, k=3, users=[4]).ids.tolist() == expected.ids[[4]].tolist()

    def test_without_data_get_the_popularity_order_with_a_warning(self, ease):
        with pytest.warns(UserWarning, match=r"^1 user gets the popularity order, for want of data: 999$") as caught:
            found = ease.recommend(users=[999, 3], k=3)
        assert caught[0].filename == __file__
        assert found.from_popularity.tolist() == [True, False]
        with pytest.raises(DataError, match=r"there are no data on the users 999$"):
            ease.recommend(users=[999], strict=True)

    def test_of_the_wrong_type_are_said_to_be_so(self, ease):
        with pytest.warns(UserWarning, match=r"ids of users are whole numbers in these data$"):
            ease.recommend(users=["3"])
        named = deql.EASE().fit(deql.Interactions.from_pairs(["1", "2", "1"], [1, 1, 2]), keep_data=True)
        with pytest.raises(DataError, match=r"no data on the users 1; ids of users are text in these data$"):
            named.recommend(users=[1], strict=True)

    def test_need_data(self, data):
        model = deql.EASE().fit(data)
        for asked in ({}, {"users": [3]}):
            with pytest.raises(ParameterError, match="or fit it with keep_data=True"):
                model.recommend(**asked)

    def test_are_not_found_in_lists(self, ease):
        with pytest.raises(ParameterError, match="give Interactions or a frame"):
            ease.recommend([[ITEMS[0]]], users=[0])

    @pytest.mark.parametrize("users", ["ann", 3])
    def test_must_be_a_list(self, ease, users):
        with pytest.raises(ParameterError, match="users must be a list of user ids"):
            ease.recommend(users=users)

    @pytest.mark.parametrize(
        "users", [[3.0, 999.0], np.array([3.0, 999.0]), pd.Series([3, 999], dtype="Int64"), [np.int32(3), 999]]
    )
    def test_keep_the_kind_of_their_ids(self, ease, users, tmp_path):
        with pytest.warns(UserWarning, match="for want of data: 999$"):
            found = ease.recommend(users=users, k=1)
        assert found.users.dtype == np.int64
        assert found.to_frame()["user"].to_list() == [3, 999]
        with pytest.warns(UserWarning, match="for want of data: 999$"):
            ease.write_recommendations(tmp_path / "lists.csv", users=users, k=1)
        assert pl.read_csv(tmp_path / "lists.csv")["user"].to_list() == [3, 999]

    def test_may_be_text_of_numpy(self):
        named = deql.EASE().fit(deql.Interactions.from_pairs(["ann", "bob", "ann"], [1, 1, 2]), keep_data=True)
        with pytest.warns(UserWarning, match="for want of data: 'eve'$"):
            assert named.recommend(users=[np.str_("ann"), np.str_("eve")]).users.tolist() == ["ann", "eve"]

    @pytest.mark.parametrize("users", [[3, "x"], [3, None], [float("nan")], pd.array([3, None], dtype="Int64"), [None]])
    def test_must_be_of_one_kind_without_gaps(self, ease, users):
        with pytest.raises(ParameterError, match="all of one kind and none missing"):
            ease.recommend(users=users)

    def test_are_a_column_of_a_frame(self, ease):
        with pytest.raises(ParameterError, match=r"got a frame: give its column of users$"):
            ease.recommend(users=pd.DataFrame({"user": [3]}))

    def test_must_be_single_values(self, ease):
        with pytest.raises(DataError, match="flat sequence"):
            ease.recommend(users=[[1], [2]])


class TestFrames:
    @pytest.mark.parametrize("kind", FRAMES)
    @pytest.mark.parametrize("ids", ["text", "integers"])
    def test_in_and_out(self, kind, ids):
        users = ["ann", "ann", "bob"] if ids == "text" else [3, 3, 1]
        items = ["tea", "jam", "tea"] if ids == "text" else [10, 20, 10]
        frame = FRAMES[kind]({"user_id": users, "item_id": items})
        model = deql.EASE(l2=1.0).fit(frame)
        found = model.recommend(frame, k=1)
        assert type(found) is type(frame)
        table = columns_of(found)
        assert list(table) == ["user", "rank", "item", "score", "from_popularity"]
        assert (table["user"], table["item"]) == ((["bob"], ["jam"]) if ids == "text" else ([1], [20]))

    def test_lazy_ones_too(self):
        frame = pl.LazyFrame({"user_id": ["ann", "ann", "bob"], "item_id": ["tea", "jam", "tea"]})
        assert deql.EASE(l2=1.0).fit(frame).recommend(frame)["item"].to_list() == ["jam"]

    def test_record_batches_too(self):
        batch = pa.table({"user_id": ["ann", "ann", "bob"], "item_id": ["tea", "jam", "tea"]}).to_batches()[0]
        found = deql.EASE(l2=1.0).fit(batch).recommend(batch)
        assert isinstance(found, pa.Table)
        assert found["item"].to_pylist() == ["jam"]

    def test_mark_the_popularity_order(self, ease):
        frame = pd.DataFrame({"user": ["ann", "bob"], "item": [ITEMS[0], "gin"]})
        with pytest.warns(UserWarning, match="unknown item"):
            found = ease.recommend(frame, k=2, reasons=1)
        assert found["from_popularity"].tolist() == [False, False, True, True]
        assert found["user"].tolist() == ["ann", "ann", "bob", "bob"]
        assert found["title"].tolist() == [f"Item No. {ITEMS.index(item)}" for item in found["item"]]
        assert found["reason"].isna().tolist()[2:] == [True, True]

    def test_some_users_of_a_frame(self, ease):
        frame = pl.DataFrame({"user": ["ann", "bob"], "item": [ITEMS[0], ITEMS[1]]})
        assert set(ease.recommend(frame, users=["bob"])["user"]) == {"bob"}

    def test_weights_are_not_lost_silently(self):
        frame = pl.DataFrame({"user": list("aabbcc"), "item": list("xyxzyz"), "rating": [5, 1, 4, 2, 1, 3]})
        weighted = deql.EASE(l2=1.0).fit(deql.read_interactions(frame, weight="rating"))
        for verb in (weighted.recommend, weighted.score):
            with pytest.warns(UserWarning, match=r"counts 1, though .*read_interactions\(frame, weight='rating'\)"):
                verb(frame)
        weighted.recommend(frame.drop("rating"))
        deql.EASE(l2=1.0).fit(frame).recommend(frame)

    def test_with_weights_say_that_these_are_not_used(self, data):
        weighted = deql.EASE(l2=2.0).fit(deql.Interactions.from_csr(data.matrix * 2.5, items=data.items))
        frame = pd.DataFrame({"user": [1, 1], "item": ITEMS[:2], "rating": [5.0, 0.5]})
        for kind in (frame, pl.from_pandas(frame), pl.from_pandas(frame).lazy(), pa.Table.from_pandas(frame)):
            with pytest.warns(UserWarning, match=r"every row of the frame counts 1, .*weight='rating'") as caught:
                weighted.recommend(kind)
            assert caught[0].filename == __file__
        weighted.recommend(frame[["user", "item"]])
        deql.EASE(l2=2.0).fit(deql.Interactions.from_csr(data.matrix > 0, items=data.items)).recommend(frame)

    def test_with_a_column_twice_are_refused(self, ease):
        with pytest.raises(DataError, match="several columns 'user'"):
            ease.recommend(pd.DataFrame([[1, 2, ITEMS[0]]], columns=["user", "user", "item"]))

    def test_whose_columns_cannot_be_guessed_say_where_to_name_them(self):
        frame = pl.DataFrame({"who": [1], "what": [2], "x": [3]})
        with pytest.raises(DataError, match=r"say user=… with one of .*, in deql.read_interactions, and give what it"):
            deql.EASE().fit(frame)


class TestWriteRecommendations:
    @pytest.mark.parametrize("ending", STREAM_ENDINGS)
    def test_writes_what_recommend_gives(self, ease, others, tmp_path, ending, monkeypatch):
        monkeypatch.setattr(bulk, "_LIST_ENTRIES", 20)
        monkeypatch.setattr(bulk, "_LEAST_USERS", 7)  # five blocks
        given = {"k": 3, "exclude": [ITEMS[2]], "reasons": 2}
        path = tmp_path / f"lists{ending}"
        written = ease.write_recommendations(path, others, **given)
        expected = ease.recommend(others, **given).to_frame()
        assert written == (len(expected), 30, 0)
        read = {".parquet": pl.read_parquet, ".csv": pl.read_csv, ".ndjson": pl.read_ndjson}[ending](path)
        assert read.equals(expected)
        assert [one.name for one in tmp_path.iterdir()] == [path.name]

    def test_marks_the_popularity_order(self, ease, tmp_path):
        written = ease.write_recommendations(tmp_path / "lists.ndjson", [[ITEMS[1]], []], k=1)
        assert written == (2, 2, 1)
        lines = [json.loads(line) for line in (tmp_path / "lists.ndjson").read_text().splitlines()]
        assert [line["from_popularity"] for line in lines] == [False, True]

    @pytest.mark.parametrize("ending", STREAM_ENDINGS)
    def test_of_reasons_that_begin_with_none(self, ease, tmp_path, ending):
        with pytest.warns(UserWarning, match="1 user gets the popularity order"):
            written = ease.write_recommendations(tmp_path / f"lists{ending}", users=[999, 3], k=2, reasons=1)
        assert written == (4, 2, 1)
        assert b"Item No. " in (tmp_path / f"lists{ending}").read_bytes()

    def test_of_ids_of_two_types_is_refused(self, ease, tmp_path):
        with pytest.raises(ParameterError, match=r"all of one kind .* got int and text"):
            ease.write_recommendations(tmp_path / "lists.csv", users=["zoe", 3])
        assert not list(tmp_path.iterdir())

    def test_of_nobody_is_an_empty_table_with_its_types(self, ease, tmp_path):
        assert ease.write_recommendations(tmp_path / "lists.parquet", []) == (0, 0, 0)
        read = pl.read_parquet(tmp_path / "lists.parquet")
        assert dict(read.schema)["item"] == pl.String
        assert len(read) == 0

    def test_that_fails_on_the_way_leaves_what_was_there(self, ease, others, tmp_path, monkeypatch):
        monkeypatch.setattr(bulk, "_LIST_ENTRIES", 20)
        monkeypatch.setattr(bulk, "_LEAST_USERS", 7)
        rank, calls = deql.EASE._rank, []

        def fail_at_the_third(self, *given):
            calls.append(1)
            if len(calls) == 3:
                raise DataError("the third block")
            return rank(self, *given)

        monkeypatch.setattr(deql.EASE, "_rank", fail_at_the_third)
        for ending in STREAM_ENDINGS:
            calls.clear()
            path = tmp_path / f"lists{ending}"
            path.write_text("before")
            with pytest.raises(DataError, match=r"^the third block$"):
                ease.write_recommendations(path, others, k=3)
            assert path.read_text() == "before"
            assert [one.name for one in tmp_path.iterdir()] == [path.name]
            path.unlink()

    def test_needs_an_ending_that_it_knows(self, ease, tmp_path):
        with pytest.raises(ParameterError, match=r"must end in one of \.parquet, \.csv, \.ndjson"):
            ease.write_recommendations(tmp_path / "lists.xlsx", [[]])
