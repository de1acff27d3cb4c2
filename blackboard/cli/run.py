"""`blackboard run`: run items now, and wait for the outcome on request."""

import asyncio
import signal
from collections.abc import Sequence
from typing import Any

import click

from blackboard.cli.follow import Followed, follow
from blackboard.cli.many import GONE, for_each, gone_meanwhile, note_pause, print_answers, recording
from blackboard.cli.options import Chosen, cli_command, ids_argument, jobs_option, reason_option
from blackboard.cli.output import echo_beside, emit, note
from blackboard.cli.session import Session, completed, interrupted_by
from blackboard.cli.spec_options import laid_over, parse_pairs, set_option
from blackboard.display.columns import run_outcome
from blackboard.display.escaping import one_line, shown, shown_lines
from blackboard.display.item_queries import select
from blackboard.errors import BadInput, BlackboardError, Missing
from blackboard.inputs import check_params_size
from blackboard.model import Item, Outcome
from blackboard.phrases import command, plural
from blackboard.protocol import edits
from blackboard.protocol.actions import param_names
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.planning import spec_of
from blackboard.records import run_record, run_summary
from blackboard.rules.transitions import Requested
from blackboard.schedule.times import parse_duration
from blackboard.verbs import Answer

HERE = "In this process, where a debugger can step through it; without a time limit."


@cli_command("""\
Examples:
  blackboard run westlafcals --wait
  blackboard run westlafcals --set days=7 --wait --timeout 10m
  blackboard run westlafcals --trigger delivery-4711
  blackboard run westlafcals --here --jobs calendars
""")
@ids_argument()
@click.option("--wait", is_flag=True, help="Follow it to its outcome; exit code 0 if that is ok.")
@click.option("--timeout", metavar="TIME", help="With --wait: for so long at the most.")
@click.option("--here", is_flag=True, help=HERE)
@click.option("--trigger", metavar="NAME", help="What asks: the same name twice is one run.")
@jobs_option("With --here: where the handler is.")
@set_option
@reason_option
def run_command(
    *,
    chosen: Chosen,
    ids: tuple[str, ...],
    wait: bool,
    timeout: str | None,
    here: bool,
    trigger: str | None,
    jobs: tuple[str, ...],
    pairs: tuple[str, ...],
) -> int:
    """Make items due now, or once more when they are running; --set is for this run alone. The
    schedule stays as it is. Where one of the items is paused, nothing is requested, and the exit
    code is 1.
    """
    if timeout and not wait:
        raise BadInput("timeout", "it says how long to wait", "use it with --wait")
    if jobs and not here:
        raise BadInput("jobs", "workers have jobs of their own", "use it with --here")
    if wait and here:
        raise BadInput("wait", "a run here is waited for anyway", "leave it out")
    if trigger is not None and here:
        raise BadInput(
            "trigger", "a run here is no request, which could come twice", "leave it out"
        )
    if trigger == "":
        raise BadInput("trigger", "it is empty", "name what asks for the run, or leave it out")
    seconds = parse_duration(timeout, "timeout").total_seconds() if timeout else None
    parse_pairs(pairs)
    session = Session.start(chosen)
    if here:
        return _here(session.with_jobs(jobs), ids, pairs=pairs)
    session = session.with_labels(ids, shown=chosen.json and not wait)
    work = _request(session, ids, trigger=trigger or "", pairs=pairs, wait=wait, seconds=seconds)
    return completed(work)


async def _request(
    session: Session,
    ids: Sequence[str],
    *,
    trigger: str,
    pairs: Sequence[str],
    wait: bool,
    seconds: float | None,
) -> int:
    """Request a run of each item, and follow the runs if `wait` says so. What one item refuses by
    itself is refused before any is asked for.
    """
    async with session.board() as board:
        items = await select(board, ids, exact=session.chosen.exact)
        if paused := [item for item in items if item.is_paused]:
            answers = [
                Answer(item=item, words=_refusal(item), changed=False, no=True) for item in paused
            ]
            return await print_answers(session, board, answers)
        onces = [checked_once(item, pairs, limit=board.table.max_value) for item in items]
        asked = await _ask_for_each(session, board, items, onces, trigger=trigger)
        if not wait:
            answers = [
                gone_meanwhile(item) if request is None else _answer(request, trigger)
                for item, request in zip(items, asked, strict=True)
            ]
            code = await print_answers(session, board, answers)
            await note_pause(board)
            return code
        requests = [request for request in asked if request is not None]
        followed = await follow(board, requests, patience=seconds, report=_report)
    return _print_runs(items, followed, json=session.chosen.json)


