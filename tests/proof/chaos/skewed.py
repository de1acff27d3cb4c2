"""Wall clocks that are wrong, and are set while a process runs; its monotonic clock is left alone.

By libfaketime, which reads a file of ours again each second. It has to be told not to mend how
threads wait (or they spin, and hang), and `time.sleep` fails under it where the wall clock is
behind; to wait for an event, or in asyncio, goes well.
"""

from dataclasses import dataclass, field
from pathlib import Path

from tests.proof.chaos.programs import libfaketime

HOUR, DAY = 3600, 86400


@dataclass
class WallClock:
    """What some processes take the time for."""

    file: Path
    library: Path = field(default_factory=libfaketime)

    def is_ahead(self, seconds: int) -> None:
        """By so much, from now on; behind, if that is negative."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.rename(self.file)

    @property
    def environ(self) -> dict[str, str]:
        """Of a process that goes by it."""
        return {
            "LD_PRELOAD": str(self.library),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }
