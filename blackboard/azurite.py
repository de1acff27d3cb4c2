"""Azurite, the emulator of Azure Table Storage: starts it, stops it.

It serves one account that everybody knows, on 127.0.0.1 alone: it is for tests and for a laptop.
Rows that it keeps in a folder are saved when it is stopped, and every few seconds while it runs;
whatever was written since is lost when it is killed.
"""

import os
import re
import subprocess
from collections import deque
from pathlib import Path
from threading import Event, Thread
from typing import Self

from blackboard.azurite_install import LAST_LINES, Tell, install, nobody, node_folder
from blackboard.errors import BadInput, StoreProblem

TABLE = "blackboard"
STARTING = 60.0
"""Seconds that it may take to start; it takes a fifth of one."""
STOPPING = 10.0
"""Seconds that it may take to save its rows and end."""


class Emulator:
    """An emulator that runs, and ends with this process at the latest."""

    def __init__(self, process: subprocess.Popen[str], log: Path | None) -> None:
        self._process = process
        self._log = Path(os.devnull) if log is None else log
        self._said: deque[str] = deque(maxlen=LAST_LINES)
        self._port: int | None = None
        self._settled = Event()
        self._reading = Thread(target=self._read, name="azurite", daemon=True)
        self._reading.start()

    @property
    def port(self) -> int:
        assert self._port is not None, "`start` waits for it"
        return self._port

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def url(self) -> str:
        """The store URL of the table `blackboard`."""
        return self.store(TABLE)

    def store(self, table: str) -> str:
        """The store URL of a table."""
        return f"azurite://127.0.0.1:{self.port}/{table}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Have it save its rows and end; kill it when it does not. Stopping twice is fine."""
        assert self._process.stdin is not None
        self._process.stdin.close()  # which it takes for a SIGINT: SIGTERM would lose rows
        try:
            self._process.wait(STOPPING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reading.join()

    def wait(self) -> str:
        """Wait until it ends by itself; the last of what it said."""
        self._process.wait()
        self._reading.join()
        return "\n".join(self._said)

    def listens(self) -> bool:
        """Wait until it does, has ended, or had its time."""
        return self._settled.wait(STARTING) and self._port is not None

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines, self._log.open("a", encoding="utf-8") as log:
            for line in lines:
                log.write(line)
                log.flush()
                self._said.append(line.rstrip())
                if said := re.match(r"listening on (\d+)$", line):
                    self._port = int(said[1])
                    self._settled.set()
        self._settled.set()


def start(
    *,
    port: int | None = None,
    folder: Path | None = None,
    log: Path | None = None,
    tell: Tell = nobody,
) -> Emulator:
    """Start an emulator that keeps its rows in `folder`, or in memory; without a port, on any that
    is free. Each request is a line at the end of `log`. Returns when it answers. Installs it first
    where it is not yet.

    Raises BadInput for a port that is taken, a folder that cannot be made, or when Node is
    missing; StoreProblem when the emulator cannot be installed, or ends at once.
    """
    installed = install(tell)
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"{folder} cannot be made: {error.strerror}"
            raise BadInput("location", problem, "name a folder that can be written") from None
    rows = ["--inMemoryPersistence"] if folder is None else ["--location", str(folder.absolute())]
    emulator = Emulator(
        subprocess.Popen(  # noqa: S603 - our own program, no shell
            [
                *(str(node_folder() / "bin" / "node"), "start.cjs", "--tablePort", str(port or 0)),
                *rows,
                *(["--silent"] if log is None else []),
                "--disableTelemetry",
            ],
            cwd=installed,
            env={},  # it reads accounts and databases from there
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for whoever started it
        ),
        log,
    )
    if not emulator.listens():
        emulator.stop()
        raise _not_started(emulator.wait(), port)
    return emulator


def _not_started(said: str, port: int | None) -> Exception:
    if "EADDRINUSE" in said:
        return BadInput("port", f"{port} is taken", "name another, or end what listens there")
    return StoreProblem(f"Azurite did not start; it said:\n{said or 'nothing'}")
