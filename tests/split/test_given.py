"""A split of one's own: from tables, files and matrices, aligned to the items of train by id."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import deql
from deql import DataError, HeldOut, Interactions, ParameterError, Split, SplitFileError, load_split
from tests.data.reading import put
from tests.split.common import cells, parts

TRAIN = [("ann", "jam"), ("ann", "tea"), ("bob", "tea"), ("cat", "oat"), ("cat", "jam")]
VALIDATION = [("ann", "oat"), ("cat", "tea")]
TEST = [("bob", "jam"), ("bob", "oat"), ("ann", "rum"), ("cat", "rum"), ("cat", "tea")]


def table(pairs):
    return Interactions.from_pairs(*map(list, zip(*pairs, strict=True)))


def frame(pairs, library=pl):
    return library.DataFrame({"user": [user for user, _ in pairs], "item": [item for _, item in pairs]})


def pairs(data):
    return {(user, item) for user, item, _ in cells(data)}


def check(split):
    """What the three tables above give."""
    assert pairs(split.train) == set(TRAIN)
    assert pairs(split.validation.held_out) == set(VALIDATION)
    assert pairs(split.validation.seen) == {pair for pair in TRAIN if pair[0] in ("ann", "cat")}
    assert pairs(split.test.held_out) == {("bob", "jam"), ("bob", "oat"), ("cat", "tea")}
    assert pairs(split.test.seen) == {pair for pair in TRAIN if pair[0] in ("bob", "cat")}
    assert split.dropped == {"items": 1, "interactions": 2, "users": 1}
    assert (split.protocol, split.seed, split.parameters) == ("given", None, {})
    assert all(part.items is split.train.items for part in parts(split))


@pytest.mark.parametrize("kind", ["interactions", "polars", "pandas", "arrow", "csv", "parquet", "mixed"])
def test_of_anything_that_can_be_read(tmp_path, kind):
    made = []
    for place, rows in enumerate((TRAIN, VALIDATION, TEST)):
        one = "csv" if kind == "mixed" and place else "interactions" if kind == "mixed" else kind
        path = tmp_path / f"{place}.{one}"
        if one in ("csv", "parquet"):
            getattr(frame(rows), f"write_{one}")(path)
        made.append({"interactions": lambda rows=rows: table(rows), "polars": lambda rows=rows: frame(rows),
                     "pandas": lambda rows=rows: frame(rows, pd), "arrow": lambda rows=rows: frame(rows).to_arrow(),
                     "csv": lambda path=path: path, "parquet": lambda path=path: str(path)}[one]())  # fmt: skip
    check(Split(*made))
    check(Split(train=made[0], test=made[2], validation=made[1]))


def test_of_matrices():
    train, test = csr_array([[1, 0, 2], [0, 1, 0], [1, 1, 1]]), csr_array([[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    split = Split(train=train, test=test)
    assert split.validation is None
    assert split.test.seen.users.tolist() == [0, 1]
    assert split.test.held_out.matrix.toarray().tolist() == [[0, 1, 0], [1, 0, 0]]
    assert split.test.seen.matrix.toarray().tolist() == [[1, 0, 2], [0, 1, 0]]
    assert split.dropped == {"items": 0, "interactions": 0, "users": 0}
    wide = Split(train=train, test=csr_array([[0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 1]]))
    assert wide.test.held_out.matrix.shape == (2, 3)
    assert wide.dropped == {"items": 1, "interactions": 2, "users": 1}
    assert Split(train.toarray(), None, test.toarray()).test.seen.users.tolist() == [0, 1]


def test_new_users_come_as_a_pair():
    seen, held_out = table([("dan", "tea"), ("eve", "rum"), ("fay", "jam")]), table([("dan", "jam"), ("eve", "tea")])
    for pair in ((seen, held_out), [seen, held_out], (frame([("dan", "tea"), ("eve", "rum")]), held_out)):
        split = Split(table(TRAIN), None, pair)
        assert pairs(split.test.seen) == {("dan", "tea")}
        assert pairs(split.test.held_out) == {("dan", "jam")}
        assert split.dropped == {"items": 1, "interactions": 1, "users": 1}


def test_what_is_seen_is_not_to_be_found():
    split = Split(table(TRAIN), None, table([("ann", "jam"), ("ann", "oat"), ("bob", "tea")]))
    assert pairs(split.test.held_out) == {("ann", "oat")}
    assert split.dropped == {"items": 0, "interactions": 2, "users": 1}


@given(
    st.sets(st.tuples(st.integers(0, 5), st.integers(0, 6)), min_size=1, max_size=20),
    st.sets(st.tuples(st.integers(0, 5), st.integers(0, 6)), min_size=1, max_size=20),
    st.sets(st.tuples(st.integers(0, 5), st.integers(0, 6)), min_size=1, max_size=20),
)
def test_what_sets_of_pairs_say(train, seen, held_out):
    known = {item for _, item in train}
    expected_seen = {pair for pair in seen if pair[1] in known}
    expected = {pair for pair in held_out if pair[1] in known and pair not in seen}
    users = {user for user, _ in expected_seen} & {user for user, _ in expected}
    expected = {pair for pair in expected if pair[0] in users}
    if not users:
        with pytest.raises(DataError, match="nothing is left of test"):
            Split(table(sorted(train)), None, (table(sorted(seen)), table(sorted(held_out))))
        return
    split = Split(table(sorted(train)), None, (table(sorted(seen)), table(sorted(held_out))))
    assert pairs(split.test.seen) == {pair for pair in expected_seen if pair[0] in users}
    assert pairs(split.test.held_out) == expected
    assert split.dropped == {
        "items": len({item for _, item in seen | held_out} - known),
        "interactions": len(held_out) - len(expected),
        "users": len({user for user, _ in held_out} - users),
    }


def test_ids_in_another_order_times_and_titles():
    train = Interactions(csr_array([[1.0, 2.0, 0.0], [0.0, 3.0, 4.0]]), np.array([9, 4]), np.array([7, 3, 5]),
                         titles=np.array(["Seven", "Three", "Five"], object))  # fmt: skip
    test = Interactions(csr_array([[5.0, 0.0], [0.0, 6.0]]), np.array([4, 9]), np.array([7, 5]), np.array([8.0, 9.0]))
    split = Split(train, None, test)
    assert split.test.held_out.users.tolist() == [4, 9]
    assert split.test.held_out.matrix.toarray().tolist() == [[5, 0, 0], [0, 0, 6]]
    assert split.test.held_out.times.tolist() == [8.0, 9.0]
    assert split.test.held_out.titles.tolist() == ["Seven", "Three", "Five"]
    assert split.test.seen.matrix.toarray().tolist() == [[0, 3, 4], [1, 2, 0]]


def test_parts_that_fit_are_taken_as_they_are():
    whole = deql.split_strong(deql.datasets.debian().take_users(slice(0, 400)).without_empty(), seed=3)
    again = Split(whole.train, whole.validation, whole.test)
    assert again.test is whole.test
    assert again.validation is whole.validation
    assert again.dropped == {"items": 0, "interactions": 0, "users": 0}
    fewer = HeldOut(whole.test.seen.take_items(slice(5, None)), whole.test.held_out.take_items(slice(5, None)))
    assert Split(whole.train, None, fewer).test.seen.n_items == whole.train.n_items


def test_users_of_whom_nothing_is_seen_are_counted():
    alone = Split(table(TRAIN), None, table([("bob", "jam")]))
    split = Split(table(TRAIN), None, table([("bob", "jam"), ("zoe", "tea"), ("zoe", "jam")]))
    assert cells(split.test.held_out) == cells(alone.test.held_out)
    assert (split.dropped["users"], split.dropped["interactions"]) == (1, 2)


def test_evaluates_saves_and_loads(tmp_path):
    split = Split(table(TRAIN), table(VALIDATION), table(TEST))
    assert deql.evaluate(deql.Popularity().fit(split.train), split.test, "recall@2").means["recall@2"] > 0
    split.save(tmp_path / "a.split")
    check_again = load_split(tmp_path / "a.split")
    assert check_again.describe() == split.describe()
    assert cells(check_again.test.held_out) == cells(split.test.held_out)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((table(TRAIN),), ParameterError, "a split needs something to test on"),
        ((table(TRAIN), None, table([("pat", "jam"), ("zoe", "tea")])), DataError,
         r"none of the users of test is in train \('pat', 'zoe'\), .*: give test as a pair, what is seen and"),
        ((table(TRAIN), table([("zoe", "jam")]), table(TEST)), DataError, "none of the users of validation is in"),
        ((table(TRAIN), None, table([("bob", 5)])), DataError, "items of train and of test are whole .*ids='text'"),
        ((table(TRAIN), None, table([(5, "jam")])), DataError, "users of train and of test are whole numbers"),
        ((table(TRAIN), None, (table(TRAIN), table([(5, "jam")]))), DataError, "users of what is seen and of test"),
        ((table(TRAIN), None, (table(TRAIN),)), ParameterError, "test must be a table or a pair, .*, got 1 parts"),
        ((table(TRAIN), None, table([("bob", "rum")])), DataError, "nothing is left of test: train has none of its"),
        ((table(TRAIN), None, "no-such-file.csv"), DataError, "test: there is no file no-such-file.csv"),
        ((5, None, table(TRAIN)), DataError, "train: expected a file's path"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_split(arguments, error, message):
    with pytest.raises(error, match=message):
        Split(*arguments)


class TestFolders:
    @pytest.fixture
    def folder(self, tmp_path):
        frame(TRAIN).write_csv(tmp_path / "train.csv")
        frame(TEST).write_csv(tmp_path / "test.csv")
        frame(VALIDATION).write_csv(tmp_path / "valid.csv")
        return tmp_path

    @pytest.mark.parametrize("name", ["valid.csv", "val.csv", "validation.csv", "Validation.parquet"])
    def test_of_tables(self, folder, name):
        (folder / "valid.csv").unlink()
        (frame(VALIDATION).write_parquet if name.endswith("parquet") else frame(VALIDATION).write_csv)(folder / name)
        check(load_split(folder))

    @pytest.mark.parametrize("names", [("test_tr.csv", "test_te.csv"), ("test_seen.csv", "test_held_out.csv")])
    def test_of_pairs(self, folder, names):
        (folder / "test.csv").unlink()
        frame([("dan", "tea")]).write_csv(folder / names[0])
        frame([("dan", "jam")]).write_csv(folder / names[1])
        split = load_split(str(folder))
        assert pairs(split.test.held_out) == {("dan", "jam")}

    def test_with_options_of_reading(self, tmp_path):
        for name, rows in (("train", "a;1;x\na;2;y\nb;1;z\n"), ("test", "b;2;é\n;1;x\n")):
            put(tmp_path / f"{name}.csv", f"wer;was;when\n{rows}".encode("latin-1"))
        titles = put(tmp_path / "titles.txt", "1,Tea\n2,Jam\n")
        split = load_split(tmp_path, user="wer", item="was", encoding="latin-1", on_missing="skip", items=titles)
        assert split.test.held_out.history("b") == [2]
        assert split.test.held_out.titles.tolist() == ["Tea", "Jam"]

    def test_as_published_with_validation(self, tmp_path):
        for name, text in (("train", "0 1 2\n1 2\n"), ("valid", "0 3\n"), ("test", "0 4\n1 1\n")):
            put(tmp_path / f"{name}.txt", text)
        split = load_split(tmp_path)
        assert split.protocol == "published"
        assert split.train.items.tolist() == [1, 2, 3, 4]
        assert split.validation.held_out.history(0) == [3]
        assert split.test.held_out.history(1) == [1]
        assert split.train.steps[0].what.endswith("train.txt, valid.txt, test.txt")
        with pytest.raises(ParameterError, match=r"a published split is read with ids, .*, not with user"):
            load_split(tmp_path, user="user")

    def test_text_files_that_are_tables(self, tmp_path):
        for name, text in (("train", "ann\t1\t5\nann\t2\t4\nbob\t1\t3\n"), ("test", "bob\t2\t3\n")):
            put(tmp_path / f"{name}.txt", text)
        split = load_split(tmp_path)
        assert (split.protocol, split.test.held_out.history("bob")) == ("given", [2])

    def test_what_is_no_split(self, folder):
        put(folder / "train.parquet", "")
        with pytest.raises(DataError, match=r"holds train\.csv and train\.parquet, both of them train: remove one"):
            load_split(folder)
        (folder / "train.parquet").unlink()
        put(folder / "test_seen.csv", "user,item\nann,tea\n")
        with pytest.raises(DataError, match=r"holds test\.csv and test_seen\.csv: remove one"):
            load_split(folder)
        (folder / "test_seen.csv").unlink()
        put(folder / "validation_tr.csv", "user,item\nann,tea\n")
        with pytest.raises(DataError, match=r"holds valid\.csv and validation_tr\.csv"):
            load_split(folder)
        (folder / "valid.csv").unlink()
        with pytest.raises(DataError, match=r"holds validation_tr\.csv alone: validation_seen and validation_held_out"):
            load_split(folder)
        (folder / "test.csv").unlink()
        with pytest.raises(SplitFileError, match="there is no split file"):
            load_split(folder)

    def test_is_not_read_as_one_table(self, folder):
        with pytest.raises(DataError, match=r"holds a split, test\.csv and train\.csv: .*load_split"):
            deql.read_interactions(folder)
