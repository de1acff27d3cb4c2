"""A schedule in words for people: "at 03:00 every day (Europe/Berlin)".

Describes the sets that an expression means, not its text, so that two spellings of one schedule
read alike. Without a short true description, the numbers are listed; a recurrence rule that is more
than times and days is quoted. Times are wall times; a zone is named unless it is UTC. What happens
at clock changes is not described.
"""

from collections.abc import Sequence
from datetime import timedelta

from blackboard.schedule.cron import Cron, Fields, read_fields
from blackboard.schedule.expansion import RULE_DAYS
from blackboard.schedule.limits import without_windows
from blackboard.schedule.rrule import ANCHOR, BREAK, RRule, read_parts
from blackboard.schedule.schedule import Every, Schedule
from blackboard.schedule.times import UNITS
from blackboard.schedule.zones import find_zone

NO_SCHEDULE = "none: it runs once, and again when it is requested"
"""The description of an item without a schedule."""
NOT_KNOWN = "not known here: the handler of its type, which may have one, is not found"
"""The description of an item without a schedule of its own that no worker of its type has run."""
_UNIT_NAMES = ("week", "day", "hour", "minute", "second", "millisecond")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August"),
    *("September", "October", "November", "December"),
)
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SIMPLE_PARTS = {"FREQ", "WKST", "BYMONTH", "BYMONTHDAY", "BYDAY", "BYHOUR", "BYMINUTE"}
_MOST_TIMES = 6
"""Times of the day that are listed one by one, at most."""


def describe(schedule: Schedule) -> str:
    """`schedule` in words, with its limits as they are written."""
    return _without_limits(schedule) + without_windows(schedule.limits.text)


def _without_limits(schedule: Schedule) -> str:
    zone = "" if schedule.zone == "UTC" else f" ({schedule.zone})"
    match schedule:
        case Every():
            return describe_duration(schedule.interval)
        case Cron():
            fields_of_each = map(read_fields, schedule.expression.split("; "))
            return "; ".join(map(_describe_fields, fields_of_each)) + zone
        case RRule():
            fields = _fields_of(schedule.rule)
            quoted = f"by the rule {schedule.rule.replace(BREAK, ' ')}"
            return (_describe_fields(fields) if fields else quoted) + zone
        case _:
            local = schedule.moment.astimezone(find_zone(schedule.zone))
            return f"once, at {local.replace(tzinfo=None).isoformat(' ')}{zone}"


def describe_duration(interval: timedelta) -> str:
    """An interval in words: "every hour", "every 1 day and 12 hours"."""
    words = duration_in_words(interval)
    return "every " + (words.removeprefix("1 ") if words.count(" ") == 1 else words)


def duration_in_words(duration: timedelta) -> str:
    """A duration in words: "5 minutes", "1 day and 12 hours"."""
    parts, rest = [], duration
    for name, unit in zip(_UNIT_NAMES, UNITS.values(), strict=True):
        if name != "week" or not duration % unit:
            number, rest = divmod(rest, unit)
            if number:
                parts.append(f"{number} {name}" + ("s" if number > 1 else ""))
    return _join(parts)


def _describe_fields(fields: Fields) -> str:
    times = _times(fields)
    days = _days(fields)
    if not days and times.startswith("at "):
        days = " every day"
    return times + days + _months(fields)


def _times(fields: Fields) -> str:
    minutes, hours = fields.minutes, fields.hours
    if len(hours) == 24:
        if len(minutes) == 1 and minutes[0]:
            return f"every hour at minute {minutes[0]}"
        return _often(minutes) or f"every hour at minutes {_list(minutes)}"
    if len(fields.times) <= _MOST_TIMES:
        return f"at {_join([_clock(time) for time in fields.times])}"
    if len(minutes) == 1 and _step(hours, 24):
        return f"every {_step(hours, 24)} hours from {_clock(fields.times[0])}"
    span = f"from {_clock(fields.times[0])} to {_clock(fields.times[-1])}"
    often = _often(minutes)
    if often and len(hours) == hours[-1] - hours[0] + 1:
        return f"{often} {span}"
    of_hours = f"of hour{'s' * (len(hours) > 1)} {_list(hours)}"
    if len(minutes) == 1:
        return f"at minute {minutes[0]} {of_hours}"
    return f"at minutes {_list(minutes)} {of_hours}"


