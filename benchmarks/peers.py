"""Other programs of this kind: jobs that do nothing, worked off by one process of each, in turn.

python -m benchmarks.peers

Their packages are installed once into an environment of their own, in the user's cache. Some need
PostgreSQL, which is started for them on a free port; without it they are left out. Each is measured
as it is configured by default and, where it has one, in the setting in which what was acknowledged
survives a loss of power.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from venv import EnvBuilder

from benchmarks.measure import report
from benchmarks.postgres import NoPostgres, new_database, started
from blackboard.bench import Measurement
from blackboard.cache import cache_folder

HERE = Path(__file__).parent
PROGRAMS = HERE / "peer_programs"
REQUIREMENTS = PROGRAMS / "requirements.txt"
ROUNDS = 3
PATIENCE = 300.0
"""Seconds after which a program is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A program, and how it is set."""

    name: str
    program: str
    setting: str = "default"
    items: int
    """As many as it works off in a second or some."""
    store: str
    differs: str
    """What it does not do, or needs, unlike Blackboard in this measurement."""

    @property
    def title(self) -> str:
        return f"{self.name}, {self.store}, {self.setting}"


OURS = Peer(name="Blackboard", program="on_blackboard", items=3_000, store="SQLite", differs="")
HUEY = Peer(
    name="Huey",
    program="on_huey",
    items=3_000,
    store="SQLite",
    differs="no lock: a task that was taken is lost with its worker; no schedule of each item, no "
    "history",
)
BARE = Peer(
    name="bare SQL",
    program="on_bare_sql",
    items=10_000,
    store="SQLite",
    differs="no program: the rows of the same runs, a hundred in a transaction, with texts made "
    "beforehand",
)
PGQUEUER = Peer(
    name="PgQueuer",
    program="on_pgqueuer",
    items=2_000,
    store="PostgreSQL",
    differs="needs a server; no fence against a worker that ends late",
)
PEERS: Sequence[Peer] = (
    OURS,
    replace(OURS, setting="durable"),
    BARE,
    HUEY,
    replace(HUEY, setting="durable", items=1_000, differs="as above"),
    Peer(
        name="Pyncette",
        program="on_pyncette",
        items=500,
        store="SQLite",
        differs="leases are not renewed by themselves; no history, no results",
    ),
    Peer(
        name="Procrastinate",
        program="on_procrastinate",
        items=1_000,
        store="PostgreSQL",
        differs="needs a server; jobs of a dead worker wait until they are retried by hand",
    ),
    PGQUEUER,
    replace(PGQUEUER, setting="batches", items=4_000, differs="as above"),
    Peer(
        name="APScheduler 4 (alpha)",
        program="on_apscheduler4",
        items=200,
        store="PostgreSQL",
        differs="needs a server; no fence, no retries",
    ),
)


def measured() -> Iterator[Measurement]:
    """Each in turn, `ROUNDS` times; medians."""
    rates = rates_of(PEERS)
    for peer, found in rates.items():
        if peer is not OURS:
            yield Measurement(
                name=peer.title,
                value=median(found),
                unit="jobs/s",
                beside=median(rates[OURS]),
                reference=OURS.title,
            )


def rates_of(peers: Sequence[Peer]) -> dict[Peer, list[float]]:
    """Jobs in a second, in each round."""
    python = environment()
    rates: dict[Peer, list[float]] = {peer: [] for peer in peers}
    with ExitStack() as stack:
        try:
            server = stack.enter_context(started())
        except NoPostgres as problem:
            _note(f"{problem}: what needs it is left out")
            server = ""
        for number in range(ROUNDS):
            for peer in peers:
                if peer.store == "PostgreSQL" and not server:
                    rates.pop(peer, None)
                    continue
                _note(f"round {number + 1} of {ROUNDS}: {peer.title}")
                own = peer.program in {OURS.program, BARE.program}
                taken = _taken(peer, Path(sys.executable) if own else python, server)
                rates[peer].append(peer.items / taken)
    return rates


def _taken(peer: Peer, python: Path, server: str) -> float:
    """Seconds in which it works off its jobs."""
    with TemporaryDirectory() as folder:
        place = folder
        if peer.store == "PostgreSQL":
            place = new_database(server, f"jobs_{os.urandom(4).hex()}")
        done = subprocess.run(  # noqa: S603 - our own words
            [python, PROGRAMS / f"{peer.program}.py", place, str(peer.items), peer.setting],
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={**os.environ, "PYTHONPATH": str(HERE.parent)},
        )
    if done.returncode:
        raise SystemExit(f"{peer.title}: {done.stderr.strip().splitlines()[-1:]}")
    return float(done.stdout)


def environment() -> Path:
    """The Python of an environment in which the peers are installed, made where it is missing."""
    folder = cache_folder() / "peers"
    python, recipe = folder / "bin" / "python", folder / REQUIREMENTS.name
    wanted = REQUIREMENTS.read_text("utf-8")
    if recipe.exists() and recipe.read_text("utf-8") == wanted:
        return python
    _note(f"installing the peers into {folder}, once")
    EnvBuilder(with_pip=True, clear=True).create(folder)
    subprocess.run(  # noqa: S603 - our own words
        [python, "-m", "pip", "install", "--quiet", "-r", REQUIREMENTS], check=True
    )
    recipe.write_text(wanted, "utf-8")
    return python


def _note(line: str) -> None:
    sys.stderr.write(f"peers: {line}\n")


if __name__ == "__main__":
    report(measured())
