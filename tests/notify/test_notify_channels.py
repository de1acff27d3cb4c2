"""How notices go out: real requests, real commands, and nothing secret in what is said of them."""

import asyncio
import errno
import json
import math
import socket
import ssl
import stat
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import Any

import pytest
import trustme

from blackboard.notify.channels import (
    Address,
    Command,
    NoticeChannel,
    dead_man_of,
    routes_of,
)
from blackboard.notify.exchange import Exchange, NotSent
from blackboard.notify.settings import NotifyTable, check_address, place
from tests.support.clocks import ManualClock
from tests.support.patience import patience
from tests.support.ports import dropping, need_ipv6
from tests.support.processes import eventually
from tests.support.receivers import listening
from tests.support.stores import Run

PAYLOAD = {"event": "failed", "id": "davis", "type": "feed", "outcome": "failed", "text": "naïve"}
SECRET = "T0PSECRET"


def address(template: str, *, seconds: float = 10.0) -> Address:
    return Address(name="webhook", template=template, seconds=seconds, environ={})


def refused(run: Run, channel: NoticeChannel) -> NotSent:
    with pytest.raises(NotSent) as caught:
        run(channel.send(PAYLOAD))
    assert SECRET not in str(caught.value)
    assert SECRET not in channel.where()
    return caught.value


def test_a_webhook_is_sent_json(run: Run) -> None:
    with listening() as listener:
        run(address(f"{listener.address}/hook?x=1").send(PAYLOAD))
    (asked,) = listener.asked
    assert (asked.method, asked.path, asked.json) == ("POST", "/hook?x=1", PAYLOAD)
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["user-agent"].startswith("blackboard/")


def test_a_dead_man_address_is_asked_for(run: Run) -> None:
    with listening() as listener:
        table = NotifyTable(dead_man=f"{listener.address}/ping")
        channel = dead_man_of(table, {})
        assert channel is not None
        run(channel.ping())
    assert [(one.method, one.path, one.body) for one in listener.asked] == [("GET", "/ping", b"")]
    assert [route.channels for route in routes_of(table, {})] == [()]


def test_a_variable_is_taken_from_the_environment_when_something_is_sent(run: Run) -> None:
    environ = {"KEY": "first"}
    with listening() as listener:
        channel = Address(
            name="webhook", template=f"{listener.address}/${{KEY}}", seconds=10.0, environ=environ
        )
        run(channel.send(PAYLOAD))
        environ["KEY"] = "second"
        run(channel.send(PAYLOAD))
        assert channel.where() == listener.address
    assert [one.path for one in listener.asked] == ["/first", "/second"]


@pytest.mark.parametrize(
    ("status", "problem", "final"),
    [
        (500, "it answered 500", False),
        (503, "it answered 503", False),
        (429, "it answered 429", False),
        (404, "it answered 404", True),
        (302, "it redirects (302): name the address it redirects to", True),
        (308, "it redirects (308): name the address it redirects to", True),
    ],
)
def test_an_answer_that_is_no_success_is_told_by_its_number(
    *, run: Run, status: int, problem: str, final: bool
) -> None:
    with listening() as listener:
        listener.answers.append(status)
        listener.location = f"{listener.address}/elsewhere"
        trouble = refused(run, address(f"{listener.address}/{SECRET}"))
    assert (str(trouble), trouble.final) == (problem, final)
    assert len(listener.asked) == 1


def test_a_redirect_to_a_file_is_not_followed(run: Run, tmp_path: Path) -> None:
    with listening() as listener:
        listener.answers.append(301)
        listener.location = tmp_path.as_uri()
        channel = Address(name="dead_man", template=listener.address, seconds=10.0, environ={})
        assert "redirects (301)" in str(refused(run, channel))


def test_an_address_that_does_not_answer_is_given_up(run: Run) -> None:
    with listening() as listener:
        listener.hold = threading.Event()
        trouble = refused(run, address(f"{listener.address}/{SECRET}", seconds=0.05))
    assert str(trouble).startswith("it did not answer")
    assert not trouble.final


def test_one_that_hangs_holds_up_no_other(run: Run) -> None:
    with listening() as hanging, listening() as listener:
        hanging.hold = threading.Event()
        refused(run, address(hanging.address, seconds=0.05))
        run(address(listener.address).send(PAYLOAD))
    assert len(listener.asked) == 1


