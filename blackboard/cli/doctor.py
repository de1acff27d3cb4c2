"""`blackboard doctor`: checks every row of the board, and mends what is safe."""

from collections.abc import Iterator
from contextlib import AsyncExitStack

import click
from msgspec.structs import asdict

from blackboard.cli.options import Chosen, as_typed, cli_command, jobs_option
from blackboard.cli.output import emit, first_of_each, wrapped
from blackboard.cli.progress import reading
from blackboard.cli.session import Session, completed
from blackboard.display.escaping import shown
from blackboard.doctor import DoctorReport, Examination, examine, unopened
from blackboard.doctor.diagnosis import Finding
from blackboard.errors import BadRow
from blackboard.model import VERSION
from blackboard.phrases import plural
from blackboard.schedule.times import parse_duration

COUNTED = {
    "items": "item",
    "tombstones": "tombstone",
    "waiting": "waiting token",
    "locks": "lock",
    "runs": "run",
}
"""The counts of a report of `doctor`, each with the noun for people."""


@cli_command("""\
Examples:
  blackboard doctor
  blackboard doctor --jobs jobs --jobs calendars
  blackboard doctor --repair --json
""")
@jobs_option("Check that every type has a handler in there.")
@click.option("--repair", is_flag=True, help="Mend what is safe to mend.")
def doctor_command(*, chosen: Chosen, jobs: tuple[str, ...], repair: bool) -> int:
    """Check every row of the board, of its groups and of its elections; exit 1 when something is
    broken.

    Workers may run meanwhile: a row that only looks broken because it has just changed is not
    reported. A repair is one batch for each item, on the condition that the item has not changed
    since. Lost workers and clocks that differ are reported without exit 1.
    """
    session = Session.start(chosen)
    session = session.with_types(jobs) if jobs else session.with_defaults()
    request = Examination(
        cycle=parse_duration(session.settings.worker.cycle, "cycle"),
        types=set(session.handlers) or None,
        repair=repair,
        retention=session.settings.retention,
    )

    async def examined() -> DoctorReport:
        label = "examining rows" if not repair else "examining and repairing rows"
        async with AsyncExitStack() as stack:
            try:
                opened = reading(session.board(), label, whole=True)
                board = await stack.enter_async_context(opened)
            except BadRow as bad:
                return unopened(session.name, bad)
            return await examine(board, request)

    report = completed(examined())
    if chosen.json:
        counts = {name: getattr(report, name) for name in COUNTED}
        findings = [asdict(finding) for finding in report.findings]
        emit({"clean": report.clean, "version": VERSION, **counts, "findings": findings})
    else:
        click.echo("\n".join(_report_lines(report, session)))
    return 0 if report.clean else 1


def _report_lines(report: DoctorReport, session: Session) -> Iterator[str]:
    for first, more in first_of_each(report.findings, lambda each: (each.code, _fate(each))):
        words = f"{shown(first.subject)}  {shown(as_typed(first.problem))}{_fate(first)}"
        yield wrapped(words, first=f"{first.code:<8}")
        if more:
            yield f"{first.code:<8}... and {more:,} more{_fate(first)} (--json has all)"
    counts = (plural(getattr(report, name), noun) for name, noun in COUNTED.items())
    broken = sum(finding.grave and not finding.repaired for finding in report.findings)
    repaired = sum(finding.repaired for finding in report.findings)
    verdict = "clean" if report.clean else plural(broken, "finding")
    verdict += f", {repaired:,} repaired" if repaired else ""
    yield wrapped(f"{verdict}: {', '.join(counts)} in {shown(session.store)} (version {VERSION})")


def _fate(finding: Finding) -> str:
    if finding.repaired:
        return "  [repaired]"
    return "" if finding.grave else "  [for your information]"
