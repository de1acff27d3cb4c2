"""Durations and times as people write them.

Durations: "8h", "90s", "1d12h", "1w", "500ms"; also "1.5h" and "8 hours". Numbers with their units,
largest unit first, each unit once. A number without a unit is refused, and so are zero, negative
durations and more than ten years. The resolution is one millisecond. `parse_duration` reads what
`format_duration` writes.

Times: 2026-11-21T09:00, "tomorrow 05:00", "in 2h", "3d ago", "now". A time of day without an offset
is wall time in a zone. A day alone begins at midnight.
"""

import re
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from math import isnan
from zoneinfo import ZoneInfo

from blackboard.errors import BadInput
from blackboard.model import whole_milliseconds
from blackboard.schedule.zones import find_zone, first_shown

UNITS = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
LONGEST = timedelta(days=3653)
"""Ten years, leap days included."""
MAY_BE_NOTHING = {"grace", "jitter"}
"""The fields whose duration may be nothing, which is written "0" as well."""

_NOTHING = timedelta(0)
_MILLISECOND = timedelta(milliseconds=1)
_EXAMPLES = "write it like 8h, 90s, 1d12h, 1w or 500ms"
_AT_MOST = f"{LONGEST.days}d at the most"
_WORDS = {
    "w": "weeks?|w",
    "d": "days?|d",
    "h": "hours?|hrs?|h",
    "m": "minutes?|mins?|m",
    "s": "seconds?|secs?|s",
    "ms": "milliseconds?|ms",
}
_PARTS = re.compile(
    r"\s*+".join(
        rf"(?:([0-9]{{1,12}}(?:\.[0-9]{{1,3}})?)\s*+(?:{_WORDS[unit]})(?![a-z]))?" for unit in UNITS
    )
)
_NUMBER = re.compile(r"[+-]?[0-9]*\.?[0-9]+")


def parse_duration(value: str | float | timedelta, field: str = "duration") -> timedelta:
    """The duration that `value` means: text with units, or a timedelta.

    Raises BadInput naming `field`, with a remedy.
    """
    if isinstance(value, timedelta):
        duration = value
    elif isinstance(value, str):
        duration = _read(value.strip(), field)
    else:
        raise BadInput(field, f"{value!r} has no unit", _with_unit(str(value)))
    return _checked(duration, field, written=value)


def _checked(duration: timedelta, field: str, *, written: str | float | timedelta) -> timedelta:
    shown = str(written) if isinstance(written, timedelta) else repr(written)
    if duration < _NOTHING or (duration == _NOTHING and field not in MAY_BE_NOTHING):
        raise BadInput(field, f"{shown} is not longer than nothing", _EXAMPLES)
    if duration > LONGEST:
        raise BadInput(field, f"{shown} is longer than ten years", _AT_MOST)
    if duration % _MILLISECOND:
        raise BadInput(field, f"{shown} is finer than a millisecond", "use whole milliseconds")
    return duration


def duration_of(value: str | float | timedelta, field: str = "duration") -> timedelta:
    """As `parse_duration`, for the value of a Python program, in which a number is seconds, and a
    timedelta may be finer than a millisecond: that is cut.
    """
    if isinstance(value, timedelta):
        value = format_duration(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, float) and isnan(value):
            raise BadInput(field, f"{value!r} is not a number", _EXAMPLES)
        if value > LONGEST.total_seconds():
            raise BadInput(field, "it is longer than ten years", _AT_MOST)
        value = max(value, -LONGEST.total_seconds())  # a timedelta has an end
        return _checked(timedelta(milliseconds=round(value * 1000)), field, written=value)
    return parse_duration(value, field)


@lru_cache(maxsize=1024)
def format_duration(duration: timedelta) -> str:
    """`duration` as `parse_duration` reads it: "1d12h". Weeks are used alone only; what
    is finer than a millisecond is cut. Zero is "0s", a negative duration has a minus.
    """
    if duration < _NOTHING:
        return "-" + format_duration(-duration)
    if duration and not duration % UNITS["w"]:
        return f"{duration // UNITS['w']}w"
    text, rest = "", duration
    for unit, length in UNITS.items():
        if unit != "w":
            number, rest = divmod(rest, length)
            text += f"{number}{unit}" if number else ""
    return text or "0s"


def _read(text: str, field: str) -> timedelta:
    if text == "0" and field in MAY_BE_NOTHING:
        return _NOTHING
    if _NUMBER.fullmatch(text):
        raise BadInput(field, f"{text!r} has no unit", _with_unit(text))
    parts = _PARTS.fullmatch(text)
    if not text or parts is None:
        shown = text if len(text) <= 40 else text[:40] + "..."
        raise BadInput(field, f"{shown!r} is not a duration", _EXAMPLES)
    numbers = zip(parts.groups("0"), UNITS.values(), strict=True)
    try:
        return sum((_times(number, unit) for number, unit in numbers), _NOTHING)
    except OverflowError:
        raise BadInput(field, f"{text!r} is longer than ten years", _AT_MOST) from None


