"""What may be fetched, however it is spelled and wherever a redirect leads."""

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from ipaddress import ip_address
from typing import Any

import pytest

from blackboard import BadInput
from jobs.calendars.addresses import (
    Address,
    Policy,
    meant,
    name_from,
    policy,
    redacted,
    why_refused,
)
from jobs.calendars.fetch import Fetcher
from jobs.calendars.request import resolve_host
from jobs.calendars.responses import FetchFailed, Limits, TimedOut, Why
from tests.calendars.serving import Answer, serving
from tests.calendars.support import body_of, calendar, event
from tests.support.ports import dropping, free_port, need_address

ONE = calendar(event("1", "One"))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.9.9.9",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "168.63.129.16",
        "192.0.0.8",
        "198.18.0.1",
        "192.0.2.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fc00::1",
        "fd12:3456::1",
        "fec0::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b::808:808",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:db8::1",
        "::ffff:0:169.254.169.254",
        "64:ff9a::1",
        "1::1",
        "3fff::1",
        "4000::1",
        "5f00::1",
        "fe00::1",
    ],
)
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    assert why_refused(ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_public_addresses_are_not(address: str) -> None:
    assert why_refused(ip_address(address)) == ""


@pytest.mark.parametrize(
    ("allow", "host", "port", "addresses", "allowed"),
    [
        ([], "a.org", 80, ["8.8.8.8"], True),
        ([], "a.org", 80, ["8.8.8.8", "10.0.0.1"], False),
        (["127.0.0.1"], "127.0.0.1", 8000, ["127.0.0.1"], True),
        (["127.0.0.1"], "127.0.0.2", 8000, ["127.0.0.2"], False),
        (["127.0.0.1"], "localhost", 8000, ["127.0.0.1"], True),
        (["127.0.0.1"], "localhost", 8000, ["::1", "127.0.0.1"], False),
        (["127.0.0.1"], "x", 80, ["::ffff:127.0.0.1"], True),
        (["127.0.0.1:8000"], "127.0.0.1", 8000, ["127.0.0.1"], True),
        (["127.0.0.1:8000"], "127.0.0.1", 8001, ["127.0.0.1"], False),
        (["10.0.0.0/8"], "x", 80, ["10.9.9.9"], True),
        (["10.0.0.0/8"], "x", 80, ["11.9.9.9", "192.168.0.1"], False),
        (["localhost"], "LOCALHOST.", 80, ["::1", "127.0.0.1"], True),
        (["localhost:8000"], "localhost", 80, ["127.0.0.1"], False),
        (["intranet.example"], "evil.intranet.example", 80, ["10.0.0.1"], False),
        (["[::1]:8000"], "x", 8000, ["::1"], True),
        (["::1"], "x", 8000, ["::1"], True),
        (["file"], "x", 80, ["127.0.0.1"], False),
    ],
)
def test_the_settings_allow_what_they_name_and_no_more(
    allow: list[str], host: str, port: int, addresses: list[str], *, allowed: bool
) -> None:
    refused = policy(allow).refused(host, port, map(ip_address, addresses))
    assert (refused is None) is allowed


@pytest.mark.parametrize(
    ("host", "entry"), [("127.0.0.1", "127.0.0.1:{port}"), ("[::1]", "[::1]:{port}")]
)
def test_a_refusal_names_what_would_allow_a_listed_address(host: str, entry: str) -> None:
    with serving({"/": Answer(ONE)}) as site:
        with pytest.raises(FetchFailed) as caught:
            fetched(f"http://{host}:{site.port}/", allow=Policy())
        entry = entry.format(port=site.port)
        assert str(caught.value).endswith(f' (allow = ["{entry}"] under [jobs.calendars])')
        assert policy([entry]) != Policy()


@pytest.mark.parametrize("allow", [["a b"], [""], [3], 7, ["10.0.0.0/99"], ["host:port"], ["u@h"]])
def test_a_setting_that_means_nothing_is_refused_by_name(allow: object) -> None:
    with pytest.raises(BadInput, match=r"jobs\.calendars\.allow"):
        policy(allow)


def fetched(address: str, *, allow: Policy, **more: object) -> bytes | None:
    async def go() -> bytes | None:
        fetcher = Fetcher(allow, Limits(connect=5, read=5, total=10), **more)  # type: ignore[arg-type]
        return body_of(await fetcher.fetch(address))

    return asyncio.run(go())


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "localhost",
        "0",
        "0xa9fea9fe",
        "2852039166",
        "0251.0376.0251.0376",
        "169.254.169.254",
        "[64:ff9b::a9fe:a9fe]",
        "168.63.129.16",
        "100.64.0.1",
    ],
)
def test_no_spelling_of_a_host_reaches_this_machine_or_its_network(host: str) -> None:
    with serving({"/": Answer(ONE)}) as site:
        with pytest.raises(FetchFailed) as caught:
            fetched(f"http://{host}:{site.port}/", allow=Policy())
        assert not site.asked
    assert str(caught.value).startswith(("refused: ", "not a well-formed address"))


