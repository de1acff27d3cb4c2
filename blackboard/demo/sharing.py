"""The demo of partitions as a story in six acts: workers share them, one joins, one is killed, one
leaves; and of two programs the one that leads is killed.

Each act waits until the group shows what the next paragraph says; nothing is printed in advance.
"""

import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from blackboard.clock import Clock
from blackboard.demo.board import DemoFolder, DemoWorker, Story, demo_workers
from blackboard.demo.output import Output, leaders_picture, leases_picture
from blackboard.display.toml_text import lines_of
from blackboard.errors import BadInput, BlackboardError
from blackboard.protocol.groups import GroupLeases, read_groups
from blackboard.protocol.leaders import read_elections
from blackboard.runners.commands import send_signal

GROUP, PARTITIONS, LEASE = "clicks", 12, 6
PUMP = f'''\
"""The demo's pump: what it has done with its partition is what it saves."""

from blackboard import pump


@pump("{GROUP}", partitions={PARTITIONS}, lease="{LEASE}s", drain="2s")
async def clicks(partition, ctx):
    done = ctx.checkpoint or 0
    while not ctx.stopping:
        done += 1  # here one would read what is next in the partition, and do it
        await ctx.save(done)
        await ctx.stopping.wait(0.4)
'''
ELECTION = "report"
PROGRAM = f'''\
"""The demo's report: of all programs that run this, one leads and makes it."""

import asyncio
import sys

import blackboard


async def main(store, name):
    async with blackboard.open(store, name=name) as board:
        async with board.election("{ELECTION}", lease="3s") as leader:
            while True:
                term = await leader.won()  # here one would make the report, until the term is over
                await term.lost.wait()


asyncio.run(main(*sys.argv[1:]))
'''


async def play(output: Output, folder: DemoFolder, *, clock: Clock, program: str) -> None:
    """Play all acts, in an empty folder. `program` is the command as the reader calls it. Raises
    BlackboardError when an act does not happen in time.
    """
    _write(folder)
    async with folder.location.open(create=True) as board, demo_workers(folder) as workers:
        story = _Story(board=board, workers=workers, output=output, clock=clock, folder=folder)
        await story.play()
        output.close()
        story.end(program)


def _write(folder: DemoFolder) -> None:
    (folder.path / "pumps.py").write_text(PUMP, encoding="utf-8")
    (folder.path / "report.py").write_text(PROGRAM, encoding="utf-8")
    board = {**folder.board_table, "jobs": ["pumps.py"]}
    lines = ["[board]", *lines_of(board), "", "[worker]", *lines_of({"grace": "1s"}), ""]
    folder.settings.write_text("\n".join(lines), encoding="utf-8")


