"""The proof of docs/reliability.md, run; and its figures, written into the page.

    python -m tests.proof              the short form: all parts at once
    python -m tests.proof --long       the long form, one part after another: hours
    python -m tests.proof --record     writes the figures of the run into the page, part by part
    python -m tests.proof --only worlds,chaos

All other arguments go to pytest. If a part fails, its figures on the page stay as they are. Exit
code 1: a part has failed; 130: it was interrupted.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from blackboard.phrases import span
from tests.proof.figures import FOLDER
from tests.proof.form import FORM
from tests.proof.origin import PAGE, ROOT, Origin
from tests.proof.page import with_blocks
from tests.proof.parts import HERE, PARTS, RESULTS, Left, Part

INTERRUPTED = 130
SHARED_OUT = ("-n", "3", "--dist", "load", "--maxschedchunk", "1")
"""Options of pytest-xdist: three processes on two processors, so that waiting and computing
overlap; tests are given out one by one, the longest first."""


def tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def pytest(folders: Sequence[str], options: Sequence[str], *, is_long: bool, left: str = "") -> int:
    """Runs tests of the proof, which leave their figures in `left`. Returns pytest's exit code."""
    called = [*(str((HERE / one).relative_to(ROOT)) for one in folders), "--durations=20", *options]
    form = {FORM: "long" if is_long else "", FOLDER: left}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *called], cwd=ROOT, env=os.environ | form, check=False
    ).returncode


def shared_out(name: str, *, is_long: bool) -> tuple[str, ...]:
    """Options to run a part in several processes; none for the long form of chaos, which needs the
    machine for itself.
    """
    return () if is_long and name == "chaos" else SHARED_OUT


def record(name: str, part: Part, options: Sequence[str], *, is_long: bool, page: Path) -> bool:
    """Runs a part, and writes its figures into the page. Returns whether it succeeded."""
    origin, before = Origin.of_this_checkout(is_long=is_long), _processor()
    with TemporaryDirectory() as left:
        if part.tests:
            said = (*shared_out(name, is_long=is_long), f"--junit-xml={left}/{RESULTS}", *options)
            if pytest([part.tests], said, is_long=is_long, left=left):
                tell(f"{name} FAILED: its figures are left as they were")
                return False
        blocks = dict(part.blocks(Left(Path(left))))
    if part.source:
        blocks[part.source] += f"\n\n{origin.line(_processor() - before)}"
    page.write_text(with_blocks(page.read_text("utf-8"), blocks), encoding="utf-8")
    return True


def one_by_one(names: Sequence[str]) -> Iterator[str]:
    """Yields the parts, and prints a line when each begins; pytest shows its progress."""
    begun = time.monotonic()
    for number, name in enumerate(names, 1):
        tell(f"[{number} of {len(names)}] {name}, after {span(time.monotonic() - begun)}")
        yield name


def _processor() -> float:
    """Seconds of CPU of this process and of the child processes that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def parts_of(text: str) -> list[str]:
    chosen = text.split(",")
    if unknown := set(chosen) - set(PARTS):
        raise argparse.ArgumentTypeError(f"no part: {', '.join(sorted(unknown))}")
    return [part for part in PARTS if part in chosen]


def run(arguments: Sequence[str] | None, page: Path) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof",
        allow_abbrev=False,
        description="All other arguments go to pytest.",
    )
    parser.add_argument("--long", action="store_true", help="the long form: hours")
    parser.add_argument("--record", action="store_true", help=f"write docs/{PAGE.name}")
    parser.add_argument("--only", type=parts_of, default=list(PARTS), metavar=",".join(PARTS))
    said, options = parser.parse_known_args(arguments)
    names = [name for name in said.only if said.record or PARTS[name].tests]
    if said.record:
        done = [
            record(name, PARTS[name], options, is_long=said.long, page=page)
            for name in one_by_one(names)
        ]
        return 0 if all(done) else 1
    if said.long:
        codes = [
            pytest([PARTS[name].tests], [*shared_out(name, is_long=True), *options], is_long=True)
            for name in one_by_one(names)
        ]
        return 1 if any(codes) else 0
    folders = [PARTS[name].tests for name in names]
    return pytest(folders, [*SHARED_OUT, *options], is_long=False)


def main(arguments: Sequence[str] | None = None, page: Path = PAGE) -> int:
    try:
        return run(arguments, page)
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
