"""Servers that issue tokens, and an emulator that accepts them: all on this machine.

The tokens are not signed: the emulator reads their issuer, audience and expiry. The client of the
managed identity is the real azure-identity.
"""

import base64
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import trustme

from blackboard.tables.azurite import install, node_folder
from tests.support.ports import free_port
from tests.support.processes import eventually

AUDIENCE = "https://storage.azure.com"


def token(*, audience: str = AUDIENCE, lasts: int = 3600) -> str:
    """A token that is good for `lasts` seconds from now."""
    now = int(time.time())
    claims = {
        "aud": audience,
        "iss": "https://sts.windows.net/ab1f708d-50f6-404c-a006-d71b2ac7a606/",
        "iat": now - 7200,
        "nbf": now - 7200,
        "exp": now + lasts,
    }
    return f"{_part({'alg': 'RS256', 'typ': 'JWT'})}.{_part(claims)}.bm9ib2R5"


def _part(value: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@dataclass
class TokenService:
    """Gives `token` to managed identities, as App Service does, or answers with `status`; with 0 it
    closes the connection instead.
    """

    token: str
    status: int = 200
    software: str = "a server"
    """What it is, by the `Server` header of its answers."""
    asked: list[dict[str, str]] = field(default_factory=list)
    """The queries that arrived, with the secret header, and the authorization, of each."""
    port: int = 0

    @property
    def environment(self) -> dict[str, str]:
        return {
            "IDENTITY_ENDPOINT": f"http://127.0.0.1:{self.port}/msi/token",
            "IDENTITY_HEADER": "a-header-that-is-secret",
        }

    def answer(self) -> bytes:
        if self.status != 200:
            return json.dumps({"error": f"AADSTS700016: unheard of {self.token}"}).encode()
        until = str(int(time.time()) + 3600)
        given = {"access_token": self.token, "expires_on": until, "resource": AUDIENCE}
        return json.dumps(given | {"token_type": "Bearer"}).encode()


@contextmanager
def giving(token: str, *, status: int = 200, software: str = "a server") -> Iterator[TokenService]:
    """A server that gives out tokens, on a port of its own, for the length of a `with`."""
    service = TokenService(token, status, software)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = {name: text[0] for name, text in parse_qs(urlsplit(self.path).query).items()}
            service.asked.append(
                query
                | {"header": self.headers["X-IDENTITY-HEADER"] or ""}
                | {"authorization": self.headers["Authorization"] or ""}
            )
            if not service.status:
                self.close_connection = True
                return
            body = service.answer()
            self.send_response(service.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def version_string(self) -> str:
            return service.software

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True)
class Https:
    """An emulator behind a certificate."""

    url: str
    """The store URL of its table `town`."""
    authority: Path
    """The certificate of the authority that signed the emulator's own."""


@contextmanager
def emulator_over_https(folder: Path) -> Iterator[Https]:
    """An emulator that takes tokens, and for that speaks HTTPS, for the length of a `with`."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(folder / "authority.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "certificate.pem")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    files = ("--cert", str(folder / "certificate.pem"), "--key", str(folder / "key.pem"))
    with emulator("--oauth", "basic", *files) as port:
        url = f"https://127.0.0.1:{port}/devstoreaccount1/town"
        yield Https(url, folder / "authority.pem")


@contextmanager
def emulator(*options: str, key: str = "") -> Iterator[int]:
    """The port of an emulator that is started with these options, for the length of a `with`. Its
    account has `key`, or by default the well-known one.
    """
    port = free_port()
    program = [str(node_folder() / "bin" / "node"), str(install() / "start.cjs")]
    given = ("--tablePort", str(port), "--inMemoryPersistence", "--silent", "--disableTelemetry")
    process = subprocess.Popen(
        [*program, *given, *options],
        env={"AZURITE_ACCOUNTS": f"devstoreaccount1:{key}"} if key else {},
        stdin=subprocess.PIPE,  # it ends when this does
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    try:
        eventually(lambda: is_taken(port) or process.poll() is not None, "the emulator listens")
        assert process.poll() is None
        yield port
    finally:
        process.kill()
        process.communicate()


def is_taken(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0
