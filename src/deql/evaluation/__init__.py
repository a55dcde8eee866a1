"""How good is a model on what it has not seen?"""

from deql.evaluation.evaluation_result import Evaluation
from deql.evaluation.evaluator import evaluate
from deql.metrics import METRICS

__all__ = ["METRICS", "Evaluation", "evaluate"]
