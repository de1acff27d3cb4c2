"""Histories damaged in ways that no lock could have behaved in.

Each way takes the history of one key, of which nothing was lost, and changes or adds one operation.
That what comes out cannot be explained follows from two facts of the model: a fence is granted
once, and what was let go, overridden or unlocked is not held again under its fence.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from blackboard.model import replace
from tests.proof.history.model import Answer, Operation, Verb

History = list[Operation]
Way = Callable[[History, random.Random], History]
NOBODY = "nobody-else"


class NoPlace(Exception):
    """A history has no operation that could be damaged in this way."""


def two_holders_of_one_fence(history: History, chance: random.Random) -> History:
    """Two clients are granted the same fence at the same time."""
    one = _pick(history, chance, Verb.CLAIM)
    return [*history, replace(one, client=NOBODY, touch="")]


def a_fence_goes_back(history: History, chance: random.Random) -> History:
    """A claim is granted a fence that was in use before."""
    one = _pick(history, chance, Verb.CLAIM, lambda one: one.got > 1)
    return _instead(history, one, replace(one, fence=one.fence - 1, got=one.got - 1))


def a_fence_is_left_out(history: History, chance: random.Random) -> History:
    """A claim is granted one more than it should be."""
    one = _pick(history, chance, Verb.CLAIM)
    return _instead(history, one, replace(one, got=one.got + 1))


def another_releases(history: History, chance: random.Random) -> History:
    """A release is accepted of somebody who does not hold the lock."""
    one = _pick(history, chance, Verb.RELEASE)
    return _instead(history, one, replace(one, client=NOBODY))


def a_release_is_lost(history: History, chance: random.Random) -> History:
    """A release was acknowledged, and later the lock is seen as if it had not been."""
    one = _pick(history, chance, Verb.RELEASE)
    return [*history, _at_the_end(history, _read(one, one.client))]


def a_release_twice(history: History, chance: random.Random) -> History:
    """One claim is let go two times."""
    one = _pick(history, chance, Verb.RELEASE)
    return [*history, _at_the_end(history, one)]


def a_release_of_nobody(history: History, chance: random.Random) -> History:
    """A lock is free that its holder did not let go: its release is missing."""
    claimed = {one.fence for one in _granted(history, Verb.CLAIM)}
    one = _pick(history, chance, Verb.RELEASE, lambda one: one.fence in claimed)
    return [other for other in history if other is not one]


def a_stale_read(history: History, chance: random.Random) -> History:
    """A read sees what was overwritten before it was asked."""
    highest = max((one.got for one in _granted(history, Verb.CLAIM)), default=0)
    one = _pick(history, chance, Verb.READ, lambda one: one.fence < highest)
    return _instead(history, one, _at_the_end(history, one))


def an_override_before_its_claim(history: History, chance: random.Random) -> History:
    """A lock is overridden before anybody had it."""
    granted = {
        one.got: one for verb in (Verb.CLAIM, Verb.OVERRIDE) for one in _granted(history, verb)
    }
    one = _pick(history, chance, Verb.OVERRIDE, lambda one: one.fence in granted)
    before = granted[one.fence].invoked
    return _instead(history, one, replace(one, invoked=before - 2, returned=before - 1))


def an_override_of_what_was_renewed(history: History, chance: random.Random) -> History:
    """An override goes by an etag that a renewal had replaced."""

    def older(one: Operation) -> str | None:
        """The etag the lock was granted with, if it was renewed before the override began."""
        renewed = [
            other
            for other in _granted(history, Verb.RENEW)
            if other.fence == one.fence and (other.returned or 0) < one.invoked
        ]
        first = [
            other.touch
            for verb in (Verb.CLAIM, Verb.OVERRIDE)
            for other in _granted(history, verb)
            if other.got == one.fence
        ]
        return first[0] if renewed and first else None

    one = _pick(history, chance, Verb.OVERRIDE, lambda one: older(one) is not None)
    return _instead(history, one, replace(one, seen=older(one) or ""))


def a_renewal_after_an_override(history: History, chance: random.Random) -> History:
    """Whoever was overridden renews, and is told that it still holds the lock."""
    over = _pick(history, chance, Verb.OVERRIDE)
    holder = next((one.client for one in history if one.got == over.fence), NOBODY)
    renewal = replace(over, client=holder, verb=Verb.RENEW, got=0, seen="", touch="")
    return [*history, _at_the_end(history, renewal)]


def an_unlock_is_lost(history: History, chance: random.Random) -> History:
    """A release is accepted of a lock that had been unlocked."""
    one = _pick(history, chance, Verb.UNLOCK)
    holder = next((other.client for other in history if other.got == one.fence), NOBODY)
    release = replace(one, client=holder, verb=Verb.RELEASE, got=0)
    return [*history, _at_the_end(history, release)]


def a_holder_is_told_it_lost(history: History, chance: random.Random) -> History:
    """A renewal is refused although its client lets the same lock go later."""
    released = {one.fence: one for one in _granted(history, Verb.RELEASE)}
    one = _pick(
        history,
        chance,
        Verb.RENEW,
        lambda one: one.fence in released and (one.returned or 0) < released[one.fence].invoked,
    )
    return _instead(history, one, replace(one, answer=Answer.NO, touch=""))


def a_grant_is_told_as_refused(history: History, chance: random.Random) -> History:
    """A claim was refused, and is let go later with the fence it did not get."""
    released = {one.fence for one in _granted(history, Verb.RELEASE)}
    one = _pick(history, chance, Verb.CLAIM, lambda one: one.got in released)
    return _instead(history, one, replace(one, answer=Answer.NO, got=0, touch=""))


WAYS: tuple[Way, ...] = (
    two_holders_of_one_fence,
    a_fence_goes_back,
    a_fence_is_left_out,
    another_releases,
    a_release_is_lost,
    a_release_twice,
    a_release_of_nobody,
    a_stale_read,
    an_override_before_its_claim,
    an_override_of_what_was_renewed,
    a_renewal_after_an_override,
    an_unlock_is_lost,
    a_holder_is_told_it_lost,
    a_grant_is_told_as_refused,
)


def damaged(keys: Sequence[History], seed: int) -> Iterator[tuple[Way, History]]:
    """Damaged histories of one key each, for ever: the ways in turn, at places from a seed."""
    chance = random.Random(seed)
    while True:
        for way in WAYS:
            for history in chance.sample(keys, len(keys)):
                with suppress(NoPlace):
                    yield way, way(history, chance)
                    break


def _granted(history: History, verb: Verb) -> list[Operation]:
    return [one for one in history if one.verb is verb and one.answer is Answer.YES]


def _pick(
    history: History,
    chance: random.Random,
    verb: Verb,
    fits: Callable[[Operation], bool] = lambda _: True,
) -> Operation:
    """One that was granted, and fits."""
    found = [one for one in _granted(history, verb) if fits(one)]
    if not found:
        raise NoPlace
    return chance.choice(found)


def _instead(history: History, old: Operation, new: Operation) -> History:
    return [new if one is old else one for one in history]


def _at_the_end(history: History, operation: Operation) -> Operation:
    """The same, asked when everything else had been answered."""
    last = max(max(one.invoked, one.returned or 0) for one in history)
    return replace(operation, invoked=last + 1, returned=last + 2)


def _read(operation: Operation, holder: str) -> Operation:
    return replace(operation, verb=Verb.READ, holder=holder)
