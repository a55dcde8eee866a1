"""The end of each user's history: by time, by the order of the file, and where neither is known."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deql
from deql.data import Interactions
from deql.errors import DataError
from deql.split import load_split, read_lightgcn_split
from deql.split.last import chronology, hold_out_last, last_held_out

LINES = [[4, 1, 3, 2, 0], [0, 2, 1, 4, 3], [3, 4], [2]]


def folder(tmp_path, lines, test="0 7\n"):
    train = "".join(f"{user} {' '.join(map(str, line))}\n" for user, line in enumerate(lines))
    tmp_path.joinpath("train.txt").write_text(train)
    tmp_path.joinpath("test.txt").write_text(test)
    return tmp_path


def test_lines_keep_their_order(tmp_path):
    train = read_lightgcn_split(folder(tmp_path, LINES)).train
    for user, line in enumerate(LINES):
        first, last = train.matrix.indptr[user : user + 2]
        order = np.argsort(train.order[first:last])
        assert train.items[train.matrix.indices[first:last]][order].tolist() == line


@pytest.mark.parametrize("lines", [[sorted(line) for line in LINES], [sorted(line)[::-1] for line in LINES]])
def test_sorted_lines_have_no_order(tmp_path, lines):
    train = read_lightgcn_split(folder(tmp_path, lines)).train
    assert train.order is None
    with pytest.raises(DataError, match=r"no times and no order .*validation='random'"):
        chronology(train)


def test_a_repeated_item_stands_where_it_came_last(tmp_path):
    train = read_lightgcn_split(folder(tmp_path, [[5, 3, 4, 5, 2]])).train
    items = train.items[train.matrix.indices][np.argsort(train.order)]
    assert items.tolist() == [3, 4, 5, 2]


def test_parts_and_files_keep_the_order(tmp_path):
    split = read_lightgcn_split(folder(tmp_path, LINES))
    split.save(tmp_path / "a.split")
    again = load_split(tmp_path / "a.split").train
    np.testing.assert_array_equal(again.order, split.train.order)
    some = again.take_users(np.array([1, 0])).take_items(np.array([0, 2, 3])).keep(np.array([True, False, True] * 2))
    assert len(some.order) == some.n_interactions == 4
    whole = again.matrix.toarray() * 0
    whole[again.matrix.nonzero()] = again.order
    np.testing.assert_array_equal(some.order, whole[[1, 1, 0, 0], [0, 3, 0, 3]])
    with pytest.raises(DataError, match="places in their file"):
        replace(again, order=again.order[1:])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_last_share_of_each_user_is_held_out(data):
    lines = data.draw(st.lists(st.permutations(range(6)).flatmap(lambda p: st.integers(1, 6).map(lambda k: p[:k])),
                               min_size=2, max_size=6))  # fmt: skip
    users = np.repeat(np.arange(len(lines)), [len(line) for line in lines])
    items = np.concatenate(lines)
    table = Interactions.from_pairs(users, items)
    when = np.zeros(table.shape)
    for user, line in enumerate(lines):
        when[user, table.items.searchsorted(line)] = np.arange(len(line))
    when = when[table.matrix.nonzero()]
    found = []
    for timed in (replace(table, times=when), replace(table, order=when.astype(np.int64))):
        try:
            found.append(hold_out_last(timed, 0.3))
        except DataError:
            return  # train lacks what would be held out
    split = found[0]
    for user, line in enumerate(lines):
        hidden = 0 if len(line) < 2 else min(max(1, round(0.3 * len(line))), len(line) - 1)
        rest = line[: len(line) - hidden]
        known = set(split.train.items.tolist())
        assert set(split.train.history(user)) == set(rest)
        if user in split.test.seen.users.tolist():
            assert set(split.test.held_out.history(user)) == set(line[len(line) - hidden :]) & known
    np.testing.assert_array_equal(split.test.held_out.matrix.toarray(), found[1].test.held_out.matrix.toarray())


def test_of_validation_users_as_much_is_held_out_as_before():
    generator = np.random.default_rng(0)
    table = deql.Interactions.from_csr((generator.random((60, 12)) < 0.5).astype(float))
    table = replace(table, times=generator.random(table.n_interactions))
    part = deql.split_strong(table, 0.2, 0.2, 0.3).validation
    last = last_held_out(part)
    np.testing.assert_array_equal(np.diff(last.held_out.matrix.indptr), np.diff(part.held_out.matrix.indptr))
    np.testing.assert_array_equal(last.whole().matrix.toarray(), part.whole().matrix.toarray())
    for row in range(last.seen.n_users):
        one, other = (side.take_users(np.array([row])).times for side in (last.seen, last.held_out))
        assert one.max() < other.min()
