"""How feeds are fetched: conditionally, and within limits."""

import asyncio
import gzip
import os
import resource
import threading
import zlib
from collections.abc import AsyncIterator
from contextlib import nullcontext
from ipaddress import ip_address
from pathlib import Path

import pytest

from jobs.calendars.addresses import Address, policy
from jobs.calendars.fetch import Fetcher
from jobs.calendars.responses import (
    IN_MEMORY,
    Body,
    Fetched,
    FetchFailed,
    Inflater,
    Limits,
    Why,
    read_body,
)
from tests.calendars.serving import Answer, serving
from tests.calendars.support import body_of, calendar, event

ONE = calendar(event("1", "One"))
LOCAL = policy(["127.0.0.1", "file"])


def fetch(address: str, *, limits: Limits | None = None, **conditions: str) -> Fetched:
    async def go() -> Fetched:
        return await Fetcher(LOCAL, limits or Limits()).fetch(address, **conditions)

    return asyncio.run(go())


def test_a_feed_comes_with_its_validators() -> None:
    headers = {
        "Last-Modified": "Fri, 21 Aug 2026 10:00:00 GMT",
        "Content-Type": "text/calendar; charset=latin-1",
    }
    with serving({"/": Answer(ONE, headers=headers)}) as site:
        got = fetch(site.url("/"))
    assert body_of(got) == ONE
    assert got.etag.startswith('"')
    assert got.modified == headers["Last-Modified"]
    assert got.charset == "latin-1"


def test_an_unchanged_feed_is_not_sent_again() -> None:
    with serving({"/": Answer(ONE)}) as site:
        first = fetch(site.url("/"))
        second = fetch(site.url("/"), etag=first.etag, modified="Fri, 21 Aug 2026 10:00:00 GMT")
        asked = site.asked[1][1]
    assert body_of(second) is None
    assert asked["if-none-match"] == first.etag
    assert asked["if-modified-since"] == "Fri, 21 Aug 2026 10:00:00 GMT"


def test_no_condition_is_sent_without_validators() -> None:
    with serving({"/": Answer(ONE)}) as site:
        fetch(site.url("/"))
        assert not {"if-none-match", "if-modified-since"} & set(site.asked[0][1])


@pytest.mark.parametrize("odd", ['"caf\xe9"', '"a\x01b"', '"\u2603"'])
def test_a_validator_that_no_request_can_hold_is_not_sent_back(odd: str) -> None:
    with serving({"/": Answer(ONE)}) as site:
        got = fetch(site.url("/"), etag=odd, modified="Fri, 21 Aug 2026 10:00:00 GMT")
        assert body_of(got) == ONE
        assert body_of(fetch(site.url("/"), etag=got.etag, modified=odd)) is None
        assert "if-none-match" not in site.asked[0][1]
        assert "if-modified-since" not in site.asked[1][1]


def test_an_unasked_for_304_is_a_failure() -> None:
    with (
        serving({"/": Answer(status=304, etag=False)}) as site,
        pytest.raises(FetchFailed, match="HTTP 304"),
    ):
        fetch(site.url("/"))


def test_redirects_are_followed_relative_ones_too() -> None:
    answers = {
        "/a": Answer(status=301, headers={"Location": "/b"}, etag=False),
        "/b": Answer(status=307, headers={"Location": "c/d?e"}, etag=False),
        "/c/d?e": Answer(ONE),
    }
    with serving(answers) as site:
        assert body_of(fetch(site.url("/a"))) == ONE


@pytest.mark.parametrize("place", ["http://[::1", "http://127.0.0.1:99999/", "http://127.0.0.1:0/"])
def test_a_redirect_to_what_is_no_address_is_a_failure_that_may_pass(place: str) -> None:
    away = Answer(status=302, headers={"Location": place}, etag=False)
    with (
        serving({"/": away}) as site,
        pytest.raises(FetchFailed, match="redirected to something that is not") as caught,
    ):
        fetch(site.url("/"))
    assert caught.value.why is Why.TROUBLE


