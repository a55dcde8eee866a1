"""How the tests run: in several processes, and with those examples in docstrings that can be run here."""

import importlib.util
import os

# Without torch neither its engine nor what it trains can be tried out.
collect_ignore_glob = (
    []
    if importlib.util.find_spec("torch")
    else [
        "src/deql/linalg/engines/torch_*",
        "src/deql/ranking/torch_*",
        "src/deql/models/elsa/*",
        "src/deql/models/neural/*",
        "src/deql/models/training/*",
    ]
)

# Processes that share the processors would only wait for each other's threads: twice the time for fits. Tests of
# threads choose their own number, and `pytest -n0` leaves all others theirs.
if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1:
    os.environ.setdefault("DEQL_THREADS", "1")


def pytest_addoption(parser, pluginmanager):
    """Without pytest-xdist what pyproject.toml says of processes is read, and tests run one after the other."""
    if not pluginmanager.has_plugin("xdist"):
        for name in ("--numprocesses", "--maxprocesses", "--dist"):
            parser.addoption(name, help="of pytest-xdist, which is not there")
