"""``deql recommend`` for users: by id, from a file, all of them, and written as it goes."""

import json

import numpy as np
import polars as pl
import pytest

import deql
from deql.cli import run
from deql.cli.user_ids import read_ids
from tests.cli.test_cli import answer, refusal


@pytest.fixture
def kept(tmp_path, events):
    path = tmp_path / "kept.deql"
    assert run(["fit", str(events), "-o", str(path), "--l2", "1", "--keep-data"]) == 0
    return path


def test_fit_keeps_the_data_if_asked(kept, model_file, events):
    data = deql.load(kept).data_
    assert data.users.tolist() == ["ann", "bob", "cid", "dee"]
    assert (data.matrix != deql.read_interactions(events).matrix).nnz == 0
    assert deql.load(model_file).data_ is None


def test_one_user_by_id(capsys, kept):
    found = answer(capsys, "recommend", kept, "--user-id", "bob", "-k", 2, "--reasons", 1)
    expected = deql.load(kept).recommend(users=["bob"], k=2, reasons=1)
    assert found["user"] == "bob"
    assert found["from_popularity"] is False
    assert [one["item"] for one in found["recommendations"]] == expected.ids[0].tolist()
    assert [one["reason"] for one in found["recommendations"]] == expected.reasons[0].tolist()
    assert run(["recommend", str(kept), "--user-id", "bob", "--reasons", "1"]) == 0
    assert "tea" in capsys.readouterr().out


def test_several_users_by_id(capsys, kept):
    rows = answer(capsys, "recommend", kept, "--user-id", "dee", "--user-id", "ann", "-k", 1)
    assert [row["user"] for row in rows] == ["dee", "ann"]


@pytest.mark.parametrize("content", ["dee\nann\n", "\ufeffuser_id\r\ndee\r\n\r\nann\r\n", "\n dee \nann"])
@pytest.mark.parametrize("name", ["users.txt", "users.csv"])
def test_users_of_a_file(capsys, tmp_path, kept, content, name):
    (tmp_path / name).write_bytes(content.replace(" dee ", "dee" if name.endswith("csv") else " dee ").encode())
    out = tmp_path / "lists.parquet"
    assert run(["recommend", str(kept), "--users", str(tmp_path / name), "-k", "2", "-o", str(out)]) == 0
    expected = deql.load(kept).recommend(users=["dee", "ann"], k=2).to_frame()
    assert pl.read_parquet(out).equals(expected)
    assert "rows for 2 users" in capsys.readouterr().err


def test_users_of_a_table_with_a_column_of_them(tmp_path, kept):
    known = deql.load(kept).data_.users
    frame = pl.DataFrame({"visits": [3, 4], "customer": ["dee", "ann"]})
    frame.write_parquet(tmp_path / "users.parquet")
    frame.write_csv(tmp_path / "users.csv")
    frame.write_csv(tmp_path / "users.tsv", separator="\t")
    for name in ("users.parquet", "users.csv", "users.tsv"):
        assert read_ids(tmp_path / name, known) == ["dee", "ann"]


def test_users_with_numbers(tmp_path):
    (tmp_path / "users").write_text("7\n008\nann\n")
    assert read_ids(tmp_path / "users", np.array([7, 8])) == [7, 8, "ann"]
    assert read_ids(tmp_path / "users", np.array(["7"], object)) == ["7", "008", "ann"]


@pytest.mark.parametrize("ending", ["parquet", "csv", "ndjson"])
def test_all_users_go_to_a_file(tmp_path, kept, ending):
    out = tmp_path / f"lists.{ending}"
    assert run(["recommend", str(kept), "--all-users", "-k", "2", "-o", str(out)]) == 0
    expected = deql.load(kept).recommend(k=2).to_frame()
    assert getattr(pl, f"read_{ending}")(out).equals(expected)


