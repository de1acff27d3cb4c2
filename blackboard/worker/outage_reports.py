"""Reports a store that is away.

It is reported in one line, so it is each minute that it stays away, and when it is back. A store
that fails again within a minute of that comes and goes: it is reported as back only after a minute
without a failure. The line names partitions where others answer. A partition that failed and is not
asked again is away for little more than a minute, if others answer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from blackboard.emitter import EventEmitter
from blackboard.events import StoreAway, StoreBack
from blackboard.phrases import span
from blackboard.table import TableError

REPORT_EVERY = 60.0
"""Seconds between two lines about a store that is away, at the least."""


@dataclass(slots=True)
class _Outage:
    """The time from a first failure until all partitions answer."""

    since: float
    failed_at: float
    names: dict[str, None] = field(default_factory=dict)
    """The partitions that have failed, in order."""
    unasked: set[str] = field(default_factory=set)
    """Those of them that were not asked again."""
    whole_since: float | None = None
    """Since when the whole store has been away by the last line; None: parts of it."""
    comes_and_goes: bool = False
    answering_since: float | None = None
    """Since when all partitions answer; None: not all do."""
    reported_back: float = math.inf
    """When a line said that all of them answer; infinite: it was not said yet."""

    def end(self) -> str:
        """The words that report the end of the outage."""
        assert self.answering_since is not None
        names = [name for name in self.names if name not in self.unasked]
        places, lasted = _some(names), self.answering_since - self.since
        if not names:
            return f"{_some([*self.names])} was not asked for again: all others answer"
        if self.whole_since is not None:
            since = self.since if self.comes_and_goes else self.whole_since
            words = f"the store is back after {span(self.answering_since - since)}"
        elif len(names) > 1:
            words = f"{places}: all answer again, {span(lasted)} after the first of them failed"
        else:
            words = f"{places} is back after {span(lasted)}"
        return f"{words} (it came and went)" if self.comes_and_goes else words


class OutageReports:
    """Reports a store that is away: at once, in a line a minute, and when it is back."""

    def __init__(self, events: EventEmitter) -> None:
        self._events = events
        self._reported = -math.inf
        """When a line said last that it is away."""
        self._outage: _Outage | None = None
        """The last one, which may be over."""

    def failed(self, name: str, now: float) -> None:
        """Notes that a partition has failed."""
        outage = self._outage
        if outage is None or now - outage.reported_back >= REPORT_EVERY:
            outage = self._outage = _Outage(since=now, failed_at=now)
            self._reported = -math.inf
        elif outage.reported_back < math.inf:
            outage.comes_and_goes, outage.reported_back = True, math.inf
            self._reported = -math.inf  # that it is back was the last line
        outage.failed_at, outage.answering_since = now, None
        outage.names[name] = None
        outage.unasked.discard(name)

    def away(self, now: float, names: Sequence[str], *, since: float, trouble: TableError) -> None:
        """Reports what is away, once a minute. `names` are those of the partitions that are away,
        the first of them `since`; none: the whole store is.
        """
        outage = self._outage
        if outage is None or now - self._reported < REPORT_EVERY:
            return
        self._reported, outage.whole_since = now, None if names else since
        places = f"{_some(names)}: " if names else ""
        again = " again" if outage.comes_and_goes else ""
        longest = "up to " if len(names) > 1 else ""
        lasts = f" for {longest}{span(now - since)}" if now > since else ""
        away = f"away{again}{lasts}: " if again or lasts else ""
        self._events.emit(StoreAway, message=f"{places}{away}{trouble}")

    def not_asked_again(self, name: str) -> None:
        """Notes that the failure of a partition has expired."""
        if self._outage is not None:
            self._outage.unasked.add(name)

    def all_answer(self, now: float) -> None:
        """Notes that no partition is away, and reports it."""
        outage = self._outage
        if outage is None or outage.reported_back < math.inf:
            return
        if outage.answering_since is None:
            outage.answering_since = now
        if not outage.comes_and_goes or now - outage.failed_at >= REPORT_EVERY:
            outage.reported_back = now
            self._events.emit(StoreBack, message=outage.end())


def _some(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"partition {names[0]}{more}"
