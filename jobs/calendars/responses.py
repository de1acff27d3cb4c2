"""The result of a fetch: a feed's bytes, "not modified", or why there is no feed.

A body is decompressed piece by piece, never beyond a limit: a few kilobytes of gzip can stand for
gigabytes. A feed that is a gzip file itself (.ics.gz) is, too. Headers say for how long it is fresh
and when to ask again. From a page that is no feed the first words are kept, for the report.
"""

import html
import os
import re
import tempfile
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from enum import StrEnum
from pathlib import Path
from typing import IO

from blackboard.http_messages import date_of, retry_after

from .addresses import without
from .lines import OTHER_FEED, as_utf_8, why_no_calendar

IN_MEMORY = 32 * 1024
"""Bytes of a body that are held in memory; a longer one goes to a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds, bytes and numbers that one fetch keeps to."""

    connect: float = 10.0
    read: float = 20.0
    total: float = 60.0
    size: int = 16 * 1024 * 1024
    redirects: int = 5
    together: int = 16
    per_host: int = 4
    quick: float = 3.0
    """Seconds after which a request no longer counts among those that are made together."""
    longest_wait: float = 30.0
    """Seconds of a Retry-After that is waited for in the same run, at most."""


class Why(StrEnum):
    """Why there is no feed, as far as it decides what is shown and when to ask again."""

    TROUBLE = "trouble"
    """It may pass: the last good events stay."""
    BUSY = "busy"
    """The same, and it is that of the whole host, which gets too many requests."""
    GONE = "gone"
    """The server says that there is no such feed."""
    REFUSED = "refused"
    """It may not be fetched, or is not an address: nothing of it is shown."""


@dataclass(slots=True)
class Seconds:
    """The time that a feed took, without the time in which it waited for its turn."""

    connect: float = 0.0
    """Name servers, connections and TLS."""
    wait: float = 0.0
    """From each request to the head of its answer."""
    read: float = 0.0
    """The body."""
    parse: float = 0.0

    @property
    def all(self) -> float:
        return self.connect + self.wait + self.read + self.parse


class FetchFailed(Exception):
    """No feed. The text is one line and never holds the address, which may be secret."""

    def __init__(
        self, problem: str, *, why: Why = Why.TROUBLE, said: str = "", until: datetime | None = None
    ) -> None:
        super().__init__(problem)
        self.why = why
        self.said = said
        """The server's own words."""
        self.until = until
        """The earliest time at which the server wants another request."""
        self.seconds = Seconds()


class TimedOut(FetchFailed):
    """The host took too long."""


class Body:
    """Bytes that came. Many of them are put into a file, which `close` deletes: a run that waits
    for its readers holds the bodies of hundreds of feeds. `folder` is where the file is made; by
    default where the system keeps such files.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._parts: list[bytes] = []
        self._path: Path | None = None
        self._file: IO[bytes] | None = None
        self.size = 0

    def write(self, part: bytes) -> None:
        self.size += len(part)
        if self._file is None and self.size > IN_MEMORY:
            descriptor, name = tempfile.mkstemp(suffix=".body", dir=self._folder)
            self._path, self._file = Path(name), os.fdopen(descriptor, "wb")
            self._file.writelines(self._parts)
            self._parts = []
        if self._file is None:
            self._parts.append(part)
        else:
            self._file.write(part)

    def read(self) -> bytes:
        """All of it; nothing can be written any more."""
        self.finish()
        return b"".join(self._parts) if self._path is None else self._path.read_bytes()

    def finish(self) -> None:
        """No more will come."""
        if self._file is not None:
            self._file.close()

    def close(self) -> None:
        with suppress(OSError):  # a full disk does not take the last of it
            self.finish()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        self._parts, self._path = [], None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The result of a fetch. `content` is None when the server says that nothing changed."""

    content: Body | None
    etag: str = ""
    modified: str = ""
    charset: str = ""
    fresh: float = 0.0
    """Seconds for which what came may be used by others too."""
    seconds: Seconds = field(default_factory=Seconds)
    way: tuple[str, ...] | None = ()
    """The addresses that were asked for it, of which its words may quote the secrets; None when
    they are lost.
    """


SHARED = 300.0
"""Seconds for which a feed may be used by other cities when its server says nothing of it."""
_LONGEST_FRESH = 3600.0
LONGEST_WAIT = timedelta(days=1)
"""The longest time for which a server that asks for time is left alone."""
_WORDS = 160
_READABLE = 0.25
"""The part of a text that may be unreadable."""
# An element without an end tag reaches to the end of the text: else a tag that is not there would
# be searched for again from each beginning.
_TITLE = re.compile(rb"<(title|h1)\b[^<>]*>(.*?)(?:</\1|\Z)", re.IGNORECASE | re.DOTALL)
_UNSEEN = re.compile(
    rb"<(script|style)\b.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)", re.IGNORECASE | re.DOTALL
)
_TAG = re.compile(r"<[^<>]*>")
_MESSAGE = re.compile(
    r'"(?:message|error|error_description|detail|title|reason)"\s*:\s*"((?:[^"\\]|\\.)+)"',
    re.IGNORECASE,
)
HEAD = 16 * 1024
"""Bytes of an answer in which words are looked for."""


