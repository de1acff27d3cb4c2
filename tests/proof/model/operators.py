"""What people do: add, edit, pause, resume, run now, unlock, remove.

Each reads the item and writes it with the etag that it read, in one batch with the token that the
item names. After a lost race or a lost answer it is read again, and the request is about the same
life, and the same lock, as before.
"""

from collections.abc import Iterator

from tests.proof.model import batches
from tests.proof.model.conditions import Conditions
from tests.proof.model.rows import Item, Run, item_key, lock_key
from tests.proof.model.steps import Step, View, send
from tests.proof.model.store import ANY, Batch, merge
from tests.proof.model.world import NAMES, UNREAD, Request, Sender, World

VERBS = ("add", "edit", "pause", "resume", "run now", "unlock", "remove")


def moves(view: View) -> Iterator[Step]:
    world, bounds = view.world, view.bounds
    if world.left.requests and len(world.requests) < bounds.people:
        left = world.left._replace(requests=world.left.requests - 1)
        for verb in bounds.verbs:
            for item in range(bounds.items):
                request = _first(view, bounds.requests - left.requests, verb, item)
                if _is_wanted(request, view.keep):
                    told = f"somebody reads {NAMES[item]}, for {_name(request)}"
                    after = _with(world._replace(left=left), None, request)
                    yield Step(after, told, faultless=False)
    for request in world.requests:
        if request.again:
            yield _read_again(view, request)
        else:
            yield from _sent(view, request)


def _first(view: View, number: int, verb: str, item: int) -> Request:
    """What is first read stays with the request."""
    row = view.rows.get(item_key(item))
    if row is None:
        return Request(number, verb, item, born=0, fence=0)
    read: Item = row.data
    return Request(number, verb, item, read.born, read.fence, row.etag, read)


def _read_again(view: View, request: Request) -> Step:
    """After a lost race or a lost answer."""
    row = view.rows.get(item_key(request.item))
    etag, item = (row.etag, row.data) if row else (UNREAD, None)
    read = request._replace(etag=etag, read=item, again=False)
    wanted = _is_wanted(read, view.keep)
    told = f"{_name(request)} reads again" + ("" if wanted else ": nothing is left to do")
    return Step(_with(view.world, request, read if wanted else None), told)


def _is_wanted(request: Request, keep: Conditions) -> bool:
    """Whether there is something to do, by the item as it was read."""
    item = request.read
    if item is not None and keep.once and request.number in item.applied:
        return False
    if request.verb == "add":
        return item is None or item.state == "removed"
    if item is None or item.state == "removed" or (keep.once and item.born != request.born):
        return False
    still = {
        "edit": item.spec != request.number,
        "pause": item.state == "active",
        "resume": item.state == "paused",
        "run now": item.state != "paused",
        "unlock": item.running and not (keep.once and item.fence != request.fence),
        "remove": True,
    }
    return still[request.verb]


def _sent(view: View, request: Request) -> Iterator[Step]:
    sender = Sender(request.verb, fence=request.fence, born=request.born, request=request.number)
    again = request._replace(etag=UNREAD, read=None, again=True)
    for batch in _batches(request, view.keep):
        for answer in send(view, batch, sender):
            then = None if answer.kind == "done" else again
            told = f"{_name(request)} is sent{answer.told or ': done'}"
            yield Step(_with(answer.world, request, then), told, faultless=answer.faultless)


def _name(request: Request) -> str:
    return f"request {request.number} ({request.verb})"


def _with(world: World, old: Request | None, new: Request | None) -> World:
    """Requests in the order of their numbers."""
    requests = [one for one in world.requests if one != old] + ([new] if new else [])
    return world._replace(requests=tuple(sorted(requests)))


def _batches(request: Request, keep: Conditions) -> Iterator[Batch]:
    """What the request writes; a `resume` may come before or after the item's time."""
    number, before, now = request.item, request.read, -request.number
    etag = request.etag if keep.itemcond else ANY
    if request.verb == "add":
        fence = before.fence if before else 0
        life = (request.number, *(before.applied if before else ()))
        item = Item("active", running=False, fence=fence, born=fence, spec=0, slot=0, ready=now)
        yield batches.add(number, item._replace(applied=life), request.etag)
        return
    assert before is not None
    if request.verb == "remove":
        yield batches.remove(number, before, etag, request.number, keep)
    elif request.verb == "unlock":
        freed = batches.freed(before, keep, ready=now, same=True)
        after = freed._replace(applied=(request.number, *before.applied))
        run = Run(before.fence, 0, "abandoned")
        yield batches.free(number, before, after, run, lock=ANY, etag=etag, keep=keep)
    else:
        for changed in _changed(request, before, now):
            after = changed._replace(applied=(request.number, *before.applied))
            batch = batches.change(number, before, etag, after)
            if request.verb == "edit" and before.running and not keep.editlock:
                batch = (*batch, merge(lock_key(number), ANY))
            yield batch


def _changed(request: Request, before: Item, now: int) -> Iterator[Item]:
    if request.verb == "edit":
        after = before._replace(spec=request.number)
        yield after._replace(state="active", ready=now) if before.state == "done" else after
    elif request.verb == "pause":
        yield before._replace(state="paused")
    elif request.verb == "resume":
        yield before._replace(state="active")
        if not before.running:
            yield before._replace(state="active", ready=now)
    elif before.running or before.requests or (before.waits and before.slot):
        yield before._replace(requests=(*before.requests, request.number))
    else:
        yield before._replace(state="active", slot=request.number, ready=now)
