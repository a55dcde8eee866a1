"""Presets on small files in exactly the public formats; the real ones where $DEQL_DATA has them."""

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import deql
from deql.datasets import public
from deql.datasets.public import PRESETS, Shape, compare_with_paper, locate, prepare
from deql.errors import DataError, ParameterError
from deql.split import load_split, read_lightgcn_split
from tests.split.common import cells, fingerprint

DATA = Path(os.environ.get("DEQL_DATA", "no data"))


@pytest.fixture
def few_evaluated(monkeypatch):
    """Presets that hold out a few users rather than ten thousands."""
    for name, preset in PRESETS.items():
        if preset.evaluated_users is not None:
            monkeypatch.setitem(PRESETS, name, replace(preset, evaluated_users=3))


def everything(split):
    """All interactions of a strong split, dropped ones aside."""
    parts = [split.train, *(half for part in (split.validation, split.test) for half in (part.seen, part.held_out))]
    return {(user, item) for part in parts for user, item, value in cells(part) if value == 1}


def ratings():
    """(user, item, rating) by a formula: 60 users, 12 items, uneven in both."""
    return [
        (u, i, 5.0 if (u + 2 * i) % 3 else 3.5)
        for u in range(1, 61)
        for i in range(12)
        if (7 * u + 5 * i + u * i) % 12 < 3 + u % 8
    ]


def at_least(pairs, side, count):
    """Pairs whose user (side 0) or item (side 1) has so many of them."""
    counted = [pair[side] for pair in pairs]
    return [pair for pair in pairs if counted.count(pair[side]) >= count]


def assert_prepared(name, folder, expected):
    """The split holds the expected pairs, and its steps say how many there were."""
    split = prepare(name, folder, seed=4)
    found = everything(split)
    assert found <= set(expected)
    assert len(found) == len(expected) - split.dropped["interactions"] > 20
    last = split.train.steps[-1]
    assert (last.users, last.interactions) == (len({user for user, _ in expected}), len(expected))
    assert (split.protocol, split.seed, split.parameters["held_out"]) == ("strong", 4, 0.2)
    assert fingerprint(prepare(name, folder, seed=4)) == fingerprint(split) != fingerprint(prepare(name, folder))
    return split


LIKED = [(u, i) for u, i, rating in ratings() if rating >= 4]


def test_ml20m(tmp_path, few_evaluated):
    rows = [f"{u},{i},{rating},1112486027" for u, i, rating in ratings()]
    (tmp_path / "ratings.csv").write_text("\n".join(["userId,movieId,rating,timestamp", *rows]) + "\n")
    (tmp_path / "movies.csv").write_text("movieId,title,genres\n10,Toy Story (1995),Comedy\n")
    split = assert_prepared("ml20m", tmp_path, at_least(LIKED, 0, 5))
    assert split.parameters["test_users"] == 3 / split.train.steps[-1].users
    assert split.train.n_users == split.train.steps[-1].users - 6


