"""Invariants of runs: of their handlers, of the limits of a board, and of what runs save.

UNTRUSTED, PARAMS, TWO PUMPS: a handler, or a pump, is called once for each fence, under a lock that
its worker may still trust, with the params of its item. Whatever answers are lost, its worker
trusts the lock no longer than for a share of the lease from the lock's last write. STOPPED: a
handler that lost its lock, ran longer than its limit, or belongs to a worker that was asked to stop
ends within a bound. Time in which its process is stopped does not count. NOT LOST: no handler is
notified that its lock is gone while the lock is there.

LIMIT: of a type with a `concurrency` of N no more than N handlers go on at a time, whichever
workers call them; with a `key`, no more than N for each of its values. A handler whose process is
stopped, or was continued a moment ago, does not count: it has had no time to notice that its permit
is lost.

CHECKPOINT: a run saves under its own lock, and no lower number than what is saved. A good run,
other params, an edit and a removal empty the checkpoint, and nothing else changes it. START: a run
starts from no lower number than any save that was acknowledged to a run before it, unless the
checkpoint was emptied after that save was written. The acknowledgement may arrive later than both.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from blackboard.model import Item, Lock, Outcome, Permit
from blackboard.protocol.keys import permits_partition
from blackboard.protocol.permits import LEASE, Limit, LimitName, limit_of
from blackboard.protocol.rows import record_of
from blackboard.simulator.changes import AppliedChange, Saved, Shadows, saved_of
from blackboard.simulator.handlers import HandlerRun, HandlerRuns
from blackboard.simulator.invariants import Violation
from blackboard.simulator.network import TIMEOUT
from blackboard.simulator.processes import Timeline
from blackboard.simulator.scenario import BOARD
from blackboard.simulator.store import AppliedBatch
from blackboard.simulator.workers import GRACE, Workers
from blackboard.spec import RunSettings, params_of
from blackboard.worker.permits import BEAT

TRUSTED = 0.8
"""The share of a lease in which its holder may trust it without a renewal."""
RATES = 1.02
"""The largest ratio of the rates of two clocks."""
LOST = 2.0
"""Seconds from the notice that a lock is lost until the handler is stopped."""
SPARE = 2.0
"""Seconds beyond a bound, until the worker acts."""
ROUNDING = 1e-6
"""Seconds by which two sums of the same times may differ."""
LAST_WALK = 20.0
"""Seconds until a walk that has begun ends, at most."""
SOON = 1.0
"""Seconds after which a worker that was asked to stop sends no claim."""
READ = SOON + TIMEOUT
"""The same in the case of an override, which is sent after a read of the item."""


@dataclass(slots=True)
class Leased:
    """A lock as it was last written, and the params of its run."""

    moment: float
    stale_after: float
    limit: float | None
    """The time limit of the run in seconds, where the item has one."""
    is_called: bool = False
    given: list[tuple[str, str]] = field(default_factory=list)
    """All values of the item's spec and `once` since its claim; adopted claims use the latest."""


