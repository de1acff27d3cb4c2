"""The text of a recurrence: its canonical lines, and every part of a rule checked.

dateutil reads more than it should (INTERVAL=0, BYMONTH=13, 1MO in a daily rule) and then yields
nothing, or nonsense, or never returns. So whatever it is given has passed through here.
"""

import re
from datetime import UTC, datetime, timedelta
from math import prod
from zoneinfo import ZoneInfo

from blackboard.errors import BadInput
from blackboard.schedule.zones import first_shown

STEPS = {
    "SECONDLY": timedelta(seconds=1),
    "MINUTELY": timedelta(minutes=1),
    "HOURLY": timedelta(hours=1),
    "DAILY": timedelta(days=1),
    "WEEKLY": timedelta(weeks=1),
}
MONTHS = {"MONTHLY": 1, "YEARLY": 12}
MOST_COUNTED = 10_000
PROPERTIES = ("DTSTART", "RRULE", "RDATE", "EXDATE")
BELOW_A_DAY = ("SECONDLY", "MINUTELY", "HOURLY")
MOST_TIMES = 1440
MOST_POSITIONS = 31
"""What one period may hold: dateutil goes through all of it, whatever is asked for."""

_TIME_PARTS = ("BYSECOND", "BYMINUTE", "BYHOUR")
_NUMBERS = {
    "INTERVAL": (1, 1_000_000),
    "COUNT": (1, MOST_COUNTED),
    "BYSECOND": (0, 59),
    "BYMINUTE": (0, 59),
    "BYHOUR": (0, 23),
    "BYMONTH": (1, 12),
    "BYMONTHDAY": (-31, 31),
    "BYYEARDAY": (-366, 366),
    "BYWEEKNO": (-53, 53),
    "BYSETPOS": (-366, 366),
}
"""The least and greatest number of each part; where negative ones are allowed, 0 is not."""
_NUMBER = re.compile(r"[+-]?[0-9]{1,7}")
_WEEKDAY = re.compile(r"([+-]?[1-9][0-9]?)?(?:MO|TU|WE|TH|FR|SA|SU)")
_WEEK_START = re.compile(r"MO|TU|WE|TH|FR|SA|SU")
_TIME = re.compile(r"([0-9]{8})(?:T([0-9]{6})(Z?))?")
_FOLDED = re.compile(r"\n[ \t](?!\s*(?:DTSTART|RRULE|RDATE|EXDATE|EXRULE|FREQ=))", re.IGNORECASE)
"""Where RFC 5545 breaks a long line, as against a line that somebody indented."""


def canonical_lines(text: str) -> list[str]:
    """The canonical lines of a text: unfolded, in capitals where case means nothing."""
    text = text.replace("\\n", "\n").replace("\r\n", "\n").strip()
    lines = []
    for line in _FOLDED.sub("", text).split("\n"):
        head, colon, value = line.strip().rpartition(":")
        name, semicolon, parameters = head.partition(";")
        lines.append(name.upper() + semicolon + parameters + colon + value.upper())
    lines = [line for line in lines if line]
    if len(lines) == 1:
        return [lines[0].removeprefix("RRULE:")]
    return [f"RRULE:{line}" if line.startswith("FREQ=") else line for line in lines]


def zone_in(text: str) -> str | None:
    """The TZID of DTSTART, if it has one: the zone of a rule whose zone nobody says."""
    for line in canonical_lines(text):
        name, *parameters = line.rpartition(":")[0].split(";")
        for parameter in parameters if name == "DTSTART" else ():
            key, _, given = parameter.partition("=")
            if key.upper() == "TZID":
                return given
    return None


def read_property(line: str, zone_name: str) -> tuple[str, str]:
    """The name and the value of a line, its parameters checked."""
    head, _, value = line.rpartition(":")
    name, *parameters = (head or "RRULE").split(";")
    if name not in PROPERTIES:
        raise refusal(f"{name[:40]!r} is not known", "use " + ", ".join(PROPERTIES))
    for parameter in parameters:
        key, _, given = parameter.partition("=")
        if key.upper() == "TZID" and given != zone_name:
            remedy = f"make {given} the timezone, or leave TZID out"
            raise refusal(f"{name} is in {given!r}, the item in {zone_name!r}", remedy)
        if key.upper() != "TZID" and parameter.upper() not in {"VALUE=DATE", "VALUE=DATE-TIME"}:
            raise refusal(f"{parameter[:40]!r} of {name} is not known", "leave it out")
    return name, value


