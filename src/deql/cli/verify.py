"""``deql verify``: a certificate, checked by a fit."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from deql._system.tables import counted
from deql.cli.options import AsJson, ModelFile, TableOptions, with_options
from deql.cli.output import console, print_json, print_words, progress_wanted, rich_table
from deql.cli.updatable_models import features_again, load_updatable
from deql.errors import ParameterError
from deql.io.model_file import model_checksum
from deql.models.certificate import Certificate
from deql.models.verification import Check, refuse_saved_prior
from deql.models.verification import verify as check_certificate

__all__ = ["verify"]


@with_options
def verify(
    certificate: Annotated[Path, typer.Argument(help="What deql update --certificate wrote.", metavar="CERTIFICATE")],
    model_file: ModelFile,
    data: Annotated[
        Path | None, typer.Option(help="Table of the data as they are now, without those users.", metavar="FILE")
    ] = None,
    item_features: Annotated[
        Path | None, typer.Option(help="The table of items' features, if the model has some.", metavar="FILE")
    ] = None,
    json: AsJson = False,
    *,
    table: TableOptions,
) -> None:
    """Check by a fit that a model has forgotten the users of a certificate."""
    if data is None:
        raise ParameterError("say with --data FILE what the model should have learned from")
    said = Certificate.load(certificate)
    model = load_updatable(model_file)
    prior = None if item_features is None else features_again(model, item_features)
    refuse_saved_prior(prior or model.fitted_params_["prior"])
    interactions = table.read(data, quiet=json, find_time=model._needs_times)
    model.progress = progress_wanted()
    checks = check_certificate(said, model, model_checksum(model_file), interactions, prior)
    failed = [check for check in checks if not check.passed]
    if json:
        print_json({"verified": not failed, "checks": [asdict(check) for check in checks]})
    else:
        rows = [(check.what, check.found, _limit(check), "yes" if check.passed else "NO") for check in checks]
        console().print(rich_table("", ["checked", "", "limit", "passed"], rows))
        users = counted(len(said.users), "user", "users")
        if failed:
            print_words(f"Not verified: {'; '.join(f'{check.what}: {check.found}' for check in failed)}.")
        else:
            print_words(f"Verified: {model_file} is what a fit without the {users} of {certificate} gives.")
    if failed:
        raise typer.Exit(1)


def _limit(check: Check) -> str:
    return "" if check.limit is None else f"{check.limit:.0e}"
