"""Names of items from a second table."""

import gzip

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from deql import DeqlError, Interactions, read_interactions
from deql.data.titles import with_titles
from tests.data.reading import put

DATA = Interactions.from_pairs([1, 1, 2], [31, 7, 1029])
TEXT = Interactions.from_pairs([1, 1], ["B001", "0007"])
NAMES = {31: 'Café "Nord", The', 1029: "Dumbo"}
TITLES = ["7", 'Café "Nord", The', "Dumbo"]

TABLES = {
    "movies.csv": 'movieId,title,genres\n31,"Café ""Nord"", The",A|B\n1029,Dumbo,C\n5,Other,D\n',
    "names.tsv": 'name\titem_id\n"Café ""Nord"", The"\t31\nDumbo\t1029\n',
    "two.csv": 'what,called\n31,"Café ""Nord"", The"\n1029,Dumbo\n',
    "plain.csv": '31,"Café ""Nord"", The"\n1029,Dumbo\n',
    "id.csv": 'name,id\n"Café ""Nord"", The",31\nDumbo,1029\n',
    "shop.item": 'item_id:token\tmovie_title:token_seq\tclass:token\n31\t"Café ""Nord"", The"\tx\n1029\tDumbo\ty\n',
    "meta.jsonl": '{"item": 31, "title": "Café \\"Nord\\", The", "n": [1]}\n{"item": 1029, "title": "Dumbo"}\n',
    "meta.json": '{"parent_asin": "31", "title": "Café \\"Nord\\", The"}\n{"parent_asin": "1029", "title": "Dumbo"}\n',
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("packed", [False, True])
def test_files(tmp_path, name, packed):
    raw = TABLES[name].encode()
    path = put(tmp_path / (name + ".gz" * packed), gzip.compress(raw) if packed else raw)
    named = with_titles(DATA, path)
    assert named.titles.tolist() == TITLES
    assert with_titles(DATA, str(path)).titles.tolist() == TITLES
    assert (named.matrix != DATA.matrix).nnz == 0
    assert DATA.titles is None


def test_old_movielens_files_are_in_latin_1(tmp_path):
    path = put(tmp_path / "movies.dat", '31::Café "Nord", The::A\n1029::Dumbo::B\n'.encode("latin-1"))
    assert with_titles(DATA, path).titles.tolist() == TITLES


def test_quotation_marks_in_old_movielens_files(tmp_path):
    path = put(tmp_path / "movies.dat", '31::"Great Performances" Cats (1998)::A\n1029::12" Vinyl::B\n7::The "End::C\n')
    assert with_titles(DATA, path).titles.tolist() == ['The "End', '"Great Performances" Cats (1998)', '12" Vinyl']


def test_a_latin_1_letter_far_into_the_file(tmp_path):
    rows = "".join(f"{i}::Film {i} ({i * 'x'})::A\n" for i in range(2000, 3400)) + "31::Café::A\n"
    path = put(tmp_path / "movies.dat", rows.encode("latin-1"))
    assert path.stat().st_size > 2**20
    assert with_titles(DATA, path).titles.tolist() == ["7", "Café", "1029"]


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy", "arrow", "mapping", "mapping of text", "parquet"])
def test_frames_and_mappings(tmp_path, kind):
    columns = {"title": list(NAMES.values()), "movieId": list(NAMES)}
    pl.DataFrame(columns).write_parquet(tmp_path / "movies.parquet")
    source = {
        "pandas": pd.DataFrame(columns),
        "polars": pl.DataFrame(columns),
        "lazy": pl.LazyFrame(columns),
        "arrow": pa.table(columns),
        "mapping": NAMES,
        "mapping of text": {str(key): name for key, name in NAMES.items()},
        "parquet": tmp_path / "movies.parquet",
    }[kind]
    assert with_titles(DATA, source).titles.tolist() == TITLES


def test_ids_that_a_gap_turned_into_floats():
    frame = pd.DataFrame({"movieId": [31.0, None, 1029.0], "title": [NAMES[31], "?", "Dumbo"]})
    assert with_titles(DATA, frame).titles.tolist() == TITLES


def test_text_ids_keep_their_zeros(tmp_path):
    path = put(tmp_path / "t.csv", "item,title\n0007,Bond\nB001,Book\n7,Seven\n")
    assert with_titles(TEXT, path).titles.tolist() == ["Bond", "Book"]


def test_missing_and_repeated_titles(tmp_path):
    path = put(tmp_path / "t.csv", "item,title\n31,\n1029,Dumbo\n7,First\n7,Second\n")
    titles = with_titles(DATA, path).titles.tolist()
    assert titles[1:] == ["31", "Dumbo"]
    assert titles[0] in ("First", "Second")


def test_an_empty_title_is_none():
    assert with_titles(DATA, {7: "", 31: "Tea"}).titles.tolist() == ["7", "Tea", "1029"]


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (pl.DataFrame({"item": [7], "title": [["Tea"]]}), "column title holds List"),
        (pl.LazyFrame({"item": ["x"], "title": ["Tea"]}).cast({"item": pl.Int64}), "cannot be read"),
        (pl.scan_csv("nowhere.csv"), "cannot be read"),
    ],
)
def test_frames_that_do_not_serve(frame, said):
    with pytest.raises(DeqlError, match=rf"^the table of titles.*{said}[^\n]*$"):
        with_titles(DATA, frame)


