"""Repairs a feed's bytes into property lines, by component, before any library sees them.

Seen on 1,404 real feeds: bytes that are not UTF-8, folds in the middle of a character, bare LF or
CR, NULs, blank lines before BEGIN, text that ran over its line, a missing END, several calendars in
one file, a REFRESH-INTERVAL or CALSCALE that libraries refuse. So of the calendar only its zone,
its VTIMEZONEs and its VEVENTs are passed on, and of those only the properties in `KEPT`. VEVENTs
without a VCALENDAR are read too. Damaged input never raises, only input that is no calendar at all.
`calendar_name` reads the calendar's own name.

Of vCalendar 1.0, texts are decoded, and the zone is the one that DAYLIGHT names, or the offset TZ.
Its rules ("W1 MO #3") are not read.
"""

import base64
import codecs
import html
import quopri
import re
from dataclasses import dataclass, field

SEVERAL = frozenset({"RRULE", "RDATE", "EXRULE", "EXDATE", "CATEGORIES", "IMAGE", "ATTACH"})
"""Properties that an event may have more than once; of others the first that is not empty counts.
"""
ALL_DAY = "X-MICROSOFT-CDO-ALLDAYEVENT"
KEPT = SEVERAL | {
    *("UID", "DTSTART", "DTEND", "DURATION", "RECURRENCE-ID", "SEQUENCE"),
    *("SUMMARY", "DESCRIPTION", "LOCATION", "URL", "STATUS", "CLASS", "GEO", ALL_DAY),
}
"""The properties that are read."""
_OF_ZONE = frozenset(
    {"BEGIN", "END", "TZID", "X-LIC-LOCATION"}
    | {"DTSTART", "RRULE", "RDATE", "TZOFFSETFROM", "TZOFFSETTO"}
)
"""The properties of a VTIMEZONE that are read."""
_RUNS_ON = frozenset({"SUMMARY", "DESCRIPTION", "LOCATION", "CATEGORIES"})
"""Text, which a line that is no property continues. After a date such a line is left out."""
_RULES = frozenset({"RRULE", "EXRULE"})
_FILES = frozenset({"IMAGE", "ATTACH"})
"""Kept when they are addresses, not when the file itself is in the feed."""

_BREAK = re.compile(rb"\r+\n?")
_FOLD = re.compile(rb"(?<!\n)\n+[ \t](?![ \t]*(?:BEGIN|END):[A-Z]+[ \t]*(?:\n|$))", re.IGNORECASE)
"""A break before white space, unless a component begins or ends there: some indent those."""
_IS_INDENTED = re.compile(
    rb"^[ \t]*BEGIN:V(?:CALENDAR|EVENT)[ \t]*\n+[ \t]+[A-Z-]{3,}[;:]", re.IGNORECASE | re.MULTILINE
)
"""Matches a property behind white space that goes on with no other one."""
_INDENT = re.compile(rb"^[ \t]+(?=[A-Z-]{3,}[;:])", re.MULTILINE)
_GLUED = re.compile(
    rb"^[ \t]*(?:(?:BEGIN|END):V(?:CALENDAR|EVENT|ALARM|TIMEZONE)[ \t]*)+(?=(?:BEGIN|END):[A-Z])",
    re.IGNORECASE | re.MULTILINE,
)
"""Edges of components whose line does not end before the next one."""
_BETWEEN = re.compile(rb"(?<=[A-Z])[ \t]*(?=(?:BEGIN|END):|\Z)", re.IGNORECASE)
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_OF_CALENDAR = frozenset({"X-", "TZ", "DA"})
"""How the properties begin that name the zone of a calendar."""
_LINE = re.compile(r'\s*([A-Za-z0-9-]+)\s*((?:;(?:[^":]|"[^"]*"|:(?=\d\d\)))*)?):(.*)', re.DOTALL)
"""Name, parameters, value. A colon as in `TZID=(UTC-05:00) Eastern Time` is none that ends them."""
_DATED = re.compile(
    r"\s*(DTSTART|DTEND|RECURRENCE-ID|RDATE|EXDATE)\s*((?:;|:(?=\s*(?:TZID|VALUE)\s*=)).*)"
    r":(\s*\d{4}-?\d\d-?\d\d.*)",
    re.IGNORECASE | re.DOTALL,
)
"""A date after parameters that have colons of their own, as in `TZID=tzone://Microsoft/Utc`, or a
quote that does not end; or that stand behind a colon.
"""
_DATE = re.compile(r"\s*\d{4}-?\d\d-?\d\d")
_RULE_REST = re.compile(r"[A-Z0-9=;,+-]+", re.IGNORECASE)
_ENCODED = re.compile(
    r";\s*(?:(?:ENCODING\s*=\s*)?(QUOTED-PRINTABLE)|ENCODING\s*=\s*(?:BASE64|B))\s*(?:;|$)",
    re.IGNORECASE,
)
_CHARSET = re.compile(r";\s*CHARSET\s*=\s*([\w:.-]+)", re.IGNORECASE)
_QUOTED = b"QUOTED-PRINTABLE"
_INLINE = re.compile(r";\s*(?:VALUE\s*=\s*BINARY|ENCODING\s*=\s*BASE64)", re.IGNORECASE)
_START = re.compile(rb"BEGIN:VCALENDAR[ \t]*(?:\r|\n|$)", re.IGNORECASE)
_BARE = re.compile(
    rb"(?:^|[\r\n]|\xef\xbb\xbf)[ \t]*BEGIN:(?:VEVENT|VTIMEZONE)[ \t]*(?:\r|\n|$)", re.IGNORECASE
)
_EDGE = re.compile("BEGIN:V", re.IGNORECASE)
_WIDE = re.compile("BEGIN:V".encode("utf-16-le"), re.IGNORECASE)
"""In UTF-16: at an even place of little-endian bytes, at an odd one of big-endian bytes."""
_MARKUP = re.compile(
    rb"<(?:!doctype\s+html|html|head|body|((?:\w+:)?feed|rss|rdf:rdf))\b", re.IGNORECASE
)
"""Matches how a page of HTML begins, or with a group, another feed."""
OTHER_FEED = "an RSS or Atom feed, not a calendar"

