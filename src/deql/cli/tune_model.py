"""``deql tune -m``: another model than the family on P, each setting of which is a fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import typer

from deql._system.specs import Parameter, parse_parameters, split_parts
from deql.cli.model_specs import is_model_file, parse_spec
from deql.cli.output import option_name, print_grid, print_words
from deql.errors import ParameterError
from deql.evaluation.model_groups import spec_fields
from deql.models import Recommender
from deql.models.linear import LinearAutoencoder
from deql.tuning import ModelTuning
from deql.tuning.model_summary import model_grid

__all__ = ["ModelOptions", "show_model_tuning"]


@dataclass(frozen=True)
class ModelOptions:
    """What to search in place of the family on P, as asked for on the command line."""

    section: ClassVar[str] = "Another model"

    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", metavar="MODEL",
            help="Search slim, lowrankdeql, elsa, lightgcn, ssm or sgl, from what follows on: lightgcn:layers=2.",
        ),
    ] = None  # fmt: skip
    axis: Annotated[
        list[str] | None,
        typer.Option(help="Its values of a parameter: epochs=20,40. May be repeated.", metavar="NAME=VALUES"),
    ] = None
    device: Annotated[str | None, typer.Option(help="Where it is trained: cuda, cuda:1 or cpu.")] = None

    def chosen(self, axes: Mapping[str, str], refused: Mapping[str, bool]) -> tuple[Recommender, dict[str, Any]] | None:
        """The model, not fitted, and its values by parameter; None where the family is searched.

        Parameters
        ----------
        axes : dict of str to str
            Values that were typed as options of the family: those of parameters that the model has, too.
        refused : dict of str to bool
            Options that only the family has, and whether they were typed.
        """
        if self.model is None:
            for name in ("axis", "device"):
                if getattr(self, name):
                    raise ParameterError(f"{option_name(name)} is for another model, such as -m slim: say which")
            return None
        if is_model_file(self.model):
            raise ParameterError(f"{self.model} is a model that is fitted: name the kind of model, such as -m slim")
        model = parse_spec(self.model, files=False)
        if isinstance(model, LinearAutoencoder):
            raise ParameterError(
                f"{self.model} is of the family on P, which is searched as a whole: leave out -m {self.model}"
            )
        for option, typed in refused.items():
            if typed:
                raise ParameterError(f"{option} is for the family on P: leave it out, or leave out -m {self.model}")
        known = {field.name: Parameter(field.default, str(field.type)) for field in spec_fields(model)}
        given: dict[str, Any] = {}
        for name, text in axes.items():
            if name not in known:
                raise ParameterError(f"{option_name(name)} is no parameter of {self.model}: it has {', '.join(known)}")
            given[name] = _values(option_name(name), self.model, name, text, known)
        for text in self.axis or []:
            name, equals, values = (part.strip() for part in text.partition("="))
            if not equals or not values:
                raise ParameterError(f"--axis {text}: say a parameter and its values, such as epochs=20,40")
            if name in given:
                raise ParameterError(f"--axis {text}: {name} is given twice")
            given[name] = _values(f"--axis {text}", self.model, name, values, known)
        if self.device is not None:
            if "device" not in model.get_params():
                raise ParameterError(f"--device: {self.model} is not trained on a device")
            model.set_params(device=self.device)
        return model, given


def _values(said: str, model: str, name: str, text: str, known: Mapping[str, Parameter]) -> list[Any]:
    """What stands between commas, each as a model's parameter is read."""
    return [parse_parameters(said, model, [f"{name}={part}"], known)[name] for part in split_parts(text)]


def show_model_tuning(found: ModelTuning) -> None:
    """The leaderboard, and what it means."""
    print_grid(model_grid(found))
    print()
    for sentence in found.sentences:
        print_words(sentence)