def resolved(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Gives hook.example these addresses."""
    asked = socket.getaddrinfo

    def found(name: str, *about: Any, **options: Any) -> list[Any]:
        given = hosts if name == "hook.example" else [name]
        return [one for host in given for one in asked(host, *about, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", found)


def test_an_address_that_drops_all_leaves_time_for_the_next(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved(monkeypatch, "127.0.0.2", "127.0.0.1")
    with listening() as listener:
        port = int(listener.address.rpartition(":")[2])
        with dropping("127.0.0.2", port):
            run(address(f"http://hook.example:{port}/", seconds=patience(2)).send(PAYLOAD))
    assert len(listener.asked) == 1


def test_addresses_that_refuse_at_once_leave_their_time_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolved(monkeypatch, *["127.0.0.1"] * 9, "127.0.0.2")
    shares = list[float | None]()

    def connect(made: socket.socket, _where: object) -> None:
        shares.append(made.gettimeout())
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(NotSent):
        Exchange("http://hook.example:80/", None, seconds=1.0, clock=ManualClock()).run()
    assert (shares[0], shares[-1], len(shares)) == (0.1, 1.0, 10)


def test_an_address_keeps_its_scope(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link-local address is of one network, and has the number of its interface."""
    need_ipv6()
    asked, loopback = list[object](), socket.if_nameindex()[0][0]
    resolved(monkeypatch, f"fe80::1%{loopback}")

    def connect(_socket: socket.socket, where: object) -> None:
        asked.append(where)
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    monkeypatch.setattr(socket.socket, "connect", connect)
    refused(run, address("http://hook.example:80/"))
    assert asked == [("fe80::1", 80, 0, loopback)]


class Raw:
    """A server that answers each connection in its own way, whatever it is asked."""

    def __init__(
        self, answer: bytes, drip: bytes = b"", certificate: trustme.LeafCert | None = None
    ) -> None:
        self._answer, self._drip = answer, drip
        self._certificate = certificate
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.closed = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        if self._certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._certificate.configure_cert(tls)
            with self._listener, connection, suppress(OSError):  # the sender does not go on
                tls.wrap_socket(connection, server_side=True)
            return
        with self._listener, connection:
            asked = b""
            while not asked.endswith(b"}") and not asked.startswith((b"CONNECT", b"\x16")):
                received = connection.recv(65536)
                if not received:  # the sender gave up before it asked
                    break
                asked += received
            connection.sendall(self._answer)
            while self._drip:
                try:
                    connection.sendall(self._drip)
                    connection.settimeout(0.05)
                    if not connection.recv(65536):
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
        self.closed.set()


@pytest.mark.parametrize(
    "drip", [b"x", b"HTTP/1.1 100 Continue\r\n\r\n"], ids=["a byte now and then", "for ever 100"]
)
def test_an_answer_without_an_end_keeps_no_thread(run: Run, drip: bytes) -> None:
    server, before = Raw(b"", drip), threading.active_count()
    problem = refused(run, address(server.address, seconds=0.3))
    assert str(problem) == "it did not answer within 0.3 s"
    assert server.closed.wait(patience(10.0)), "the connection is closed"
    eventually(lambda: threading.active_count() < before, "no thread is left")


@pytest.mark.parametrize(
    ("answer", "words", "final"),
    [
        (b"", "it closed the connection without an answer", False),
        (b"SSH-2.0-OpenSSH\r\n", "what it answers is not HTTP", False),
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://[bad\r\n\r\n",
            "it redirects (302): name the address it redirects to",
            True,
        ),
        (b"HTTP/1.1 304 Not Modified\r\n\r\n", "it answered 304", True),
        (b"HTTP/1.1 999 Odd\r\n\r\n", "it answered 999", True),
    ],
)
def test_an_answer_that_is_none_is_told_in_words(
    *, run: Run, answer: bytes, words: str, final: bool
) -> None:
    problem = refused(run, address(Raw(answer).address))
    assert (str(problem), problem.final) == (words, final)


