"""All that docs/performance.md shows, measured: `./bb bench --peers`, in ten minutes.

./bb bench --peers                       the tables
./bb bench --peers --record              writes them into docs/performance.md, with its picture
./bb bench --peers --only peers,growth   some of them
"""

import argparse
import asyncio
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks import commands, fleet, growth, instructions, pages, peers
from benchmarks.boards import opened
from benchmarks.curves import picture
from benchmarks.measure import line, row, with_block
from blackboard.bench import Measurement, measure
from blackboard.cli.bench import number_text
from blackboard.tables import azurite

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"
PICTURE = ROOT / "docs" / "growth.svg"
STORES = ("sqlite", "azurite", "memory")
SIZES = (1_000, 10_000, 100_000, 1_000_000)
"""Items of the boards that are compared."""
DRAWN = ("check", "status", "why town-000500", growth.LOOK)
"""The curves of the picture: commands that read all items, and others."""


# ---- the sections, as Markdown


def stores() -> Iterator[str]:
    """`blackboard bench` on each store."""
    columns = {store: _bench(store) for store in STORES}
    yield from _head("", *STORES)
    for some in zip(*columns.values(), strict=True):
        cells = (f"{number_text(one.value)} {one.unit} ({one.ratio:.2g})" for one in some)
        yield row(some[0].name, *cells)


def beside_peers() -> Iterator[str]:
    rates = peers.rates_of(peers.PEERS)
    ours = median(rates[peers.OURS])
    yield from _head("program", "store", "setting", "jobs a second", "ratio", "unlike Blackboard")
    for peer, found in rates.items():
        rate = median(found)
        figures = (f"{rate:,.0f}", f"{rate / ours:.2g}")
        yield row(peer.name, peer.store, peer.setting, *figures, peer.differs)


def several() -> Iterator[str]:
    yield from _measured(fleet.measured(kills=5))


def growing() -> Iterator[str]:
    """The table; the picture is written beside the page."""
    found = {}
    for items in SIZES:
        _note(f"growth: {items:,} items")
        found[items] = growth.figures(items)
    names = list(found[SIZES[0]])
    yield from _head("", *(f"{items:,} items" for items in SIZES))
    for name in names:
        cells = (
            f"{number_text(found[items][name].value)} {found[items][name].unit}" for items in SIZES
        )
        yield row(f"`{name}`" if name.split()[0] in growth.VERBS else name, *cells)
    scale = {"s": 1.0, "ms": 0.001}
    curves = {
        name: [(items, found[items][name].value * scale[unit]) for items in SIZES]
        for name in DRAWN
        if (unit := found[SIZES[0]][name].unit) in scale
    }
    PICTURE.write_text(picture("Time by the size of the board, on SQLite", curves), "utf-8")


def looked_at() -> Iterator[str]:
    yield from _measured(pages.measured())


def command_line() -> Iterator[str]:
    yield from _measured(commands.measured())


def counted() -> Iterator[str]:
    try:
        yield from _measured(instructions.measured())
    except instructions.NoValgrind as problem:
        yield f"Not counted: {problem}."


SECTIONS: Mapping[str, Callable[[], Iterator[str]]] = {
    "bench": stores,
    "peers": beside_peers,
    "several": several,
    "growth": growing,
    "pages": looked_at,
    "commands": command_line,
    "instructions": counted,
}


# ---- parts of them


def _bench(store: str) -> list[Measurement]:
    """All that `blackboard bench` measures on a new store of a kind."""

    async def all_of(url: str) -> list[Measurement]:
        return [one async for one in measure(url, lambda what: _note(f"{store}: {what}"))]

    async def on_emulator(url: str) -> list[Measurement]:
        async with opened(url):
            return await all_of(url)

    if store == "azurite":
        with azurite.start() as emulator:
            return asyncio.run(on_emulator(emulator.url))
    with TemporaryDirectory() as folder:
        return asyncio.run(all_of("memory:" if store == "memory" else f"{folder}/board.db"))


def _measured(found: Iterable[Measurement]) -> Iterator[str]:
    yield from _head("", "measured", "beside", "ratio", "of")
    for one in found:
        value = f"{number_text(one.value)} {one.unit}"
        yield row(one.name, value, number_text(one.beside), f"{one.ratio:.2g}", one.reference)
        _note(line(one))


def _head(*titles: str) -> Iterator[str]:
    yield row(*titles)
    yield "|---" * len(titles) + "|"


def _note(line: str) -> None:
    sys.stderr.write(f"{line}\n")


# ---- the page


def origin() -> str:
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    return f"*Commit `{commit.stdout.strip()}`, {os.cpu_count()} virtual cores, {system}.*"


def sections_of(text: str) -> list[str]:
    chosen = text.split(",")
    if unknown := set(chosen) - set(SECTIONS):
        known = ", ".join(SECTIONS)
        raise argparse.ArgumentTypeError(f"no section {', '.join(sorted(unknown))}, but {known}")
    return [name for name in SECTIONS if name in chosen]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./bb bench --peers", description=__doc__.split("\n")[0])
    parser.add_argument("--peers", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--record", action="store_true", help="write docs/performance.md")
    parser.add_argument("--only", type=sections_of, default=list(SECTIONS), metavar="SECTIONS")
    chosen = parser.parse_args(arguments)
    for name in chosen.only:
        text = "\n".join([*SECTIONS[name](), "", origin()])
        if chosen.record:
            PAGE.write_text(with_block(PAGE.read_text("utf-8"), name, text), "utf-8")
        else:
            sys.stdout.write(f"{name}\n\n{text}\n\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
