"""What a run is given: the settings of the job, and the handler's context as far as it matters."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from blackboard.clock import Clock, SystemClock

from .addresses import Policy, policy
from .fetch import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What `[jobs.calendars]` says, and bounds that it does not change."""

    policy: Policy = field(default_factory=Policy)
    limits: Limits = field(default_factory=Limits)
    parsers: int = 2
    parse_deadline: float = 60.0
    """Seconds for one feed, after which its reader is killed."""
    parse_memory: int = 2 * 1024**3
    """Bytes of address space for one reader."""


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
    for name in sorted(set(table) - {"allow"}):
        if log is not None:
            log.warning("the setting jobs.calendars.%s means nothing to calendars", name)
    return Settings(policy=policy(table.get("allow", [])))
