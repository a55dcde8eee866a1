"""Numbers for Prometheus, of one process and of several."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("prometheus_client", reason="needs the extra serve")

from deql.serve.metrics import FOLDER, Metrics

pytestmark = pytest.mark.serve

_WORKER = """
from deql.serve.metrics import Metrics
metrics = Metrics()
metrics.answered("/recommend", "POST", 200, 0.01)
metrics.batch(3)
metrics.serving(5)
metrics.serving(4)
metrics.in_flight.inc()
print(metrics.text().decode())
"""


def test_apps_in_one_process_count_apart():
    one, other = Metrics(), Metrics()
    one.reloaded("changed")
    assert b'deql_reloads_total{outcome="changed"} 1.0' in one.text()
    assert b"deql_reloads_total{" not in other.text()


def test_workers_are_added_up(tmp_path):
    for _ in range(2):
        text = subprocess.check_output(
            [sys.executable, "-c", _WORKER], env=os.environ | {FOLDER: str(tmp_path)}, text=True
        )
    for line in (
        'deql_requests_total{method="POST",route="/recommend",status="200"} 2.0', "deql_histories_total 6.0",
        'deql_request_seconds_bucket{le="0.01",route="/recommend"} 2.0', "deql_requests_in_flight 2.0",
        "deql_workers 2.0", "deql_model_items 4.0",
    ):  # fmt: skip
        assert line in text.splitlines()
