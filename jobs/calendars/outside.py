"""Which events are outside a window, by a quick look at their dates.

Feeds keep what is over for years. To read an event takes a hundred times as long as this look at
its text, and to expand a series a thousand times as long. The look may say of an event that is
outside that it is not, never the other way round: it leaves two days for zones, and whatever it
does not understand is for a closer one.
"""

import re
from datetime import date, timedelta

from .lines import Block
from .records import Window
from .times import LONGEST, length_of

_SLACK = timedelta(days=2)
"""By how much an event must clear the window, whatever the zone."""
_DAY = re.compile(r"\s*(\d{4})-?(\d\d)-?(\d\d)(?!\d)", re.ASCII)
_UNTIL = re.compile(r"(?:^|;)\s*UNTIL\s*=([^;]*)", re.IGNORECASE)
_STEPS = {
    "DAILY": timedelta(days=1),
    "WEEKLY": timedelta(days=7),
    "MONTHLY": timedelta(days=31),
    "YEARLY": timedelta(days=366),
}
_NUMBER = re.compile(r"[1-9]\d{0,4}", re.ASCII)
_IN_ALL_MONTHS = range(2, 28)
"""Days that no month is without, in any zone."""


def are_outside(blocks: list[Block], window: Window) -> bool:
    """Whether none of the VEVENTs that share a UID has a time near the window. A change of all
    later times of a series can take them anywhere.
    """
    return not any(
        line.name == "RECURRENCE-ID" and "THISANDFUTURE" in line.params.upper()
        for block in blocks
        for line in block.lines
    ) and all(_is_outside(block, window) for block in blocks)


def _is_outside(block: Block, window: Window) -> bool:
    if block.first("RDATE"):
        return False
    start = _day(block.value("DTSTART"))
    if start is None:
        return False
    if start > window.end + _SLACK:
        return True
    lasts = _lasts(block, start)
    ends = [_last(line.value, start) for line in block.all("RRULE")]
    if lasts is None or None in ends:
        return False
    last = max([start, *filter(None, ends)])
    return last < window.first - _SLACK - lasts


def _day(text: str) -> date | None:
    parts = _DAY.match(text)
    try:
        return date(*map(int, parts.groups())) if parts else None
    except ValueError:
        return None


def _lasts(block: Block, start: date) -> timedelta | None:
    """How long the event lasts at the most; None when that takes a closer look."""
    if written := block.value("DTEND"):
        end = _day(written)
        days = LONGEST.days if end is None else max((end - start).days, 0)
    else:
        length = length_of(block.value("DURATION"))
        days = 0 if length is None else length.days + length.seconds // 86_400 + 1
    return timedelta(days=days) if days < LONGEST.days else None


def _last(rule: str, start: date) -> date | None:
    """A day after which the rule has no time; None when that takes a closer look."""
    until = _UNTIL.findall(rule)
    return _day(until[-1]) if until else _last_counted(rule.upper().strip("; "), start)


def _last_counted(rule: str, start: date) -> date | None:
    """The same for a rule with COUNT, if it has at least one time in every one of its steps."""
    parts = dict(part.partition("=")[::2] for part in rule.split(";"))
    step = _STEPS.get(parts.pop("FREQ", ""))
    numbers = parts.pop("COUNT", ""), parts.pop("INTERVAL", "1")
    others = parts.keys() - {"WKST"}
    weekly = step == _STEPS["WEEKLY"] and others == {"BYDAY"}
    if step is None or not all(map(_NUMBER.fullmatch, numbers)) or (others and not weekly):
        return None
    count, every = map(int, numbers)
    days = (count + 1) * every * step.days
    if start.day not in _IN_ALL_MONTHS or days > LONGEST.days:
        return None
    return start + timedelta(days=days)
