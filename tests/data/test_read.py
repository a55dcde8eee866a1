"""Random tables against Python's own csv module and a dict; and what read_interactions tells and takes."""

import csv
import gzip
import io
import random
import re
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from backports import zstd
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from deql import read_interactions
from deql.data.interactions import Interactions
from deql.data.readers.columns import choose_columns
from deql.data.readers.files import open_table
from tests.data.reading import cells, moments, put, refusal, small_blocks

# ---- the oracle -------------------------------------------------------------------------------------------------

LETTERS = st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Zs", "Zl", "Zp"), exclude_characters="\ufeff")
INSIDE = st.one_of(LETTERS, st.sampled_from(list(' ,;|"\t\n:')))
# A digit in every text, for a word among whole numbers is refused, and an edge that is no space, for these are cut.
WORDS = st.builds(
    lambda first, inside, digit: first + inside + digit,
    LETTERS,
    st.text(INSIDE, max_size=6),
    st.sampled_from("0123456789"),
)
IDS = {
    "numbers": st.integers(0, 30).map(str),
    "signed": st.integers(-20, 20).map(str),
    "far apart": st.integers(-(2**63), 2**63 - 1).map(str),
    "beyond 64 bits": st.integers(2**63 - 2, 2**64 + 2).map(str),
    "zeros in front": st.builds("{}{}".format, st.sampled_from(["", "0", "00"]), st.integers(0, 9)),
    "text": WORDS,
    "mixed": st.one_of(st.integers(0, 9).map(str), WORDS),
}


@st.composite
def tables(draw):
    """Rows of (user, item, weight, time, note), all as text; pairs repeat."""
    users = draw(st.lists(IDS[draw(st.sampled_from(sorted(IDS)))], min_size=1, max_size=6))
    items = draw(st.lists(IDS[draw(st.sampled_from(sorted(IDS)))], min_size=1, max_size=6))
    weight = st.sampled_from(["1", "2.5", "0.25", "10", "3.0", "0", "1e1", ".5", "7."])
    row = st.tuples(
        st.sampled_from(users),
        st.sampled_from(items),
        weight,
        st.integers(0, 10**10).map(str),
        st.text(INSIDE, max_size=4),
    )
    return draw(st.lists(row, min_size=1, max_size=25))


@st.composite
def spellings(draw):
    """A function from rows to a file's bytes and its delimiter: one of many ways to write them."""
    order = draw(st.permutations(range(5)))
    delimiter, ending = draw(st.sampled_from([",", ";", "\t", "|", " "])), draw(st.sampled_from(["\n", "\r\n"]))
    quoting = draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]))
    blank = draw(st.sets(st.integers(0, 25), max_size=3))
    mark, last = draw(st.booleans()), draw(st.booleans())

    def write(rows):
        text = io.StringIO(newline="")
        writer = csv.writer(text, delimiter=delimiter, lineterminator=ending, quoting=quoting)
        writer.writerow([("user", "item", "w", "t", "note")[place] for place in order])
        for number, row in enumerate(rows):
            if number in blank:
                text.write(ending)
            writer.writerow([row[place] for place in order])
        whole = ("\ufeff" if mark else "") + text.getvalue()
        return (whole if last else whole.removesuffix(ending)).encode(), delimiter

    return write


def kind_of(texts):
    """Integers if all are written as Python writes them and fit in 64 bits; else text."""
    whole = all(re.fullmatch(r"0|-?[1-9][0-9]*", text) and -(2**63) <= int(text) < 2**63 for text in texts)
    return int if whole else str


def oracle(raw, delimiter):
    """What csv and a dict make of the file: values and times by pair, and how many rows were read and kept."""
    reader = csv.DictReader(io.StringIO(raw.decode("utf-8-sig"), newline=""), delimiter=delimiter)
    rows = [row for row in reader if any(row.values())]
    user, item = (kind_of({row[name] for row in rows}) for name in ("user", "item"))
    values, times = {}, {}
    kept = [row for row in rows if float(row["w"]) != 0]
    for row in kept:
        pair = user(row["user"]), item(row["item"])
        values[pair] = values.get(pair, 0) + float(row["w"])
        times[pair] = max(times.get(pair, -1), float(row["t"]))
    return values, times, len(rows), len(kept)


