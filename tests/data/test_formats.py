"""Every format people have, written as it is found in the wild; what must come out was worked out by hand."""

import gzip
import json
import os

import numpy as np
import polars as pl
import pytest
from backports import zstd
from scipy import sparse

from deql import read_interactions
from tests.data.reading import cells, moments, put, small_blocks

LIKES = {("ann", "jam"): 1, ("ann", "tea"): 1, ("bob", "tea"): 1}
STARS = {("ann", "jam"): 4, ("ann", "tea"): 5, ("bob", "tea"): 2.5}
DATES = {("ann", "jam"): 30, ("ann", "tea"): 20, ("bob", "tea"): 10}
TABLE = "user,item,stars,time\nbob,tea,2.5,10\nann,tea,5,20\nann,jam,4,30\n"
FRAME = pl.DataFrame(
    {"user": ["bob", "ann", "ann"], "item": ["tea", "tea", "jam"], "stars": [2.5, 5, 4], "time": [10, 20, 30]}
)


def assert_table(source, **choices):
    """The table above, with weights and times and without."""
    data = read_interactions(source, weight=True, time=True, **choices)
    assert cells(data) == STARS
    assert moments(data) == DATES
    assert cells(read_interactions(source, **choices)) == LIKES


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", " ", "::"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("last", [True, False])
def test_delimited(tmp_path, delimiter, ending, mark, last):
    text = TABLE.replace(",", delimiter).replace("\n", ending)
    path = put(tmp_path / "table.txt", mark + (text if last else text.removesuffix(ending)).encode())
    assert_table(path)


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", " ", "::"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_delimited_without_a_header(tmp_path, delimiter, mark):
    body = TABLE.split("\n", 1)[1]
    assert_table(put(tmp_path / "table.csv", mark + body.replace(",", delimiter)))


def test_ids_that_are_column_numbers_too(tmp_path):
    """Without a header columns go by their numbers, which may well be ids."""
    data = read_interactions(put(tmp_path / "pairs.csv", "1,tea\n2,jam\n1,2\n"))
    assert cells(data) == {(1, "tea"): 1, (2, "jam"): 1, (1, "2"): 1}


@pytest.mark.parametrize("name", ["t.csv", "t.CSV", "t.tsv", "t.txt", "t.data", "t", "t.tab", "t.psv"])
def test_the_ending_does_not_matter(tmp_path, name):
    assert_table(put(tmp_path / name, TABLE))


@pytest.mark.parametrize("blank", ["\n", "\r\n", "   \n", "\n\n\n"])
@pytest.mark.parametrize("place", [0, 1, 2, 4])
def test_blank_lines_are_no_rows(tmp_path, blank, place):
    lines = TABLE.splitlines(keepends=True)
    assert_table(put(tmp_path / "table.csv", "".join([*lines[:place], blank, *lines[place:]])))


def test_quoted_fields(tmp_path):
    text = 'user,item,note\n"Ann ""A"", Mrs","jam\nand tea",x\nbob,"tea, green","a\n\nb"\nbob," tea ","1"\n'
    expected = {('Ann "A", Mrs', "jam\nand tea"): 1, ("bob", "tea, green"): 1, ("bob", "tea"): 1}
    assert cells(read_interactions(put(tmp_path / "quoted.csv", text))) == expected
    for size in range(16, 60):
        with small_blocks(size):
            assert cells(read_interactions(tmp_path / "quoted.csv")) == expected


def test_quoted_fields_without_a_header(tmp_path):
    path = put(tmp_path / "quoted.csv", '1,"a\nb",5\n2,c,6\n')
    assert cells(read_interactions(path, weight=3)) == {(1, "a\nb"): 5, (2, "c"): 6}
    assert cells(read_interactions(path, weight=3, header=False)) == {(1, "a\nb"): 5, (2, "c"): 6}


def test_a_quoted_header(tmp_path):
    path = put(tmp_path / "quoted.csv", '"user id","item, of goods","how ""many"""\n1,2,3\n')
    assert cells(read_interactions(path, item="item, of goods", weight='how "many"')) == {(1, 2): 3}


def test_quotation_marks_mean_nothing_between_double_colons(tmp_path):
    path = put(tmp_path / "marks.dat", 'u1::"Cats" (1998)::5\nu2::12" Vinyl::4\nu3::The "End::3\n')
    assert cells(read_interactions(path, 1, 2, weight=3)) == {
        ("u1", '"Cats" (1998)'): 5,
        ("u2", '12" Vinyl'): 4,
        ("u3", 'The "End'): 3,
    }


def pack_gzip(text, parts):
    return b"".join(gzip.compress(part) for part in np.array_split(np.frombuffer(text, np.uint8), parts))


