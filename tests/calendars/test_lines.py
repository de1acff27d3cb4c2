"""What is repaired in a feed's bytes before a library sees them."""

import gzip
from time import process_time

import pytest

from jobs.calendars.lines import Line, NotACalendar, calendar_name, read_calendar, why_no_calendar
from jobs.calendars.responses import cut_off
from tests.calendars.support import calendar, event

ONE = calendar(event("1", "One"))


def titles(body: bytes, charset: str = "") -> list[str]:
    return [block.value("SUMMARY") for block in read_calendar(body, charset).events]


DAMAGE = {
    "well-formed": ONE,
    "bare line feeds": ONE.replace(b"\r\n", b"\n"),
    "bare carriage returns": ONE.replace(b"\r\n", b"\r"),
    "doubled carriage returns": ONE.replace(b"\r\n", b"\r\r\n"),
    "a byte order mark": b"\xef\xbb\xbf" + ONE,
    "UTF-16": ONE.decode().encode("utf-16"),
    "UTF-16 without a mark": ONE.decode().encode("utf-16-le"),
    "NULs": ONE.replace(b"SUMMARY", b"SUM\0MARY"),
    "blank lines before BEGIN": b"\r\n \t\r\n\r\n" + ONE,
    "an indented BEGIN": b"\n\t\t\n\t\t" + ONE,
    "lines that are all indented": b"  "
    + ONE.replace(b"\r\n", b"\r\n  ").replace(b"One", b"O\n\tne"),
    "indented properties": ONE.replace(b"\r\nSUMMARY", b"\r\n\tSUMMARY").replace(
        b"VEVENT\r\nUID", b"VEVENT\r\n\tUID"
    ),
    "blank lines everywhere": ONE.replace(b"\r\n", b"\r\n\r\n"),
    "a warning before the calendar": b"Warning: strtotime() in /x.php\n" + ONE,
    "no END:VCALENDAR": ONE.replace(b"END:VCALENDAR\r\n", b""),
    "no END at all": ONE.partition(b"END:VEVENT")[0],
    "no last line break": ONE.rstrip(),
    "lower case": ONE.replace(b"BEGIN:VEVENT", b"begin:vevent").replace(b"SUMMARY", b"summary"),
    "an alarm inside": ONE.replace(
        b"END:VEVENT", b"BEGIN:VALARM\r\nSUMMARY:No\r\nEND:VALARM\r\nEND:VEVENT"
    ),
    "calendar properties that libraries refuse": ONE.replace(
        b"VERSION:2.0", b"REFRESH-INTERVAL:P15M\r\nX-PUBLISHED-TTL:P15M\r\nCALSCALE:JULIAN"
    ),
    "an invisible second title": ONE.replace(b"SUMMARY:One", b"SUMMARY:One\r\nSUMMARY:Two"),
}


@pytest.mark.parametrize("body", DAMAGE.values(), ids=DAMAGE)
def test_damage_that_real_feeds_have_is_repaired(body: bytes) -> None:
    assert titles(body) == ["One"]
    assert why_no_calendar(body) == ""


def test_a_missing_end_of_an_event_ends_it_at_the_next() -> None:
    body = calendar(event("1", "One"), event("2", "Two")).replace(b"END:VEVENT\r\n", b"", 1)
    assert titles(body) == ["One", "Two"]


def test_an_event_before_the_calendar_is_read_too() -> None:
    body = calendar(event("1", "One"), event("2", "Two"))
    begin, end = body.index(b"BEGIN:VEVENT"), body.index(b"END:VEVENT\r\n") + len("END:VEVENT\r\n")
    assert titles(body[begin:end] + body[:begin] + body[end:]) == ["One", "Two"]


def test_edges_of_components_that_share_a_line_are_read_each() -> None:
    body = calendar(event("1", "One"), event("2", "Two"))
    for edge in (b"END:VEVENT", b"END:VCALENDAR"):
        assert titles(body.replace(edge + b"\r\n", edge)) == ["One", "Two"]
    assert titles(body.replace(b"END:VEVENT\r\n", b"END:VEVENT ")) == ["One", "Two"]
    assert titles(calendar(event("1", "END:VEVENTBEGIN:VEVENT"))) == ["END:VEVENTBEGIN:VEVENT"]


def test_several_calendars_in_one_file_are_all_read_each_with_its_zone() -> None:
    body = calendar(event("1", "One"), head="X-WR-TIMEZONE:Europe/Paris\n") + calendar(
        event("2", "Two")
    )
    assert [(one.value("UID"), one.zone) for one in read_calendar(body).events] == [
        ("1", "Europe/Paris"),
        ("2", ""),
    ]


def test_a_fold_within_a_character_is_undone_before_decoding() -> None:
    raw = "SUMMARY:Café".encode()
    assert titles(calendar("UID:1").replace(b"UID:1", raw[:-1] + b"\r\n " + raw[-1:])) == ["Café"]


