"""Data sets: the bundled one, small enough to travel with the library, and the paper's, prepared from their files."""

from deql.datasets.bundled import debian
from deql.datasets.public import prepare

__all__ = ["debian", "prepare"]
