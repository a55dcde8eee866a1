"""How files and frames become rows of users, items, weights and times: one module a format, and what they share."""
