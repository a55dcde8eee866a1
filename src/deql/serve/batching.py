"""Requests that wait at the same time are ranked together, and none waits for all of a long one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import NamedTuple

from deql.serve.served import Query, Ranked, Served

__all__ = ["Batcher"]

_ITEMS_AT_ONCE = 2048
"""Items of all histories of a batch: more make its pass longer, and hardly cheaper for each."""


class _Waiting(NamedTuple):
    served: Served
    query: Query
    answer: asyncio.Future[Ranked]


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

    async def rank(self, served: Served, queries: Sequence[Query]) -> list[Ranked]:
        """The lists for these queries, in their order."""
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[Ranked]] = [loop.create_future() for _ in queries]
        waiting = [_Waiting(served, query, answer) for query, answer in zip(queries, answers, strict=True)]
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
            batch.sort(key=lambda waiting: id(waiting.served))  # more than one only while models are swapped
            for served, group in groupby(batch, key=lambda waiting: waiting.served):
                await self._answer(loop, served, list(group))

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

    async def _answer(self, loop: asyncio.AbstractEventLoop, served: Served, batch: list[_Waiting]) -> None:
        try:
            if self._tell is not None:
                self._tell(len(batch))
            lists = await loop.run_in_executor(self._thread, served.rank, [waiting.query for waiting in batch])
        except Exception as error:
            if len(batch) > 1:  # only who caused it should hear of it
                for waiting in batch:
                    await self._answer(loop, served, [waiting])
            elif not batch[0].answer.done():
                batch[0].answer.set_exception(error)
            return
        for waiting, ranked in zip(batch, lists, strict=True):
            if not waiting.answer.done():
                waiting.answer.set_result(ranked)
