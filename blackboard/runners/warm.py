"""Children that wait for their next run: a start costs 50 ms and more, a run in a warm child less
than one. A few are kept, for a while, each for the one module that it has loaded.
"""

import asyncio

from blackboard.handlers import Source
from blackboard.runners.children import Child
from blackboard.runners.watch import Watch


class Warm:
    """`room`: how many may wait; `rest`: seconds after which one that waits is let go;
    `patience`: seconds it then has to end by itself.
    """

    def __init__(self, watch: Watch, *, room: int, rest: float, patience: float) -> None:
        self._watch = watch
        self._room = room
        self._rest = rest
        self._patience = patience
        self._waiting: dict[Child, asyncio.TimerHandle] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def take(self, source: Source) -> Child | None:
        """The one that was put back last, if any has loaded this module."""
        for child in reversed(self._waiting):
            if child.source == source:
                self._waiting.pop(child).cancel()
                if child.is_alive():
                    return child
                self._let_go(child)
                return self.take(source)
        return None

    def put(self, child: Child) -> None:
        """It has finished a run and left nothing behind."""
        child.rest()
        timer = asyncio.get_running_loop().call_later(self._rest, self._dismiss, child)
        self._waiting[child] = timer
        if len(self._waiting) > self._room:
            self._dismiss(next(iter(self._waiting)))

    async def close(self) -> None:
        for child in list(self._waiting):
            self._dismiss(child)
        while self._leaving:
            await asyncio.wait(self._leaving)

    def _dismiss(self, child: Child) -> None:
        if child in self._waiting:
            self._waiting.pop(child).cancel()
            self._let_go(child)

    def _let_go(self, child: Child) -> None:
        task = asyncio.get_running_loop().create_task(self._leave(child))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _leave(self, child: Child) -> None:
        child.hang_up()
        if not await child.gone(self._patience):
            child.kill()
            await child.gone(self._patience)
