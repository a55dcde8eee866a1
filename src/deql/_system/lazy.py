"""Names that are imported at their first use, so that importing a package, or the program's help, costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import narwhals as nw
    import polars as pl

__all__ = ["lazy_exports", "lazy_module", "nw", "pl"]


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
    (['lazy_exports', 'lazy_module', 'nw', 'pl', 'tau'], 6.28)
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


def lazy_module(name: str) -> Any:
    """What stands for a module, and imports it when it is first asked for one of its names.

    Examples
    --------
    >>> colours = lazy_module("colorsys")
    >>> colours.rgb_to_hsv(0.5, 0.5, 0.5)
    (0.0, 0.0, 0.5)
    """
    return _LazyModule(name)


class _LazyModule:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


if not TYPE_CHECKING:  # polars takes long to load, and tables of plain numbers do without it
    nw, pl = lazy_module("narwhals"), lazy_module("polars")
