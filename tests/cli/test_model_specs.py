from pathlib import Path

import pytest

import deql
from deql.cli.model_specs import is_model_file, parse_spec, parse_specs, spec_files
from deql.errors import ModelFileError, ParameterError
from deql.evaluation.model_groups import describe, model_spec, parameters
from deql.priors import LowPass


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ease", deql.EASE()),
        ("ease:", deql.EASE()),
        ("EASE:l2=80", deql.EASE(80.0)),
        ("edlae: l2=6e1 , dropout=.8", deql.EDLAE(60.0, 0.8)),
        ("deql:l2=60,dropout=0.3,b=inf,zero_diagonal=true", deql.DEQL(60.0, 0.3, float("inf"), True)),
        ("deql:zero_diagonal", deql.DEQL(zero_diagonal=True)),
        ("deql:zero_diagonal=no", deql.DEQL()),
        ("rdlae:xi=0.2,user_power=-0.5,dtype=float64", deql.RDLAE(xi=0.2, user_power=-0.5, dtype="float64")),
        ("popularity", deql.Popularity()),
        ("deql:l2=80,prior=lowpass", deql.DEQL(80.0, prior=LowPass())),
        (
            "ease:prior=lowpass,prior_rank=64,l2=8,prior_power_in=.3,prior_weight=.5",
            deql.EASE(8.0, prior=LowPass(64, 0.3), prior_weight=0.5),
        ),
        ("deql:prior=lowpass:rank=64,prior_power_in=.3", deql.DEQL(prior=LowPass(64, 0.3))),
        ("deql:prior=none", deql.DEQL()),
        ("ease:engine=neighbours,k=50", deql.EASE(engine=deql.engines.Neighbours(k=50))),
        ("deql:prior=none,prior_weight=0.5", deql.DEQL(prior_weight=0.5)),
    ],
)
def test_what_is_typed_is_what_is_made(text, expected):
    model = parse_spec(text)
    assert type(model) is type(expected)
    assert model.get_params() == expected.get_params()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("eaze:l2=80", r"no model 'eaze' \(did you mean ease\?\): say deql"),
        ("", "no model ''"),
        ("netflix", "no model 'netflix': say"),
        ("ease:l3=80", r"no parameter 'l3'.*it has l2, user_power"),
        ("deql:droput=0.5", r"did you mean dropout\?"),
        ("ease:l2=lots", "l2 must be a number, got 'lots'"),
        ("ease:l2", "l2 needs a value"),
        ("ease:l2=", "l2 needs a value"),
        ("ease:l2=-3", "ease:l2=-3: l2 must be a number from 0 up"),
        ("ease:l2=nan", "l2 must be"),
        ("ease:l2=1,l2=2", "l2 is given twice"),
        ("deql:zero_diagonal=perhaps", "true or false"),
        ("popularity:l2=1", "it has none"),
        ("ease:progress=true", "no parameter 'progress'"),
        ("ease:dtype=int8", "dtype must be"),
        ("deql:prior=lowpas", r"deql:prior=lowpas: there is no prior 'lowpas' \(did you mean lowpass\?\)"),
        ("deql:prior", "deql:prior: prior needs a value, such as prior=lowpass"),
        ("deql:prior=", "prior needs a value"),
        ("deql:prior=lowpass,prior=none", "prior is given twice"),
        ("deql:prior_rank=5", "deql:prior_rank=5: prior_rank needs a prior, such as prior=lowpass"),
        ("deql:prior_weight=5", "prior_weight needs a prior"),
        ("deql:prior=lowpass,prior_rnk=5", r"the prior lowpass has no parameter 'rnk' \(did you mean rank\?\)"),
        ("deql:prior=lowpass,prior_rank=5,prior_rank=6", "rank is given twice"),
        ("deql:prior=lowpass,power_in=0.3", r"no parameter 'power_in' \(did you mean prior_power_in\?\)"),
        ("deql:prior=lowpass,prior_weight=-1", "prior_weight must be a number from 0 up, got -1"),
        ("deql:prior=lowpass,prior_weight=nan", "prior_weight must be a number"),
        ("deql:prior=features", "features needs a file first, such as features:items.parquet"),
        ("deql:prior=model", "model needs a file first, such as model:last-month.deql"),
        ("slim:prior=lowpass", "slim has no parameter 'prior'"),
    ],
)
def test_nonsense_is_explained(text, message):
    with pytest.raises(ParameterError, match=message):
        parse_spec(text)