def test_some_users_of_a_table(capsys, tmp_path, model_file, events):
    (tmp_path / "users").write_text("cid\n")
    rows = answer(capsys, "recommend", model_file, "--histories", events, "--users", tmp_path / "users", "-k", 1)
    expected = deql.load(model_file).recommend([["jam", "egg", "oat"]], k=1)
    assert [(row["user"], row["item"]) for row in rows] == [("cid", expected.ids[0, 0])]


def test_the_popularity_order_is_marked_everywhere(capsys, tmp_path, kept):
    histories = tmp_path / "new.csv"
    histories.write_text("user,item\nann,gin\nbob,tea\n")
    out = tmp_path / "lists.csv"
    command = ["recommend", str(kept), "--histories", str(histories), "-k", "1"]
    assert run([*command, "-o", str(out)]) == 0
    assert "1 of 2 users have no known item" in capsys.readouterr().err
    assert pl.read_csv(out)["from_popularity"].to_list() == [True, False]
    assert run(command) == 0
    assert capsys.readouterr().out.splitlines()[0] == "user,rank,item,score,from_popularity"
    assert [row["from_popularity"] for row in answer(capsys, *command)] == [True, False]
    assert run(["recommend", str(kept), "gin"]) == 0
    assert "popularity order" in capsys.readouterr().out
    assert run(["recommend", str(kept), "--user-id", "zoe"]) == 0
    out, err = capsys.readouterr()
    assert "popularity order" in out
    assert "1 user gets the popularity order, for want of data: 'zoe'" in err
    assert answer(capsys, "explain", kept, "tea", "gin")["from_popularity"] is True
    assert answer(capsys, "explain", kept, "tea", "jam")["from_popularity"] is False


class TestNonsense:
    def test_a_model_without_its_data(self, capsys, model_file, tmp_path):
        (tmp_path / "users").write_text("ann\n")
        for asked in (["--user-id", "ann"], ["--users", tmp_path / "users"], ["--all-users"]):
            assert "fit it with --keep-data, or give --histories" in refusal(capsys, "recommend", model_file, *asked)

    def test_users_who_are_not_there(self, capsys, kept):
        said = refusal(capsys, "recommend", kept, "--user-id", "zoe", "--strict")
        assert "there are no data on the users 'zoe'" in said

    def test_too_much_at_once(self, capsys, kept, events, tmp_path):
        (tmp_path / "users").write_text("ann\n")
        assert "not both" in refusal(capsys, "recommend", kept, "tea", "--user-id", "ann")
        assert "not both" in refusal(capsys, "recommend", kept, "--user-id", "ann", "--users", tmp_path / "users")
        assert "leave out the other users" in refusal(capsys, "recommend", kept, "--all-users", "--histories", events)

    def test_files(self, capsys, kept, tmp_path):
        said = refusal(capsys, "recommend", kept, "--users", tmp_path / "none")
        assert "there is no file" in said
        (tmp_path / "two.csv").write_text("a,b\n1,2\n")
        assert "leave one column of 'a', 'b'" in refusal(capsys, "recommend", kept, "--users", tmp_path / "two.csv")
        (tmp_path / "latin.txt").write_bytes(b"\xff\xfeann")
        assert "not text in UTF-8" in refusal(capsys, "recommend", kept, "--users", tmp_path / "latin.txt")
        (tmp_path / "bad.parquet").write_bytes(b"PAR1")
        assert "cannot be read as Parquet" in refusal(capsys, "recommend", kept, "--users", tmp_path / "bad.parquet")
        assert "redirect the output" in refusal(capsys, "recommend", kept, "tea", "-o", tmp_path / "a.csv")
        (tmp_path / "users.csv").write_text("ann\n")
        assert "used twice" in refusal(
            capsys, "recommend", kept, "--users", tmp_path / "users.csv", "-o", tmp_path / "users.csv"
        )


def test_ndjson_has_a_line_for_each_row(tmp_path, kept):
    out = tmp_path / "lists.ndjson"
    run(["recommend", str(kept), "--all-users", "-k", "1", "-o", str(out)])
    assert json.loads(out.read_text().splitlines()[0])["user"] == "ann"


