"""What handlers are given, and when they are gone: UNTRUSTED, PARAMS, STOPPED.

A handler is called under a lock that its worker may still trust, with the params that its item said
and no others. One that lost its lock, ran longer than it may, or belongs to a worker that was asked
to stop is gone within its bound, whatever it does itself. Time in which its process stands still
does not count.
"""

from collections.abc import Callable
from dataclasses import dataclass

from blackboard.model import Item, Lock
from blackboard.simulator.changes import Change
from blackboard.simulator.crew import GRACE, Crew
from blackboard.simulator.handlers import Handling
from blackboard.simulator.timeline import Timeline
from blackboard.simulator.violation import Violation
from blackboard.spec import RunSettings, params_of
from blackboard.table import Insert, Replace

TRUSTED = 0.8
"""The part of a lease for which its holder may trust it without a renewal."""
RATES = 1.02
"""How far two clocks come apart."""
LOST = 2.0
"""Seconds from the word that a lock is lost until its handler is stopped."""
SPARE = 2.0
"""Seconds for the worker to get round to it."""
LAST_WALK = 20.0
"""Seconds that the walk which is under way may take to come to its end."""
SOON = 1.0
"""Seconds within which a worker that was asked to stop sends no claim any more."""


@dataclass(slots=True)
class Leased:
    """A lock as it was last written, and what its run is to be given."""

    moment: float
    stale_after: float
    limit: float | None
    """Seconds that the run may take, where the item says it."""
    given: list[tuple[str, str]]
    """Spec and `once` of the item when it was claimed, and of every version since: a claim that is
    adopted is run by what its item says then.
    """


class Runs:
    """Looks at every lock, at every handler that is called or ends, and every cycle at all."""

    def __init__(
        self, timeline: Timeline, crew: Crew, settings_of: Callable[[Item], RunSettings]
    ) -> None:
        self._timeline = timeline
        self._crew = crew
        self._settings_of = settings_of
        self._leased: dict[tuple[str, int], Leased] = {}

    def __call__(self, change: Change) -> None:
        item = change.shadow.item
        for touch in change.of(Lock):
            lock = touch.new
            if isinstance(lock, Lock) and item is not None:
                self._written(change, item, lock, is_new=isinstance(touch.op, Insert | Replace))
            if isinstance(touch.op, Insert | Replace):
                self._claimed(change)
        lock = change.shadow.lock
        if item is not None and lock is not None and change.of(Item):
            leased = self._leased[item.id, lock.fence]
            if (item.spec, item.once) not in leased.given:
                leased.given.append((item.spec, item.once))

    def _written(self, change: Change, item: Item, lock: Lock, *, is_new: bool) -> None:
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

    def _claimed(self, change: Change) -> None:
        """By a worker that had been asked to stop before it sent the claim."""
        member = self._crew.by_name.get(change.sender.name)
        asked = None if member is None else member.asked_to_stop
        if asked is not None and change.sent > asked + SOON:
            what = f"{change.sender.name} claims, {change.sent - asked:.1f} s after it was to stop"
            raise Violation("STOPPED", what, item=change.id)

    # ---- handlers

    def begins(self, handling: Handling) -> None:
        """A handler is called."""
        call, process = handling.call, handling.process
        leased = self._leased.get((call.item.id, call.fence))
        if leased is None:
            raise Violation("UNTRUSTED", "it runs without a lock", item=call.item.id)
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

    def ends(self, handling: Handling) -> None:
        """A handler is gone, of itself or because it was stopped."""
        self._in_time(handling)

    def check(self, handlings: list[Handling]) -> None:
        """Every cycle: what still goes on."""
        for one in handlings:
            if one.process.runs:
                self._in_time(one)

    def _in_time(self, handling: Handling) -> None:
        call, process = handling.call, handling.process
        if process.loop.dead:
            return
        leased = self._leased[call.item.id, call.fence]
        member = self._crew.by_name.get(process.name)
        asked = None if member is None else member.asked_to_stop
        for since, seconds, why in (
            (handling.lost, LOST, "lost its lock"),
            (handling.began, leased.limit, "was called"),
            (asked, GRACE.total_seconds() + LAST_WALK, "was asked to stop"),
        ):
            if since is None or seconds is None:
                continue
            passed = self._timeline.now - max(since, process.went_on, handling.began)
            if passed > seconds * RATES + SPARE:
                what = f"fence {call.fence} goes on, {passed:.1f} s after it {why}"
                raise Violation("STOPPED", what, item=call.item.id)