def _print_runs(items: Sequence[Item], followed: Sequence[Followed], *, json: bool) -> int:
    """Prints how the run of each item ended. Returns the exit code."""
    by_id = {result.asked.item.id: result for result in followed}
    results = [(item, by_id.get(item.id)) for item in items]
    if json:
        emit([_record(item, result) for item, result in results])
    for item, result in results:
        line = f"{item.id} {result.words if result else GONE}"
        if result is None or result.run is None:
            note(line)
        elif not json:
            click.echo(one_line(line))
    return 0 if all(result is not None and result.good for _, result in results) else 1


def _record(item: Item, followed: Followed | None) -> dict[str, Any]:
    """What became of a request; None: the item was removed before the run could be requested."""
    if followed is None:
        return {"id": item.id, "end": "gone", "message": GONE, "run": None}
    run = followed.run and run_record(followed.run)
    return {"id": item.id, "end": followed.end, "message": followed.words, "run": run}


async def _ask_for_each(
    session: Session,
    board: BoardTable,
    items: Sequence[Item],
    onces: Sequence[dict[str, Any]],
    *,
    trigger: str,
) -> list[Requested | None]:
    """Requests a run of each item. None: another command has removed it meanwhile."""

    async def ask(asked: tuple[Item, dict[str, Any]]) -> Requested | None:
        item, once = asked
        try:
            request = await edits.run_now(board, item.id, trigger=trigger, once=once)
        except Missing:
            if len(items) == 1:
                raise
            return None
        if request.changed:
            done.ids.add(item.id)
            done.details.extend(param_names(once))
        return request

    async with recording(session, board, "run", [item.id for item in items]) as done:
        return await for_each([*zip(items, onces, strict=True)], ask, "requesting")


def _report(item_id: str, words: str) -> None:
    note(f"{item_id} {words}", verbatim=True)


def _refusal(item: Item) -> str:
    return f"is paused: {command('resume', item.id)} first; nothing is requested"


def checked_once(item: Item, pairs: Sequence[str], *, limit: int) -> dict[str, Any]:
    """The params of one run that --set changes, each a whole value of its first key. Raises
    BadInput when no row can hold them.
    """
    parsed = parse_pairs(pairs)
    params = laid_over(spec_of(item).params, parsed)
    once = {path[0]: params[path[0]] for path, _ in parsed}
    check_params_size(once, limit=limit)
    return once


def _answer(asked: Requested, trigger: str) -> Answer:
    return Answer(item=asked.item, words=_due(asked, trigger), changed=asked.changed)


def _due(asked: Requested, trigger: str) -> str:
    item, ahead = asked.item, asked.ahead
    if trigger and not asked.changed:
        return "was asked for by this trigger before: there is no second run"
    if asked.joined:
        due = f"is due after {plural(ahead, 'run')}" if ahead else "is due now"
        return f"{due}: one run is for this request and for one that waits already"
    if not ahead:
        return "is due now"
    if ahead == 1 and item.running:
        return "runs; it will run once more when it has ended"
    state = "runs" if item.running else "is due now"
    return f"{state}; the run of this request follows {plural(ahead, 'run')}"


def _here(session: Session, ids: Sequence[str], *, pairs: Sequence[str]) -> int:
    from blackboard.cli.local_run import INTERRUPTED, LocalRun  # noqa: PLC0415 - a worker's parts

    async def find() -> tuple[Item, dict[str, Any]]:
        async with session.board() as board:
            items = await select(board, ids, exact=session.chosen.exact)
            if len(items) != 1:
                raise BadInput("id", "one item at a time runs here", "name one id")
            if items[0].is_paused:
                raise BlackboardError(shown(f"{items[0].id} {_refusal(items[0])}"))
            return items[0], checked_once(items[0], pairs, limit=board.table.max_value)

    item, once = asyncio.run(find())
    with interrupted_by(signal.SIGTERM, signal.SIGHUP):
        released = LocalRun(session, item, once=once).run()
    ended = released.run
    if session.chosen.json:
        emit(run_summary(ended))
    else:
        click.echo(f"{shown(ended.id)} {run_outcome(ended)[0]} in {ended.duration:.3f} s")
        if ended.result:
            click.echo(shown(ended.result))
    if (ended.outcome, ended.error) == (INTERRUPTED.outcome, INTERRUPTED.error):
        raise click.Abort
    if ended.error and not session.chosen.json:
        echo_beside("\n".join(shown_lines(ended.error)))
    return 0 if ended.outcome is Outcome.OK else 1
