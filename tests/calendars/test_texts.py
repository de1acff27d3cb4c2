"""What events say, as plain text, and what of it is kept."""

import pytest

from jobs.calendars.events import address, plain_words, without_markup
from jobs.calendars.records import Text
from tests.calendars.support import calendar, event, read, times, window

FEED = "https://town.example.org/calendar/feed.ics?token=swordfish"


def said(*lines: str, base: str = FEED) -> Text:
    (text,) = read(calendar(event("1", "E", "20260901", *lines)), base=base).texts
    return text


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("Rock &amp; Roll", "Rock & Roll"),
        ("Rock &amp;amp; Roll", "Rock & Roll"),
        ("Lawyer&#8217;s &#x2013; Study", "Lawyer\u2019s \u2013 Study"),
        ("&eacute;t&eacute;", "été"),
        ("<b>Jazz</b> Night", "Jazz Night"),
        ("&lt;b&gt;Jazz&lt;/b&gt; Night", "Jazz Night"),
        ('<a href="https://x.org/?a=1&b=2">Jazz</a>', "Jazz"),
        ("<p>City Hall</p>", "City Hall"),
        ("Hall<br>Room 2<br/>Door", "Hall\nRoom 2\nDoor"),
        ("Jazz<script>alert('x')</script>", "Jazz"),
        ("Jazz<!-- not this --> Night", "Jazz Night"),
        ("A&nbsp;B", "A B"),
        ("Kids < 5 & parents > 20", "Kids < 5 & parents > 20"),
        ("I <3 NY", "I <3 NY"),
        ("5 &lt; 6", "5 < 6"),
        ("AT&T; Q&A; R&copyright", "AT&T; Q&A; R&copyright"),
        ("List<String>", "List<String>"),
        ("&#0;&#13;&#10;&#xD800;x&#8232;", "x"),
    ],
)
def test_html_is_read_as_text(written: str, expected: str) -> None:
    escaped = written.replace(";", "\\;")
    text = said(f"LOCATION:{escaped}")
    assert text.location.replace("\ufffd", "").strip() == expected
    title = read(calendar(f"UID:1\nDTSTART:20260901\nSUMMARY:{escaped}")).texts[0].title
    assert title.replace("\ufffd", "").strip() == " ".join(expected.split())


def test_a_description_keeps_its_html() -> None:
    assert said("DESCRIPTION:<p>Hello</p>").description == "<p>Hello</p>"


def test_text_without_html_stays_as_it_is() -> None:
    assert without_markup("Two  spaces\nTwo lines") == "Two  spaces\nTwo lines"


@pytest.mark.parametrize(
    ("written", "base", "expected"),
    [
        ("https://a.org/x?b=1&amp;c=2", FEED, "https://a.org/x?b=1&c=2"),
        ("HTTPS://a.org/x", FEED, "HTTPS://a.org/x"),
        ("/event/1", FEED, "https://town.example.org/event/1"),
        ("event/1", FEED, "https://town.example.org/calendar/event/1"),
        ("../event/1?a=b", FEED, "https://town.example.org/event/1?a=b"),
        ("?event=1", FEED, "https://town.example.org/calendar/feed.ics?event=1"),
        ("//other.org/1", FEED, "https://other.org/1"),
        ("/event/1", "webcal://town.example.org/feed.ics", "https://town.example.org/event/1"),
        ("www.a.org/x", FEED, "https://www.a.org/x"),
        ("a.org", FEED, "https://a.org"),
        ("mailto:me@a.org", FEED, ""),
        ("javascript:alert(1)", FEED, ""),
        ("data:text/html,x", FEED, ""),
        ("http://", FEED, ""),
        ("http://[", FEED, ""),
        ("/event/1", "file:///srv/feed.ics", ""),
        ("/event/1", "", ""),
        ("", FEED, ""),
        # What of a feed's own address is a secret is in none of those made with it.
        ("event", "https://user:swordfish@h.org/feed", "https://h.org/event"),
        ("event", "https://h.org/private-swordfish/basic.ics", ""),
        ("/event", "https://h.org/private-swordfish/basic.ics", "https://h.org/event"),
    ],
)
def test_addresses_are_those_of_the_web(written: str, base: str, expected: str) -> None:
    assert address(written, base) == expected
    assert "swordfish" not in expected


