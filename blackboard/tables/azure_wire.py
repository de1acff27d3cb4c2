"""The requests to an Azure table, and its replies: transactions, and pages of a range.

The SDK makes and reads each part of a transaction as a message of its own, and each row as an
entity with classes of its own: that takes twenty times the CPU of this. Pure: nothing is sent here.

    POST {endpoint}/$batch        one change set; a part for each operation, in order
    GET  {endpoint}/{table}()     the rows of a range of one partition, in the order of their keys

An update always states If-Match: without it, the service would insert a row that is missing. Values
are plain JSON where JSON has their type; times, whole numbers beyond 32 bits and numbers with a
fraction have it beside them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import msgspec
from azure.core.rest import HttpRequest

from blackboard.table import Delete, Etag, Insert, Merge, Op, Refused, Row, Value

VERSION = {"x-ms-version": "2019-02-02", "DataServiceVersion": "3.0"}
CONTINUATION = ("NextPartitionKey", "NextRowKey")
"""Parameters of the request for the next page. A reply has them as headers, after
`x-ms-continuation-`."""

_INT32 = 2**31
_TYPE = "@odata.type"
_JSON = "application/json;odata=minimalmetadata"
_PLAIN_KEY = re.compile(r"[A-Za-z0-9:._=~-]+")
_ANSWER = re.compile(rb"\nHTTP/1\.1 (\d{3})")
_ETAG = re.compile(rb"\n[Ee][Tt][Aa][Gg]: *([^\r\n]+)\r")
_XML = re.compile(r"<(?:\w+:)?(code|message)\b[^>]*>([^<]*)<", re.IGNORECASE)
_IS_ERROR = re.compile(r"<(?:\w+:)?error[\s>]", re.IGNORECASE)
_INDEX = re.compile(r"(\d+):")
LARGEST = 4 * 2**20
"""Bytes of a transaction."""


@dataclass(slots=True, eq=False)
class ServiceAnswer(Exception):
    """A reply other than the expected one. Raised by the readers below."""

    status: int
    code: str = ""
    """The service's; "" where it gives none, or where a proxy answers."""
    message: str = ""
    index: int | None = None
    """The index of the operation that it is about, where the service names one."""
    headers: Mapping[str, str] = field(default_factory=dict)


# ---- transactions


def transaction(
    table_url: str, partition: str, ops: Sequence[Op], datas: Sequence[Mapping[str, Value]]
) -> HttpRequest:
    """The request for a batch on the table at `table_url`; `datas` are the checked values of `ops`.
    Raises Refused for the operation with which it is too large.
    """
    batch, changes = f"batch_{uuid4()}", f"changeset_{uuid4()}"
    head = (
        f"--{changes}\r\nContent-Type: application/http\r\n"
        "Content-Transfer-Encoding: binary\r\n\r\n"
    ).encode()
    about = f"{table_url}(PartitionKey='{_key(partition)}',RowKey='"
    chunks = [f"--{batch}\r\nContent-Type: multipart/mixed; boundary={changes}\r\n\r\n".encode()]
    size = 2 * len(chunks[0])
    for index, (op, data) in enumerate(zip(ops, datas, strict=True)):
        part = (head, *_part(table_url, about, partition, op, data), b"\r\n")
        size += sum(map(len, part))
        if size > LARGEST:
            raise Refused(index, f"the batch passes {LARGEST:,} bytes as it is sent")
        chunks += part
    chunks.append(f"--{changes}--\r\n--{batch}--\r\n".encode())
    headers = {
        **VERSION,
        "Content-Type": f"multipart/mixed; boundary={batch}",
        "Accept": "application/json",
    }
    url = f"{table_url.rpartition('/')[0]}/$batch"
    return HttpRequest("POST", url, headers=headers, content=b"".join(chunks))


def _part(
    table_url: str, about: str, partition: str, op: Op, data: Mapping[str, Value]
) -> tuple[bytes, bytes]:
    """One request of a change set: its line and headers, and its body."""
    if isinstance(op, Insert):
        line = f"POST {table_url} HTTP/1.1\r\nPrefer: return-no-content\r\n"
    else:
        verb = "PATCH" if isinstance(op, Merge) else "PUT"
        verb = "DELETE" if isinstance(op, Delete) else verb
        line = f"{verb} {about}{_key(op.key)}') HTTP/1.1\r\nIf-Match: {op.etag}\r\n"
    body = b""
    if not isinstance(op, Delete):
        # With the keys, also for a row that exists: Azurite ignores a merge without properties.
        body = _entity({"PartitionKey": partition, "RowKey": op.key, **data})
        line += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{line}Accept: {_JSON}\r\nDataServiceVersion: 3.0\r\n\r\n".encode(), body


def _key(text: str) -> str:
    """A key as it stands in an address."""
    if _PLAIN_KEY.fullmatch(text):
        return text.replace(":", "%3A").replace("=", "%3D")
    return quote(text.replace("'", "''"), safe="")


_SEPARATORS = (("\u2028".encode(), b"\\u2028"), ("\u2029".encode(), b"\\u2029"))
"""Azurite takes these two for the end of a line in a batch, and answers with 500."""


def _entity(data: Mapping[str, Value]) -> bytes:
    entity: dict[str, Any] = {}
    for name, value in data.items():
        kind = type(value)
        if kind is datetime:
            entity[name + _TYPE] = "Edm.DateTime"
            entity[name] = value
        elif kind is int and not -_INT32 <= value < _INT32:  # type: ignore[operator]
            entity[name + _TYPE] = "Edm.Int64"
            entity[name] = str(value)
        else:
            if kind is float:
                entity[name + _TYPE] = "Edm.Double"
            entity[name] = value
    text = msgspec.json.encode(entity)
    for raw, escaped in _SEPARATORS:
        text = text.replace(raw, escaped)
    return text


