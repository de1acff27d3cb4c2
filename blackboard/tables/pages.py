"""A key range read page by page.

An iterator and not a generator: whoever stops early, as most readers of one row do, leaves
nothing behind that the event loop would have to finalise.
"""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

from blackboard.table import Row, just_after

FIRST_PAGE = 64
"""Most readers stop early; whoever goes on reads larger and larger pages."""
LARGEST_PAGE = 1_000

AFTER_ALL = "\U0010ffff"
"""Sorts behind every key: it is no printable character."""

Fetch = Callable[[str, int], Awaitable[list[Row]]]
"""The rows from a key on, at most so many; fewer only when there are no more."""


class Pages(AsyncIterator[Row]):
    """The rows that `fetch` finds from `first` on, at most `limit`."""

    def __init__(
        self, fetch: Fetch, *, first: str, limit: int | None, first_page: int = FIRST_PAGE
    ) -> None:
        self._fetch = fetch
        self._first = first
        self._left = limit
        self._size = first_page
        self._rows: deque[Row] = deque()
        self._ended = False

    async def __anext__(self) -> Row:
        if not self._rows and not self._ended:
            await self._turn()
        if not self._rows:
            raise StopAsyncIteration
        return self._rows.popleft()

    async def _turn(self) -> None:
        asked = self._size if self._left is None else min(self._size, self._left)
        self._size = min(4 * self._size, LARGEST_PAGE)
        rows = await self._fetch(self._first, asked) if asked > 0 else []
        self._ended = len(rows) < asked or not rows
        if self._left is not None:
            self._left -= len(rows)
        if rows:
            self._first = just_after(rows[-1].key)
            self._rows.extend(rows)
