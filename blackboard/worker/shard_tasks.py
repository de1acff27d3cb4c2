"""Work on the shards of a board side by side: one task for each, and a slow one is not waited for.

Work that takes long goes on by itself, and its shard is left alone meanwhile. So a shard that hangs
costs the others a moment once, and the store one request of this kind. Work takes long if it takes
much longer than the same does in other shards: where the whole store is slow, no shard is late.
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
"""Does the work on a shard. Returns whether the store has answered."""


class ShardTasks:
    """The work on each shard at present."""

    def __init__(
        self,
        clock: Clock,
        *,
        shards: int,
        became_late: Callable[[int], None],
        answered: Callable[[], None],
    ) -> None:
        """`became_late` is called when a shard is not waited for any more, `answered` when the work
        on such a shard has ended.
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
        """Does the work on each of the shards, but for those that are late. Raises what that
        raises; for a shard that is late, at the next call.
        """
        if self._failure is not None:
            raise self._failure
        if self._shards == 1:  # there are no others to protect
            for number in numbers:
                await work(number)
            return
        ready = iter([one for one in numbers if one not in self._late])
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
        """Cancels the work that goes on. The loop awaits it before it ends."""
        for task in tuple(self._late.values()):
            task.cancel()
