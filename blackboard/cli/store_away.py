"""Lets a command that goes on for long outlast a store that is away: the store is asked again."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

from blackboard.cli.output import note
from blackboard.clock import Clock
from blackboard.table import Busy, Unavailable, Unusable


class AskedAgain:
    """A store that a command asks again and again. That it is away is noted once, each time that it
    goes away.
    """

    def __init__(self, clock: Clock, *, longest: float = math.inf, until: float = math.inf) -> None:
        self._clock = clock
        self._longest = longest
        self._until = until
        self._away_since: float | None = None

    @property
    def is_away(self) -> bool:
        """Whether it was away when it was asked last."""
        return self._away_since is not None

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Passes over that the store is away. Raises Busy or Unavailable once it has been away for
        `longest` seconds, or after the monotonic time `until`; and Unusable, such as for another
        file in the place of the board's.
        """
        try:
            yield
        except Unusable:
            raise
        except (Busy, Unavailable) as trouble:
            now = self._clock.monotonic()
            if now > self._until:
                raise
            if self._away_since is None:
                note(f"store: {trouble}; it is asked again")
                self._away_since = now
            elif now - self._away_since > self._longest:
                raise
        else:
            self._away_since = None
