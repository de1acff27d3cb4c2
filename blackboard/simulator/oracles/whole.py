"""Whether the rows of one item agree: after every batch, not only in the end."""

from collections.abc import Iterator

from blackboard.model import Item, Lock, State, Token
from blackboard.protocol.keys import next_key
from blackboard.simulator.changes import Change
from blackboard.simulator.violation import Violation

REPEATED = (
    "slot",
    "ready",
    "planned",
    "attempt",
    "once",
    "requests",
    "born",
    "runs",
    "failures",
    "type",
    "fence",
    "version",
)
"""What a waiting token says as its item does, besides the spec."""


def check_whole(change: Change) -> None:
    shadow = change.shadow
    for kind, what in disagreements(shadow.item, shadow.lock, shadow.tokens):
        raise Violation(kind, what, item=change.id)


def disagreements(
    item: Item | None, lock: Lock | None, tokens: dict[str, Token]
) -> Iterator[tuple[str, str]]:
    """What is wrong with the rows of one id; `tokens` are the waiting ones by their keys."""
    if item is None:
        if lock is not None or tokens:
            yield "ORPHAN", "a lock or a token without an item"
        return
    if len(tokens) + (lock is not None) > 1:
        yield "TWO TOKENS", f"{len(tokens)} waiting, {int(lock is not None)} claimed"
    if item.state is State.ACTIVE and not tokens and lock is None:
        yield "NO TOKEN", "of an active item"
    if tokens and (item.state is not State.ACTIVE or item.paused):
        state = State.PAUSED if item.paused else item.state
        yield "WAITING TOKEN", f"of an item that is {state.value}"
    if item.state is State.REMOVED and lock is not None:
        yield "LOCK", "of a removed item"
    if item.running != (lock is not None):
        yield "RUNNING", f"is {item.running}, with {int(lock is not None)} locks"
    if lock is not None and lock.fence != item.fence:
        yield "FENCE", f"of the lock {lock.fence}, of the item {item.fence}"
    yield from _of_requests(item)
    for key, token in tokens.items():
        yield from _of_token(item, token, key)


def _of_requests(item: Item) -> Iterator[tuple[str, str]]:
    if item.requests and item.state in {State.DONE, State.REMOVED}:
        yield "RUN NOW LOST", f"requests of an item that is {item.state.value}"


def _of_token(item: Item, token: Token, key: str) -> Iterator[tuple[str, str]]:
    if key != next_key(item.ready, item.id):
        yield "KEY", "of the token is not what the item says"
    if token.spec != item.spec:
        yield "EDIT LOST", f"the token has {token.spec}, the item {item.spec}"
    for name in REPEATED:
        mine, says = getattr(token, name), getattr(item, name)
        if mine != says:
            yield "TOKEN", f"differs in {name}: {mine}, the item {says}"
