"""`blackboard run`: run items now, and wait for the outcome on request."""

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import repeat
from typing import Any

import click

from blackboard.cli.many import AT_ONCE, for_each, recording
from blackboard.cli.options import Chosen, as_typed, cli_command, common, jobs_option, reason_option
from blackboard.cli.output import Answer, emit, note, print_answers, tell
from blackboard.cli.session import Session, completed, ids_argument, interrupted_by
from blackboard.cli.spec_options import laid_over, parse_pairs, set_option
from blackboard.display.layout import one_line, shown, shown_lines
from blackboard.display.queries import select
from blackboard.errors import BadInput, BlackboardError
from blackboard.inputs import check_params_size
from blackboard.model import Item, Mark, Outcome, Run, State
from blackboard.phrases import command, first_line, plural, span, stamp
from blackboard.protocol import edits
from blackboard.protocol.actions import param_names
from blackboard.protocol.maintenance import paused_by
from blackboard.protocol.members import Sighting, takers, workers
from blackboard.protocol.planning import spec_of
from blackboard.protocol.reading import BoardTable
from blackboard.records import run_record, run_summary
from blackboard.rules.next_run import serves, slots_in_line
from blackboard.rules.transitions import Requested
from blackboard.schedule.times import parse_duration

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
"""The most seconds between two looks; the first ones follow sooner. Nothing fails: no backoff."""
MOST_READ = 200
"""The most items that are read in a second: with many, the looks are further apart."""
SILENT = 1.0
"""Seconds of waiting before its reason is reported."""
NO_WORKER_WAIT = 30.0
"""Seconds without a worker that takes the type, after which waiting is given up."""


class End(StrEnum):
    """Why following a run has ended."""

    ENDED = "ended"
    NO_WORKER = "no worker"
    LATE = "still waiting"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """The result of following a run: the run, if there was one, and words for people."""

    end: End
    words: str
    run: Run | None = None

    @property
    def good(self) -> bool:
        return self.run is not None and self.run.outcome is Outcome.OK


def is_pending(item: Item, slot: datetime) -> bool:
    """Whether the run for `slot` is queued, running, or to be retried."""
    alive = item.running or item.state is State.ACTIVE
    return alive and any(serves(one, slot) for one in slots_in_line(item))


Report = Callable[[str, str], None]
"""Called with an id and the reason why its run waits."""


