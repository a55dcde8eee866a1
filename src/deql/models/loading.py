"""From a model file back to the class that wrote it."""

from __future__ import annotations

import os
from pathlib import Path

from deql import models
from deql.errors import ModelFileError, name_some
from deql.io.model_file import WITH_HALF_LIFE, WITH_PRIOR, WITH_SPARSE_P, damage_reported, read
from deql.models.base import Recommender

__all__ = ["load"]


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
    path = Path(path)
    record = read(path, verify=verify)
    name = record.name.removesuffix(WITH_PRIOR).removesuffix(WITH_HALF_LIFE).removesuffix(WITH_SPARSE_P)
    if name not in models.MODEL_NAMES:
        raise ModelFileError(f"{path} holds a model of the unknown kind {name_some([record.name])}: update deql")
    kind: type[Recommender] = getattr(models, name)
    with damage_reported(path):
        return kind._from_record(record)
