"""How good is a model on what it has not seen?"""

from typing import TYPE_CHECKING, Any

from deql.evaluation.evaluation_result import Evaluation
from deql.metrics import METRICS

if TYPE_CHECKING:
    from deql.evaluation.evaluator import evaluate

__all__ = ["METRICS", "Evaluation", "evaluate"]


# Imported at first use: the metrics are needed on hosts without SciPy and numba, too.
def __getattr__(name: str) -> Any:
    if name != "evaluate":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from deql.evaluation.evaluator import evaluate

    return evaluate