_KINDS = {
    b"PK\x03\x04": "a zip file",
    b"\x1f\x8b": "a gzip file in another",
    b"%PDF-": "a PDF file",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"GIF8": "a picture",
}
"""Files by how they begin."""


class NotACalendar(Exception):
    """The bytes hold no VCALENDAR and no VEVENT."""


@dataclass(frozen=True, slots=True)
class Line:
    """One unfolded property. `params` starts with a semicolon or is empty."""

    name: str
    params: str
    value: str


@dataclass(slots=True)
class Block:
    """The lines of one VEVENT or VTIMEZONE, and the zone and the number in the file of the calendar
    that it stood in.
    """

    lines: list[Line] = field(default_factory=list)
    zone: str = ""
    calendar: int = 0

    def all(self, name: str) -> list[Line]:
        return [line for line in self.lines if line.name == name]

    def first(self, name: str) -> Line | None:
        return next((line for line in self.lines if line.name == name), None)

    def value(self, name: str) -> str:
        line = self.first(name)
        return "" if line is None else line.value.strip()


@dataclass(frozen=True, slots=True)
class Sections:
    """The parts of a feed that are read. Two calendars may mean two zones by one name."""

    events: list[Block]
    zones: list[Block]


def why_no_calendar(body: bytes) -> str:
    """Why this is no calendar at all, or ""; quick."""
    try:
        _calendar_in(body)
    except NotACalendar as problem:
        return str(problem)
    return ""


def read_calendar(body: bytes, charset: str = "") -> Sections:
    """The events and zones of a feed; NotACalendar when there is no calendar in it."""
    return _Reader().run(_decoded(_calendar_in(body), charset))


def as_utf_8(body: bytes) -> bytes:
    """The bytes of a feed, in UTF-8 if they are UTF-16, with or without a byte order mark; without
    NULs.
    """
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        body = body.decode("utf-16", "replace").encode()
    elif b"\x00" in body and (begin := _WIDE.search(body)):
        order = "utf-16-be" if begin.start() % 2 else "utf-16-le"
        body = body.decode(order, "replace").encode()
    return body.replace(b"\x00", b"")


def _calendar_in(body: bytes) -> bytes:
    """The bytes from the first calendar on, or the first event that stands before it."""
    body = as_utf_8(body)
    starts = [found.start() for found in (_START.search(body), _BARE.search(body)) if found]
    if starts:
        return body[min(starts) :].removeprefix(b"\xef\xbb\xbf")
    if not body.strip():
        raise NotACalendar("the answer is empty")
    for begins, kind in _KINDS.items():
        if body.startswith(begins):
            raise NotACalendar(f"{kind}, not a calendar")
    if markup := _MARKUP.search(body[:4096]):
        raise NotACalendar(OTHER_FEED if markup[1] else "an HTML page, not a calendar")
    raise NotACalendar("not an iCalendar file: no BEGIN:VCALENDAR")


