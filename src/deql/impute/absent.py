"""What stands for the imputer where scikit-learn is not installed, so that its name can be imported everywhere."""

from __future__ import annotations

from typing import Any

from deql.errors import DeqlError

__all__ = ["LinearImputer"]


class LinearImputer:
    """Fills missing numbers with linear predictions; it needs scikit-learn, ``pip install "deql[impute]"``."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise DeqlError('LinearImputer needs scikit-learn, 1.6 or newer: pip install "deql[impute]"')
