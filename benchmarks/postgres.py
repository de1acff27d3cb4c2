"""A PostgreSQL server of one's own: a new cluster in a temporary folder, on a free port."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

USER = "postgres"
"""The user of the server; also of the system, where this program is root: no server runs as
root."""
PATIENCE = 30.0
"""Seconds until the server answers."""


class NoPostgres(Exception):
    """It is not installed, or does not start."""


@contextmanager
def started() -> Iterator[str]:
    """The address of a server as Debian configures it, but for its port; it ends with the block.
    Raises NoPostgres.
    """
    programs = _programs()
    with TemporaryDirectory() as name:
        folder, port = Path(name), _free_port()
        if os.geteuid() == 0:
            shutil.chown(folder, USER)
        _run(_as_user(programs / "initdb", "-D", folder / "data", "-A", "trust", "-U", USER))
        options = ["-D", folder / "data", "-p", port, "-c", "unix_socket_directories="]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(  # noqa: S603 - our own words
                _as_user(programs / "postgres", *options), stdout=log, stderr=log
            )
        try:
            _wait(programs, port, server)
            yield f"postgresql://{USER}@127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait()


def new_database(address: str, name: str) -> str:
    """The address of a new database."""
    parts = address.removeprefix("postgresql://").rpartition(":")
    host, port = parts[0].partition("@")[2], parts[2]
    _run([str(_programs() / "createdb"), "-h", host, "-p", port, "-U", USER, name])
    return f"{address}/{name}"


def _programs() -> Path:
    """The folder of the newest server. Raises NoPostgres."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_release)
    if found:
        return found[-1].parent
    if place := shutil.which("initdb"):
        return Path(place).resolve().parent
    raise NoPostgres("no PostgreSQL is found (on Debian: apt-get install postgresql)")


def _release(path: Path) -> int:
    name = path.parents[1].name
    return int(name) if name.isdecimal() else 0


def _as_user(*command: object) -> Sequence[str]:
    words = [str(word) for word in command]
    return ["runuser", "-u", USER, "--", *words] if os.geteuid() == 0 else words


def _wait(programs: Path, port: int, server: "subprocess.Popen[bytes]") -> None:
    asked = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    until = time.monotonic() + PATIENCE
    while subprocess.run(asked, check=False).returncode != 0:  # noqa: S603 - our own words
        if server.poll() is not None or time.monotonic() > until:
            raise NoPostgres("PostgreSQL does not start")
        time.sleep(0.1)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - ours
    if done.returncode:
        raise NoPostgres(f"{Path(command[0]).name}: {done.stderr.strip()}")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
