"""Keeps the rows of a group of partitions: its board, an item for each partition, and its row on
the board that it belongs to.

Partitions that are named later are added; those that are named no more stay. A request without an
answer is tried again at once; rows that cannot be made, when the names are due again. A partition
that cannot be added keeps no other from being served.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from blackboard.errors import BadRow, BlackboardError
from blackboard.events import GroupTrouble
from blackboard.model import VERSION
from blackboard.protocol.additions import ensure
from blackboard.protocol.groups import board_trouble, group_trouble
from blackboard.protocol.keys import group_key, meta_partition
from blackboard.protocol.reading import BoardTable
from blackboard.protocol.rows import version_of
from blackboard.rules.due import lease
from blackboard.subscribers import Events
from blackboard.table import Conflict, Insert, Merge, Op, Refused, Replace, Unknown, Value, read
from blackboard.worker.partition_names import PartitionNames


@dataclass(slots=True, kw_only=True)
class GroupRows:
    """The rows of one group."""

    board: BoardTable
    """The board of the group."""
    parent: str
    """The name of the board that it belongs to."""
    group: str
    names: PartitionNames
    events: Events
    made: tuple[str, ...] | None = None
    """The partitions that were named last, and made as far as they could be; None: the group has
    not been made by this worker."""
    to_make: tuple[str, ...] | None = None
    """The partitions that are named, and still to be made."""
    _lacks_some: bool = False
    """Whether some could not be made: that is tried again."""
    _lacking: frozenset[str] = frozenset()
    """The partitions that could not be added because of a row that is there."""

    @property
    def lease(self) -> float:
        """The lease of the group in seconds: the pump's, where `[types]` says no other."""
        settings = self.board.resolve(self.group, "{}")
        return lease(settings, self.board.clock.now()).total_seconds()

    async def keep(self) -> None:
        """Makes the partitions that are named and not there. Raises TableError where the store does
        not answer: the next call goes on with these names.
        """
        if self.to_make is None:
            self.to_make = self.names.named(first=self.made is None, again=self._lacks_some)
        names = self.to_make
        if names is None:
            return
        try:
            self._lacks_some = await self._make(names)
        except BlackboardError as problem:
            self._cannot_make(problem)
            self._lacks_some = True
            if self.made is None:
                return  # nothing can be served before that
        self.made, self.to_make = names, None

    def gone(self) -> None:
        """Notes that the board of the group is gone: the next `keep` makes it anew."""
        if self.to_make is None:
            self.to_make = self.made

    def _cannot_make(self, problem: BlackboardError | Refused | str) -> None:
        what = f"the partitions of {self.group} cannot be made: {problem}"
        self.events.emit(GroupTrouble, message=what)

    async def _make(self, names: Sequence[str]) -> bool:
        """Makes the board and these partitions. Returns whether some could not be made. Raises
        BlackboardError where the board of the group cannot be used.
        """
        board, meta = self.board, meta_partition(self.board.name)
        row = await board.own_row()
        if row is None:
            await board.make()
        elif problem := board_trouble(row, meta):
            raise BlackboardError(problem)
        await self._describe()
        try:
            left = await ensure(board, names, self.group)
        except BadRow as bad:
            self._cannot_make(BadRow(bad.key, bad.problem, board=board.name))
            return True
        except Conflict:
            self._cannot_make(row_in_the_way(board))
            return True
        except Refused as refused:
            self._cannot_make(refused)
            return True
        for name in left.keys() - self._lacking:
            what = f"{name} of {self.group} is left as it is: {left[name]}"
            self.events.emit(GroupTrouble, message=what)
        self._lacking = frozenset(left)
        return bool(left)

    async def _describe(self) -> None:
        """Writes the group's row on its parent, where it is not as it should be."""
        about: dict[str, Value] = {"version": VERSION, "kind": "pump", "lease": self.lease}
        key, meta = group_key(self.group), meta_partition(self.parent)
        row = await read(self.board.table, meta, key)
        write: Op
        if row is None:
            write = Insert(key, about)
        elif version_of(row.data) > VERSION or about.items() <= row.data.items():
            return
        elif group_trouble(row, meta):
            write = Replace(key, about, row.etag)  # a row that is no JSON cannot be merged
        else:
            write = Merge(key, about, row.etag)
        with suppress(Conflict, Unknown):  # another worker was faster, or the next one writes it
            await self.board.table.commit(meta, [write])


def row_in_the_way(board: BoardTable) -> str:
    """The meaning, in words, of a conflict that comes again and again on the board of a group."""
    doctor = f"`blackboard --board {board.name} doctor`"
    return f"a row in {board.shard(0)} is in the way, or others keep changing it ({doctor})"
