"""What may be shown of an address, and where a feed has its name from."""

from pathlib import Path

import pytest

from jobs.calendars.addresses import name_from, plain_too, redacted, same_place, without
from jobs.calendars.aggregation import distinct
from jobs.calendars.lines import calendar_name
from jobs.calendars.params import RunContext
from tests.calendars.serving import Answer, serving
from tests.calendars.support import aggregate, calendar, event, events, report

TOKEN = "a1B2c3D4e5F6g7H8i9J0"
GUID = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
ONE = calendar(event("1", "One"))


@pytest.mark.parametrize(
    "address",
    [
        "https://a.org/x.ics?hash={}",
        "https://a.org/x.ics?pass={}",
        "https://a.org/x.ics?ical=1&PASS={}&x=1",
        "https://a.org/x.ics?user_hash={}",
        "https://a.org/x.ics?authtoken={}#top",
        "https://a.org/x.ics?s={}",
        "https://a.org/x.ics?x={}",
        "https://a.org/x.ics?{}",
        "https://a.org/x.ics#{}",
        "https://a.org/x.ics#access_token={}",
        "webcal://p23-caldav.icloud.com/published/2/{}",
        "https://p23-calendars.icloud.com/published/2/{}/{}",
        "https://outlook.office365.com/owa/calendar/{}@town.org/{}/calendar.ics",
        "https://outlook.live.com/owa/calendar/{}/{}/cid-ABC/calendar.ics",
        "https://outlook.office.com/owa/calendar/{}/reachcalendar.html",
        "https://calendar.google.com/calendar/ical/me%40a.org/private-{}/basic.ics",
        "https://cloud.a.org/remote.php/dav/public-calendars/{}?export",
        "https://canvas.a.edu/feeds/calendars/user_{}.ics",
        "https://a.org/ical/{}.ics",
        "https://a.org/feed/{}/events",
        "http://user:{}@a.org/x.ics",
        "http://{}@a.org/x.ics",
        "//user:{}@a.org/x.ics",
        "webcal://user:{}@a.org/x.ics",
    ],
)
@pytest.mark.parametrize("secret", [TOKEN, GUID, "deadbeef0123456789abcdef01234567"])
def test_no_secret_of_an_address_is_shown(address: str, secret: str) -> None:
    full = address.replace("{}", secret)
    assert secret not in redacted(full)
    assert "..." in redacted(full)
    assert secret not in name_from(full)
    assert secret not in without(f"no calendar at {full} for {secret}", full)


@pytest.mark.parametrize("secret", ["swordfish", "x", "%2Fab", "geheim"])
@pytest.mark.parametrize(
    "name",
    ["hash", "pass", "Password", "apiKey", "X-Amz-Signature", "pw", "accesscode", "share", "login"],
)
def test_what_is_secret_by_its_name_is_so_whatever_its_value(name: str, secret: str) -> None:
    address = f"https://a.org/i?y=7&{name}={secret}&z=8"
    assert redacted(address) == f"https://a.org/i?y=7&{name}=...&z=8"


@pytest.mark.parametrize(
    "address",
    [
        "https://a.org/events/?ical=1&tribe_display=month",
        "https://calendar.google.com/calendar/ical/c_1a2b3c4d5e6f7a8b9c0d%40group.calendar.google.com/public/basic.ics",
        "https://a.org/2026/farmers-market-and-community-centre-calendar-2026-2027.ics",
        "https://www.meetup.com/davis-hiking-and-walking-group-2/events/ical/",
        "https://library.a.org/calendars/branch_12345678.ics",
        "https://a.org/x?category=arts&branch=12345",
        "feeds/town.ics",
        "file:///data/town%20hall.ics",
        "",
    ],
)
def test_what_is_no_secret_stays(address: str) -> None:
    assert redacted(address) == address


