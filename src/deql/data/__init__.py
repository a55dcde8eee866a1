"""Who did what: the table itself. Reading (deql.data.read) is imported only when needed."""

from deql.data.interactions import Interactions, Step, as_interactions

__all__ = ["Interactions", "Step", "as_interactions"]
