"""A web server for tests: feeds by path, with validators, redirects and bad manners."""

import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path


@dataclass
class Answer:
    """What is served at a path. With `hold`, the body does not come until it is set, or in
    pieces of one byte until then.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    etag: bool = True
    hold: threading.Event | None = None
    drips: bool = False
    length: int | None = -1
    """What is said of the body's length: by default the truth, None for nothing."""
    chunks: bool = False
    """Sent in chunks, of which the last does not come."""


@dataclass
class Site:
    """Answers by path; those that were asked for, with the headers they were asked with."""

    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    port: int = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def folder(self, folder: Path, under: str = "/") -> list[str]:
        """Serves the feeds of a folder; the answer is their addresses."""
        paths = [f"{under}{file.name}" for file in sorted(folder.glob("*.ics"))]
        for path in paths:
            self.answers[path] = Answer((folder / path.rpartition("/")[2]).read_bytes())
        return [self.url(path) for path in paths]


def length_of(answer: Answer) -> dict[str, str]:
    """What is said of the length of a body."""
    if answer.chunks:
        return {"Transfer-Encoding": "chunked"}
    if answer.length is None:
        return {}
    return {"Content-Length": str(len(answer.body) if answer.length < 0 else answer.length)}


def send_body(sink: BufferedIOBase, answer: Answer) -> None:
    """The body, once it is released; until then byte by byte, if it drips."""
    body = answer.body
    while answer.hold is not None and not answer.hold.wait(0.05 if answer.drips else 30):
        sink.write(body[:1])
        body = body[1:] or b" "
    sink.write(b"%x\r\n%b\r\n" % (len(body), body) if answer.chunks else body)


@contextmanager
def serving(answers: Mapping[str, Answer] | None = None) -> Iterator[Site]:
    """A site on a port of its own, for the length of a `with`."""
    site = Site(dict(answers or {}))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            site.asked.append((self.path, {name.lower(): v for name, v in self.headers.items()}))
            answer = site.answers.get(self.path, Answer(b"nothing here", 404, etag=False))
            etag = f'"{hashlib.sha256(answer.body).hexdigest()[:16]}"'
            if answer.etag and self.headers.get("If-None-Match") == etag:
                self.send_response(304)
                self.send_header("ETag", etag)
                self.end_headers()
                return
            self.send_response_only(answer.status)  # without the date of this machine
            if answer.etag:
                self.send_header("ETag", etag)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            for name, value in length_of(answer).items():
                self.send_header(name, value)
            self.end_headers()
            try:
                send_body(self.wfile, answer)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True
            if answer.length != -1 or answer.chunks:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Keeps tests quiet."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    site.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
