"""The proxy itself: what it lets through, what it says instead, and what it counts."""

import http.client
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.processes import eventually
from tests.support.proxy import (
    BUSY,
    EmptyPages,
    FailedAfter,
    Fault,
    Late,
    Lost,
    Proxy,
    Reset,
    Says,
    Stall,
    proxied,
)
from tests.support.wire import Kind, Message, kind_of

TABLE = "/devstoreaccount1/blackboard"
BATCH = "/devstoreaccount1/$batch"


@dataclass
class Upstream:
    """What arrived at the store, and what it says to everybody."""

    arrived: list[str] = field(default_factory=list)
    chunked: bool = False
    port: int = 0


@contextmanager
def serving() -> Iterator[Upstream]:
    upstream = Upstream()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or "0"))
            upstream.arrived.append(f"{self.command} {self.path}")
            self.send_response(200)
            if upstream.chunked:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for part in (b"all", b" ", b"well" * 9):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.write(b"0\r\n\r\n")
                return
            told = body or json.dumps({"value": [self.path]}).encode()
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def do_GET(self) -> None:
            self.answer()

        def do_POST(self) -> None:
            self.answer()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    upstream.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield upstream
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with serving() as made:
        yield made


@pytest.fixture
def proxy(upstream: Upstream) -> Iterator[Proxy]:
    with proxied(upstream.port) as made:
        yield made


@contextmanager
def client(proxy: Proxy, *, timeout: float = 20.0) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=timeout)
    try:
        yield connection
    finally:
        connection.close()


def ask(
    proxy: Proxy, path: str = f"{TABLE}()", body: bytes | None = None, *, timeout: float = 20.0
) -> tuple[int, dict[str, str], bytes]:
    """A page of a query; with a body a batch."""
    with client(proxy, timeout=timeout) as connection:
        connection.request("POST" if body else "GET", path, body)
        reply = connection.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read()


def write(proxy: Proxy, *, timeout: float = 20.0) -> tuple[int, dict[str, str], bytes]:
    return ask(proxy, BATCH, batch([("PATCH", "lock:davis")]), timeout=timeout)


def batch(asked: Sequence[tuple[str, str]]) -> bytes:
    """Operations as a client writes them."""
    lines = []
    for method, key in asked:
        path = f"http://127.0.0.1:1{TABLE}"
        if method == "POST":
            lines.append(f'{method} {path} HTTP/1.1\r\n\r\n{{"PartitionKey":"p","RowKey":"{key}"}}')
        else:
            quoted = key.replace(":", "%3A")
            lines.append(
                f"{method} {path}(PartitionKey='p',RowKey='{quoted}') HTTP/1.1\r\n\r\n{{}}"
            )
    return "\r\n--changeset\r\n\r\n".join(["--batch", *lines, "--"]).encode()


# ---- kinds


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ([("DELETE", "next:1:a"), ("POST", "lock:a"), ("MERGE", "item:a")], Kind.CLAIM),
        ([("MERGE", "lock:a")], Kind.RENEW),
        ([("PATCH", "lock:a"), ("PATCH", "lock:b")], Kind.RENEW),
        (
            [("DELETE", "lock:a"), ("POST", "next:2:a"), ("PATCH", "item:a"), ("POST", "run:a:9")],
            Kind.RELEASE,
        ),
        ([("PUT", "lock:a"), ("PATCH", "item:a"), ("POST", "run:a:9")], Kind.OVERRIDE),
        ([("POST", "worker:me")], Kind.MEMBERSHIP),
        ([("DELETE", "worker:me")], Kind.MEMBERSHIP),
        ([("POST", "item:a"), ("POST", "next:1:a")], Kind.CHANGE),
        ([("DELETE", "lock:a")], Kind.CHANGE),
    ],
    ids=str,
)
def test_a_batch_is_known_by_its_rows(asked: list[tuple[str, str]], kind: Kind) -> None:
    assert kind_of(Message(f"POST {BATCH} HTTP/1.1", (), batch(asked))) is kind


def test_what_is_no_batch_is_known_by_its_path() -> None:
    assert kind_of(Message(f"GET {TABLE}()?$filter=x HTTP/1.1")) is Kind.PAGE
    assert kind_of(Message("POST /devstoreaccount1/Tables HTTP/1.1")) is Kind.OTHER


# ---- what goes through


@pytest.mark.parametrize("chunked", [False, True])
def test_requests_and_replies_go_through(
    proxy: Proxy, upstream: Upstream, *, chunked: bool
) -> None:
    """Several of them over one connection."""
    upstream.chunked = chunked
    with client(proxy) as connection:
        for number in range(3):
            connection.request("POST", BATCH, b"x" * (100_000 * number + 1))
            reply = connection.getresponse()
            said = reply.read()
            assert said == (b"all " + b"well" * 9 if chunked else b"x" * (100_000 * number + 1))
    assert upstream.arrived == [f"POST {BATCH}"] * 3


def test_it_counts_what_arrives_by_kind(proxy: Proxy) -> None:
    ask(proxy)
    write(proxy)
    proxy.script(Kind.RENEW, BUSY)
    write(proxy)
    assert proxy.asked == {Kind.PAGE: 1, Kind.RENEW: 2}
    assert proxy.happened == {(Kind.RENEW, "Says"): 1}


