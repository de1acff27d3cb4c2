"""Damages feeds, by a seed always in the same way, as servers, people and attackers damage them."""

import random
import re
from collections.abc import Callable, Iterable

MOMENTS = [
    *("00010101T000000Z", "00010101", "99991231T235959Z", "99991231", "00000000T000000Z"),
    *("19691231T235959", "19700101T000000Z", "20260901T180000Z", "20260901", "20260230"),
    *("20261101T013000", "20260308T023000", "20260901T240000", "99991231T240000"),
    *("00010101T000000+1400", "99991231T235959-1200", "20260901T180000Z/PT1H", "2026-09-01", ""),
    *("-00010101", "20260901T180000Zabc", "20260901T180000Z,20260902T180000Z", "1e9", "\u0663"),
]
RULES = [
    *("FREQ=DAILY", "FREQ=SECONDLY", "FREQ=WEEKLY;BYDAY=MO,XX", "FREQ=YEARLY;BYMONTH=13", "FREQ="),
    *("FREQ=DAILY;INTERVAL=999999999", "FREQ=YEARLY;INTERVAL=9998", "FREQ=MONTHLY;BYMONTHDAY=31"),
    *("FREQ=DAILY;COUNT=-1", "FREQ=DAILY;COUNT=99999999999999999999", "FREQ=DAILY;UNTIL=00010101"),
    *("FREQ=WEEKLY;UNTIL=99991231T235959Z", "FREQ=YEARLY;BYEASTER=1", "COUNT=1", ";;;", "\x00"),
    *("FREQ=DAILY;BYSETPOS=-1;BYHOUR=1,2,3", "FREQ=WEEKLY;WKST=MO;BYDAY=-5MO"),
]
LENGTHS = ["PT1H", "P1D", "-P1D", "P99999999999999999999D", "P3000000D", "PT", "P", "1 hour"]
ZONES = [
    *("America/New_York", "Pacific/Kiritimati", "Nowhere", "feed-zone-0", "(UTC-05:00) X", '"'),
    *("Etc/GMT+12", "../../etc/passwd", "Our time", ""),
]
WORDS = ["\ud800", "&#xD800;", "<b>", "\\", "\\n", ";", ",", '"', "\x85", "\u2028", "x" * 5000, ""]
DATES = ("DTSTART", "DTEND", "RECURRENCE-ID", "RDATE", "EXDATE")

Damage = Callable[[random.Random, list[str]], None]


def _date(chance: random.Random, lines: list[str]) -> None:
    name, moment = chance.choice(DATES), chance.choice(MOMENTS)
    params = chance.choice(["", ";VALUE=DATE", ";VALUE=PERIOD", f";TZID={chance.choice(ZONES)}"])
    _set(chance, lines, name, f"{name}{params}:{moment}")


def _rule(chance: random.Random, lines: list[str]) -> None:
    name = chance.choice(["RRULE", "RRULE", "EXRULE"])
    _set(chance, lines, name, f"{name}:{chance.choice(RULES)}")


def _length(chance: random.Random, lines: list[str]) -> None:
    _set(chance, lines, "DURATION", f"DURATION:{chance.choice(LENGTHS)}")


def _word(chance: random.Random, lines: list[str]) -> None:
    name = chance.choice(["SUMMARY", "LOCATION", "UID", "URL", "GEO", "IMAGE", "CLASS", "STATUS"])
    _set(chance, lines, name, f"{name}:{chance.choice(WORDS)}{chance.choice(WORDS)}")


def _set(chance: random.Random, lines: list[str], name: str, line: str) -> None:
    """In place of a line of that name, or as one more of some event."""
    places = [at for at, one in enumerate(lines) if re.match(rf"{name}\b", one)]
    if places and chance.random() < 0.8:
        lines[chance.choice(places)] = line
        return
    begins = [at for at, one in enumerate(lines) if one == "BEGIN:VEVENT"]
    if begins:
        lines.insert(chance.choice(begins) + 1, line)


def _remove(chance: random.Random, lines: list[str]) -> None:
    if lines:
        del lines[chance.randrange(len(lines))]


def _repeat(chance: random.Random, lines: list[str]) -> None:
    if lines:
        lines.insert(chance.randrange(len(lines)), chance.choice(lines))


def _glue(chance: random.Random, lines: list[str]) -> None:
    if len(lines) > 1:
        at = chance.randrange(len(lines) - 1)
        lines[at : at + 2] = [lines[at] + chance.choice(["", " ", "\\n"]) + lines[at + 1]]


def _tear(chance: random.Random, lines: list[str]) -> None:
    if lines:
        at = chance.randrange(len(lines))
        cut = chance.randrange(len(lines[at]) + 1)
        lines[at : at + 1] = [lines[at][:cut], chance.choice(["", " "]) + lines[at][cut:]]


def _cut(chance: random.Random, lines: list[str]) -> None:
    del lines[chance.randrange(len(lines) + 1) :]


def _number(chance: random.Random, lines: list[str]) -> None:
    """A digit somewhere is another one, or many."""
    places = [at for at, one in enumerate(lines) if re.search(r"\d", one)]
    if places:
        at = chance.choice(places)
        digit = chance.choice([*"0123456789", "9" * 12, "-"])
        found = chance.choice(list(re.finditer(r"\d", lines[at])))
        lines[at] = lines[at][: found.start()] + digit + lines[at][found.end() :]


DAMAGES: list[Damage] = [
    *(_date, _date, _date, _rule, _rule, _length, _word, _word),
    *(_remove, _repeat, _glue, _tear, _cut, _number, _number),
]


def damaged(chance: random.Random, feed: Iterable[str]) -> bytes:
    """The feed, given as lines, with one to six damages, in one of several encodings."""
    lines = list(feed)
    for _time in range(chance.randint(1, 6)):
        chance.choice(DAMAGES)(chance, lines)
    ending = chance.choice(["\r\n", "\r\n", "\n", "\r"])
    raw = ending.join(lines).encode(chance.choice(["utf-8", "utf-8", "utf-16"]), "surrogatepass")
    for _time in range(chance.choice([0, 0, 0, 3])):
        at = chance.randrange(len(raw) + 1)
        raw = raw[:at] + chance.randbytes(chance.randint(0, 3)) + raw[at + 1 :]
    return raw
