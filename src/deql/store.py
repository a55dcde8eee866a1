"""Model files: what :func:`deql.load` reads and ``model.save`` writes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from deql import container
from deql.container import Arrays, FileKind, digest, pack_text, unpack_text
from deql.errors import ModelFileError
from deql.models.base import Recommender

__all__ = ["FORMAT_VERSION", "checksum", "load", "write"]

FORMAT_VERSION = 1
_KIND = FileKind("deql-model", FORMAT_VERSION, ModelFileError, "fit the model again")


def write(path: Path, model: Recommender, extra: Arrays | None = None) -> None:
    """Write a fitted model to one file, whole or not at all; ``extra`` is what could be made of the model again."""
    arrays, facts = model._state()
    try:
        items = pack_text("items", model.items_)
    except TypeError:
        raise ModelFileError("a model can be saved only if its item ids are integers or text") from None
    metadata = {
        "model": type(model).__name__,
        # Without those by default, older versions, which may not know their names, can read the file.
        "parameters": json.dumps(model._params_in_words, sort_keys=True, default=np.generic.item),
        "facts": json.dumps(facts, sort_keys=True),
        "vocabulary_checksum": digest({}, items),
    }
    titles = {} if model.titles_ is None else pack_text("titles", model.titles_)
    container.write(_KIND, path, metadata, arrays | items | titles | (extra or {}))


def load(path: str | os.PathLike[str], *, verify: bool = True) -> Recommender:
    """Read a model file; P stays on disk and is mapped into memory as it is used.

    Parameters
    ----------
    path : path
        What ``model.save`` wrote.
    verify : bool, default True
        Check the checksum, which reads the whole file once.

    Returns
    -------
    The fitted model, of the class that was saved.

    Raises
    ------
    ModelFileError
        If the file is missing, truncated, altered, not a model file, or of a newer format.

    Examples
    --------
    >>> import tempfile, os, deql
    >>> data = deql.Interactions.from_pairs(list("aabbcccd"), ["tea", "jam", "tea", "jam", "tea", "jam", "egg", "tea"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     deql.EASE(l2=1.0).fit(data).save(os.path.join(folder, "shop.deql"))
    ...     model = deql.load(os.path.join(folder, "shop.deql"))
    ...     model.similar_items("jam", k=1)[0].tolist()
    ['tea']
    """
    from deql import models

    path = Path(path)
    metadata, arrays = container.read(_KIND, path, verify=verify)
    try:
        name = metadata["model"]
        if name not in models.__all__:
            raise ModelFileError(f"{path} holds a model of the unknown kind {name!r}: update deql")
        model: Recommender = getattr(models, name)(**json.loads(metadata["parameters"]))
        model.items_ = unpack_text("items", arrays)
        model.titles_ = unpack_text("titles", arrays) if "titles_ends" in arrays else None
        model._restore(arrays, json.loads(metadata["facts"]))
        model.fitted_params_ = model.get_params()
    except ModelFileError:
        raise
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise ModelFileError(f"{path} is damaged: {error}") from None
    return model


def checksum(path: str | os.PathLike[str]) -> str:
    """The checksum that a model file carries: the same for the same model, whatever the file is called."""
    return container.checksum(_KIND, Path(path))
