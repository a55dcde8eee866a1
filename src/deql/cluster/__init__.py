"""Work on the users of a table by the workers of a Dask cluster: lists for millions of them, and evaluations."""

from deql.cluster.evaluation import evaluate
from deql.cluster.recommendation import recommend

__all__ = ["evaluate", "recommend"]
