"""Runs: from a claim through the call of its handler to the queue of releases.

A handler is called with its item's params, by its runner, within its time limit; what it reports
is emitted. Runs go on beside the walk and each other.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from blackboard.clock import Clock
from blackboard.context import HandlerItem, expand
from blackboard.errors import BadInput
from blackboard.events import Events, Kind
from blackboard.handlers import Handler
from blackboard.model import Claim, Ended, Outcome
from blackboard.phrases import stamp
from blackboard.protocol.keys import shard_of
from blackboard.rules.due import time_limit
from blackboard.runner import HandlerCall, Runner
from blackboard.runners.secrets import NOTHING, Mask, mask_of
from blackboard.schedule.durations import format_duration
from blackboard.spec import RunSettings, params_of
from blackboard.tables.base import MAX_VALUE
from blackboard.worker.heartbeat import Heartbeat
from blackboard.worker.holdings import Holding, Holdings
from blackboard.worker.release_queue import Releases

NO_SLOT = "put back: its claim was answered late, and no slot was free any more"


class Taken(NamedTuple):
    """What is to be run: a claim, and the settings that it was claimed with."""

    claim: Claim
    settings: RunSettings


@dataclass(slots=True, kw_only=True)
class Runs:
    """The runs of one worker."""

    holdings: Holdings
    calls: "Calls"
    releases: Releases
    heartbeat: Heartbeat
    events: Events
    shards: int
    group: asyncio.TaskGroup = field(init=False)
    """Where runs go on; set while the worker works."""

    def start(self, taken: Sequence[Taken]) -> None:
        """Run what was claimed, beside everything else. What has no slot is put back: it was
        claimed late, other runs have taken the slot meanwhile, or the worker is to stop.
        """
        for claim, settings in taken:
            shard = shard_of(claim.id, self.shards)
            held = Holding(claim=claim, settings=settings, shard=shard)
            if self.holdings.add(held):
                self.group.create_task(self._run(held))
            else:
                self.releases.add(held, Ended(outcome=Outcome.CANCELLED, error=NO_SLOT))
            again = f", attempt {claim.attempt}" if claim.attempt > 1 else ""
            self.events.emit_of(claim, Kind.CLAIMED, f"due {stamp(claim.slot)}{again}")
        if taken:
            self.heartbeat.beat()  # a watchdog has to allow for the new leases before they run

    async def _run(self, held: Holding) -> None:
        self.releases.add(held, await self.calls.run(held))


@dataclass(slots=True, kw_only=True)
class Calls:
    """Calls handlers: coroutines on this loop, plain functions in child processes."""

    handlers: Mapping[str, Handler]
    settings: Mapping[str, Mapping[str, Any]]
    """`[jobs.TYPE]` of every type."""
    inline: Runner
    process: Runner
    events: Events
    clock: Clock
    limit: int = MAX_VALUE
    """Characters of JSON that a result may have."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    async def run(self, held: Holding) -> Ended:
        """One run, from its claim to whatever end. Never raises."""
        claim = held.claim
        handler = self.handlers.get(claim.type)
        if handler is None:  # its lock named a type that is taken here, its item another
            return Ended(outcome=Outcome.FAILED, error=f"no handler here for {claim.type!r}")
        try:
            item, mask = given(held, self.environ)
            allowed = time_limit(held.settings, claim.slot)
        except BadInput as problem:
            return Ended(outcome=Outcome.FAILED, error=str(problem))
        except RecursionError:
            return Ended(outcome=Outcome.FAILED, error="params: nested too deeply")
        except Exception as problem:  # noqa: BLE001 - one odd row must not end the worker
            return Ended(outcome=Outcome.FAILED, error=f"it could not be called: {problem!r}")
        call = HandlerCall(
            handler=handler,
            item=item,
            due=claim.slot,
            fence=claim.fence,
            attempt=claim.attempt,
            worker=claim.owner,
            settings=self.settings.get(claim.type, {}),
            fenced=held.settings.fenced,
            mask=mask,
            limit=self.limit,
        )
        runner = self.inline if handler.is_async else self.process
        held.execution = runner.start(call, _Report(held, self.events), held.deadline)
        held.pass_on()
        limit = asyncio.get_running_loop().create_task(self._limit(held, allowed))
        try:
            return await held.execution.wait()
        finally:
            limit.cancel()

    async def _limit(self, held: Holding, allowed: timedelta) -> None:
        """Stop a run that takes longer than it may."""
        await self.clock.sleep(allowed.total_seconds())
        assert held.execution is not None
        held.execution.stop(Outcome.TIMEOUT, f"it ran longer than {format_duration(allowed)}")

    async def close(self) -> None:
        await self.inline.close()
        await self.process.close()


def given(held: Holding, environ: Mapping[str, str]) -> tuple[HandlerItem, Mask]:
    """The item as its handler gets it, and the mask for all that the handler reports.

    Raises BadInput naming a variable that `environ` lacks.
    """
    claim = held.claim
    written = params_of(claim.spec, claim.once)
    params = expand(written, environ)
    replaced = params != written
    item = HandlerItem(
        id=claim.id,
        type=claim.type,
        params=params,
        timezone=held.settings.timezone,
        written=written if replaced else None,
    )
    return item, mask_of(written, environ) if replaced else NOTHING


@dataclass(frozen=True, slots=True)
class _Report:
    """What a handler reports while it runs, masked by its runner."""

    held: Holding
    events: Events

    def progress(self, done: int, total: int) -> None:
        self.held.report_progress(done, total)

    def log(self, level: int, message: str) -> None:
        self.events.emit_of(self.held.claim, Kind.SAID, message, level=level)
