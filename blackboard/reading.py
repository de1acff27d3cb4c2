"""What of a shard's tokens is kept in mind while they are read, and how far it is read. Pure."""

from datetime import datetime

from blackboard.holdings import Holdings, Room
from blackboard.model import Token
from blackboard.spec import RunSettings

AHEAD = 48
"""Tokens read beyond those that the free slots take, or twice the slots if that is more. With the
locks of a few slots that is still one page of any store."""
AMONG = 4
"""Tokens for each free slot that a worker chooses among, when others are at the same ones."""


class Reading:
    """One reading of a shard, most overdue token first. `alone`: nobody else is at its tokens, so
    what is kept will be there still when slots become free.
    """

    def __init__(self, holdings: Holdings, *, alone: bool) -> None:
        self.tokens: dict[str, Token] = {}
        """Kept, by id: one that moves meanwhile may be read twice."""
        self.unread: list[tuple[datetime, bool]] = []
        """When tokens are ready that are not kept, and whether one is for us: the first of them,
        and the first of those that are not ready yet."""
        self._alone = alone
        self._room = Room(holdings)
        self._ahead = max(AHEAD, 2 * holdings.slots)
        most = holdings.free + self._ahead if alone else AMONG * holdings.free
        self._most = most if self._room else 0

    def ready(self, token: Token, settings: RunSettings) -> bool:
        """A token that is wanted now. Returns whether to read on."""
        if self._room.take(token.type, settings) or len(self.tokens) < self._most:
            self.tokens[token.id] = token
            return True
        self.unread = self.unread or [(token.ready, True)]
        return bool(self._room)

    def later(self, token: Token, *, is_for_us: bool) -> bool:
        """A token that is not ready yet. Returns whether to read on."""
        if self._ahead <= 0 or (is_for_us and not self._alone):
            self.unread.append((token.ready, is_for_us))
            return False
        self._ahead -= 1
        if is_for_us:
            self.tokens[token.id] = token
        return True
