import pytest

import deql
from deql.cli.model_specs import is_model_file, parse_spec, parse_specs
from deql.errors import ModelFileError, ParameterError


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
        ("lightgcn", "no model 'lightgcn': say"),
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
