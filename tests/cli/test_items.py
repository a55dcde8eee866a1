"""Histories on the command line: weights, titles, and what is unknown."""

import json

import polars as pl
import pytest

import deql
from deql.cli.app import run

RATINGS = {
    "userId": [1, 1, 2, 2, 3, 3, 4, 4, 4],
    "movieId": [10, 20, 10, 30, 20, 30, 10, 20, 40],
    "rating": [5.0, 1.0, 4.0, 2.0, 5.0, 3.5, 2.0, 4.0, 1.0],
}
TITLES = {"movieId": [10, 20, 30, 40], "title": ["Toy Story (1995)", "Heat (1995)", "a=b", "Heat (1995)"]}
LETTERS = {"u": list("aabbc"), "i": ["tea", "x=2", "tea", "jam", "x=2"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models fitted with and without weights, with titles, and one whose ids are words."""
    path = tmp_path_factory.mktemp("films")
    pl.DataFrame(RATINGS).write_csv(path / "ratings.csv")
    pl.DataFrame(TITLES).write_csv(path / "movies.csv")
    pl.DataFrame(LETTERS).write_csv(path / "letters.csv")
    common = ["-m", "ease", "--l2", "1", "-o"]
    films = ["fit", str(path / "ratings.csv"), "--items", str(path / "movies.csv"), *common]
    assert run([*films, str(path / "weighted.deql"), "--weight", "rating"]) == 0
    assert run([*films, str(path / "plain.deql")]) == 0
    assert run(["fit", str(path / "letters.csv"), *common, str(path / "letters.deql")]) == 0
    return path


@pytest.fixture
def weighted(folder):
    return folder / "weighted.deql"


def answer(capsys, *arguments):
    capsys.readouterr()
    assert run([*map(str, arguments), "--json"]) == 0
    out, err = capsys.readouterr()
    return json.loads(out), err


def refusal(capsys, *arguments):
    capsys.readouterr()
    assert run([*map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err.strip().splitlines()[-1]


def listed(found):
    return [(one["item"], one["score"]) for one in found["recommendations"]]


def expected(path, history, **options):
    ids, scores = deql.load(path).recommend([history], **options)
    return [pair for pair in zip(ids[0].tolist(), scores[0].tolist(), strict=True) if pair[1] == pair[1]]


class TestTables:
    def test_with_weights_give_the_lists_of_python(self, capsys, folder, weighted):
        table = folder / "ratings.csv"
        rows, err = answer(capsys, "recommend", weighted, "--histories", table, "--weight", "rating", "-k", 1)
        found = deql.load(weighted).recommend(deql.read_interactions(table, weight="rating"), k=1)
        assert [row["score"] for row in rows] == found.scores.ravel().tolist()
        assert "weight = rating" in err
        assert "note" not in err
        without, _ = answer(capsys, "recommend", weighted, "--histories", table, "-k", 1)
        assert [row["score"] for row in rows] != [row["score"] for row in without]

    def test_with_weights_that_are_not_used_are_told_how_to(self, capsys, folder, weighted):
        table = folder / "ratings.csv"
        _, err = answer(capsys, "recommend", weighted, "--histories", table)
        assert f"note: every row of {table} counts 1: say --weight rating to use that column, as the model was" in err
        _, err = answer(capsys, "recommend", folder / "plain.deql", "--histories", table)
        assert "not used: rating" in err
        assert "--weight" not in err

    def test_without_a_column_of_weights_are_not_told_of_any(self, capsys, tmp_path, weighted):
        pl.DataFrame({"user": [1, 1], "item": [10, 20]}).write_csv(tmp_path / "pairs.csv")
        assert "--weight" not in answer(capsys, "recommend", weighted, "--histories", tmp_path / "pairs.csv")[1]

    def test_of_titles(self, capsys, tmp_path, weighted):
        pl.DataFrame({"user": ["a", "a"], "item": ["toy story (1995)", "a=b"]}).write_csv(tmp_path / "titles.csv")
        rows, _ = answer(capsys, "recommend", weighted, "--histories", tmp_path / "titles.csv", "--strict")
        assert [(row["item"], row["score"]) for row in rows] == expected(weighted, [10, 30])

    def test_are_what_an_option_of_weights_is_for(self, capsys, weighted):
        assert "--weight goes with --histories" in refusal(capsys, "recommend", weighted, 10, "--weight", "rating")


class TestTypedWeights:
    @pytest.mark.parametrize(
        ("typed", "history"),
        [
            (["10=2.5", "20"], {10: 2.5, 20: 1.0}),
            (["10=-1e-1", "20=3"], {10: -0.1, 20: 3.0}),
            (["Toy Story (1995)=2.5", "A=B=3"], {10: 2.5, 30: 3.0}),
            (["a=b", "10=2"], {30: 1.0, 10: 2.0}),
            (["10=2", "toy story (1995)"], {10: 3.0}),
            (["10=0", "20"], {20: 1.0}),
        ],
    )
    def test_are_those_of_python(self, capsys, weighted, typed, history):
        found, _ = answer(capsys, "recommend", weighted, *typed, "-k", 3)
        assert listed(found) == expected(weighted, history, k=3)
        why, _ = answer(capsys, "explain", weighted, 40, *typed)
        assert why["score"] == deql.load(weighted).explain(history, 40).score

    def test_are_in_the_answer(self, capsys, weighted):
        assert answer(capsys, "recommend", weighted, "10=2.5", "20")[0]["history"] == [
            {"item": 10, "weight": 2.5}, {"item": 20, "weight": 1.0},
        ]  # fmt: skip
        assert answer(capsys, "recommend", weighted, "10", "a=b")[0]["history"] == [10, 30]

    def test_give_way_to_an_id_that_reads_like_one(self, capsys, folder):
        path = folder / "letters.deql"
        assert listed(answer(capsys, "recommend", path, "x=2")[0]) == expected(path, ["x=2"])
        assert listed(answer(capsys, "recommend", path, "x=2=5", "tea=2")[0]) == expected(
            path, {"x=2": 5.0, "tea": 2.0}
        )

    def test_must_be_finite(self, capsys, weighted):
        for typed in ("10=nan", "10=inf", "10=1e999"):
            assert "the weight of 10 in a history must be a finite number" in refusal(
                capsys, "recommend", weighted, typed
            )

    def test_of_unknown_items_are_unknown_with_them(self, capsys, folder):
        path = folder / "letters.deql"
        found, err = answer(capsys, "recommend", path, "jan=2", "tea", "gin=x")
        assert "note: 'jan' is not an item of this model (did you mean jam?)" in err
        assert "ignored 2 unknown items in histories: 'jan', 'gin=x'" in err
        assert listed(found) == expected(path, {"tea": 1.0})
        assert "does not know: 'gin'" in refusal(capsys, "recommend", path, "gin=2", "--strict")


class TestCandidates:
    def test_that_are_unknown_are_noted_and_counted(self, capsys, folder):
        path = folder / "letters.deql"
        found, err = answer(capsys, "recommend", path, "tea", "--candidate", "jam", "--candidate", "jan")
        assert [one["item"] for one in found["recommendations"]] == ["jam"]
        assert "note: 'jan' is not an item of this model (did you mean jam?)" in err
        assert "note: ignored 1 unknown item in candidates: 'jan'" in err

    def test_that_are_unknown_are_refused_if_strict_or_all(self, capsys, folder):
        question = "recommend", folder / "letters.deql", "tea", "--candidate", "jan"
        assert "the model knows none of the candidates: 'jan'" in refusal(capsys, *question)
        assert "'jan' (did you mean jam?)" in refusal(capsys, *question, "--candidate", "jam", "--strict")


def test_a_title_of_several_items_needs_an_id(capsys, weighted):
    for question in (["similar", weighted, "heat (1995)"], ["recommend", weighted, "10", "heat (1995)=2"]):
        assert "2 items are called 'heat (1995)': say which by its id, 20, 40" in refusal(capsys, *question)
