"""What a file's first lines tell."""

from pathlib import Path

import pytest

from deql.data.readers.sniff import Layout, layout_of
from deql.errors import ParameterError
from tests.data.reading import put

NUMBERED = ("1", "2", "3")
CASES = {
    "csv": ("user,item\n1,2\n", Layout("csv", ("user", "item"), True, ",")),
    "no header": ("5,6,7\n1,2,3\n", Layout("csv", NUMBERED, False, ",")),
    "one line of numbers": ("5,6,7", Layout("csv", NUMBERED, False, ",")),
    "one line of names": ("who,what,when", Layout("csv", ("who", "what", "when"), True, ",")),
    "unknown names over numbers": ("a,b,c\n1,2,3\n", Layout("csv", ("a", "b", "c"), True, ",")),
    "unknown names over text": ("a,b,c\nx,y,z\n", Layout("csv", ("a", "b", "c"), True, ",")),
    "text beside numbers": ("7,tea,x\n8,jam,y\n", Layout("csv", NUMBERED, False, ",")),
    "a name that is known among the values": ("1,game,3\n2,tea,4\n", Layout("csv", NUMBERED, False, ",")),
    "a name that is known among two values": ("1,game\n2,tea\n3,jam\n", Layout("csv", ("1", "2"), False, ",")),
    "two known names over numbers": ("user,item,17\n1,2,3\n", Layout("csv", ("user", "item", "17"), True, ",")),
    "tabs before commas": ("a,b\tc\n1,2\t3\n", Layout("csv", ("a,b", "c"), True, "\t")),
    "commas in some lines": ("a;b;c\n1;2,5;3\n4;5;6\n", Layout("csv", ("a", "b", "c"), True, ";")),
    "pipes in genres": (
        "movieId,title,genres\n1,Toys,A|B|C\n2,Heat,A|D\n",
        Layout("csv", ("movieId", "title", "genres"), True, ","),
    ),
    "pipes": ("user|item\n1|2\n", Layout("csv", ("user", "item"), True, "|")),
    "double colons": ("1::2::3\n4::5::6\n", Layout("csv", NUMBERED, False, "::")),
    "spaces": ("user item when\n1 2 3\n", Layout("csv", ("user", "item", "when"), True, " ")),
    "times with spaces": (
        "user,item,when\n1,2,2020-01-01 10:00:00\n",
        Layout("csv", ("user", "item", "when"), True, ","),
    ),
    "spaces around": (" user , item \n 1 , 2 \n", Layout("csv", ("user", "item"), True, ",")),
    "quoted": ('"user, id","item"\n"1","2"\n', Layout("csv", ("user, id", "item"), True, ",")),
    "blank lines first": ("\n\r\nuser,item\n1,2\n", Layout("csv", ("user", "item"), True, ",")),
    "triplets": ("b80344d0\tSOAKIMP12\t1\nb80344d0\tSOAPDEY12\t2\n", Layout("csv", NUMBERED, False, "\t")),
    "recbole": ("user_id:token\titem_id:token\n1\t2\n", Layout("csv", ("user_id", "item_id"), True, "\t")),
    "netflix": ("1:\n5,3,2005-01-01\n", Layout("netflix", ("user", "movie", "rating", "date"))),
    "lightgcn": ("0 1 2\n1 5\n", Layout("lightgcn", ("user", "item"))),
    "lightgcn, a user without items": ("0 1\n1\n", Layout("lightgcn", ("user", "item"))),
    "json": ('{"user": 1}\n', Layout("ndjson", ())),
    "a mark of byte order": ("\ufeffuser,item\n1,2\n", Layout("csv", ("user", "item"), True, ",")),
}


@pytest.mark.parametrize("name", CASES)
def test_layouts(tmp_path, name):
    text, layout = CASES[name]
    assert layout_of(put(tmp_path / "t.txt", text)) == layout
    if not text.startswith("\ufeff"):
        assert layout_of(put(tmp_path / "t.csv", text.replace("\n", "\r\n"))) == layout


def test_the_ending_may_tell():
    assert layout_of(Path("none.parquet")).format == "parquet"
    assert layout_of(Path("none.npz")).format == "npz"


def test_what_the_caller_knows(tmp_path):
    path = put(tmp_path / "t.txt", "a b\nc d\n")
    assert layout_of(path).names == ("a", "b")
    assert layout_of(path, header=False).names == ("1", "2")
    assert layout_of(path, format="lightgcn") == Layout("lightgcn", ("user", "item"))
    assert layout_of(put(tmp_path / "n.csv", "7,8\n1,2\n"), wanted=("8",)).header
    assert layout_of(put(tmp_path / "n.csv", "7,8\n1,2\n"), header=True).names == ("7", "8")
    assert layout_of(put(tmp_path / "t.inter", "user_id:token\titem_id:token\n")).names == ("user_id", "item_id")
    with pytest.raises(ParameterError, match="unknown format 'excel': say one of csv"):
        layout_of(path, format="excel")


def test_words_for_people():
    assert Layout("csv", ("a",), True, "\t").describe() == "fields between tabs, a header"
    assert Layout("csv", ("a",), False, " ").describe() == "fields between spaces, no header"
    assert Layout("csv", ("a",), False, "::").describe() == "fields between “::”, no header"
    assert Layout("netflix", ()).describe() == "netflix"