def test_redirects_end() -> None:
    with serving({"/": Answer(status=302, headers={"Location": "/"}, etag=False)}) as site:
        with pytest.raises(FetchFailed, match="more than 5 redirects"):
            fetch(site.url("/"))
        assert len(site.asked) == 6


def test_cookies_last_for_one_chain_of_redirects_of_one_host() -> None:
    """Many sites redirect to themselves until they get the cookie that they set."""
    with serving({"/feed": Answer(ONE)}) as other:
        home = {"Location": "/in", "Set-Cookie": "s=1=; Path=/; Secure; HttpOnly"}
        away = {"Location": other.url("/feed"), "Set-Cookie": "t=2"}
        back = {"Location": "/out", "Set-Cookie": "s=3"}
        answers = {
            "/": Answer(status=302, headers=home, etag=False),
            "/in": Answer(status=302, headers=back, etag=False),
            "/out": Answer(status=302, headers=away, etag=False),
        }
        with serving(answers) as site:
            for _twice in range(2):
                assert body_of(fetch(site.url("/"))) == ONE
        asked = [(path, headers.get("cookie")) for path, headers in site.asked]
        assert asked == [("/", None), ("/in", "s=1="), ("/out", "s=3")] * 2
        assert "cookie" not in other.asked[0][1]


@pytest.mark.parametrize(
    ("status", "why"),
    [
        *((one, Why.GONE) for one in (404, 410)),
        (429, Why.BUSY),
        *((one, Why.TROUBLE) for one in (403, 500, 503, 204)),
    ],
)
def test_any_other_status_is_a_failure_and_some_are_final(status: int, why: Why) -> None:
    with (
        serving({"/": Answer(status=status, etag=False)}) as site,
        pytest.raises(FetchFailed, match=f"HTTP {status}") as caught,
    ):
        fetch(site.url("/"))
    assert caught.value.why is why


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", "the connection ended before an answer"),
        (b"HTTP/1.1 200 OK\r\nX: %b\r\n\r\n" % (b"x" * 200_000), "its headers are too large"),
    ],
    ids=["nothing", "large headers"],
)
def test_an_answer_that_is_none_is_said_in_plain_words(answer: bytes, problem: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async def go() -> str:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(FetchFailed) as caught:
                await Fetcher(LOCAL, Limits()).fetch(f"http://127.0.0.1:{port}/")
            return str(caught.value)

    assert asyncio.run(go()) == problem


def test_a_refused_connection_is_a_failure_that_may_pass() -> None:
    with serving() as site:
        address = site.url("/")
    with pytest.raises(FetchFailed, match="no connection") as caught:
        fetch(address)
    assert caught.value.why is Why.TROUBLE


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        (Limits(read=0.05), "silent for 0.05 s"),
        (Limits(total=0.05), "no feed within 0.05 s"),
    ],
)
def test_a_server_that_falls_silent_is_left(limits: Limits, problem: str) -> None:
    hold = threading.Event()
    with serving({"/": Answer(ONE, hold=hold)}) as site:
        try:
            with pytest.raises(FetchFailed, match=problem):
                fetch(site.url("/"), limits=limits)
        finally:
            hold.set()


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(ONE)),
        ("gzip", gzip.compress(ONE[:30]) + gzip.compress(ONE[30:])),
        ("deflate", zlib.compress(ONE)),
        ("deflate", zlib.compress(ONE)[2:-4]),
        ("identity", ONE),
        ("", gzip.compress(ONE)),
        ("deflate", gzip.compress(ONE)),
        ("gzip", ONE),
        ("gzip, identity", gzip.compress(ONE)),
        ("gzip, gzip", gzip.compress(ONE)),
        ("UTF-8, deflate", zlib.compress(ONE)),
        ("br", gzip.compress(ONE)),
    ],
)
def test_compressed_feeds_are_read(encoding: str, body: bytes) -> None:
    with serving({"/": Answer(body, headers={"Content-Encoding": encoding})}) as site:
        assert body_of(fetch(site.url("/"))) == ONE


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_a_feed_larger_than_the_limit_is_refused(encoding: str) -> None:
    body = b"x" * 2048
    answer = Answer(
        gzip.compress(body) if encoding else body, headers={"Content-Encoding": encoding}
    )
    with serving({"/": answer}) as site:
        assert body_of(fetch(site.url("/"), limits=Limits(size=2048))) == body
        with pytest.raises(FetchFailed, match="larger than"):
            fetch(site.url("/"), limits=Limits(size=2047))


