"""Worlds that differ only in names are one: it is enough to search from one of them.

Workers are alike, so their order means nothing. Etags and nonces are names: etags of rows are
numbered in the order of their keys, and any other is gone for ever, as is a batch in flight that
states one. That a request was applied is forgotten when it cannot be sent again.

Two worlds that differ only in names may still count as two: that costs time, and hides nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tests.proof.model.rows import Item, Lock, Run
from tests.proof.model.store import ANY, GONE, Batch, Delete, Insert, Merge, Op, Row
from tests.proof.model.world import UNREAD, Flight, Task, World

Names = Mapping[int, int]
NO_NAMES = {ANY: ANY, UNREAD: UNREAD, GONE: GONE}
"""What stands in the place of an etag and is none."""
NONCES = -2
"""A task's nonces are its last fields."""


def plain(world: World, *, etags: bool = True) -> tuple[World, tuple[int, ...]]:
    """The world in its plain names, and which worker of it was which before. `etags` cannot be
    renamed when the store draws them twice.
    """
    if etags:
        world = _by_etags(world)
    order = _order(world)
    if order != tuple(range(len(order))):
        world = owned(world, {old: new for new, old in enumerate(order)})
        world = world._replace(workers=tuple(world.workers[old] for old in order))
    return _by_nonces(_forgetful(world)), order


def owned(world: World, owners: Names) -> World:
    """The world after what belonged to workers belongs to others."""

    def change(data: Any) -> Any:
        if isinstance(data, Lock) and data.owner in owners:
            return data._replace(owner=owners[data.owner])
        return data

    flights = tuple(
        Flight(sender._replace(owner=owners.get(sender.owner, sender.owner)), batch)
        for sender, batch in world.flights
    )
    return _with_data(world._replace(flights=flights), change)


def _with_data(world: World, change: Callable[[Any], Any]) -> World:
    """The world with other data in its rows and in the batches in flight."""
    rows = tuple(
        (key, row if (new := change(row.data)) is row.data else Row(row.etag, new))
        for key, row in world.rows
    )
    flights = tuple(
        Flight(
            sender,
            tuple(
                op if isinstance(op, Delete | Merge) else op._replace(data=change(op.data))
                for op in batch
            ),
        )
        for sender, batch in world.flights
    )
    return world._replace(rows=rows, flights=flights)


# ---- etags


def _by_etags(world: World) -> World:
    etags = [row.etag for _, row in world.rows]
    if etags == [*range(1, len(etags) + 1)]:
        return world
    names = {old: new for new, old in enumerate(etags, start=1)} | NO_NAMES
    flights = [
        Flight(sender, batch)
        for sender, sent in world.flights
        if _may_land(batch := _stating(sent, names))
    ]
    return world._replace(
        rows=tuple((key, Row(names[row.etag], row.data)) for key, row in world.rows),
        workers=tuple(
            tuple(_knowing(task, names) for task in tasks) if tasks else tasks
            for tasks in world.workers
        ),
        requests=tuple(one._replace(etag=names.get(one.etag, GONE)) for one in world.requests),
        flights=tuple(flights),
        etags=len(world.rows),
    )


def _knowing(task: Task, names: Names) -> Task:
    held, known = names.get(task.held, GONE), names.get(task.known, GONE)
    if held == task.held and known == task.known and task.row == UNREAD:
        return task
    return task._replace(held=held, known=known, row=names.get(task.row, GONE))


def _stating(batch: Batch, names: Names) -> Batch:
    return tuple(
        op if isinstance(op, Insert) else op._replace(etag=names.get(op.etag, GONE)) for op in batch
    )


def _may_land(batch: Batch) -> bool:
    return all(isinstance(op, Insert) or op.etag != GONE for op in batch)


# ---- workers


def _order(world: World) -> tuple[int, ...]:
    """The workers, by what they are about and what is theirs elsewhere."""
    if len(world.workers) == 1:
        return (0,)
    locks = [(key, row.data.owner) for key, row in world.rows if key[0] == "lock"]
    about = [
        (
            [task[:NONCES] for task in tasks],
            [key for key, owner in locks if owner == worker],
            [n for n, (sender, _) in enumerate(world.flights) if sender.owner == worker],
            worker,
        )
        for worker, tasks in enumerate(world.workers)
    ]
    return tuple(worker for *_, worker in sorted(about))


# ---- nonces


def _by_nonces(world: World) -> World:
    """In the order in which they are met, and 0 for none."""
    met = [*dict.fromkeys(_met(world))]
    drawn = len(met) - 1
    if met == [*range(len(met))]:
        return world if world.nonces == drawn else world._replace(nonces=drawn)
    names = {old: new for new, old in enumerate(met)}

    def change(data: Any) -> Any:
        return data._replace(nonce=names[data.nonce]) if isinstance(data, Lock | Run) else data

    flights = tuple(
        Flight(sender._replace(nonce=names[sender.nonce]), batch) for sender, batch in world.flights
    )
    workers = tuple(
        tuple(
            sorted(
                task._replace(nonce=names[task.nonce], other=names[task.other]) for task in tasks
            )
        )
        for tasks in world.workers
    )
    world = world._replace(workers=workers, flights=flights, nonces=drawn)
    return _with_data(world, change)


def _met(world: World) -> list[int]:
    met = [0]
    met += [row.data.nonce for key, row in world.rows if key[0] in {"lock", "run"}]
    for tasks in world.workers:
        for task in tasks:
            met += (task.nonce, task.other)
    for sender, batch in world.flights:
        met.append(sender.nonce)
        written = [op.data for op in batch if not isinstance(op, Delete | Merge)]
        met += [data.nonce for data in written if isinstance(data, Lock | Run)]
    return met


# ---- requests


def _forgetful(world: World) -> World:
    """Of the names of requests, by those who judge and in the rows, only who may come again
    counts.
    """
    if not world.past.applied:
        return world
    may_come = {one.number for one in world.requests}
    may_come |= {sender.request for sender, _ in world.flights}

    def known(names: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(one for one in names if one in may_come))

    def change(data: Any) -> Any:
        return data._replace(applied=known(data.applied)) if isinstance(data, Item) else data

    world = _with_data(world, change)
    flights = tuple(
        Flight(sender, tuple(_merging(op, known) for op in batch))
        for sender, batch in world.flights
    )
    requests = tuple(
        one._replace(read=change(one.read)) if one.read else one for one in world.requests
    )
    past = world.past._replace(applied=known(world.past.applied))
    return world._replace(past=past, flights=flights, requests=requests)


def _merging(op: Op, known: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Op:
    """A Merge that is in flight, with the names that count."""
    if not isinstance(op, Merge):
        return op
    columns = tuple(
        (name, known(value) if name == "applied" else value) for name, value in op.columns
    )
    return op._replace(columns=columns)