def read_parts(text: str) -> dict[str, str]:
    """The parts of an RRULE, each of them checked, and WKST always among them."""
    parts: dict[str, str] = {}
    for part in text.strip(";").split(";"):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name in parts:
            raise refusal(f"{name} is there twice", "leave one")
        parts[name] = value
        if name in _NUMBERS:
            _check_numbers(name, value)
        elif name not in {"FREQ", "UNTIL", "BYDAY", "WKST"}:
            raise refusal(f"{name[:40]!r} is no part of a rule", "see RFC 5545, section 3.3.10")
    parts.setdefault("WKST", "MO")
    frequency = parts.get("FREQ", "")
    if frequency not in STEPS and frequency not in MONTHS:
        raise refusal(f"FREQ={frequency} is not known", "use " + ", ".join([*STEPS, *MONTHS]))
    if not _WEEK_START.fullmatch(parts["WKST"]):
        raise refusal(f"WKST={parts['WKST']} is no weekday", "use MO, TU, WE, TH, FR, SA, SU")
    for weekday in parts["BYDAY"].split(",") if "BYDAY" in parts else ():
        found = _WEEKDAY.fullmatch(weekday)
        if found is None or (found[1] and frequency not in MONTHS):
            raise refusal(
                f"BYDAY={weekday} cannot be read with FREQ={frequency}",
                "use MO, TU, WE, TH, FR, SA, SU; 1MO or -1FR with MONTHLY and YEARLY only",
            )
    _check_size(parts, frequency)
    return parts


def _check_numbers(name: str, value: str) -> None:
    least, greatest = _NUMBERS[name]
    numbers = value.split(",") if name.startswith("BY") else [value]
    for number in numbers:
        allowed = _NUMBER.fullmatch(number) and least <= int(number) <= greatest
        if not allowed or (least < 0 and int(number) == 0):
            remedy = f"{least} to {greatest}" + (", not 0" if least < 0 else "")
            raise refusal(f"{name}={number[:40]} is out of bounds", remedy)


def _check_size(parts: dict[str, str], frequency: str) -> None:
    """Refuse what dateutil could read but not expand in time. A BYSETPOS that no period has would
    be looked for minute by minute.
    """
    below = BELOW_A_DAY.index(frequency) if frequency in BELOW_A_DAY else None
    multiplying = _TIME_PARTS[:below]
    times = prod(len(set(_numbers(parts[name]))) for name in multiplying if name in parts)
    if times > MOST_TIMES:
        raise refusal(f"{times} times in one period are too many", "use a shorter FREQ")
    positions = _numbers(parts["BYSETPOS"]) if "BYSETPOS" in parts else [1]
    if len(positions) > MOST_POSITIONS:
        raise refusal(f"{len(positions)} positions are too many", f"at most {MOST_POSITIONS}")
    if frequency in BELOW_A_DAY and min(abs(position) for position in positions) > times:
        raise refusal(f"BYSETPOS is beyond the {times} times of a period", "use a smaller one")


def _numbers(value: str) -> list[int]:
    return [int(number) for number in value.split(",")]


def read_time(text: str) -> tuple[datetime, bool]:
    """A naive time, and whether it ends in Z."""
    remedy = "write it like 20261231T235900, with a Z at the end for UTC"
    found = _TIME.fullmatch(text)
    if found is None:
        raise refusal(f"{text[:40]!r} is no time", remedy)
    try:
        time = datetime.strptime(found[1] + (found[2] or "000000"), "%Y%m%d%H%M%S")  # noqa: DTZ007
    except ValueError:
        raise refusal(f"{text!r} does not exist", remedy) from None
    if not 1000 < time.year < 9000:
        raise refusal(f"{text!r} is too far away", remedy)
    return time, bool(found[3])


def read_instant(text: str, zone: ZoneInfo) -> datetime:
    time, in_utc = read_time(text)
    return time.replace(tzinfo=UTC) if in_utc else first_shown(time, zone)


def refusal(problem: str, remedy: str) -> BadInput:
    return BadInput("rrule", problem, remedy)
