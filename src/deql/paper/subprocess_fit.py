"""One fit in a process of its own: what it takes, and nothing that others took before it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from deql._system.lazy import lazy_module
from deql._system.measure import Measurement, measure
from deql._system.threads import set_threads, thread_count
from deql.data import Interactions
from deql.errors import DeqlError, reason
from deql.evaluation.evaluator import evaluate
from deql.linalg.engines.engine import Engine
from deql.linalg.engines.torch_engine import Torch
from deql.linalg.planner.choose import choose_engine
from deql.models import Recommender
from deql.models.linear import LinearAutoencoder
from deql.models.neural.network_model import NetworkModel
from deql.models.training.estimator import training_device
from deql.paper.hyperparameters import Choice
from deql.paper.published import METRICS, NETWORKS
from deql.split import Split, load_split

if TYPE_CHECKING:
    import torch

    from deql.linalg.engines import torch_packed
else:
    torch_packed = lazy_module("deql.linalg.engines.torch_packed")

__all__ = ["fit_in_subprocess"]

_LOOKS = 12
"""How often a network is looked at in its training, at most."""

# -P: files in the folder where the command was typed are not taken for modules.
_COMMAND = (sys.executable, "-P", "-m", "deql.paper.subprocess_fit")


def fit_in_subprocess(choice: Choice, split: Path, machine: Mapping[str, Any], evaluated: bool = False) -> Measurement:
    """Fit a row's model on the training part of a split file, in a fresh process, and measure that.

    Imports, reading the file and loading the kernels come before the measurement, and evaluation after it. But a
    network that is evaluated is looked at a dozen times in its training, at most, which its seconds leave out.

    Parameters
    ----------
    choice : Choice
    split : Path
    machine : dict
        Parameters that say how the model is computed.
    evaluated : bool, default False
        Whether the paper's metrics on the test part of the file are wanted.

    Returns
    -------
    Measurement
        Its facts are the ``engine`` that ran and, on a CUDA device, its name, ``device``, and the peak of its memory,
        ``device_mib``. With ``evaluated`` they have the metrics and their ``errors``, too, and of a network the
        ``curve``: NDCG@20 by seconds.

    Raises
    ------
    DeqlError
        If the process ended without a result, or says why there is none.
    """
    request = {
        "row": choice.row, "parameters": choice.parameters, "split": str(split), "machine": dict(machine),
        "threads": thread_count(), "evaluated": evaluated,
    }  # fmt: skip
    try:
        # In a session of its own a Ctrl-C in the terminal does not reach it, so that it has nothing to say then.
        child = subprocess.Popen(
            [*_COMMAND, json.dumps(request)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        raise DeqlError(f"no process could be started to fit {choice.row} in: {reason(error)}") from None
    with child:
        assert child.stdout is not None
        try:
            while child.poll() is None:  # other packages let a Ctrl-C wait until a system call is over: only short ones
                time.sleep(0.05)
            said = child.stdout.read()  # a line, which a pipe has room for
        except BaseException:
            child.kill()
            raise
    advice = "lower its rank or batch_size" if choice.row in NETWORKS else "say --engine disk"
    told = _result(child.returncode, said, advice)
    if "error" in told:
        raise DeqlError(f"{choice.row} ({choice.words}) could not be fitted: {told['error']}")
    for note in told.pop("notes"):
        warnings.warn(note, stacklevel=2)
    return Measurement(**told)


def _result(code: int, said: bytes, advice: str) -> dict[str, Any]:
    """What the process printed last, or how it ended; ``advice`` is what else to do where memory ran out."""
    if code == 0:
        try:
            return dict(json.loads(said.splitlines()[-1]))
        except (IndexError, ValueError):
            return {"error": "its process ended without a result"}
    if code == -9:  # SIGKILL, which not every system has a name for
        return {"error": f"its process was killed, most likely because memory ran out: free some, or {advice}"}
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return {"error": f"its process {how}"}


def main() -> None:
    """In the fresh process: fit what the first argument asks for, and print what it took as JSON."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)
            took = _fit(json.loads(sys.argv[1]))
        told = asdict(took) | {"notes": list(dict.fromkeys(str(note.message) for note in notes))}
    except DeqlError as error:
        told = {"error": str(error)}
    except MemoryError:
        told = {"error": "there is not enough memory: free some, or take what needs less"}
    except Exception as error:
        told = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(told))


