"""``deql verify``: certificates that are true, and those that are not."""

import json

import numpy as np
import polars as pl
import pytest

import deql
from deql.cli.app import run

USERS, ITEMS = 50, 16


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Tables of before and of after, features, and for each model the one that forgot with its certificate."""
    folder = tmp_path_factory.mktemp("verified")
    generator = np.random.default_rng(8)
    rows, columns = np.nonzero(generator.random((USERS, ITEMS)) < generator.uniform(0.15, 0.6, ITEMS))
    frame = pl.DataFrame({"user": rows + 100, "item": columns + 1, "time": np.arange(len(rows)) * 3600.0})
    frame.write_csv(folder / "before.csv")
    frame.filter(~pl.col("user").is_in([107, 109])).sample(fraction=1, shuffle=True, seed=1).write_csv(
        folder / "after.csv"
    )
    kinds = ["sour", "sweet", "salt"]
    pl.DataFrame({"item": range(1, ITEMS + 1), "kind": [kinds[i % 3] for i in range(ITEMS)]}).write_csv(
        folder / "items.csv"
    )
    (folder / "users").write_text("107\n109\n")
    fits = {
        "plain": ["--dtype", "float64", "--keep-data", "--user-power", "0.3"],
        "hashed": ["--hash-users"],
        "lowpass": ["--keep-data", "--prior", "lowpass:rank=3"],
        "features": ["--keep-data", "--item-features", folder / "items.csv"],
        "fading": ["--keep-data", "--half-life", "5d", "--dtype", "float64"],
    }
    for name, options in fits.items():
        path = folder / f"{name}.deql"
        done(["fit", folder / "before.csv", "--l2", "4", *options, "-o", path])
        again = ["--item-features", folder / "items.csv"] if name == "features" else []
        forget = ["--forget-users", folder / "users", "--certificate", folder / f"{name}.json", *again]
        done(["update", path, *forget, "-o", path])
    return folder


def done(arguments):
    assert run([*map(str, arguments)]) == 0


def verify(shop, capsys, name, table="after.csv", *options, code=0, model=None):
    arguments = [shop / f"{name}.json", model or shop / f"{name}.deql", "--data", shop / table, *options]
    capsys.readouterr()
    assert run([*map(str, ["verify", *arguments]), "--json"]) == code
    out = capsys.readouterr()
    return json.loads(out.out) if code < 2 else out.err.strip().splitlines()[-1].removeprefix("deql: error: ")


@pytest.mark.parametrize("table", ["after.csv", "before.csv"])
@pytest.mark.parametrize("name", ["plain", "hashed", "lowpass", "features", "fading"])
def test_what_is_true_is_verified(capsys, shop, name, table):
    again = ["--item-features", shop / "items.csv"] if name == "features" else []
    found = verify(shop, capsys, name, table, *again)
    assert found["verified"]
    by_name = {check["what"]: check for check in found["checks"]}
    assert by_name["users in the data it keeps"]["found"] == "0 of 2"
    assert ("users in the table" in by_name) == (table == "before.csv")
    assert by_name["P"]["difference"] <= by_name["P"]["limit"] == (1e-8 if name in ("plain", "fading") else 1e-3)


def test_for_people(capsys, shop):
    capsys.readouterr()
    done(["verify", shop / "plain.json", shop / "plain.deql", "--data", shop / "after.csv"])
    out = capsys.readouterr().out
    assert "plain.deql is what a fit without the 2 users of" in " ".join(out.split())
    assert "1e-08" in out


def test_a_model_that_still_knows_them(capsys, shop, tmp_path):
    """The first file under the certificate of the second: its own counts tell."""
    done(["fit", shop / "before.csv", "--l2", "4", "--keep-data", "-o", tmp_path / "old.deql"])
    found = verify(shop, capsys, "plain", code=1, model=tmp_path / "old.deql")
    assert not found["verified"]
    wrong = {check["what"]: check["found"] for check in found["checks"] if not check["passed"]}
    assert wrong["users in the data it keeps"] == "2 of 2"
    assert "in the model" in wrong["the data"]
    assert "another model, or changed since" in wrong["the file"]


def test_a_model_that_was_updated_since(capsys, shop, tmp_path):
    (tmp_path / "more").write_text("110\n")
    done(["update", shop / "plain.deql", "--forget-users", tmp_path / "more", "-o", tmp_path / "new.deql"])
    found = verify(shop, capsys, "plain", code=1, model=tmp_path / "new.deql")
    assert {"the file", "the data"} == {check["what"] for check in found["checks"] if not check["passed"]}


def test_other_parameters_are_found_by_the_fit(capsys, shop, tmp_path):
    model = deql.load(shop / "plain.deql")
    model.with_rule(b=2.0).save(tmp_path / "other.deql")
    changed = deql.load(tmp_path / "other.deql")
    changed.fitted_params_["b"] = changed.b = 0.5
    changed.save(tmp_path / "other.deql")
    found = verify(shop, capsys, "plain", code=1, model=tmp_path / "other.deql")
    wrong = {check["what"] for check in found["checks"] if not check["passed"]}
    assert {"the file", "gain", "W"} <= wrong
    assert "P" not in wrong


def test_bad_input_gets_one_sentence(capsys, shop, tmp_path):
    popular = tmp_path / "popular.deql"
    done(["fit", shop / "before.csv", "-m", "popularity", "-o", popular])
    assert "is a Popularity" in verify(shop, capsys, "plain", code=2, model=popular)
    assert "say --item-features" in verify(shop, capsys, "features", code=2)
    (tmp_path / "plain.json").write_text("{")
    capsys.readouterr()
    broken = ["verify", tmp_path / "plain.json", shop / "plain.deql"]
    assert run([*map(str, broken)]) == 2
    assert "say with --data FILE" in capsys.readouterr().err
    assert run([*map(str, broken), "--data", str(shop / "after.csv")]) == 2
    assert "is not a certificate: it is no JSON" in capsys.readouterr().err
    assert "none.csv" in verify(shop, capsys, "plain", "none.csv", code=2)
    assert "there is no model file" in verify(shop, capsys, "plain", code=2, model=tmp_path / "none.deql")


def test_a_prior_that_cannot_be_made_again(capsys, shop, tmp_path):
    data = deql.read_interactions(shop / "before.csv", "user", "item")
    deql.EASE(l2=4.0, prior=np.eye(ITEMS)).fit(data).save(tmp_path / "matrix.deql")
    said = verify(shop, capsys, "plain", code=2, model=tmp_path / "matrix.deql")
    assert "not the prior (matrix), so that it cannot be fitted again" in said
