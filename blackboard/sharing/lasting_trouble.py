"""A trouble that lasts, and is met at each try: when it is reported, and when it is not."""

import math

from blackboard.clock import Clock

AGAIN_AFTER = 3600.0
"""Seconds after which a trouble that lasts is reported again."""
ANOTHER_REASON_AFTER = 60.0
"""Seconds after which it is reported for another reason, at the earliest."""


class LastingTrouble:
    """Reports a trouble at once, and seldom from then on, until it is over."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reason = ""
        """As it was reported last."""
        self._reported_at = -math.inf
        """When that was, in monotonic seconds."""

    def note(self, reason: str) -> bool:
        """Notes that there is trouble. Returns whether it is to be reported now."""
        now = self._clock.monotonic()
        quiet = AGAIN_AFTER if reason == self._reason else ANOTHER_REASON_AFTER
        if now < self._reported_at + quiet:
            return False
        self._reason, self._reported_at = reason, now
        return True

    def end(self) -> bool:
        """Notes that there is none any more. Returns whether it was reported."""
        was_reported = self._reported_at > -math.inf
        self._reported_at = -math.inf
        return was_reported