def pack_zstd(text, parts):
    return b"".join(zstd.compress(part.tobytes()) for part in np.array_split(np.frombuffer(text, np.uint8), parts))


@pytest.mark.parametrize(("ending", "pack"), [(".gz", pack_gzip), (".zst", pack_zstd), (".GZ", pack_gzip)])
@pytest.mark.parametrize("parts", [1, 3])
def test_packed(tmp_path, ending, pack, parts):
    assert_table(put(tmp_path / f"t.csv{ending}", pack(TABLE.encode(), parts)))
    lines = FRAME.write_ndjson().encode()
    assert_table(put(tmp_path / f"t.json{ending}", pack(lines, parts)))


@pytest.mark.parametrize("name", ["t.parquet", "t.pq", "t.PARQUET"])
def test_parquet(tmp_path, name):
    FRAME.write_parquet(tmp_path / name)
    assert_table(tmp_path / name)
    assert_table(str(tmp_path / name))


def test_a_folder_of_parquet_parts(tmp_path):
    for part in range(3):
        path = tmp_path / "table" / f"day={part}" / f"part-0000{part}.snappy.parquet"
        path.parent.mkdir(parents=True)
        FRAME[part : part + 1].write_parquet(path)
    for beside in ("_SUCCESS", ".part-00000.crc", "_metadata/old.csv", ".git/config"):
        put(tmp_path / "table" / beside, "not a part")
    assert_table(tmp_path / "table")


def test_a_folder_of_csv_parts(tmp_path):
    header, *rows = TABLE.splitlines(keepends=True)
    for number, row in enumerate(rows):
        text = (header + row).encode()
        put(tmp_path / f"part-{number}.csv{'.gz' if number == 1 else ''}", gzip.compress(text) if number == 1 else text)
    put(tmp_path / "_SUCCESS", "")
    assert_table(tmp_path)


def test_a_folder_of_json_parts(tmp_path):
    for number in range(3):
        FRAME[number : number + 1].write_ndjson(tmp_path / f"part-{number}.json")
    assert_table(tmp_path)


@pytest.mark.parametrize("name", ["t.ndjson", "t.jsonl", "t.json", "t.txt"])
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\n\n"])
def test_json_lines(tmp_path, name, ending):
    assert_table(put(tmp_path / name, FRAME.write_ndjson().replace("\n", ending)))
    assert_table(put(tmp_path / name, "\ufeff" + FRAME.write_ndjson().replace("\n", ending)))


def test_json_lines_with_keys_in_any_order_and_more_of_them(tmp_path):
    rows = [
        {"item": 7, "user": "a b", "tags": ["x", {"y": 1}]},
        {"user": 'quo"te\n', "extra": None, "item": 8},
        {"stars": 4, "item": 7, "user": "é日"},
    ]
    path = put(tmp_path / "t.json", "".join(json.dumps(row) + "\n" for row in rows))
    assert cells(read_interactions(path)) == {("a b", 7): 1, ('quo"te\n', 8): 1, ("é日", 7): 1}


@pytest.mark.parametrize(
    ("written", "expected"),
    [("1.0", 1), ("17", 17), ("-3", -3), ("1.5", "1.5"), (str(2**63), str(2**63)), (str(2**64 - 1), str(2**64 - 1))],
)
def test_numbers_as_ids_in_json(tmp_path, written, expected):
    path = put(tmp_path / "t.json", f'{{"user": {written}, "item": 2}}\n')
    assert read_interactions(path).users.tolist() == [expected]


SPARSE = sparse.csr_array([[0, 2.0, 0], [1, 0, 0]])


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("convert", [sparse.coo_array, sparse.coo_matrix])
def test_sparse_matrices(kind, convert):
    data = read_interactions(convert(SPARSE).asformat(kind))
    assert cells(data) == {(0, 1): 2, (1, 0): 1}
    assert data.n_items == 3
    assert [(step.users, step.items, step.interactions) for step in data.steps] == [(2, 3, 2)]


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr"])
def test_npz(tmp_path, kind):
    sparse.save_npz(tmp_path / "m.npz", SPARSE.asformat(kind))
    assert cells(read_interactions(tmp_path / "m.npz")) == {(0, 1): 2, (1, 0): 1}
    assert cells(read_interactions(str(tmp_path / "m.npz"), min_weight=2)) == {(0, 1): 1}
    os.rename(tmp_path / "m.npz", tmp_path / "m")
    assert cells(read_interactions(tmp_path / "m", format="npz")) == {(0, 1): 2, (1, 0): 1}


