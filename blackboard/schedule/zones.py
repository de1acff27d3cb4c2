"""Time zones: their names, and how wall times map to instants.

A wall clock shows most times once. When it is put forward, the times it jumps over are never shown
(a gap); when it is put back, some are shown twice (a fold). PEP 495 distinguishes the three: with
`fold=0` a wall time has the offset from before the nearest change, with `fold=1` the one from after
it. Equal: shown once. Smaller before than after: in a gap. Larger: shown twice.

In no zone of the tz database do two changes of the offset lie within three days of each other, and
none is larger than a day; so these functions consider one change at a time.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from blackboard.errors import BadInput

_SECOND = timedelta(seconds=1)
_HOST_NAMES = ("localtime", "posixrules", "posix/", "right/")
"""Names that only some hosts have, with another meaning on each, or with leap seconds."""
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(?:00|(\d\d)))?", re.IGNORECASE | re.ASCII)
_NAME = "write an IANA name such as Europe/Berlin or UTC"


@lru_cache(maxsize=1024)
def find_zone(name: str) -> ZoneInfo:
    """The IANA zone of that name.

    Raises BadInput("timezone") with close names as the remedy.
    """
    try:
        if name.startswith(_HOST_NAMES):
            raise ValueError(name)
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        problem = f"there is no zone {name[:60]!r}"
        raise BadInput("timezone", problem, _names_like(name)) from None


def first_shown(wall: datetime, zone: ZoneInfo) -> datetime:
    """The first instant (UTC) at which the clock shows `wall` (naive) or has jumped past it: its
    first showing, or the end of the gap that it lies in. Never falls as `wall` rises.
    """
    before, after = _offsets(wall, zone)
    if before >= after:
        return (wall - before).replace(tzinfo=UTC)
    wall = wall.replace(microsecond=0)
    return next_change(
        zone, (wall - after).replace(tzinfo=UTC), (wall - before).replace(tzinfo=UTC)
    )


def showings(wall: datetime, zone: ZoneInfo) -> tuple[datetime, ...]:
    """Every instant (UTC) at which the clock shows `wall` (naive): none, one or two, in order."""
    before, after = _offsets(wall, zone)
    if before == after:
        return ((wall - before).replace(tzinfo=UTC),)
    if before < after:
        return ()
    return (wall - before).replace(tzinfo=UTC), (wall - after).replace(tzinfo=UTC)


def replay_after(local: datetime) -> datetime | None:
    """When the clock is put back, if `local` (in its zone) will be shown again; else None."""
    zone, now, again = local.tzinfo, local.utcoffset(), local.replace(fold=1).utcoffset()
    assert isinstance(zone, ZoneInfo)
    assert now is not None
    assert again is not None
    if now <= again:
        return None
    start = local.astimezone(UTC).replace(microsecond=0)
    return next_change(zone, start, start + (now - again))


def next_change(zone: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """The instant in (low, high] from which the offset is that at `high`. Both are UTC in whole
    seconds, and lie on two sides of one change.
    """
    new = high.astimezone(zone).utcoffset()
    while high - low > _SECOND:
        middle = low + (high - low) // _SECOND // 2 * _SECOND
        if middle.astimezone(zone).utcoffset() == new:
            high = middle
        else:
            low = middle
    return high


def _offsets(wall: datetime, zone: ZoneInfo) -> tuple[timedelta, timedelta]:
    before = wall.replace(tzinfo=zone, fold=0).utcoffset()
    after = wall.replace(tzinfo=zone, fold=1).utcoffset()
    assert before is not None
    assert after is not None
    return before, after


@lru_cache(maxsize=1024)
def _names_like(name: str) -> str:
    """A remedy: the zones whose names, or last parts of names, are close to `name`."""
    import difflib  # noqa: PLC0415 - only when a name is wrong
    import zoneinfo  # noqa: PLC0415

    zones = sorted(zoneinfo.available_timezones() - set(_HOST_NAMES))
    by_lower = {zone.lower(): zone for zone in zones}
    offset = _OFFSET.fullmatch(name[:60].strip())
    if offset and (hours := int(offset[2])):
        east, sign = ("east", "-") if offset[1] == "+" else ("west", "+")
        zone = f"Etc/GMT{sign}{hours}"
        if zone not in zones or offset[3]:
            return _NAME
        unit = "hour" if hours == 1 else "hours"
        return f"write {zone}, which is {hours} {unit} {east} of Greenwich, or the zone of a city"
    cities = {zone.rpartition("/")[2]: zone for zone in by_lower}
    asked = name[:60].strip().lower().replace(" ", "_")
    close = [by_lower[zone] for zone in difflib.get_close_matches(asked, by_lower, 3, 0.75)]
    close += [by_lower[cities[city]] for city in difflib.get_close_matches(asked, cities, 2, 0.8)]
    if asked in by_lower:
        close = [by_lower[asked]]
    if close:
        return "did you mean " + " or ".join(dict.fromkeys(close)) + "?"
    return _NAME
