"""SLIM: the estimator beside its coordinate descent."""
