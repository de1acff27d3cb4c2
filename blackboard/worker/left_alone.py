"""Items that a worker leaves alone, because they cannot be run as they are."""

from blackboard.emitter import EventEmitter
from blackboard.events import ItemLeftAlone
from blackboard.model import Lock, Token
from blackboard.worker.holdings import Latest

MOST_LEFT = 100_000
"""Items whose ids are kept, so that each is reported once."""


class LeftAlone:
    """Reports, once for each item, why it is left alone."""

    def __init__(self, events: EventEmitter) -> None:
        self._events = events
        self._reported = Latest(MOST_LEFT)

    def report(self, row: Token | Lock, reason: object) -> None:
        if row.id not in self._reported:
            self._reported.add(row.id)
            self._events.emit_of(row, ItemLeftAlone, message=str(reason))
