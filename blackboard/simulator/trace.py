"""The story of a world, line by line: who did what, and what went wrong.

The fingerprint is of every line there was; the last lines are kept for whoever wants to know how it
came to a violation. Times are the world's, the same whatever the clocks of its processes show.
"""

import hashlib
from collections import deque
from collections.abc import Callable

KEPT = 4_000
"""Lines."""


class Trace:
    """Collects lines."""

    def __init__(self, sink: Callable[[str], None] | None = None) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self._sink = sink
        self.lines = 0
        self.last: deque[str] = deque(maxlen=KEPT)

    def add(self, moment: float, who: str, what: str) -> None:
        line = f"{moment:13.3f}  {who:<12}  {what}"
        self._digest.update(line.encode())
        self._digest.update(b"\n")
        self.lines += 1
        self.last.append(line)
        if self._sink is not None:
            self._sink(line)

    @property
    def fingerprint(self) -> str:
        """Of all lines: the same seed has the same."""
        return self._digest.hexdigest()
