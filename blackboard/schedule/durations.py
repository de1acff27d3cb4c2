"""Durations as text: "8h", "90s", "1d12h", "1w", "500ms"; also "1.5h" and "8 hours".

Numbers with their units, largest unit first, each unit once. A number without a unit is refused,
and so are zero, negative durations and more than ten years. The resolution is one millisecond.
`parse_duration` reads what `format_duration` writes.
"""

import re
from datetime import timedelta
from functools import lru_cache

from blackboard.errors import BadInput

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

_NOTHING = timedelta(0)
_MILLISECOND = timedelta(milliseconds=1)
_EXAMPLES = "write it like 8h, 90s, 1d12h, 1w or 500ms"
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
    if duration <= _NOTHING:
        raise BadInput(field, f"{value!r} is not longer than nothing", _EXAMPLES)
    if duration > LONGEST:
        raise BadInput(field, f"{value!r} is longer than ten years", _EXAMPLES)
    if duration % _MILLISECOND:
        raise BadInput(field, f"{value!r} is finer than a millisecond", "use whole milliseconds")
    return duration


def duration_of(value: str | float | timedelta, field: str = "duration") -> timedelta:
    """The same of what a Python program says, where a number is seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not abs(value) <= LONGEST.total_seconds():  # also what is no number
            raise BadInput(field, f"{value!r} seconds is longer than ten years", _EXAMPLES)
        value = timedelta(milliseconds=round(value * 1000))
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
    if _NUMBER.fullmatch(text):
        raise BadInput(field, f"{text!r} has no unit", _with_unit(text))
    parts = _PARTS.fullmatch(text)
    if not text or parts is None:
        shown = text if len(text) <= 40 else text[:40] + "..."
        raise BadInput(field, f"{shown!r} is not a duration", _EXAMPLES)
    try:
        return sum(
            (
                _times(number or "0", unit)
                for number, unit in zip(parts.groups(), UNITS.values(), strict=True)
            ),
            _NOTHING,
        )
    except OverflowError:
        raise BadInput(field, f"{text!r} is longer than ten years", _EXAMPLES) from None


def _times(number: str, unit: timedelta) -> timedelta:
    whole, _, part = number.partition(".")
    return int(whole) * unit + (int(part) * unit / 10 ** len(part) if part else _NOTHING)


def _with_unit(number: str) -> str:
    return f"write {number}s for seconds" if re.fullmatch("[0-9]{1,12}", number) else _EXAMPLES
