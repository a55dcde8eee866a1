"""How good is a model on what it has not seen?"""

from deql.evaluation.evaluator import Evaluation, evaluate
from deql.evaluation.metrics import ndcg, recall, recall_capped

__all__ = ["Evaluation", "evaluate", "ndcg", "recall", "recall_capped"]