def test_a_refusal_names_nothing_that_would_allow_a_redirect() -> None:
    away = Answer(status=302, headers={"Location": "http://169.254.169.254/"})
    with serving({"/": away}) as site, pytest.raises(FetchFailed) as caught:
        fetched(site.url("/"), allow=policy(["127.0.0.1"]))
    assert str(caught.value).endswith("169.254.169.254 is a link-local address")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "place",
    [
        "http://127.0.0.2:{port}/feed",
        "http://0x7f000002:{port}/feed",
        "http://[::1]:{port}/feed",
        "http://169.254.169.254/latest/meta-data",
        "file:///etc/passwd",
        "ftp://127.0.0.1/feed",
        "http://user:password@127.0.0.1:{port}/feed",
    ],
)
def test_no_redirect_leads_where_it_may_not(place: str, status: int) -> None:
    with serving({"/feed": Answer(ONE)}) as site:
        headers = {"Location": place.format(port=site.port)}
        site.answers["/"] = Answer(status=status, headers=headers, etag=False)
        with pytest.raises(FetchFailed):
            fetched(site.url("/"), allow=policy(["127.0.0.1", "file"]))
        assert [path for path, _headers in site.asked] == ["/"]


def test_a_name_that_changes_its_address_in_between_is_not_asked_again() -> None:
    """The connection goes to the address that was judged."""
    answers = [[ip_address("127.0.0.1")], [ip_address("127.0.0.2")]]
    asked: list[str] = []

    async def changing(host: str, _port: int) -> list[Address]:
        asked.append(host)
        return answers.pop(0)

    with serving({"/": Answer(ONE)}) as site:
        address = f"http://feeds.example:{site.port}/"
        assert fetched(address, allow=policy(["127.0.0.1"]), resolve=changing) == ONE
        assert site.asked[0][1]["host"] == f"feeds.example:{site.port}"
    assert asked == ["feeds.example"]


def of_dead(number: int, *last: str) -> Callable[[str, int], Coroutine[Any, Any, list[Address]]]:
    """A name that has so many addresses at which nothing listens, and then others. Skips the test
    where this machine has no such addresses: there they do not refuse.
    """
    need_address("127.0.0.3")

    async def found(_host: str, _port: int) -> list[Address]:
        return [ip_address(f"127.0.0.{n + 3}") for n in range(number)] + [*map(ip_address, last)]

    return found


@pytest.mark.parametrize("dead", [1, 12])
def test_the_next_address_is_tried_when_one_takes_no_connection(dead: int) -> None:
    with serving({"/": Answer(ONE)}) as site:
        address, resolve = f"http://feeds.example:{site.port}/", of_dead(dead, "127.0.0.1")
        assert fetched(address, allow=policy(["127.0.0.0/8"]), resolve=resolve) == ONE


