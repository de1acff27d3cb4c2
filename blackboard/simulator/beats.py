"""When a simulated worker wakes: as `wake.CycleWake` does by APScheduler's timer, by its own loop's
time.
"""

import asyncio

from blackboard.clock import Chance
from blackboard.worker.wake import SPREAD, EarliestWake


class Beats(EarliestWake):
    """Beats every cycle, a little sooner or later."""

    def __init__(self, cycle: float, chance: Chance) -> None:
        super().__init__(cycle)
        self._chance = chance
        self._beat: asyncio.TimerHandle | None = None

    def start(self) -> None:
        spread = SPREAD * (2 * self._chance.fraction() - 1)
        pause = self._cycle * (1 - SPREAD + spread)
        self._beat = asyncio.get_running_loop().call_later(pause, self._beats)

    def stop(self) -> None:
        super().stop()
        if self._beat is not None:
            self._beat.cancel()

    def _beats(self) -> None:
        self.start()
        self.beat()
