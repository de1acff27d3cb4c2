"""`blackboard run`: run items now, and wait for the outcome on request."""

import asyncio
import signal
from collections.abc import Sequence
from typing import Any

import click

from blackboard.cli.follow import Followed, follow
from blackboard.cli.many import for_each, naming, note_pause, print_answers, recording, refused
from blackboard.cli.options import Chosen, cli_command, ids_argument, jobs_option, reason_option
from blackboard.cli.output import echo_beside, emit, note, prints_to_stderr
from blackboard.cli.session import Session, completed, interrupted_by
from blackboard.cli.spec_options import laid_over, parse_pairs, set_option
from blackboard.display.columns import run_outcome
from blackboard.display.escaping import one_line, shown, shown_lines
from blackboard.display.item_queries import select
from blackboard.errors import BadInput, BlackboardError
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
    schedule stays as it is. An item that is paused, or has no room for one more request, is named,
    and the exit code is 1; the others are requested.
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
    edits.check_trigger(trigger or "")
    seconds = parse_duration(timeout, "timeout").total_seconds() if timeout else None
    parse_pairs(pairs)
    session = Session.start(chosen)
    if here:
        with prints_to_stderr(when=chosen.json):
            session = session.with_jobs(jobs)
        return _here(session, ids, pairs=pairs)
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
    """Request a run of each item, and follow the runs if `wait` says so. Params that one item
    cannot have are refused before any is asked for; after that each item is for itself.
    """
    async with session.board() as board:
        items = await select(board, ids, exact=session.chosen.exact)
        open_items = [item for item in items if not item.is_paused]
        onces = []
        for item in open_items:
            with naming(item, among=items):
                onces.append(checked_once(item, pairs, limit=board.table.max_value))
        asked = await _ask_for_each(
            session, board, [*zip(open_items, onces, strict=True)], among=items, trigger=trigger
        )
        if not wait:
            answers = [
                _answer(asked[item.id], trigger) if item.id in asked else _paused(item)
                for item in items
            ]
            code = await print_answers(session, board, answers)
            if any(not answer.no for answer in answers):
                await note_pause(board)
            return code
        requests = [one for one in asked.values() if isinstance(one, Requested)]
        followed = await follow(board, requests, patience=seconds, report=_report)
    refusals = {end_id: end for end_id, end in asked.items() if isinstance(end, Answer)}
    runs = {result.asked.item.id: result for result in followed}
    ends = [runs.get(item.id) or refusals.get(item.id) or _paused(item) for item in items]
    return _print_ends(items, ends, json=session.chosen.json)


def _print_ends(items: Sequence[Item], ends: Sequence[Followed | Answer], *, json: bool) -> int:
    """Prints how the run of each item ended, or why there was none. Returns the exit code."""
    if json:
        emit([_record(item, end) for item, end in zip(items, ends, strict=True)])
    for item, end in zip(items, ends, strict=True):
        line = f"{item.id} {end.words}"
        if isinstance(end, Answer) or end.run is None:
            note(line)
        elif not json:
            click.echo(one_line(line))
    return 0 if all(isinstance(end, Followed) and end.good for end in ends) else 1


def _record(item: Item, end: Followed | Answer) -> dict[str, Any]:
    """What became of a request, or the answer that there was none."""
    if isinstance(end, Answer):
        return {"id": item.id, "end": "refused", "message": end.words, "run": None}
    run = end.run and run_record(end.run)
    return {"id": item.id, "end": end.end, "message": end.words, "run": run}


async def _ask_for_each(
    session: Session,
    board: BoardTable,
    wanted: Sequence[tuple[Item, dict[str, Any]]],
    *,
    among: Sequence[Item],
    trigger: str,
) -> dict[str, Requested | Answer]:
    """Requests a run, with params of its own, of each item that is wanted `among` those that are
    named; by its id, the request, or the answer that there is none.
    """

    async def ask(asked: tuple[Item, dict[str, Any]]) -> Requested | Answer:
        item, once = asked
        try:
            request = await edits.run_now(board, item.id, trigger=trigger, once=once)
        except BlackboardError as problem:
            return refused(item, problem, among=among)
        if request.changed:
            done.ids.add(item.id)
            done.details.extend(param_names(once))
        return request

    if not wanted:
        return {}
    names = [item.id for item, _ in wanted]
    async with recording(session, board, "run", names) as done:
        results = await for_each(wanted, ask, "requesting")
    return dict(zip(names, results, strict=True))


def _report(item_id: str, words: str) -> None:
    note(f"{item_id} {words}", verbatim=True)


def _paused(item: Item) -> Answer:
    words = f"is paused: {command('resume', item.id)} first"
    return Answer(item=item, words=words, changed=False, no=True)


def checked_once(item: Item, pairs: Sequence[str], *, limit: int) -> dict[str, Any]:
    """The params of one run that --set changes, each a whole value of its first key. Raises
    BadInput when no row can hold them.
    """
    parsed = parse_pairs(pairs)
    params = laid_over(spec_of(item).params, parsed)
    once = {path[0]: params[path[0]] for path, _ in parsed}
    check_params_size(once, limit=limit)
    return once


def _answer(asked: Requested | Answer, trigger: str) -> Answer:
    if isinstance(asked, Answer):
        return asked
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
                raise BlackboardError(shown(f"{items[0].id} {_paused(items[0]).words}"))
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
