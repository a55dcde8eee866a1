"""One run of a table: what was measured before is remembered, the rest is measured now and written down at once."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any

import deql
from deql._system.strict_json import as_json
from deql._system.threads import thread_count
from deql.errors import JournalError, NotPositiveDefiniteError, PrecisionError
from deql.evaluation.model_groups import Tell, fit_and_evaluate, sharing
from deql.io.journal import Journal
from deql.models.base import OF_THE_MACHINE
from deql.models.linear import LinearAutoencoder
from deql.paper.hyperparameters import Choice
from deql.paper.paper_datasets import Bench
from deql.paper.published import METRICS

__all__ = ["Record", "Run", "hyper_parameters", "this_machine", "threads_in_words"]

Record = dict[str, Any]


@cache
def this_machine() -> str:
    """Threads and memory, a GPU if there is one, and versions, in words."""
    names = [f"{threads_in_words()} ({platform.machine()})"]
    if hasattr(os, "sysconf"):
        names.append(f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB")
    torch = sys.modules.get("torch")  # it takes a second to import, and whoever computes with it has done so
    if torch is not None and torch.cuda.is_available():
        names.append(torch.cuda.get_device_name())
    return ", ".join([*names, f"Python {platform.python_version()}", f"deql {deql.__version__}"])


def threads_in_words() -> str:
    """How many threads compute."""
    return "1 thread" if thread_count() == 1 else f"{thread_count()} threads"


def hyper_parameters(model: LinearAutoencoder) -> dict[str, Any]:
    """What makes a model the one it is, without how it is computed; but for a precision that was asked for.

    Examples
    --------
    >>> hyper_parameters(deql.EASE(80.0, engine="memory"))
    {'model': 'EASE', 'user_power': 0.0, 'popularity_power': 0.0, 'dtype': 'float32', 'l2': 80.0}
    """
    computed = OF_THE_MACHINE | {"engine"} | ({"precision"} if model.precision is None else set())
    return {"model": type(model).__name__} | {
        name: value for name, value in model.get_params().items() if name not in computed
    }


@dataclass(eq=False)
class Run:
    """Measures, and remembers what was measured.

    Attributes
    ----------
    journal : Journal
        Whatever takes long goes there as soon as it is finished.
    machine : dict
        Parameters for every model that say how it is computed: engine, device, …
    tell : callable or None
        Called with a line for each thing that is being done.
    used : list of dict
        The journal's records that this run has asked for, in that order: its log.
    """

    journal: Journal
    machine: dict[str, Any] = field(default_factory=dict)
    tell: Tell | None = None
    used: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number, record in enumerate(self.journal.records, start=2):
            if not _is_whole(record):
                raise JournalError(
                    f"line {number} of {self.journal.path} is damaged: delete that line, and it is measured again"
                )

    def say(self, text: str) -> None:
        """Tell what is being done."""
        if self.tell is not None:
            self.tell(text)

    def recall(self, step: str, key: Mapping[str, Any]) -> Record | None:
        """What the journal has under a key; it then belongs to this run's log."""
        wanted = as_json(dict(key))
        for record in reversed(self.journal.records):
            if record["step"] == step and record.get("key") == wanted:
                if not any(record is one for one in self.used):
                    self.used.append(record)
                return record
        return None

    def write(self, step: str, key: Mapping[str, Any], found: Mapping[str, Any], seconds: float) -> Record:
        """Add what was measured to the journal, and to this run's log."""
        self.journal.append({
            "step": step, "key": dict(key), "found": dict(found), "seconds": round(seconds, 2),
            "when": datetime.now(UTC).isoformat(timespec="seconds"), "machine": this_machine(),
        })  # fmt: skip
        self.used.append(self.journal.records[-1])
        return self.used[-1]

    def remember(self, step: str, key: Mapping[str, Any], work: Callable[[], Mapping[str, Any]]) -> Record:
        """What the journal has under a key, or else what ``work`` finds, which is then in the journal.

        Examples
        --------
        >>> run = Run(Journal(None, {}, "reproduction"))
        >>> run.remember("sum", {"of": 2}, lambda: {"value": 3})["found"]
        {'value': 3}
        >>> run.remember("sum", {"of": 2}, lambda: {"value": 4})["found"]
        {'value': 3}
        """
        known = self.recall(step, key)
        if known is not None:
            return known
        begin = time.perf_counter()
        found = work()
        return self.write(step, key, found, time.perf_counter() - begin)

    def judge(self, bench: Bench, choices: Sequence[Choice]) -> list[Record]:
        """The metrics of each choice on the test part, in the order of the choices; one fit for all that share P.

        ``found`` of a record has the metrics' means, their standard errors (None for a single user) and the number of
        users; or, for a model that has no solution on these data, ``failure``: why.
        """
        models = {str(place): choice.model(**self.machine) for place, choice in enumerate(choices)}
        keys = {name: self.key(bench, model) for name, model in models.items()}
        records = {name: self.recall("judged", key) for name, key in keys.items()}
        for names in sharing({name: model for name, model in models.items() if records[name] is None}):
            rows = ", ".join(dict.fromkeys(f"{choices[int(name)].row} {choices[int(name)].words}" for name in names))
            self.say(f"{bench.label}: fitting {rows}")
            begin = time.perf_counter()
            found = self._judge({name: models[name] for name in names}, bench)
            seconds = time.perf_counter() - begin
            for name in names:
                known = self.recall("judged", keys[name])
                records[name] = known or self.write("judged", keys[name], found[name], seconds)
        return [record for name in models if (record := records[name]) is not None]

    @staticmethod
    def _judge(models: Mapping[str, LinearAutoencoder], bench: Bench) -> dict[str, Record]:
        try:
            judged = fit_and_evaluate(models, bench.first.train, bench.first.test, METRICS)
        except (NotPositiveDefiniteError, PrecisionError) as error:  # the others may do
            return {name: {"failure": str(error)} for name in models}
        return {
            name: result.means | {"errors": result.standard_errors, "users": len(result.users)}
            for name, result in judged.items()
        }

    @staticmethod
    def key(bench: Bench, model: LinearAutoencoder) -> Record:
        """What a measurement of a model on a data set is kept under."""
        return {"data": bench.key, "split": bench.fingerprint} | hyper_parameters(model)


def _is_whole(record: Record) -> bool:
    """Whether a record is one of :meth:`Run.write`'s, and for a judged model has all that tables show."""
    texts, found = (record.get("when"), record.get("machine")), record.get("found")
    if not isinstance(record.get("key"), dict) or not isinstance(found, dict) or not found:
        return False
    if not all(isinstance(text, str) for text in texts) or not isinstance(record.get("seconds"), int | float):
        return False
    if record["step"] != "judged" or isinstance(found.get("failure"), str):
        return True
    errors = found.get("errors")
    numbers = [found.get(metric) for metric in METRICS] + [found.get("users")]
    return all(isinstance(value, int | float) for value in numbers) and isinstance(errors, dict)