def test_nothing_given():
    assert with_titles(DATA, None) is DATA


def test_through_reading(tmp_path):
    events = put(tmp_path / "events.csv", "user,item,rating\n1,31,5\n1,7,2\n2,1029,4\n")
    data = read_interactions(events, items=put(tmp_path / "movies.csv", TABLES["movies.csv"]), min_weight=4)
    assert (data.items.tolist(), data.titles.tolist()) == ([31, 1029], TITLES[1:])
    assert read_interactions(DATA.matrix, items={2: "last"}).titles.tolist() == ["0", "1", "last"]


def test_one_column(tmp_path):
    refused(put(tmp_path / "t.csv", "item\n31\n"), "t.csv has one column: titles need")
    refused(pl.DataFrame({"item": [31]}), "has one column")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "there is no file .*none.csv"),
        ("empty.csv", "", "empty.csv is empty"),
        ("header.csv", "item,title\n", "header.csv has no rows"),
        (
            "other.csv",
            "item,title\nx1,a\nx2,b\nx3,c\nx4,d\n",
            "no item has a title in .*other.csv: .*'x1', 'x2', 'x3' and 1 more.*7, 31, 1029",
        ),
        ("films.txt", "1:\n5,3,2005-01-01\n", "films.txt is a netflix file: titles need a table"),
        ("broken.json", '{"item": 31, "title": "a"}\n{"item"\n', "broken.json.*"),
        ("noise.parquet", b"\xff\xfe", "cannot be read as Parquet"),
        ("cut.csv.gz", gzip.compress(b"item,title\n31,a\n" * 99, mtime=0)[:40], "is cut short"),
        ("many.csv", "item,title\n31,a\n7,b,c\n", "line 3: 3 fields where the table has 2"),
    ],
)
def test_tables_that_do_not_serve(tmp_path, name, content, message):
    if content is not None:
        put(tmp_path / name, content)
    refused(tmp_path / name, message)


def refused(source, message):
    with pytest.raises(DeqlError, match=message) as caught:
        with_titles(DATA, source)
    assert str(caught.value).isprintable()


def test_a_folder_is_no_table_of_titles(tmp_path):
    refused(tmp_path, "with the titles")


def test_a_mapping_of_other_ids():
    refused({"a": "b"}, "no item has a title in the table of titles: its ids are like 'a', .*is it the right table")


def test_damaged_parquet(tmp_path):
    data = Interactions.from_pairs(["ann"], ["tea"])
    path = tmp_path / "titles.parquet"
    pl.DataFrame({"item": ["tea"] * 99, "title": [f"Tea {place}" for place in range(99)]}).write_parquet(path)
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(40) + content[44:])
    with pytest.raises(DeqlError, match="cannot be read as Parquet"):
        with_titles(data, path)