def test_the_address_of_an_event_is_resolved_against_that_of_its_feed() -> None:
    assert said("URL:/event/1").url == "https://town.example.org/event/1"
    assert said("URL:/event/1", base="").url == ""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("GEO:37.386013;-122.082932", "37.386013;-122.082932"),
        ("GEO:37.386013,-122.082932", "37.386013;-122.082932"),
        (r"GEO:37.386013\;-122.082932", "37.386013;-122.082932"),
        ("GEO:0;0", ""),
        ("GEO:91;0", ""),
        ("GEO:nan;1", ""),
        ("GEO:", ""),
    ],
)
def test_where_an_event_is_on_the_map_is_kept(line: str, expected: str) -> None:
    assert said(line).geo == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("IMAGE;VALUE=URI;DISPLAY=BADGE:https://a.org/i", "https://a.org/i"),
        ("IMAGE:/i.png", "https://town.example.org/i.png"),
        ("ATTACH;FMTTYPE=image/jpeg:https://a.org/i", "https://a.org/i"),
        ("ATTACH:https://a.org/i.jpg?w=1", "https://a.org/i.jpg?w=1"),
        ("ATTACH;FMTTYPE=application/pdf:https://a.org/i", ""),
        ("IMAGE;VALUE=BINARY;ENCODING=BASE64;FMTTYPE=image/png:iVBORw0KGgo=", ""),
        ("IMAGE;VALUE=BINARY:xx\nIMAGE;VALUE=URI:https://a.org/2", "https://a.org/2"),
    ],
)
def test_the_picture_of_an_event_is_kept(line: str, expected: str) -> None:
    assert said(line).image == expected


SERIES = event("p", "Series", "20260901T180000Z", "RRULE:FREQ=DAILY;COUNT=3")
CHANGE = event("p", "Change", "20260902T200000Z", "RECURRENCE-ID:20260902T180000Z")


@pytest.mark.parametrize("marked", ["PRIVATE", "private", "CONFIDENTIAL", "X-STAFF"])
def test_what_is_marked_as_private_is_left_out_and_counted_unless_asked_for(marked: str) -> None:
    body = calendar(
        event("1", "Secret", "20260901", f"CLASS:{marked}"), event("2", "Open", "20260901")
    )
    parsed = read(body)
    assert [title for title, _start, _end in times(parsed)] == ["Open"]
    assert (parsed.private, parsed.skipped) == (1, 0)
    assert "Secret" not in str(parsed)
    asked = read(body, window=window(private=True))
    assert [title for title, _start, _end in times(asked)] == ["Open", "Secret"]
    assert asked.private == 0
    assert {one.title: one.access for one in asked.texts}["Open"] == ""


def test_public_is_no_mark() -> None:
    assert len(read(calendar(event("1", "E", "20260901", "CLASS:PUBLIC"))).texts) == 1


def test_a_private_change_hides_its_time_and_a_private_series_its_changes() -> None:
    change = read(calendar(SERIES, f"{CHANGE}\nCLASS:PRIVATE"))
    assert [start[8:10] for _title, start, _end in times(change)] == ["01", "03"]
    assert times(read(calendar(f"{SERIES}\nCLASS:PRIVATE", CHANGE))) == []
    opened = read(calendar(f"{SERIES}\nCLASS:PRIVATE", f"{CHANGE}\nCLASS:PUBLIC"))
    assert [title for title, _start, _end in times(opened)] == ["Change"]


def test_a_feed_of_nothing_but_private_events_is_no_failure() -> None:
    parsed = read(calendar(event("1", "E", "20260901", "CLASS:PRIVATE")))
    assert (parsed.error, parsed.seen, parsed.private) == ("", 1, 1)


@pytest.mark.parametrize("uid", ["", " ", "\\n", "\\n\\N"])
def test_a_uid_in_which_nothing_stands_is_made(uid: str) -> None:
    parsed = read(calendar(event(uid, "One"), event(uid, "Two")))
    uids = {one.uid for one in parsed.texts}
    assert len(uids) == 2
    assert all(one.endswith("@no-uid") for one in uids)


def test_the_made_uid_of_an_event_does_not_change_with_its_picture() -> None:
    made = {
        read(calendar(f"SUMMARY:E\nDTSTART:20260901\nIMAGE:https://a.org/?{day}")).texts[0].uid
        for day in range(2)
    }
    assert len(made) == 1


def test_at_is_at() -> None:
    assert plain_words("Jazz @ The Hall") == plain_words("Jazz at The Hall")