def _days(fields: Fields) -> str:
    weekdays = [day for day in range(1, 8) if day % 7 in fields.weekdays]
    any_day, any_weekday = len(fields.days) == 31, len(weekdays) == 7
    names = _list(weekdays, _WEEKDAYS)
    numbers = ("day " if len(fields.days) == 1 else "days ") + _list(sorted(fields.days))
    if any_day and any_weekday:
        return ""
    if fields.day_and_weekday:
        if any_day:
            return f" on {names}"
        if any_weekday:
            return f" on {numbers} of the month"
        return f" on {numbers} of the month, but only on {names}"
    if any_day or any_weekday:
        return ""
    return f" on {numbers} of the month or on {names}"


def _months(fields: Fields) -> str:
    return "" if len(fields.months) == 12 else f" in {_list(sorted(fields.months), _MONTHS)}"


def _often(minutes: Sequence[int]) -> str:
    if len(minutes) == 1:
        return "every hour"
    step = _step(minutes, 60)
    return {0: "", 1: "every minute"}.get(step, f"every {step} minutes")


def _step(numbers: Sequence[int], whole: int) -> int:
    """The n for which `numbers` are 0, n, 2n up to `whole`, which n must divide; else 0."""
    step, rest = divmod(whole, len(numbers))
    return step if not rest and list(numbers) == list(range(0, whole, step)) else 0


def _list(numbers: Sequence[int], names: Sequence[str] = ()) -> str:
    """Numbers as "1, 5 to 9 and 12": three or more in a row by their ends. `names` start at 1."""
    rows: list[list[int]] = []
    for number in numbers:
        if rows and rows[-1][-1] == number - 1:
            rows[-1].append(number)
        else:
            rows.append([number])
    words = []
    for row in rows:
        spoken = [names[number - 1] if names else str(number) for number in row]
        words += spoken if len(row) < 3 else [f"{spoken[0]} to {spoken[-1]}"]
    return _join(words)


def _join(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def _fields_of(rule: str) -> Fields | None:
    """The cron fields of a rule that says no more than cron fields can, else None."""
    parts = {} if ":" in rule else read_parts(rule)
    frequency = parts.get("FREQ")
    weekdays = parts.get("BYDAY", "").split(",") if "BYDAY" in parts else []
    if (
        frequency not in {"DAILY", "WEEKLY", "MONTHLY"}
        or not _SIMPLE_PARTS.issuperset(parts)
        or not set(RULE_DAYS).issuperset(weekdays)
        or "-" in parts.get("BYMONTHDAY", "")
    ):
        return None

    def numbers(name: str, *otherwise: int) -> tuple[int, ...]:
        given = parts[name].split(",") if name in parts else otherwise
        return tuple(sorted({int(number) for number in given}))

    days, isoweekdays = numbers("BYMONTHDAY"), [RULE_DAYS.index(day) + 1 for day in weekdays]
    if not days and not isoweekdays:
        days = (ANCHOR.day,) if frequency == "MONTHLY" else ()
        isoweekdays = [ANCHOR.isoweekday()] if frequency == "WEEKLY" else []
    minutes, hours = numbers("BYMINUTE", 0), numbers("BYHOUR", 0)
    return Fields(
        minutes=minutes,
        hours=hours,
        days=frozenset(days or range(1, 32)),
        months=frozenset(numbers("BYMONTH", *range(1, 13))),
        weekdays=frozenset(day % 7 for day in isoweekdays or range(1, 8)),
        follows_clock=False,
        day_and_weekday=True,
        times=tuple(hour * 60 + minute for hour in hours for minute in minutes),
    )