@pytest.mark.parametrize(
    ("host", "trusted", "days", "why"),
    [
        ("127.0.0.1", False, 1, "unable to get local issuer certificate"),
        ("127.0.0.1", True, -1, "certificate has expired"),
        ("127.0.0.2", True, 1, "IP address mismatch, certificate is not valid for '127.0.0.1'."),
    ],
)
def test_a_certificate_that_is_not_accepted_is_told_with_the_reason(
    *,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    trusted: bool,
    days: int,
    why: str,
) -> None:
    authority, until = trustme.CA(), datetime.now(UTC) + timedelta(days=days)
    before = until - timedelta(days=9)
    (authority if trusted else trustme.CA()).cert_pem.write_to_path(tmp_path / "trusted.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "trusted.pem"))
    server = Raw(b"", certificate=authority.issue_cert(host, not_before=before, not_after=until))
    problem = refused(run, address(f"https{server.address.removeprefix('http')}/{SECRET}"))
    assert str(problem) == f"its certificate is not accepted: {why}"


def test_a_receiver_without_tls_is_told_so(run: Run) -> None:
    server = Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    problem = refused(run, address(f"https{server.address.removeprefix('http')}"))
    assert str(problem) == "no TLS with it: wrong version number"


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("7", 7.0),
        ("-7", 0.0),
        ("soon", 0.0),
        ("9" * 5000, math.inf),
        ("Sat, 21 Nov 2026 09:01:30 GMT\r\nDate: Sat, 21 Nov 2026 09:00:00 GMT", 90.0),
        ("Sat, 21 Nov 2026 08:59:00 GMT\r\nDate: Sat, 21 Nov 2026 09:00:00 GMT", 0.0),
        ("Sat, 21 Nov 2026 09:01:30 GMT", 0.0),
    ],
)
def test_it_is_noted_when_another_try_is_welcome(run: Run, asked: str, seconds: float) -> None:
    answer = f"HTTP/1.1 429 Too Many Requests\r\nRetry-After: {asked}\r\n\r\n"
    assert refused(run, address(Raw(answer.encode()).address)).retry_after == seconds


@pytest.mark.parametrize("before", ["100 Continue", "102 Processing", "103 Early Hints"])
def test_an_informational_answer_is_not_the_last_one(run: Run, before: str) -> None:
    informed = f"HTTP/1.1 {before}\r\nLink: </x>\r\n\r\n" * 2
    run(address(Raw(f"{informed}HTTP/1.1 204 No Content\r\n\r\n".encode()).address).send(PAYLOAD))
    refusing = Raw(f"{informed}HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".encode())
    assert str(refused(run, address(refusing.address))) == "it answered 503"


def test_a_variable_that_makes_no_address_is_named(run: Run) -> None:
    channel = Address(name="webhook", template="${HOOK}", seconds=1.0, environ={"HOOK": SECRET})
    assert str(refused(run, channel)) == (
        "it is not an http or https address (with what ${HOOK} is here)"
    )


