"""Files and frames in; ids ↔ indices."""

from deql.interactions.read import read_interactions
from deql.interactions.table import Interactions, Step, as_interactions

__all__ = ["Interactions", "Step", "as_interactions", "read_interactions"]