PACKINGS = {"": bytes, ".gz": gzip.compress, ".zst": zstd.compress}


def read(raw, size=2**20, threads="2", packing="", **choices):
    with tempfile.TemporaryDirectory() as folder, small_blocks(size), pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEQL_THREADS", threads)
        path = put(Path(folder) / f"table.csv{packing}", PACKINGS[packing](raw))
        return read_interactions(path, "user", "item", "w", "t", **choices)


def told(data):
    return [(step.what, step.users, step.items, step.interactions) for step in data.steps]


def assert_same(found, expected):
    assert cells(found) == cells(expected)
    assert moments(found) == moments(expected)
    assert [step[1:] for step in told(found)] == [step[1:] for step in told(expected)]


@settings(deadline=None, max_examples=100)
@given(tables(), spellings(), st.integers(16, 200), st.sampled_from(["1", "3"]), st.sampled_from(list(PACKINGS)))
def test_reads_what_the_csv_module_reads(rows, write, size, threads, packing):
    raw, delimiter = write(rows)
    values, times, n_rows, n_kept = oracle(raw, delimiter)
    assume(n_kept)
    data = read(raw, size, threads, packing)
    assert cells(data) == values
    assert moments(data) == times
    assert data.users.tolist() == sorted({user for user, _ in values})
    assert data.items.tolist() == sorted({item for _, item in values})
    steps = [n_rows, *([n_kept] if n_kept < n_rows else []), *([len(values)] if len(values) < n_kept else [])]
    assert [step.interactions for step in data.steps] == steps
    assert (data.steps[-1].users, data.steps[-1].items) == (data.n_users, data.n_items)


@settings(deadline=None, max_examples=25)
@given(tables(), spellings(), st.integers(16, 200), st.randoms(use_true_random=False))
def test_the_order_of_rows_the_blocks_and_the_packing_do_not_matter(rows, write, size, generator):
    assume(any(float(row[2]) for row in rows))
    expected = read(write(rows)[0])
    assert_same(read(write(rows)[0], size, "3", ".gz"), expected)
    shuffled = generator.sample(rows, len(rows))
    assert_same(read(write(shuffled)[0], size, "1"), expected)


@settings(deadline=None, max_examples=25)
@given(tables(), st.integers(16, 200))
def test_quotation_marks_change_nothing(rows, size):
    """Tables without them go through our kernels, those with them through polars: both must agree."""
    rows = [[re.sub(r'[",\n]', "_", cell) for cell in row] for row in rows]
    assume(any(float(row[2]) for row in rows))
    plain = "user,item,w,t,note\n" + "".join(",".join(row) + "\n" for row in rows)
    quoted = "user,item,w,t,note\n" + "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows)
    for ids in ("auto", "text"):
        assert_same(read(plain.encode(), size, ids=ids), read(quoted.encode(), ids=ids))


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=30), st.integers(16, 80))
def test_ids_as_text_are_the_same_ids(pairs, size):
    raw = b"user,item,w,t\n" + "".join(f"{user},{item},1,2\n" for user, item in pairs).encode()
    numbers, text = read(raw, size), read(raw, size, ids="text")
    assert cells(text) == {(str(user), str(item)): value for (user, item), value in cells(numbers).items()}
    assert numbers.users.dtype == np.int64
    assert text.users.tolist() == sorted({str(user) for user, _ in pairs})


def test_many_blocks_and_threads(tmp_path):
    """A table that is several real blocks long, with text that appears late."""
    generator = random.Random(5)
    pairs = [(generator.randrange(3000), generator.randrange(900)) for _ in range(300_000)]
    names = [
        f"item {item}" if place > 290_000 and item % 7 == 0 else str(item) for place, (_, item) in enumerate(pairs)
    ]
    lines = (f"{user},{name}\n" for (user, _), name in zip(pairs, names, strict=True))
    path = put(tmp_path / "long.csv", "user,item\n" + "".join(lines))
    assert path.stat().st_size > 2 * 2**20
    data = read_interactions(path)
    assert set(cells(data)) == {(user, name) for (user, _), name in zip(pairs, names, strict=True)}
    assert [step.interactions for step in data.steps] == [300_000, data.n_interactions]


