"""The zones that feeds mean by the names that they write.

`known_zone` knows a zone for sure: an IANA name or one of Windows, in any case, also at the end of
a vendor's path. `guessed_zone` knows besides what people and programs write instead: the names that
Windows and Rails show (`(UTC-05:00) Eastern Time (US & Canada)`), abbreviations, offsets, and IANA
names that are misspelled (`US-Eastern`, `Europe_London`) or have a remark behind them. A zone that
a feed defines itself comes between the two.

Several continents have an Eastern or a Central Time. A place beside such a name decides. Where the
place is not known, the name means North America only if its offset says so, too.

An abbreviation is the zone of its clocks, the whole year: many write EST, or PST, in summer too. An
offset is a zone whose clocks never change.
"""

import re
from datetime import datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from icalendar.timezone.windows_to_olson import WINDOWS_TO_OLSON

_ESCAPED = re.compile(r"\\(.)")
_LOOK_ALIKES = str.maketrans(
    {"\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-", "\u2212": "-", "\u200b": ""}
)
"""Other dashes than that of offsets, and a space of no width."""
_UTC = frozenset({"z", "utc", "gmt", "etc/utc", "etc/gmt", "zulu"})
_NONE = frozenset({"localtime", "factory", "posixrules", "est"})
"""Names of no zone, or of another one on each host. EST is one, but meant otherwise."""
_OFFSET = re.compile(r"(?:UTC|GMT|Z)?\s*([+-])(\d{1,2})(?:[:.]?(\d\d))?", re.IGNORECASE)
_SHOWN = re.compile(r"\((?:UTC|GMT)\s*([+-]\d\d?(?:[:.]?\d\d)?)?\)\s*(.*)", re.IGNORECASE)
_TIME = re.compile(r"(?: standard| daylight| summer)? time$")
_TIME_OF = re.compile(r"(?:(?: standard| daylight| summer)? time)?(?= \()")
_STATES = r"(?:USA?|U\.S\.(?:A\.)?|United States(?: of America)?|North America)"
_COUNTRY = re.compile(
    rf"(?:\s*\(|\s+-\s+)(?:(?:{_STATES}|Canada|{_STATES}\s*(?:&|&amp;|and|,|/)\s*Canada)(?:\)|$)"
    r"|US\s*&(?:amp)?$)",
    re.IGNORECASE,
)
"""A semicolon as in `&amp;` ends a parameter."""
_GROUPS = re.compile(r"\s+[:-]\s+|\s*[()]\s*")
_PARTS = re.compile(r"\s*[,;]\s*|\s+/\s+")
_NUMBERED = re.compile(r"(?<=time)\s+\d$", re.IGNORECASE)
"""Exchange's number of a second zone of one name."""
_ABBREVIATED = {
    "EST EDT ET": "America/New_York",
    "CST CDT CT": "America/Chicago",
    "MDT MT": "America/Denver",
    "PST PDT PT": "America/Los_Angeles",
    "AKST AKDT": "America/Anchorage",
    "AST ADT": "America/Halifax",
    "NST NDT": "America/St_Johns",
    "BST": "Europe/London",
    "WEST": "WET",
    "CEST MEZ MESZ": "CET",
    "EEST": "EET",
    "MSK": "Europe/Moscow",
    "JST": "Asia/Tokyo",
    "KST": "Asia/Seoul",
    "HKT": "Asia/Hong_Kong",
    "SGT": "Asia/Singapore",
    "SAST": "Africa/Johannesburg",
    "AEST AEDT": "Australia/Sydney",
    "ACST ACDT": "Australia/Adelaide",
    "AWST": "Australia/Perth",
    "NZST NZDT": "Pacific/Auckland",
}
_ABBREVIATIONS = {short: zone for shorts, zone in _ABBREVIATED.items() for short in shorts.split()}
_SHORT = _ABBREVIATIONS.keys() | {"MST", "HST", "CET", "EET", "MET", "WET", "UTC", "GMT"}
_TIMES = {
    "eastern": "America/New_York",
    "central": "America/Chicago",
    "mountain": "America/Denver",
    "pacific": "America/Los_Angeles",
    "atlantic": "America/Halifax",
    "greenwich mean": "Europe/London",
}
"""What several places, or continents, call a time of theirs, and whose it is without a place."""
_ELSEWHERE = frozenset({"australia", "brazil", "colombia", "ecuador", "honduras", "mexico", "peru"})
"""Countries that have such times and that no zone is named after."""
_OTHER_NAMES = {
    "alaska": "America/Anchorage",
    "arizona": "America/Phoenix",
    "hawaii": "Pacific/Honolulu",
    "indiana (east)": "America/Indiana/Indianapolis",
    "saskatchewan": "America/Regina",
    "newfoundland": "America/St_Johns",
    "aleutian islands": "America/Adak",
    "baja california": "America/Tijuana",
    "saint pierre and miquelon": "America/Miquelon",
    "lord howe island": "Australia/Lord_Howe",
    "norfolk island": "Pacific/Norfolk",
    "edinburgh": "Europe/London",
    "bern": "Europe/Zurich",
    "wellington": "Pacific/Auckland",
    "coordinated universal time": "UTC",
    "british summer time": "Europe/London",
    "us/pacific-new": "America/Los_Angeles",
    "canada/east-saskatchewan": "America/Regina",
}
"""Names that Windows, Rails and Google show and that are no cities of the tz database, and two that
it had.
"""
_DIRECTIONS = frozenset({"north", "south", "west"})
"""They end names of Australia, but are parts of many regions."""
_OLD_WINDOWS = {
    "kamchatka standard time": "Asia/Kamchatka",
    "mid-atlantic standard time": "Etc/GMT+2",
}
_BETWEEN_HOURS = {
    -570: "Pacific/Marquesas",
    210: "Asia/Tehran",
    270: "Asia/Kabul",
    330: "Asia/Kolkata",
    345: "Asia/Kathmandu",
    390: "Asia/Yangon",
    525: "Australia/Eucla",
    570: "Australia/Darwin",
}
"""Zones without summer time, by their minutes east of Greenwich."""
_PATHS = ("/", "posix/", "right/")
"""How the paths of vendors begin, and those of the tz database."""
_LONGEST = 300
"""Characters of the longest name that is looked for."""
_WEST, _EAST = -12, 14
_SEASONS = (datetime(2026, 1, 1), datetime(2026, 7, 1))  # noqa: DTZ001 - of either half of the globe