def test_a_name_with_very_many_addresses_has_no_more_than_some_of_them_tried() -> None:
    """A name in a feed may be anybody's."""
    with serving({"/": Answer(ONE)}) as site:
        address, resolve = f"http://feeds.example:{site.port}/", of_dead(40, "127.0.0.1")
        with pytest.raises(FetchFailed, match="no connection"):
            fetched(address, allow=policy(["127.0.0.0/8"]), resolve=resolve)
        assert not site.asked


def test_many_addresses_that_drop_all_share_the_time_for_a_connection() -> None:
    resolve, limits = of_dead(8), Limits(connect=0.1, read=5, total=10)
    port = free_port()
    fetcher = Fetcher(policy(["127.0.0.0/8"]), limits, resolve=resolve)
    with ExitStack() as stack:
        for address in asyncio.run(resolve("", port)):
            stack.enter_context(dropping(str(address), port))
        with pytest.raises(TimedOut, match=r"no connection within 0\.05 s at any of 8 addresses"):
            asyncio.run(fetcher.fetch(f"http://feeds.example:{port}/"))


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (socket.gaierror(socket.EAI_NONAME, "no such name"), "is not known"),
        (socket.gaierror(socket.EAI_AGAIN, "not now"), "cannot be resolved now"),
        (OSError(socket.EAI_AGAIN, "an error with the same number"), "is not known"),
    ],
    ids=["no such name", "not now", "another error"],
)
def test_a_name_that_cannot_be_resolved_now_is_not_called_unknown(
    problem: OSError, words: str
) -> None:
    async def failing(_host: str, _port: int) -> list[Address]:
        raise problem

    with pytest.raises(FetchFailed, match=f"the host 'feeds.example' {words}"):
        fetched("http://feeds.example/", allow=policy([]), resolve=failing)


def test_resolution_covers_what_the_machine_would_connect_to() -> None:
    assert asyncio.run(resolve_host("0x7f.1", 80)) == [ipaddress.IPv4Address("127.0.0.1")]


@pytest.mark.parametrize(
    "address",
    [
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "/etc/passwd",
        "feeds/town.ics",
        "ftp://8.8.8.8/x",
        "gopher://8.8.8.8/",
        "http://user:secret@8.8.8.8/",
        "http:///nowhere",
        "javascript:alert(1)",
        "",
    ],
)
def test_only_http_and_https_are_fetched_and_no_secret_is_told(address: str) -> None:
    with pytest.raises(FetchFailed) as caught:
        fetched(address, allow=Policy())
    assert caught.value.why is Why.REFUSED
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://user:pw@a.org/x", "https://...@a.org/x"),
        ("https://a.org/x?ical=1&key=abc", "https://a.org/x?ical=1&key=..."),
        ("https://a.org/x?access_token=abc#top", "https://a.org/x?access_token=...#top"),
        (
            "https://a.org/ical/me/private-0a1b2c/basic.ics",
            "https://a.org/ical/me/private-.../basic.ics",
        ),
        ("https://a.org/events/?ical=1", "https://a.org/events/?ical=1"),
        ("feeds/town.ics", "feeds/town.ics"),
    ],
)
def test_what_is_shown_of_an_address_keeps_no_secret(address: str, expected: str) -> None:
    assert redacted(address) == expected


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("http://127.0.0.1:8000/davis/thedirt.ics", "thedirt"),
        ("https://a.org/events/?ical=1", "a.org"),
        ("https://calendar.google.com/calendar/ical/x/public/basic.ics", "calendar.google.com"),
        ("file:///data/town%20hall.ics", "town hall"),
        ("https://user:pw@a.org/", "a.org"),
        ("cities/davis/uudavis.ics", "uudavis"),
    ],
)
def test_a_feed_without_a_name_gets_one_from_its_address(address: str, name: str) -> None:
    assert name_from(address) == name


def test_webcal_is_fetched_over_https() -> None:
    assert meant("webcal://a.org/x.ics") == "https://a.org/x.ics"
    assert meant("http://a.org/webcal://") == "http://a.org/webcal://"