def freshness(headers: Mapping[str, str]) -> float:
    """Seconds for which an answer may be used without asking again (RFC 9111, 4.2), an hour at
    the most. 0 where it must not be kept, or be checked each time.
    """
    control = headers.get("cache-control", "").lower()
    if re.search(r"\b(?:no-store|no-cache)\b", control):
        return 0.0
    age = _number(headers.get("age", "")) or 0.0
    stated = re.search(r'(?<![\w-])max-age\s*=\s*"?(\d{1,9})', control)
    if stated:
        fresh = float(stated[1]) - age
    elif "expires" in headers:
        ends, begins = _date(headers["expires"]), _date(headers.get("date", ""))
        fresh = (ends - begins).total_seconds() - age if ends and begins else 0.0
    else:
        fresh = SHARED - age
    return min(max(fresh, 0.0), _LONGEST_FRESH)


def next_request_at(headers: Mapping[str, str], now: datetime) -> datetime | None:
    """When a server wants to be asked again, a day ahead at the most. A time that it names is read
    by its own clock, or by that of this host if it does not give the time.
    """
    date = headers.get("date", "")
    if date_of(date) is None:
        date = format_datetime(now, usegmt=True)
    seconds = min(retry_after(headers.get("retry-after", ""), date), LONGEST_WAIT.total_seconds())
    return now + timedelta(seconds=seconds) if seconds else None


def words_of(body: bytes, *addresses: str) -> str:
    """What people read in an answer that is no feed: one short line, with nothing in it that one
    of the addresses on the way to it keeps secret. Nothing of a calendar or of another feed, and of
    what is not text.
    """
    body = body[:HEAD]
    if why_no_calendar(body) in {"", OTHER_FEED}:
        return ""
    title = _TITLE.search(body)
    text = (title[2] if title else _UNSEEN.sub(b" ", body)).decode("utf-8", "replace")
    message = None if title else _MESSAGE.search(text)
    words = html.unescape(_TAG.sub(" ", message[1] if message else text))
    unreadable = sum(one == "\ufffd" or not (one.isprintable() or one.isspace()) for one in words)
    if unreadable > len(words) * _READABLE:
        return ""
    line = " ".join("".join(one if one.isprintable() else " " for one in words).split())
    line = without(line, *addresses)
    return line if len(line) <= _WORDS else line[: _WORDS - 3] + "..."


def _number(text: str) -> float | None:
    text = text.strip()
    return float(text) if text.isdecimal() and len(text) < 12 else None


def _date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


_EDGE = re.compile(
    rb"(?:\A|[\r\n]|(?<=END:VEVENT)|(?<=END:VALARM)|(?<=END:VTIMEZONE)|(?<=END:VCALENDAR))"
    rb"(?:[ \t\xa0]|\xc2\xa0|\xef\xbb\xbf)*(BEGIN|END):[ \t]*V(CALENDAR|EVENT)"
    rb"(?=[^A-Z0-9-]|\Z|(?:BEGIN|END):)",
    re.IGNORECASE,
)
"""An edge of a component on a line of its own, or behind the end of another; whatever programs
have put behind it.
"""
_LAST = 64 * 1024
"""Bytes at the end of a feed that are searched for its end first, before all of it is."""


async def read_body(
    pieces: AsyncIterator[bytes], encoding: str, limit: int, folder: Path | None = None
) -> Body:
    """The whole body, decompressed. `encoding` is the Content-Encoding header; `folder` is where
    a long one is kept.
    """
    inflate = Inflater(encoding.strip().lower(), limit, Body(folder))
    try:
        async for piece in pieces:
            inflate.feed(piece)
        return inflate.finished()
    except BaseException:
        inflate.body.close()
        raise


def cut_off(body: bytes) -> str:
    """Why a feed is incomplete, or "". A connection that breaks is no error
    where the server did not say how much would come.
    """
    body = as_utf_8(body)
    if _last(body[-_LAST:], b"CALENDAR") == b"END":
        return ""
    for kind in (b"CALENDAR", b"EVENT"):
        edge = _last(body, kind)
        if edge:
            return "" if edge == b"END" else f"cut off: no END:V{kind.decode()}"
    return ""


def _last(text: bytes, kind: bytes) -> bytes:
    """Whether the last edge of a kind of component is its BEGIN or its END; or b""."""
    edges = [one[1].upper() for one in _EDGE.finditer(text) if one[2].upper() == kind]
    return edges[-1] if edges else b""