def test_a_proxy_that_never_ends_its_answer_keeps_no_thread(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, before = Raw(b"", b"x"), threading.active_count()
    monkeypatch.setenv("https_proxy", proxy.address)
    problem = refused(run, address("https://hooks.example.org", seconds=0.3))
    assert str(problem) == "it did not answer within 0.3 s"
    assert proxy.closed.wait(patience(10.0)), "the connection is closed"
    eventually(lambda: threading.active_count() < before, "no thread is left")


def test_a_proxy_that_refuses_is_told_by_its_number(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Raw(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
    monkeypatch.setenv("https_proxy", proxy.address)
    assert str(refused(run, address("https://hooks.example.org"))) == "the proxy answered 407"
    monkeypatch.setenv("https_proxy", f"http://ann:{SECRET}@127.0.0.1:port")
    problem = refused(run, address("https://hooks.example.org"))
    assert str(problem) == "its address, or that of the proxy, is of no kind that is known here"


def test_nobody_there_is_told_in_the_systems_words(run: Run) -> None:
    with listening() as listener:
        gone = listener.address
    assert str(refused(run, address(f"{gone}/{SECRET}"))) == "Connection refused"


@pytest.mark.parametrize(
    ("template", "environ", "problem"),
    [
        ("${HOOK}", {}, "the environment variable HOOK is not set"),
        ("${HOOK}", {"HOOK": f"ftp://{SECRET}/x"}, "it is not an http or https address"),
        ("${HOOK}", {"HOOK": f"file:///{SECRET}"}, "it is not an http or https address"),
        ("${HOOK}", {"HOOK": f"https://a.example/{SECRET}\n"}, "it has characters"),
        ("${HOOK}", {"HOOK": f"https://me:{SECRET}@a.example/"}, "a user and password"),
        ("${HOOK}", {"HOOK": f"https://a.example:{SECRET}/"}, "it is not an http or https address"),
        ("https://a.example/${KEY}", {}, "the environment variable KEY is not set"),
    ],
)
def test_an_address_that_cannot_be_used_is_not_repeated(
    run: Run, template: str, environ: Mapping[str, str], problem: str
) -> None:
    channel = Address(name="webhook", template=template, seconds=10.0, environ=environ)
    with pytest.raises(NotSent):
        channel.check()
    trouble = refused(run, channel)
    assert str(trouble).startswith(problem)
    assert trouble.final
    assert channel.where() == ""


@pytest.mark.parametrize("text", ["http://[::1]:8080/a", "https://hooks.example.org", "http://a"])
def test_http_addresses_can_be_used(text: str) -> None:
    check_address(text, "webhook")
    assert text.startswith(place(text))


# ---- commands

SCRIPT = """
import json, os, sys
told = {name: text for name, text in os.environ.items() if name.startswith("BLACKBOARD_")}
with open(sys.argv[1], "w") as out:
    json.dump({"stdin": json.load(sys.stdin), "environ": told, "args": sys.argv[2:]}, out)
"""


def command(*argv: str, seconds: float = 30.0, **environ: str) -> Command:
    return Command(argv=argv, seconds=seconds, environ=environ)


def test_a_command_reads_json_and_finds_the_rest_in_its_environment(
    run: Run, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    channel = command(sys.executable, "-c", SCRIPT, str(out), "$${WHO} $HOME;", WHO="ann")
    run(channel.send({**PAYLOAD, "id": "a\0b"}))
    told = json.loads(out.read_text())
    assert told["stdin"] == {**PAYLOAD, "id": "a\0b"}
    assert told["args"] == ["${WHO} $HOME;"]
    assert told["environ"] == {
        "BLACKBOARD_EVENT": "failed",
        "BLACKBOARD_ITEM": "ab",
        "BLACKBOARD_TYPE": "feed",
        "BLACKBOARD_OUTCOME": "failed",
        "BLACKBOARD_TEXT": "naïve",
    }


@pytest.mark.parametrize(
    ("argv", "problem", "final"),
    [
        (("false",), "it ended: exit code 1", False),
        (("sh", "-c", 'test "$${SECRET}" && exit 7'), "it ended: exit code 7", False),
        (("sh", "-c", "kill -9 $$"), "it ended: killed by SIGKILL", False),
        (("/absent/program",), "it cannot be run: No such file or directory", True),
        (("echo", "a\0b"), "it cannot be run: it holds a NUL character", True),
    ],
)
def test_a_command_that_does_not_take_it_says_how_it_ended(
    *, run: Run, argv: tuple[str, ...], problem: str, final: bool
) -> None:
    trouble = refused(run, command(*argv, SECRET=SECRET, PATH="/usr/bin:/bin"))
    assert (str(trouble), trouble.final) == (problem, final)


def test_a_command_that_reads_nothing_may_take_it(run: Run) -> None:
    run(command("true", PATH="/usr/bin:/bin").send({**PAYLOAD, "error": "x" * 1_000_000}))


def test_a_command_that_does_not_end_is_killed_with_what_it_started(
    run: Run, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    mkfifo = command("mkfifo", str(pipe), PATH="/usr/bin:/bin")
    run(mkfifo.send(PAYLOAD))
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    command_line = ("sh", "-c", f"sleep 600 > {quote(str(pipe))} & wait")
    channel = command(*command_line, seconds=patience(1.0), PATH="/usr/bin:/bin")

    async def send() -> bytes:
        reading = asyncio.create_task(asyncio.to_thread(pipe.read_bytes))
        with pytest.raises(NotSent, match="did not end within"):
            await channel.send(PAYLOAD)
        return await reading

    assert run(send()) == b"", "the pipe is read to its end when nobody holds it any more"