# ---- faults


@pytest.mark.parametrize(
    ("fault", "arrives"), [(Lost(), True), (Reset(), False), (Late(), False)], ids=str
)
def test_a_connection_that_ends_instead_of_a_reply(
    proxy: Proxy, upstream: Upstream, fault: Fault, *, arrives: bool
) -> None:
    proxy.script(Kind.RENEW, fault)
    with pytest.raises(ConnectionError):
        write(proxy)
    assert len(upstream.arrived) == arrives
    assert write(proxy)[0] == 200
    assert proxy.quiet


def test_a_failure_after_the_commit(proxy: Proxy, upstream: Upstream) -> None:
    proxy.script(Kind.RENEW, FailedAfter())
    status, headers, _ = write(proxy)
    assert (status, headers["x-ms-error-code"], len(upstream.arrived)) == (500, "InternalError", 1)


@pytest.mark.parametrize("after", ["3", "0", "3600", "soon", "Sat, 21 Nov 2026 09:00:00 GMT", None])
def test_an_error_of_which_the_store_hears_nothing(
    proxy: Proxy, upstream: Upstream, after: str | None
) -> None:
    proxy.script(Kind.PAGE, Says(503, "ServerBusy", retry_after=after))
    status, headers, body = ask(proxy)
    assert (status, headers.get("Retry-After")) == (503, after)
    assert json.loads(body)["odata.error"]["code"] == "ServerBusy"
    assert upstream.arrived == []


def test_what_is_late_lands_when_it_is_told_to(proxy: Proxy, upstream: Upstream) -> None:
    proxy.script(Kind.RENEW, Late(), Late())
    for _ in range(2):
        with pytest.raises(ConnectionError):
            write(proxy)
    assert (proxy.held, upstream.arrived) == (2, [])
    assert proxy.land() == 2
    assert len(upstream.arrived) == 2
    assert proxy.held == proxy.land() == 0


def test_what_is_late_lands_by_itself_after_a_while(proxy: Proxy, upstream: Upstream) -> None:
    proxy.script(Kind.RENEW, Late(after=0.05))
    with pytest.raises(ConnectionError):
        write(proxy)
    eventually(lambda: upstream.arrived, "it lands")


def test_who_does_not_wait_for_a_stalled_request_does_not_keep_it_from_landing(
    proxy: Proxy, upstream: Upstream
) -> None:
    proxy.script(Kind.RENEW, Stall())
    with pytest.raises(TimeoutError):
        write(proxy, timeout=0.1)
    assert upstream.arrived == []
    proxy.land()
    assert len(upstream.arrived) == 1


def test_who_waits_for_a_stalled_request_has_its_reply(proxy: Proxy) -> None:
    proxy.script(Kind.RENEW, Stall(after=0.05))
    assert write(proxy)[0] == 200


def test_empty_pages_come_before_the_page_that_was_asked_for(
    proxy: Proxy, upstream: Upstream
) -> None:
    proxy.script(Kind.PAGE, EmptyPages(2))
    first = f"{TABLE}()?$filter=RowKey%20ge%20'a'&NextPartitionKey=p&NextRowKey=r"
    path = first
    for _ in range(2):
        status, headers, body = ask(proxy, path)
        assert (status, json.loads(body)) == (200, {"value": []})
        token = headers["x-ms-continuation-NextRowKey"]
        path = f"{TABLE}()?$filter=x&NextPartitionKey={token}&NextRowKey={token}"
    assert json.loads(ask(proxy, path)[2]) == {"value": [first]}
    assert upstream.arrived == [f"GET {first}"]


# ---- chance


def test_chance_repeats_itself_and_keeps_to_its_kinds(upstream: Upstream) -> None:
    def luck() -> list[int]:
        with proxied(upstream.port, seed=7) as proxy:
            proxy.chance(0.5, BUSY, FailedAfter(), kinds={Kind.RENEW})
            assert {ask(proxy)[0] for _ in range(10)} == {200}
            return [write(proxy)[0] for _ in range(40)]

    once = luck()
    assert set(once) == {200, 500, 503}
    assert luck() == once


def test_it_calms_down(proxy: Proxy) -> None:
    proxy.chance(1.0, BUSY)
    assert write(proxy)[0] == 503
    proxy.calm()
    assert write(proxy)[0] == 200


# ---- a store that is down


def test_while_it_is_down_everybody_is_reset_and_counted(proxy: Proxy, upstream: Upstream) -> None:
    with client(proxy) as connection:
        connection.request("GET", f"{TABLE}()")
        connection.getresponse().read()
        proxy.down()
        assert connection.sock is not None
        with pytest.raises(ConnectionError):
            connection.sock.recv(1)
    for _ in range(3):
        with pytest.raises(ConnectionError):
            write(proxy)
    eventually(lambda: len(proxy.knocks) == 3, "the knocks are counted")
    proxy.up()
    assert write(proxy)[0] == 200
    assert len(upstream.arrived) == 2


def test_while_nobody_listens_connections_are_refused(proxy: Proxy) -> None:
    port = proxy.port
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        write(proxy)
    proxy.up()
    assert proxy.port == port
    assert write(proxy)[0] == 200
