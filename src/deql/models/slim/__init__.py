"""SLIM: the estimator beside its coordinate descent."""

from deql.models.slim.slim import SLIM

__all__ = ["SLIM"]