def _times(number: str, unit: timedelta) -> timedelta:
    whole, _, part = number.partition(".")
    return int(whole) * unit + (int(part) * unit / 10 ** len(part) if part else _NOTHING)


def _with_unit(number: str) -> str:
    with suppress(BadInput):
        parse_duration(f"{number}s")
        return f"write {number}s for seconds"
    return _EXAMPLES


# ---- times

EARLIEST, LATEST = 1601, 9000
"""Years that a time lies between. No store takes one before 1601."""
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_DAY = re.compile(rf"({'|'.join(_DAYS)})(?:\s+(?:at\s+)?(\d{{1,2}}):(\d\d))?", re.ASCII)
_ISO = re.compile(r"(?:\d{4}-?\d\d-?\d\d|\d{4}-?W\d\d-?\d)(?:[Tt ].+)?", re.ASCII)
"""Matches a day, or a day and a time behind it. Python alone would read more: a week, as its
Monday, and any character before the time, so that 2026-11-21-05:00 would be 05:00.
"""
_REMEDY = "write 2026-11-21T09:00, with +01:00 or Z at the end unless it is in the item's zone"
_HOW = "write 2026-11-21T09:00, tomorrow 05:00, in 2h or 2h ago"


def read_moment(text: str, zone: str, field: str) -> datetime:
    """An ISO 8601 time; without an offset it is wall time in `zone`. Raises BadInput."""
    moment, written = None, text.strip()
    if _ISO.fullmatch(written):
        with suppress(ValueError):
            moment = datetime.fromisoformat(written)
    if moment is None:
        raise BadInput(field, f"{text[:60]!r} is not a time", _REMEDY)
    return in_zone(moment, zone, field, text=text)


def last_moment(text: str, zone: str, field: str) -> datetime:
    """An ISO 8601 time as the end of a schedule: a day alone is included. Raises BadInput."""
    moment = read_moment(text, zone, field)
    with suppress(ValueError):
        moment = end_of_day(date.fromisoformat(text.strip()), find_zone(zone))
    return whole_milliseconds(moment.astimezone(UTC))


def end_of_day(day: date, zone: ZoneInfo) -> datetime:
    """The last millisecond of a day in a zone; UTC."""
    return first_shown(datetime.combine(day + timedelta(days=1), time()), zone) - _MILLISECOND


def in_zone(moment: datetime, zone: str, field: str, *, text: str = "") -> datetime:
    """`moment`, as wall time in `zone` where it has no offset. Raises BadInput with its `text`,
    also for one that is too far away by the clocks of `zone` alone, in which a row has it.
    """
    clock = find_zone(zone)
    is_near = EARLIEST < moment.year < LATEST
    if is_near and moment.tzinfo:
        is_near = EARLIEST < moment.astimezone(clock).year < LATEST
    if not is_near:
        raise BadInput(field, f"{(text or str(moment))!r} is too far away", _REMEDY)
    return moment if moment.tzinfo else first_shown(moment, clock)


def parse_moment(
    text: str, zone: str, field: str, now: datetime, *, is_past: bool = False
) -> datetime:
    """The time that `text` means at `now`. A bare duration is counted from now, back into the past
    where `is_past`. Raises BadInput.
    """
    words = " ".join(text.lower().split())
    if words == "now":
        return now
    if day := _DAY.fullmatch(words):
        return _on_day(day, find_zone(zone), field, now)
    distance = _distance(words, field, is_past=is_past)
    if distance is not None:
        return whole_milliseconds(now + distance)
    try:
        return whole_milliseconds(read_moment(text, zone, field))
    except BadInput as problem:
        raise BadInput(field, problem.problem, _HOW) from None


def iso_text(text: str, zone: str, field: str, now: datetime) -> str:
    """The time that `text` means at `now`, in ISO 8601 with the offset of the zone. An `until` that
    is a day alone has no time, because it includes the day. Raises BadInput.
    """
    day = _DAY.fullmatch(" ".join(text.lower().split()))
    moment = parse_moment(text, zone, field, now).astimezone(find_zone(zone))
    if field == "until" and day and day[2] is None:
        return moment.date().isoformat()
    return moment.isoformat(timespec="seconds")


def _on_day(match: re.Match[str], zone: ZoneInfo, field: str, now: datetime) -> datetime:
    day = now.astimezone(zone).date() + timedelta(days=_DAYS[match[1]])
    try:
        of_day = time(int(match[2] or 0), int(match[3] or 0))
    except ValueError:
        raise BadInput(field, f"{match[0]!r} is not a time", "00:00 to 23:59") from None
    return first_shown(datetime.combine(day, of_day), zone)


def _distance(words: str, field: str, *, is_past: bool) -> timedelta | None:
    """How far from now the words are; None if they are no duration. Raises BadInput for a duration
    that is none of those that can be counted with.
    """
    is_ahead, is_ago = words.startswith("in "), words.endswith(" ago")
    bare = words.removeprefix("in ").removesuffix(" ago")
    if not bare or _PARTS.fullmatch(bare) is None or (is_ahead and is_ago):
        return None
    duration = parse_duration(bare, field)
    return -duration if is_ago or (is_past and not is_ahead) else duration
