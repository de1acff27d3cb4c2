"""How measurements are taken and shown."""

import gc
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from blackboard.bench import Measurement

BLACKBOARD = (sys.executable, "-m", "blackboard")


def line(one: Measurement) -> str:
    values = f"{one.value:>10,.5g} {one.unit:<7} {one.beside:>10,.5g}"
    return f"{one.name:<34} {values}  {one.reference:<34} ratio {one.ratio:.3g}"


def row(*cells: str) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def with_block(page: str, name: str, text: str) -> str:
    """A page, with the text in the place of that name. Raises ValueError where it has none."""
    block = re.compile(rf"(<!-- figures: {name} -->\n\n).*?(<!-- end -->)", re.DOTALL)
    page, count = block.subn(lambda found: f"{found[1]}{text}\n\n{found[2]}", page)
    if count != 1:
        raise ValueError(f"the page has {count} places for {name}")
    return page


def best_of(times: int, work: Callable[[], float]) -> float:
    """The smallest of several results in seconds: what else the machine did only adds to them."""
    return min(work() for _ in range(times))


def seconds(work: Callable[[], object]) -> float:
    """How long it takes, with no garbage of others in between."""
    gc.collect()
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def waited(folder: Path, *arguments: str, command: Sequence[str] = BLACKBOARD) -> float:
    """Seconds from the start of a command to its end, output included."""

    def run() -> None:
        done = subprocess.run(  # noqa: S603 - our own
            [*command, *arguments],
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
        )
        assert done.returncode in {0, 1}, f"{arguments}: neither done nor a `no`"

    return seconds(run)


def report(found: Iterable[Measurement]) -> None:
    """Prints lines, or one JSON list with --json. A line is printed as soon as it is there."""
    if "--json" in sys.argv[1:]:
        rows = [{**asdict(one), "ratio": one.ratio} for one in found]
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return
    for one in found:
        sys.stdout.write(line(one) + "\n")
        sys.stdout.flush()