def _end_with_parent() -> None:
    """The parent holds the other end of standard input as long as it lives, and writes nothing."""
    os.read(0, 1)
    os._exit(1)


def _fit(request: dict[str, Any]) -> Measurement:
    set_threads(request["threads"])
    choice, split = Choice(request["row"], request["parameters"], "found"), load_split(request["split"])
    if choice.row in NETWORKS:
        fitted, took = _train(choice, split, request)
    else:
        fitted, took = _solve(choice, split, request)
    if request["evaluated"]:
        found = evaluate(fitted, split.test, METRICS)
        took.facts.update(found.means, errors=found.standard_errors)
    return took


def _solve(choice: Choice, split: Split, request: dict[str, Any]) -> tuple[Recommender, Measurement]:
    """A closed form."""
    model, train = choice.linear(**request["machine"]), split.train
    engine = choose_engine(train.matrix, engine=model.engine, dtype=model.dtype)
    _warm_up(model, engine, train)
    device = _watched(torch_packed.open_device(engine.device)) if isinstance(engine, Torch) else None
    fitted, took = measure(lambda: model.fit(train))
    device = device if fitted.engine_ == "torch" else None
    return fitted, replace(took, facts={"engine": fitted.engine_} | _device_facts(device))


def _train(choice: Choice, split: Split, request: dict[str, Any]) -> tuple[Recommender, Measurement]:
    """A network; its seconds are those of its epochs, up to the one that is kept."""
    model = choice.model(**request["machine"])
    assert isinstance(model, NetworkModel)
    few = Interactions(csr_array(np.eye(2)[[0, 1, 0]]), np.arange(3), np.arange(2))
    type(model)(**model.get_params() | {"epochs": 1, "progress": False}).fit(few)  # loads torch
    device = _watched(training_device(choice.row, model.device))
    looked_at = split.test if request["evaluated"] else None
    model.set_params(validate_every=-(-model.epochs // _LOOKS))
    fitted, took = measure(lambda: model.fit(split.train, validation=looked_at))
    seconds = np.cumsum([epoch.seconds for epoch in fitted.history_]).tolist()
    curve = [
        (after, epoch.ndcg) for after, epoch in zip(seconds, fitted.history_, strict=True) if epoch.ndcg is not None
    ]
    facts = {"engine": "torch"} | _device_facts(device) | ({"curve": curve} if curve else {})
    return fitted, replace(took, seconds=seconds[fitted.epochs_ - 1], facts=facts)


def _device_facts(device: torch.device | None) -> dict[str, Any]:
    if device is None:
        return {}
    import torch

    peak = torch.cuda.max_memory_allocated(device) / 2**20
    return {"device": torch.cuda.get_device_name(device), "device_mib": peak}


def _warm_up(model: LinearAutoencoder, engine: Engine, train: Interactions) -> None:
    """Load the kernels for the types of these data, and what the engine needs, by a fit of two items."""
    types = train.matrix.indptr.dtype, train.matrix.indices.dtype, train.matrix.dtype
    indptr, indices, values = (
        np.array(part, kind) for part, kind in zip(([0, 2, 3], [0, 1, 0], [1, 1, 1]), types, strict=True)
    )
    small = Interactions(csr_array((values, indices, indptr), shape=(2, 2)), np.arange(2), np.arange(2))
    # A prior may ask for more than two items have.
    changed = {"engine": engine.without_folder(), "progress": False, "prior": None}
    type(model)(**model.get_params() | changed).fit(small)


def _watched(device: torch.device) -> torch.device | None:
    """A CUDA device, its peak of memory forgotten; None for a processor."""
    import torch

    if device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    return device


if __name__ == "__main__":
    main()