def _decoded(body: bytes, charset: str) -> str:
    """Unfolds before decoding: a fold may stand in the middle of a character."""
    body = _BREAK.sub(b"\n", body)
    if _QUOTED in body.upper():
        body = _without_soft_breaks(body)
    if _IS_INDENTED.search(body):
        body = _INDENT.sub(b"", body)
    body = _FOLD.sub(b"", body)
    body = _GLUED.sub(lambda edges: _BETWEEN.sub(b"\n", edges[0]), body)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = _declared(body, charset) or "\n".join(map(_decoded_line, body.split(b"\n")))
    return CONTROL.sub("", text)


def _without_soft_breaks(body: bytes) -> bytes:
    """Joins the lines of quoted-printable properties, which end with = and go on without a fold."""
    parts = []
    quoted = goes_on = False
    for line in body.split(b"\n"):
        if not goes_on or line.upper().startswith((b"BEGIN:", b"END:")):
            parts.append(b"\n")
            quoted = _QUOTED in line.partition(b":")[0].upper()
        goes_on = quoted and line.rstrip(b" \t").endswith(b"=")
        parts.append(line.rstrip(b" \t")[:-1] if goes_on else line)
    return b"".join(parts[1:])


_SUPERSETS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
}
"""Encodings that are really sent under these names of Python's (WHATWG, Encoding Standard)."""


def _declared(body: bytes, charset: str) -> str:
    """The text in the encoding that is declared; "" where it is none, or the wrong one."""
    text = _in_charset(body, charset)
    return text if _EDGE.search(text) else ""


def _in_charset(body: bytes, charset: str) -> str:
    try:
        name = codecs.lookup(charset).name
        return "" if name == "utf-8" else body.decode(_SUPERSETS.get(name, name))
    except (LookupError, ValueError):
        return ""


def _text_value(params: str, value: str) -> str:
    """A value without the encoding that vCalendar 1.0 and RFC 2445 let it have."""
    encoded = _ENCODED.search(params)
    if encoded is None:
        return value
    raw = value.encode("utf-8", "surrogatepass")
    try:
        decoded = quopri.decodestring(raw) if encoded[1] else base64.b64decode(raw, validate=True)
    except ValueError:
        return value
    charset = _CHARSET.search(params)
    text = (_in_charset(decoded, charset[1]) if charset else "") or _decoded_line(decoded)
    return CONTROL.sub("", text.replace("\r\n", "\n")).replace("\n", "\\n")


