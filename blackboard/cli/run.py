"""`blackboard run`: run items now, and wait for the outcome on request."""

import asyncio
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Literal

import click

from blackboard.cli import many
from blackboard.cli.options import (
    Chosen,
    as_typed,
    cli_command,
    ids_argument,
    jobs_option,
    reason_option,
)
from blackboard.cli.output import echo_beside, emit, note, prints_to_stderr
from blackboard.cli.session import Session, completed, interrupted_by
from blackboard.cli.spec_options import laid_over, parse_pairs, set_option
from blackboard.display.columns import run_outcome
from blackboard.display.escaping import one_line, shown, shown_lines
from blackboard.display.item_queries import select
from blackboard.errors import BadInput, BlackboardError
from blackboard.inputs import check_params_size
from blackboard.model import Item, Mark, Member, Outcome, Run, State
from blackboard.phrases import command, first_line, plural, span, stamp
from blackboard.protocol import edits
from blackboard.protocol.actions import param_names
from blackboard.protocol.board_pause import paused_by
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.members import takers, workers
from blackboard.protocol.planning import spec_of
from blackboard.records import run_record, run_summary
from blackboard.rules.next_run import serves, slots_in_line
from blackboard.rules.transitions import Requested
from blackboard.schedule.times import parse_duration
from blackboard.table import Busy, Unavailable, Unusable
from blackboard.tasks import in_turns
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
    requests: dict[str, Requested] = {}

    async def check(board: BoardTable, items: Sequence[Item]) -> None:
        for item in items:
            if not item.is_paused:
                with many.naming(item, among=items):
                    checked_once(item, pairs, limit=board.table.max_value)

    async def request(board: BoardTable, item: Item) -> Answer:
        if item.is_paused:
            return Answer(item=item, words=_paused(item), changed=False, no=True)
        once = checked_once(item, pairs, limit=board.table.max_value)
        asked = await edits.run_now(board, item.id, trigger=trigger, once=once)
        requests[item.id] = asked
        details = param_names(once) if asked.changed else ()
        words = _due(asked, trigger)
        return Answer(item=asked.item, words=words, changed=asked.changed, details=details)

    async with session.board() as board:
        answers = await many.answers_of(
            session, board, ids, request, verb="run", check=check, prints=not wait
        )
        if not wait:
            if any(not answer.no for answer in answers):
                await many.note_pause(board)
            return many.exit_code(answers)
        followed = await follow(board, [*requests.values()], patience=seconds, report=_report)
    runs = {result.asked.item.id: result for result in followed}
    ends = {answer.item.id: runs.get(answer.item.id, answer) for answer in answers}
    return _print_ends(ends, json=session.chosen.json)


def _print_ends(ends: Mapping[str, "Followed | Answer"], *, json: bool) -> int:
    """Prints how the run of each item ended, or why there was none. Returns the exit code."""
    if json:
        emit([_record(item_id, end) for item_id, end in ends.items()])
    for item_id, end in ends.items():
        line = f"{item_id} {end.words}"
        if isinstance(end, Answer) or end.run is None:
            note(line)
        elif not json:
            click.echo(one_line(line))
    return 0 if all(isinstance(end, Followed) and end.good for end in ends.values()) else 1


def _record(item_id: str, end: "Followed | Answer") -> dict[str, Any]:
    """What became of a request, or the answer that there was none."""
    if isinstance(end, Answer):
        return {"id": item_id, "end": "refused", "message": end.words, "run": None}
    run = end.run and run_record(end.run)
    return {"id": item_id, "end": end.end, "message": end.words, "run": run}


def _report(item_id: str, words: str) -> None:
    note(f"{item_id} {words}", verbatim=True)


def _paused(item: Item) -> str:
    return f"is paused: {command('resume', item.id)} first"


def checked_once(item: Item, pairs: Sequence[str], *, limit: int) -> dict[str, Any]:
    """The params of one run that --set changes, each a whole value of its first key. Raises
    BadInput when no row can hold them.
    """
    parsed = parse_pairs(pairs)
    params = laid_over(spec_of(item).params, parsed)
    once = {path[0]: params[path[0]] for path, _ in parsed}
    check_params_size(once, limit=limit)
    return once


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
                raise BlackboardError(shown(f"{items[0].id} {_paused(items[0])}"))
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