class HandlerInvariants:
    """Checks each write of a lock, each start and end of a handler; all handlers every cycle."""

    def __init__(
        self,
        timeline: Timeline,
        shadows: Shadows,
        workers: Workers,
        settings_of: Callable[[Item], RunSettings],
    ) -> None:
        self._timeline = timeline
        self._shadows = shadows
        self._workers = workers
        self._settings_of = settings_of
        self._leased: dict[tuple[str, int], Leased] = {}
        shared = workers.scenario.shared
        self._graces = {name: group.grace for group in shared for name in group.handlers}
        """Seconds for a handler of shared work in a worker that was asked to stop, by type."""

    def __call__(self, change: AppliedChange) -> None:
        item, lock = change.shadow.item, change.shadow.lock
        if change.taken is not None:
            self._claimed(change, soon=SOON if change.claimed else READ)
        if item is None or lock is None:
            return
        if change.of(Lock):
            self._written(change, item, lock)
        if change.of(Item):
            leased = self._leased[item.id, lock.fence]
            if (item.spec, item.once) not in leased.given:
                leased.given.append((item.spec, item.once))

    def _written(self, change: AppliedChange, item: Item, lock: Lock) -> None:
        if change.taken is not None:
            limit = self._settings_of(item).timeout
            self._leased[item.id, lock.fence] = Leased(
                moment=change.batch.moment,
                stale_after=lock.stale_after,
                limit=limit.total_seconds() if limit else None,
                given=[(item.spec, item.once)],
            )
        else:
            self._leased[item.id, lock.fence].moment = change.batch.moment

    def _claimed(self, change: AppliedChange, *, soon: float) -> None:
        """STOPPED: a worker that was asked to stop claims no more items."""
        member = self._workers.by_name.get(change.sender.name)
        asked = None if member is None else member.asked_to_stop
        if asked is not None and (late := change.batch.sent - asked) > soon:
            problem = f"{change.sender.name} claims, {late:.1f} s after it was to stop"
            raise change.violation("STOPPED", problem)

    # ---- handlers

    def begins(self, handler_run: HandlerRun) -> None:
        """Checks a handler that is called: its lock is trusted, and its params are the item's."""
        call, process = handler_run.call, handler_run.process
        leased = self._leased.get((call.item.id, call.fence))
        if leased is None:
            raise Violation("UNTRUSTED", "it runs without a lock", item=call.item.id)
        if leased.is_called:
            problem = f"a second handler is called under fence {call.fence}"
            raise Violation("TWO PUMPS", problem, item=call.item.id)
        leased.is_called = True
        untouched = self._timeline.now - leased.moment
        stood_still = process.went_on > self._timeline.now - SOON
        if untouched > TRUSTED * RATES * leased.stale_after and not stood_still:
            problem = (
                f"begins under a lock of {leased.stale_after:g} s, untouched for {untouched:.1f} s"
            )
            raise Violation("UNTRUSTED", problem, item=call.item.id)
        if not any(call.item.params == params_of(*given) for given in leased.given):
            problem = f"{call.item.params} were given, and {params_of(*leased.given[-1])} asked for"
            raise Violation("PARAMS", problem, item=call.item.id)

    def extends(self, handler_run: HandlerRun) -> None:
        """The worker trusts the lock for longer, because it was renewed."""
        call, loop = handler_run.call, handler_run.process.loop
        leased = self._leased[call.item.id, call.fence]
        latest = loop.local(leased.moment) + TRUSTED * leased.stale_after
        if handler_run.deadline > latest + ROUNDING:
            problem = f"trusts a lock {handler_run.deadline - latest:.3f} s beyond its renewal"
            raise Violation("UNTRUSTED", problem, item=call.item.id)

    def loses(self, handler_run: HandlerRun) -> None:
        """A handler was notified that its lock was taken away."""
        call = handler_run.call
        lock = self._shadows.of[call.item.id].lock
        if lock is not None and (lock.owner, lock.fence) == (call.worker, call.fence):
            problem = f"{call.worker} takes fence {call.fence} for lost, and has it"
            raise Violation("NOT LOST", problem, item=call.item.id)

    def check(self, handler_runs: HandlerRuns) -> None:
        """Checks all handlers. To be called every cycle."""
        for handler_run in handler_runs:
            if handler_run.process.runs:
                self.ends(handler_run)

    def ends(self, handler_run: HandlerRun) -> None:
        """Checks that a handler which ends now, or goes on, is within its bounds."""
        call, process = handler_run.call, handler_run.process
        if process.loop.dead:
            return
        leased = self._leased[call.item.id, call.fence]
        member = self._workers.by_name.get(process.name)
        asked = None if member is None else member.asked_to_stop
        grace = self._graces.get(call.item.type, GRACE.total_seconds())
        for since, seconds, why in (
            (handler_run.lost, LOST, "lost its lock"),
            (handler_run.began, leased.limit, "was called"),
            (asked, grace + LAST_WALK, "was asked to stop"),
        ):
            if since is None or seconds is None:
                continue
            passed = self._timeline.now - max(since, process.went_on, handler_run.began)
            if passed > seconds * RATES + SPARE:
                problem = f"fence {call.fence} goes on, {passed:.1f} s after it {why}"
                raise Violation("STOPPED", problem, item=call.item.id)


