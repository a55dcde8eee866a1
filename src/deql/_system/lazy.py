"""Names of a package that are imported at their first use, so that importing the package costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

__all__ = ["lazy_exports"]


def lazy_exports(
    package: str, homes: Mapping[str, Sequence[str]], modules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for a package.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    homes : dict
        Names by the module that defines them.
    modules : sequence of str
        Modules of the package that are to be had as attributes.

    Examples
    --------
    >>> find, names = lazy_exports("deql._system.lazy", {"math": ["tau"]})
    >>> names(), round(find("tau"), 2)
    (['lazy_exports', 'tau'], 6.28)
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def find(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return find, lambda: sorted({*home_of, *modules, *getattr(sys.modules[package], "__all__", ())})
