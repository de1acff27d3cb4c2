"""What a handler may raise to say how its run ended: `Retry`, `Skip`, `Fail`.

An answer goes over `retries`, which is what the item is set to where its handler says nothing. Its
reason is kept with the run, without a traceback but that of its cause (`raise ... from problem`).
"""

import math
from datetime import timedelta

from blackboard.errors import BadInput
from blackboard.schedule.durations import duration_of

SHORTEST_AFTER = timedelta(seconds=1)
LONGEST_AFTER = timedelta(days=366)


class HandlerAnswer(Exception):
    """What a handler raised on purpose; the base of all below."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = str(reason)

    def __str__(self) -> str:
        return self.reason


class Skip(HandlerAnswer):
    """There was nothing to do. The run is ok and shown as skipped; what an earlier run returned
    stays the item's result.
    """


class Retry(HandlerAnswer):
    """The run failed, and is run again: after seconds, "5m" or a timedelta, as the same slot,
    however often it was tried (`ctx.attempt` says how often); unless the schedule's next slot comes
    first. Raises BadInput for what is no such time.
    """

    def __init__(self, after: float | str | timedelta, reason: str = "") -> None:
        super().__init__(reason)
        self.args = (after, reason)  # what pickle makes it of
        # A Retry-After of 0, or one that has passed, is as good as a second.
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        at_once = not isinstance(seconds, str) and seconds <= 0
        self.after = SHORTEST_AFTER if at_once else duration_of(after, "after")
        if self.after > LONGEST_AFTER:
            raise BadInput("after", f"{after!r} is too long", "a year at the most")


class Fail(HandlerAnswer):
    """The run failed for the given reason, and is not run again before its next slot. With `retry`
    it is run again as `retries` says.
    """

    def __init__(self, reason: str, retry: bool = False) -> None:  # noqa: FBT001, FBT002 - as called
        super().__init__(reason)
        self.args = (reason, retry)
        self.retry = bool(retry)


def said_by(answer: HandlerAnswer) -> str:
    """The reason, in words where there is none."""
    match answer:
        case Retry(after=after, reason=reason):
            asked = f"asked for a retry in {math.ceil(after.total_seconds()):,} s"
            return f"{reason} ({asked})" if reason else asked
        case _:
            return answer.reason or type(answer).__name__.lower()
