"""Items that nobody has touched: what features say about them, and that items with interactions lose nothing by it.

    python benchmarks/cold_items.py ml-latest-small --data DIR     # genres and year of movies.csv, words of the titles
    python benchmarks/cold_items.py debian                         # the bundled data; features from apt-cache dumpavail

Tenths of the items, drawn at random, lose all their interactions, one at a time: these are to be found again, by users
who have others. Three tenths are read, and a fourth is the validation part: every setting is chosen on it, once, where
none of the other three has any interaction either. Numbers are means over the three, ± their standard error.

Lists are made (a) of the cold items alone, and (b) of all items that a user does not have. (b) asks more: how popular
an item will be cannot be known, so that whoever knows what is popular gives warm items first, and is right to. How far
cold items come up among all is up to ``prior_weight``, and what that costs on warm items is shown beside it.

Popularity knows nothing of cold items: among them its order is a random one, and among all it lists none. *Content*
ranks by the cosine of an item's features with the sum of the history's. LightFM learns vectors of features (and of
items) by WARP; its epochs and size are chosen like everything else. It is left out where it is not installed (`pip
install lightfm-next`).

Two cores take less than ten minutes for each data set. The last line of the output has the numbers as JSON.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, hstack, identity

import deql
from _measure import show
from deql.metrics import ndcg, recall
from deql.priors import ItemFeatures

K = 20
READ = 3
MOST_USERS = 3_000
L2 = (10.0, 50.0, 200.0, 800.0)
FEATURE_L2 = (0.3, 3.0, 30.0, 300.0)
PRIOR_WEIGHTS = (0.1, 0.3, 1.0, 3.0, 10.0)
DROPOUT = 0.5
LIGHTFM = tuple(product((32, 64), (10, 40)))
METRICS = (f"recall@{K}", f"ndcg@{K}")

Lists = Callable[[NDArray[np.int64], NDArray[np.bool_]], NDArray[np.int64]]
"""The best columns of some users among those allowed, which they do not have."""


@dataclass(frozen=True)
class Task:
    """Interactions without those of some items, and who had these."""

    data: deql.Interactions
    cold: NDArray[np.int64]
    train: deql.Interactions

    @classmethod
    def of(cls, data: deql.Interactions, cold: NDArray[np.int64]) -> Task:
        return cls(data, cold, data.keep(~np.isin(data.matrix.indices, cold)))

    @property
    def users(self) -> NDArray[np.int64]:
        """Those who have a cold item, and another; of many a sample."""
        held = np.diff(self.data.matrix.indptr) > np.diff(self.train.matrix.indptr)
        found = np.flatnonzero(held & (np.diff(self.train.matrix.indptr) > 0))
        return np.sort(np.random.default_rng(0).permutation(found)[:MOST_USERS])

    def measure(self, lists: Lists) -> dict[str, tuple[float, float]]:
        """Recall and NDCG among the cold items and among all."""
        n, users = self.data.n_items, self.users
        held = self.data.matrix[users].toarray()[:, self.cold] != 0
        place = np.full(n + 1, -1)  # the last one for lists that are shorter
        place[self.cold] = np.arange(len(self.cold))
        found = {}
        for name, allowed in (("cold", np.isin(np.arange(n), self.cold)), ("all", np.ones(n, bool))):
            at = place[lists(users, allowed)]
            hits = np.take_along_axis(held, np.maximum(at, 0), axis=1) & (at >= 0)
            counts = held.sum(axis=1)
            found[name] = float(recall(hits, counts, K).mean()), float(ndcg(hits, counts, K).mean())
        return found


def by_scores(train: deql.Interactions, scores: Callable[[NDArray[np.int64]], NDArray[Any]]) -> Lists:
    """Lists of scores that are made for a few users at a time."""

    def lists(users: NDArray[np.int64], allowed: NDArray[np.bool_]) -> NDArray[np.int64]:
        found = []
        for start in range(0, len(users), 512):
            some = users[start : start + 512]
            these = np.where(allowed & (train.matrix[some].toarray() == 0), scores(some), -np.inf)
            found.append(np.argsort(-these, axis=1, kind="stable")[:, :K])
        return np.concatenate(found)

    return lists


def by_model(train: deql.Interactions, model: Any) -> Lists:
    def lists(users: NDArray[np.int64], allowed: NDArray[np.bool_]) -> NDArray[np.int64]:
        found = model.recommend(train.take_users(users), k=K, candidates=train.items[allowed].tolist())
        return np.array([[model._item_index.get(item, -1) for item in row] for row in found.ids.tolist()])

    return lists


def at_random(task: Task, seed: int) -> Lists:
    generator = np.random.default_rng(seed)
    return by_scores(task.train, lambda users: generator.random((len(users), task.data.n_items)))


def popularity(task: Task) -> Lists:
    """Counts, and chance among those that nobody has."""
    counts = np.bincount(task.train.matrix.indices, minlength=task.data.n_items)
    order = counts + np.random.default_rng(0).random(len(counts)) * 0.5
    return by_scores(task.train, lambda users: np.tile(order, (len(users), 1)))


def content(task: Task, features: csr_array) -> Lists:
    lengths = np.sqrt(np.asarray(features.multiply(features).sum(axis=1)).ravel())
    unit = csr_array(diags_array(1.0 / np.maximum(lengths, 1e-9)) @ features)
    return by_scores(task.train, lambda users: (task.train.matrix[users] @ unit @ unit.T).toarray())


def lightfm(task: Task, features: csr_array, size: int, epochs: int) -> Lists:
    from lightfm import LightFM

    n = task.data.n_items
    warm = np.bincount(task.train.matrix.indices, minlength=n) > 0
    # A vector of its own says something of an item that was learned from, and is noise for others.
    known = csr_array(hstack([diags_array(warm.astype(np.float32)) @ identity(n), features], dtype=np.float32))
    known.indices, known.indptr = known.indices.astype(np.int32), known.indptr.astype(np.int32)
    model = LightFM(no_components=size, loss="warp", random_state=0)
    model.fit(csr_array(task.train.matrix != 0).astype(np.float32).tocoo(), item_features=known, epochs=epochs)
    biases, vectors = model.get_item_representations(known)
    return by_scores(task.train, lambda users: model.user_embeddings[users] @ vectors.T + biases)


def fitted(train: deql.Interactions, l2: float, prior: Any = None) -> Any:
    return deql.EDLAE(l2=l2, dropout=DROPOUT, prior=prior).fit(train)


def movies(folder: Path) -> tuple[deql.Interactions, pl.DataFrame, dict[str, str]]:
    data = deql.read_interactions(folder / "ratings.csv", user="userId", item="movieId")
    year = pl.col("title").str.extract(r"\((\d{4})\)\s*$").cast(pl.Float64).alias("year")
    table = pl.read_csv(folder / "movies.csv").with_columns(year)
    return data, table.filter(pl.col("movieId").is_in(data.items.tolist())), {"title": "text"}


def debian() -> tuple[deql.Interactions, pl.DataFrame, dict[str, str]]:
    """What each package is said to be, from the system's own index: nothing of it is kept."""
    data = deql.datasets.debian()
    listed = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    wanted, rows = set(data.items.tolist()), {}
    for paragraph in listed.split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*(?:\n .*)*)", paragraph, flags=re.MULTILINE))
        name = fields.get("Package")
        if name in wanted:
            named = re.split(r"[,|]", fields.get("Depends", ""))
            rows[name] = {
                "item": name,
                "section": fields.get("Section"),
                "depends": [part.split()[0] for part in named if part.split()],
                "tags": [tag.strip() for tag in fields.get("Tag", "").split(",") if tag.strip()],
                "words": name.replace("-", " ") + " " + fields.get("Description", ""),
            }
    return data, pl.DataFrame(list(rows.values())), {"words": "text"}


