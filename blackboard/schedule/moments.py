"""Times as people write them: 2026-11-21T09:00, "tomorrow 05:00", "in 2h", "3d ago", "now".

A time of day without an offset is wall time in a zone. A day alone begins at midnight.
"""

import re
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from blackboard.errors import BadInput
from blackboard.model import whole_milliseconds
from blackboard.schedule.durations import parse_duration
from blackboard.schedule.zones import find_zone, first_shown

EARLIEST, LATEST = 1000, 9000
"""Years that a time lies between."""
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_DAY = re.compile(rf"({'|'.join(_DAYS)})(?:\s+(?:at\s+)?(\d{{1,2}}):(\d\d))?")
_DATE = re.compile(r"\d{4}-?\d\d-?\d\d")
_REMEDY = "write 2026-11-21T09:00, with +01:00 or Z at the end unless it is in the item's zone"
_WORDS = "write 2026-11-21T09:00, tomorrow 05:00, in 2h or 2h ago"


def read_moment(text: str, zone: str, field: str) -> datetime:
    """An ISO 8601 time; without an offset it is wall time in `zone`. Raises BadInput."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise BadInput(field, f"{text[:60]!r} is no time", _REMEDY) from None
    return in_zone(moment, zone, field, text=text)


def last_moment(text: str, zone: str, field: str) -> datetime:
    """An ISO 8601 time as the end of a schedule: a day alone is included. Raises BadInput."""
    moment = read_moment(text, zone, field)
    if _DATE.fullmatch(text.strip()):
        following = datetime.fromisoformat(text.strip()) + timedelta(days=1)
        moment = in_zone(following, zone, field) - timedelta(milliseconds=1)
    return whole_milliseconds(moment.astimezone(UTC))


def in_zone(moment: datetime, zone: str, field: str, *, text: str = "") -> datetime:
    """`moment`, as wall time in `zone` where it has no offset. Raises BadInput with its `text`."""
    if not EARLIEST < moment.year < LATEST:
        raise BadInput(field, f"{(text or str(moment))!r} is too far away", _REMEDY)
    return moment if moment.tzinfo else first_shown(moment, find_zone(zone))


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
    distance = _distance(words, is_past=is_past)
    if distance is not None:
        return whole_milliseconds(now + distance)
    try:
        return whole_milliseconds(read_moment(text, zone, field))
    except BadInput as problem:
        raise BadInput(field, problem.problem, _WORDS) from None


def _on_day(found: re.Match[str], zone: ZoneInfo, field: str, now: datetime) -> datetime:
    day = now.astimezone(zone).date() + timedelta(days=_DAYS[found[1]])
    try:
        of_day = time(int(found[2] or 0), int(found[3] or 0))
    except ValueError:
        raise BadInput(field, f"{found[0]!r} is no time", "00:00 to 23:59") from None
    return first_shown(datetime.combine(day, of_day), zone)


def _distance(words: str, *, is_past: bool) -> timedelta | None:
    """From now; None if it is no duration."""
    bare = words.removeprefix("in ").removesuffix(" ago")
    try:
        duration = parse_duration(bare)
    except BadInput:
        return None
    return -duration if words.endswith(" ago") or (is_past and bare == words) else duration
