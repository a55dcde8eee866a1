"""How good is a model on what it has not seen?"""

from deql.evaluation.evaluator import Evaluation, evaluate
from deql.evaluation.metrics import METRICS

__all__ = ["METRICS", "Evaluation", "evaluate"]