def tenths(data: deql.Interactions) -> list[NDArray[np.int64]]:
    """Items to choose on, and three times others to find again.

    How features are encoded and what cold items' columns are was decided on the first for ml-latest-small.
    """
    touched = np.flatnonzero(np.bincount(data.matrix.indices, minlength=data.n_items))
    drawn, size = np.random.default_rng(0).permutation(touched), len(touched) // 10
    return [np.sort(drawn[place * size : (place + 1) * size]) for place in range(1 + READ)]


def warm_score(split: Any, model: Any) -> Any:
    return deql.evaluate(model, split.test, list(METRICS))


def choose(task: Task, table: pl.DataFrame, kinds: dict[str, str]) -> dict[str, Any]:
    """The model's l2 and the prior's weight on held-out interactions, the features' l2 on the validation items."""
    split = deql.split_weak(task.train, held_out=0.1, seed=1)
    plain = {l2: warm_score(split, fitted(split.train, l2)).means[METRICS[1]] for l2 in L2}
    l2 = best_of(plain)
    of_features = {}
    for one in FEATURE_L2:
        model = fitted(task.train, l2, ItemFeatures(table, one, kinds=kinds))
        of_features[one] = task.measure(by_model(task.train, model))["cold"][1]
    feature_l2 = best_of(of_features)
    model = fitted(split.train, l2, ItemFeatures(table, feature_l2, kinds=kinds))
    tried = {
        weight: warm_score(split, model.with_rule(prior_weight=weight)).means[METRICS[1]] for weight in PRIOR_WEIGHTS
    }
    chosen: dict[str, Any] = {"l2": l2, "feature_l2": feature_l2, "prior_weight": best_of(tried), "kinds": kinds}
    chosen["tried"] = {"l2": plain, "feature_l2": of_features, "prior_weight": tried}
    if importlib.util.find_spec("lightfm"):
        # Those of the columns of these interactions: a split leaves items out, and puts them last.
        model = fitted(task.train, l2, ItemFeatures(table, feature_l2, kinds=kinds))
        features = model.prior_.features.features
        sizes = {one: task.measure(lightfm(task, features, *one))["cold"][1] for one in LIGHTFM}
        chosen["lightfm"] = best_of(sizes)
        chosen["tried"]["lightfm"] = {str(one): value for one, value in sizes.items()}
    return chosen


