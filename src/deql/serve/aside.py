"""Long work beside the event loop that gives way to requests, and that the end of the program does not wait for."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import sys
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["aside", "leave_behind"]

Given = ParamSpec("Given")
Result = TypeVar("Result")

_NICE = 5
_working: set[threading.Thread] = set()


def aside(work: Callable[Given, Result], *given: Given.args, **named: Given.kwargs) -> asyncio.Future[Result]:
    """Call a function in a thread of its own.

    Examples
    --------
    >>> async def add():
    ...     return await aside(sum, [1, 2])
    >>> asyncio.run(add())
    3
    """
    answer: concurrent.futures.Future[Result] = concurrent.futures.Future()

    def run() -> None:
        answer.set_running_or_notify_cancel()  # it cannot be stopped
        try:
            _step_back()
            answer.set_result(work(*given, **named))
        except BaseException as error:
            answer.set_exception(error)
        finally:
            _working.discard(thread)

    # Pools are waited for when the program ends.
    thread = threading.Thread(target=run, name="aside", daemon=True)
    _working.add(thread)
    thread.start()
    return asyncio.wrap_future(answer)


def leave_behind(exit_code: int) -> None:
    """Let the program end with this code when it ends, if then a thread still works.

    Taking the interpreter down around a thread that is inside compiled code may end in a crash.
    """

    def leave() -> None:
        if _working:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(exit_code)

    if _working:
        atexit.register(leave)


def _step_back() -> None:
    """Let this thread, and those it starts, work when others do not: requests come before the next model."""
    if sys.platform == "linux":  # elsewhere only whole processes have a priority
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
