"""Priors as they are typed, and written as they can be typed again."""

import pytest

from deql.errors import ParameterError
from deql.priors import LowPass
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
        ("lowpass:power_out", "power_out needs a value, such as power_out=0.5"),
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
        "prior": "lowpass", "prior_rank": 64, "prior_power_in": 0.3, "prior_power_out": 0.5,
    }  # fmt: skip


def test_weights_from_python_have_a_name_and_nothing_else():
    assert prior_kind([[0.0]]) == "matrix"
    assert prior_parameters([[0.0]]) == {"prior": "matrix"}


def test_only_priors_from_files_have_one():
    assert prior_file("lowpass:rank=3") is None
