"""What becomes of a model that is served no more."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest

pytest.importorskip("fastapi", reason="the service needs the extra serve")

import deql
from deql.serve.serving_model import ModelHolder, ServingModel
from tests.serve.running import wait_for


def test_an_old_model_is_let_go_by_a_thread_once_nobody_asks_it(toy):
    """To unmap gigabytes takes a second, and the last who asks is the event loop."""
    holder = ModelHolder(ServingModel(deql.EASE(l2=1.0).fit(toy)))
    ended = []
    weakref.finalize(holder.current.model, lambda: ended.append(threading.current_thread()))
    request = holder.current
    holder.swap(ServingModel(deql.EASE(l2=2.0).fit(toy)))
    gc.collect()
    assert request.model.recommend([["tea"]], k=1).ids.shape == (1, 1)
    assert not ended
    del request
    wait_for(lambda: ended, 10)
    assert ended[0] is not threading.main_thread()