# ---- what is told -----------------------------------------------------------------------------------------------

RATINGS = "userId,movieId,rating,timestamp\n1,7,5,10\n1,8,3,20\n2,7,4,30\n2,7,1,5\n3,9,2,40\n"


@pytest.fixture
def ratings(tmp_path):
    return put(tmp_path / "ratings.csv", RATINGS)


def test_steps_say_what_was_left_out(ratings):
    assert told(read_interactions(ratings)) == [("read from ratings.csv", 3, 3, 5), ("repeated pairs merged", 3, 3, 4)]
    liked = read_interactions(ratings, min_weight=4)
    assert told(liked) == [("read from ratings.csv", 3, 3, 5), ("rating ≥ 4", 2, 1, 2)]
    assert cells(liked) == {(1, 7): 1, (2, 7): 1}


def test_rows_below_the_least_weight_are_left_out_before_pairs_are_merged(ratings):
    """The 1 of user 2 must not make a 5 of its 4."""
    data = read_interactions(ratings, weight="rating", min_weight=3, time="timestamp")
    assert cells(data) == {(1, 7): 5, (1, 8): 3, (2, 7): 4}
    assert moments(data) == {(1, 7): 10, (1, 8): 20, (2, 7): 30}


def test_weights_of_zero_are_left_out_and_told(tmp_path):
    path = put(tmp_path / "t.csv", "user,item,w\n1,7,0\n1,8,2\n2,7,0.0\n")
    data = read_interactions(path, weight="w")
    assert cells(data) == {(1, 8): 2}
    assert told(data)[1:] == [("weight 0 left out", 1, 1, 1)]
    liked = read_interactions(path, weight=None, min_weight=None)
    assert cells(liked) == {(1, 7): 1, (1, 8): 1, (2, 7): 1}


def test_a_least_weight_of_zero_keeps_zeros_as_likes(tmp_path):
    path = put(tmp_path / "t.csv", "user,item,rating\n1,7,0\n1,8,-2\n")
    assert cells(read_interactions(path, min_weight=0)) == {(1, 7): 1}


def test_negative_weights_are_fine_under_a_lower_bound(tmp_path):
    path = put(tmp_path / "t.csv", "user,item,w,t\n1,7,-2,1\n1,8,2,2\n2,9,1,3\n2,9,-1,4\n3,7,-9,5\n")
    data = read_interactions(path, weight="w", time="t", min_weight=-5)
    assert cells(data) == {(1, 7): -2, (1, 8): 2}
    assert moments(data) == {(1, 7): 1, (1, 8): 2}
    assert (data.steps[-1].users, data.steps[-1].items, data.steps[-1].interactions) == (1, 2, 2)
    interactions = [step.interactions for step in data.steps]
    assert interactions == sorted(interactions, reverse=True)


@pytest.mark.parametrize(("bound", "kept"), [(16777216, 2), (16777217, 1), (16777218, 1)])
def test_the_least_weight_is_exact(tmp_path, bound, kept):
    """2²⁴ + 1 is the first whole number that single precision lacks."""
    path = put(tmp_path / "t.csv", "user,item,rating\n1,1,16777216\n2,2,16777218\n")
    assert read_interactions(path, min_weight=bound).n_interactions == kept


def test_single_precision_only_where_nothing_is_lost(tmp_path):
    path = put(tmp_path / "t.csv", "user,item,w\n1,7,0.1\n1,7,0.2\n2,7,0.5\n")
    data = read_interactions(path, weight="w")
    assert data.matrix.data.tolist() == [0.1 + 0.2, 0.5]
    assert read_interactions(put(tmp_path / "u.csv", "user,item,w\n1,7,0.5\n"), weight="w").matrix.dtype == np.float32


