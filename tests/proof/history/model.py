"""A lock with a fence under operations one after the other: the model for histories.

`after` returns the lock after one operation, or that the operation cannot have had its result. The
model has no time: it does not check that a lock was stale when it was overridden.

    read      the fence and the holder are what they are
    claim     of a token with fence e: granted as e + 1 if the lock is free at e, else refused
    renew     of fence e by its holder: acknowledged if it still holds e, else lost
    release   of fence e by its holder: accepted if it still holds e, else late; the fence stays
    override  of a lock read with fence e and an etag: granted as e + 1 if e is held and nobody has
              touched the lock since, else refused
    unlock    of fence e: the lock is free at e + 1 if e is held, else nothing happens
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Verb(StrEnum):
    """What a client may ask."""

    READ = "read"
    CLAIM = "claim"
    RENEW = "renew"
    RELEASE = "release"
    OVERRIDE = "override"
    UNLOCK = "unlock"


class Answer(StrEnum):
    """What it was told."""

    YES = "yes"
    NO = "no"
    NONE = "no answer"
    """It may have taken effect, may do so at any later moment, or never."""


class ItemStatus(NamedTuple):
    """The state of the lock of one item."""

    fence: int = 0
    holder: str = ""
    """"" when it is free."""
    touch: str = ""
    """The etag of the lock's last write; "" when it is free, or when that is not known."""


NEW = ItemStatus()
"""Of an item that was just added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One request of one client, and what it was told. Moments are on one scale for all."""

    key: str
    client: str
    verb: Verb
    answer: Answer
    fence: int
    """Of the token, lock or claim it is about; of a read, the fence it saw."""
    got: int = 0
    """The fence it was granted, or that an unlock left."""
    seen: str = ""
    """The etag that a read saw, or that an override goes by; "" when it was not noted."""
    touch: str = ""
    """The etag that its write was given; "" when it was not noted."""
    holder: str = ""
    """Whom a read saw as the holder."""
    invoked: int
    returned: int | None
    """None when no answer ever came."""

    @property
    def is_idle(self) -> bool:
        """Whether it leaves every lock as it is."""
        return self.verb is Verb.READ or self.answer is Answer.NO


def after(now: ItemStatus, operation: Operation) -> ItemStatus | None:
    """The lock after an operation that took effect; None if it cannot have gone like this."""
    if operation.verb is Verb.READ:
        agrees = (operation.fence, operation.holder) == (now.fence, now.holder)
        return now if agrees and _same(operation.seen, now.touch) else None
    if operation.answer is Answer.NO:
        return None if _must(now, operation) else now
    then = _then(now, operation) if _may(now, operation) else None
    return then if then is not None and operation.got in {0, then.fence} else None


def is_spent(now: ItemStatus, operation: Operation) -> bool:
    """Whether an operation without an answer can change nothing any more: fences never go back,
    and a fence that was let go is not held again.
    """
    let_go = now.fence == operation.fence and not now.holder
    return now.fence > operation.fence or (let_go and operation.verb is not Verb.CLAIM)


def _may(now: ItemStatus, operation: Operation) -> bool:
    if now.fence != operation.fence:
        return False
    match operation.verb:
        case Verb.CLAIM:
            return not now.holder
        case Verb.RENEW | Verb.RELEASE:
            return now.holder == operation.client
        case Verb.OVERRIDE:
            return bool(now.holder) and _same(operation.seen, now.touch)
    return bool(now.holder)


def _must(now: ItemStatus, operation: Operation) -> bool:
    """Whether no is a wrong answer. An override may only go by an etag that is certain."""
    certain = operation.verb is not Verb.OVERRIDE or bool(operation.seen and now.touch)
    return certain and _may(now, operation)


def _then(now: ItemStatus, operation: Operation) -> ItemStatus:
    match operation.verb:
        case Verb.RENEW:
            return now._replace(touch=operation.touch)
        case Verb.RELEASE:
            return ItemStatus(now.fence)
        case Verb.UNLOCK:
            return ItemStatus(now.fence + 1)
    return ItemStatus(now.fence + 1, operation.client, operation.touch)


def _same(one: str, another: str) -> bool:
    """Whether two etags may be the same: what was not noted may be any."""
    return not one or not another or one == another