def read(pieces: list[bytes], encoding: str, limit: int) -> bytes:
    async def come() -> object:
        for piece in pieces:
            yield piece

    return asyncio.run(read_body(come(), encoding, limit)).read()  # type: ignore[arg-type]


def test_a_compression_bomb_is_never_inflated_beyond_the_limit() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    assert len(bomb) < 60_000
    for encoding in ("gzip", ""):
        with pytest.raises(FetchFailed, match="larger than"):
            read([bomb], encoding, 100_000)


def test_bombs_within_bombs_are_counted_together() -> None:
    with pytest.raises(FetchFailed, match="larger than"):
        read([gzip.compress(bytes(1000)) * 200], "gzip", 100_000)


def test_a_feed_for_which_the_disk_has_no_room_leaves_nothing_there(tmp_path: Path) -> None:
    async def come() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield bytes(5_000)

    usual, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (IN_MEMORY + 1_000, most))
    try:
        with pytest.raises(OSError, match="too large"):
            asyncio.run(read_body(come(), "", 1_000_000, tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (usual, most))
    assert not list(tmp_path.iterdir())


def test_what_stands_behind_the_end_of_a_compressed_feed_is_not_kept() -> None:
    body = Body()
    inflate = Inflater("gzip", 100_000, body)
    for piece in (gzip.compress(ONE), *[bytes(1_000)] * 90):
        inflate.feed(piece)
    assert inflate.finished().read() == ONE
    assert inflate._stream is not None
    assert len(inflate._stream.unused_data) <= 1_000


@pytest.mark.parametrize("more", [bytes(1_000), gzip.compress(b"") * 50], ids=["bytes", "gzip"])
def test_a_feed_that_is_small_but_whose_compressed_bytes_never_end_is_refused(more: bytes) -> None:
    with pytest.raises(FetchFailed, match="larger than"):
        read([gzip.compress(ONE), *[more] * 110], "gzip", 100_000)


@pytest.mark.parametrize("size", [1, 2, 3, 500])
def test_parts_that_are_compressed_one_by_one_are_put_together(size: int) -> None:
    packed = gzip.compress(ONE[:30]) + gzip.compress(ONE[30:])
    assert read([packed[at : at + size] for at in range(0, len(packed), size)], "", 1_000) == ONE


@pytest.mark.parametrize(
    ("pieces", "encoding"),
    [
        ([gzip.compress(ONE)[:-20]], "gzip"),
        ([b"not compressed at all"], "deflate"),
        ([gzip.compress(ONE)[:-20]], ""),
        ([b"\x8b\x02\x80" + ONE], "br"),
        ([b"\x8b\x02"], "br"),
        ([b"xy"], "gzip, deflate"),
        ([gzip.compress(ONE)[:40], b"\xff" * 40], "gzip"),
    ],
)
def test_damaged_or_unknown_compression_is_refused(pieces: list[bytes], encoding: str) -> None:
    with pytest.raises(FetchFailed, match="compress"):
        read(pieces, encoding, 100_000)


@pytest.mark.parametrize("encoding", ["br", "7bit", "text/calendar", "deflate", "gzip, deflate"])
@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"\r\n"])
@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_a_calendar_is_taken_as_it_is_whatever_is_said_of_its_encoding(
    encoding: str, before: bytes, size: int
) -> None:
    body = before + ONE
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    assert read(pieces, encoding, 100_000) == body


