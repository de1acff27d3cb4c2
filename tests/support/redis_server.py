"""A real redis-server for one test, on a free port of this machine."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.patience import is_over
from tests.support.ports import free_port

PASSWORD = "open%20sesame"
"""The password as it is written in a URL."""


def needed() -> str:
    """The path of redis-server. If it is not installed the test is skipped; in CI it fails."""
    found = shutil.which("redis-server")
    if found is None and os.environ.get("CI") == "true":
        pytest.fail("redis-server is not installed (apt-get install redis-server)")
    if found is None:
        pytest.skip("redis-server is not installed (apt-get install redis-server)")
    return found


@dataclass
class RedisServer:
    """A server that may be stopped, started again, and paused. It saves nothing."""

    program: str
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    password: str = "open sesame"
    lines: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"redis://:{PASSWORD}@127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Starts it; returns when it answers."""
        command = [self.program, "--port", str(self.port), "--bind", "127.0.0.1"]
        settings = ["--save", "", "--appendonly", "no", "--dir", str(self.folder)]
        secret = self.folder / "redis.conf"
        secret.write_text(f'requirepass "{self.password}"\n')
        with (self.folder / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(
                [command[0], str(secret), *command[1:], *settings, *self.lines], stdout=log
            )
        begun = time.monotonic()
        while not self._answers():
            assert self.process.poll() is None, (self.folder / "redis.log").read_text()
            assert not is_over(begun, 10)
            time.sleep(0.02)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def send(self, *signals: int) -> None:
        assert self.process is not None
        for one in signals:
            self.process.send_signal(one)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(7) == b"-NOAUTH"
        except OSError:
            return False


@contextmanager
def running_redis(folder: Path) -> Iterator[RedisServer]:
    server = RedisServer(needed(), folder, free_port())
    server.start()
    try:
        yield server
    finally:
        server.stop()
