"""How far two readings of one clock may be apart before one of them was wrong."""

from datetime import datetime, timedelta

TOLERANCE = timedelta(minutes=1)
"""What hosts that agree on the time, and a clock that is nudged, explain."""


def is_ahead(moment: datetime | None, *, now: datetime) -> bool:
    """Whether a moment that should have passed has not: a clock was ahead when it was written, or
    is behind now.
    """
    return moment is not None and moment - now > TOLERANCE


def no_later(moment: datetime, *, now: datetime) -> datetime:
    """A moment that should have passed, or now."""
    return now if is_ahead(moment, now=now) else moment
