"""`blackboard doctor`: check every row; mend what is safe."""

from collections.abc import Iterator

import click

from blackboard.cli.options import Chosen, common
from blackboard.cli.session import Session, emit, run
from blackboard.cli.text import shown
from blackboard.doctor import DoctorReport, Examination, examine
from blackboard.doctor.diagnosis import Finding
from blackboard.model import VERSION
from blackboard.phrases import plural
from blackboard.protocol.retention import Retention
from blackboard.schedule.durations import parse_duration

EPILOG = """\b
Examples:
  blackboard doctor
  blackboard doctor --jobs jobs --jobs calendars
  blackboard doctor --repair --json
"""


@click.command(epilog=EPILOG)
@click.option("--jobs", multiple=True, metavar="JOBS", help="Do all types have a handler in here?")
@click.option("--repair", is_flag=True, help="Put right what is safe.")
@common()
def command(*, chosen: Chosen, jobs: tuple[str, ...], repair: bool) -> int:
    """Check every row of the board; exit 1 when something is broken.

    Workers may be at work meanwhile: what only seems broken because it moved is not told. A repair
    is one batch for each item, on the condition that the item is still as it was judged. Workers
    that are lost, and clocks that differ, are told but are no reason for exit 1.
    """
    session = Session.start(chosen)
    session = session.with_jobs(jobs) if jobs else session.with_defaults()
    request = Examination(
        cycle=parse_duration(session.settings.worker.cycle, "cycle"),
        types=set(session.handlers) or None,
        repair=repair,
        retention=Retention(
            runs=session.settings.board.history,
            age=parse_duration(session.settings.board.history_age, "history_age"),
        ),
    )
    report = run(_examine(session, request))
    if chosen.json:
        emit(_view(report))
    else:
        click.echo("\n".join(_lines(report, session)))
    return 0 if report.clean else 1


async def _examine(session: Session, request: Examination) -> DoctorReport:
    async with session.board() as board:
        return await examine(board, request)


def _lines(report: DoctorReport, session: Session) -> Iterator[str]:
    for one in report.findings:
        yield f"{one.code:<8}{shown(one.subject)}  {shown(one.problem)}{_fate(one)}"
    swept = report.swept
    counts = (
        plural(swept.items, "item row"),
        plural(swept.waiting, "waiting token"),
        plural(swept.locks, "lock"),
        plural(swept.runs, "run"),
    )
    broken = sum(one.grave and not one.repaired for one in report.findings)
    repaired = sum(one.repaired for one in report.findings)
    verdict = "clean" if report.clean else plural(broken, "finding")
    verdict += f", {repaired:,} repaired" if repaired else ""
    yield f"{verdict}: {', '.join(counts)} in {shown(session.store)} (version {VERSION})"


def _fate(one: Finding) -> str:
    if one.repaired:
        return "  [repaired]"
    return "" if one.grave else "  [for your information]"


def _view(report: DoctorReport) -> dict[str, object]:
    swept = report.swept
    return {
        "clean": report.clean,
        "version": VERSION,
        "items": swept.items,
        "waiting": swept.waiting,
        "locks": swept.locks,
        "runs": swept.runs,
        "findings": [
            {
                "code": one.code,
                "subject": one.subject,
                "problem": one.problem,
                "grave": one.grave,
                "repaired": one.repaired,
            }
            for one in report.findings
        ],
    }
