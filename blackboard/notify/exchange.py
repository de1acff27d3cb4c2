"""One HTTP request to a webhook or to the dead-man address, with the standard library.

No redirect is followed: it would turn a POST into a GET, and only the configured address may be
asked. Proxies are those of the environment (`https_proxy`, `no_proxy`).
"""

import re
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.client import (
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    HTTPSConnection,
    InvalidURL,
    RemoteDisconnected,
)
from ssl import SSLCertVerificationError, SSLError
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from blackboard import __version__
from blackboard.clock import Clock, SystemClock
from blackboard.http_messages import retry_after

Connect = Callable[..., socket.socket]
"""Connects to a host and port, as `socket.create_connection`."""
MOMENT = 0.001
"""Seconds that an address has, at the least."""
REDIRECTS = {301, 302, 303, 307, 308}
TRANSIENT = {408, 425, 429}
"""Refusals that a retry may overcome, besides the server's own errors."""


class NotSent(Exception):
    """The receiver did not accept it. The message says why, without secrets. `final`: a retry does
    not help. `retry_after`: seconds to wait before the next try.
    """

    def __init__(self, reason: str, *, final: bool = False, retry_after: float = 0.0) -> None:
        super().__init__(reason)
        self.final = final
        self.retry_after = retry_after


class Exchange:
    """One request: GET of an address, or POST of JSON to it. It blocks in a thread of its own, and
    `end`, called from another, closes its connection: a receiver that sends one byte of an answer
    now and then would keep a thread for ever.
    """

    def __init__(
        self, address: str, body: bytes | None, *, seconds: float, clock: Clock | None = None
    ) -> None:
        self._address = address
        self._body = body
        self._seconds = seconds
        self._clock = clock or SystemClock()
        self._sockets: list[socket.socket] = []
        self._ended = False

    def run(self) -> None:
        """`seconds` limits each wait on the way. Raises NotSent, without anything of the address in
        its message.
        """
        headers = {"User-Agent": f"blackboard/{__version__}"}
        if self._body is not None:
            headers["Content-Type"] = "application/json"
        request = Request(self._address, self._body, headers)  # noqa: S310 - it was checked
        opener = build_opener(_Opening(self._connected), _NoRedirect)
        try:
            with opener.open(request, timeout=self._seconds):
                return
        except HTTPError as answer:
            answer.close()
            problem = _refusal(answer)
        except URLError as error:
            problem = NotSent(_words(error.reason))
        except (OSError, HTTPException, ValueError) as error:
            problem = NotSent(_words(error))
        finally:
            for connected in self._sockets:
                connected.close()
        raise problem

    def end(self) -> None:
        """Closes the connection, if there is one."""
        self._ended = True
        for connected in self._sockets:
            with suppress(OSError):  # it is closed already
                connected.shutdown(socket.SHUT_RDWR)

    def _connected(self, place: tuple[str, int], *_about: Any) -> socket.socket:
        """A connected socket, before a proxy has answered and before a handshake. Its duplicate is
        kept, which stays valid when TLS takes it over. Of a name with several addresses each has a
        share of the time that is left: one that drops all leaves time for the next.
        """
        found = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)
        until = self._clock.monotonic() + self._seconds
        while True:
            share = max((until - self._clock.monotonic()) / len(found), MOMENT)
            try:
                connected = _connected_to(found.pop(0), share)
            except OSError:
                if not found:
                    raise
            else:
                break
        connected.settimeout(self._seconds)
        self._sockets.append(connected.dup())
        if self._ended:
            self.end()
        return connected


def _connected_to(found: tuple[Any, ...], within: float) -> socket.socket:
    """A socket that is connected to an address, as `getaddrinfo` gives it."""
    *kind, _, address = found
    made = socket.socket(*kind)
    try:
        made.settimeout(within)
        made.connect(address)
    except BaseException:
        made.close()
        raise
    return made


class _Answer(HTTPResponse):
    """Reads on after each informational answer, of which the standard library skips 100 alone. 101
    is the last one, and is not asked for.
    """

    def _read_status(self) -> tuple[str, int, str]:
        version, status, reason = super()._read_status()  # type: ignore[misc]
        is_followed = 100 <= status < 200 and status != HTTPStatus.SWITCHING_PROTOCOLS
        return version, HTTPStatus.CONTINUE if is_followed else status, reason


class _NoRedirect(HTTPRedirectHandler):
    def http_error_302(self, *_args: Any, **_named: Any) -> None:
        """The reply is a refusal, wherever it leads."""

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


class _Opening(HTTPHandler, HTTPSHandler):
    """Opens connections whose sockets another function makes."""

    def __init__(self, connect: Connect) -> None:
        super().__init__()
        self._connect = connect

    def http_open(self, request: Request) -> HTTPResponse:
        return self.do_open(partial(self._connection, HTTPConnection), request)

    def https_open(self, request: Request) -> HTTPResponse:
        return self.do_open(partial(self._connection, HTTPSConnection), request)

    def _connection(self, kind: type[HTTPConnection], host: str, **named: Any) -> HTTPConnection:
        connection = kind(host, **named)
        connection.response_class = _Answer
        connection._create_connection = self._connect  # type: ignore[attr-defined]  # noqa: SLF001
        return connection


def _refusal(answer: HTTPError) -> NotSent:
    code = answer.code
    if code in REDIRECTS:
        return NotSent(f"it redirects ({code}): name the address it redirects to", final=True)
    headers = answer.headers
    seconds = retry_after(headers.get("Retry-After", ""), headers.get("Date", ""))
    final = code not in TRANSIENT and not 500 <= code < 600
    return NotSent(f"it answered {code}", final=final, retry_after=seconds)


def _words(reason: object) -> str:
    """What is wrong, in words of the operating system or our own: other texts might repeat the
    address.
    """
    match reason:
        case TimeoutError():
            return "it did not answer in time"
        case RemoteDisconnected():
            return "it closed the connection without an answer"
        case SSLCertVerificationError(verify_message=why):
            return f"its certificate is not accepted: {why}"
        case SSLError(reason=str() as why):
            return f"no TLS with it: {why.lower().replace('_', ' ')}"
        case OSError(strerror=str() as words) if words:
            return words
        case OSError():  # of http.client: "Tunnel connection failed: 407 ..."
            code = re.search(r"\b[1-5]\d\d\b", str(reason))
            return f"the proxy answered {code[0]}" if code else "the proxy refused"
        case InvalidURL() | str():
            return "its address, or that of the proxy, is of no kind that is known here"
        case HTTPException():
            return "what it answers is not HTTP"
        case UnicodeError():
            return "its host is not a name that a host can have"
        case _:
            return type(reason).__name__
