"""A worker put together from its parts."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from blackboard import __version__
from blackboard.clock import Chance
from blackboard.errors import BadInput
from blackboard.events import Events
from blackboard.handlers import Handler
from blackboard.model import Claim, Member
from blackboard.notify.notifier import notifier_of
from blackboard.notify.table import NotifyTable
from blackboard.protocol.reading import BoardTable, Remade
from blackboard.protocol.retention import Retention
from blackboard.rules.patience import Need
from blackboard.runner import Runner
from blackboard.table import TableError
from blackboard.worker.heartbeat import Heartbeat, Turning, nobody
from blackboard.worker.membership import ANNOUNCE_EVERY, TRY_AGAIN, announce, forget
from blackboard.worker.release_queue import Releases
from blackboard.worker.running import Calls, Holdings
from blackboard.worker.scanner import Scanner
from blackboard.worker.store_breaker import Asking
from blackboard.worker.wake import Wake
from blackboard.worker.walk import Walker
from blackboard.worker.worker import Worker

LAST_WORD = 3.0
"""Seconds that a worker which ends waits for the store to delete its membership row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """`[worker]`, and what of `[board]` concerns a worker."""

    cycle: timedelta = timedelta(seconds=60)
    slots: int = 8
    types: tuple[str, ...] = ()
    """The types to take; none: all that have a handler."""
    grace: timedelta = timedelta(seconds=30)
    retention: Retention = field(default_factory=Retention)


def identity(chance: Chance) -> str:
    """host:pid:boot nonce. The nonce tells a worker from an earlier one of the same name."""
    return f"{socket.gethostname()}:{os.getpid()}:{chance.nonce()[:8]}"


def handlers_taken(handlers: Mapping[str, Handler], types: tuple[str, ...]) -> dict[str, Handler]:
    """The handlers of the types a worker takes. Raises BadInput for a type that has none."""
    for one in types:
        if one not in handlers:
            known = ", ".join(sorted(handlers)) or "none"
            raise BadInput("types", f"no handler for {one!r}", f"there are handlers for: {known}")
    return {name: found for name, found in handlers.items() if not types or name in types}


def assemble(
    board: BoardTable,
    *,
    owner: str,
    settings: WorkerSettings,
    handlers: Mapping[str, Handler],
    job_settings: Mapping[str, Mapping[str, Any]],
    events: Events,
    wake: Wake,
    inline: Runner,
    process: Runner,
    turning: Turning = nobody,
    notify: NotifyTable | None = None,
) -> Worker:
    """A worker on `board`. `handlers` are those of the types it takes."""
    asking = Asking(board.clock, board.chance, events)
    renewing = asking.board(board, Need.RENEWAL)
    board = asking.board(board, Need.OTHER)
    holdings = Holdings(settings.slots)
    notifier = notifier_of(notify, board=board, events=events, environ=os.environ)
    if notifier is not None:
        events.subscribe(notifier.heard, "notify")

    def start(claims: Sequence[Claim]) -> None:
        worker.start(claims)

    def shard_answered() -> None:
        worker.shard_answered()

    heartbeat = Heartbeat(board=renewing, holdings=holdings, events=events, turning=turning)
    scanner = Scanner(
        board=board,
        handlers=handlers,
        holdings=holdings,
        events=events,
        horizon=settings.cycle,
        overdue_after=notifier.overdue_after if notifier else None,
    )
    worker = Worker(
        board=board,
        events=events,
        wake=wake,
        holdings=holdings,
        walker=Walker(
            board=board,
            owner=owner,
            handlers=handlers,
            holdings=holdings,
            events=events,
            scanner=scanner,
            start=start,
            doubt=heartbeat.ask,
            wake=shard_answered,
        ),
        heartbeat=heartbeat,
        calls=Calls(
            handlers=handlers,
            settings=job_settings,
            inline=inline,
            process=process,
            events=events,
            clock=board.clock,
            limit=board.table.max_value,
        ),
        releases=Releases(
            board=board, events=events, holdings=holdings, retention=settings.retention
        ),
        announce=_announcer(
            board,
            holdings,
            owner=owner,
            settings=settings,
            handlers=handlers,
            give_up=lambda why: worker.give_up(why),  # noqa: PLW0108 - it is made here
        ),
        notify=notifier.run if notifier else None,
        steady=asking.steady,
        grace=settings.grace.total_seconds(),
    )
    return worker


def _announcer(
    board: BoardTable,
    holdings: Holdings,
    *,
    owner: str,
    settings: WorkerSettings,
    handlers: Mapping[str, Handler],
    give_up: Callable[[Remade], None],
) -> Callable[[], Awaitable[None]]:
    cycle = settings.cycle.total_seconds()

    async def keep_announcing() -> None:
        now = board.clock.now()
        member = Member(
            owner=owner,
            started=now,
            seen=now,
            slots=settings.slots,
            running=0,
            release=__version__,
            types=",".join(sorted(handlers)),
            cycle=cycle,
        )
        try:
            while True:
                pause = ANNOUNCE_EVERY
                try:
                    member = await announce(board, replace(member, running=len(holdings)))
                except Remade as remade:
                    give_up(remade)
                except TableError:
                    # It has to be seen again before it counts as lost; and not with all others.
                    pause = TRY_AGAIN * (1.0 - 0.5 * board.chance.fraction())
                await board.clock.sleep(pause)
        finally:
            with suppress(TableError, TimeoutError):
                async with asyncio.timeout(LAST_WORD):
                    await forget(board, owner)

    return keep_announcing
