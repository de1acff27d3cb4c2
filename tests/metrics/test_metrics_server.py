"""The server of metrics answers GET and HEAD, and is kept busy by nothing else."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import pytest

from blackboard.endpoint import Endpoint
from blackboard.errors import BadInput
from blackboard.events import StoreChanged, Walked
from blackboard.metrics import server
from blackboard.metrics.server import (
    LARGEST,
    MOST_CONNECTIONS,
    TEXT,
    ServedPage,
    pages_of,
    serving,
)
from blackboard.metrics.worker import WorkerMetrics
from tests.metrics.shortage import answered_after_shortage
from tests.support.patience import patience
from tests.support.ports import need_ipv6

FREE = Endpoint("127.0.0.1", 0)


async def asked(where: Endpoint, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """The status, headers and body of the answer; 0 where there was none."""
    reader, writer = await asyncio.open_connection(*where)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    if not answer:
        return 0, {}, b""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    assert int(headers["content-length"]) == len(body) or request.startswith(b"HEAD")
    return int(status.split()[1]), headers, body


def served(story: Callable[[WorkerMetrics, Endpoint], Coroutine[Any, Any, None]]) -> None:
    """Tells a story beside a server."""

    async def told() -> None:
        metrics = WorkerMetrics()
        async with serving(pages_of(metrics), FREE) as where:
            assert where.port
            await story(metrics, where)

    asyncio.run(told())


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def test_all_addresses_of_ipv6_stand_for_those_of_ipv4_too() -> None:
    need_ipv6()

    async def told() -> None:
        async with serving(pages_of(WorkerMetrics()), Endpoint("::", 0)) as where:
            for host in ("127.0.0.1", "::1"):
                assert (await asked(where._replace(host=host), get("/healthz")))[0] == 200

    asyncio.run(told())


def test_the_pages_of_a_worker() -> None:
    async def story(metrics: WorkerMetrics, where: Endpoint) -> None:
        status, headers, body = await asked(where, get("/metrics?x=1"))
        assert (status, headers["content-type"]) == (
            200,
            "text/plain; version=0.0.4; charset=utf-8",
        )
        assert (headers["connection"], headers["cache-control"]) == ("close", "no-store")
        assert b"\nblackboard_walks_total 0.0\n" in body
        accept = "ACCEPT:  application/openmetrics-text; version=1.0.0,text/plain;q=0.1 "
        _, headers, body = await asked(where, get("/metrics", accept))
        assert headers["content-type"].startswith("application/openmetrics-text")
        assert body.endswith(b"# EOF\n")
        assert (await asked(where, get("/healthz")))[::2] == (200, b"OK\n")
        assert (await asked(where, get("/readyz")))[::2] == (
            503,
            b"it has not walked the board yet\n",
        )
        metrics(Walked("w", claims=0, due=0, locks=0, missed=0, complete=True, requests={}))
        assert (await asked(where, get("/readyz")))[::2] == (200, b"OK\n")
        metrics(StoreChanged("w", board="town", away=True))
        assert (await asked(where, get("/readyz")))[::2] == (503, b"the store does not answer\n")

    served(story)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/metrics", method="HEAD"), 200),
        (get("/"), 404),
        (get("/metrics/"), 404),
        (get("/metrics", method="POST"), 405),
        (b"GET /metrics HTTP/1.0\r\n\r\n", 200),
        (b"GET /metrics HTTP/2\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET http://x/metrics HTTP/1.1\r\n\r\n", 200),
        (b"GET HTTP://x:9?/metrics HTTP/1.1\r\n\r\n", 404),
        (b"GET http:///metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET ftp://x/metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET * HTTP/1.1\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * LARGEST, 431),
    ],
)
def test_requests_are_answered_strictly(request_: bytes, status: int) -> None:
    async def story(_metrics: WorkerMetrics, where: Endpoint) -> None:
        found, headers, body = await asked(where, request_)
        assert (found, headers["allow"]) == (status, "get, head")
        assert bool(body) is not request_.startswith(b"HEAD")

    served(story)


def test_a_request_that_does_not_end_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WITHIN", 0.05)

    async def story(_metrics: WorkerMetrics, where: Endpoint) -> None:
        assert (await asked(where, b"GET /metrics HTTP/1.1\r\n"))[0] == 0

    served(story)


def test_an_answer_that_is_not_taken_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a client that stands still would hold a descriptor of the worker for as long."""
    monkeypatch.setattr(server, "WITHIN", 0.2)
    page = ServedPage(HTTPStatus.OK, TEXT, b"x" * 2**25)

    async def story() -> None:
        async with serving({"/": lambda _: page}, FREE) as where:
            reader, writer = await asyncio.open_connection(*where)
            writer.write(get("/"))
            await reader.readexactly(1)
            async with asyncio.timeout(patience(20)):
                while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 - nothing signals it
                    await asyncio.sleep(0.005)
            with suppress(ConnectionResetError):
                assert len(await reader.read()) < 2**25
            writer.close()

    asyncio.run(story())


def test_too_many_connections_are_closed_and_the_others_served() -> None:
    async def story(_metrics: WorkerMetrics, where: Endpoint) -> None:
        waiting = [await asyncio.open_connection(*where) for _ in range(MOST_CONNECTIONS)]
        for _, writer in waiting:
            writer.write(b"GET /healthz HTTP/1.1\r\n")
        reader, writer = await asyncio.open_connection(*where)
        assert await reader.read() == b""
        writer.close()
        for reader, writer in waiting:
            writer.write(b"\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
            writer.close()

    served(story)


def test_a_shortage_of_descriptors_is_not_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(_metrics: WorkerMetrics, where: Endpoint) -> None:
        answer = await answered_after_shortage(monkeypatch, where.port, get("/healthz"))
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")

    served(story)
    assert caplog.records == []


def test_other_errors_of_the_loop_are_handled_as_before() -> None:
    async def story() -> None:
        loop, handled = asyncio.get_running_loop(), list[dict[str, Any]]()

        def handle(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            handled.append(context)

        loop.set_exception_handler(handle)
        async with serving({}, FREE):
            loop.call_exception_handler({"message": "a fault", "exception": OSError(5, "x")})
        assert [one["message"] for one in handled] == ["a fault"]
        assert loop.get_exception_handler() is handle

    asyncio.run(story())


def test_a_connection_does_not_keep_the_server_from_ending() -> None:
    async def story() -> None:
        async with serving({}, FREE) as where:
            reader, writer = await asyncio.open_connection(*where)
            writer.write(b"GET")
            await writer.drain()
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()

    asyncio.run(story())


def test_a_server_that_has_ended_leaves_no_task() -> None:
    async def story() -> None:
        async with serving({}, FREE) as where:
            _, writer = await asyncio.open_connection(*where)
            async with asyncio.timeout(patience(20)):
                while len(asyncio.all_tasks()) == 1:  # noqa: ASYNC110 - nothing signals it
                    await asyncio.sleep(0.005)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        writer.close()

    asyncio.run(story())


def test_a_port_that_is_taken_and_a_host_that_is_none_are_refused() -> None:
    async def refused(where: Endpoint) -> str:
        with pytest.raises(BadInput) as refused:
            async with serving({}, where):
                pytest.fail("it serves")
        return str(refused.value)

    async def story() -> None:
        async with serving({}, FREE) as where:
            assert f"metrics: {where} cannot be used: Address already in use" in await refused(
                where
            )
        assert "there is no such host" in await refused(Endpoint("no.such.invalid", 0))
        assert "cannot be used" in await refused(Endpoint("x" * 90 + ".invalid", 0))

    asyncio.run(story())