@pytest.mark.parametrize(
    ("raw", "charset", "expected"),
    [
        (b"Caf\xc3\xa9", "", "Café"),
        (b"Caf\xe9", "", "Café"),
        (b"\x93Quoted\x94", "", "\u201cQuoted\u201d"),
        (b"\xcf\xf0\xe8\xe2\xe5\xf2", "windows-1251", "Привет"),
        (b"Caf\xe9", "no-such-charset", "Café"),
        (b"Caf\xe9", "undefined", "Café"),
        (b"Caf\xe9", "idna", "Café"),
        (b"Caf\xe9", "hex", "Café"),
        (b"Caf\xe9", "utf-8\x00", "Café"),
        # The names of encodings mean what browsers mean by them.
        (b"\x93Caf\xe9\x94", "iso-8859-1", "\u201cCafé\u201d"),
        (b"\x93Caf\xe9\x94", "Latin1", "\u201cCafé\u201d"),
        (b"\x93Caf\xe9\x94", "us-ascii", "\u201cCafé\u201d"),
        (b"\x93\xfe\x94", "iso-8859-9", "\u201c\u015f\u201d"),
        (b"Caf\x81\xe9", "iso-8859-1", "Caf\ufffdé"),
        # Declared, and wrong: there is no calendar in what it would be.
        (b"Caf\xe9", "utf-16", "Café"),
        (b"Caf\xe9", "cp037", "Café"),
    ],
)
def test_what_is_not_utf_8_is_read_as_declared_or_as_windows_writes(
    raw: bytes, charset: str, expected: str
) -> None:
    assert titles(ONE.replace(b"One", raw), charset) == [expected]


def test_lines_of_different_encodings_are_each_read_in_theirs() -> None:
    body = calendar(event("1", "One"), event("2", "Two"))
    mixed = body.replace(b"One", b"Caf\xc3\xa9").replace(b"Two", b"Caf\xe9")
    assert titles(mixed) == ["Café", "Café"]


ENCODED = {
    "quoted-printable": (b"SUMMARY;ENCODING=QUOTED-PRINTABLE:F=C3=AAte=20=3D", "F\u00eate ="),
    "with a charset": (b"SUMMARY;CHARSET=ISO-8859-1;ENCODING=quoted-printable:F=EAte", "F\u00eate"),
    "without a name": (b"SUMMARY;QUOTED-PRINTABLE;CHARSET=nonsense:F=C3=AAte", "F\u00eate"),
    "over several lines": (
        b"SUMMARY;ENCODING=QUOTED-PRINTABLE:F=C3=AA=\r\nte du=\r\n village: 5",
        "F\u00eate du village: 5",
    ),
    "with breaks": (b"SUMMARY;ENCODING=QUOTED-PRINTABLE:One=0D=0Atwo=0A", "One\\ntwo\\n"),
    "base64": (b"SUMMARY;ENCODING=BASE64;CHARSET=UTF-8:RsOq\r\n dGU=", "F\u00eate"),
    "base64 as RFC 2445 has it": (b"SUMMARY;VALUE=TEXT;ENCODING=B:RsOqdGU=", "F\u00eate"),
    "base64 that is none": (b"SUMMARY;ENCODING=BASE64:F\xc3\xaate", "F\u00eate"),
    "what only looks so": (b"SUMMARY;LANGUAGE=en:ENCODING=QUOTED-PRINTABLE =3D", None),
}


@pytest.mark.parametrize(("line", "title"), ENCODED.values(), ids=ENCODED)
def test_texts_of_vcalendar_1_0_are_decoded(line: bytes, title: str | None) -> None:
    expected = title or line.decode().partition(":")[2]
    assert titles(ONE.replace(b"SUMMARY:One", line)) == [expected]


def test_text_that_ran_over_its_line_stays_with_its_property() -> None:
    body = calendar(event("1", "One", "20260901", "DESCRIPTION:First line\nand the second"))
    assert read_calendar(body).events[0].value("DESCRIPTION") == "First line\\nand the second"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "empty"),
        (b" \r\n\t", "empty"),
        (b"<!DOCTYPE html><html><body>Not found</body></html>", "HTML page"),
        (b'<?xml version="1.0"?>\n<!-- x --><rss><title>A', "an RSS or Atom feed, not a calendar"),
        (b"\xef\xbb\xbf<feed xmlns='x'><p>&lt;html", "an RSS or Atom feed, not a calendar"),
        (b"<atom:feed>", "an RSS or Atom feed, not a calendar"),
        (b"<rdf:RDF><html>", "an RSS or Atom feed, not a calendar"),
        ("<rss>".encode("utf-16"), "an RSS or Atom feed, not a calendar"),
        (b"<html><rss>", "HTML page"),
        (b'{"error": "gone"}', "no BEGIN:VCALENDAR"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "a picture, not a calendar"),
        (b"PK\x03\x04\x14\x00\x08\x00", "a zip file, not a calendar"),
        (gzip.compress(b"BEGIN:VCALENDAR", mtime=0), "a gzip file in another, not a calendar"),
    ],
)
def test_what_is_no_calendar_is_refused_with_the_reason(body: bytes, problem: str) -> None:
    with pytest.raises(NotACalendar, match=problem):
        read_calendar(body)
    assert problem in why_no_calendar(body)


