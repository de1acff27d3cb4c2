"""Opens the board for a worker: one that works for ever waits for a store that is away.

So a worker that starts before its store, or while it is being restarted, is not started again and
again by whoever looks after it. What no waiting mends (a table that is not there, a role that is
missing) ends it.
"""

import logging
import math
from contextlib import AsyncExitStack

from blackboard.cli.session import Session
from blackboard.clock import Chance, Clock
from blackboard.events import Events, Kind
from blackboard.protocol.reading import BoardTable
from blackboard.rules.patience import pause
from blackboard.table import Busy, TableError, Unusable
from blackboard.worker.store_breaker import TELL_EVERY


async def opened(
    session: Session, stack: AsyncExitStack, *, events: Events, clock: Clock, chance: Chance
) -> BoardTable:
    """The board, made if it is not there, and closed with `stack`. Raises what waiting does not
    mend.
    """
    failures, told = 0, -math.inf
    while True:
        try:
            return await stack.enter_async_context(session.board(create=True))
        except Unusable:
            raise
        except TableError as trouble:
            failures += 1
            if clock.monotonic() - told >= TELL_EVERY:
                told = clock.monotonic()
                events.emit(Kind.STORE, f"waiting: {trouble}", level=logging.WARNING)
            wanted = trouble.retry_after if isinstance(trouble, Busy) else 0.0
            wait = pause(failures, wanted=wanted, fraction=chance.fraction())
        await clock.sleep(wait)
