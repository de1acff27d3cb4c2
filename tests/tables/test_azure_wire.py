"""What Azure tables send and answer, as bytes: written and read as the SDK does."""

import asyncio
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any

import msgspec
import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.pipeline.transport import AsyncHttpTransport
from azure.core.rest import HttpRequest
from azure.data.tables.aio import TableClient

from blackboard.table import ANY, Delete, Insert, Merge, Op, Refused, Replace
from blackboard.tables.azure_credentials import EMULATOR_KEY
from blackboard.tables.azure_transport import SharedKey
from blackboard.tables.azure_wire import (
    LARGEST,
    ServiceAnswer,
    etags_of,
    moment_of,
    page_of,
    page_request,
    transaction,
)
from blackboard.tables.base import checked

URL = "https://account.table.core.windows.net/boards"
AT = datetime(2026, 11, 21, 9, 0, 0, 250_000, UTC)
OPS: list[Op] = [
    Delete("next:20261121T090000.000Z:davis", 'W/"1"'),
    Insert("lock:davis", {"item": "davis", "since": AT, "large": 2**40, "age": 2.0, "on": True}),
    Merge("item:a b'c", {"n": -7, "text": "é"}, ANY),
    Replace("run:x=41", {}, 'W/"2"'),
]


def parts_of(body: bytes, content_type: str) -> list[bytes]:
    """The requests of a transaction, by the parser of the standard library."""
    whole = BytesParser(policy=HTTP).parsebytes(
        f"Content-Type: {content_type}\r\n\r\n".encode() + body
    )
    parts = [one.get_payload(decode=True) for one in whole.walk() if not one.is_multipart()]
    return [part for part in parts if isinstance(part, bytes)]


def test_a_transaction_is_one_change_set_with_a_request_for_each_operation() -> None:
    sent = transaction(URL, "town", OPS, list(checked("town", OPS)))
    requests = parts_of(sent.content, sent.headers["Content-Type"])
    heads = [one.partition(b"\r\n")[0].decode() for one in requests]
    assert heads == [
        f"DELETE {URL}(PartitionKey='town',RowKey='next%3A20261121T090000.000Z%3Adavis') HTTP/1.1",
        f"POST {URL} HTTP/1.1",
        f"PATCH {URL}(PartitionKey='town',RowKey='item%3Aa%20b%27%27c') HTTP/1.1",
        f"PUT {URL}(PartitionKey='town',RowKey='run%3Ax%3D41') HTTP/1.1",
    ]
    conditions = [b"If-Match: " in one for one in requests]
    assert conditions == [True, False, True, True]
    inserted = requests[1].partition(b"\r\n\r\n")[2]
    assert msgspec.json.decode(inserted) == {
        "PartitionKey": "town",
        "RowKey": "lock:davis",
        "item": "davis",
        "since@odata.type": "Edm.DateTime",
        "since": "2026-11-21T09:00:00.250000Z",
        "large@odata.type": "Edm.Int64",
        "large": str(2**40),
        "age@odata.type": "Edm.Double",
        "age": 2.0,
        "on": True,
    }
    for one in requests[1:]:
        head, _, content = one.partition(b"\r\n\r\n")
        assert f"Content-Length: {len(content.rstrip())}".encode() in head


ANSWERED = (
    b"--batchresponse_1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_2\r\n\r\n"
    b"--changesetresponse_2\r\nContent-Type: application/http\r\n"
    b"Content-Transfer-Encoding: binary\r\n\r\nHTTP/1.1 204 No Content\r\n"
    b"X-Content-Type-Options: nosniff\r\nCache-Control: no-cache\r\nDataServiceVersion: 1.0;\r\n"
    b"\r\n\r\n"
    b"--changesetresponse_2\r\nContent-Type: application/http\r\n"
    b"Content-Transfer-Encoding: binary\r\n\r\nHTTP/1.1 204 No Content\r\n"
    b"Preference-Applied: return-no-content\r\nDataServiceId: " + URL.encode() + b"\r\n"
    b"ETag: W/\"datetime'2026-11-21T09%3A00%3A00.25Z'\"\r\n\r\n\r\n"
    b"--changesetresponse_2--\r\n--batchresponse_1--\r\n"
)
REFUSED = (
    b"--batchresponse_1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_2\r\n\r\n"
    b"--changesetresponse_2\r\nContent-Type: application/http\r\n"
    b"Content-Transfer-Encoding: binary\r\n\r\nHTTP/1.1 412 Precondition Failed\r\n"
    b"DataServiceVersion: 3.0;\r\nContent-Type: application/json;odata=minimalmetadata\r\n\r\n"
    b'{"odata.error":{"code":"UpdateConditionNotSatisfied","message":{"lang":"en-US","value":'
    b'"2:The update condition specified in the request was not satisfied.\\nRequestId:1"}}}\r\n'
    b"--changesetresponse_2--\r\n--batchresponse_1--\r\n"
)


