"""Invariants of handlers: UNTRUSTED, PARAMS, STOPPED, TWO PUMPS.

A handler, or a pump, is called once for each fence, under a lock that its worker may still trust,
with the params of its item. Whatever answers are lost, its worker trusts the lock no longer than
for a share of the lease from the lock's last write. A handler that lost its lock, ran longer than
its limit, or belongs to a worker that was asked to stop ends within a bound. Time in which its
process is stopped does not count. NOT LOST: no handler is notified that its lock is gone while the
lock is there.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from blackboard.model import Item, Lock
from blackboard.simulator.changes import AppliedChange, Shadows
from blackboard.simulator.handlers import HandlerRun, HandlerRuns
from blackboard.simulator.invariants import Violation
from blackboard.simulator.network import TIMEOUT
from blackboard.simulator.processes import Timeline
from blackboard.simulator.workers import GRACE, Workers
from blackboard.spec import RunSettings, params_of
from blackboard.table import Insert, Replace

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
    """Whether a handler was called under it."""
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

    def __call__(self, change: AppliedChange) -> None:
        item = change.shadow.item
        for touch in change.of(Lock):
            lock = touch.new
            if isinstance(lock, Lock) and item is not None:
                self._written(change, item, lock, is_new=isinstance(touch.op, Insert | Replace))
            if isinstance(touch.op, Insert | Replace):
                self._claimed(change, soon=SOON if isinstance(touch.op, Insert) else READ)
        lock = change.shadow.lock
        if item is not None and lock is not None and change.of(Item):
            leased = self._leased[item.id, lock.fence]
            if (item.spec, item.once) not in leased.given:
                leased.given.append((item.spec, item.once))

    def _written(self, change: AppliedChange, item: Item, lock: Lock, *, is_new: bool) -> None:
        if is_new:
            limit = self._settings_of(item).timeout
            self._leased[item.id, lock.fence] = Leased(
                moment=change.moment,
                stale_after=lock.stale_after,
                limit=limit.total_seconds() if limit else None,
                given=[(item.spec, item.once)],
            )
        else:
            self._leased[item.id, lock.fence].moment = change.moment

    def _claimed(self, change: AppliedChange, *, soon: float) -> None:
        """STOPPED: a worker that was asked to stop claims no more items."""
        member = self._workers.by_name.get(change.sender.name)
        asked = None if member is None else member.asked_to_stop
        if asked is not None and change.sent > asked + soon:
            what = f"{change.sender.name} claims, {change.sent - asked:.1f} s after it was to stop"
            raise Violation("STOPPED", what, item=change.id)

    # ---- handlers

    def begins(self, handler_run: HandlerRun) -> None:
        """Checks a handler that is called: its lock is trusted, and its params are the item's."""
        call, process = handler_run.call, handler_run.process
        leased = self._leased.get((call.item.id, call.fence))
        if leased is None:
            raise Violation("UNTRUSTED", "it runs without a lock", item=call.item.id)
        if leased.is_called:
            what = f"a second handler is called under fence {call.fence}"
            raise Violation("TWO PUMPS", what, item=call.item.id)
        leased.is_called = True
        untouched = self._timeline.now - leased.moment
        stood_still = process.went_on > self._timeline.now - SOON
        if untouched > TRUSTED * RATES * leased.stale_after and not stood_still:
            what = (
                f"begins under a lock of {leased.stale_after:g} s, untouched for {untouched:.1f} s"
            )
            raise Violation("UNTRUSTED", what, item=call.item.id)
        if not any(call.item.params == params_of(*given) for given in leased.given):
            what = f"{call.item.params} were given, and {params_of(*leased.given[-1])} asked for"
            raise Violation("PARAMS", what, item=call.item.id)

    def extends(self, handler_run: HandlerRun) -> None:
        """The worker trusts the lock for longer, because it was renewed."""
        call, loop = handler_run.call, handler_run.process.loop
        leased = self._leased[call.item.id, call.fence]
        latest = loop.local(leased.moment) + TRUSTED * leased.stale_after
        if handler_run.deadline > latest + ROUNDING:
            what = f"trusts a lock {handler_run.deadline - latest:.3f} s beyond its renewal"
            raise Violation("UNTRUSTED", what, item=call.item.id)

    def loses(self, handler_run: HandlerRun) -> None:
        """A handler was notified that its lock was taken away."""
        call = handler_run.call
        lock = self._shadows.of[call.item.id].lock
        if lock is not None and (lock.owner, lock.fence) == (call.worker, call.fence):
            what = f"{call.worker} takes fence {call.fence} for lost, and has it"
            raise Violation("NOT LOST", what, item=call.item.id)

    def ends(self, handler_run: HandlerRun) -> None:
        """A handler has ended, by itself or because it was stopped."""
        self._in_time(handler_run)

    def check(self, handler_runs: HandlerRuns) -> None:
        """Checks all handlers. To be called every cycle."""
        for one in handler_runs:
            if one.process.runs:
                self._in_time(one)

    def _grace(self, item_type: str) -> float:
        """Seconds for a handler of a worker that was asked to stop. A pump goes on for a round."""
        for group in self._workers.scenario.groups:
            if group.name == item_type:
                return group.round + group.drain + LAST_WALK
        return GRACE.total_seconds() + LAST_WALK

    def _in_time(self, handler_run: HandlerRun) -> None:
        call, process = handler_run.call, handler_run.process
        if process.loop.dead:
            return
        leased = self._leased[call.item.id, call.fence]
        member = self._workers.by_name.get(process.name)
        asked = None if member is None else member.asked_to_stop
        for since, seconds, why in (
            (handler_run.lost, LOST, "lost its lock"),
            (handler_run.began, leased.limit, "was called"),
            (asked, self._grace(call.item.type), "was asked to stop"),
        ):
            if since is None or seconds is None:
                continue
            passed = self._timeline.now - max(since, process.went_on, handler_run.began)
            if passed > seconds * RATES + SPARE:
                what = f"fence {call.fence} goes on, {passed:.1f} s after it {why}"
                raise Violation("STOPPED", what, item=call.item.id)
