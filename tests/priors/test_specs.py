"""Priors as they are typed, and written as they can be typed again."""

import pytest

from deql.errors import DataError, ParameterError
from deql.priors import LowPass
from deql.priors.saved import SavedPrior
from deql.priors.specs import parse_prior, prior_file, prior_kind, prior_parameters, prior_spec


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lowpass", LowPass()),
        ("LowPass:", LowPass()),
        ("lowpass:rank=64", LowPass(64)),
        ("lowpass: rank=64 , power_in=.3,power_out=-1", LowPass(64, 0.3, -1.0)),
        ("none", None),
        ("None:", None),
    ],
)
def test_what_is_typed_is_what_is_made(text, expected):
    assert parse_prior(text) == expected


@pytest.mark.parametrize("prior", [LowPass(), LowPass(64, 0.1 + 0.2), LowPass(1, 0.0, -1e-9), None], ids=repr)
def test_what_is_written_is_read_again(prior):
    assert parse_prior(prior_spec(prior)) == prior


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lowpas", r"there is no prior 'lowpas' \(did you mean lowpass\?\): say lowpass, features:items.parquet"),
        ("", "there is no prior '': say lowpass"),
        ("gnn:layers=3", "there is no prior 'gnn': say lowpass"),
        (
            "lowpass:rnk=5",
            r"lowpass:rnk=5: the prior lowpass has no parameter 'rnk' \(did you mean rank\?\); it has rank",
        ),
        ("lowpass:rank=many", "lowpass:rank=many: rank must be a whole number, got 'many'"),
        ("lowpass:rank=0.5", "rank must be a whole number, got '0.5'"),
        ("lowpass:rank=0", "lowpass:rank=0: rank must be a whole number from 1 up, got 0"),
        ("lowpass:rank=-3", "from 1 up, got -3"),
        ("lowpass:power_in=nan", "power_in must be a number, got nan"),
        ("lowpass:power_out", "power_out needs a value, such as power_out=0.6"),
        ("lowpass:rank=5,rank=6", "rank is given twice"),
        ("lowpass:512", "has no parameter '512'; it has rank, power_in, power_out"),
        ("none:rank=5", "none has no parameters"),
    ],
)
def test_nonsense_is_explained_in_one_sentence(text, message):
    with pytest.raises(ParameterError, match=message) as refused:
        parse_prior(text)
    assert "\n" not in str(refused.value)


def test_parameters_have_their_names_beside_those_of_a_model():
    assert prior_parameters(LowPass(64, 0.3)) == {
        "prior": "lowpass", "prior_rank": 64, "prior_power_in": 0.3, "prior_power_out": 0.6,
    }  # fmt: skip


def test_weights_from_python_have_a_name_and_nothing_else():
    assert prior_kind([[0.0]]) == "matrix"
    assert prior_parameters([[0.0]]) == {"prior": "matrix"}


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "items.csv"
    path.write_text("sku,kind\ntea,drink\njam,food\nale,drink\n")
    return path


class TestFiles:
    def test_of_features_come_first(self, table, capsys):
        prior = parse_prior(f"features:{table},l2=3,item=sku")
        assert (prior.table, prior.l2, prior.item) == (str(table), 3.0, "sku")
        assert "kind = category" in capsys.readouterr().err  # what is told is told at once
        assert prior_spec(prior) == f"features:{table},l2=3,item=sku"
        assert prior_parameters(parse_prior(f"features:{table}")) == {"prior": f"features:{table}", "prior_l2": 1.0}

    def test_of_models_are_read_by_who_can(self):
        prior = parse_prior("model:last.deql", load=str.upper)
        assert (prior.other, prior_spec(prior)) == ("LAST.DEQL", "model:last.deql")

    def test_are_known_without_reading(self):
        assert prior_file("features: items.csv ,l2=3") == "items.csv"
        assert prior_file("model:last.deql") == "last.deql"
        assert [prior_file(text) for text in ("lowpass:rank=3", "features", "features:l2=3", "none")] == [None] * 4

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("features", "features: features needs a file first, such as features:items.parquet"),
            ("features:l2=3", "features needs a file first"),
            ("model:", "model needs a file first, such as model:last-month.deql"),
            ("features:{table},l2=0", "l2 of item features must be above 0"),
            ("features:{table},l3=1", "no parameter 'l3'; it has l2, item"),
            ("model:a.deql,l2=1", "the prior model has no parameter 'l2'; it has none"),
        ],
    )
    def test_that_are_missing_or_followed_by_nonsense(self, table, text, message):
        with pytest.raises(ParameterError, match=message):
            parse_prior(text.format(table=table))

    def test_say_how_a_column_is_named_with_a_prior(self, table):
        with pytest.raises(
            DataError, match=r"no column 'id': say features:.*items.csv,item=… with one of 'sku', 'kind'"
        ):
            parse_prior(f"features:{table},item=id")


def test_a_prior_of_a_model_file_keeps_its_name_and_parameters():
    assert prior_parameters(SavedPrior("features", {"l2": 3.0})) == {"prior": "features", "prior_l2": 3.0}
    assert prior_parameters(SavedPrior("matrix", {})) == {"prior": "matrix"}