# ---- public data sets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [8, 9, 10, 17, 2**20])
def test_lightgcn(tmp_path, size):
    path = put(tmp_path / "train.txt", "0 5 7\n1 5\n2\n3 9 8 7 \n10 0\n")
    expected = {(0, 5): 1, (0, 7): 1, (1, 5): 1, (3, 7): 1, (3, 8): 1, (3, 9): 1, (10, 0): 1}
    with small_blocks(size):
        assert cells(read_interactions(path, format="lightgcn")) == expected
    assert cells(read_interactions(path)) == expected
    text = read_interactions(path, ids="text")
    assert text.users.tolist() == ["0", "1", "10", "3"]


def test_lightgcn_with_as_many_items_for_each_user(tmp_path):
    path = put(tmp_path / "train.txt", "0 5 7\n1 5 8\n")
    assert cells(read_interactions(path, format="lightgcn")) == {(0, 5): 1, (0, 7): 1, (1, 5): 1, (1, 8): 1}


def test_recbole(tmp_path):
    head = "user_id:token\titem_id:token\trating:float\ttimestamp:float\ttags:token_seq\n"
    path = put(tmp_path / "shop.inter", head + "bob\ttea\t2.5\t10\tx y\nann\ttea\t5\t20\t\nann\tjam\t4\t30\tz\n")
    assert_table(path)
    assert_table(path, user="user_id:token", item="item_id")
    os.rename(path, tmp_path / "shop.txt")
    assert_table(tmp_path / "shop.txt")


RATINGS = {(1, 31): 2.5, (1, 1029): 3, (7, 31): 4}
RATED = {(1, 31): 1260759144, (1, 1029): 1260759179, (7, 31): 851868750}


def assert_ratings(source):
    data = read_interactions(source, weight=True, time=True)
    assert cells(data) == RATINGS
    assert moments(data) == RATED
    assert data.users.dtype == data.items.dtype == np.int64


def rating_lines(delimiter):
    return "".join(f"{u}{delimiter}{i}{delimiter}{RATINGS[u, i]}{delimiter}{RATED[u, i]}\n" for u, i in RATINGS)


MOVIES = 'movieId,title,genres\n31,"American President, The (1995)",Comedy|Drama\n1029,Dumbo (1941),Animation\n'


def test_movielens_csv(tmp_path):
    put(tmp_path / "ml" / "ratings.csv", "userId,movieId,rating,timestamp\n" + rating_lines(","))
    put(tmp_path / "ml" / "movies.csv", MOVIES)
    put(tmp_path / "ml" / "tags.csv", "userId,movieId,tag,timestamp\n1,31,funny,5\n")
    put(tmp_path / "ml" / "README.txt", "Summary\n=======\n")
    assert_ratings(tmp_path / "ml" / "ratings.csv")
    assert_ratings(tmp_path / "ml")
    named = read_interactions(tmp_path / "ml", items=tmp_path / "ml" / "movies.csv")
    assert named.titles.tolist() == ["American President, The (1995)", "Dumbo (1941)"]


def test_movielens_dat(tmp_path):
    put(tmp_path / "ratings.dat", rating_lines("::"))
    put(tmp_path / "movies.dat", "31::American President, The (1995)::Comedy\n1029::Café (1941)::X\n".encode("latin-1"))
    put(tmp_path / "users.dat", "1::F::1::10::48067\n")
    put(tmp_path / "README", "SUMMARY\n")
    assert_ratings(tmp_path / "ratings.dat")
    assert_ratings(tmp_path)
    named = read_interactions(tmp_path, items=tmp_path / "movies.dat")
    assert named.titles.tolist() == ["American President, The (1995)", "Café (1941)"]


def test_movielens_100k(tmp_path):
    put(tmp_path / "u.data", rating_lines("\t"))
    put(
        tmp_path / "u.item",
        "31|Café (1995)|01-Jan-1995||http://x/?a,b|0|1\n1029|B|02-Feb-1996||http://y|1|0\n".encode("latin-1"),
    )
    put(tmp_path / "u1.base", "5\t6\t1\t7\n")
    put(tmp_path / "mku.sh", "#!/bin/sh\n")
    assert_ratings(tmp_path / "u.data")
    assert_ratings(tmp_path)
    assert read_interactions(tmp_path, items=tmp_path / "u.item").titles.tolist() == ["Café (1995)", "B"]


def test_a_release_packed_and_plain_is_read_once(tmp_path):
    text = "userId,movieId,rating,timestamp\n" + rating_lines(",")
    put(tmp_path / "ratings.csv", text)
    put(tmp_path / "ratings.csv.gz", gzip.compress(text.encode()))
    put(tmp_path / "ratings.csv.bak", text)
    assert_ratings(tmp_path)


