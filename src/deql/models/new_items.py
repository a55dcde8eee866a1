"""Items that come after the fit: placed by their features, beside a P that grows by a diagonal."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from deql._system.tables import counted
from deql.data import Interactions
from deql.errors import DataError, ParameterError, Setting, name_some
from deql.models.fitted import OF_ITEMS
from deql.models.rule_model import RuleModel
from deql.priors.feature_space import FeatureSpace, encode
from deql.priors.feature_table import MATRIX, FeatureTable, open_features, typed_ids
from deql.priors.item_features import with_columns

__all__ = ["add_new_items"]


def add_new_items(model: RuleModel, features: Any, item: str | None) -> None:
    """What :meth:`deql.DEQL.add_items` does; the model is as it was if anything is wrong."""
    model._check_fitted()
    model._whole("add items, but be fitted anew")
    if model.prior_ is None or model.prior_.features is None:
        raise ParameterError(
            f"this {type(model).__name__} knows no features to place new items by: fit it with ",
            Setting("prior", noun="prior=deql.priors.ItemFeatures(…)"),
        )
    space, table = model.prior_.features, open_features(features, item)
    if table.keys is None:
        raise DataError("new items need ids: give a frame with a column of items, or a mapping from item to features")
    items = typed_ids(list(table.keys), model.items_, table.name)
    there = {str(one) for one in model.items_.tolist()}
    known = [one for one in table.keys if one in there]
    if known:
        raise DataError(
            f"the model has {name_some(known)} already, of the {counted(len(items), 'item', 'items')} to add: leave "
            "out what it has"
        )
    encoded = _encoded(space, table)
    grown = type(model)(**model.fitted_params_)  # P belongs to these, whatever was set since
    grown.share_fit(model, model.prior_)
    grown._grow(len(items))
    grown.prior_ = model.prior_.with_cold(encoded, grown.precision_.diagonal())
    grown.item_counts_ = np.concatenate([model.item_counts_, np.zeros(len(items), np.int64)])
    of_items = with_columns(_no_users(model), items, table)
    grown.items_, grown.titles_ = of_items.items, of_items.titles
    if isinstance(model._kept, Interactions):  # a file's arrays take their items from the model
        grown._kept = replace(with_columns(model._kept, items, table), titles=of_items.titles)
    grown._apply_rule()
    if model.quantized_rows_ is not None:
        grown.quantize_rows()
    for cached in OF_ITEMS:
        model.__dict__.pop(cached, None)
    model.__dict__.update({
        name: value
        for name, value in grown.__dict__.items()
        if name == "_kept" or (name.endswith("_") and name != "fitted_params_")
    })  # fmt: skip


def _encoded(space: FeatureSpace, table: FeatureTable) -> csr_array:
    """The features of the new items; what they lack, or have that nothing was learned of, is told."""
    here = [column for column in space.columns if column.name in table.columns]
    if not here and MATRIX in (*table.columns, *(column.name for column in space.columns)):
        wanted = "rows of numbers, as the matrix had that" if MATRIX not in table.columns else "features by name, as"
        raise DataError(f"{table.name} must have {wanted} the model was fitted with")
    if not here:
        raise DataError(
            f"{table.name} has none of the features that the model knows: it has {name_some([*table.columns], 12)}, "
            f"the model {name_some([column.name for column in space.columns], 12)}"
        )
    raw = table.take(np.arange(table.n_rows))
    for column in here:
        if unseen := column.unseen(raw[column.name]):
            _say(
                f"{table.name}: {counted(unseen, 'item has', 'items have')} {column.name} that the model does not know"
            )
    if missing := [column.name for column in space.columns if column not in here]:
        _say(f"{table.name}: no column {name_some(missing)}, so the new items have none of these features")
    return encode(space.columns, raw)


def _no_users(model: RuleModel) -> Interactions:
    """The model's items alone."""
    nothing = csr_array(np.zeros((0, len(model.items_)), np.float32))
    return Interactions(nothing, np.zeros(0, np.int64), model.items_, titles=model.titles_)


def _say(text: str) -> None:
    print(f"deql: {text}", file=sys.stderr)
