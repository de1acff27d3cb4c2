"""Works on the shards of a board concurrently: a task for each, and a slow one is not waited for.

A slow task goes on by itself, and its shard counts as late until it ends: no further work is begun
on it. So a shard that hangs delays the others once, and costs the store one request. A task is slow
if it takes much longer than those of other shards: where the whole store is slow, no shard is late.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from itertools import islice
from typing import Any

from blackboard.clock import Clock

SLOW = 0.4
"""Seconds that a shard is waited for beside others, at the least."""
SLOWER = 3.0
"""How many times as long as the fastest shard takes the others are waited for."""
ABREAST = 16
"""Shards that are worked on at a time, besides those that are slow."""

Work = Callable[[int], Coroutine[Any, Any, bool]]
"""Works on the shard with this number. Returns whether the store has answered."""


class ShardTasks:
    """The tasks that work on the shards of one worker's board."""

    def __init__(
        self,
        clock: Clock,
        *,
        shards: int,
        became_late: Callable[[int], None],
        answered: Callable[[], None],
    ) -> None:
        """`became_late` is called with the number of a shard that is no longer waited for,
        `answered` when the task of such a shard has ended.
        """
        self._clock = clock
        self._shards = shards
        self._became_late = became_late
        self._answered = answered
        self._late: dict[int, asyncio.Task[None]] = {}
        self._took: dict[int, float] = {}
        """Seconds that each shard took when it answered last."""
        self._failure: BaseException | None = None

    @property
    def late(self) -> frozenset[int]:
        """Shards whose work is not waited for."""
        return frozenset(self._late)

    async def each(self, numbers: Iterable[int], work: Work) -> None:
        """Calls `work` for each of the shards that are not late. Raises its error; that of a late
        shard is raised by the next call.
        """
        if self._failure is not None:
            raise self._failure
        if self._shards == 1:  # there are no others to protect
            for number in numbers:
                await work(number)
            return
        ready = iter([number for number in numbers if number not in self._late])
        while batch := list(islice(ready, ABREAST)):
            await self._abreast(batch, work)

    async def _abreast(self, batch: list[int], work: Work) -> None:
        loop = asyncio.get_running_loop()
        tasks = {number: loop.create_task(self._timed(number, work)) for number in batch}
        longest = max(SLOW, SLOWER * min(self._took.values(), default=0.0))
        timer = loop.create_task(self._clock.sleep(longest))
        pending = set(tasks.values())
        try:
            while pending and not timer.done():
                await asyncio.wait({*pending, timer}, return_when=asyncio.FIRST_COMPLETED)
                pending = {task for task in pending if not task.done()}
        finally:
            timer.cancel()
            for number, task in tasks.items():
                if task in pending:
                    self._late[number] = task
                    task.add_done_callback(partial(self._over, number))
        for number, task in tasks.items():
            if task in pending:
                self._became_late(number)
            else:
                task.result()

    async def _timed(self, number: int, work: Work) -> None:
        begun = self._clock.monotonic()
        if await work(number):
            self._took[number] = self._clock.monotonic() - begun

    def _over(self, number: int, task: asyncio.Task[None]) -> None:
        self._late.pop(number, None)
        if task.cancelled():
            return
        self._failure = self._failure or task.exception()
        self._answered()

    def cancel(self) -> None:
        """Cancels the tasks of late shards. The loop awaits them before it ends."""
        for task in tuple(self._late.values()):
            task.cancel()
