"""The membership of a worker: it writes its own row, and reads those of the other workers.

It writes once a minute (`protocol/members.py`), and reads every five minutes, for `peers.py`. With
its first write it deletes the rows of lost workers, at its end its own. When its row is gone it
checks that the board has the shards that it had.
"""

import asyncio
from collections.abc import Container, Iterable
from contextlib import suppress
from datetime import datetime

from blackboard import __version__
from blackboard.emitter import EventEmitter
from blackboard.events import StoreAway
from blackboard.model import ANNOUNCE_EVERY, MORE_TYPES, Member, replace
from blackboard.protocol.board_row import Remade
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.keys import workers_partition
from blackboard.protocol.members import announce, forget, workers
from blackboard.rules.breaker import REFUSED
from blackboard.table import Busy, TableError, Unavailable, units
from blackboard.worker.peers import Peers

ANNOUNCE_SOON = 0.5, 1.5, 5.0
"""Seconds from each of the first announcements to the next: workers that start together meet."""
MEETS_EVERY = 5
"""The number of announcements from one reading of all rows to the next. Each of the first ones is
followed by a reading."""
SHUTDOWN_TIMEOUT = 3.0
"""Seconds that a worker which ends waits for its permits to be deleted, and as many for its row."""


class Membership:
    """The row of one worker."""

    def __init__(
        self, board: BoardTable, member: Member, peers: Peers, events: EventEmitter
    ) -> None:
        self._board = board
        self._member = member
        self._types = member.types
        self._peers = peers
        self._events = events
        self._announced = 0
        """How many times the row was written."""
        self._refused = ""
        """The reason that was reported why the row is not written; "" while it is."""

    async def announce(self, *, running: int, but: Container[str] = ()) -> None:
        """Writes the row, reads those of the peers now and then, and waits until it is to be
        written again. `but` are types that it does not take for now. Raises Remade when the board
        was made anew with other shards.
        """
        types = ",".join(name for name in self._types.split(",") if name not in but)
        board = self._board
        try:
            if not self._announced:
                self._member = replace(self._member, started=await board.table.now())
            self._member = await announce(
                board, replace(self._member, running=running, types=types)
            )
            self._announced += 1
            if self._announced <= len(ANNOUNCE_SOON) + 1 or self._announced % MEETS_EVERY == 0:
                await self._meet_peers()
        except Remade:
            raise
        except (Busy, Unavailable) as trouble:
            await board.ready(workers_partition(board.name), trouble, failures=1)
        except TableError as trouble:
            if str(trouble) != self._refused:
                self._events.emit(StoreAway, message=f"the row of this worker: {trouble}")
            self._refused = str(trouble)
            await board.clock.sleep(REFUSED.pause())
        else:
            self._refused = ""
            is_new = self._announced <= len(ANNOUNCE_SOON)
            pause = ANNOUNCE_SOON[self._announced - 1] if is_new else ANNOUNCE_EVERY
            await board.clock.sleep(pause)

    async def _meet_peers(self) -> None:
        members = await workers(self._board)
        live = [member for member in members if not member.lost]
        self._peers.met({member.owner: member.types.split(",") for member in live})

    async def leave(self) -> None:
        """Deletes the row, if the store answers soon."""
        with suppress(TableError, TimeoutError):
            async with asyncio.timeout(SHUTDOWN_TIMEOUT):
                await forget(self._board, self._member.owner)


def new_member(
    owner: str, *, now: datetime, types: str, cycle: float, slots: int = 1, rank: int = 0
) -> Member:
    """A worker, or a candidate, that begins now. `types` have commas between them, `cycle` is in
    seconds.
    """
    return Member(
        owner=owner,
        started=now,
        seen=now,
        slots=slots,
        running=0,
        release=__version__,
        types=types,
        cycle=cycle,
        rank=rank,
    )


def types_as_text(types: Iterable[str], *, limit: int) -> str:
    """The types with commas between them, as many as a value of `limit` characters holds."""
    text = whole = ",".join(sorted(types))
    while units(text) > limit:
        whole = whole.rpartition(",")[0]
        text = f"{whole},{MORE_TYPES}"
    return text
