"""``deql tune -m`` as people type it, nonsense included."""

import json
import shlex

import numpy as np
import pytest

import deql
from deql.cli import run
from deql.tuning import model_trials
from tests.cli.test_cli import answer, refusal
from tests.cli.test_tune import shown, steps
from tests.tuning.common import market

AXES = ["-m", "slim:l1=0.1", "--l2", "1,10", "--axis", "l1=0.1,1"]


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "events.split"
    deql.split_strong(market(seed=1), validation_users=0.3).save(path)
    return path


def test_as_in_python(capsys, split, tmp_path):
    out = tmp_path / "a.deql"
    text, notes = shown(capsys, "tune", split, "-o", out, *AXES)
    expected = deql.tune(deql.load_split(split), {"l2": [1, 10], "l1": [0.1, 1]}, model=deql.SLIM(l1=0.1))
    np.testing.assert_array_equal(deql.load(out).weights(), expected.model.weights())
    told = " ".join(text.split())
    for sentence in expected.sentences:
        assert " ".join(sentence.split()) in told
    assert f"As it can be typed: {expected.spec}" in told
    assert f"deql evaluate {split} {out}" in text
    assert f"{expected.fits} of " in notes
    typed = shlex.split(text[text.index("    deql evaluate") :])[1:]
    assert "ndcg@20" in shown(capsys, *typed).out


def test_goes_on_with_its_journal(capsys, split, tmp_path, monkeypatch):
    command = ["tune", split, "-o", tmp_path / "a.deql", *AXES, "--search", "grid"]
    evaluate, asked = model_trials.evaluate, []

    def interrupted(*given):
        asked.append(given)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return evaluate(*given)

    monkeypatch.setattr(model_trials, "evaluate", interrupted)
    assert run([*map(str, command)]) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert steps((tmp_path / "a.tuning.jsonl").read_bytes()).count("fit") == 2
    assert "going on with 2 settings from" in shown(capsys, *command).err
    found = answer(capsys, *command)
    assert (found["fits"], found["complete"], len(asked)) == (4, True, 5)
    assert json.loads(json.dumps(found)) == found


def test_keeps_data_where_it_is_asked_to(capsys, split, tmp_path):
    shown(capsys, "tune", split, "-o", tmp_path / "a.deql", *AXES, "--budget", "1", "--keep-data", "--refit", "all")
    assert deql.load(tmp_path / "a.deql").data_.n_users == market(seed=1).n_users


def test_networks(capsys, split, tmp_path):
    pytest.importorskip("torch")
    typed = ["-m", "ssm:backbone=mf,rank=4,batch_size=64", "--axis", "epochs=1,2", "--axis", "backbone=mf,lightgcn"]
    typed = ["-m", "ssm:backbone=mf,rank=4,batch_size=64", "--axis", "epochs=1,2", "--axis", "backbone=mf,lightgcn"]
    found = answer(capsys, "tune", split, "-o", tmp_path / "a.deql", *typed, "--budget", "2", "--device", "cpu")
    assert found["fits"] == 2
    assert deql.load(tmp_path / "a.deql").rank == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-m", "ease"], "ease is of the family on P, which is searched as a whole: leave out -m ease"),
        (["-m", "slimm"], "did you mean slim?"),
        (["-m", "popularity"], "Popularity has nothing to search"),
        (["-m", "shop.deql"], "shop.deql is a model that is fitted: name the kind of model, such as -m slim"),
        (["-m", "slim:l1=-1"], "l1 must be a number from 0 up"),
        (["-m", "slim", "--dropout", "0.1"], "--dropout is no parameter of slim: it has l1, l2,"),
        (["-m", "slim", "--prior", "lowpass"], "--prior is for the family on P: leave it out, or leave out -m slim"),
        (["-m", "slim", "--space", "quick"], "--space is for the family on P"),
        (["-m", "slim", "--b", "1"], "--b is for the family on P"),
        (["-m", "slim", "--search", "optuna"], "--search optuna is for the family on P"),
        (["-m", "slim", "--no-prune"], "--no-prune is for the family on P"),
        (["-m", "slim", "--dry-run"], "--dry-run is for the family on P"),
        (["-m", "slim", "--report", "a.html"], "--report is for the family on P"),
        (["-m", "slim", "--device", "cpu"], "--device: slim is not trained on a device"),
        (["-m", "slim", "--axis", "l1"], "--axis l1: say a parameter and its values, such as epochs=20,40"),
        (["-m", "slim", "--axis", "l3=1"], "--axis l3=1: slim has no parameter 'l3'"),
        (["-m", "slim", "--axis", "l1=a,b"], "--axis l1=a,b: l1 must be a number, got 'a'"),
        (["-m", "slim", "--axis", "l1=-1"], "l1 must be a number from 0 up, got -1"),
        (["-m", "slim", "--l2", "1", "--axis", "l2=2"], "--axis l2=2: l2 is given twice"),
        (["--axis", "l1=1"], "--axis is for another model, such as -m slim: say which"),
        (["--device", "cuda"], "--device is for another model"),
    ],
)
def test_nonsense(capsys, split, tmp_path, options, words):
    assert words in refusal(capsys, "tune", split, "-o", tmp_path / "a.deql", *options)
    assert not list(tmp_path.iterdir())