# ---- to the outcome

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two looks; the first ones follow sooner."""
MOST_READ = 200
"""Items that are read in a second: with many, the looks are further apart."""
SILENT = 1.0
"""Seconds of waiting before its reason is reported."""
NO_WORKER_WAIT, AWAY_WAIT = 30.0, 300.0
"""Seconds without a worker that takes the type, and without the store, after which waiting is given
up."""

Report = Callable[[str, str], None]
"""Called with an id and the reason why its run waits."""


@dataclass(slots=True, kw_only=True)
class Followed:
    """A run that is followed, and at last the result of that."""

    board: BoardTable
    asked: Requested
    patience: float | None
    report: Report
    began: float
    alone_since: float
    """When a worker that takes its type was there last, in monotonic seconds."""
    item: Item | None = None
    reported: str = ""
    """What it waits for, as it was reported last."""
    end: Literal["ended", "no worker", "still waiting", "gone"] | None = None
    """None: it is waited for."""
    words: str = ""
    run: Run | None = None

    @property
    def good(self) -> bool:
        return self.run is not None and self.run.outcome is Outcome.OK

    async def read(self) -> None:
        self.item = await self.board.existing(self.asked.item.id)

    async def look(
        self, *, present: Sequence[Member], paused: Mark | None, at: datetime, now: float
    ) -> None:
        """Sets the result where there is one, else reports what the run waits for."""
        item, waited = self.item, now - self.began
        if item is None or item.born != self.asked.item.born:
            self.end, self.words = "gone", "was removed meanwhile"
            return
        if not is_pending(item, self.asked.slot):
            await self._has_ended(item)
            return
        able = () if item.running else takers(present, item.type)
        if item.running or able:
            self.alone_since = now
        if waited >= SILENT:
            words = _what_it_waits_for(item, able, paused=paused, at=at)
            if words != self.reported:
                self.report(item.id, words)
            self.reported = words
        if now - self.alone_since > NO_WORKER_WAIT:
            start = "start one with `blackboard worker`"
            self.end, self.words = "no worker", f"waits: no worker takes {item.type!r}; {start}"
        elif self.patience is not None and waited > self.patience:
            after = span(self.patience)
            self.end = "still waiting"
            self.words = f"has not been started after {after}; it stays due"
            if item.running:
                self.words = f"still runs ({item.owner}) after {after}, and goes on"

    async def _has_ended(self, item: Item) -> None:
        first = self.asked.item.fence - self.asked.item.running
        async for run in self.board.runs(item.id):
            if serves(run.slot, self.asked.slot) and run.fence > first:
                took = f"{run_outcome(run)[0]} in {span(run.duration)}"
                details = (run.result, first_line(run.error), "; ".join(run.warnings))
                self.run, self.end = run, "ended"
                self.words = ": ".join(filter(None, (took, *details)))
                return
        self.end, self.words = "gone", "has ended, and its history does not have it any more"
        if item.state is State.PAUSED:
            self.words = "was paused meanwhile"


def is_pending(item: Item, slot: datetime) -> bool:
    """Whether the run for `slot` is queued, running, or to be retried."""
    alive = item.running or item.state is State.ACTIVE
    return alive and any(serves(queued, slot) for queued in slots_in_line(item))


def _what_it_waits_for(
    item: Item, able: Sequence[Member], *, paused: Mark | None, at: datetime
) -> str:
    if item.running:
        return f"runs ({item.owner})"
    if item.attempt > 1 and item.ready > at:
        ending = ": ".join(filter(None, (item.outcome or "", first_line(item.error))))
        return f"{ending}; attempt {item.attempt} may start at {stamp(item.ready)}"
    if not able:
        return f"waits for a worker that takes {item.type}: none is at work"
    if paused:
        resume = as_typed("`blackboard resume --board`")
        return f"waits: the board is paused by {paused.by} ({resume})"
    within = span(max(worker.cycle for worker in able))
    return f"waits for a walk of {plural(len(able), 'worker')}, within {within}, and a free slot"


async def follow(
    board: BoardTable,
    requests: Sequence[Requested],
    *,
    patience: float | None,
    report: Report = lambda *_: None,
) -> list[Followed]:
    """Wait for runs, at most `patience` seconds. What is waited for is reported once it takes a
    second. Raises Busy or Unavailable for a store that is away for `AWAY_WAIT`.
    """
    began, pause = board.clock.monotonic(), FIRST_PAUSE
    away_since: float | None = None
    following = left = [
        Followed(
            board=board,
            asked=request,
            patience=patience,
            report=report,
            began=began,
            alone_since=began,
        )
        for request in requests
    ]
    while True:
        try:
            await _look_at(board, left)
        except Unusable:
            raise
        except (Busy, Unavailable) as trouble:
            now = board.clock.monotonic()
            is_over = patience is not None and now - began > patience
            if is_over or (away_since is not None and now - away_since > AWAY_WAIT):
                raise
            if away_since is None:
                note(f"store: {trouble}; it is asked again")
                away_since = now
            for followed in left:
                followed.alone_since = now
        else:
            away_since = None
        left = [followed for followed in left if followed.end is None]
        if not left:
            return following
        wait = max(pause, len(left) / MOST_READ)
        if patience is not None:
            wait = min(wait, max(patience - (board.clock.monotonic() - began), pause))
        await board.clock.sleep(wait)
        pause = min(2 * pause, LONGEST_PAUSE)


async def _look_at(board: BoardTable, following: Sequence[Followed]) -> None:
    """Reads the items of runs, then what there is besides, and looks at each run."""
    # Items are read first: when one shows that its run is over, the history has the run.
    await in_turns(deque(following), Followed.read, at_once=many.AT_ONCE)
    look = partial(
        Followed.look,
        present=await workers(board),
        paused=await paused_by(board),
        at=await board.table.now(),
        now=board.clock.monotonic(),
    )
    await in_turns(deque(following), look, at_once=many.AT_ONCE)
