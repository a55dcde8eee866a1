"""Who did what: the table itself. Reading (deql.interactions.read) is imported only when needed."""

from deql.interactions.table import Interactions, Step, as_interactions

__all__ = ["Interactions", "Step", "as_interactions"]
