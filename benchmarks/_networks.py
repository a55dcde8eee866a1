"""Networks on a hold-out: trained as the library trains them, evaluated by dense scores on the device."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

import deql
from _dense import Laboratory, Scores, Worth
from _hold_outs import Histories, Parts
from _journal import Journal

__all__ = ["AXES", "MAKERS", "STARTS", "Setting", "Trials", "interactions", "stepped", "train"]

Setting = dict[str, Any]

MAKERS: dict[str, tuple[type[Any], Setting]] = {
    "LightGCN": (deql.neural.LightGCN, {}),
    "SGL-ED": (deql.neural.SGL, {}),
    "SSM (MF)": (deql.neural.SSM, {"backbone": "mf"}),
    "SSM (GNN)": (deql.neural.SSM, {}),
}
"""Of each row of the paper's table the estimator, and what makes it that row."""

_RATES = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.05)
_DECAYS = (0.0, 1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 1e-2)
_TEMPERATURES = (0.08, 0.1, 0.12, 0.14, 0.16, 0.18, 0.2, 0.25, 0.3)
_LAYERS = (1, 2, 3, 4)
_EPOCHS = (8, 12, 20, 30, 40, 60, 80, 100, 150, 200, 300, 400, 600, 1000)
AXES: dict[str, dict[str, tuple[Any, ...]]] = {
    "LightGCN": {"weight_decay": _DECAYS, "learning_rate": _RATES, "epochs": _EPOCHS, "layers": _LAYERS},
    "SGL-ED": {
        "learning_rate": _RATES, "contrast_weight": (0.02, 0.05, 0.1, 0.2, 0.5, 1.0), "temperature": _TEMPERATURES,
        "weight_decay": _DECAYS, "epochs": _EPOCHS, "layers": _LAYERS, "edge_dropout": (0.05, 0.1, 0.2, 0.3, 0.5),
    },
    "SSM (MF)": {
        "temperature": _TEMPERATURES, "learning_rate": _RATES, "weight_decay": _DECAYS, "epochs": _EPOCHS,
    },
    "SSM (GNN)": {
        "temperature": _TEMPERATURES, "learning_rate": _RATES, "epochs": _EPOCHS, "weight_decay": _DECAYS,
        "layers": _LAYERS,
    },
}  # fmt: skip
"""What is chosen of each, and from which values; a walk goes along them in this order."""

STARTS: dict[str, Setting] = {
    "LightGCN": {"weight_decay": 3e-4, "learning_rate": 0.03, "layers": 3, "batch_size": 32768, "epochs": 400},
    "SGL-ED": {
        "contrast_weight": 0.1, "temperature": 0.2, "weight_decay": 1e-4, "learning_rate": 0.003, "layers": 3,
        "edge_dropout": 0.1, "batch_size": 2048, "epochs": 20,
    },
    "SSM (MF)": {
        "temperature": 0.16, "weight_decay": 1e-5, "learning_rate": 0.001, "negatives": 2048, "batch_size": 2048,
        "epochs": 30,
    },
    "SSM (GNN)": {
        "temperature": 0.12, "weight_decay": 1e-5, "layers": 1, "learning_rate": 0.001, "negatives": 2048,
        "batch_size": 2048, "epochs": 80,
    },
}  # fmt: skip
"""Near what was best on Gowalla and Yelp2018; layers and what weighs parts of a loss are their authors'."""


def interactions(histories: Histories) -> deql.Interactions:
    """Histories as what models are fitted on."""
    arrays = np.ones(len(histories.items)), histories.items, histories.starts
    matrix = csr_array(arrays, shape=(len(histories.sizes), histories.n))
    matrix.sort_indices()
    return deql.Interactions.from_csr(matrix)


def train(row: str, setting: Setting, data: deql.Interactions, device: str, **options: Any) -> Any:
    """The row's model with these hyper-parameters."""
    kind, fixed = MAKERS[row]
    return kind(**fixed | setting, device=device).fit(data, **options)


@dataclass(frozen=True)
class Trials:
    """Settings of one row on one hold-out, each trained and evaluated once.

    Attributes
    ----------
    parts : Parts
    lab : Laboratory
        Of the same parts.
    journal : Journal
    """

    parts: Parts
    lab: Laboratory
    journal: Journal

    def worth(self, row: str, setting: Setting) -> Worth:
        """What a setting is worth, from the journal or now."""
        name = f"{row}: " + " ".join(f"{name}={value:g}" for name, value in setting.items())
        if name in self.journal.results:
            return self.journal.evaluate(name, lambda: Worth(0, 0, 0, 0))
        begin = perf_counter()
        try:
            model = train(row, setting, interactions(self.parts.train), str(self.lab.device))
        except deql.DataError as error:
            print(f"{name}: {error}", flush=True)
            return self.journal.evaluate(name, lambda: Worth(0, 0, 0, 0), row=row, setting=setting, failure=str(error))
        facts = {"row": row, "setting": setting, "seconds": round(perf_counter() - begin, 1)}
        return self.journal.evaluate(name, lambda: self.lab.evaluate(self._scores(model)), **facts)

    def _scores(self, model: Any) -> Scores:
        seen, device = interactions(self.parts.train).take_users(self.parts.held_out.sizes > 0), self.lab.device
        rows = model._personal(seen.matrix.astype(np.float32), seen.users)
        users = torch.from_numpy(rows @ np.concatenate([model.left_, model.own_])).to(device)
        right = torch.from_numpy(np.array(model.right_)).to(device)
        return lambda rows: users[rows] @ right.T


def stepped(setting: Setting, name: str, values: tuple[Any, ...], direction: int) -> Setting | None:
    """The setting with the next of the values of an axis in a direction; None beyond the last."""
    place = values.index(setting[name]) + direction
    return setting | {name: values[place]} if 0 <= place < len(values) else None
