"""ELSA: the estimator beside its training loop, which needs NumPy and torch alone."""
