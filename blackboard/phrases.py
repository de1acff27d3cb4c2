"""Times, durations, numbers and commands in words for people. Pure: no locale, no time zone."""

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise

_UNITS = (("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400))
"""Units, and their seconds."""
LONGEST_ERROR = 12_000
"""Characters of an error that are kept: its head and its tail."""
LONGEST_OUTPUT = 8192
"""Bytes at the end of a run's output that are kept."""
LONGEST_LOG = 8192
"""Bytes at the end of a run's log, as JSON, that are kept."""
LONGEST_LINE = 2_000
"""Characters of one text of a log that are kept: its head and its tail."""
_NAME = vars(type)["__name__"]


def iso(moment: datetime) -> str:
    """For programs: ISO 8601, UTC, milliseconds, Z."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def stamp(moment: datetime) -> str:
    """For people: UTC to the second, with Z."""
    return moment.astimezone(UTC).isoformat(" ", "seconds")[:-6] + "Z"


def stamp_to_milliseconds(moment: datetime) -> str:
    """For logs: UTC to the millisecond, with Z."""
    utc = moment.astimezone(UTC)
    return f"{utc:%Y-%m-%d %H:%M:%S}.{utc.microsecond // 1000:03d}Z"


def brief(seconds: float, *, nearest: bool = False) -> str:
    """A duration in one unit, cut or to the nearest: "90s", "3m", "7h", "2d"; below ten seconds one
    decimal. A longer unit is used from two of it on.
    """
    if seconds < 0:
        return "-" + brief(-seconds, nearest=nearest)
    if 0 < seconds < 9.95:
        text = f"{seconds:.1f}"
        return "0s" if text == "0.0" else f"{text.removesuffix('.0')}s"

    def count(length: int) -> float:
        return (seconds + nearest * length / 2) // length

    fitting = (
        (unit, length)
        for (unit, length), (_, longer) in pairwise(_UNITS)
        if count(length) * length < 2 * longer
    )
    unit, length = next(fitting, _UNITS[-1])
    return f"{count(length):.0f}{unit}"


def span(seconds: float) -> str:
    """A duration in its two largest units: "7h 59m", "12s"; below a minute as `brief` has it."""
    if seconds < 60:
        return brief(seconds)
    rest = round(seconds)
    pairs = pairwise(reversed(_UNITS))
    (unit, length), (finer, part) = next(pair for pair in pairs if rest >= pair[0][1])
    more = rest % length // part
    return f"{rest // length}{unit}" + (f" {more}{finer}" if more else "")


def since(age: float) -> str:
    """A time without renewal: "for 3m 20s"; an infinite age is from before the host was started."""
    return "since before this host was started" if age == float("inf") else f"for {span(age)}"


def last_seen(age: float) -> str:
    """When a worker was last seen: "4m ago"; an infinite age is from before the host started."""
    return "before this host was started" if age == float("inf") else f"{span(age)} ago"


def relative(moment: datetime, now: datetime) -> str:
    """A time relative to now: "3m ago", "in 8h", "now". A future time is rounded to the nearest
    unit: 8 hours less a second are "in 8h".
    """
    seconds = int((moment - now).total_seconds())
    if seconds == 0:
        return "now"
    return f"in {brief(seconds, nearest=True)}" if seconds > 0 else f"{brief(-seconds)} ago"


def exactly(moment: datetime, now: datetime) -> str:
    """A time and its distance from now: "2026-11-21 09:00:00Z (in 7h 5m)"."""
    seconds = int((moment - now).total_seconds())
    words = "now" if seconds == 0 else f"in {span(seconds)}"
    return f"{stamp(moment)} ({words if seconds >= 0 else f'{span(-seconds)} ago'})"


def plural(number: int, noun: str) -> str:
    """A number of things: "1 item", "2,000 items"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def quoted(value: object) -> str:
    """A value that cannot be used, shortly, in an error: as Python writes it, or by its class where
    that fails.
    """
    try:
        return repr(value)[:60]
    except Exception:  # noqa: BLE001 - a class has its own code for this, and large numbers none
        return f"a value of the class {type(value).__name__}"


def some(names: Sequence[str], most: int, *, total: int | None = None) -> str:
    """The first names, and how many more there are: "a, b and 3 more". `total` is the number of all
    names, if it is more than these.
    """
    more = (len(names) if total is None else total) - min(len(names), most)
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def command(verb: str, *ids: str, board: str = "") -> str:
    """A command about items, to be typed in a shell: "`blackboard run ann`". `verb` may have
    options. `board` is named where it is not the one that the caller's command is about.
    """
    typed = shlex.join(ids)
    if any(item_id.startswith("-") for item_id in ids):
        typed = f"-- {typed}"
    option = f"--board {board} " if board else ""
    return f"`blackboard {option}{verb} {typed}`"


def message_of(problem: BaseException) -> str:
    """What an exception says; that of a user's class may raise anything in place of that."""
    try:
        return str(problem)
    except BaseException as second:  # noqa: BLE001 - a __str__ may raise anything
        return f"(its message raised {class_of(second)})"


def class_of(problem: BaseException) -> str:
    """The name of its class, which a metaclass could make raise. Never raises."""
    name: str = _NAME.__get__(type(problem))
    return name


def first_line(text: str) -> str:
    """The first line that is not blank."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def cut_middle(text: str, limit: int = LONGEST_ERROR) -> str:
    """`text` in at most `limit` characters: a third from its beginning, the rest from its end."""
    if len(text) <= limit:
        return text
    gap = left_out(len(text) - limit)
    kept = limit - len(gap)
    head = kept // 3
    return text[:head] + gap + text[head - kept :]


def left_out(number: int) -> str:
    """The line between the two ends of a text that was cut."""
    return f"\n[... {number:,} characters left out ...]\n"


def too_long(limit: int) -> str:
    """The error of a result that no row can hold."""
    return f"a row holds {limit:,}: write it to a file or a blob and return where it is"


def cut_front(text: str, limit: int) -> str:
    """The end of `text`, in at most `limit` bytes of UTF-8, from a whole character on."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return text
    return data[-limit:].decode("utf-8", "ignore")
