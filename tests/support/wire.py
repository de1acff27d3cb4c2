"""HTTP/1.1 messages as a proxy reads them, and the kinds of requests to a table.

Enough of HTTP for the two programs it stands between: bodies have a length or come in chunks,
nothing is pipelined, and no client waits for `100 Continue`.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from urllib.parse import unquote

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}
BODYLESS = {"204", "304"}
_OPERATION = re.compile(rb"^(POST|PUT|PATCH|MERGE|DELETE) (\S+) HTTP/1\.1\r?$", re.MULTILINE)
_KEY_IN_PATH = re.compile(r"RowKey='([^']*)'")
_KEY_IN_BODY = re.compile(r'"RowKey"\s*:\s*("(?:[^"\\]|\\.)*")')


class Kind(StrEnum):
    """The purpose of a request in the scheduler."""

    CLAIM = "claim"
    RENEW = "renew"
    RELEASE = "release"
    OVERRIDE = "override"
    MEMBERSHIP = "membership"
    CHANGE = "change"
    """Any other batch: changes by people, and deletions of old rows."""
    PAGE = "page"
    """A page of a query."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Message:
    """A request or a reply, its body whole."""

    start: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    @property
    def target(self) -> str:
        return self.start.split(" ")[1]

    def at(self, target: str) -> "Message":
        """The same request for another target."""
        method, _, version = self.start.split(" ")
        return replace(self, start=f"{method} {target} {version}")

    def bytes(self, **more: str) -> bytes:
        """The message as bytes, with a length; `more` are headers besides its own."""
        own = [(name, value) for name, value in self.headers if name.lower() not in HOP_BY_HOP]
        length = [("Content-Length", str(len(self.body)))]
        has_length = self.start.split(" ")[1] not in BODYLESS
        headers = [*own, *(length if has_length else []), *more.items()]
        lines = [self.start, *(f"{name}: {value}" for name, value in headers), "", ""]
        return "\r\n".join(lines).encode("latin-1") + self.body


async def read_message(reader: asyncio.StreamReader) -> Message | None:
    """The next message; None when there is none."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    start, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    parted = [one.partition(":") for one in lines]
    headers = tuple((name, value.strip()) for name, _, value in parted)
    said = {name.lower(): value for name, value in headers}
    if start.split(" ")[1] in BODYLESS:
        return Message(start, headers)
    if "chunked" in said.get("transfer-encoding", "").lower():
        return Message(start, headers, b"".join([part async for part in _chunks(reader)]))
    return Message(start, headers, await reader.readexactly(int(said.get("content-length", "0"))))


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int((await reader.readline()).split(b";")[0], 16):
        yield await reader.readexactly(size)
        await reader.readline()
    await reader.readuntil(b"\r\n")  # no trailers: none of the two sends them


def kind_of(request: Message) -> Kind:
    """The kind of a request to a table."""
    path = request.target.partition("?")[0]
    if path.endswith("$batch"):
        return _kind_of_batch(list(operations(request.body)))
    if request.start.startswith("GET ") and path.endswith("()"):
        return Kind.PAGE
    return Kind.OTHER


def operations(batch: bytes) -> Iterator[tuple[str, str]]:
    """The operations of a batch: method and row key."""
    found = list(_OPERATION.finditer(batch))
    ends = [one.start() for one in found[1:]] + [len(batch)]
    for one, end in zip(found, ends, strict=False):  # a malformed batch has none at all
        in_path = _KEY_IN_PATH.search(unquote(one[2].decode("ascii")))
        in_body = _KEY_IN_BODY.search(batch[one.end() : end].decode("utf-8"))
        key = in_path[1] if in_path else json.loads(in_body[1]) if in_body else ""
        yield one[1].decode("ascii").replace("MERGE", "PATCH"), key


def _kind_of_batch(asked: list[tuple[str, str]]) -> Kind:
    families = {(method, key.partition(":")[0]) for method, key in asked}
    if families == {("PATCH", "lock")}:
        return Kind.RENEW
    if {("DELETE", "next"), ("POST", "lock")} <= families:
        return Kind.CLAIM
    if ("PUT", "lock") in families:
        return Kind.OVERRIDE
    if {("DELETE", "lock"), ("POST", "run")} <= families:
        return Kind.RELEASE
    if {family for _, family in families} == {"worker"}:
        return Kind.MEMBERSHIP
    return Kind.CHANGE
