"""What a run is given: the settings of the job, and the handler's context as far as it matters."""

import logging
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blackboard import BadInput
from blackboard.clock import Clock, SystemClock
from blackboard.schedule.durations import parse_duration

from .addresses import Policy, policy
from .hosts import Limits

MEMORY = 512 * 1024 * 1024
LEAST = 128 * 1024 * 1024
_SIZE = re.compile(r"\s*(\d{1,9})\s*([kmg])i?b?\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What `[jobs.calendars]` says, and bounds that it does not change."""

    policy: Policy = field(default_factory=Policy)
    limits: Limits = field(default_factory=Limits)
    memory: int = MEMORY
    """Bytes that all readers of feeds may take together."""
    deadline: float = 300.0
    """Seconds for bringing in all feeds; what is not there then has failed."""
    readers: int = 2
    parse_deadline: float = 60.0
    """Seconds for one feed, after which its reader is killed."""
    places: Path | None = None
    """The folder in which the runs of this host share the places of readers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The fence of a run, and whom to tell of it."""

    fence: int = 0
    fenced: bool = True
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("calendars"))
    progress: Callable[[int, int], None] = lambda _done, _total: None
    lost: Callable[[], bool] = lambda: False
    clock: Clock = field(default_factory=SystemClock)


def settings_of(table: Mapping[str, Any], log: logging.Logger | None = None) -> Settings:
    """`[jobs.calendars]` checked. Raises BadInput naming the setting."""
    for name in sorted(set(table) - {"allow", "memory", "deadline"}):
        if log is not None:
            log.warning("the setting jobs.calendars.%s means nothing to calendars", name)
    memory = _memory(table.get("memory", MEMORY))
    deadline = parse_duration(table.get("deadline", "5m"), "jobs.calendars.deadline")
    return Settings(
        policy=policy(table.get("allow", [])),
        memory=memory,
        deadline=deadline.total_seconds(),
        readers=2 if memory >= 2 * LEAST else 1,
        places=Path(tempfile.gettempdir()),
    )


def _memory(value: Any) -> int:
    """Bytes, or text such as "512MiB"."""
    field_name = "jobs.calendars.memory"
    size = value
    if isinstance(value, str):
        found = _SIZE.fullmatch(value)
        size = int(found[1]) * 1024 ** (1 + "kmg".index(found[2].lower())) if found else None
    if not isinstance(size, int) or isinstance(size, bool):
        raise BadInput(field_name, f"{value!r} is no size", 'such as "512MiB"')
    if size < LEAST:
        raise BadInput(field_name, f"{value!r} is too little for a reader", "128MiB or more")
    return size
