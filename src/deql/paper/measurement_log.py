"""What was measured for the tables: found in the journal, or measured now and written down at once."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from typing import Any

import deql
from deql._system.formatting import as_json
from deql._system.threads import thread_count
from deql.errors import InaccurateInverseError, JournalError, NotPositiveDefiniteError
from deql.evaluation.model_groups import LogCallback, fit_and_evaluate, sharing
from deql.io.journal import Journal
from deql.linalg.planner.choose import as_engine
from deql.models.base import EXECUTION_PARAMETERS, Recommender
from deql.models.linear import LinearAutoencoder
from deql.paper.hyperparameters import Choice
from deql.paper.paper_datasets import PaperDataset
from deql.paper.published import METRICS, NETWORKS
from deql.priors.specs import prior_spec

__all__ = ["MeasurementLog", "Record", "describe_threads", "hyper_parameters", "this_machine"]

Record = dict[str, Any]

_NOT_OF_A_PLACE = ("progress", "folder", "arithmetic")


@cache
def this_machine(device: str | None = None) -> str:
    """Threads and memory, a GPU if there is one, and versions, in words.

    ``device`` is the GPU of another process that did the work; otherwise it is that of this one, if it has one in use.
    """
    names = [f"{describe_threads()} ({platform.machine()})"]
    if hasattr(os, "sysconf"):
        names.append(f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB")
    torch = sys.modules.get("torch")  # it takes a second to import, and whoever computes with it has done so
    if device is None and torch is not None and torch.cuda.is_available():
        device = torch.cuda.get_device_name()
    names += [] if device is None else [device]
    return ", ".join([*names, f"Python {platform.python_version()}", f"deql {deql.__version__}"])


def describe_threads() -> str:
    """How many threads compute."""
    return "1 thread" if thread_count() == 1 else f"{thread_count()} threads"


def hyper_parameters(model: Recommender) -> dict[str, Any]:
    """What makes a model the one it is, without how it is computed; but for an arithmetic that was asked for.

    Examples
    --------
    >>> hyper_parameters(deql.EASE(80.0, engine="memory"))
    {'model': 'EASE', 'user_power': 0.0, 'popularity_power': 0.0, 'dtype': 'float32', 'l2': 80.0}
    """
    own = {name: value for name, value in model.get_params().items() if name not in EXECUTION_PARAMETERS | {"engine"}}
    arithmetic = None
    if isinstance(model, LinearAutoencoder):
        arithmetic = as_engine(model.engine).config.get("arithmetic")
        prior, weight = (own.pop(name, None) for name in ("prior", "prior_weight"))
        if own["half_life"] is None:  # journals are older than half-lives
            del own["half_life"]
        if prior is not None:  # and than priors; without one its weight means nothing
            own |= {"prior": prior_spec(prior), "prior_weight": weight}
    else:  # all epochs are run
        own = {name: value for name, value in own.items() if name not in ("patience", "validate_every")}
    # Journals have called it so from the beginning.
    return {"model": type(model).__name__} | own | ({"precision": arithmetic} if arithmetic else {})


@dataclass(eq=False)
class MeasurementLog:
    """Measures, and never the same thing twice.

    Attributes
    ----------
    journal : Journal
        Whatever takes long goes there as soon as it is finished.
    machine : dict
        Parameters for every model that say how it is computed: engine, device, …
    tell : callable
        The log callback: called with a line for each thing that is being done.
    used : list of dict
        The journal's records that were asked for, in that order.
    """

    journal: Journal
    machine: dict[str, Any] = field(default_factory=dict)
    tell: LogCallback = lambda text: None
    used: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number, record in enumerate(self.journal.records, start=2):
            if not _is_whole(record):
                raise JournalError(
                    f"line {number} of {self.journal.path} is damaged: delete that line, and it is measured again"
                )

    @property
    def place(self) -> dict[str, Any]:
        """What of the machine's parameters seconds depend on, for keys; not where files are."""
        return {name: value for name, value in self.machine.items() if name not in _NOT_OF_A_PLACE}

    def find(self, step: str, key: Mapping[str, Any]) -> Record | None:
        """What the journal has under a key, which then is in use."""
        found = self._known(step, key)
        if found is not None and not any(found is one for one in self.used):
            self.used.append(found)
        return found

    def _known(self, step: str, key: Mapping[str, Any]) -> Record | None:
        wanted = as_json(dict(key))
        return next(
            (one for one in reversed(self.journal.records) if one["step"] == step and one.get("key") == wanted), None
        )

    def append(self, step: str, key: Mapping[str, Any], found: Mapping[str, Any], seconds: float) -> Record:
        """Write what was measured into the journal."""
        device = found.get("facts", {}).get("device")
        self.journal.append({
            "step": step, "key": dict(key), "found": dict(found), "seconds": round(seconds, 2),
            "when": datetime.now(UTC).isoformat(timespec="seconds"), "machine": this_machine(device),
        })  # fmt: skip
        self.used.append(self.journal.records[-1])
        return self.used[-1]

    def get_or_measure(self, step: str, key: Mapping[str, Any], measure: Callable[[], Mapping[str, Any]]) -> Record:
        """What the journal has under a key, or else what ``measure`` returns, which is then in the journal.

        Examples
        --------
        >>> log = MeasurementLog(Journal(None, {}, "reproduction"))
        >>> log.get_or_measure("sum", {"of": 2}, lambda: {"value": 3})["found"]
        {'value': 3}
        >>> log.get_or_measure("sum", {"of": 2}, lambda: {"value": 4})["found"]
        {'value': 3}
        """
        if (known := self.find(step, key)) is not None:
            return known
        begin = time.perf_counter()
        found = measure()
        return self.append(step, key, found, time.perf_counter() - begin)

    def can_evaluate(self, dataset: PaperDataset, choice: Choice) -> bool:
        """Whether a choice is in the journal, or could be evaluated here: networks need torch."""
        trained = choice.row in NETWORKS and find_spec("torch") is None
        return not trained or self._known("judged", self.key(dataset, choice.model(**self.machine))) is not None

    def evaluate(self, dataset: PaperDataset, choices: Sequence[Choice]) -> list[Record]:
        """The metrics of each choice on the test part, in the order of the choices; one fit for all that share P.

        ``found`` of a record has the metrics' means, their standard errors (None for a single user) and the number of
        users; or, for a model that has no solution on these data, ``failure``: why.
        """
        models = {str(place): choice.model(**self.machine) for place, choice in enumerate(choices)}
        keys = {name: self.key(dataset, model) for name, model in models.items()}
        records = {name: self.find("judged", key) for name, key in keys.items()}
        for names in sharing({name: model for name, model in models.items() if records[name] is None}):
            rows = ", ".join(dict.fromkeys(f"{choices[int(name)].row} {choices[int(name)].words}" for name in names))
            self.tell(f"{dataset.label}: fitting {rows}")
            begin = time.perf_counter()
            found = _evaluate({name: models[name] for name in names}, dataset)
            seconds = time.perf_counter() - begin
            for name in names:  # the same model may be chosen twice
                known = self.find("judged", keys[name])
                records[name] = known or self.append("judged", keys[name], found[name], seconds)
        return [record for record in records.values() if record is not None]

    @staticmethod
    def key(dataset: PaperDataset, model: Recommender) -> Record:
        """What a measurement of a model on a data set is kept under."""
        return {"data": dataset.key, "split": dataset.fingerprint} | hyper_parameters(model)


def _evaluate(models: Mapping[str, Recommender], dataset: PaperDataset) -> dict[str, Record]:
    try:
        results = fit_and_evaluate(models, dataset.first.train, dataset.first.test, METRICS)
    except (NotPositiveDefiniteError, InaccurateInverseError) as error:  # the others may do
        return {name: {"failure": str(error)} for name in models}
    return {
        name: result.means | {"errors": result.standard_errors, "users": len(result.users)}
        for name, result in results.items()
    }


def _is_whole(record: Record) -> bool:
    """Whether a record is one of :meth:`MeasurementLog.append`'s, and has all that tables show of a model."""
    kinds = {"key": dict, "found": dict, "when": str, "machine": str, "seconds": int | float}
    if not all(isinstance(record.get(name), kind) for name, kind in kinds.items()):
        return False
    found = record["found"]
    if record["step"] != "judged" or isinstance(found.get("failure"), str):
        return bool(found)
    return isinstance(found.get("errors"), dict) and all(
        isinstance(found.get(name), int | float) for name in (*METRICS, "users")
    )
