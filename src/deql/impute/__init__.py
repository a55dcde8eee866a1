"""Missing numbers in tables, filled by the family's predictions."""

from __future__ import annotations

from typing import Any

from deql.errors import DeqlError

try:
    from deql.impute.imputer import LinearImputer
except ImportError as error:
    if not (error.name or "").startswith("sklearn"):
        raise

    class _WithoutScikitLearn:
        """Fills missing numbers with linear predictions; it needs scikit-learn, ``pip install "deql[impute]"``."""

        def __init__(self, *_: Any, **__: Any) -> None:
            raise DeqlError('LinearImputer needs scikit-learn, 1.6 or newer: pip install "deql[impute]"')

    # Its name can be imported everywhere.
    LinearImputer = _WithoutScikitLearn  # type: ignore[assignment,misc]

__all__ = ["LinearImputer"]
