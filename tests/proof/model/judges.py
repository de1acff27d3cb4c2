"""The invariants after every batch that is applied, by any sender and however late.

The judges get the rows before and after, the batch and its sender; and they keep what no row has
(`world.Past`). One more invariant, RESTS, is about what can still happen: `search.py`.
"""

from collections.abc import Iterator, Mapping

from tests.proof.model.rows import Item, Lock, Run, Token, item_key, lock_key, next_key
from tests.proof.model.store import Batch, Insert, Key, Merge, Op, Replace, Row
from tests.proof.model.world import NOBODY, Broken, Past, Sender

Rows = Mapping[Key, Row]

ONE_TOKEN = "ONE TOKEN: an active item has one token or one lock, any other none that waits"
PROJECTION = "PROJECTION: a token and a lock say what their item says"
FENCES_RISE = "FENCES RISE: no lock and no item has a fence again, or a lower one"
OWN_LOCK = "OWN LOCK: a worker lets go and renews no lock but its own"
HELD = "HELD: a handler starts under a lock of its own, of an active item"
AGES = "AGES: nobody sets back the age of a lock whose worker is dead"
HISTORY = "HISTORY: one row for each fence, and what was done stays done"
LATE = "LATE: a late result goes into its own life of the item, below the fence, over older ones"
PROMISE = "PROMISE: a worker changes nothing that people decide"
ASKED = "ASKED: a run that was asked for is there until it starts, in its turn"
COUNTS_ONCE = "COUNTS ONCE: a request is applied once, to the life and lock it was about"
CHECKPOINT = "CHECKPOINT: a run saves under its own lock, and only a good one empties what is saved"
START = "START: a run goes on at no less than what was acknowledged to one before"
RESTS = "RESTS: without faults all comes to rest, and no lease has to run out for it"

EMPTYING = {"release", "add", "remove"}
"""Runs of the model are good."""
PEOPLES = ("state", "spec", "born", "applied")
"""Columns of an item that are for people to change."""


def judge(
    before: Rows, after: Rows, batch: Batch, sender: Sender, past: Past
) -> tuple[Past, Broken | None]:
    """What is remembered from now on, and the first thing that is broken."""
    broken = next(_wrong(before, after, batch, sender, past), None)
    past = _remembered(after, batch, sender, past)
    return past, broken or next(_lost(after, past), None)


def _wrong(before: Rows, after: Rows, batch: Batch, sender: Sender, past: Past) -> Iterator[Broken]:
    of: dict[str, list[Op]] = {"lock": [], "run": [], "item": [], "next": []}
    for op in batch:
        of[op.key[0]].append(op)
    for op in of["lock"]:
        if isinstance(op, Insert | Replace):
            yield from _lock_made(op.key[1], op.data, after, past)
        elif op.key in before:
            yield from _lock_changed(op, before[op.key].data, before, sender)
    for op in of["run"]:
        yield from _history(op, before, after)
    for op in of["item"]:
        yield from _item(op, before, after, sender)
    if sender.request:
        yield from _request(before, batch, sender, past)
    for number in {op.key[1] for op in batch}:
        yield from _tokens(number, after)


def _lock_made(number: int, lock: Lock, after: Rows, past: Past) -> Iterator[Broken]:
    if lock.fence <= past.fences[number]:
        because = f"a lock has fence {lock.fence}, and one had {past.fences[number]}"
        yield Broken(FENCES_RISE, because)
    asked = past.asked[number]
    if lock.slot in asked[1:]:
        yield Broken(ASKED, f"request {lock.slot} starts before request {asked[0]}")
    item = after.get(item_key(number))
    if item is None or item.data.state != "active":
        yield Broken(HELD, "a lock was made of an item that is not active")


def _lock_changed(op: Op, lock: Lock, before: Rows, sender: Sender) -> Iterator[Broken]:
    is_own = lock.nonce == sender.nonce
    if isinstance(op, Merge) and sender.request and lock.owner == NOBODY:
        yield Broken(AGES, f"{sender.verb} touched it: its lease begins anew")
    if isinstance(op, Merge) and not sender.request and not is_own:
        yield Broken(OWN_LOCK, f"the lock with fence {lock.fence} was renewed by another")
    if sender.verb == "release" and not is_own:
        yield Broken(OWN_LOCK, f"fence {sender.fence} let the lock with fence {lock.fence} go")
    if sender.verb == "unlock" and lock.fence != sender.fence:
        yield Broken(COUNTS_ONCE, f"fence {sender.fence} was shown, {lock.fence} was unlocked")
    item = before.get(item_key(op.key[1]))
    if sender.verb in {"sweep", "clear"} and item and item.data.running:
        because = f"the lock with fence {lock.fence} was deleted, and the item runs under it"
        yield Broken(OWN_LOCK, because)


def _history(op: Op, before: Rows, after: Rows) -> Iterator[Broken]:
    new: Run = after[op.key].data
    of_item = [row.data for key, row in after.items() if key[:2] == op.key[:2]]
    outcomes = sorted(run.outcome for run in of_item if run.fence == new.fence)
    if len(outcomes) > 1:
        yield Broken(HISTORY, f"fence {new.fence} is {' and '.join(outcomes)}")
    if op.key in before:
        old: Run = before[op.key].data
        was_taken_away = old.outcome in {"abandoned", "cancelled"} and old.nonce in {0, new.nonce}
        if not was_taken_away or new.outcome != "superseded":
            yield Broken(HISTORY, f"{old.outcome} became {new.outcome}")


