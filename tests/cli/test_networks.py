"""Networks at the command line: fitted, asked for users by id, interrupted and resumed."""

from __future__ import annotations

import numpy as np
import pytest

import deql
from deql.cli import run
from deql.models.neural import trainer

torch = pytest.importorskip("torch", reason="networks need torch")

SPEC = "lightgcn:rank=4,layers=2,epochs=6,batch_size=64"


@pytest.fixture
def table(tmp_path, monkeypatch):
    """60 users of 20 items in two groups, which are far apart."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DEQL_THREADS", "1")
    generator = np.random.default_rng(0)
    lines = [f"u{u},i{i}" for u in range(60) for i in range(20) if u % 2 == i % 2 and generator.random() < 0.6]
    (tmp_path / "events.csv").write_text("\n".join(["user,item", *lines]) + "\n", encoding="utf-8")
    return tmp_path


def fit(*words):
    return run(["fit", "events.csv", "--device", "cpu", "-o", "m.deql", *words])


def test_a_network_is_fitted_and_asked(table, capsys):
    assert fit("-m", SPEC) == 0
    assert "LightGCN fitted in" in capsys.readouterr().out
    assert run(["recommend", "m.deql", "i1", "i3", "-k", "2", "--json"]) == 0
    model = deql.load("m.deql")
    assert str(model.recommend([["i1", "i3"]], k=2)[0].tolist()[0][0]) in capsys.readouterr().out
    for words in (["similar", "m.deql", "i2"], ["explain", "m.deql", "i5", "i1", "i3"]):
        assert run(words) == 0
    assert run(["evaluate", "events.csv", SPEC, "ssm:backbone=mf,rank=4,epochs=2", "sgl:rank=4,epochs=2"]) == 0
    assert "SSM (MF)" in capsys.readouterr().out


def test_users_are_asked_for_by_id_where_the_data_are_kept(table, capsys):
    assert fit("-m", SPEC, "--keep-data") == 0
    capsys.readouterr()
    assert run(["recommend", "m.deql", "--user-id", "u2", "-k", "2"]) == 0
    model = deql.load("m.deql")
    best = model.recommend(users=["u2"], k=1).ids[0][0]
    assert best in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--keep-data", "--hash-users"])
def test_kept_users_have_their_own_vectors(table, option):
    assert fit("-m", SPEC) == 0
    split = deql.read_interactions("events.csv")
    expected = deql.load("m.deql").recommend(split, k=3)
    assert fit("-m", SPEC, option) == 0
    model = deql.load("m.deql")
    found = model.recommend(users=split.users.tolist(), k=3)
    assert found.scores.tobytes() == expected.scores.tobytes()
    assert model.recommend(k=3).scores.sum() == pytest.approx(expected.scores.sum(), rel=1e-9)


def test_a_killed_fit_goes_on(table, capsys, monkeypatch):
    assert fit("-m", SPEC) == 0
    whole = deql.load("m.deql")
    monkeypatch.setattr(trainer, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr(trainer, "_SHARE_OF_CHECKPOINTS", np.inf)
    write = trainer.Checkpoint.write

    def killed(self, state):
        write(self, state)
        if len(state.facts["history"]) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(trainer.Checkpoint, "write", killed)
    assert fit("-m", SPEC, "--checkpoint", "c.ckpt") == 130
    assert (table / "c.ckpt").exists()
    monkeypatch.setattr(trainer.Checkpoint, "write", write)
    capsys.readouterr()
    assert fit("-m", SPEC.replace("layers=2", "layers=1"), "--checkpoint", "c.ckpt") == 2
    assert "c.ckpt is the checkpoint of another training, which differs in layers" in capsys.readouterr().err
    assert fit("-m", SPEC, "--checkpoint", "c.ckpt") == 0
    assert not (table / "c.ckpt").exists()
    resumed = deql.load("m.deql")
    assert resumed.left_.tobytes() == whole.left_.tobytes()
    assert resumed.own_.tobytes() == whole.own_.tobytes()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-m", "ease", "--checkpoint", "c.ckpt"], "--checkpoint does not belong to the model ease"),
        (["-m", "lightgcn", "--checkpoint", "nowhere/c.ckpt"], "the checkpoint nowhere/c.ckpt cannot be written: "),
        (["-m", "lightgcn", "--checkpoint", "."], ". is a folder: name a file for the checkpoint"),
        (["-m", "lightgcn", "--checkpoint", "events.csv"], "events.csv is not a deql checkpoint file"),
        (["-m", "lightgcn", "--l2", "3"], "--l2 does not belong to the model lightgcn"),
        (["-m", "lightgcn:layers=100"], "layers must be at most 64, got 100"),
        (["-m", "ssm:backbone=gnn"], "backbone must be lightgcn or mf, got 'gnn'"),
        (["-m", "ssm:temperature=0.001"], "temperature must be at least 0.025, got 0.001"),
        (["-m", "lightgcn:rank=1000000000"], "choose a lower rank or batch_size"),
        (["-m", "lightgcn:epochs=2,learning_rate=1e30"], "the loss is no longer a number in epoch"),
    ],
)
def test_what_is_wrong_is_one_sentence(table, capsys, words, told):
    assert fit(*words) == 2
    err = capsys.readouterr().err
    assert told in err
    assert "Traceback" not in err
    assert not (table / "m.deql").exists()


def test_auto_has_no_checkpoint(table, capsys):
    assert run(["fit", "events.csv", "--auto", "--checkpoint", "c.ckpt", "-o", "m.deql"]) == 2
    assert "--checkpoint is for those that are trained" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_cuda(table, capsys):
    assert run(["fit", "events.csv", "--device", "cuda", "-m", SPEC, "-o", "m.deql"]) == 2
    err = capsys.readouterr().err
    assert "cuda" in err
    assert "Traceback" not in err