def zone_name(text: str) -> str:
    """A TZID, normalized: as text it escapes its commas, as a parameter it does not."""
    plain = _ESCAPED.sub(r"\1", text).translate(_LOOK_ALIKES)
    return " ".join(plain.strip().strip("\"',; ").split())


@cache
def known_zone(name: str) -> str:
    """The IANA name of a zone, or ""."""
    name = zone_name(name).lower()
    if len(name) > _LONGEST:
        return ""
    if name in _UTC:
        return "UTC"
    if name in _windows():
        return _windows()[name]
    is_path = name.startswith(_PATHS) or "://" in name
    parts = name.strip("/").split("/")
    for start in range(len(parts) if is_path else 1):
        tail = "/".join(parts[start:])
        zone = "UTC" if start and tail in _UTC else _spellings().get(tail.replace(" ", "_"))
        if zone:
            return zone
    return ""


@cache
def guessed_zone(name: str) -> str:
    """The IANA name of the zone that is probably meant, or ""."""
    name = zone_name(name)
    if len(name) > _LONGEST:
        return ""
    short = (name.rpartition("/")[2] if name.startswith(_PATHS) else name).upper()
    if short in _ABBREVIATIONS:
        return _ABBREVIATIONS[short]
    if known_zone(name):
        return known_zone(name)
    if offset := _OFFSET.fullmatch(name):
        return _fixed(_minutes(offset))
    shown = _SHOWN.fullmatch(name)
    if shown is None:
        return _by_words(name, None)
    offset = _OFFSET.fullmatch(shown[1] or "+0")
    minutes = _minutes(offset) if offset else 0
    zone = _by_words(shown[2], minutes) or _by_words(shown[2].replace("/", ","), minutes)
    return zone or _fixed(minutes)


def zone_behind(text: str) -> str:
    """The zone that stands behind a time, or "": an abbreviation in capitals, an offset, or an IANA
    name with a slash. Other words, also names of cities, are the text of a broken line.
    """
    name = zone_name(text)
    is_short = name in _SHORT or name.lower() in _UTC
    if is_short or _OFFSET.fullmatch(name):
        return guessed_zone(name)
    return known_zone(name) if "/" in name else ""