def test_a_page_that_shows_a_calendar_is_read_as_one() -> None:
    assert titles(b"<html><pre>\n" + ONE + b"</pre></html>") == ["One"]


@pytest.mark.parametrize("charset", ["", "utf-16", "utf-8"])
@pytest.mark.parametrize("order", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("before", ["", "\r\n", " \r\n"])
def test_utf_16_is_read_with_and_without_a_mark(charset: str, order: str, before: str) -> None:
    text = before + ONE.decode().replace("One", "Café \u0416\u4e2d")
    body = text.encode(order)
    assert titles(body, charset) == ["Café \u0416\u4e2d"]
    assert why_no_calendar(body) == ""
    assert cut_off(body) == ""
    assert cut_off(text.partition("END:VEVENT")[0].encode(order))
    named = text.replace("VERSION", "X-WR-CALNAME:\u0416\r\nVERSION").encode(order)
    assert calendar_name(named) == "\u0416"


DATES = {
    "a vendor's path": (";TZID=tzone://Microsoft/Utc", "20260901T180000"),
    "an offset": (";TZID=UTC-05:00", "20260901T180000"),
    "an offset in brackets": (";TZID=(UTC-05:00) Eastern Time", "20260901T180000"),
    "a quote that does not end": (';TZID="Europe/Berlin', "20260901T180000"),
    "a quote that does": (';TZID="a:b"', "20260901T180000"),
    "more parameters": (";VALUE=DATE-TIME;TZID=a:b", "20260901T180000"),
    "dashes": (";TZID=a:b", "2026-09-01T18:00:00"),
    "several dates": (";TZID=a:b", "20260901T180000,20260902T180000"),
    "a time and a broken line": ("", "20260901T180000 at:20270101"),
}


@pytest.mark.parametrize(("params", "value"), DATES.values(), ids=DATES)
@pytest.mark.parametrize("name", ["DTSTART", "DTEND", "RECURRENCE-ID", "RDATE", "EXDATE"])
def test_a_date_begins_behind_the_colons_of_its_zone(name: str, params: str, value: str) -> None:
    (block,) = read_calendar(calendar(f"UID:1\n{name}{params}:{value}")).events
    (line,) = block.all(name)
    assert (line.params, line.value) == (params, value)


@pytest.mark.parametrize("params", ["TZID=Europe/Berlin", "VALUE=DATE", "TZID=UTC-05:00"])
def test_params_may_stand_behind_a_colon(params: str) -> None:
    (block,) = read_calendar(calendar(f"UID:1\nDTSTART:{params}:20260901")).events
    assert block.all("DTSTART") == [Line("DTSTART", f";{params}", "20260901")]


def test_a_zone_that_stands_behind_its_events_is_theirs() -> None:
    late = calendar(event("1", "One"), event("2", "Two")).replace(
        b"END:VCALENDAR", b"X-WR-TIMEZONE:Europe/Paris\r\nEND:VCALENDAR"
    )
    whole = read_calendar(late + calendar(event("3", "Three")))
    assert [one.zone for one in whole.events] == ["Europe/Paris", "Europe/Paris", ""]


@pytest.mark.parametrize("name", ["DTSTART", "UID", "SUMMARY"])
def test_an_empty_line_does_not_hide_the_next_of_its_name(name: str) -> None:
    (block,) = read_calendar(calendar(f"{name}:\n{name}: \n{name}:20260901\n{name}:2")).events
    assert [line.value for line in block.all(name)] == ["20260901"]


QUADRATIC = {
    "text that runs over": ("DESCRIPTION:One", "a line that runs over its end"),
    "a rule that runs over": ("RRULE:FREQ=DAILY", "BYDAY=MO"),
    "a property again": ("EXDATE:20260901", "EXDATE:20260902\nSUMMARY:Again"),
    "an empty property again": ("EXDATE:20260901", "EXDATE:20260902\nSUMMARY:"),
    "an encoded blank again": (
        "EXDATE:20260901",
        "EXDATE:20260902\nSUMMARY;ENCODING=QUOTED-PRINTABLE:=20",
    ),
}


@pytest.mark.parametrize(("first", "line"), QUADRATIC.values(), ids=QUADRATIC)
def test_an_event_of_many_lines_costs_little_time(first: str, line: str) -> None:
    body = calendar(f"UID:1\n{first}" + f"\n{line}" * 60_000)
    begun = process_time()
    (block,) = read_calendar(body).events
    assert process_time() - begun < 2
    assert len(block.lines) < 61_000
