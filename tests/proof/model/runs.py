"""A run that a worker holds: the steps to renew, end and release it, also when in doubt.

run       the handler runs; renew, save, or end and send the release; in doubt: `settle`
renew     renew what was adopted, then `run`; in doubt: `touch`
touch     read the lock after a renewal in doubt: it is mine, go on with its etag
save      send a save, with the item's etag as read; in doubt: `unsure`
unsure    read the item: it has the checkpoint, `run`; it runs under my fence and has not, `save`
          again; it does not, the handler ends: `settle`
settle    read the lock: it is mine, `reread`; it is not, `told`
reread    read the item: it runs under my fence, `release`; it does not, `clear`
release   send the release, built from the item as read; in doubt: `settle`
clear     delete a lock that no item is run under; `settle`
told      read my row of the history: it says ok, the release has landed; else I am `late`
late      read the item: gone, or another life of it, drop the result; else `row`
row       read what the history says of my fence: superseded, all is told; else `tell`
tell      send the late result; in doubt: `late`
"""

from collections.abc import Iterator

from tests.proof.model import batches
from tests.proof.model.steps import (
    Step,
    View,
    acknowledged,
    answered,
    as_read,
    becomes,
    history_of,
    holds,
    item_of,
    my_lock,
    name,
    send,
    started,
)
from tests.proof.model.store import GONE
from tests.proof.model.world import UNREAD, Sender, Task


def run(view: View, worker: int, task: Task) -> Iterator[Step]:
    world = view.world
    if world.left.renewals:
        left = world.left._replace(renewals=world.left.renewals - 1)
        touched = view._replace(world=world._replace(left=left))
        yield from _renewed(touched, worker, task, doubtful="touch")
    if world.left.saves:
        left = world.left._replace(saves=world.left.saves - 1)
        saving = view._replace(world=world._replace(left=left))
        if task.known == UNREAD:
            then = task._replace(step="unsure")
            told = f"has to read {name(task)} before it saves"
            yield becomes(saving, worker, task, then, told)
        else:
            yield from save(saving, worker, task)
    if task.known == UNREAD and view.keep.relcond:
        then = task._replace(step="settle")
        yield becomes(view, worker, task, then, f"has run {name(task)}, and has to read it")
    else:
        yield from release(view, worker, task)


def renew(view: View, worker: int, task: Task) -> Iterator[Step]:
    for step in _renewed(view, worker, task, doubtful="look"):
        yield started(step, task.nonce)


def _renewed(view: View, worker: int, task: Task, *, doubtful: str) -> Iterator[Step]:
    sender = Sender("renewal", worker, task.nonce, task.fence)
    for answer in send(view, batches.renew(task), sender):
        then = task._replace(step=doubtful, known=UNREAD)
        if answer.kind == "done":
            then = task._replace(step="run", held=answer.etags[0])
        yield answered(answer, worker, task, then, f"renews the lock of {name(task)}")


def touch(view: View, worker: int, task: Task) -> Iterator[Step]:
    """Whose lock is lost goes on all the same: its handler is told, and ends when it likes."""
    lock, told = my_lock(view, task), f"reads the lock of {name(task)}"
    then = task._replace(step="run", held=lock.etag if lock else GONE)
    yield becomes(view, worker, task, then, told + (": mine" if lock else ": not mine, it is lost"))


def save(view: View, worker: int, task: Task) -> Iterator[Step]:
    """The handler may also end before an answer comes."""
    sender = Sender("save", worker, task.nonce, task.fence)
    text = f"saves {task.checkpoint + 1} for {name(task)}, fence {task.fence}"
    unsure = task._replace(step="unsure", known=UNREAD)
    for answer in send(view, batches.save(task, view.keep), sender):
        if answer.kind == "done":
            saved = task._replace(step="run", known=answer.etags[0], checkpoint=task.checkpoint + 1)
            yield acknowledged(answered(answer, worker, task, saved, text), saved)
            continue
        yield answered(answer, worker, task, unsure, text)
        if answer.kind == "lost":
            ended = unsure._replace(step="settle")
            yield answered(answer, worker, task, ended, f"{text}, and ends")


