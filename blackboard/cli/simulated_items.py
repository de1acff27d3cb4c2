"""The items of a board as a simulated world has them: their schedules, specs and types.

How long their runs take is what their last ones took. Params are left out: nobody reads them there,
and what they take from the environment is nobody's business. The world begins on a Monday at
midnight UTC. An interval goes on from where it is now, a cron or a rule has its slots as in the
calendar.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from blackboard import cost
from blackboard.cost import Rhythm
from blackboard.errors import BadInput
from blackboard.handlers import Handler
from blackboard.model import Item
from blackboard.protocol.reading import BoardTable
from blackboard.schedule.schedule import Every, Schedule, next_due
from blackboard.settings import Settings
from blackboard.simulator.handlers import handler_of
from blackboard.simulator.host import BEGAN
from blackboard.simulator.scenario import Declared, Types, usual_length
from blackboard.spec import RunSettings, decode_spec
from blackboard.worker.membership import workers


@dataclass(slots=True, kw_only=True)
class Simulable:
    """The items of a board that run again and again, and whose settings can be computed here."""

    takes: float | None
    """Seconds of a run that nothing is known of; None: by its interval."""
    items: list[Declared] = field(default_factory=list)
    rhythms: list[Rhythm] = field(default_factory=list)
    """Theirs, as `blackboard cost` reckons with them."""
    left_out: int = 0
    """Items that run once at most, are paused, or are not to be computed here."""
    shards: int = 1
    workers: int = 0
    """That have announced themselves."""

    async def read(self, board: BoardTable) -> None:
        self.shards = board.shards
        self.workers = sum(not one.lost for one in await workers(board))
        now = await board.table.now()
        async for item in board.items():
            try:
                settings = board.resolve(item.type, item.spec)
                self._add(item, settings, now)
            except (BadInput, ValueError):
                self.left_out += 1  # `doctor` tells of it

    def types(self, settings: Settings, handlers: Mapping[str, Handler]) -> Types:
        """With the settings that hold for them here, whoever runs them."""
        names = {one.type for one in self.items}
        return Types(
            handlers={one: handlers.get(one) or handler_of(one) for one in sorted(names)},
            settings=settings,
        )

    def _add(self, item: Item, settings: RunSettings, now: datetime) -> None:
        rhythm = cost.rhythm_of(item, settings=settings, now=now)
        schedule = settings.schedule
        first = None if schedule is None else _first(schedule, item, now)
        if rhythm is None or first is None:
            self.left_out += 1
            return
        known, usual = rhythm.lasts.total_seconds(), usual_length(rhythm.interval)
        self.items.append(
            Declared(
                id=item.id,
                type=item.type,
                spec=msgspec.structs.replace(decode_spec(item.spec), params={}),
                takes=known or (usual if self.takes is None else self.takes),
                first=first,
            )
        )
        self.rhythms.append(rhythm)


def _first(schedule: Schedule, item: Item, now: datetime) -> datetime | None:
    if isinstance(schedule, Every):
        return BEGAN + max(item.ready - now, timedelta(0))
    return next_due(schedule, BEGAN)