def test_each_operation_has_its_etag_and_a_deleted_row_has_none() -> None:
    ops: list[Op] = [Delete("a", ANY), Insert("b", {})]
    assert etags_of(202, {}, ANSWERED, ops) == ["", "W/\"datetime'2026-11-21T09%3A00%3A00.25Z'\""]


def test_a_refusal_names_the_operation_that_was_refused() -> None:
    with pytest.raises(ServiceAnswer) as refused:
        etags_of(202, {}, REFUSED, OPS)
    answer = refused.value
    assert (answer.status, answer.code, answer.index) == (412, "UpdateConditionNotSatisfied", 2)
    assert answer.message == "2:The update condition specified in the request was not satisfied."


@pytest.mark.parametrize("ops", [OPS, OPS[:1], []], ids=len)
def test_an_answer_with_other_parts_than_were_sent_is_none(ops: list[Op]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        etags_of(202, {}, ANSWERED, ops)


def test_an_error_in_xml_is_read() -> None:
    body = (
        b'<?xml version="1.0"?><m:error xmlns:m="x"><m:code>AuthenticationFailed</m:code>'
        b'<m:message xml:lang="en-US">Server failed.\nTime: now</m:message></m:error>'
    )
    with pytest.raises(ServiceAnswer) as refused:
        page_of(403, {}, body)
    assert (refused.value.code, refused.value.message) == ("AuthenticationFailed", "Server failed.")


def test_a_page_has_rows_of_plain_values_and_says_how_it_goes_on() -> None:
    entity: Mapping[str, Any] = {
        "odata.etag": 'W/"1"',
        "PartitionKey": "town",
        "RowKey": "item:davis",
        "Timestamp": "2026-11-21T09:00:00.1234567Z",
        "ready@odata.type": "Edm.DateTime",
        "ready": "2026-11-21T09:00:00Z",
        "large@odata.type": "Edm.Int64",
        "large": "1099511627776",
        "lag@odata.type": "Edm.Double",
        "lag": "NaN",
        "guid@odata.type": "Edm.Guid",
        "guid": "00000000-0000-0000-0000-000000000007",
        "n": 3,
        "share": 0.5,
        "running": False,
        "list": [1],
    }
    body = msgspec.json.encode({"odata.metadata": URL, "value": [entity]})
    headers = {"x-ms-continuation-NextPartitionKey": "1!4", "x-ms-continuation-NextRowKey": "1!8"}
    [row], following = page_of(200, headers, body)
    assert (row.key, row.etag) == ("item:davis", 'W/"1"')
    assert row.stamp == datetime(2026, 11, 21, 9, 0, 0, 123_456, UTC)
    lag = row.data["lag"]
    assert isinstance(lag, float)
    assert math.isnan(lag)
    assert {**row.data, "lag": None} == {
        "lag": None,
        "ready": datetime(2026, 11, 21, 9, tzinfo=UTC),
        "large": 2**40,
        "guid": "00000000-0000-0000-0000-000000000007",
        "n": 3,
        "share": 0.5,
        "running": False,
        "list": "[1]",
    }
    url = page_request(URL, "o'town", "a", "b", count=5, following=following).url
    assert url == (
        f"{URL}()?$filter=PartitionKey%20eq%20%27o%27%27town%27%20and%20RowKey%20ge%20%27a%27"
        "%20and%20RowKey%20lt%20%27b%27&$top=5&NextPartitionKey=1%214&NextRowKey=1%218"
    )
    assert page_of(200, {}, b'{"value":[]}') == ([], ())


def test_a_value_that_is_not_of_its_type_damages_its_own_row_and_no_other() -> None:
    """An emulator keeps what another program has written. No row of the page could be read."""
    odd: Mapping[str, Any] = {
        "PartitionKey": "town",
        "RowKey": "item:davis",
        "Timestamp": "2026-11-21T09:00:00Z",
        "ready@odata.type": "Edm.DateTime",
        "ready": "tomorrow",
        "start@odata.type": "Edm.DateTime",
        "start": "0001-01-01T00:00:00+14:00",
        "large@odata.type": "Edm.Int64",
        "large": "many",
        "lag@odata.type": "Edm.Double",
        "lag": "much",
        "stop@odata.type": "Edm.DateTime",
        "stop": None,
        "slot@odata.type": "Edm.DateTime",
    }
    [row], _ = page_of(200, {}, msgspec.json.encode({"value": [odd]}))
    assert row.data == {
        "ready": "tomorrow",
        "start": "0001-01-01T00:00:00+14:00",
        "large": "many",
        "lag": "much",
    }


def test_a_range_that_goes_on_in_a_partition_alone_names_no_key_of_a_row() -> None:
    """The service may leave that out, and may take an empty one for another place."""
    headers = {"x-ms-continuation-NextPartitionKey": "1!4"}
    rows, following = page_of(200, headers, b'{"value":[]}')
    url = page_request(URL, "town", "a", None, count=5, following=following).url
    assert (rows, url.partition("&$top=5")[2]) == ([], "&NextPartitionKey=1%214")


@pytest.mark.parametrize(
    "text", ["2026-11-21T09:00:00Z", "2026-11-21T09:00:00.0000000Z", "2026-11-21T09:00:00.0Z"]
)
def test_times_have_any_number_of_digits(text: str) -> None:
    assert moment_of(text) == datetime(2026, 11, 21, 9, tzinfo=UTC)


class Capturing(AsyncHttpTransport[Any, Any]):
    """Sends nothing: ends the request with what was to be sent."""

    async def send(self, request: Any, **_: Any) -> Any:
        raise Captured(request)

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def __aexit__(self, *_: object) -> None: ...


class Captured(Exception):
    def __init__(self, request: Any) -> None:
        self.request = request


@pytest.mark.parametrize(
    "endpoint", [URL.rpartition("/")[0], "http://127.0.0.1:1/devstoreaccount1"]
)
def test_requests_are_signed_as_the_sdk_signs_them(endpoint: str) -> None:
    who = AzureNamedKeyCredential("devstoreaccount1", EMULATOR_KEY)

    async def theirs() -> Any:
        client = TableClient(endpoint, "boards", credential=who, transport=Capturing())
        with pytest.raises(Captured) as captured:
            await anext(client.query_entities("PartitionKey eq 'town'"))
        return captured.value.request

    sent = asyncio.run(theirs())
    headers = {"x-ms-date": sent.headers["x-ms-date"]}
    mine = HttpRequest("GET", sent.url, headers=headers)

    class Passing:
        http_request = mine

    SharedKey(who).on_request(Passing())  # type: ignore[arg-type]
    assert mine.headers["Authorization"] == sent.headers["Authorization"]


def test_a_batch_that_is_too_large_as_it_is_sent_names_the_row_with_which_it_is() -> None:
    """The service would refuse it without saying why, or which row."""
    ops: list[Op] = [Insert(f"key-{n}", {"text": "\x01" * 30_000}) for n in range(40)]
    datas: list[dict[str, Any]] = [{"text": "\x01" * 30_000}] * 40
    with pytest.raises(Refused, match="4,194,304 bytes") as caught:
        transaction("https://ann.example.org/town", "p", ops, datas)
    fits = caught.value.index
    sent = transaction("https://ann.example.org/town", "p", ops[:fits], datas[:fits])
    assert LARGEST - 200_000 < len(sent.content) <= LARGEST