def _by_words(words: str, minutes: int | None) -> str:
    """The zone of what Windows, Rails or Google shows: places, or a name of a time, or both. Where
    an offset is shown, it is that of the zone in winter. The places that are last, behind a dash or
    in brackets, are the nearest; of places beside each other, the first is meant.
    """
    named = _NUMBERED.sub("", words).strip().lower()
    bare = _COUNTRY.sub("", named).strip()
    is_whole = bool(_place(bare))
    groups = [[bare]] if is_whole else [_PARTS.split(part) for part in _GROUPS.split(bare) if part]
    parts = [part for group in reversed(groups) for part in group]
    find = _place if bare == named else _place_or_time
    places = [zone for part in parts if (zone := find(part))]
    for place in places:
        if minutes is None or _in_winter(place) == minutes:
            return place
    times = [zone for part in parts if (zone := _time(part))]
    if places or not times or not _ELSEWHERE.isdisjoint(parts):
        return ""
    if minutes is not None:
        return times[-1] if _in_winter(times[-1]) == minutes else ""
    offsets = [_minutes(offset) for part in parts if (offset := _OFFSET.fullmatch(part))]
    if offsets:
        return times[-1] if offsets[0] in _offsets(times[-1]) else _fixed(offsets[0])
    return times[-1] if all(any(map(_time, group)) for group in groups) else ""


def _place(part: str) -> str:
    """The zone of a city, a region or a country, also as an IANA name that has other signs in place
    of its slashes, or DST behind it.
    """
    bare = _TIME.sub("", part)
    if bare in _TIMES or part.upper() in _SHORT:
        return ""
    slashes = (part.replace("_", "/", most) for most in (1, 2))
    spelled = map(known_zone, (part.removesuffix(" dst"), part.replace("-", "/"), *slashes))
    return (
        _OTHER_NAMES.get(part)
        or _OTHER_NAMES.get(bare)
        or _windows().get(f"{bare} standard time")
        or _windows().get(_TIME_OF.sub(" standard time", part, count=1))
        or _cities().get(part.replace(". ", " ").replace(" ", "_"))
        or next(filter(None, spelled), "")
    )


def _time(part: str) -> str:
    """The zone of a time that several places have, such as Eastern Time or CST; or that has two
    names, in winter and in summer, CET/CEST.
    """
    bare = _TIME.sub("", part)
    if bare in _TIMES:
        return _TIMES[bare]
    if part.upper() in _SHORT:
        return guessed_zone(part)
    first, *more = {guessed_zone(name) for name in part.split("/")} if "/" in part else {""}
    return "" if more else first


def _place_or_time(part: str) -> str:
    return _place(part) or _time(part)


def _minutes(offset: re.Match[str]) -> int:
    """Minutes east of Greenwich."""
    minutes = int(offset[2]) * 60 + int(offset[3] or 0)
    return -minutes if offset[1] == "-" else minutes


def _fixed(minutes: int) -> str:
    hours, more = divmod(minutes, 60)
    if more or not _WEST <= hours <= _EAST:
        return _BETWEEN_HOURS.get(minutes, "")
    return f"Etc/GMT{-hours:+d}" if hours else "UTC"


def _in_winter(zone: str) -> int:
    """Minutes east of Greenwich without summer time."""
    return min(_offsets(zone))


def _offsets(zone: str) -> list[int]:
    """Minutes east of Greenwich in January and in July."""
    offsets = (day.replace(tzinfo=ZoneInfo(zone)).utcoffset() for day in _SEASONS)
    return [offset // timedelta(minutes=1) for offset in offsets if offset is not None]


@cache
def _cities() -> dict[str, str]:
    """Zones by the last part of their names."""
    regions = ("Africa/", "America/", "Asia/", "Atlantic/", "Australia/", "Europe/", "Pacific/")
    zones = sorted(zone for zone in available_timezones() if zone.startswith(regions))
    cities = {zone.rpartition("/")[2].lower(): zone for zone in reversed(zones)}
    return {city: zone for city, zone in cities.items() if city not in _DIRECTIONS}


def zone_of_days(calendar: str, city: str) -> str:
    """The zone in which the days of a feed begin: its own, unless that is UTC, which many programs
    write by default, or an offset that the city's has, too; else the city's.
    """
    ours = guessed_zone(calendar)
    if ours.startswith("Etc/") and _in_winter(ours) == _in_winter(city):
        return city
    return ours if ours and ours != "UTC" else city


@cache
def _spellings() -> dict[str, str]:
    return {name.lower(): name for name in available_timezones() if name.lower() not in _NONE}


@cache
def _windows() -> dict[str, str]:
    return _OLD_WINDOWS | {name.lower(): zone for name, zone in WINDOWS_TO_OLSON.items()}