def etags_of(status: int, headers: Mapping[str, str], body: bytes, ops: Sequence[Op]) -> list[Etag]:
    """The answer to a transaction: an etag for each operation, "" for a Delete. Raises
    ServiceAnswer, and ValueError for a body that is no such answer.
    """
    if status != ACCEPTED:
        raise _problem(status, headers, body)
    answers = list(_ANSWER.finditer(body))
    for answer in answers:
        if not answer[1].startswith(b"2"):
            content = body[answer.end() :].partition(b"\r\n\r\n")[2].partition(b"\r\n--")[0]
            problem = _problem(int(answer[1]), headers, content)
            if problem.index is None and len(ops) == 1:
                problem.index = 0
            raise problem
    ends = [*(answer.start() for answer in answers[1:]), len(body)]
    etags = []
    for op, answer, end in zip(ops, answers, ends, strict=True):
        if isinstance(op, Delete):
            etags.append("")
        else:
            header = _ETAG.search(body, answer.end(), end)
            if header is None:
                raise ValueError("a part without an etag")
            etags.append(header[1].decode())
    return etags


# ---- pages


def page_request(
    table_url: str,
    partition: str,
    first: str,
    last: str | None,
    *,
    count: int,
    following: Sequence[str],
) -> HttpRequest:
    """A page of a range; `following` are the keys at which it continues. The service may name a
    partition alone; as its own clients do, nothing is sent for a key that it left out.
    """
    range_ = f"PartitionKey eq {_literal(partition)} and RowKey ge {_literal(first)}"
    if last is not None:
        range_ += f" and RowKey lt {_literal(last)}"
    url = f"{table_url}()?$filter={quote(range_, safe='')}&$top={count}"
    for name, key in zip(CONTINUATION, following, strict=False):
        url += f"&{name}={quote(key, safe='')}" if key else ""
    return HttpRequest("GET", url, headers={**VERSION, "Accept": _JSON})


def _literal(key: str) -> str:
    return "'" + key.replace("'", "''") + "'"


class _Page(msgspec.Struct):
    value: list[dict[str, Any]]


_read_page = msgspec.json.Decoder(_Page).decode


def page_of(
    status: int, headers: Mapping[str, str], body: bytes
) -> tuple[list[Row], tuple[str, ...]]:
    """The rows of a page, and the keys at which the range continues; none: it has ended. Raises
    ServiceAnswer, and any other error for a body that is not a page.
    """
    if status != OK:
        raise _problem(status, headers, body)
    rows = [_row(record) for record in _read_page(body).value]
    keys = [headers.get(f"x-ms-continuation-{name}") for name in CONTINUATION]
    return rows, tuple(key or "" for key in keys) if any(keys) else ()


def _row(entity: dict[str, Any]) -> Row:
    key = entity.pop("RowKey")
    del entity["PartitionKey"]
    etag, stamp = entity.pop("odata.etag", ""), moment_of(entity.pop("Timestamp"))
    entity.pop("Timestamp" + _TYPE, None)
    data: dict[str, Value] = {}
    kinds = {}
    for name, value in entity.items():
        if name.endswith(_TYPE):
            kinds[name.removesuffix(_TYPE)] = value
        elif value is not None and not name.startswith("odata."):
            data[name] = value if isinstance(value, str | int | float | bool) else str(value)
    for name, kind in kinds.items():
        if name in data:
            data[name] = _typed(kind, data[name])
    return Row(key, etag, data, stamp)


def _typed(kind: str, value: Value) -> Value:
    """A value of a type that JSON lacks. It stays text where rows do not have its type, and where
    it is not of that type: then this row is damaged, and no other.
    """
    try:
        match kind:
            case "Edm.DateTime":
                return moment_of(str(value))
            case "Edm.Int64" | "Edm.Int32":
                return int(str(value))
            case "Edm.Double":
                return float(str(value))
            case _:
                return value
    except (ValueError, OverflowError):
        return value


def moment_of(text: str) -> datetime:
    """A time, which may have more digits than are kept."""
    return datetime.fromisoformat(text).astimezone(UTC)


# ---- errors

OK, ACCEPTED = 200, 202


def _problem(status: int, headers: Mapping[str, str], body: bytes) -> ServiceAnswer:
    code, message = _error_in(body)
    code = code or headers.get("x-ms-error-code", "")
    number = _INDEX.match(message)
    return ServiceAnswer(
        status=status,
        code=code,
        message=message.partition("\n")[0],
        index=int(number[1]) if number else None,
        headers=headers,
    )


class _Message(msgspec.Struct, frozen=True):
    value: str = ""


class _Error(msgspec.Struct):
    code: str = ""
    message: _Message = _Message()


class _ErrorBody(msgspec.Struct):
    error: _Error = msgspec.field(default_factory=_Error, name="odata.error")


def _error_in(body: bytes) -> tuple[str, str]:
    """Code and message, from JSON or XML; "" for what is not there."""
    try:
        error = msgspec.json.decode(body, type=_ErrorBody).error
    except (ValueError, RecursionError):
        text = body.decode("utf-8", "replace")
        if not _IS_ERROR.search(text):  # a page of a proxy
            return "", ""
        elements = {name.lower(): words for name, words in _XML.findall(text)}
        return elements.get("code", ""), elements.get("message", "")
    return error.code, error.message.value


def is_of_the_service(headers: Mapping[str, str]) -> bool:
    """Whether a reply is the service's, and not a proxy's."""
    return "x-ms-request-id" in headers
