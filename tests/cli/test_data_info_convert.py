"""``deql data info`` and ``deql data convert``, and titles from reading to recommending."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from scipy.sparse import load_npz

import deql
from deql.cli import run

ROWS = [(1, 30, 5.0, 100), (1, 10, 4.0, 200), (2, 30, 3.0, 300), (2, 20, 4.5, 50), (3, 10, 4.0, 60), (3, 30, 5.0, 70)]


@pytest.fixture
def ratings(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text("userId,movieId,rating,timestamp\n" + "".join(",".join(map(str, row)) + "\n" for row in ROWS))
    return path


@pytest.fixture
def movies(tmp_path):
    path = tmp_path / "movies.csv"
    path.write_text('movieId,title\n30,"Tea, the Film (1999)"\n10,Jam (2001)\n99,Nobody saw it\n')
    return path


def asked(capsys, *arguments):
    """What a command that succeeds says on standard output."""
    assert run(list(map(str, arguments))) == 0
    return capsys.readouterr().out


def refusal(capsys, *arguments):
    assert run(list(map(str, arguments))) == 2
    out, err = capsys.readouterr()
    assert not out
    (line,) = [line for line in err.splitlines() if line.startswith("deql: error:")]
    return line


def test_info_counts(capsys, ratings):
    facts = json.loads(asked(capsys, "data", "info", ratings, "--weight", "rating", "--time", "timestamp", "--json"))
    assert (facts["users"], facts["items"], facts["interactions"]) == (3, 3, 6)
    assert facts["density"] == pytest.approx(6 / 9)
    assert facts["item_user_ratio"] == 1
    assert facts["items_per_user"]["median"] == 2
    assert facts["users_per_item"] | {"mean": 0} == {
        "min": 1, "quarter": 1.5, "median": 2, "mean": 0, "three_quarters": 2.5, "max": 3
    }  # fmt: skip
    assert facts["top_share"] == 0.5
    assert facts["times"] == {"first": 50, "last": 300}
    assert facts["weights"]["max"] == 5


def test_info_for_people(capsys, ratings):
    text = asked(capsys, "data", "info", ratings, "--min-weight", 4, "--time", "timestamp")
    for part in ("users", "density", "Histories by length", "items per user"):
        assert part in text


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".ndjson", ".inter"])
def test_convert_there_and_back(capsys, tmp_path, ratings, ending):
    out = tmp_path / f"other{ending}"
    asked(capsys, "data", "convert", ratings, "-o", out, "--weight", "rating", "--time", "timestamp")
    first = deql.read_interactions(ratings, "userId", "movieId", "rating", "timestamp")
    second = deql.read_interactions(out, weight=True, time=True)
    assert second.users.tolist() == first.users.tolist()
    assert second.items.tolist() == first.items.tolist()
    assert (second.matrix != first.matrix).nnz == 0
    assert second.times.tolist() == first.times.tolist()


def test_convert_to_scipy_and_with_titles(capsys, tmp_path, ratings, movies):
    asked(capsys, "data", "convert", ratings, "-o", tmp_path / "m.npz")
    assert load_npz(tmp_path / "m.npz").toarray().tolist() == [[1, 0, 1], [0, 1, 1], [1, 0, 1]]
    asked(capsys, "data", "convert", ratings, "-o", tmp_path / "t.parquet", "--items", movies)
    titles = dict(pl.read_parquet(tmp_path / "t.parquet").select("item", "title").iter_rows())
    assert titles == {30: "Tea, the Film (1999)", 10: "Jam (2001)", 20: "20"}


def test_nonsense(capsys, tmp_path, ratings):
    assert "must end in" in refusal(capsys, "data", "convert", ratings, "-o", tmp_path / "x.xlsx")
    assert "no folder" in refusal(capsys, "data", "convert", ratings, "-o", tmp_path / "none" / "x.csv")
    single = tmp_path / "single.csv"
    single.write_text("user,item\n1,2\n1,3\n")
    for command in (("data", "info", single), ("fit", single, "-o", tmp_path / "x.deql")):
        assert "single user, 1" in refusal(capsys, *command)
    single.write_text("user,item\n1,2\n2,2\n")
    assert "single item, 2" in refusal(capsys, "data", "split", single, "-o", tmp_path / "x.split")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ratings.csv", "single.csv"]


def test_titles_travel_with_the_model(capsys, tmp_path, ratings, movies):
    model = tmp_path / "films.deql"
    asked(capsys, "fit", ratings, "-m", "ease", "--l2", 1, "--items", movies, "-o", model)
    assert deql.load(model).titles_.tolist() == ["Jam (2001)", "20", "Tea, the Film (1999)"]
    told = json.loads(asked(capsys, "recommend", model, "jam (2001)", "--json"))
    assert told["history"] == [10]
    assert told["recommendations"][0] | {"score": 0} == {"item": 30, "title": "Tea, the Film (1999)", "score": 0}
    assert "Tea, the Film (1999)" in asked(capsys, "similar", model, 10)
    assert "Why Tea, the Film (1999)?" in asked(capsys, "explain", model, 30, "JAM (2001)")
    assert "did you mean Jam (2001)" in refusal(capsys, "similar", model, "Jam (2002)")
    found = deql.load(model).with_rule(b=0.5).recommend([[10]], k=1)
    assert found.titles.tolist() == [["Tea, the Film (1999)"]]
    lists = tmp_path / "lists.csv"
    asked(capsys, "recommend", model, "--histories", ratings, "-k", 1, "-o", lists)
    assert pl.read_csv(lists).columns == ["user", "rank", "item", "title", "score", "from_popularity"]


def test_a_title_that_two_items_share_needs_the_id(capsys, tmp_path, ratings, movies):
    movies.write_text("movieId,title\n30,Tea\n10,TEA\n")
    model = tmp_path / "films.deql"
    asked(capsys, "fit", ratings, "-m", "ease", "--l2", 1, "--items", movies, "-o", model)
    assert "2 items are called 'tea': say which by its id, 10, 30" in refusal(capsys, "similar", model, "tea")
    assert "Tea" in asked(capsys, "similar", model, "10")


def test_titles_stay_where_their_items_go():
    data = deql.Interactions.from_csr(np.eye(3)[[0, 1, 2, 0]], items=["x", "y", "z"])
    named = type(data)(data.matrix, data.users, data.items, titles=np.array(["X", "Y", "Z"], object))
    assert named.take_items(np.array([0, 2])).titles.tolist() == ["X", "Z"]
    assert named.take_users(np.array([1])).titles.tolist() == ["X", "Y", "Z"]
    assert deql.EASE(l2=1.0).fit(named).titles_.tolist() == ["X", "Y", "Z"]
    assert deql.EASE(l2=1.0).fit(data).recommend([["x"]]).titles is None
