"""Two versions on one board: a newer one, as an older one meets it.

The newer version is this program behind a wire that changes rows on their way. Whatever it writes
has columns that this version does not know, with other values each time. It takes over items: their
`version` is raised, and from then on only newer workers may touch them. A newer worker reads such
rows as its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from blackboard.model import VERSION
from blackboard.protocol.keys import ITEM, LOCK, NEXT, RUN, item_key, lock_key, next_key
from blackboard.protocol.rows import version_of
from blackboard.simulator.changes import Shadow
from blackboard.simulator.store import Sender, Store, Written
from blackboard.simulator.violation import Violation
from blackboard.simulator.wire import Wire
from blackboard.table import Delete, Merge, Op, Replace, Row, Value

NEWER = VERSION + 1
MORE = ("flavour", "weight", "crates", "ripe")
"""Columns that this version does not know."""


def more(count: int) -> dict[str, Value]:
    """Their values in the write of this number."""
    return {"flavour": f"f{count}", "weight": count + 0.5, "crates": count, "ripe": count % 2 == 0}


class NewerWire(Wire):
    """The way to the store of a worker of the newer version."""

    def _as_written(
        self, partition: str, ops: Sequence[Op], datas: list[dict[str, Value]]
    ) -> list[dict[str, Value]]:
        count = self._store.contents.etag
        for op, data in zip(ops, datas, strict=True):
            if isinstance(op, Delete):
                continue
            data.update(more(count))
            item = data.get("item")
            if op.key.startswith((ITEM, LOCK, NEXT)) and "version" in data and item is not None:
                row = self._store.contents.row(partition, item_key(str(item)))
                data["version"] = VERSION if row is None else version_of(row.data)
        return datas

    def _as_read(self, rows: list[Row]) -> list[Row]:
        return [_lowered(row) if version_of(row.data) == NEWER else row for row in rows]


def _lowered(row: Row) -> Row:
    return Row(row.key, row.etag, {**row.data, "version": VERSION}, row.stamp)


def take_over(store: Store, partition: str, item_id: str, shadow: Shadow) -> bool:
    """The newer version raises an item, and its token if that waits: a lock is its holder's.
    Whether there was anything to raise.
    """
    item = shadow.item
    if item is None or item.version == NEWER:
        return False
    keys = [item_key(item_id), *(next_key(one.ready, item_id) for one in shadow.tokens.values())]
    rows = [row for key in keys if (row := store.contents.row(partition, key)) is not None]
    raised: dict[str, Value] = {"version": NEWER, **more(store.contents.etag)}
    ops = [Merge(row.key, raised, row.etag) for row in rows]
    sender = Sender(name="newer version", verb="take over", newer=True)
    datas = [dict(raised) for _ in ops]
    store.commit(sender, partition, ops, datas, sent=store.timeline.now)
    return True


@dataclass(frozen=True, slots=True)
class Versions:
    """VERSIONS: an older program keeps what a newer one wrote, and leaves its items alone.

    It may let go of a lock that is its own, and tell the history how its run ended when it had lost
    the lock.
    """

    def __call__(self, written: Written) -> None:
        for op in written.ops:
            before, after = written.before.get(op.key), written.after.get(op.key)
            if before is not None and after is not None and op.key.startswith(ITEM):
                self._judge(written, op, before, after)

    def _judge(self, written: Written, op: Op, before: Row, after: Row) -> None:
        who, item = written.sender, str(before.data["item"])
        if version_of(after.data) < version_of(before.data):
            raise Violation("VERSIONS", f"{who.name} lowered the version", item=item)
        if who.newer:
            return
        is_of_another_life = isinstance(op, Replace) and "removed" in {
            before.data["state"],
            after.data["state"],
        }
        for name in () if is_of_another_life else MORE:
            if before.data.get(name) != after.data.get(name):
                what = f"{name} was {before.data.get(name)}, and is {after.data.get(name)}"
                raise Violation("VERSIONS", f"{who.name}: {what}", item=item)
        if version_of(before.data) > VERSION and not _is_its_own(written, item):
            raise Violation("VERSIONS", f"{who.name} wrote an item of a newer version", item=item)


def _is_its_own(written: Written, item: str) -> bool:
    """Whether the batch is the end of a run of its sender."""
    lock = written.before.get(lock_key(item))
    if lock is not None or lock_key(item) in written.after:
        return lock is not None and lock.data["owner"] == written.sender.name
    rows = [row.data for row in written.after.values() if row.key.startswith(RUN)]
    return any((one["item"], one["worker"]) == (item, written.sender.name) for one in rows)
