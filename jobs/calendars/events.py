"""Reads one VEVENT: its texts, its start and end, its rules, and its place in a series.

Texts are plain: without iCalendar's escapes, entities or tags of HTML. Feeds are made by web sites:
a title may be `Rock &amp; Roll` or `<b>Jazz</b>`. Only tags that HTML has are removed, so `Kids <
5` stays. Descriptions may be HTML and stay so. Addresses are those of the web; relative ones are
resolved against the feed's.

An event without a readable start is refused. An end, a rule, an exclusion or a RECURRENCE-ID that
cannot be read is left out, as is what is not followed of a rule, and reported in `mended`.
"""

import html
import re
import unicodedata
from dataclasses import dataclass, field
from datetime import time
from urllib.parse import urljoin, urlsplit, urlunsplit

from .addresses import meant, redacted
from .lines import ALL_DAY, CONTROL, Block, Line
from .records import Text
from .rules import Rule, end_beside, ended_in, tidy
from .times import LATEST, LONGEST, Length, Moment, Zones, length_of

_LONG, _SHORT = 32_000, 2_000
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_COMMA = re.compile(r"(?<!\\),")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_HIDDEN = re.compile(r"<(script|style)\b[^<>]*>.*?</\1\s*>|<!--.*?-->", re.IGNORECASE | re.DOTALL)
_BREAKING = re.compile(
    r"</?(?:address|article|blockquote|br|div|dd|dl|dt|h[1-6]|hr|li|ol|p|pre|section|table|tbody|td"
    r"|th|thead|tr|ul)\b(?:\s[^<>]*|\s*/)?>",
    re.IGNORECASE,
)
_INLINE = re.compile(
    r"</?(?:a|abbr|acronym|b|bdi|bdo|big|body|center|cite|code|data|del|dfn|em|figure|font|head|html"
    r"|i|iframe|img|input|ins|kbd|label|link|mark|meta|nobr|o:p|q|s|samp|script|small|span|strike"
    r"|strong|style|sub|sup|time|tt|u|var|wbr)\b(?:\s[^<>]*|\s*/)?>",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_HOST = re.compile(
    r"(?:www\.[a-z0-9.-]+|(?:[a-z0-9-]+\.)+(?:com|org|net|edu|gov|info|io|ca|uk|us))(?:[/?#]|$)",
    re.IGNORECASE,
)
_AT = re.compile(r"(?<=\s)@(?=\s|\w)")
_COORDINATES = re.compile(
    r"\s*([+-]?\d{1,3}(?:\.\d{1,20})?)\s*[;,]\s*([+-]?\d{1,3}(?:\.\d{1,20})?)\s*"
)
_PICTURE = re.compile(r"\.(?:avif|gif|jpe?g|png|svg|webp)$", re.IGNORECASE)


def text_of_vevent(block: Block, uid: str, base: str) -> Text:
    """The texts of a VEVENT. `base` is the address of its feed."""
    categories = [
        without_markup(plain(part, 200))
        for line in block.all("CATEGORIES")
        for part in _COMMA.split(line.value)[:50]
    ]
    return Text(
        uid=plain(uid, _SHORT),
        title=" ".join(without_markup(plain(block.value("SUMMARY"), _SHORT)).split()),
        description=plain(block.value("DESCRIPTION"), _LONG),
        location=without_markup(plain(block.value("LOCATION"), _SHORT)),
        url=address(block.value("URL"), base),
        categories=tuple(dict.fromkeys(filter(None, categories))),
        status=plain(block.value("STATUS").upper(), 20),
        access=access_of(block) if access_of(block) != "PUBLIC" else "",
        geo=_coordinates(block.value("GEO")),
        image=next(filter(None, (_image(line, base) for line in block.lines)), ""),
    )


def access_of(block: Block) -> str:
    """PUBLIC, PRIVATE or CONFIDENTIAL; "" when it does not say. A class of a publisher's own counts
    as private, as RFC 5545 has it.
    """
    access = plain(block.value("CLASS"), 40).upper()
    return access if access in {"", "PUBLIC", "CONFIDENTIAL"} else "PRIVATE"


def plain(value: str, longest: int) -> str:
    """A TEXT value without its escapes, cut to a length."""
    text = _ESCAPED.sub(lambda escape: "\n" if escape[1] in "nN" else escape[1], value)
    return text.strip().encode("utf-8", "replace").decode()[:longest]


def without_markup(text: str) -> str:
    """Text without tags and entities of HTML."""
    if "&" not in text and "<" not in text:
        return text
    for _twice in range(2):
        text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
    text = _BREAKING.sub("\n", _HIDDEN.sub(" ", text))
    text = CONTROL.sub("", _INLINE.sub("", text)).replace("\xa0", " ")
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(filter(None, lines)).encode("utf-8", "replace").decode()


def plain_words(text: str) -> str:
    """Normalized text, for comparisons; text of signs alone is unchanged."""
    raw = _AT.sub(" at ", unicodedata.normalize("NFKC", html.unescape(text)).casefold())
    words = "".join(
        " " if unicodedata.category(letter)[0] in "PZC" else letter for letter in raw
    ).split()
    return " ".join(words) or " ".join(raw.split())


def address(value: str, base: str) -> str:
    """An address of the web, or "". A relative one is resolved against the feed's, but never
    against the part of it that is a secret.
    """
    text = without_markup(plain(value, _SHORT)) if "&" in value else plain(value, _SHORT)
    text = "".join(text.split("\n")[:1]).strip().strip("<>\"'")
    try:
        if text.lower().startswith(("http://", "https://")):
            return text if urlsplit(text).hostname else ""
        if _HOST.match(text):
            return f"https://{text}"
        if not text or (_SCHEME.match(text) and not text.startswith("//")):
            return ""
        return _resolved(text, base)
    except ValueError:
        return ""


def _resolved(relative: str, base: str) -> str:
    parts = urlsplit(meant(base))
    if parts.scheme.lower() not in {"http", "https"} or not parts.hostname:
        return ""
    whole = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    if redacted(whole) != whole and not relative.startswith("/"):
        return ""
    return urljoin(whole, relative)


def _coordinates(value: str) -> str:
    """Latitude and longitude as GEO has them; "" when they are none, or 0;0, which is nowhere."""
    pair = _COORDINATES.fullmatch(plain(value, 100))
    if pair is None:
        return ""
    latitude, longitude = float(pair[1]), float(pair[2])
    if not (abs(latitude) <= 90 and abs(longitude) <= 180) or (latitude, longitude) == (0, 0):
        return ""
    return f"{pair[1].lstrip('+')};{pair[2].lstrip('+')}"


def _image(line: Line, base: str) -> str:
    """The address of a picture: an IMAGE, or an ATTACH that is one."""
    if line.name not in {"IMAGE", "ATTACH"}:
        return ""
    url = address(line.value, base)
    picture = "FMTTYPE=IMAGE/" in line.params.upper() or _PICTURE.search(urlsplit(url).path)
    return url if line.name == "IMAGE" or picture else ""


@dataclass(slots=True)
class Vevent:
    """One VEVENT with its times read."""

    block: Block
    number: int
    start: Moment
    end: Moment | None = None
    """What the DTEND says."""
    length: Length | None = None
    """What the DURATION says, where no DTEND can be used."""
    recurrence: Moment | None = None
    this_and_future: bool = False
    sequence: int = 0
    order: str = ""
    """Breaks ties, independently of the order in the feed."""
    place: str = ""
    """The place, normalized."""
    title: str = ""
    """The title, normalized."""
    rules: list[Rule] = field(default_factory=list)
    exceptions: list[Rule] = field(default_factory=list)
    """Rules whose times are taken out: EXRULE."""
    additions: list[Moment] = field(default_factory=list)
    periods: list[tuple[Moment, Moment]] = field(default_factory=list)
    """Additions with an end of their own."""
    exclusions: list[Moment] = field(default_factory=list)
    mended: list[str] = field(default_factory=list)
    """What could not be read or is out of range, and was left out or cut."""

    @property
    def recurs(self) -> bool:
        return self.recurrence is None and bool(self.rules or self.additions or self.periods)

    @property
    def rank(self) -> tuple[int, int, str]:
        return (self.sequence, 0, self.order)


def read_vevent(
    block: Block, number: int, zones: Zones, order: str, *, series: str | None
) -> Vevent:
    """Reads a VEVENT. `series` is the zone of the series that it changes, if that is there.
    ValueError or OverflowError when it has no start.
    """
    line = block.first("DTSTART")
    if line is None:
        raise ValueError("an event without DTSTART")
    zones.unknown.clear()
    start = zones.moment(line, block, zones.of_end(block))
    member = Vevent(block, number, start, order=order)
    member.place = plain_words(without_markup(plain(block.value("LOCATION"), 2_000)))
    member.title = plain_words(without_markup(plain(block.value("SUMMARY"), 2_000)))
    return _Reading(block, zones, member).read(start.zone if series is None else series)


class _Reading:
    """Reads one VEVENT."""

    def __init__(self, block: Block, zones: Zones, member: Vevent) -> None:
        self._block = block
        self._zones = zones
        self._member = member

    def read(self, series: str) -> Vevent:
        """`series` is the zone of local times in its RECURRENCE-ID."""
        member = self._member
        member.start = self._within(member.start, "a start")
        member.end = self._end()
        self._make_days()
        override = self._block.first("RECURRENCE-ID")
        if override is not None:
            member.recurrence = self._only(override, "a RECURRENCE-ID", series)
            member.this_and_future = "THISANDFUTURE" in override.params.upper()
            if "THISANDPRIOR" in override.params.upper():
                member.mended.append("RANGE=THISANDPRIOR is not followed")
        digits = re.match(r"\s*(\d{1,18})", self._block.value("SEQUENCE"))
        member.sequence = int(digits[1]) if digits else 0
        member.rules = self._rules("RRULE")
        member.exceptions = self._rules("EXRULE")
        member.exclusions = [moment for moment, _end in self._dates("EXDATE")]
        for moment, end_of in self._dates("RDATE"):
            end = self._end_of_period(end_of, moment) if end_of.value else None
            if end:
                member.periods.append((moment, end))
            else:
                member.additions.append(moment)
        unknown = sorted(self._zones.unknown)
        member.mended += [f"the time zone {name[:60]!r} is not known" for name in unknown]
        return member

    def _within(self, moment: Moment, subject: str) -> Moment:
        cut = moment.within()
        if cut != moment:
            self._member.mended.append(f"{subject} in the year {moment.wall.year} is cut")
        return cut

    def _only(self, line: Line, subject: str, local: str) -> Moment | None:
        try:
            return self._within(self._zones.moment(line, self._block, local), subject)
        except (ValueError, OverflowError) as problem:
            self._member.mended.append(str(problem))
            return None

    def _rules(self, name: str) -> list[Rule]:
        rules = []
        days = self._zones.of_days(self._block.zone)
        for line in self._block.all(name):
            if not line.value.strip(" ;"):
                continue
            try:
                rule, left_out = tidy(line.value)
                rules.append(ended_in(rule, self._member.start, days))
                self._member.mended += left_out
            except (ValueError, OverflowError) as problem:
                self._member.mended.append(str(problem))
        return rules

    def _dates(self, name: str) -> list[tuple[Moment, Line]]:
        """The readable dates of all lines of a name. Each has its end, if it is a period, as a line
        of the same params.
        """
        dates = []
        for line in self._block.all(name):
            for part in re.split("[,;]", line.value):  # vCalendar 1.0 has semicolons
                try:
                    one = self._zones.periods(
                        Line(name, line.params, part), self._block, self._member.start.zone
                    )
                except (ValueError, OverflowError) as problem:
                    self._member.mended.append(str(problem))
                    continue
                dates += [(moment.within(), Line(name, line.params, end)) for moment, end in one]
        return dates

    def _end(self) -> Moment | None:
        """The end, if it can be used; else reads the duration."""
        member = self._member
        line = self._block.first("DTEND")
        end = None if line is None else self._end_beside(member.start, line)
        if end is None:
            member.length = self._length("DURATION", self._block.value("DURATION"), member.start)
        return end

    def _end_of_period(self, line: Line, start: Moment) -> Moment | None:
        if line.value[:1] in "+-Pp":
            length = self._length(line.name, line.value, start)
            return start.after(length) if length else None
        return self._end_beside(start, line)

    def _end_beside(self, start: Moment, line: Line) -> Moment | None:
        """The end that a line says, as a day beside a day and a time beside a time."""
        moment = self._only(line, "an end", start.zone)
        if moment is None:
            return None
        end = end_beside(moment, start, days=self._zones.of_days(self._block.zone)).within()
        if end.time < start.time:
            self._member.mended.append("an end before its start is left out")
            return None
        return end

    def _make_days(self) -> None:
        """Makes days of times from one midnight to another that Outlook calls all-day. It says so
        of other times, too: these stay.
        """
        member, start, end = self._member, self._member.start, self._member.end
        if self._block.value(ALL_DAY).strip().upper() != "TRUE" or end is None or start.is_day:
            return
        if start.zone == end.zone and start.wall.time() == end.wall.time() == time():
            member.start, member.end = Moment(start.wall, ""), Moment(end.wall, "")

    def _length(self, name: str, text: str, start: Moment) -> Length | None:
        length = length_of(text)
        if length is None:
            if text.strip():
                self._member.mended.append(f"{name}: {text[:40]!r} is not a duration")
            return None
        least = min(LONGEST, LATEST - start.within().wall).total_seconds()
        if length.days * 86_400 + length.seconds > least:
            self._member.mended.append(f"{name}: {text[:40]!r} is too long")
            return None
        return length
