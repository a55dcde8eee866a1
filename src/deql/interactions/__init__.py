"""Files and frames in; ids ↔ indices."""

from deql.interactions.read import read_interactions
from deql.interactions.table import Interactions, as_interactions

__all__ = ["Interactions", "as_interactions", "read_interactions"]