NETFLIX = {
    "combined_data_1.txt": (
        "1:\n1488844,3,2005-09-06\n822109,5,2005-05-13\n2:\n885013,4,2005-10-19\n1488844,1,1999-12-31\n"
    ),
    "combined_data_2.txt": "17:\n822109,2,1970-01-02\n",
}
NETFLIX_STARS = {(1488844, 1): 3, (822109, 1): 5, (885013, 2): 4, (1488844, 2): 1, (822109, 17): 2}
DAY = 86400
NETFLIX_DAYS = {
    (1488844, 1): 13032 * DAY,
    (822109, 1): 12916 * DAY,
    (885013, 2): 13075 * DAY,
    (1488844, 2): 10956 * DAY,
    (822109, 17): DAY,
}


@pytest.mark.parametrize("size", [*range(24, 60, 5), 2**20])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_netflix(tmp_path, size, ending):
    """A film goes on where a block ends, and another one begins with the next file."""
    for name, text in NETFLIX.items():
        put(tmp_path / name, text.replace("\n", ending))
    put(tmp_path / "movie_titles.csv", "1,2003,Dinosaur Planet\n2,2004,Isle of Man TT\n")
    put(tmp_path / "probe.txt", "1:\n30878\n")
    with small_blocks(size):
        data = read_interactions(tmp_path, weight=True, time=True)
    assert cells(data) == NETFLIX_STARS
    assert moments(data) == NETFLIX_DAYS
    assert cells(read_interactions(tmp_path)) == dict.fromkeys(NETFLIX_STARS, 1)
    liked = read_interactions(tmp_path, min_weight=4)
    assert cells(liked) == {(822109, 1): 1, (885013, 2): 1}


def test_netflix_one_file_for_each_film(tmp_path):
    films = "".join(NETFLIX.values()).replace("\n2:", "\n\n2:").replace("\n17:", "\n\n17:").split("\n\n")
    assert len(films) == 3
    for film in films:
        put(tmp_path / "training_set" / f"mv_{int(film.split(':')[0]):07d}.txt", film.strip() + "\n")
    assert cells(read_interactions(tmp_path / "training_set", weight=True)) == NETFLIX_STARS


def test_million_song(tmp_path):
    ann, bob = "b80344d063b5ccb3212f76538f3d9e43d87dca9e", "85c1f87fea955d09b4bec2e36aee110927aedf9a"
    tea, jam = "SOAKIMP12A8C130995", "SOAPDEY12A81C210A9"
    path = put(tmp_path / "train_triplets.txt", f"{ann}\t{tea}\t1\n{ann}\t{jam}\t12\n{bob}\t{tea}\t3\n")
    assert cells(read_interactions(path, weight=True)) == {(ann, tea): 1, (ann, jam): 12, (bob, tea): 3}


AMAZON = {
    "2018": {
        "reviewerID": "A2SUAM1J3GNN3B",
        "asin": "0000013714",
        "overall": 5.0,
        "unixReviewTime": 1252800000,
        "reviewText": 'I bought "this",\nfor my husband.',
        "helpful": [2, 3],
        "style": {"Format:": " Hardcover"},
    },
    "2023": {
        "rating": 5.0,
        "title": "Such a lovely scent",
        "text": "é",
        "images": [],
        "asin": "B00YQ6X8EO",
        "parent_asin": "0000013714",
        "user_id": "A2SUAM1J3GNN3B",
        "timestamp": 1588687728923,
        "helpful_vote": 0,
        "verified_purchase": True,
    },
}


@pytest.mark.parametrize("year", AMAZON)
@pytest.mark.parametrize("ending", [".json", ".jsonl.gz", ".json.gz"])
def test_amazon_reviews(tmp_path, year, ending):
    first = AMAZON[year]
    user, time = ("reviewerID", "unixReviewTime") if year == "2018" else ("user_id", "timestamp")
    stars = "overall" if year == "2018" else "rating"
    rows = [first, {**first, user: "B1", stars: 2.0, time: 7}, {**first, user: "B1", stars: 3.0, time: 9}]
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path = put(tmp_path / f"reviews_Books{ending}", gzip.compress(text) if ending.endswith("gz") else text)
    data = read_interactions(path, weight=True, time=True)
    assert cells(data) == {("A2SUAM1J3GNN3B", "0000013714"): 5, ("B1", "0000013714"): 5}
    assert moments(data) == {("A2SUAM1J3GNN3B", "0000013714"): first[time], ("B1", "0000013714"): 9}
    assert [step.interactions for step in data.steps] == [3, 2]
    assert cells(read_interactions(path, min_weight=3)) == dict.fromkeys(cells(data), 1)
