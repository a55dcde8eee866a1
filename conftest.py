"""Which examples in docstrings can be run here."""

import importlib.util

# Without torch neither its engine nor ELSA can be tried out.
collect_ignore_glob = (
    []
    if importlib.util.find_spec("torch")
    else ["src/deql/linalg/engines/torch_*", "src/deql/ranking/torch_*", "src/deql/models/elsa/*"]
)
