"""Who is next: histories are ranked in batches, long answers made a moment at a time; nobody waits for all of one.

A request that waits here holds nothing that another needs. What it gets is a share of the time, whatever others cost:
ranking takes one history from each request in turn, and a long answer never waits for all of a longer one. One thread
makes them: Python runs one thread at a time, and lets those that want to take turns, so long answers together have as
much of the time as the event loop has for all the short ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from deql.serve.serving_model import Query, RankedColumns, ServingModel

__all__ = ["Batcher", "LongAnswers"]

_ITEMS_AT_ONCE = 2048
"""Items of all histories of a batch: more make its pass longer, and hardly cheaper for each."""

_MOMENT = 0.002
"""Seconds of work on a long answer before the next one has its turn."""

T = TypeVar("T")


class _Waiting(NamedTuple):
    model: ServingModel
    query: Query
    answer: asyncio.Future[RankedColumns]


class Batcher:
    """Ranks in one thread, a batch at a time; the kernels divide a batch among threads of their own.

    Nothing waits for a batch to fill: of what came while the last one was worked on, the next takes one history from
    each request in turn.

    Parameters
    ----------
    tell : callable, optional
        Called with the number of histories of each batch.
    """

    def __init__(self, tell: Callable[[int], None] | None = None) -> None:
        self._requests: deque[deque[_Waiting]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rank")
        self._task: asyncio.Task[None] | None = None
        self._tell = tell

    async def rank(self, model: ServingModel, queries: Sequence[Query]) -> list[RankedColumns]:
        """The lists for these queries, in their order."""
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[RankedColumns]] = [loop.create_future() for _ in queries]
        waiting = [_Waiting(model, query, answer) for query, answer in zip(queries, answers, strict=True)]
        self._requests.append(deque(waiting))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._work())
        try:
            return await asyncio.gather(*answers)
        finally:
            for answer in answers:  # of a request that was given up: not to be worked on
                answer.cancel()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while batch := self._next():
            batch.sort(key=lambda waiting: id(waiting.model))  # more than one only while models are swapped
            for model, group in groupby(batch, key=lambda waiting: waiting.model):
                await self._answer(loop, model, list(group))

    def _next(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        items = 0
        while self._requests:
            request = self._requests[0]
            while request and request[0].answer.done():
                request.popleft()
            if not request:
                self._requests.popleft()
                continue
            items += len(request[0].query.columns)
            if batch and items > _ITEMS_AT_ONCE:
                break
            batch.append(request.popleft())
            self._requests.rotate(-1)
        return batch

    async def _answer(self, loop: asyncio.AbstractEventLoop, model: ServingModel, batch: list[_Waiting]) -> None:
        try:
            if self._tell is not None:
                self._tell(len(batch))
            lists = await loop.run_in_executor(self._thread, model.rank, [waiting.query for waiting in batch])
        except Exception as error:
            if len(batch) > 1:  # only who caused it should hear of it
                for waiting in batch:
                    await self._answer(loop, model, [waiting])
            elif not batch[0].answer.done():
                batch[0].answer.set_exception(error)
            return
        for waiting, ranked in zip(batch, lists, strict=True):
            if not waiting.answer.done():
                waiting.answer.set_result(ranked)


class _Job(NamedTuple):
    steps: Iterator[Any]
    made: list[Any]
    answer: Future[list[Any]]


class LongAnswers:
    """Makes answers that take long in one thread: a moment for one that has just come, a moment for one that goes on.

    Of those that go on, the first is made to its end before the next: all of them at once would all be late. Nothing
    goes back to the event loop in between: on a busy one, each way there takes a whole round of it.

    Examples
    --------
    >>> async def ask():
    ...     return await LongAnswers().make(str(number) for number in range(3))
    >>> asyncio.run(ask())
    ['0', '1', '2']
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="long")
        # Submitted once for each job that is in one of these.
        self._fresh: deque[_Job] = deque()
        self._begun: deque[_Job] = deque()
        self._fresh_is_next = True

    async def make(self, steps: Iterable[T]) -> list[T]:
        """What the steps give, each of which should take a moment at most."""
        answer: Future[list[T]] = Future()
        self._fresh.append(_Job(iter(steps), [], answer))
        self._thread.submit(self._work)
        return await asyncio.wrap_future(answer)

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """What a function gives that cannot be divided into steps."""
        [result] = await self.make(one(*arguments) for one in (function,))
        return result

    def _work(self) -> None:
        """Work on one of the answers for a moment."""
        fresh = bool(self._fresh) and (self._fresh_is_next or not self._begun)
        job = (self._fresh if fresh else self._begun).popleft()
        self._fresh_is_next = not fresh
        if _is_done(job):
            return
        if fresh:
            self._begun.append(job)
        else:
            self._begun.appendleft(job)
        self._thread.submit(self._work)


def _is_done(job: _Job) -> bool:
    """Go on for a moment; whether the job needs no more, as it is finished, has failed, or was given up."""
    if job.answer.cancelled():  # before its first step, which may be all of it
        return True
    end = time.monotonic() + _MOMENT
    try:
        for step in job.steps:
            job.made.append(step)
            if job.answer.cancelled():
                return True
            if time.monotonic() > end:
                return False
    except BaseException as error:
        _settle(job.answer.set_exception, error)
    else:
        _settle(job.answer.set_result, job.made)
    return True


def _settle(set_: Callable[[T], None], value: T) -> None:
    with contextlib.suppress(InvalidStateError):  # given up meanwhile
        set_(value)
