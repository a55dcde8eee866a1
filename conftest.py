"""Which examples in docstrings can be run here."""

import importlib.util

# The torch engine's modules cannot be imported without it, so neither can their examples.
collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["src/deql/device/*"]