_GZIP_BITS = 31
_BITS = {"gzip": _GZIP_BITS, "x-gzip": _GZIP_BITS, "deflate": 15, "": 0, "identity": 0}
_BITS |= {"none": 0, "utf-8": 0, "utf8": 0, "8bit": 0, "binary": 0}  # names for no encoding
"""The `wbits` of zlib, by the encoding of an answer; 0: it is not compressed."""
_GZIP = b"\x1f\x8b"
_PLAIN = re.compile(rb"(?:\xef\xbb\xbf)?\s*BEGIN:", re.IGNORECASE)
"""Matches how a calendar begins that is not compressed."""
_SURE = 64
"""Bytes at the beginning that say whether it is compressed, where its encoding is in doubt."""


def _bits_of(encoding: str) -> int | None:
    """The `wbits` for a Content-Encoding; None where it is not known, or is several."""
    bits = {_BITS.get(one.strip().lower()) for one in encoding.split(",")}
    more = bits - {0}
    return 0 if not more else more.pop() if len(more) == 1 else None


class Inflater:
    """Decompresses a body piece by piece into a `Body`. What begins as gzip is unpacked, whatever
    is said of it, and what does not begin so is no gzip; what begins as a calendar is taken as it
    is; what stands behind the end of a gzip is left out. The limit is one for the bytes that come,
    too. Raises FetchFailed for a body that is too large, is not compressed in a way that was asked
    for, or is damaged.
    """

    def __init__(self, encoding: str, limit: int, body: Body) -> None:
        self._limit = limit
        self.body = body
        self._encoding = encoding
        self._bits = _bits_of(encoding)
        self._needs = len(_GZIP) if self._bits in {0, _GZIP_BITS} else _SURE
        self._head = b""
        self._stream: zlib._Decompress | None = None
        self._begun = False
        self._ended = False
        self._came = 0

    def feed(self, piece: bytes) -> None:
        self._came += len(piece)
        self._check(self._came)
        if self._ended:
            return
        if not self._begun:
            self._head += piece
            if len(self._head) < self._needs:
                return
            piece = self._begin()
        self._go_on(piece)

    def _go_on(self, piece: bytes) -> None:
        if self._stream is None:
            self._keep(piece)
            return
        while piece:
            piece = self._inflated(piece)

    def _begin(self) -> bytes:
        """Decides by the first bytes, and returns them."""
        self._begun = True
        if self._head.startswith(_GZIP):
            self._bits = _GZIP_BITS
        elif self._bits == _GZIP_BITS or _PLAIN.match(self._head):
            self._bits = 0
        elif self._bits is None:
            raise FetchFailed(f"compressed as {self._encoding[:20]!r}, which was not asked for")
        self._stream = zlib.decompressobj(self._bits) if self._bits else None
        return self._head

    def _inflated(self, piece: bytes) -> bytes:
        """Stores the piece, decompressed; returns the rest of it."""
        assert self._stream is not None
        try:
            self._keep(self._stream.decompress(piece, self._limit - self.body.size + 1))
        except zlib.error:
            if self._bits != 15 or self.body.size:
                raise FetchFailed("its compression is damaged") from None
            self._bits = -15  # some send deflate without its header
            self._stream = zlib.decompressobj(self._bits)
            return piece
        if self._stream.eof:
            rest = self._stream.unused_data
            if not rest.startswith(_GZIP):
                # A single byte may be the first of another part: zlib keeps it for the next piece.
                self._ended = len(rest) >= len(_GZIP)
                return b""
            self._stream = zlib.decompressobj(_GZIP_BITS)
            return rest
        return self._stream.unconsumed_tail

    def _keep(self, part: bytes) -> None:
        self._check(self.body.size + len(part))
        self.body.write(part)

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise FetchFailed(f"larger than {self._limit / 1024 / 1024:g} MiB")

    def finished(self) -> Body:
        if not self._begun and len(self._head) < len(_GZIP):
            self._keep(self._head)
        elif not self._begun and (piece := self._begin()):
            self._go_on(piece)
        if self._stream is not None and not self._stream.eof and self.body.size:
            raise FetchFailed("its compression ends too soon")
        self.body.finish()
        return self.body


async def read_head(pieces: AsyncIterator[bytes], encoding: str) -> bytes:
    """The first `HEAD` bytes of a body, decompressed if that is easy."""
    head = b""
    async for piece in pieces:
        head += piece
        if len(head) >= HEAD:
            break
    bits = _bits_of(encoding)
    if not bits or (bits == _GZIP_BITS and not head.startswith(_GZIP)):
        return head[:HEAD]
    try:
        return zlib.decompressobj(47).decompress(head, HEAD)
    except zlib.error:
        return b""


def error_line(problem: Exception) -> str:
    """One line about a failure. Never the address: it may carry what must not be shown."""
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    return " ".join(str(problem).split())[:200] or type(problem).__name__
