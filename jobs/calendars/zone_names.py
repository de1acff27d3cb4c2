"""The zones that feeds mean by the names that they write.

`known_zone` knows a zone for sure: an IANA name or one of Windows, in any case, also at the end of
a vendor's path. `guessed_zone` knows besides what people and programs write instead: the names that
Windows and Rails show (`(UTC-05:00) Eastern Time (US & Canada)`), abbreviations, offsets, and IANA
names that are misspelled (`US-Eastern`, `Europe_London`) or have a remark behind them. A zone that
a feed defines itself comes between the two.

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
_COUNTRY = re.compile(
    r"\s*\((?:(?:US|USA|Canada|US\s*(?:&|&amp;|and|,)\s*Canada)\)|US\s*&(?:amp)?$)", re.IGNORECASE
)
"""A semicolon as in `&amp;` ends a parameter."""
_BETWEEN = re.compile(r"\s*[,;]\s*|\s+[/:-]\s+")
_REMARK = re.compile(r"\s*\([^()]*\)$|(?<=time)\s+\d$")
"""What stands behind a name: another name in brackets, or Exchange's number of a second one."""
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
_OTHER_NAMES = {
    "alaska": "America/Anchorage",
    "arizona": "America/Phoenix",
    "hawaii": "Pacific/Honolulu",
    "indiana (east)": "America/Indiana/Indianapolis",
    "saskatchewan": "America/Regina",
    "newfoundland": "America/St_Johns",
    "coordinated universal time": "UTC",
    "greenwich mean time": "Europe/London",
    "british summer time": "Europe/London",
    "us/pacific-new": "America/Los_Angeles",
    "canada/east-saskatchewan": "America/Regina",
}
"""Names that Windows and Rails show and that are no cities, and two that the tz database had."""
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
        found = "UTC" if start and tail in _UTC else _spellings().get(tail.replace(" ", "_"))
        if found:
            return found
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
        return _by_words(name)
    offset = _OFFSET.fullmatch(shown[1] or "+0")
    minutes = _minutes(offset) if offset else 0
    found = _by_words(shown[2]) or _by_words(shown[2].replace("/", ","))
    return found if found and _in_winter(found) == minutes else _fixed(minutes)


def _by_words(words: str) -> str:
    """The zone of what Windows or Rails shows: a name, or cities."""
    words = _COUNTRY.sub("", words).strip().lower()
    if words in _OTHER_NAMES:
        return _OTHER_NAMES[words]
    for one in _BETWEEN.split(words):
        named = _windows().get(f"{_TIME.sub('', one)} standard time")
        found = named or _cities().get(one.replace(" ", "_"))
        if found:
            return found
    return _respelled(words)


def _respelled(words: str) -> str:
    """The zone of a name with DST or a remark behind it, or with dashes or underscores in place of
    its slashes; or of the names that one zone has in winter and in summer, CET/CEST.
    """
    bare = _REMARK.sub("", words)
    if bare != words and not bare.endswith(")"):
        return guessed_zone(bare)
    slashes = (words.replace("_", "/", most) for most in (1, 2))
    for name in (words.removesuffix(" dst"), words.replace("-", "/"), *slashes):
        if known_zone(name):
            return known_zone(name)
    first, *more = {guessed_zone(one) for one in words.split("/")} if "/" in words else {""}
    return "" if more else first


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
    offsets = (day.replace(tzinfo=ZoneInfo(zone)).utcoffset() for day in _SEASONS)
    return min(one // timedelta(minutes=1) for one in offsets if one is not None)


@cache
def _cities() -> dict[str, str]:
    """Zones by the last part of their names."""
    regions = ("Africa/", "America/", "Asia/", "Atlantic/", "Australia/", "Europe/", "Pacific/")
    found = sorted(one for one in available_timezones() if one.startswith(regions))
    return {one.rpartition("/")[2].lower(): one for one in reversed(found)}


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