@dataclass(slots=True, kw_only=True)
class LimitInvariants:
    timeline: Timeline
    handler_runs: HandlerRuns
    settings_of: Callable[[Item], RunSettings]
    resolve: Callable[[str, str], RunSettings]
    _touched: dict[str, tuple[Permit, float]] = field(default_factory=dict)
    """Permits that are in use, by key, and the moments when they were last written."""
    _freed: dict[LimitName, float] = field(default_factory=dict)
    """The moments when a permit was last given back, or taken over after it was stale, by limit."""

    def written(self, batch: AppliedBatch) -> None:
        if batch.partition != permits_partition(BOARD):
            return
        for op in batch.ops:
            row = batch.after.get(op.key)
            before, _ = self._touched.pop(op.key, (None, 0.0))
            after = None if row is None else record_of(Permit, row)
            if after is not None:
                self._touched[op.key] = (after, batch.moment)
            if before is not None and (after is None or after.nonce != before.nonce):
                self._freed[before.type, before.value] = batch.moment

    def limit_of(self, item: Item) -> Limit | None:
        return limit_of(item, self.settings_of(item))

    def has_room(self, item: Item) -> bool:
        limit = self.limit_of(item)
        if limit is None:
            return True
        since = self.timeline.now - LEASE
        used = (permit for permit, moment in self._touched.values() if moment > since)
        held = sum((permit.type, permit.value) == limit.name for permit in used)
        return held < limit.most

    def freed(self, item: Item) -> float:
        """The moment when a permit for an item was last given back, or taken over."""
        limit = self.limit_of(item)
        return -math.inf if limit is None else self._freed.get(limit.name, -math.inf)

    def begins(self, handler_run: HandlerRun) -> None:
        """Checks that no more handlers go on than the limit allows, with one that is called now."""
        limit = self._limit(handler_run)
        if limit is None:
            return
        others = [
            other for other in self.handler_runs if other is not handler_run and self._acts(other)
        ]
        count = 1 + sum(self._limit(other) == limit for other in others)
        if count > limit.most:
            name = " ".join(filter(None, limit.name))
            problem = f"{count} of {name} go on, and {limit.most} may"
            raise Violation("LIMIT", problem, item=handler_run.call.item.id)

    def _limit(self, handler_run: HandlerRun) -> Limit | None:
        item = handler_run.call.item
        concurrency = self.resolve(item.type, "{}").concurrency
        if concurrency is None:
            return None
        return Limit(item.type, concurrency.value_of(item.params), concurrency.most)

    def _acts(self, run: HandlerRun) -> bool:
        return run.process.runs and run.process.went_on <= self.timeline.now - 2 * BEAT


EMPTYING = {"edit", "remove"}
"""Requests that may empty a checkpoint, whatever else they change."""


class Checkpoints:
    """Checks every change of an item, and the start of every handler."""

    def __init__(self) -> None:
        self._emptied: Counter[str] = Counter()
        """How often the checkpoint of an item was emptied."""
        self._written: dict[tuple[str, Saved], int] = {}
        """By save that is not acknowledged: how often the checkpoint was emptied before it."""
        self._acknowledged: defaultdict[str, dict[int, int]] = defaultdict(dict)
        """By item: the last acknowledged number of each fence since the checkpoint was emptied."""

    def __call__(self, change: AppliedChange) -> None:
        before, after = change.before, change.shadow.item
        if before is None or after is None:
            return
        if change.is_save:
            self._saved(change, before, after)
        elif change.of(Item):
            self._kept_or_emptied(change, before, after)

    def _saved(self, change: AppliedChange, before: Item, after: Item) -> None:
        saved, lock = saved_of(after), change.shadow.lock
        who = f"fence {saved.fence} of {change.sender.name}"
        if lock is None or not after.running:
            raise change.violation("CHECKPOINT", f"{who} saves, and nothing runs")
        if (lock.owner, lock.fence) != (change.sender.name, saved.fence):
            problem = f"{who} saves under fence {lock.fence} of {lock.owner}"
            raise change.violation("CHECKPOINT", problem)
        if saved.number < saved_of(before).number:
            problem = f"{who} saves {saved.number}, which was {saved_of(before).number}"
            raise change.violation("CHECKPOINT", problem)
        self._written[change.id, saved] = self._emptied[change.id]

    def _kept_or_emptied(self, change: AppliedChange, before: Item, after: Item) -> None:
        ended_well = change.frees_lock and any(run.outcome is Outcome.OK for run in change.recorded)
        must = ended_well or before.once != after.once
        if must and after.checkpoint:
            problem = f"{after.checkpoint} stays after a good run, or for other params"
            raise change.violation("CHECKPOINT", problem)
        if after.checkpoint == before.checkpoint:
            return
        if after.checkpoint or not (must or change.sender.verb in EMPTYING):
            problem = f"from {before.checkpoint} to {after.checkpoint or 'nothing'}, not by a save"
            raise change.violation("CHECKPOINT", problem)
        self._emptied[change.id] += 1
        self._acknowledged.pop(change.id, None)

    # ---- handlers

    def acknowledged(self, item_id: str, saved: Saved) -> None:
        """Called when a save was acknowledged to its run."""
        times = self._emptied[item_id]
        if self._written.pop((item_id, saved), times) == times:
            self._acknowledged[item_id][saved.fence] = saved.number

    def begins(self, item_id: str, fence: int, last: Saved) -> None:
        """Checks that a handler which starts from the save `last` starts late enough."""
        acknowledged = self._acknowledged.get(item_id, {})
        least = max(
            (acknowledged[earlier] for earlier in acknowledged if earlier < fence), default=0
        )
        if last.number < least:
            problem = f"fence {fence} goes on at {last.number}, and {least} was acknowledged"
            raise Violation("START", problem, item=item_id)
