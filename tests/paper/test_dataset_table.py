import numpy as np
import pytest

import deql
from deql.datasets.public import PRESETS, Preset, Shape
from deql.paper.dataset_table import dataset_table, share_of_top
from tests.paper.common import table_request


def write_split(folder, train, test):
    """A published split: lines of a user and the user's items."""
    folder.mkdir(parents=True)
    for name, lines in (("train.txt", train), ("test.txt", test)):
        text = "".join(f"{user} {' '.join(map(str, items))}\n" for user, items in enumerate(lines))
        (folder / name).write_text(text, encoding="utf-8")


def table(section, grid=0):
    return [[*names, *map(str, cells)] for names, cells in section.grids[grid].rows]


def test_the_bundled_data_appear_once_with_their_counts(tmp_path):
    lead, sections = dataset_table(table_request(tmp_path, ("strong", "weak")))
    assert [section.heading for section in sections] == ["Side by side", "Debian (bundled)"]
    assert table(sections[0]) == [["Debian (bundled)", "here", "5,834", "17,432", "173,855", "0.17%", "0.33", "–"]]
    assert lead == "Of the paper's data sets none is here, and the bundled one is always there."
    counts = np.bincount(deql.split_strong(deql.datasets.debian(), seed=0).train.matrix.indices)
    top = np.sort(counts)[::-1]
    share = (top[:583].sum() + 0.4 * top[583]) / counts.sum()
    assert f" {100 * share:.0f} % are with the most popular tenth" in sections[1].words[-1]
    assert not sections[1].grids
    assert "Gowalla" not in sections[0].remarks[0]


@pytest.mark.usefixtures("small")
class TestPublished:
    def test_counts_that_are_the_papers(self, tmp_path, monkeypatch):
        monkeypatch.setitem(PRESETS, "gowalla", Preset(Shape(4, 2, 5), "nobody"))
        write_split(tmp_path / "gowalla", [[1, 2], [2, 3]], [[4], []])
        lead, sections = dataset_table(table_request(tmp_path, ("weak",), tmp_path))
        rows = table(sections[0])
        assert rows[0] == ["Gowalla", "paper", "4", "2", "5", "62.50%", "2.00", ""]
        assert rows[1] == ["Gowalla", "here", "4", "2", "5", "62.50%", "2.00", "same"]
        assert not any(cell.marked for _, cells in sections[0].grids[0].rows for cell in cells)
        assert lead == "The paper's counts are met on Gowalla."
        assert sections[1].words[0] == "These are the paper's counts."
        assert table(sections[1]) == [["read from gowalla: train.txt, test.txt", "2", "4", "5"]]
        # The training part: items 1, 3 and 4 have 1, 1 and 0 users, item 2 has 2.
        assert "The median item has 1 of them, the median user 2." in sections[1].words[-1]

    def test_other_counts_are_marked_and_explained(self, tmp_path):
        write_split(tmp_path / "gowalla", [[1, 2], [2, 3]], [[4], []])
        lead, sections = dataset_table(table_request(tmp_path, ("weak",), tmp_path))
        here = sections[0].grids[0].rows[1][1]
        assert [cell.marked for cell in here] == [True] * 5 + [False]
        assert str(here[-1]) == "differs"
        assert "* is not what the paper counts." in sections[0].words[0]
        assert lead == "The paper's counts are not met on Gowalla, for a reason given below."
        assert "those that it began with, which are published by the authors of LightGCN" in sections[1].words[0]
        assert "Gowalla, with 1.37 items per user to Yelp2018's 1.20, should be there, too" in sections[0].remarks[0]

    def test_gowalla_1_of_joined_files_says_so(self, tmp_path, monkeypatch):
        preset = PRESETS["gowalla-1"]
        easier = {"binary": True, "min_users_per_item": 3, "min_items_per_user": 2}
        monkeypatch.setitem(
            PRESETS, "gowalla-1", Preset(preset.paper, preset.published, preset.files, easier, certain=False)
        )
        # Users 0 … 39 have items 0 … 5 but one; user 40 has one item, and item 9 one user.
        train = [[item for item in range(6) if item != user % 6][:-1] for user in range(40)]
        test = [[item for item in range(6) if item != user % 6][-1:] for user in range(40)]
        write_split(tmp_path / "gowalla", [*train, [0]], [*test, [9]])
        _, sections = dataset_table(table_request(tmp_path, ("strong",), tmp_path))
        section = sections[1]
        assert section.heading == "Gowalla-1"
        assert "does not say how it filtered" in section.words[0]
        assert "The original file (SNAP, Gowalla check-ins) is not there. LightGCN's two files" in section.words[1]
        assert [row[1:] for row in table(section)] == [
            ["41", "7", "202"], ["41", "7", "202"], ["41", "6 (−1)", "201 (−1)"], ["40 (−1)", "6", "200 (−1)"]
        ]  # fmt: skip

    def test_the_ratio_of_every_data_set_is_drawn(self, tmp_path):
        _, sections = dataset_table(table_request(tmp_path, ("strong", "weak")))
        popularity, ratio = (figure.svg for figure in sections[0].figures)
        assert all(label in ratio for label in ("Games", "Netflix", "Amazon-Book", "Debian (bundled)"))
        assert "% of the interactions" in popularity


def test_the_most_popular_share():
    counts = np.array([2, 6, 3, 3, 1])
    assert share_of_top(counts, np.array([20.0, 40.0, 50.0, 100.0])) == pytest.approx([40, 60, 70, 100])
