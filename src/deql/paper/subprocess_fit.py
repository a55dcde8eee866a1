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
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from deql._system.measure import Sample, weigh
from deql._system.threads import set_threads, thread_count
from deql.data import Interactions
from deql.errors import DeqlError, reason
from deql.models.linear import LinearAutoencoder
from deql.paper.hyperparameters import Choice

__all__ = ["fit_apart"]

# -P: files in the folder where the command was typed are not taken for modules.
_COMMAND = (sys.executable, "-P", "-m", "deql.paper.subprocess_fit")


def fit_apart(choice: Choice, split: Path, machine: Mapping[str, Any]) -> Sample:
    """Fit a row's model on the training part of a split file, in a fresh process, and weigh that.

    Imports, reading the file and loading the kernels come before the gauges are read.

    Parameters
    ----------
    choice : Choice
    split : Path
    machine : dict
        Parameters that say how the model is computed.

    Returns
    -------
    Sample
        Its facts are the ``engine`` that ran and, on a CUDA device, ``device_mib``: the peak of its memory.

    Raises
    ------
    DeqlError
        If the process ended without a result, or says why there is none.
    """
    request = {
        "row": choice.row, "parameters": choice.parameters, "split": str(split), "machine": dict(machine),
        "threads": thread_count(),
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
    told = _parse(said) if child.returncode == 0 else {"error": _how_it_ended(child.returncode)}
    if "error" in told:
        raise DeqlError(f"{choice.row} ({choice.words}) could not be weighed: {told['error']}")
    for note in told.pop("notes"):
        warnings.warn(note, stacklevel=2)
    return Sample(**told)


def _parse(said: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(said.splitlines()[-1]))
    except (IndexError, ValueError):
        return {"error": "its process ended without a result"}


def _how_it_ended(code: int) -> str:
    if code == -9:  # SIGKILL, which not every system has a name for
        return "its process was killed, most likely because memory ran out: free some, or say --engine disk"
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process ended with exit code {code}"


def main() -> None:
    """In the fresh process: fit what the first argument asks for, and print what it took as JSON."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)
            sample = _fit(json.loads(sys.argv[1]))
        told = asdict(sample) | {"notes": list(dict.fromkeys(str(note.message) for note in notes))}
    except DeqlError as error:
        told = {"error": str(error)}
    except MemoryError:
        told = {"error": "there is not enough memory: free some, or say --engine disk"}
    except Exception as error:
        told = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(told))


def _end_with_parent() -> None:
    """The parent holds the other end of standard input as long as it lives, and writes nothing."""
    os.read(0, 1)
    os._exit(1)


def _fit(request: dict[str, Any]) -> Sample:
    from deql.split import load_split

    set_threads(request["threads"])
    model = Choice(request["row"], request["parameters"], "found").model(**request["machine"])
    train = load_split(request["split"]).train
    engine = model._options.choose(train.matrix)
    _warm_up(model, engine, train)
    device = _cuda(model) if engine == "torch" else None
    fitted, sample = weigh(lambda: model.fit(train))
    facts: dict[str, Any] = {"engine": fitted.engine_}
    if device is not None and fitted.engine_ == "torch":
        import torch

        facts["device_mib"] = torch.cuda.max_memory_allocated(device) / 2**20
    return replace(sample, facts=facts)


def _warm_up(model: LinearAutoencoder, engine: str, train: Interactions) -> None:
    """Load the kernels for the types of these data, and what the engine needs, by a fit of two items."""
    types = train.matrix.indptr.dtype, train.matrix.indices.dtype, train.matrix.dtype
    indptr, indices, values = (
        np.array(part, kind) for part, kind in zip(([0, 2, 3], [0, 1, 0], [1, 1, 1]), types, strict=True)
    )
    small = Interactions(csr_array((values, indices, indptr), shape=(2, 2)), np.arange(2), np.arange(2))
    type(model)(**model.get_params() | {"engine": engine, "folder": None, "progress": False}).fit(small)


def _cuda(model: LinearAutoencoder) -> Any:
    """The device, its peak of memory forgotten; None for a processor."""
    import torch

    from deql.linalg.engines.torch_packed import open_device

    device = open_device(model.device)
    if device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    return device


if __name__ == "__main__":
    main()
