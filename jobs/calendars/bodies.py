"""Reads a response's body, decompressing as it comes, and never takes more than a limit.

A few kilobytes of gzip can stand for gigabytes: each piece is decompressed only as far as the
limit still reaches.
"""

import re
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

from .fetched import Body

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
"""How far from its end a look for the end of a feed begins, before all of it is looked at."""


class TooLarge(Exception):
    """More bytes than the limit."""


class BadEncoding(Exception):
    """Not compressed in a way that was asked for, or damaged."""


async def read_body(
    pieces: AsyncIterator[bytes], encoding: str, limit: int, folder: Path | None = None
) -> Body:
    """The whole body, decompressed. `encoding` is the Content-Encoding header; `folder` is where
    a long one is kept.
    """
    inflate = _Inflater(encoding.strip().lower(), limit, Body(folder))
    try:
        async for piece in pieces:
            inflate.feed(piece)
        return inflate.finished()
    except BaseException:
        inflate.body.close()
        raise


def cut_off(body: bytes) -> str:
    """How one sees that a feed ends before its end, or "". A connection that breaks is no error
    where the server did not say how much would come.
    """
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        body = body.decode("utf-16", "replace").encode()
    body = body.replace(b"\x00", b"")
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


class _Inflater:
    def __init__(self, encoding: str, limit: int, body: Body) -> None:
        self._limit = limit
        self.body = body
        self._bits = {"gzip": 31, "x-gzip": 31, "deflate": 15, "": 0, "identity": 0}.get(encoding)
        if self._bits is None:
            raise BadEncoding(f"compressed as {encoding[:20]!r}, which was not asked for")
        self._stream = zlib.decompressobj(self._bits) if self._bits else None

    def feed(self, piece: bytes) -> None:
        if self._stream is None:
            self._keep(piece)
            return
        while piece:
            piece = self._inflated(piece)

    def _inflated(self, piece: bytes) -> bytes:
        """Keeps what the piece stands for; the answer is what is left of it."""
        assert self._stream is not None
        try:
            self._keep(self._stream.decompress(piece, self._limit - self.body.size + 1))
        except zlib.error:
            if self._bits != 15 or self.body.size:
                raise BadEncoding("its compression is damaged") from None
            self._bits = -15  # some send deflate without its header
            self._stream = zlib.decompressobj(self._bits)
            return piece
        if self._stream.eof:
            rest = self._stream.unused_data
            if not rest.startswith(b"\x1f\x8b"):
                return b""
            self._stream = zlib.decompressobj(31)
            return rest
        return self._stream.unconsumed_tail

    def _keep(self, part: bytes) -> None:
        if self.body.size + len(part) > self._limit:
            raise TooLarge
        self.body.write(part)

    def finished(self) -> Body:
        if self._stream is not None and not self._stream.eof and self.body.size:
            raise BadEncoding("its compression ends too soon")
        self.body.finish()
        return self.body


async def read_head(pieces: AsyncIterator[bytes], encoding: str, size: int) -> bytes:
    """What a body begins with, decompressed if that is easy."""
    head = b""
    async for piece in pieces:
        head += piece
        if len(head) >= size:
            break
    if encoding.strip().lower() not in {"gzip", "x-gzip", "deflate"}:
        return head[:size]
    try:
        return zlib.decompressobj(47).decompress(head, size)
    except zlib.error:
        return b""