def _decoded_line(line: bytes) -> str:
    """One line of a file that may have several encodings."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("cp1252", "replace")


class _Reader:
    """Walks the lines once. Components that never end are ended by whatever begins next."""

    def __init__(self) -> None:
        self.events: list[Block] = []
        self.zones: list[Block] = []
        self._event: Block | None = None
        self._zone: Block | None = None
        self._inner = 0
        self._zones_said: dict[str, str] = {}
        """What the calendar says of its zone, by property."""
        self._calendar = 0
        self._first_event = 0
        """The number of the first event of the calendar."""
        self._last_kept = False
        self._singles: dict[str, Line] = {}
        """Properties of the event that count once."""
        self._rest: list[str] = []
        """Lines that go on with the last property of the event."""

    def run(self, text: str) -> Sections:
        for line in text.split("\n"):
            edge = line.lstrip()[:4].upper() in {"BEGI", "END:"}
            word = line.strip().upper() if edge else ""
            if not line.strip():
                continue
            if word.startswith("BEGIN:"):
                self._begin(word[6:].strip())
            elif word.startswith("END:"):
                self._end(word[4:].strip())
            elif self._zone is not None:
                self._of_zone(self._zone, line)
            elif self._event is not None and not self._inner:
                self._property(self._event, line)
            elif self._event is None and line.lstrip()[:2].upper() in _OF_CALENDAR:
                self._of_calendar(line)
        self._close_calendar()
        return Sections(self.events, self.zones)

    def _begin(self, name: str) -> None:
        if name in {"VEVENT", "VTIMEZONE"}:
            self._close()
        if name == "VCALENDAR":
            self._close_calendar()
        elif name == "VEVENT":
            self._event = Block(calendar=self._calendar)
        elif name == "VTIMEZONE":
            self._zone = Block(calendar=self._calendar)
        elif self._zone is not None:
            self._zone.lines.append(Line("BEGIN", "", name))
        else:
            self._inner += 1

    def _end(self, name: str) -> None:
        if name in {"VCALENDAR", "VEVENT", "VTIMEZONE"}:
            self._close()
        elif self._zone is not None:
            self._zone.lines.append(Line("END", "", name))
        elif self._inner:
            self._inner -= 1

    def _close(self) -> None:
        if self._event is not None:
            self._join(self._event)
            self.events.append(self._event)
        if self._zone is not None:
            self.zones.append(self._zone)
        self._event, self._zone, self._inner, self._last_kept = None, None, 0, False
        self._singles = {}

    def _close_calendar(self) -> None:
        """Its zone is that of all its events, wherever it says so."""
        self._close()
        zones = map(self._zones_said.get, ("X-WR-TIMEZONE", "DAYLIGHT", "TZ"))
        zone = next(filter(None, zones), "")
        for event in self.events[self._first_event :]:
            event.zone = zone
        self._first_event, self._zones_said = len(self.events), {}
        self._calendar += 1

    def _of_calendar(self, line: str) -> None:
        parts = _LINE.fullmatch(line)
        if parts is None or self._inner:
            return
        name, value = parts[1].upper(), parts[3].strip()
        if name == "DAYLIGHT":  # TRUE;-04;BEGIN;END;EST;EDT
            value = "".join(value.split(";")[4:5]).strip()
        self._zones_said[name] = value

    def _of_zone(self, zone: Block, line: str) -> None:
        parts = _LINE.fullmatch(line)
        if parts is not None and parts[1].upper() in _OF_ZONE:
            zone.lines.append(Line(parts[1].upper(), "", parts[3].strip()))

    def _property(self, event: Block, line: str) -> None:
        parts = _LINE.fullmatch(line)
        if parts is None or not _DATE.match(parts[3]):
            parts = _DATED.fullmatch(line) or parts
        if parts is None:
            self._overrun(event, line)
            return
        self._join(event)
        name, params = parts[1].upper(), parts[2].replace(":", ";", parts[2].startswith(":"))
        wanted = name in KEPT and not (name in _FILES and _INLINE.search(params))
        value = _text_value(params, parts[3]) if wanted else ""
        before = self._singles.get(name)
        is_better = before is None or (not before.value.strip() and bool(value.strip()))
        self._last_kept = wanted and is_better
        if self._last_kept:
            if before is not None:
                event.lines.remove(before)
            event.lines.append(Line(name, params, value))
            if name not in SEVERAL:
                self._singles[name] = event.lines[-1]

    def _overrun(self, event: Block, line: str) -> None:
        """Text that ran over the end of its line belongs to the property before it, and so does
        what can only be the rest of a rule. After any other property it is left out.
        """
        name = event.lines[-1].name if self._last_kept else ""
        if name in _RUNS_ON:
            self._rest.append(f"\\n{line}")
        elif name in _RULES and _RULE_REST.fullmatch(line.strip()) and "=" in line:
            self._rest.append(line.strip())

    def _join(self, event: Block) -> None:
        """Ends the last property."""
        if self._rest:
            last = event.lines.pop()
            before = last.value.rstrip() if last.name in _RULES else last.value
            event.lines.append(Line(last.name, last.params, before + "".join(self._rest)))
            if last.name not in SEVERAL:
                self._singles[last.name] = event.lines[-1]
            self._rest = []


_HEAD = 64 * 1024
_LONGEST = 100
_NAME_FOLD = re.compile(rb"\r?\n[ \t]")
_EVENT = re.compile(rb"^[ \t]*BEGIN:V(?:EVENT|TODO|JOURNAL)\b", re.IGNORECASE | re.MULTILINE)
_NAME = re.compile(
    rb"""^(?:X-WR-CALNAME|NAME)(?:;(?:[^":\r\n]|"[^"\r\n]*")*)?:([^\r\n]*)""",
    re.IGNORECASE | re.MULTILINE,
)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_ESCAPED = re.compile(r"\\(.)")


def calendar_name(body: bytes) -> str:
    """The X-WR-CALNAME, or NAME (RFC 7986), before the first event; or ""."""
    head = _NAME_FOLD.sub(b"", as_utf_8(body[:_HEAD]))
    begin = _EVENT.search(head)
    name = _NAME.search(head[: begin.start()] if begin else head)
    if name is None:
        return ""
    text = _ESCAPED.sub(lambda one: " " if one[1] in "nN" else one[1], _decoded_line(name[1]))
    text = html.unescape(_TAG.sub(" ", text))
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_LONGEST]