def _item(op: Op, before: Rows, after: Rows, sender: Sender) -> Iterator[Broken]:
    if op.key not in before or op.key not in after:
        return
    old: Item = before[op.key].data
    new: Item = after[op.key].data
    if new.fence < old.fence:
        yield Broken(FENCES_RISE, f"the item's went back from {old.fence} to {new.fence}")
    yield from _checkpoint(old, new, sender)
    if sender.request:
        return
    for name in PEOPLES:
        done = name == "state" and new.state == "done"
        if getattr(old, name) != getattr(new, name) and not done:
            became = f"{getattr(old, name)} to {getattr(new, name)}"
            yield Broken(PROMISE, f"the {sender.verb} of a worker set its {name} from {became}")
    if sender.verb == "late":
        yield from _late(old, sender.fence)


def _checkpoint(old: Item, new: Item, sender: Sender) -> Iterator[Broken]:
    went = f"from {old.checkpoint} to {new.checkpoint}"
    if sender.verb == "save":
        if not old.running or old.fence != sender.fence:
            runs = f"fence {old.fence} runs" if old.running else "nothing runs"
            yield Broken(CHECKPOINT, f"fence {sender.fence} saved, and {runs}")
        elif new.checkpoint < old.checkpoint:
            yield Broken(CHECKPOINT, f"fence {sender.fence} saved, and it went {went}")
    elif sender.verb in EMPTYING:
        if new.checkpoint:
            yield Broken(CHECKPOINT, f"{new.checkpoint} is left after a {sender.verb}")
    elif new.checkpoint != old.checkpoint:
        yield Broken(CHECKPOINT, f"a {sender.verb} set it {went}")


def _late(item: Item, fence: int) -> Iterator[Broken]:
    if item.state == "removed":
        yield Broken(LATE, f"fence {fence} wrote into an item that was removed")
    if item.result_fence >= fence:
        yield Broken(LATE, f"fence {fence} wrote over the result of fence {item.result_fence}")
    if item.born >= fence:
        yield Broken(LATE, f"fence {fence} wrote into a life born at {item.born}")
    if item.fence <= fence:
        yield Broken(LATE, f"fence {fence} was taken away and is still the highest")


def _request(before: Rows, batch: Batch, sender: Sender, past: Past) -> Iterator[Broken]:
    if sender.request in past.applied:
        yield Broken(COUNTS_ONCE, f"{sender.verb} was applied twice")
    key = item_key(batch[0].key[1])
    if sender.verb != "add" and key in before and before[key].data.born != sender.born:
        born = before[key].data.born
        yield Broken(COUNTS_ONCE, f"{sender.verb} was about another life, not that born at {born}")


def _tokens(number: int, rows: Rows) -> Iterator[Broken]:
    row = rows.get(item_key(number))
    lock = rows.get(lock_key(number))
    ready = [key for key in rows if key[0] == "next" and key[1] == number]
    state = row.data.state if row else "removed"
    if len(ready) + (lock is not None) > 1:
        yield Broken(ONE_TOKEN, f"it has {len(ready)} that wait" + (", and a lock" if lock else ""))
    if state == "active" and not ready and lock is None:
        yield Broken(ONE_TOKEN, "it is active and has none")
    if state != "active" and ready:
        yield Broken(ONE_TOKEN, f"it is {state} and has one that waits")
    if state in {"done", "removed"} and lock:
        yield Broken(ONE_TOKEN, f"it is {state} and has a lock")
    if row is not None:
        yield from _projection(number, row.data, lock, ready, rows)


def _projection(
    number: int, item: Item, lock: Row | None, ready: list[Key], rows: Rows
) -> Iterator[Broken]:
    if item.running != (lock is not None):
        yield Broken(PROJECTION, f"it has {'a' if lock else 'no'} lock and does not say so")
    if lock and (lock.data.fence, lock.data.born) != (item.fence, item.born):
        yield Broken(PROJECTION, f"the lock has fence {lock.data.fence}, the item {item.fence}")
    for key in ready:
        if key != next_key(number, item.ready):
            yield Broken(PROJECTION, "the token is ready when the item is not")
        for column, said in zip(Token._fields, rows[key].data, strict=True):
            if said != getattr(item, column):
                because = f"the item's {column} is {getattr(item, column)}, the token's {said}"
                yield Broken(PROJECTION, because)


def _remembered(after: Rows, batch: Batch, sender: Sender, past: Past) -> Past:
    fences, asked, applied = list(past.fences), list(past.asked), past.applied
    saved = list(past.saved)
    for op in batch:
        number = op.key[1]
        if op.key[0] == "lock" and isinstance(op, Insert | Replace):
            fences[number] = max(fences[number], op.data.fence)
            asked[number] = tuple(one for one in asked[number] if one != op.data.slot)
    number = batch[0].key[1]
    if sender.verb in {"add", "remove"}:
        asked[number] = ()
    elif sender.verb == "run now":
        asked[number] = (*asked[number], sender.request)
    if sender.verb in EMPTYING:
        saved[number] = 0
    if sender.request:
        applied = tuple(sorted({*applied, sender.request}))
    return Past(tuple(fences), tuple(asked), tuple(saved), applied)


def _lost(after: Rows, past: Past) -> Iterator[Broken]:
    for number, asked in enumerate(past.asked):
        row = after.get(item_key(number))
        if row is not None and (lost := set(asked) - {row.data.slot, *row.data.requests}):
            yield Broken(ASKED, f"request {min(lost)} is forgotten")
