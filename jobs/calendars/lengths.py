"""How long an event lasts, where it says so by a DURATION.

Weeks and days are nominal: a day later is the same hour of the next day, whatever the clocks do in
between. Hours, minutes and seconds are exact (RFC 5545, 3.3.6).
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

_DURATION = re.compile(
    r"([+-]?)P(?:(\d+)W)?(?:(\d+)D)?(?:T?(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)", re.IGNORECASE
)
LONGEST = timedelta(days=36_525)
"""A longer DURATION is ignored, and so is a longer one from start to end in a series."""
_MOST_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Length:
    """Nominal days, and exact seconds after them."""

    days: int
    seconds: int

    def after(self, start: date) -> date:
        """The end of what begins at a day, or at an aware time."""
        if not isinstance(start, datetime):
            return start + timedelta(days=max(1, self.days))
        later = (start + timedelta(days=self.days)).astimezone(UTC)
        return later + timedelta(seconds=self.seconds)


def length_of(said: str) -> Length | None:
    """The length that a DURATION says; None when it is none, or goes back in time."""
    found = _DURATION.fullmatch(said.strip())
    if found is None or found[1] == "-" or not any(found.groups()[1:]):
        return None
    weeks, days, hours, minutes, seconds = (
        int(part[:_MOST_DIGITS]) if part else 0 for part in found.groups()[1:]
    )
    return Length(weeks * 7 + days, hours * 3_600 + minutes * 60 + seconds)