@dataclass(slots=True, kw_only=True)
class _Story(Story):
    checkpoints: dict[str, int] = field(default_factory=dict)
    """The last checkpoint that was read of each partition."""

    async def play(self) -> None:
        ann, ben, cleo = await self._three_workers()
        dan = await self._one_joins()
        await self._one_is_killed(ben, others=(ann, cleo, dan))
        await self._one_leaves(cleo, others=(ann, dan))
        await self._a_leader_is_killed()

    async def _three_workers(self) -> tuple[DemoWorker, DemoWorker, DemoWorker]:
        self.output.title(f"1  Three workers and {PARTITIONS} partitions")
        self.output.say(
            """Each partition has to be held: a pump works on it for as long as its worker has its
            lease. A, B and C start, look at the group, and come to the same shares, four each. No
            worker directs the others. All files are in"""
        )
        self.output.lines([str(self.folder.path)])
        started = [await self.workers.start(name) for name in "ABC"]
        await self._until(lambda group: self._shares(group) == dict.fromkeys("ABC", 4))
        self.output.pause()
        ann, ben, cleo = started
        return ann, ben, cleo

    async def _one_joins(self) -> DemoWorker:
        dan = await self.workers.start("D")
        self.output.title(f"2  A fourth one: D is process {dan.pid}")
        self.output.say(
            """It counts from its second announcement on. Then A, B and C have one too many: each
            asks the pump that it started last to end. It saves and returns, and only then is its
            partition free for D, which goes on at the checkpoint. Nothing else moves."""
        )
        await self._until(lambda group: self._shares(group) == dict.fromkeys("ABCD", 3))
        self.output.pause()
        return dan

    async def _one_is_killed(self, victim: DemoWorker, *, others: tuple[DemoWorker, ...]) -> None:
        await victim.kill()
        self.output.title(f"3  kill -9 {victim.pid}")
        self.output.say(
            f"""{victim.name} renews its leases no more. When {LEASE} s are over, the others
            override them: the fence rises by one, so that the target of the writes can refuse what
            comes late, and the pumps go on where the last acknowledged save was."""
        )
        names = {other.name: PARTITIONS // len(others) for other in others}
        await self._until(lambda group: self._shares(group) == names)
        self.output.pause()

    async def _one_leaves(self, leaver: DemoWorker, *, others: tuple[DemoWorker, ...]) -> None:
        send_signal(leaver.process, signal.SIGTERM)
        self.output.title(f"4  kill {leaver.pid}: {leaver.name} is asked to stop")
        self.output.say(
            """It says so in its row, and waits until the others look each second. Then it lets
            everything go: each partition is free for a second or so."""
        )
        names = {other.name: PARTITIONS // len(others) for other in others}
        await self._until(lambda group: self._shares(group) == names)
        self.output.pause()

    async def _a_leader_is_killed(self) -> None:
        self.output.title("5  Two programs, one leader")
        self.output.say(
            """E and F run the same program, and one of them is to make a report. Both enter an
            election. The winner holds a lock. No handler runs under it; its fence is the term."""
        )
        command = (sys.executable, "report.py", self.folder.store, self.folder.board)
        programs = {name: await self.workers.run(name, *command) for name in "EF"}
        first = await self._leader(programs)
        self.output.pause()
        await programs.pop(first).kill()
        self.output.lines([""])
        self.output.say(
            f"""kill -9: {first} renews its lock no more. When the 3 s of its lease are over, the
            other one leads, in the next term. A target that compares terms refuses what {first}
            might still write."""
        )
        await self._leader(programs)
        self.output.pause()

    async def _leader(self, programs: Mapping[str, DemoWorker]) -> str:
        """Show the election until one of the programs leads, and return its name."""
        name_of = self.workers.name_of
        while True:
            if (leaders := await read_elections(self.board)).statuses:
                self.output.show(leaders_picture(leaders, name_of=name_of, width=self.output.width))
                for status in leaders.statuses:
                    leader = name_of(status.item.owner).split()[0] if status.item.owner else ""
                    if status.running and not status.stale and leader in programs:
                        return leader
            await self.wait()

    def end(self, program: str) -> None:
        """The last act is for the reader."""
        least, most = min(self.checkpoints.values()), max(self.checkpoints.values())
        self.output.title("6  All is held")
        self.output.say(
            f"""The checkpoints rose to {least} to {most} meanwhile; none went back. The board is
            kept: it is served again as soon as a worker is there."""
        )
        where = self.folder.options
        self.output.lines(
            [
                "",
                f"{program} {where} worker",
                f"{program} {where} leases {GROUP} --watch",
                f"{program} {where} leader",
                f"{program} {where} --board {self.folder.board}.{GROUP} log 00",
            ]
        )

    def _shares(self, group: GroupLeases) -> Mapping[str, int]:
        """How many partitions each worker holds, by its letter."""
        owners = [partition.holder for partition in group.partitions if partition.holder]
        return Counter(self.workers.name_of(owner).split()[0] for owner in owners)

    async def _look(self) -> GroupLeases | None:
        """Show the group as it is now, and return it; None: it is not made yet."""
        try:
            (group,) = await read_groups(self.board, GROUP)
        except BadInput:
            return None
        for partition in group.partitions:
            name, checkpoint = partition.item.id, int(partition.item.checkpoint or 0)
            if checkpoint < (before := self.checkpoints.get(name, 0)):
                raise BlackboardError(f"partition {name} went back from {before} to {checkpoint}")
            self.checkpoints[name] = checkpoint
        name_of, width = self.workers.name_of, self.output.width
        self.output.show(leases_picture(group, name_of=name_of, width=width))
        return group

    async def _until(self, happened: Callable[[GroupLeases], bool]) -> None:
        """Show the group until something has happened."""
        while (group := await self._look()) is None or not happened(group):
            await self.wait()
