"""SciPy's sparse matrices, in memory or as .npz; ids are row and column numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from zipfile import ZipFile

from scipy.sparse import issparse, load_npz

from deql.data.clean import clean
from deql.data.interactions import Interactions, Step
from deql.data.readers.blocks import check_unpacked
from deql.errors import DataError, Setting

__all__ = ["read_matrix"]


def read_matrix(source: Any, min_weight: float | None, max_unpacked: int | None = None) -> Interactions:
    """A sparse matrix, or the file that :func:`scipy.sparse.save_npz` made of it, as Interactions.

    With ``min_weight`` only values of at least that much stay, and count 1 each.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> read_matrix(csr_array([[1, 5], [4, 0]]), min_weight=4)
    Interactions(2 users × 2 items, 2 interactions)
    """
    matrix: Any = source if issparse(source) else _load(source, max_unpacked)
    name = "the matrix" if issparse(source) else str(source)
    try:
        data = Interactions.from_csr(matrix)
    except DataError as error:
        raise DataError(f"{name}, ", *error.args) from None
    if min_weight is None and data.n_interactions and data.matrix.data.min() < 0:
        raise DataError(
            f"{name} has negative values: leave them out with ",
            Setting("min_weight"),
            ", or use Interactions.from_csr, which takes signed values",
        )
    data = replace(data, steps=(Step(f"read from {name}", data.n_users, data.n_items, data.n_interactions),))
    return data if min_weight is None else clean(data, min_weight=min_weight, binary=True)


def _load(path: Any, max_unpacked: int | None) -> Any:
    try:
        with ZipFile(path) as file:
            parts = file.infolist()
        packed, unpacked = (sum(getattr(one, size) for one in parts) for size in ("compress_size", "file_size"))
        check_unpacked(path, packed, unpacked, max_unpacked)
        return load_npz(path)
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except DataError:
        raise
    except Exception as error:  # zip, NumPy and SciPy each have their own
        raise DataError(f"{path} is not a sparse matrix saved by scipy.sparse.save_npz: {error}") from None
