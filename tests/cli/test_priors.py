"""Priors on the command line: fitting with them, comparing models that have them, and items added afterwards."""

import json

import numpy as np
import polars as pl
import pytest

import deql
from deql.cli import engine_options
from deql.cli.app import run
from deql.priors import ItemFeatures, LowPass, Model

FILMS = {
    "movieId": [1, 2, 3, 4, 5, 9],
    "title": ["Toys", "Heat", "Love", "Kiss", "Bang", "New love"],
    "genres": ["Comedy|Family", "Crime", "Comedy|Romance", "Romance", "Crime|War", "Comedy|Romance"],
}
SEEN = {1: [1, 3], 2: [1, 3, 4], 3: [2, 5], 4: [2, 5, 1], 5: [3, 4], 6: [3, 1, 2], 7: [4, 3], 8: [5, 2, 6]}

ODD_TABLES = {
    "columns": {"a": [1, 2], "b": [1, 2]},
    "others": {"item": ["x", "y"], "b": [1, 2]},
    "ids": {"item": [1, 2]},
    "same": {"item": [1, 2, 3, 4, 5], "kind": ["a"] * 5},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Histories, films of which nobody has seen the last, a film without features, and models of them."""
    path = tmp_path_factory.mktemp("films")
    pairs = [(user, film) for user, films in SEEN.items() for film in films]
    pl.DataFrame(pairs, schema=["userId", "movieId"], orient="row").write_csv(path / "ratings.csv")
    pl.DataFrame(FILMS).write_csv(path / "movies.csv")
    pl.DataFrame({"movieId": [10, 11], "genres": ["Romance", "Western|Crime"]}).write_csv(path / "new.csv")
    for name, columns in ODD_TABLES.items():
        pl.DataFrame(columns).write_csv(path / f"{name}.csv")
    deql.EASE(1.0).fit(deql.Interactions.from_pairs(list("aabb"), list("xyxz"))).save(path / "letters.deql")
    deql.Popularity().fit(deql.read_interactions(path / "ratings.csv")).save(path / "popular.deql")
    fitted = ["fit", str(path / "ratings.csv"), "--l2", "2"]
    assert run([*fitted, "--item-features", str(path / "movies.csv"), "-o", str(path / "films.deql")]) == 0
    assert run([*fitted, "-o", str(path / "plain.deql")]) == 0
    return path


def answer(capsys, *arguments):
    capsys.readouterr()
    assert run([*map(str, arguments), "--json"]) == 0, capsys.readouterr().err
    out, err = capsys.readouterr()
    return json.loads(out), err


def told(capsys, *arguments):
    capsys.readouterr()
    assert run([*map(str, arguments)]) == 0, capsys.readouterr().err
    return capsys.readouterr()


def refusal(capsys, *arguments):
    capsys.readouterr()
    assert run([*map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err.strip().splitlines()[-1]


def same(path, model):
    found = deql.load(path)
    return found.items_.tolist() == model.items_.tolist() and (found.weights() == model.weights()).all()


class TestFit:
    def fit(self, capsys, folder, *options):
        return told(capsys, "fit", folder / "ratings.csv", "-o", folder / "one.deql", "--l2", 2, *options).err

    @pytest.fixture
    def data(self, folder):
        return deql.read_interactions(folder / "ratings.csv")

    def test_a_low_pass_is_that_of_python(self, capsys, folder, data):
        err = self.fit(capsys, folder, "--prior", "lowpass:rank=3,power_in=0.3", "--prior-weight", 0.4)
        assert "the prior, a low pass, has rank 3 and the weight 0.4" in err
        assert same(folder / "one.deql", deql.DEQL(2.0, prior=LowPass(3, 0.3), prior_weight=0.4).fit(data))

    def test_item_features_are_those_of_python(self, capsys, folder, data):
        file = folder / "movies.csv"
        err = self.fit(capsys, folder, "--item-features", file)
        assert "1 item that nobody has, known by features alone" in err
        assert "1 item without features (6)" in err
        assert "the prior, items' features, has rank" in err
        assert same(folder / "one.deql", deql.DEQL(2.0, prior=ItemFeatures(file)).fit(data))

    def test_parameters_of_features_stand_behind_the_file(self, capsys, folder, data):
        file = folder / "movies.csv"
        self.fit(capsys, folder, "--prior", f"features:{file},l2=3,item=movieId")
        assert same(folder / "one.deql", deql.DEQL(2.0, prior=ItemFeatures(file, 3.0)).fit(data))

    def test_last_months_model(self, capsys, folder, data):
        err = self.fit(capsys, folder, "--prior", f"model:{folder / 'plain.deql'}", "--prior-weight", 1)
        assert "the prior, another model, has 6 × 6 weights and the weight 1" in err
        expected = deql.DEQL(2.0, prior=Model(deql.load(folder / "plain.deql")), prior_weight=1.0).fit(data)
        assert same(folder / "one.deql", expected)

    def test_none_is_none(self, capsys, folder, data):
        assert "prior" not in self.fit(capsys, folder, "--prior", "none")
        assert same(folder / "one.deql", deql.DEQL(2.0).fit(data))

    def test_a_prior_in_the_model_takes_a_weight_beside_it(self, capsys, folder, data):
        self.fit(capsys, folder, "-m", "deql:prior=lowpass,prior_rank=3", "--prior-weight", 0.7)
        assert same(folder / "one.deql", deql.DEQL(2.0, prior=LowPass(3), prior_weight=0.7).fit(data))

    def test_facts_for_machines(self, capsys, folder):
        file = folder / "movies.csv"
        facts, _ = answer(
            capsys, "fit", folder / "ratings.csv", "-o", folder / "one.deql", "--item-features", file, "--l2", 2
        )
        assert facts["prior"] == {"rank": facts["prior"]["rank"], "further_items": 1, "items_without_features": 1}
        assert facts["parameters"]["prior"] == f"features:{file}"

    def test_a_plan_counts_the_prior(self, capsys, folder):
        typed = ["fit", folder / "ratings.csv", "--dry-run", "--l2", 2]
        out = told(capsys, *typed, "--item-features", folder / "movies.csv").out
        said = "The prior, items' features of at most rank 7, is in that but for its time: one product with the inverse"
        assert f"{said}; 1 item" in out
        plan, _ = answer(capsys, *typed, "--prior", "lowpass:rank=3")
        said = "The prior, a low pass of rank 3, is in that but for its time: one product with the inverse."
        assert plan["prior"] == said

    def test_an_engine_is_chosen_with_room_for_the_prior(self, folder, monkeypatch):
        counted, choose = [], engine_options.choose_engine
        monkeypatch.setattr(
            engine_options, "choose_engine",
            lambda data, *, beside, **named: counted.append(beside) or choose(data, beside=beside, **named),
        )  # fmt: skip
        typed = ["fit", str(folder / "ratings.csv"), "--l2", "2", "-o", str(folder / "one.deql")]
        assert run([*typed, "--prior", "lowpass:rank=3"]) == 0
        assert run([*typed, "--item-features", str(folder / "movies.csv")]) == 0
        # U, V and P·U of six items; of seven, one of which nobody has, factors of twice the rank.
        assert counted == [3 * 6 * 3 * 4, 2 * 7 * 14 * 4]

    @pytest.mark.parametrize(
        ("typed", "message"),
        [
            (["--prior", "lowpas"], "there is no prior 'lowpas' (did you mean lowpass?)"),
            (["--prior", "lowpass:rank=7"], "rank must be at most 6"),
            (["--prior", "lowpass:rank=x"], "rank must be a whole number, got 'x'"),
            (["--prior", "lowpass", "--prior-weight", "-1"], "--prior-weight must be a number from 0 up, got -1.0"),
            (["--prior", "lowpass", "--prior-weight", "nan"], "--prior-weight must be a number from 0 up, got nan"),
            (["--prior", "lowpass", "--prior-weight", "x"], "Invalid value for '--prior-weight'"),
            (["--prior-weight", "0.5"], "--prior-weight needs a prior: say --prior lowpass, or --item-features FILE"),
            (["--prior", "none", "--prior-weight", "0.5"], "--prior-weight needs a prior"),
            (["-m", "slim", "--prior", "lowpass"], "--prior does not belong to the model slim"),
            (["-m", "slim", "--item-features", "movies.csv"], "--item-features does not belong to the model slim"),
            (["-m", "deql:prior=lowpass", "--prior", "none"], "given twice, in deql:prior=lowpass and as --prior"),
            (["-m", "deql:prior=none", "--item-features", "movies.csv"], "and as --item-features"),
            (
                ["--prior", "lowpass", "--item-features", "movies.csv"],
                "--item-features is a prior of its own: leave out --prior, or say --prior features:movies.csv",
            ),
            (["--item-features", "nothing.csv"], "there is no file nothing.csv with the features"),
            (["--prior", "features:nothing.csv"], "there is no file nothing.csv with the features"),
            (["--prior", "features"], "features needs a file first, such as features:items.parquet"),
            (["--prior", "features:movies.csv,l2=-1"], "l2 must be"),
            (["--prior", "features:movies.csv,item=film"], "no column 'film': say features:movies.csv,item=… with one"),
            (["--item-features", "columns.csv"], "say features:columns.csv,item=… with one of 'a', 'b'"),
            (["--item-features", "others.csv"], "others.csv has none of the items of the interactions"),
            (["--item-features", "ids.csv"], "ids.csv has ids and nothing else"),
            (["--item-features", "same.csv"], "empty or the same for all items"),
            (["--item-features", "."], "there is no file . with the features"),
            (["--item-features", "plain.deql"], "plain.deql"),
            (["--prior", "model:nothing.deql"], "there is no model file nothing.deql"),
            (["--prior", "model:movies.csv"], "movies.csv"),
            (["--prior", "model:letters.deql"], "has no item in common with the data"),
            (["--prior", "model:popular.deql"], "a model as a prior must be one whose scores are X @ W"),
            (["--item-features", "movies.csv", "-o", "movies.csv"], "movies.csv is used twice in this command"),
            (["--prior", "model:plain.deql", "-o", "plain.deql"], "plain.deql is used twice in this command"),
        ],
    )  # fmt: skip
    def test_nonsense_gets_a_sentence_and_writes_nothing(self, capsys, folder, monkeypatch, typed, message):
        monkeypatch.chdir(folder)
        out = folder / "one.deql"
        before = out.read_bytes() if out.exists() else None
        assert message in refusal(capsys, "fit", "ratings.csv", "-o", "one.deql", *typed)
        assert (out.read_bytes() if out.exists() else None) == before


class TestColdItems:
    def test_are_recommended_and_count_as_evidence(self, capsys, folder):
        found, _ = answer(capsys, "recommend", folder / "films.deql", "Love", "--candidate", "New love", "--reasons", 1)
        (one,) = found["recommendations"]
        assert one["item"] == 9
        assert one["score"] > 0
        assert "Love" in one["reason"]
        found, _ = answer(capsys, "recommend", folder / "films.deql", "New love", "-k", 1)
        assert not found["from_popularity"]
        found, _ = answer(capsys, "similar", folder / "films.deql", "New love", "-k", 2)
        assert 3 in [one["item"] for one in found["similar"]]

    def test_are_explained_by_what_they_share(self, capsys, folder, monkeypatch):
        monkeypatch.setenv("COLUMNS", "100")
        typed = ["explain", folder / "films.deql", "New love", "Love", "Bang"]
        assert "shares genre Comedy, genre Romance" in told(capsys, *typed).out
        why, _ = answer(capsys, *typed)
        parts = {part["title"]: part for part in why["parts"]}
        assert sorted(parts["Love"]["shared"]) == ["genre Comedy", "genre Romance"]
        assert not parts["Bang"].get("shared")
        assert sum(part["value"] for part in why["parts"]) == why["score"]


class TestAddItems:
    def test_are_those_of_python(self, capsys, folder):
        out = told(capsys, "add-items", folder / "films.deql", folder / "new.csv", "-o", folder / "more.deql")
        assert "2 items added, 9 in all, and saved as" in out.out
        assert "new.csv: 1 item has genres that the model does not know" in out.err
        model = deql.load(folder / "films.deql")
        model.add_items(folder / "new.csv")
        assert same(folder / "more.deql", model)
        found, _ = answer(capsys, "recommend", folder / "more.deql", "Kiss", "--candidate", 10)
        assert found["recommendations"][0]["score"] > 0

    def test_replace_the_file_whole(self, capsys, folder):
        again = folder / "again.deql"
        again.write_bytes((folder / "films.deql").read_bytes())
        facts, _ = answer(capsys, "add-items", again, folder / "new.csv", "-o", again)
        assert facts == {"added": 2, "items": 9, "file": str(again), "bytes": again.stat().st_size}
        assert len(deql.load(again).items_) == 9

    def test_replace_a_model_in_shards(self, capsys, folder):
        deql.load(folder / "films.deql").save(folder / "shards", shards=True)
        facts, _ = answer(capsys, "add-items", folder / "shards", folder / "new.csv", "-o", folder / "shards")
        assert facts["bytes"] == sum(file.stat().st_size for file in (folder / "shards").iterdir())
        assert len(deql.load(folder / "shards").items_) == 9

    @pytest.mark.parametrize(
        ("model", "table", "message"),
        [
            ("films.deql", "nothing.csv", "there is no file nothing.csv with the features"),
            ("nothing.deql", "new.csv", "nothing.deql"),
            (
                "plain.deql",
                "new.csv",
                "plain.deql is a DEQL without features to place new items by: fit it with --item-f",
            ),
            ("popular.deql", "new.csv", "popular.deql is a Popularity without features"),
            ("films.deql", "movies.csv", "the model has '1', '2', '3', '4', '5' and 1 more already"),
            ("films.deql", "ratings.csv", "ratings.csv"),
        ],
    )
    def test_nonsense_gets_a_sentence_and_writes_nothing(self, capsys, folder, monkeypatch, model, table, message):
        monkeypatch.chdir(folder)
        assert message in refusal(capsys, "add-items", model, table, "-o", "added.deql")
        assert not (folder / "added.deql").exists()

    def test_need_a_file_to_write(self, capsys, folder):
        assert "say with -o where to save the model" in refusal(
            capsys, "add-items", folder / "films.deql", folder / "new.csv"
        )


def test_models_with_priors_are_compared_by_name(capsys, tmp_path):
    data = deql.datasets.debian()[:600].without_empty()
    data.to_frame("polars").write_csv(tmp_path / "data.csv")
    specs = ["deql:l2=5", "deql:l2=5,prior=lowpass,prior_rank=9", "deql:l2=5,prior=lowpass,prior_rank=9,prior_weight=3"]
    found, _ = answer(capsys, "evaluate", tmp_path / "data.csv", *specs)
    assert [one["name"] for one in found["models"]] == [
        "DEQL l2=5", "DEQL l2=5 prior=lowpass prior_rank=9", "DEQL l2=5 prior=lowpass prior_rank=9 prior_weight=3",
    ]  # fmt: skip
    assert len({one["means"]["ndcg@20"] for one in found["models"]}) == 3


SEARCH = ["--l2", "2", "--dropout", "0.3", "--user-power", "0", "--b", "0,1", "--popularity-power", "0"]


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """Users who keep to a kind of items, when they had them, and what kind these are; of two nobody has any."""
    path = tmp_path_factory.mktemp("groups")
    generator = np.random.default_rng(0)
    rows = [
        (user, int(item), 100 * user + place)
        for user in range(150)
        for place, item in enumerate(generator.permutation(np.arange(user % 4, 40, 4))[:4])
    ]
    pl.DataFrame(rows, schema=["user", "item", "timestamp"], orient="row").write_csv(path / "log.csv")
    kinds = {"item": list(range(42)), "kind": [f"kind {item % 4}" for item in range(42)]}
    pl.DataFrame(kinds).write_csv(path / "items.csv")
    assert run(["fit", str(path / "log.csv"), "--l2", "2", "-o", str(path / "before.deql")]) == 0
    return path


@pytest.mark.parametrize("way", ["--item-features", "--prior"])
def test_a_search_takes_features_and_new_items(groups, capsys, tmp_path, way):
    given = groups / "items.csv" if way == "--item-features" else f"features:{groups / 'items.csv'},l2=2"
    tuned = ["tune", groups / "log.csv", *SEARCH, way, given, "--refit", "all", "-o", tmp_path / "m.deql"]
    found, err = answer(capsys, *tuned)
    assert "2 items that nobody has" in err
    assert found["prior"]["taken"]
    model = deql.load(tmp_path / "m.deql")
    assert {40, 41} <= set(model.items_.tolist())
    assert model.prior_.features is not None
    assert run(["add-items", str(tmp_path / "m.deql"), str(groups / "items.csv"), "-o", str(tmp_path / "n.deql")]) == 2
    again, _ = answer(capsys, *tuned)  # from its journal
    assert again["best"] == found["best"]
    assert "--item-features is a prior of its own" in refusal(
        capsys, *tuned, "--item-features", groups / "items.csv", "--prior", "lowpass"
    )


def test_a_search_takes_a_model_as_prior(groups, capsys, tmp_path):
    found, _ = answer(
        capsys, "tune", groups / "log.csv", *SEARCH, "--prior", f"model:{groups / 'before.deql'}",
        "--prior-weight", "0.5,1", "-o", tmp_path / "m.deql",
    )  # fmt: skip
    assert found["space"]["prior"] == {"prior": "model", "other": "DEQL"}
    assert found["prior"] is not None
    assert "there is no prior 'lowpas'" in refusal(
        capsys, "tune", groups / "log.csv", "--prior", "lowpas", "-o", tmp_path / "n.deql"
    )
    assert not (tmp_path / "n.deql").exists()


def test_a_low_pass_alone_is_searched_and_one_with_parameters_is_taken_as_it_is(groups, capsys, tmp_path):
    out = ["-o", tmp_path / "m.deql"]
    found, _ = answer(capsys, "tune", groups / "log.csv", *SEARCH, "--prior", "lowpass", *out)
    assert found["space"]["prior"] == "lowpass"
    (tmp_path / "m.tuning.jsonl").unlink()
    found, _ = answer(capsys, "tune", groups / "log.csv", *SEARCH, "--prior", "lowpass:rank=3", *out)
    assert found["space"]["prior"] == {"prior": "lowpass", "rank": 3, "power_in": 0.0, "power_out": 0.6}
    auto = ["fit", groups / "log.csv", "--auto", "--l2", "2", "--dropout", "0.3"]
    answer(capsys, *auto, "--prior", "lowpass", "-o", tmp_path / "a.deql")  # not of rank 512, which there is not


def test_auto_takes_features_and_new_items(groups, capsys, tmp_path):
    features = ["--item-features", groups / "items.csv", "--l2", "2", "--dropout", "0.3"]
    found, _ = answer(capsys, "fit", groups / "log.csv", "--auto", *features, "--keep-data", "-o", tmp_path / "m.deql")
    assert found["prior"]["further_items"] == 2
    model = deql.load(tmp_path / "m.deql")
    assert {40, 41} <= set(model.recommend([[0, 4]], k=42).ids[0].tolist())


def test_the_end_of_histories_is_held_out_of_a_table_with_times(groups, capsys, tmp_path):
    asked = ["tune", groups / "log.csv", *SEARCH, "--prior", "none", "--protocol", "weak", "--validation", "last"]
    found, _ = answer(capsys, *asked, "-o", tmp_path / "m.deql")
    assert "the last 10% of each user's items were held out, by time" in found["how"]
    told_next = told(capsys, *asked, "-o", tmp_path / "m.deql").out
    assert "--protocol weak --validation 0" in told_next.replace("\n", " ")  # the split whose test part was not read
    found, _ = answer(capsys, *asked[:-4], "--validation", "last", "-o", tmp_path / "n.deql")
    assert "of whom what came last was held out, by time" in found["how"]
