"""Networks on the graph of users and items: an estimator each, one trainer, one sparse propagation."""