def best_of(values: dict[Any, float]) -> Any:
    return max(values, key=values.__getitem__)


def named(weight: float, chosen: dict[str, Any]) -> str:
    return f"EDLAE + ItemFeatures, prior_weight {weight:g}" + " (chosen)" * (weight == chosen["prior_weight"])


def read_cold(task: Task, table: pl.DataFrame, chosen: dict[str, Any]) -> dict[str, Any]:
    model = fitted(task.train, chosen["l2"], ItemFeatures(table, chosen["feature_l2"], kinds=chosen["kinds"]))
    features = model.prior_.features.features
    methods: dict[str, Lists] = {
        "random": at_random(task, 0),
        "popularity": popularity(task),
        "content": content(task, features),
    }
    if "lightfm" in chosen:
        methods["LightFM"] = lightfm(task, features, *chosen["lightfm"])
    for weight in PRIOR_WEIGHTS:
        methods[named(weight, chosen)] = by_model(task.train, model.with_rule(prior_weight=weight))
    return {name: task.measure(lists) for name, lists in methods.items()}


def read_warm(task: Task, table: pl.DataFrame, chosen: dict[str, Any]) -> dict[str, Any]:
    """The model with each weight on a fifth of the interactions of warm items, and what it gains over none."""
    split = deql.split_weak(task.train, held_out=0.2, seed=0)
    model = fitted(split.train, chosen["l2"], ItemFeatures(table, chosen["feature_l2"], kinds=chosen["kinds"]))
    without = warm_score(split, model.with_rule(prior_weight=0.0))
    found = {"EDLAE": {name: (without.means[name], 0.0) for name in METRICS}}
    for weight in PRIOR_WEIGHTS:
        beside = warm_score(split, model.with_rule(prior_weight=weight))
        gains = {name: float((beside.per_user[name] - without.per_user[name]).mean()) for name in METRICS}
        found[named(weight, chosen)] = {name: (beside.means[name], gains[name]) for name in METRICS}
    return found


def show_mean(values: list[float], sign: str = "") -> str:
    return f"{np.mean(values):{sign}.4f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=["ml-latest-small", "debian"])
    parser.add_argument("--data", type=Path, default=Path(), help="folder with ml-latest-small")
    asked = parser.parse_args()
    data, table, kinds = debian() if asked.dataset == "debian" else movies(asked.data / asked.dataset)
    validation, *read = tenths(data)
    chosen = choose(Task.of(Task.of(data, np.concatenate(read)).train, validation), table, kinds)
    print(f"{data}; {len(validation):,} cold items at a time; chosen on others: {json.dumps(chosen)}")
    tasks = [Task.of(data, cold) for cold in read]
    cold = [read_cold(task, table, chosen) for task in tasks]
    rows = [
        (name, *(show_mean([one[name][part][place] for one in cold]) for part in ("cold", "all") for place in (0, 1)))
        for name in cold[0]
    ]
    header = ("method", "recall, cold", "NDCG, cold", "recall, all", "NDCG, all")
    show(f"{asked.dataset}: @{K} on items that nobody has touched", header, rows)
    warm = [read_warm(task, table, chosen) for task in tasks]
    rows = [
        (
            name,
            *(
                show_mean([one[name][metric][place] for one in warm], "+" * place)
                for metric in METRICS
                for place in (0, 1)
            ),
        )
        for name in warm[0]
    ]
    show("warm items", ("method", *(word for metric in METRICS for word in (metric, "gain"))), rows)
    if "lightfm" not in chosen:
        print("LightFM is not installed: left out")
    print(json.dumps({"chosen": chosen, "cold": cold, "warm": warm}, default=str))


if __name__ == "__main__":
    main()
