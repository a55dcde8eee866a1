"""Which examples in docstrings can be run here."""

import importlib.util

# Without torch neither its engine nor ELSA can be tried out.
collect_ignore_glob = (
    []
    if importlib.util.find_spec("torch")
    else ["src/deql/device/*", "src/deql/elsa_training.py", "src/deql/models/elsa.py"]
)
