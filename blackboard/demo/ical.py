"""Writes iCalendar the way small programs do: enough for the demo's towns, not for anybody else."""

from collections.abc import Sequence

_WIDTH = 70


def calendar(name: str, *events: Sequence[str]) -> bytes:
    """A calendar of these events, in folded lines."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//blackboard//demo//EN"]
    lines.append(f"X-WR-CALNAME:{name}")
    for one in events:
        lines += one
    lines.append("END:VCALENDAR")
    return "".join(map(_folded, lines)).encode()


def event(
    uid: str,
    title: str,
    *,
    start: str,
    end: str = "",
    length: str = "",
    rules: Sequence[str] = (),
    location: str = "",
) -> list[str]:
    """The lines of an event. `start` and `end` begin with their parameters: ":20240106T090000" or
    ";VALUE=DATE:20240106". `rules` are whole lines: RRULE, EXDATE, RECURRENCE-ID.
    """
    lines = ["BEGIN:VEVENT", f"UID:{uid}", "DTSTAMP:20240101T000000Z", f"DTSTART{start}"]
    lines += [f"DTEND{end}"] if end else []
    lines += [f"DURATION:{length}"] if length else []
    lines += [*rules, f"SUMMARY:{_text(title)}"]
    lines += [f"LOCATION:{_text(location)}"] if location else []
    return [*lines, "END:VEVENT"]


def _text(value: str) -> str:
    return value.replace("\\", "\\\\").replace(";", "\\;").replace(",", "\\,")


def _folded(line: str) -> str:
    pieces = [line[start : start + _WIDTH] for start in range(0, len(line), _WIDTH)]
    return "\r\n ".join(pieces) + "\r\n"
