"""The proof, measured and written down.

    python -m tests.reliability measure     runs it, and keeps its figures in figures/
    python -m tests.reliability write       makes docs/reliability.md of them

A part that fails keeps its old figures. Exit code 1: a part has failed or was never measured, or
the page is not what `write` would make it; 130: it was interrupted.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.reliability.measured import FIGURES, Measured, Origin, keep, kept
from tests.reliability.parts import PARTS, Failed, Wanted, tell
from tests.reliability.writing import PAGE, whole_page

INTERRUPTED = 130


def measure(parts: Sequence[str], wanted: Wanted, folder: Path = FIGURES) -> int:
    """The exit code. Each part is kept as soon as it is done."""
    failed = []
    for part in parts:
        tell(part)
        origin, before = Origin.of_this_checkout(), _processor()
        try:
            figures = PARTS[part](wanted)
        except Failed as failure:
            tell(f"{part} FAILED: {failure}")
            failed.append(part)
            continue
        earlier = wanted.earlier[part].seconds if part in wanted.earlier else 0.0
        seconds = round(_processor() - before + earlier, 1)
        measured = Measured(origin=origin, nightly=wanted.nightly, seconds=seconds, figures=figures)
        keep(part, measured, folder)
        tell(f"{part} is kept: {seconds:,.0f} s of processors")
    return 1 if failed else 0


def _processor() -> float:
    """Seconds of this process and of those that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def write(*, check: bool) -> int:
    if missing := PARTS.keys() - kept().keys():
        tell(f"not measured yet: {', '.join(sorted(missing))}")
        return 1
    page = whole_page()
    if not check:
        PAGE.write_text(page, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page:
        tell(f"{PAGE.name} is old: run python -m tests.reliability write")
        return 1
    return 0


def parts_of(text: str) -> list[str]:
    chosen = text.split(",")
    if unknown := set(chosen) - set(PARTS):
        raise argparse.ArgumentTypeError(f"no part: {', '.join(sorted(unknown))}")
    return [part for part in PARTS if part in chosen]


def main(arguments: Sequence[str] | None = None) -> int:
    parser, usual = argparse.ArgumentParser(prog="python -m tests.reliability"), Wanted()
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="run parts of the proof, keep their figures")
    measuring.add_argument("--worker-hours", type=float, default=usual.worker_hours)
    measuring.add_argument("--only", type=parts_of, default=list(PARTS), metavar=",".join(PARTS))
    measuring.add_argument("--processes", type=int, default=usual.processes)
    measuring.add_argument("--nightly", action="store_true", help="the long forms: hours")
    measuring.add_argument(
        "--go-on", action="store_true", help="worlds and calm: add to what is kept"
    )
    measuring.add_argument("--into", type=Path, default=FIGURES, help="another folder for figures")
    writing = commands.add_parser("write", help=f"make docs/{PAGE.name}")
    writing.add_argument("--check", action="store_true", help="see whether it is up to date")
    said = parser.parse_args(arguments)
    if said.command == "write":
        return write(check=said.check)
    found = kept(said.into) if said.go_on else {}
    wanted = Wanted(
        worker_hours=said.worker_hours,
        processes=said.processes,
        nightly=said.nightly,
        earlier={part: found[part] for part in ("worlds", "calm") if part in found},
    )
    try:
        return measure(said.only, wanted, said.into)
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