@pytest.mark.parametrize("encoding", ["", "identity", "none", "UTF-8", "gzip", "x-gzip"])
@pytest.mark.parametrize("body", [ONE, b"", b"x", b"\x1f"])
def test_what_is_not_compressed_is_taken_as_it_is(encoding: str, body: bytes) -> None:
    assert read([body[at : at + 1] for at in range(len(body))], encoding, 100_000) == body


@pytest.mark.parametrize(
    "body", [b"Gone for good", gzip.compress(b"Gone for good")], ids=["plain", "gzip"]
)
def test_the_words_of_an_error_are_read_compressed_or_not(body: bytes) -> None:
    answer = Answer(body, status=404, headers={"Content-Encoding": "gzip"})
    with serving({"/": answer}) as site, pytest.raises(FetchFailed) as failure:
        fetch(site.url("/"))
    assert failure.value.said == "Gone for good"


def test_an_answer_that_a_proxy_has_changed_is_one() -> None:
    with serving({"/": Answer(ONE, status=203, etag=False)}) as site:
        assert body_of(fetch(site.url("/"))) is not None


def test_a_body_in_many_pieces_is_put_together() -> None:
    packed = gzip.compress(ONE)
    pieces = [packed[at : at + 1] for at in range(len(packed))]
    for encoding in ("gzip", ""):
        assert read(pieces, encoding, 100_000) == ONE


def test_files_are_read_by_address_and_by_path(tmp_path: Path) -> None:
    file = tmp_path / "town hall.ics"
    file.write_bytes(ONE)
    for address in (
        file.as_uri(),
        f"file:{file.as_uri()[7:]}",
        f"file://localhost{file.as_uri()[7:]}",
        str(file),
    ):
        assert body_of(fetch(address)) == ONE


def test_a_file_that_is_compressed_is_unpacked(tmp_path: Path) -> None:
    file = tmp_path / "hall.ics.gz"
    for body, limit, problem in (
        (gzip.compress(ONE), len(ONE), ""),
        (gzip.compress(ONE), len(ONE) - 1, "larger than"),
        (gzip.compress(ONE)[:-20], len(ONE), "ends too soon"),
    ):
        file.write_bytes(body)
        with pytest.raises(FetchFailed, match=problem) if problem else nullcontext():
            assert body_of(fetch(str(file), limits=Limits(size=limit))) == ONE


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * 11)
    limits = Limits(size=10)
    for address, problem in (
        (str(tmp_path), "not a file|cannot be read"),
        (str(tmp_path / "pipe"), "not a file"),
        (str(tmp_path / "missing"), "no such file"),
        (str(tmp_path / "large" / "within"), "no such file"),
        (str(tmp_path / "large"), "larger than"),
        ("/dev/zero", "not a file"),
        (f"file://elsewhere{tmp_path}/large", "another host"),
        ("bad\0path", "cannot be read"),
    ):
        with pytest.raises(FetchFailed, match=problem):
            fetch(address, limits=limits)


def test_a_host_is_asked_a_few_times_at_once_and_no_more() -> None:
    """Each answer waits for the test, so those under way can be counted."""
    under_way = most = 0

    async def counting(_host: str, _port: int) -> list[Address]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _turn in range(20):
            await asyncio.sleep(0)
        under_way -= 1
        return [ip_address("127.0.0.1")]

    with serving({"/": Answer(ONE)}) as site:

        async def go() -> None:
            fetcher = Fetcher(LOCAL, Limits(per_host=2), counting)
            await asyncio.gather(*(fetcher.fetch(site.url("/")) for _ in range(6)))

        asyncio.run(go())
        assert len(site.asked) == 6
    assert most == 2


def test_the_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serving({"/": Answer(ONE)}) as site:
        assert body_of(fetch(site.url("/"))) == ONE
