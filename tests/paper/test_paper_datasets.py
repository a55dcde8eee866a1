"""Data sets: found where their files are, and missed in words that help."""

from pathlib import Path

import numpy as np
import pytest

import deql
from deql.datasets.public import PRESETS, prepare
from deql.errors import ParameterError
from deql.paper.paper_datasets import PaperDataset, find_datasets, fingerprint
from tests.paper.common import write_checkins


def keys(*arguments):
    return [dataset.key for dataset in find_datasets(*arguments)[0]]


def write_halves(folder, names=("train.txt", "test.txt")):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("0 1 2\n1 2 3\n", encoding="utf-8")


class TestFindDatasets:
    def test_without_a_folder_only_the_bundled_ones_are_there(self):
        datasets, missing = find_datasets(None, ["strong", "weak"])
        assert [(dataset.key, dataset.label, dataset.protocol) for dataset in datasets] == [
            ("debian-strong", "Debian (bundled)", "strong"), ("debian-weak", "Debian (bundled)", "weak")
        ]  # fmt: skip
        assert {one.name for one in missing} == set(PRESETS)
        for one in missing:
            assert (
                one.where
                == f"{one.name} ({PRESETS[one.name].published}) needs --data DIR, with its files in DIR/{one.name}"
            )

    def test_in_the_papers_order(self, tmp_path):
        for name in ("yelp2018", "gowalla", "amazon-book"):
            write_halves(tmp_path / name)
        found, missing = find_datasets(tmp_path, ["strong", "weak"])
        assert [dataset.key for dataset in found] == [
            "gowalla-1", "amazon-book", "yelp2018", "gowalla", "debian-strong", "debian-weak"
        ]  # fmt: skip
        assert [one.label for one in missing] == ["Games", "Beauty", "ML-20M", "Netflix", "MSD"]
        assert keys(tmp_path, ["weak"]) == ["amazon-book", "yelp2018", "gowalla", "debian-weak"]
        assert keys(tmp_path, ["strong"]) == ["gowalla-1", "debian-strong"]

    def test_some_of_them(self, tmp_path):
        write_halves(tmp_path / "gowalla")
        both = ["strong", "weak"]
        assert keys(tmp_path, both, ["gowalla"]) == ["gowalla"]
        assert keys(tmp_path, both, ["debian"]) == ["debian-strong", "debian-weak"]
        assert keys(tmp_path, both, ["debian-weak", "gowalla"]) == ["gowalla", "debian-weak"]
        assert keys(tmp_path, ["strong"], ["debian-weak", "gowalla"]) == []
        datasets, missing = find_datasets(tmp_path, both, ["games", "debian-strong"])
        assert ([one.key for one in datasets], [one.name for one in missing]) == (["debian-strong"], ["games"])

    def test_a_folder_that_is_not_there_or_half_there(self, tmp_path):
        write_halves(tmp_path / "gowalla", ["train.txt"])
        (tmp_path / "yelp2018").mkdir()
        (tmp_path / "ml20m").mkdir()
        (tmp_path / "ml20m" / "movies.csv").touch()
        datasets, missing = find_datasets(tmp_path, ["strong", "weak"])
        assert [dataset.name for dataset in datasets] == ["debian", "debian"]
        where = {one.name: one.where for one in missing}
        light = "from the authors of LightGCN, with their code"
        assert where["gowalla"] == f"DIR/gowalla has no file test.txt: get the data set gowalla {light}"
        assert where["yelp2018"] == f"DIR/yelp2018 has no file train.txt: get the data set yelp2018 {light}"
        assert where["ml20m"].startswith("DIR/ml20m has no file ratings.csv: get the data set ml20m from ")
        assert where["msd"] == (f"the files of msd ({PRESETS['msd'].published}) go into DIR/msd, where DIR is --data")
        assert "test.txt" in where["gowalla-1"]

    def test_nonsense(self, tmp_path):
        with pytest.raises(ParameterError, match=r"^there is no folder nowhere \(--data or "):
            find_datasets(Path("nowhere"), ["weak"])
        (tmp_path / "file").touch()
        with pytest.raises(ParameterError, match=r"there is no folder .*file \(--data"):
            find_datasets(tmp_path / "file", ["weak"])
        with pytest.raises(
            ParameterError, match=r"^unknown data set 'Gowalla': say one of ml20m, .*, debian, debian-str"
        ):
            find_datasets(None, ["weak"], ["debian", "Gowalla"])


class TestGowalla1:
    def test_from_check_ins_or_from_the_published_split(self, tmp_path):
        write_halves(tmp_path / "gowalla")
        (dataset,) = find_datasets(tmp_path, ["strong"], ["gowalla-1"])[0]
        assert (dataset.folder, dataset.protocol) == (tmp_path / "gowalla", "strong")
        write_checkins(tmp_path / "gowalla-1")
        (dataset,) = find_datasets(tmp_path, ["strong"], ["gowalla-1"])[0]
        assert dataset.folder == tmp_path / "gowalla-1"
        assert fingerprint(dataset.split(2)) == fingerprint(prepare("gowalla-1", tmp_path / "gowalla-1", 2))

    def test_an_empty_folder_of_its_own_hides_nothing(self, tmp_path):
        write_halves(tmp_path / "gowalla")
        (tmp_path / "gowalla-1").mkdir()
        assert keys(tmp_path, ["strong"], ["gowalla-1"]) == ["gowalla-1"]


class TestSplits:
    def test_of_the_bundled_data(self, small):
        strong, weak = find_datasets(None, ["strong", "weak"])[0]
        for dataset, split in ((strong, deql.split_strong), (weak, deql.split_weak)):
            for seed in (0, 3):
                assert fingerprint(dataset.split(seed)) == fingerprint(split(small, seed=seed))
            assert dataset.first is dataset.first
            assert dataset.fingerprint == fingerprint(split(small)) != fingerprint(dataset.split(1))

    def test_a_fingerprint_is_of_what_is_learned_from_and_of_what_is_judged(self, small):
        split = deql.split_strong(small)
        fewer = split.test.seen.n_users - 1
        part = deql.split.HeldOut(*(one.take_users(np.arange(fewer)) for one in (split.test.seen, split.test.held_out)))
        changed = [
            deql.split.Split(split.train.take_users(np.arange(split.train.n_users - 1)), None, split.test, {}),
            deql.split.Split(split.train, None, part, {}),
            deql.split.Split(split.train, None, deql.split.HeldOut(split.test.held_out, split.test.held_out), {}),
        ]
        found = [fingerprint(one) for one in (split, *changed)]
        assert len(set(found)) == 4
        assert fingerprint(deql.split.Split(split.train, None, split.test, {})) == found[0]

    def test_published_ones_have_no_seed(self, tmp_path):
        write_halves(tmp_path / "gowalla")
        dataset = PaperDataset("gowalla", "weak", tmp_path / "gowalla")
        assert fingerprint(dataset.split(0)) == fingerprint(dataset.split(1))
