"""Numbers for Prometheus, of one process and of several."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("prometheus_client", reason="needs the extra serve")

from deql.serve.monitoring import FOLDER, Metrics

pytestmark = pytest.mark.serve

_SUPERVISOR = """
from deql.serve.monitoring import reload_counter
reload_counter().labels("changed").inc()
"""

_WORKER = """
from deql.serve.monitoring import Metrics
metrics = Metrics()
metrics.answered("/recommend", "POST", 200, 0.01)
metrics.batch(3)
metrics.serving("shop", 5)
metrics.serving("shop", 4)
metrics.in_flight.inc()
print(metrics.text().decode())
"""


def test_apps_in_one_process_count_apart():
    one, other = Metrics(), Metrics()
    one.batch(3)
    assert b"deql_histories_total 3.0" in one.text()
    assert b"deql_histories_total 0.0" in other.text()


def test_workers_are_added_up(tmp_path):
    for program in (_SUPERVISOR, _WORKER, _WORKER):
        text = subprocess.check_output(
            [sys.executable, "-c", program], env=os.environ | {FOLDER: str(tmp_path)}, text=True
        )
    for line in (
        'deql_requests_total{method="POST",route="/recommend",status="200"} 2.0', "deql_histories_total 6.0",
        'deql_request_seconds_bucket{le="0.01",route="/recommend"} 2.0', "deql_requests_in_flight 2.0",
        "deql_workers 2.0", 'deql_model_items{model="shop"} 4.0', 'deql_reloads_total{outcome="changed"} 1.0',
    ):  # fmt: skip
        assert line in text.splitlines()
