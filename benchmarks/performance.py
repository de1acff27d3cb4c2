"""`blackboard bench` on each store, as docs/performance.md shows it.

python -m benchmarks.performance              the tables
python -m benchmarks.performance --record     writes them into docs/performance.md
"""

import asyncio
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from blackboard.bench import Measurement, measure
from blackboard.tables import azurite

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"
BLOCK = re.compile(r"(<!-- figures: bench -->\n\n).*?(<!-- end -->)", re.DOTALL)
STORES = ("sqlite", "azurite", "memory")


def measured(store: str) -> list[Measurement]:
    """All that `blackboard bench` measures on a new store of a kind."""

    async def all_of(url: str) -> list[Measurement]:
        def said(what: str) -> None:
            sys.stderr.write(f"{store}: {what}\n")

        return [one async for one in measure(url, said)]

    with ExitStack() as stack:
        if store == "azurite":
            with azurite.start() as emulator:
                asyncio.run(_made(emulator.url))
                return asyncio.run(all_of(emulator.url))
        folder = stack.enter_context(TemporaryDirectory())
        return asyncio.run(all_of("memory:" if store == "memory" else f"{folder}/board.db"))


async def _made(url: str) -> None:
    from blackboard.clock import SystemClock  # noqa: PLC0415 - for one store alone
    from blackboard.stores import open_table  # noqa: PLC0415

    await (await open_table(url, SystemClock(), create=True)).close()


def lines() -> Iterator[str]:
    columns = {store: measured(store) for store in STORES}
    yield "| | " + " | ".join(STORES) + " |"
    yield "|---" * (len(STORES) + 1) + "|"
    for row in zip(*columns.values(), strict=True):
        cells = (f"{_number(one.value)} {one.unit} ({one.ratio:.2g})" for one in row)
        yield f"| {row[0].name} | " + " | ".join(cells) + " |"
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607 - our own words
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    yield ""
    yield (
        f"Commit {commit}, {os.cpu_count()} shared virtual cores, Python "
        f"{platform.python_version()}, {platform.system()}."
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main(*arguments: str) -> None:
    text = "\n".join(lines())
    if "--record" in arguments:
        page, count = BLOCK.subn(
            lambda found: f"{found[1]}{text}\n\n{found[2]}", PAGE.read_text("utf-8")
        )
        assert count == 1, f"{PAGE} has {count} places for the table"
        PAGE.write_text(page, "utf-8")
    else:
        sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
