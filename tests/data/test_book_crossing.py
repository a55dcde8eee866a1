"""Tables as Book-Crossing's are written: semicolons, Latin-1, every field quoted, marks escaped, CRLF."""

import gzip

import pytest

from deql import DeqlError, read_interactions
from deql.cli import run
from tests.data.reading import cells, put

RATINGS = (
    '"User-ID";"ISBN";"Book-Rating"\r\n'
    '"276725";"034545104X";"5"\r\n'
    '"276726";"0155\\"061224";"8"\r\n'
    '"276727";"0446520802\\"";"3"\r\n'
    '"276729";"\\"052165615X\\"";"6"\r\n'
    '"276730";"0\\"330\\"48";"7"\r\n'
    '"276731";"Kü-3";"9"\r\n'
    '"276731";"034545104X";"10"\r\n'
)
BOOKS = (
    '"ISBN";"Book-Title";"Book-Author";"Image-URL"\r\n'
    '"034545104X";"Das \\"große\\" Buch; Band 1";"Ann Müller";"http://x/1.jpg"\r\n'
    '"Kü-3";"Über \\"Kühe\\"";"B \\"C\\" D";"http://x/2.jpg"\r\n'
    '"0446520802\\"";"C:\\new, and more";"E";"http://x/3.jpg"\r\n'
)
EXPECTED = {
    (276725, "034545104X"): 5.0, (276726, '0155"061224'): 8.0, (276727, '0446520802"'): 3.0,
    (276729, '"052165615X"'): 6.0, (276730, '0"330"48'): 7.0, (276731, "Kü-3"): 9.0, (276731, "034545104X"): 10.0,
}  # fmt: skip


@pytest.fixture
def ratings(tmp_path):
    return put(tmp_path / "BX-Book-Ratings.csv", RATINGS.encode("latin-1"))


@pytest.fixture
def books(tmp_path):
    return put(tmp_path / "BX-Books.csv", BOOKS.encode("latin-1"))


def test_read(ratings, books):
    data = read_interactions(ratings, weight=True, items=books, encoding="latin-1")
    assert cells(data) == EXPECTED
    titles = dict(zip(data.items.tolist(), data.titles.tolist(), strict=True))
    assert titles["034545104X"] == 'Das "große" Buch; Band 1'
    assert titles["Kü-3"] == 'Über "Kühe"'
    assert titles['0446520802"'] == "C:\\new, and more"


def test_packed(tmp_path):
    path = put(tmp_path / "BX-Book-Ratings.csv.gz", gzip.compress(RATINGS.encode("latin-1")))
    assert cells(read_interactions(path, weight=True, encoding="ISO-8859-1")) == EXPECTED


def test_a_large_one(tmp_path):
    """Longer than the longest line: an escape used to make one record of all that follows."""
    lines = RATINGS.splitlines(keepends=True)
    path = put(tmp_path / "t.csv", (lines[0] + "".join(lines[1:]) * 40_000).encode("latin-1"))
    assert cells(read_interactions(path, encoding="latin-1")) == dict.fromkeys(EXPECTED, 1.0)


def test_the_advice_of_the_command_line_works(ratings, books, capsys):
    command = ["data", "info", str(ratings), "--items", str(books), "--weight", "Book-Rating", "--json"]
    assert run(command) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"{ratings}, line 7: byte 12 is not UTF-8: say --encoding latin-1, or the encoding" in error
    assert run([*command, "--encoding", "latin-1"]) == 0
    assert '"interactions": 7' in capsys.readouterr().out
    assert run([*command, "--encoding", "hex"]) == 2
    assert "error: --encoding must be one that Python knows" in capsys.readouterr().err


@pytest.mark.parametrize("columns", [{}, {"user": "Käufer"}])
def test_names_of_columns_that_are_not_utf8(tmp_path, columns):
    """They cannot be typed as they would be shown."""
    path = put(tmp_path / "t.csv", "Käufer;Film;Sterne\n1;7;4\n2;8;5\n".encode("latin-1"))
    with pytest.raises(DeqlError, match="columns are not in UTF-8: say encoding='latin-1', or the encoding"):
        read_interactions(path, **columns)
    data = read_interactions(path, user="Käufer", item="Film", encoding="latin-1")
    assert cells(data) == {(1, 7): 1.0, (2, 8): 1.0}