def test_ids_of_users_in_a_table_of_another_country(tmp_path):
    path = tmp_path / "users.csv"
    path.write_bytes("Größe;user\n1;jörg\n2;ann\n".encode("latin-1"))
    known = np.array(["ann", "jörg"], object)
    assert read_ids(path, known, "latin-1") == ["jörg", "ann"]


@pytest.mark.parametrize(
    ("content", "options", "sentence"),
    [
        (b"", [], "users.txt has no ids of users"),
        (b"\n \n", [], "users.txt has no ids of users"),
        (b"j\xf6rg\n", [], "users.txt is not text in UTF-8: name the encoding that"),
        (b"ann\n", ["--encoding", "klingon"], "--encoding must be one that Python knows"),
    ],
)
def test_files_without_ids_of_users_are_refused(capsys, tmp_path, kept, content, options, sentence):
    path = tmp_path / "users.txt"
    path.write_bytes(content)
    assert sentence in refusal(capsys, "recommend", kept, "--users", path, *options)


def test_lists_without_a_row(capsys, tmp_path, kept):
    """Ids are text where there is none to tell."""
    asked = ["recommend", str(kept), "--user-id", "ann", "--user-id", "bob", "--candidate", "tea"]
    capsys.readouterr()
    assert run(asked) == 0
    assert capsys.readouterr().out == "user,rank,item,score,from_popularity\n"
    assert run([*asked, "-o", str(tmp_path / "lists.csv")]) == 0
    assert (tmp_path / "lists.csv").read_text() == "user,rank,item,score,from_popularity\n"


def test_one_user_is_counted_as_one(capsys, tmp_path, kept):
    assert run(["recommend", str(kept), "--user-id", "ann", "-k", "1", "-o", str(tmp_path / "lists.csv")]) == 0
    assert "wrote 1 row for 1 user to" in capsys.readouterr().err


def test_json_is_not_written(capsys, tmp_path, kept):
    sentence = refusal(capsys, "recommend", kept, "--all-users", "--json", "-o", tmp_path / "lists.csv")
    assert "--json is printed, and --out written: say one of them" in sentence
    assert not (tmp_path / "lists.csv").exists()


def test_users_under_hashes_are_found_by_their_ids(capsys, tmp_path, events, kept):
    path = tmp_path / "hashed.deql"
    assert run(["fit", str(events), "-o", str(path), "--l2", "1", "--hash-users"]) == 0
    assert len(deql.load(path).user_salt_) == 16
    plain = answer(capsys, "recommend", kept, "--user-id", "bob", "-k", 2)
    assert answer(capsys, "recommend", path, "--user-id", "bob", "-k", 2) == plain
    (tmp_path / "users.txt").write_text("user_id\ndee\nann\n")
    rows = answer(capsys, "recommend", path, "--users", tmp_path / "users.txt", "-k", 1)
    assert [row["user"] for row in rows] == ["dee", "ann"]
    everybody = answer(capsys, "recommend", path, "--all-users", "-k", 1)
    assert {len(row["user"]) for row in everybody} == {32}
    assert "no data on the users 'zoe'" in refusal(capsys, "recommend", path, "--user-id", "zoe", "--strict")


def test_numbers_of_users_under_hashes_are_found(capsys, tmp_path):
    (tmp_path / "events.csv").write_text("user,item\n7,a\n7,b\n8,a\n9,b\n9,c\n")
    path = tmp_path / "hashed.deql"
    assert run(["fit", str(tmp_path / "events.csv"), "-o", str(path), "-m", "popularity", "--hash-users"]) == 0
    pl.DataFrame({"user": [9.0, 7.0]}).write_parquet(tmp_path / "users.parquet")
    capsys.readouterr()
    rows = answer(capsys, "recommend", path, "--users", tmp_path / "users.parquet", "-k", 1)
    assert [(row["user"], row["item"], row["from_popularity"]) for row in rows] == [
        ("9", "a", False),
        ("7", "c", False),
    ]