def test_matrices_with_a_least_weight():
    data = read_interactions(csr_array([[1, 0, 0], [5, 4, 0]]), min_weight=4)
    assert cells(data) == {(1, 0): 1, (1, 1): 1}
    assert data.steps[0].interactions == 3
    assert data.steps[-1].interactions == 2


@pytest.mark.parametrize(
    ("choices", "line"),
    [
        ({}, "user = userId, item = movieId; not used: rating, timestamp"),
        ({"weight": True}, "user = userId, item = movieId, weight = rating; not used: timestamp"),
        (
            {"user": "userId", "item": 2, "time": True},
            "user = userId, item = movieId, time = timestamp; not used: rating",
        ),
        ({"user": 1}, "user = userId, item = movieId; not used: rating, timestamp"),
        (
            {"item": "movieId", "weight": 3, "time": 4},
            "user = userId, item = movieId, weight = rating, time = timestamp",
        ),
    ],
)
def test_guesses_are_printed(ratings, capsys, choices, line):
    read_interactions(ratings, **choices)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"deql: {ratings} (fields between “,”, a header): {line}\n"


@pytest.mark.parametrize("choices", [{}, {"weight": "rating"}, {"weight": 3, "time": "timestamp"}, {"time": 4}])
def test_nothing_is_printed_where_nothing_is_guessed(ratings, capsys, choices):
    read_interactions(ratings, "userId", "movieId", **choices)
    assert capsys.readouterr() == ("", "")


def test_a_column_found_for_the_least_weight_is_printed(ratings, capsys):
    read_interactions(ratings, min_weight=4)
    assert "weight = rating" in capsys.readouterr().err
    read_interactions(ratings, "userId", "movieId", min_weight=4)
    assert "weight = rating" in capsys.readouterr().err, "nobody has named that column"


def test_guesses_in_frames_and_numbered_columns_are_printed(tmp_path, capsys):
    read_interactions(pl.DataFrame({"item": [1], "user": [2]}))
    assert capsys.readouterr().err == "deql: the frame: user = user, item = item\n"
    read_interactions(put(tmp_path / "t.tsv", "5\t6\t7\n"))
    assert capsys.readouterr().err == (
        f"deql: {tmp_path / 't.tsv'} (fields between tabs, no header): "
        "user = column 1, item = column 2; not used: column 3\n"
    )


# ---- what is taken ----------------------------------------------------------------------------------------------


def test_columns_by_number(ratings):
    assert cells(read_interactions(ratings, 2, 1, 4)) == cells(
        read_interactions(ratings, "movieId", "userId", "timestamp")
    )
    assert cells(read_interactions(ratings, 2, 1)) == {(7, 1): 1, (8, 1): 1, (7, 2): 1, (9, 3): 1}


def test_weight_and_time_may_not_be_one_column(tmp_path):
    path = put(tmp_path / "t.csv", "1,2,3\n4,5,6\n")
    assert "are the same column" in refusal(path, weight=3, time=3)


def test_header_can_be_said(tmp_path):
    words = put(tmp_path / "words.csv", "ann,tea\nbob,jam\n")
    assert cells(read_interactions(words)) == {("bob", "jam"): 1}
    assert cells(read_interactions(words, header=False)) == {("ann", "tea"): 1, ("bob", "jam"): 1}
    numbers = put(tmp_path / "numbers.csv", "5,6\n1,2\n")
    assert cells(read_interactions(numbers)) == {(5, 6): 1, (1, 2): 1}
    assert cells(read_interactions(numbers, header=True)) == {(1, 2): 1}
    assert cells(read_interactions(numbers, user="6", item="5", header=True)) == {(2, 1): 1}
    named = put(tmp_path / "named.csv", "user,item\n1,2\n")
    assert cells(read_interactions(named, header=False, ids="text")) == {("user", "item"): 1, ("1", "2"): 1}


def test_a_named_column_makes_the_first_line_a_header(tmp_path):
    path = put(tmp_path / "t.csv", "3,what\nann,tea\n")
    assert cells(read_interactions(path, "3", "what")) == {("ann", "tea"): 1}