def test_no_file_of_a_run_holds_a_token(tmp_path: Path) -> None:
    paths = [f"/published/2/{TOKEN}", f"/x.ics?hash={TOKEN}x", f"/lost/{TOKEN}y.ics"]
    with serving({path: Answer(ONE) for path in paths[:2]}) as site:
        site.answers[paths[2]] = Answer(f"no {paths[2]} here".encode(), 404)
        summary = aggregate(tmp_path, [site.url(path) for path in paths])
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert (summary["ok"], summary["failed"]) == (2, 1)
    assert TOKEN.encode() not in written
    assert TOKEN not in repr(summary)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(b'{"error":"wrong password hunter22 for opensesame"}', 403),
        Answer(b"<title>no hunter22, no opensesame</title>", 404),
        Answer(b"<html><body>hunter22 opensesame</body></html>"),
        Answer(b"", 302, {"Location": "//hunter22.opensesame.invalid:1/x?pass=opensesame"}),
    ],
    ids=["403", "404", "page", "host"],
)
@pytest.mark.parametrize("cities", [1, 2])
def test_a_secret_is_hidden_whichever_address_of_the_way_held_it(
    tmp_path: Path, answer: Answer, cities: int, caplog: pytest.LogCaptureFixture
) -> None:
    with serving({"/end": answer, "/a.ics": Answer(ONE)}) as site:
        site.answers["/x.ics?pass=hunter22"] = Answer(b"", 302, {"Location": "/y?key=opensesame"})
        site.answers["/y?key=opensesame"] = Answer(b"", 302, {"Location": "/end"})
        feeds = [site.url("/x.ics?pass=hunter22"), site.url("/a.ics")]
        for number in range(cities):
            summary = aggregate(tmp_path, feeds, name=f"town{number}", run=RunContext())
            assert (summary["ok"], summary["failed"]) == (1, 1)
    told = [path.read_bytes() for path in tmp_path.glob("*.report.json")]
    for secret in ("hunter22", "opensesame"):
        assert secret.encode() not in b"".join(told)
        assert secret not in caplog.text


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://a.org/x", "webcal://A.org/x", True),
        ("https://a.org/x", "https://a.org:443/x#y", True),
        ("http://a.org", "http://a.org/", True),
        ("http://a.org./", "http://a.org/", True),
        ("http://a.org/x", "https://a.org/x", False),
        ("http://a.org/x", "http://a.org/X", False),
        ("http://a.org/x?a", "http://a.org/x?b", False),
        ("http://a.org:81/x", "http://a.org/x", False),
    ],
)
def test_spellings_of_an_address_that_ask_for_the_same(one: str, other: str, *, same: bool) -> None:
    assert (same_place(one) == same_place(other)) is same


def test_webcal_in_a_redirect_is_followed(tmp_path: Path) -> None:
    """Over https at first; a server that does not speak it is asked over http."""
    with serving({"/b": Answer(ONE)}) as site:
        there = site.url("/b").replace("http:", "webcal:")
        site.answers["/a"] = Answer(status=301, headers={"Location": there}, etag=False)
        summary = aggregate(tmp_path, [site.url("/a"), site.url("/b").replace("http:", "WebCal:")])
    assert (summary["ok"], summary["failed"]) == (2, 0)
    assert plain_too("webcals://a.org/") == []


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("X-WR-CALNAME:Town Hall\n", "Town Hall"),
        ("x-wr-calname;VALUE=TEXT:Arts\\, Crafts\\; &amp; <b>More</b>\n", "Arts, Crafts; & More"),
        ("X-WR-CALNAME:Town\n  Hall\n", "Town Hall"),
        ('NAME;X="a:b":Parks\n', "Parks"),
        ("X-WR-CALNAME:\n", ""),
        ("X-WR-CALDESC:No name\n", ""),
        ("X-WR-CALNAME:\x1b[31m" + "x" * 200 + "\n", ("[31m" + "x" * 200)[:100]),
        ("X-WR-CALNAME:Caf\u00e9\n", "Caf\u00e9"),
    ],
)
def test_a_calendar_names_itself(head: str, name: str) -> None:
    assert calendar_name(calendar(event("1", "One"), head=head)) == name


def test_a_tag_that_does_not_end_is_part_of_a_name() -> None:
    assert calendar_name(b"BEGIN:VCALENDAR\r\nX-WR-CALNAME:<a <b>Town</b>\r\n") == "<a Town"


def test_the_name_of_an_event_is_not_that_of_the_calendar() -> None:
    assert calendar_name(calendar(event("1", "One") + "\nX-WR-CALNAME:No")) == ""


def test_names_are_apart() -> None:
    names = [("A", "a"), ("A", "b"), ("A", "b"), ("A", "A"), ("B", "b")]
    assert distinct(names) == ["A", "A (b)", "A (b) (2)", "A (2)", "B"]


def test_a_feed_without_a_name_has_the_one_that_it_gives_itself(tmp_path: Path) -> None:
    named = calendar(event("1", "One"), head="X-WR-CALNAME:Town Hall\n")
    with serving({path: Answer(named) for path in ("/x.ics", "/y.ics", "/z.ics")}) as site:
        feeds = [site.url("/x.ics"), {"url": site.url("/y.ics"), "name": "Y"}, site.url("/z.ics")]
        for _again in range(2):
            aggregate(tmp_path, feeds)
            names = ["Town Hall", "Y", "Town Hall (z)"]
            assert events(tmp_path)[0]["sources"] == names
            assert sorted(report(tmp_path)) == sorted(names)
        del site.answers["/x.ics"]
        aggregate(tmp_path, feeds)
    assert report(tmp_path)["Town Hall"]["error"] == "HTTP 404"
