"""`blackboard run`: run items now."""

import asyncio
from collections.abc import Sequence
from typing import Any

import click

from blackboard.cli.answers import Answer, tell
from blackboard.cli.follow import Followed, follow
from blackboard.cli.selection import ids_argument, select, spec_of
from blackboard.cli.session import Chosen, Session, common, emit, note, run
from blackboard.cli.spec_options import set_option
from blackboard.cli.text import one_line, shown
from blackboard.cli.values import laid_over, parse_pairs
from blackboard.cli.views import run_view
from blackboard.errors import BadInput
from blackboard.inputs import check_params_size
from blackboard.model import Item, Run
from blackboard.phrases import plural
from blackboard.protocol import edits
from blackboard.protocol.reading import BoardTable
from blackboard.rules.transitions import Requested
from blackboard.schedule.durations import parse_duration

EPILOG = """\b
Examples:
  blackboard run westlafcals --wait
  blackboard run westlafcals --set days=7 --wait --timeout 10m
  blackboard run westlafcals --here --jobs calendars
"""


@click.command(epilog=EPILOG)
@ids_argument()
@click.option("--wait", is_flag=True, help="Follow it to its outcome; exit code 0 if that is ok.")
@click.option("--timeout", metavar="TIME", help="With --wait: for so long at the most.")
@click.option("--here", is_flag=True, help="In this process, where a debugger can step through it.")
@click.option("--jobs", multiple=True, metavar="JOBS", help="With --here: where the handler is.")
@set_option
@common()
def command(
    *,
    chosen: Chosen,
    ids: tuple[str, ...],
    exact: bool,
    wait: bool,
    timeout: str | None,
    here: bool,
    jobs: tuple[str, ...],
    pairs: tuple[str, ...],
) -> int:
    """Make items due now, or once more when they are running; --set is for this run alone. The
    schedule stays as it is. Paused items are refused.
    """
    _check_options(wait=wait, timeout=timeout, here=here, jobs=jobs)
    seconds = parse_duration(timeout, "timeout").total_seconds() if timeout else None
    parse_pairs(pairs)
    session = Session.start(chosen)
    if here:
        return _here(session.with_jobs(jobs), ids, exact=exact, pairs=pairs)
    return run(_Request(session, pairs).run(ids, exact=exact, wait=wait, seconds=seconds))


def _check_options(*, wait: bool, timeout: str | None, here: bool, jobs: Sequence[str]) -> None:
    if timeout and not wait:
        raise BadInput("timeout", "it says how long to wait", "use it with --wait")
    if jobs and not here:
        raise BadInput("jobs", "workers have jobs of their own", "use it with --here")
    if wait and here:
        raise BadInput("wait", "a run here is waited for anyway", "leave it out")


class _Request:
    def __init__(self, session: Session, pairs: Sequence[str]) -> None:
        self._session = session
        self._pairs = pairs

    async def run(
        self, ids: Sequence[str], *, exact: bool, wait: bool, seconds: float | None
    ) -> int:
        async with self._session.board() as board:
            items = await select(board, ids, exact=exact)
            onces = [checked_once(item, self._pairs, limit=board.table.max_value) for item in items]
            asked = [
                await edits.run_now(board, item.id, once=once)
                for item, once in zip(items, onces, strict=True)
            ]
            if not wait:
                answers = [Answer(item=one.item, words=_due(one)) for one in asked]
                return await tell(board, answers, json=self._session.chosen.json)
            return await self._wait(board, asked, seconds=seconds)

    async def _wait(
        self, board: BoardTable, asked: Sequence[Requested], *, seconds: float | None
    ) -> int:
        json = self._session.chosen.json
        waits = [follow(board, one, patience=seconds) for one in asked]
        followed = await asyncio.gather(*waits)
        if json:
            emit([_record(ask.item, one) for ask, one in zip(asked, followed, strict=True)])
        for ask, one in zip(asked, followed, strict=True):
            line = f"{ask.item.id} {one.words}"
            if one.run is None:
                note(line)
            elif not json:
                click.echo(one_line(line))
        return 0 if all(one.good for one in followed) else 1


def checked_once(item: Item, pairs: Sequence[str], *, limit: int) -> dict[str, Any]:
    """What is laid over the params of one run: whole values, for the keys that --set names. Raises
    BadInput when the item is paused, or no row can hold it.
    """
    if item.is_paused:
        problem = f"{item.id!r} is paused"
        raise BadInput("id", problem, f"`blackboard resume {shown(item.id)}` first")
    parsed = parse_pairs(pairs)
    params = laid_over(spec_of(item).params, parsed)
    once = {path[0]: params[path[0]] for path, _ in parsed}
    check_params_size(once, limit=limit)
    return once


def _due(asked: Requested) -> str:
    item, ahead = asked.item, asked.ahead
    if asked.joined:
        due = f"is due after {plural(ahead, 'run')}" if ahead else "is due now"
        return f"{due}: a run that waits already is for this request too"
    if not ahead:
        return "is due now"
    if ahead == 1 and item.running:
        return "runs; it will run once more when it has ended"
    state = "runs" if item.running else "is due now"
    return f"{state}; this request is run after {plural(ahead, 'run')}"


def _record(item: Item, one: Followed) -> dict[str, Any]:
    record = {"id": item.id, "end": one.end.value, "message": one.words, "run": None}
    return record | {"run": run_view(one.run, output=True)} if one.run else record


def _here(session: Session, ids: Sequence[str], *, exact: bool, pairs: Sequence[str]) -> int:
    from blackboard.cli.local_run import LocalRun  # noqa: PLC0415 - has a worker's parts

    async def find() -> tuple[Item, dict[str, Any]]:
        async with session.board() as board:
            items = await select(board, ids, exact=exact)
            if len(items) != 1:
                raise BadInput("id", "one item at a time runs here", "name one id")
            return items[0], checked_once(items[0], pairs, limit=board.table.max_value)

    item, once = run(find())
    released = LocalRun(session, item, once=once).run()
    if session.chosen.json:
        emit(run_view(released.run))
    else:
        _tell_here(released.run)
    return 0 if released.run.outcome.value == "ok" else 1


def _tell_here(ended: Run) -> None:
    click.echo(f"{shown(ended.id)} {ended.outcome.value} in {ended.duration:.3f} s")
    if ended.result:
        click.echo(ended.result)
    if ended.error:
        click.echo(ended.error, err=True)