DAYS = {
    "2005-09-06": 1125964800, "2005-09-06T10:00:00Z": 1126000800, "2005-09-06T10:00:00+02:00": 1125993600,
    "2005-09-06 10:00:00": 1126000800, "2005-09-06 10:00:00.500": 1126000800.5, "2005-09-06T10:00:00": 1126000800,
    "1126000800": 1126000800, "1126000800.25": 1126000800.25, "-5": -5, "1.1e9": 1.1e9,
}  # fmt: skip


@pytest.mark.parametrize("written", DAYS)
@pytest.mark.parametrize("quote", ["", '"'])
def test_times(tmp_path, written, quote):
    path = put(tmp_path / "t.csv", f"user,item,when\na1,b1,{quote}{written}{quote}\na2,b1,{quote}{written}{quote}\n")
    assert moments(read_interactions(path, time="when")) == {("a1", "b1"): DAYS[written], ("a2", "b1"): DAYS[written]}
    path = put(tmp_path / "t.json", f'{{"user": 1, "item": 2, "when": "{written}"}}\n')
    assert moments(read_interactions(path, time="when")) == {(1, 2): DAYS[written]}


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"format": "xls"}, "unknown format 'xls': say one of csv, recbole, lightgcn, netflix, ndjson, parquet, npz"),
        ({"ids": "int"}, "ids must be 'auto' or 'text', got 'int'"),
        ({"min_weight": "4"}, "min_weight must be a number, got '4'"),
        ({"min_weight": float("nan")}, "min_weight must be a number, got nan"),
        ({"min_weight": float("-inf")}, "min_weight must be a number"),
        ({"user": 1.5}, "user must be the name or the number of a column, got 1.5"),
        ({"user": 0}, "has 4 columns, so user=0 is none of them"),
        ({"item": 5}, "has 4 columns, so item=5 is none of them"),
        ({"user": "who"}, "has no column 'who': say user=… with one of 'userId', 'movieId', 'rating', 'timestamp'"),
        ({"weight": "price"}, "has no column 'price': say weight=… with one of 'userId'"),
        ({"user": "movieId"}, "user and item of .* are the same column, 'movieId': say user=… and item=…"),
        ({"weight": "movieId"}, "item and weight of .* are the same column, 'movieId'"),
        ({"time": 1}, "user and time of .* are the same column, 'userId'"),
        ({"min_weight": 6}, "nothing is left of .* after the step “rating ≥ 6”"),
        ({"format": "ndjson"}, "line 1: this is not JSON"),
        ({"format": "netflix"}, "line 1: a rating stands before any film"),
        ({"format": "parquet"}, "cannot be read as Parquet"),
        ({"format": "npz"}, "is not a sparse matrix saved by"),
        ({"format": "recbole"}, "no column that looks like the user's"),
    ],
)
def test_wrong_choices(ratings, choices, message):
    assert re.search(message, refusal(ratings, **choices))


def test_a_least_weight_needs_a_weight(tmp_path):
    text = refusal(put(tmp_path / "t.csv", "user,item\n1,2\n"), min_weight=4)
    assert re.search(r"t\.csv has no column that looks like the weight's: say weight=…", text)


def test_interactions_are_not_read_again():
    assert "Interactions already" in refusal(Interactions.from_pairs([1], [2]))


@pytest.mark.parametrize("packing", PACKINGS)
def test_progress_reaches_its_end_and_changes_nothing(tmp_path, packing):
    raw = RATINGS.encode() + b"".join(b"%d,7,1,1\n" % user for user in range(2000))
    path = put(tmp_path / f"ratings.csv{packing}", PACKINGS[packing](raw))
    assert cells(read_interactions(path, progress=True)) == cells(read_interactions(path))
    seen = []
    with small_blocks(500):
        table = open_table(path, (), None, True)
        roles = choose_columns(table.names, table.name, None, None, None, None)
        assert sum(map(len, table.rows(roles, False, lambda done, total: seen.append((done, total))))) == 2005
    assert seen == sorted(seen)
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)