def unsure(view: View, worker: int, task: Task) -> Iterator[Step]:
    row, text = item_of(view, task), f"reads {name(task)}"
    if not holds(row, task.fence):
        then = task._replace(step="settle")
        yield becomes(view, worker, task, then, f"{text}: it does not run under this lock")
        return
    read = as_read(task, row)
    if read.checkpoint > task.checkpoint:
        then = read._replace(step="run")
        step = becomes(view, worker, task, then, f"{text}: {read.checkpoint} is saved")
        yield acknowledged(step, then)
    else:
        then = read._replace(step="save")
        yield becomes(view, worker, task, then, f"{text}: it is not saved")


def release(view: View, worker: int, task: Task) -> Iterator[Step]:
    sender = Sender("release", worker, task.nonce, task.fence)
    for answer in send(view, batches.release(task, view.keep, only=view.bounds.only), sender):
        then = None if answer.kind == "done" else task._replace(step="settle")
        told = f"lets {name(task)} go, fence {task.fence}"
        yield answered(answer, worker, task, then, told)


def settle(view: View, worker: int, task: Task) -> Iterator[Step]:
    lock, told = my_lock(view, task), f"reads the lock of {name(task)}"
    if lock is None:
        then = task._replace(step="told" if view.keep.runkey else "late")
        yield becomes(view, worker, task, then, f"{told}: not mine")
    else:
        then = task._replace(step="reread" if view.keep.relcond else "release", held=lock.etag)
        yield becomes(view, worker, task, then, f"{told}: still mine")


def reread(view: View, worker: int, task: Task) -> Iterator[Step]:
    row, told = item_of(view, task), f"reads {name(task)}"
    if holds(row, task.fence):
        yield becomes(view, worker, task, as_read(task, row)._replace(step="release"), told)
    else:
        then = task._replace(step="clear")
        yield becomes(view, worker, task, then, f"{told}: it does not run under this lock")


def clear(view: View, worker: int, task: Task) -> Iterator[Step]:
    told = f"deletes the lock of {name(task)}, as no item is run under it"
    for answer in send(view, batches.orphan(task), Sender("clear", worker)):
        yield answered(answer, worker, task, task._replace(step="settle"), told)


def told(view: View, worker: int, task: Task) -> Iterator[Step]:
    row, text = history_of(view, task), f"reads the history of {name(task)}"
    if row and row.data.nonce == task.nonce and row.data.outcome == "ok":
        yield becomes(view, worker, task, None, f"{text}: the release has landed")
    else:
        then = task._replace(step="late")
        yield becomes(view, worker, task, then, f"{text}: no word of mine, it is late")


def late(view: View, worker: int, task: Task) -> Iterator[Step]:
    row, text = item_of(view, task), f"is late, reads {name(task)}"
    gone = row is None or row.data.state == "removed" or row.data.born >= task.fence
    if gone and view.keep.late:
        yield becomes(view, worker, task, None, f"{text}: gone, or another life; drops its result")
    else:
        known = row.etag if row else GONE
        if row and row.data.result_fence > task.fence and view.keep.late:
            known, text = UNREAD, f"{text}: its result is newer"
        yield becomes(view, worker, task, task._replace(step="row", known=known), text)


def row(view: View, worker: int, task: Task) -> Iterator[Step]:
    found, text = history_of(view, task), f"is late, reads the history of {name(task)}"
    if found and found.data.outcome == "superseded":
        yield becomes(view, worker, task, None, f"{text}: it has been told")
    else:
        then = task._replace(step="tell", row=found.etag if found else UNREAD)
        yield becomes(view, worker, task, then, text)


def tell(view: View, worker: int, task: Task) -> Iterator[Step]:
    sender = Sender("late", worker, task.nonce, task.fence)
    again = task._replace(step="late", known=UNREAD, row=UNREAD)
    for answer in send(view, batches.late(task, view.keep), sender):
        then = None if answer.kind == "done" else again
        text = f"writes the late result of {name(task)}, fence {task.fence}"
        yield answered(answer, worker, task, then, text)
