"""Reads a response's body, decompressing as it comes, and never holds more than a limit.

A few kilobytes of gzip can stand for gigabytes: each piece is decompressed only as far as the
limit still reaches.
"""

import zlib
from collections.abc import AsyncIterator


class TooLarge(Exception):
    """More bytes than the limit."""


class BadEncoding(Exception):
    """Not compressed in a way that was asked for, or damaged."""


async def read_body(pieces: AsyncIterator[bytes], encoding: str, limit: int) -> bytes:
    """The whole body, decompressed. `encoding` is the Content-Encoding header."""
    inflate = _Inflater(encoding.strip().lower(), limit)
    async for piece in pieces:
        inflate.feed(piece)
    return inflate.finished()


class _Inflater:
    def __init__(self, encoding: str, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
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
            self._keep(self._stream.decompress(piece, self._limit - self._size + 1))
        except zlib.error:
            if self._bits != 15 or self._size:
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
        self._size += len(part)
        if self._size > self._limit:
            raise TooLarge
        self._parts.append(part)

    def finished(self) -> bytes:
        if self._stream is not None and not self._stream.eof and self._size:
            raise BadEncoding("its compression ends too soon")
        return b"".join(self._parts)