def test_netflix(tmp_path, few_evaluated):
    for part, items in ((1, range(5)), (2, range(5, 12))):
        lines = []
        for film in items:
            lines += [f"{film}:", *(f"{u},{int(rating)},2005-09-06" for u, i, rating in ratings() if i == film)]
        (tmp_path / f"combined_data_{part}.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "movie_titles.csv").write_text("1,2003,Dinosaur Planet\n")
    (tmp_path / "probe.txt").write_text("1:\n30878\n")
    assert_prepared("netflix", tmp_path, at_least(LIKED, 0, 5))


def test_msd(tmp_path, few_evaluated, monkeypatch):
    cleaning = PRESETS["msd"].cleaning
    assert (cleaning["min_users_per_item"], cleaning["min_items_per_user"]) == (200, 20)
    smaller = {"binary": True, "min_users_per_item": 37, "min_items_per_user": 4}
    monkeypatch.setitem(PRESETS, "msd", replace(PRESETS["msd"], cleaning=smaller))
    lines = [f"b8{u:038x}\tSO{i:016X}\t{1 + u % 3}" for u, i, _ in ratings()]
    with gzip.open(tmp_path / "train_triplets.txt.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    pairs = [(f"b8{u:038x}", f"SO{i:016X}") for u, i, _ in ratings()]
    popular = at_least(pairs, 1, 37)
    assert len(popular) < len(pairs)
    assert_prepared("msd", tmp_path, at_least(popular, 0, 4))


def test_gowalla_1(tmp_path):
    lines = [
        f"{u}\t2010-10-19T23:55:{again:02}Z\t30.2359\t-97.7951\t{i}" for u, i, _ in ratings() for again in range(2)
    ]
    (tmp_path / "loc-gowalla_totalCheckins.txt").write_text("\n".join(lines) + "\n")
    pairs = [(u, i) for u, i, _ in ratings()]
    assert_prepared("gowalla-1", tmp_path, at_least(at_least(pairs, 1, 20), 0, 5))


def write_halves(folder, pairs):
    """LightGCN's two files: every third pair is in the test."""
    for name, kept in (("train", (0, 1)), ("test", (2,))):
        lists = {u: [str(i) for place, (v, i) in enumerate(pairs) if v == u and place % 3 in kept] for u, _ in pairs}
        text = "".join(" ".join([str(u), *items]) + "\n" for u, items in lists.items())
        (folder / f"{name}.txt").write_text(text)


class TestGowalla1FromThePublishedSplit:
    pairs = [(u, i) for u, i, _ in ratings()]  # noqa: RUF012

    def test_the_two_files_are_joined(self, tmp_path):
        write_halves(tmp_path, self.pairs)
        split = assert_prepared("gowalla-1", tmp_path, at_least(at_least(self.pairs, 1, 20), 0, 5))
        assert split.train.steps[0].what.endswith("train.txt, test.txt")
        assert split.train.steps[0].interactions == len(self.pairs)

    def test_a_pair_of_both_files_counts_once(self, tmp_path):
        write_halves(tmp_path, self.pairs)
        before = fingerprint(prepare("gowalla-1", tmp_path, seed=4))
        (tmp_path / "test.txt").write_text((tmp_path / "train.txt").read_text() + (tmp_path / "test.txt").read_text())
        assert fingerprint(prepare("gowalla-1", tmp_path, seed=4)) == before

    def test_is_the_same_as_from_check_ins(self, tmp_path):
        """Where both have all that cleaning keeps."""
        (tmp_path / "two").mkdir()
        write_halves(tmp_path / "two", self.pairs)
        lines = [f"{u}\t2010-10-19T23:55:00Z\t30.2359\t-97.7951\t{i}" for u, i in self.pairs]
        (tmp_path / "loc-gowalla_totalCheckins.txt").write_text("\n".join(lines) + "\n")
        one, other = (prepare("gowalla-1", folder, seed=1) for folder in (tmp_path, tmp_path / "two"))
        assert everything(one) == everything(other)
        assert sorted(one.test.seen.users.tolist()) == sorted(other.test.seen.users.tolist())


class TestLocate:
    def test_the_first_of_several_files(self, tmp_path):
        write_halves(tmp_path, LIKED)
        assert locate("gowalla-1", tmp_path) == ("train.txt", tmp_path / "train.txt")
        assert locate("gowalla", tmp_path) == ("train.txt", tmp_path / "train.txt")
        packed = tmp_path / "loc-gowalla_totalCheckins.txt.gz"
        packed.touch()
        assert locate("gowalla-1", tmp_path) == ("loc-gowalla_totalCheckins.txt", packed)

    def test_parts_of_a_table(self, tmp_path):
        (tmp_path / "combined_data_2.txt").touch()
        assert locate("netflix", tmp_path) == ("combined_data_*.txt", tmp_path / "combined_data_2.txt")

    @pytest.mark.parametrize("name", ["gowalla-1", "gowalla"])
    def test_half_a_split_is_none(self, tmp_path, name):
        (tmp_path / "train.txt").write_text("0 1\n")
        with pytest.raises(DataError, match=rf"has no file test\.txt: get the data set {name} from "):
            locate(name, tmp_path)
        (tmp_path / "train.txt").rename(tmp_path / "test.txt")
        with pytest.raises(DataError, match=r"has no file .*train\.txt: get the data set "):
            locate(name, tmp_path)

    def test_packed_halves_of_a_split(self, tmp_path):
        """What is located can be read."""
        for name in ("train.txt", "test.txt"):
            with gzip.open(tmp_path / f"{name}.gz", "wt") as file:
                file.write("0 1 2\n1 2\n")
        assert locate("gowalla", tmp_path)[1] == tmp_path / "train.txt.gz"
        assert prepare("gowalla", tmp_path).train.n_interactions == 3

    def test_no_folder(self, tmp_path):
        with pytest.raises(DataError, match=r"^there is no folder .*missing with the files of msd \(the Echo Nest"):
            locate("msd", tmp_path / "missing")


@pytest.mark.parametrize("file", ["Beauty_5.json.gz", "reviews_Beauty_5.json", "ratings_Beauty.csv", "Beauty.csv"])
def test_beauty(tmp_path, file):
    rows = [(f"A{u:012}", f"B{i:09}", rating) for u, i, rating in ratings()]
    if "json" in file:
        lines = [
            json.dumps({"overall": r, "verified": True, "reviewTime": "09 4, 2015", "reviewerID": u, "asin": i,
                        "style": {"Size:": "5"}, "reviewText": "a \"b\", c", "unixReviewTime": 1441324800})
            for u, i, r in rows
        ]  # fmt: skip
    else:
        lines = [",".join([u, i, str(r), "1441324800"] if "ratings" in file else [i, u, str(r), "1441324800"])
                 for u, i, r in rows]  # fmt: skip
    text = "\n".join(lines) + "\n"
    (tmp_path / file).write_bytes(gzip.compress(text.encode()) if file.endswith(".gz") else text.encode())
    pairs = [(u, i) for u, i, rating in rows if rating >= 4]
    assert_prepared("beauty", tmp_path, at_least(at_least(pairs, 1, 5), 0, 3))


def test_games_is_a_core(tmp_path):
    """Twenty users with twelve games each stay; one who has nine, and that one's own game, go."""
    rows = [(f"A{u}", f"B{i}", 4.0) for u in range(20) for i in range(12)]
    rows += [("C", f"B{i}", 5.0) for i in range(8)] + [("C", "D", 5.0)]
    lines = [json.dumps({"reviewerID": u, "asin": i, "overall": r}) for u, i, r in rows]
    (tmp_path / "Video_Games.json").write_text("\n".join(lines) + "\n")
    split = prepare("games", tmp_path)
    assert (split.train.steps[-1].users, split.train.steps[-1].items) == (20, 12)
    assert [row["same"] for row in compare_with_paper("games", split)] == [False] * 5


class TestPublishedSplits:
    @pytest.fixture
    def folder(self, tmp_path):
        """User 2 is only in train, user 3 only in the test; item 7 is only in the test; user 1's list is empty."""
        (tmp_path / "train.txt").write_text("0 4 1 9\n1 4\n2 9 1\n")
        (tmp_path / "test.txt").write_text("0 7\n1\n3 4 1\n")
        return tmp_path

    def test_have_the_users_and_items_of_both_files(self, folder):
        split = read_lightgcn_split(folder)
        assert split.train.users.tolist() == [0, 1, 2, 3]
        assert split.train.items.tolist() == [1, 4, 7, 9]
        assert split.train.matrix.toarray().tolist() == [[1, 1, 0, 1], [0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 0, 0]]
        assert split.test.held_out.matrix.toarray().tolist() == [[0, 0, 1, 0], [0] * 4, [0] * 4, [1, 1, 0, 0]]
        assert split.test.seen is split.train
        assert split.validation is None
        assert (split.protocol, split.seed, split.dropped) == ("published", None, {})

    def test_can_be_saved(self, folder):
        split = read_lightgcn_split(folder)
        split.save(folder / "a.split")
        assert fingerprint(load_split(folder / "a.split")) == fingerprint(split)

    @pytest.mark.parametrize("name", ["train.txt", "test.txt"])
    def test_need_both_files(self, folder, name):
        (folder / name).unlink()
        with pytest.raises(DataError, match=f"has no file {name}: a published split is a folder with train.txt and"):
            read_lightgcn_split(folder)
        with pytest.raises(DataError, match=f"has no file {name}: get the data set gowalla from the authors of Light"):
            prepare("gowalla", folder)

    def test_name_things_alike_in_both_files(self, folder):
        (folder / "test.txt").write_text("0 seven\n1 eight nine\n")
        with pytest.raises(DataError, match=r"whole numbers in one of train\.txt and test\.txt and text in the other"):
            read_lightgcn_split(folder)


@pytest.mark.parametrize("name", PRESETS)
def test_missing_files_are_named_and_so_is_who_publishes_them(tmp_path, name):
    with pytest.raises(DataError, match=r"has no file [A-Za-z_]+.*: get the data set") as caught:
        prepare(name, tmp_path)
    assert PRESETS[name].published in str(caught.value)
    with pytest.raises(DataError, match="there is no folder"):
        prepare(name, tmp_path / "missing")


def test_an_unknown_name(tmp_path):
    with pytest.raises(ParameterError, match="unknown data set 'ml-20m': say one of ml20m, netflix"):
        prepare("ml-20m", tmp_path)


def test_too_few_users_for_the_preset(tmp_path):
    rows = [f"{u},{i},{rating},1112486027" for u, i, rating in ratings()]
    (tmp_path / "ratings.csv").write_text("\n".join(["userId,movieId,rating,timestamp", *rows]) + "\n")
    with pytest.raises(DataError, match="users after cleaning, but ml20m needs 10,000 for the test"):
        prepare("ml20m", tmp_path)


# What the paper prints for density and item-user ratio, beside its counts.
@pytest.mark.parametrize(
    ("name", "density", "ratio"),
    [
        ("games", 1.69, 0.89), ("beauty", 0.10, 0.24), ("gowalla-1", 0.17, 0.47), ("ml20m", 0.36, 0.15),
        ("netflix", 0.69, 0.04), ("msd", 0.14, 0.07), ("amazon-book", 0.06, 1.74), ("yelp2018", 0.13, 1.20),
        ("gowalla", 0.08, 1.37),
    ],
)  # fmt: skip
def test_the_papers_counts_agree_with_its_ratios(name, density, ratio):
    paper = PRESETS[name].paper
    assert 100 * paper.density == pytest.approx(density, abs=0.0051)
    assert paper.item_user_ratio == pytest.approx(ratio, abs=0.0051)


def test_the_comparison_says_what_is_the_same(tmp_path, monkeypatch):
    (tmp_path / "train.txt").write_text("0 0 1\n1 1 2\n")
    (tmp_path / "test.txt").write_text("0 2\n1 0\n")
    for paper, same in ((Shape(3, 2, 6), [True] * 5), (Shape(3, 2, 5), [True, True, False, False, True])):
        monkeypatch.setitem(PRESETS, "gowalla", replace(PRESETS["gowalla"], paper=paper))
        rows = compare_with_paper("gowalla", prepare("gowalla", tmp_path))
        assert [row["same"] for row in rows] == same
        assert [row["found"] for row in rows] == [3, 2, 6, 1.0, 1.5]
        assert rows[2]["paper"] == paper.interactions


def test_datasets_has_prepare():
    assert deql.datasets.prepare is public.prepare


@pytest.mark.data
@pytest.mark.parametrize("name", ["gowalla", "yelp2018"])
def test_the_real_files_have_the_papers_counts(name):
    if not (DATA / name).is_dir():
        pytest.skip(f"$DEQL_DATA has no folder {name}")
    split = prepare(name, DATA / name)
    assert all(row["same"] for row in compare_with_paper(name, split))
    both = np.intersect1d(*(
        np.repeat(np.arange(part.n_users), np.diff(part.matrix.indptr)) * part.n_items + part.matrix.indices
        for part in (split.train, split.test.held_out)
    ))  # fmt: skip
    assert not both.size