def test_names_show_what_was_typed():
    named, loaded = parse_specs(["edlae:l2=60", "ease", "ease"])
    assert list(named) == ["EDLAE l2=60", "EASE", "EASE (2)"]
    assert loaded == set()


def test_model_files(tmp_path, monkeypatch, toy):
    path = tmp_path / "shop.deql"
    deql.EASE(l2=1.0).fit(toy).save(path)
    named, loaded = parse_specs([str(path), "ease:l2=1"])
    assert list(named) == ["shop.deql", "EASE l2=1"]
    assert loaded == {"shop.deql"}
    assert named["shop.deql"].items_.tolist() == toy.items.tolist()
    assert is_model_file(str(path.rename(tmp_path / "shop")))
    with pytest.raises(ModelFileError, match="no model file"):
        parse_specs(["none.deql"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ease").write_text("a file with the name of a model")
    assert not is_model_file("ease")


def test_an_arithmetic_may_be_called_as_it_was_in_version_0_1():
    assert parse_spec("ease:engine=torch,precision=float32").engine == deql.engines.Torch(arithmetic="float32")


def test_an_engine_that_is_none_is_refused():
    with pytest.raises(deql.ParameterError, match="engine must be 'auto'"):
        parse_spec("ease:engine=gpu")


PRIORS = [
    deql.DEQL(80.0, prior=LowPass()),
    deql.DEQL(80.0, prior=LowPass(64, 0.1 + 0.2, 0.7), prior_weight=0.25, popularity_power=0.1),
    deql.EASE(prior=LowPass(1)),
]


@pytest.mark.parametrize("model", PRIORS, ids=repr)
def test_what_is_written_of_a_prior_is_read_again(model):
    assert parse_spec(model_spec(model)).get_params() == model.get_params()


def test_a_prior_is_written_whole():
    assert model_spec(PRIORS[1]).endswith(
        ",popularity_power=0.1,prior=lowpass,prior_rank=64,prior_power_in=0.30000000000000004,prior_power_out=0.7,"
        "prior_weight=0.25"
    )


def test_models_with_priors_have_short_and_different_names():
    assert [describe(model) for model in PRIORS] == [
        "DEQL l2=80 prior=lowpass",
        "DEQL l2=80 popularity_power=0.1 prior=lowpass prior_rank=64 prior_power_in=0.3 prior_power_out=0.7 "
        "prior_weight=0.25",
        "EASE prior=lowpass prior_rank=1",
    ]


def test_a_model_without_a_prior_is_described_as_before():
    assert "prior" not in " ".join(parameters(deql.EASE()))
    assert "prior" not in model_spec(deql.DEQL(prior_weight=0.7))


def test_models_of_files_are_told_apart_as_priors(tmp_path, toy):
    for name in ("one", "two"):
        deql.EASE(l2=1.0).fit(toy).save(tmp_path / f"{name}.deql")
    specs = [f"ease:prior=model:{tmp_path / name}.deql" for name in ("one", "two")]
    named, loaded = parse_specs(specs)
    assert list(named) == ["EASE prior=model:one.deql", "EASE prior=model:two.deql"]
    assert loaded == set()
    assert spec_files([*specs, "mine=shop.deql", "ease"]) == [
        tmp_path / "one.deql", tmp_path / "two.deql", Path("shop.deql"),
    ]  # fmt: skip