async def follow(
    board: BoardTable,
    requests: Sequence[Requested],
    *,
    patience: float | None,
    report: Report = lambda *_: None,
) -> list[Followed]:
    """Wait for runs: at most `patience` seconds, and at most `NO_WORKER_WAIT` for a worker that
    takes the type. What is waited for is reported once it takes a second.
    """
    began = board.clock.monotonic()
    following = [_Following(asked=one, alone_since=began) for one in requests]
    pause = FIRST_PAUSE
    at_once = asyncio.Semaphore(AT_ONCE)

    async def read(one: _Following) -> Item | None:
        async with at_once:
            return await board.existing(one.asked.item.id)

    async def look(one: _Following, item: Item | None, around: _Around) -> None:
        async with at_once:
            one.followed = await one.look(item, around, report)

    while True:
        left = [one for one in following if one.followed is None]
        # Items are read first: when one shows that its run is over, the history has the run.
        items = await asyncio.gather(*map(read, left))
        around = _Around(
            board=board,
            present=await workers(board),
            paused=await paused_by(board),
            at=await board.table.now(),
            now=board.clock.monotonic(),
            began=began,
            patience=patience,
        )
        await asyncio.gather(*map(look, left, items, repeat(around)))
        number = sum(one.followed is None for one in left)
        if not number:
            return [one.followed for one in following if one.followed is not None]
        wait = max(pause, number / MOST_READ)
        if patience is not None:
            wait = min(wait, max(patience - (around.now - began), pause))
        await board.clock.sleep(wait)
        pause = min(2 * pause, LONGEST_PAUSE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Around:
    """What is read once for all runs that are waited for."""

    board: BoardTable
    present: Sequence[Sighting]
    paused: Mark | None
    at: datetime
    """The store's time."""
    now: float
    began: float
    """The monotonic time of this process at the beginning, in seconds."""
    patience: float | None


@dataclass(slots=True, kw_only=True)
class _Following:
    """A run that is waited for."""

    asked: Requested
    alone_since: float
    """The last monotonic time at which a worker that takes its type was present."""
    reported: str = ""
    followed: Followed | None = None

    async def look(self, item: Item | None, around: _Around, report: Report) -> Followed | None:
        """The result of following it; None while it is waited for."""
        if item is None or item.born != self.asked.item.born:
            return Followed(end=End.GONE, words="was removed meanwhile")
        if not is_pending(item, self.asked.slot):
            return await _ended(around.board, self.asked, item)
        able = () if item.running else takers(around.present, item.type)
        if item.running or able:
            self.alone_since = around.now
        waited = around.now - around.began
        if waited >= SILENT:
            words = _what_it_waits_for(item, able, around)
            if words != self.reported:
                report(item.id, words)
            self.reported = words
        if around.now - self.alone_since > NO_WORKER_WAIT:
            words = f"waits: no worker takes {item.type!r}; start one with `blackboard worker`"
            return Followed(end=End.NO_WORKER, words=words)
        if around.patience is not None and waited > around.patience:
            after = span(around.patience)
            words = f"has not been started after {after}; it stays due"
            if item.running:
                words = f"still runs ({item.owner}) after {after}, and goes on"
            return Followed(end=End.LATE, words=words)
        return None


def _what_it_waits_for(item: Item, able: Sequence[Sighting], around: _Around) -> str:
    if item.running:
        return f"runs ({item.owner})"
    if item.attempt > 1 and item.ready > around.at:
        said = ": ".join(filter(None, (item.outcome or "", first_line(item.error))))
        return f"{said}; attempt {item.attempt} may start at {stamp(item.ready)}"
    if not able:
        return f"waits for a worker that takes {item.type}: none is at work"
    if around.paused:
        resume = as_typed("`blackboard resume --board`")
        return f"waits: the board is paused by {around.paused.by} ({resume})"
    within = span(max(one.member.cycle for one in able))
    return f"waits for a walk of {plural(len(able), 'worker')}, within {within}, and a free slot"


async def _ended(board: BoardTable, asked: Requested, item: Item) -> Followed:
    async for one in board.runs(asked.item.id):
        if serves(one.slot, asked.slot) and one.fence > asked.item.fence - asked.item.running:
            return Followed(end=End.ENDED, words=_outcome_words(one), run=one)
    if item.state is State.PAUSED:
        return Followed(end=End.GONE, words="was paused meanwhile")
    return Followed(end=End.GONE, words="has ended, and its history does not have it any more")


def _outcome_words(run: Run) -> str:
    said = (run.result, first_line(run.error))
    return ": ".join(filter(None, (f"{run.outcome.value} in {span(run.duration)}", *said)))


HERE = "In this process, where a debugger can step through it; without a time limit."


@cli_command("""\
Examples:
  blackboard run westlafcals --wait
  blackboard run westlafcals --set days=7 --wait --timeout 10m
  blackboard run westlafcals --here --jobs calendars
""")
@ids_argument()
@click.option("--wait", is_flag=True, help="Follow it to its outcome; exit code 0 if that is ok.")
@click.option("--timeout", metavar="TIME", help="With --wait: for so long at the most.")
@click.option("--here", is_flag=True, help=HERE)
@jobs_option("With --here: where the handler is.")
@set_option
@reason_option
@common()
def run_command(
    *,
    chosen: Chosen,
    ids: tuple[str, ...],
    exact: bool,
    wait: bool,
    timeout: str | None,
    here: bool,
    jobs: tuple[str, ...],
    pairs: tuple[str, ...],
    reason: str,
) -> int:
    """Make items due now, or once more when they are running; --set is for this run alone. The
    schedule stays as it is. Paused items are refused.
    """
    if timeout and not wait:
        raise BadInput("timeout", "it says how long to wait", "use it with --wait")
    if jobs and not here:
        raise BadInput("jobs", "workers have jobs of their own", "use it with --here")
    if wait and here:
        raise BadInput("wait", "a run here is waited for anyway", "leave it out")
    seconds = parse_duration(timeout, "timeout").total_seconds() if timeout else None
    parse_pairs(pairs)
    session = Session.start(chosen)
    if here:
        return _here(session.with_jobs(jobs), ids, exact=exact, pairs=pairs, reason=reason)
    work = _request(
        session, ids, exact=exact, pairs=pairs, reason=reason, wait=wait, seconds=seconds
    )
    return completed(work)


async def _request(
    session: Session,
    ids: Sequence[str],
    *,
    exact: bool,
    pairs: Sequence[str],
    reason: str,
    wait: bool,
    seconds: float | None,
) -> int:
    """Request a run of each item, and follow the runs if `wait` says so. What one item refuses by
    itself is refused before any is asked for.
    """
    async with session.board() as board:
        items = await select(board, ids, exact=exact)
        onces = [checked_once(item, pairs, limit=board.table.max_value) for item in items]

        async def ask(asked: tuple[Item, dict[str, Any]]) -> Requested:
            item, once = asked
            request = await edits.run_now(board, item.id, once=once)
            done.ids.add(item.id)
            done.details.extend(param_names(once))
            return request

        names = [item.id for item in items]
        async with recording(session, board, "run", names, reason=reason) as done:
            requests = await for_each([*zip(items, onces, strict=True)], ask, "requesting")
        if not wait:
            answers = [Answer(item=one.item, words=_due(one)) for one in requests]
            return await print_answers(board, answers, json=session.chosen.json)
        followed = await follow(board, requests, patience=seconds, report=_report)
    if session.chosen.json:
        emit([_record(item, one) for item, one in zip(items, followed, strict=True)])
    for item, one in zip(items, followed, strict=True):
        line = f"{item.id} {one.words}"
        if one.run is None:
            note(line)
        elif not session.chosen.json:
            click.echo(one_line(line))
    return 0 if all(one.good for one in followed) else 1


def _report(item_id: str, words: str) -> None:
    tell(f"{item_id} {words}")


def checked_once(item: Item, pairs: Sequence[str], *, limit: int) -> dict[str, Any]:
    """The params of one run that --set changes, each a whole value of its first key. Raises
    BlackboardError when the item is paused, and BadInput when no row can hold them.
    """
    if item.is_paused:
        resume = shown(command("resume", item.id))
        raise BlackboardError(f"{shown(item.id)} is paused: {resume} first")
    parsed = parse_pairs(pairs)
    params = laid_over(spec_of(item).params, parsed)
    once = {path[0]: params[path[0]] for path, _ in parsed}
    check_params_size(once, limit=limit)
    return once


def _due(asked: Requested) -> str:
    item, ahead = asked.item, asked.ahead
    if asked.joined:
        due = f"is due after {plural(ahead, 'run')}" if ahead else "is due now"
        return f"{due}: one run is for this request and for one that waits already"
    if not ahead:
        return "is due now"
    if ahead == 1 and item.running:
        return "runs; it will run once more when it has ended"
    state = "runs" if item.running else "is due now"
    return f"{state}; the run of this request follows {plural(ahead, 'run')}"


def _record(item: Item, one: Followed) -> dict[str, Any]:
    run = one.run and run_record(one.run)
    return {"id": item.id, "end": one.end.value, "message": one.words, "run": run}


def _here(
    session: Session, ids: Sequence[str], *, exact: bool, pairs: Sequence[str], reason: str
) -> int:
    from blackboard.cli.local_run import LocalRun  # noqa: PLC0415 - has a worker's parts

    async def find() -> tuple[Item, dict[str, Any]]:
        async with session.board() as board:
            items = await select(board, ids, exact=exact)
            if len(items) != 1:
                raise BadInput("id", "one item at a time runs here", "name one id")
            return items[0], checked_once(items[0], pairs, limit=board.table.max_value)

    item, once = asyncio.run(find())
    with interrupted_by(signal.SIGTERM, signal.SIGHUP):
        released = LocalRun(session, item, once=once, reason=reason).run()
    ended = released.run
    if session.chosen.json:
        emit(run_summary(ended))
    else:
        click.echo(f"{shown(ended.id)} {ended.outcome.value} in {ended.duration:.3f} s")
        if ended.result:
            click.echo(shown(ended.result))
        if ended.error:
            click.echo("\n".join(shown_lines(ended.error)), err=True)
    return 0 if ended.outcome is Outcome.OK else 1
