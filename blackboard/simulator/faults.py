"""Fault injection: the plan of a world is carried out, and operators' requests are sent.

Another worker starts in the seat of each one that was killed or has ended. A trap waits for the
next batch of its process, so that kills and pauses happen between any two steps of the protocol.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from blackboard.errors import BlackboardError
from blackboard.model import Mark
from blackboard.phrases import iso
from blackboard.protocol import edits
from blackboard.protocol.keys import item_key, next_key, partition, shard_of
from blackboard.protocol.reading import BoardTable
from blackboard.simulator.changes import Shadow, Shadows
from blackboard.simulator.invariants import Violation
from blackboard.simulator.network import LinkFault, Network, ShardFault
from blackboard.simulator.processes import Process, Timeline, Trap, TrapPoint
from blackboard.simulator.results import Figures, Trace
from blackboard.simulator.scenario import Fault, Injection, SimulatedItem
from blackboard.simulator.store import NEWER, Sender, Store, StoreClient, more
from blackboard.simulator.workers import BOARD, WorkerProcess, Workers
from blackboard.spec import Spec
from blackboard.table import Merge, TableError, Value

RESTARTED_AFTER = 1.0
"""Seconds until another worker takes the seat of one that has ended."""
_ABOUT = {
    TrapPoint.NOW: "",
    TrapPoint.BEFORE: ", before it sends a batch",
    TrapPoint.SENT: ", after it has sent a batch",
    TrapPoint.APPLIED: ", when its batch is applied",
}


# ---- operators

MISSED = ("one", "all", "none")
JITTERS = (None, None, "90s")
HALF = 0.5
EMPTYING = 0.25
"""The share of edits that empty the checkpoint."""
ABOUT_NOW = timedelta(hours=1)
"""A single time is at most so far before or after now."""
_FREES: dict[str, Callable[..., Any]] = {"unlock": edits.unlock, "cancel": edits.cancel}


class Operators:
    """The people of a world. Each of their requests is a task and a sender of its own."""

    def __init__(
        self,
        board: BoardTable,
        client: StoreClient,
        process: Process,
        items: Sequence[SimulatedItem],
    ) -> None:
        self._board = board
        self._client = client
        self._process = process
        self._items = items
        self._count = 0

    def request(self, verb: str, number: int, detail: float) -> None:
        """Sends one request about item `number`. It may be refused, or change nothing."""
        self._count += 1
        sender = Sender(name=f"person-{self._count}", verb=verb)
        item = self._items[number % len(self._items)]
        self._process.loop.spawn(self._request(sender, item, detail))

    async def _request(self, sender: Sender, item: SimulatedItem, detail: float) -> None:
        board = self._board.asked_through(self._client.as_sender(sender))
        mark = Mark(by="ann", at=board.clock.now())
        spec = other_spec(self._items, detail, mark.at)
        try:
            match sender.verb:
                case "add":
                    await edits.add(board, item_id=item.id, item_type=item.type, spec=spec)
                case "edit":
                    emptied = "" if detail * 100 % 1 < EMPTYING else None
                    await edits.edit(board, item.id, lambda *_: spec, checkpoint=emptied)
                case "pause":
                    await edits.pause(board, item.id, mark)
                case "resume":
                    await edits.resume(board, item.id, mark)
                case "run_now":
                    await edits.run_now(board, item.id, once=own_params(sender, detail))
                case "remove":
                    await edits.remove(board, item.id)
                case verb:
                    found = await board.item(item.id)
                    if found is not None and found.running:
                        sender.fence = found.fence
                        await _FREES[verb](board, item.id, mark, fence=found.fence)
        except (BlackboardError, TableError):
            return  # refused, or not answered: the operator gives up


def own_params(sender: Sender, detail: float) -> dict[str, object] | None:
    """The params of half of the requests: no other request has the same."""
    return {"request": sender.name} if detail < HALF else None


def other_spec(items: Sequence[SimulatedItem], detail: float, now: datetime) -> Spec:
    """The spec of another item, with any policy for missed slots, and perhaps a jitter. One in four
    has a single time or no schedule. `detail` is in [0, 1).
    """
    number, part = divmod(detail * len(items), 1.0)
    missed = MISSED[int(part * 1000) % len(MISSED)]
    jitter = JITTERS[int(part * 100) % len(JITTERS)]
    params = {"said": int(part * 10)} if part > HALF else {}
    other = replace(items[int(number)].spec, missed=missed, jitter=jitter, params=params)
    if part < 0.25:
        other = replace(other, every=None, cron=None)
    if part < 0.2:
        other = replace(other, at=iso(now + ABOUT_NOW * (part * 10 - 1)))
    return other


# ---- faults


@dataclass(slots=True, kw_only=True)
class FaultInjector:
    """Injects the faults of a plan, and starts workers again."""

    timeline: Timeline
    trace: Trace
    figures: Figures
    network: Network
    workers: Workers
    operators: Operators
    shadows: Shadows
    over: bool = False
    """Whether all faults have stopped."""

    def inject(self, one: Injection) -> None:
        """Injects one fault, unless all have stopped."""
        if self.over:
            return
        match one.fault:
            case Fault.OUTAGE:
                self._record("store", f"is away for {one.seconds:.1f} s", "outages")
                self.network.away = True
                self.timeline.at(self.timeline.now + one.seconds, self._end_outage)
            case Fault.SHARD:
                name = partition(BOARD, one.target, self._shards)
                self._record(name, f"{one.how}, for {one.seconds:.1f} s", "sick partitions")
                self._fail(self.network.shard_faults, name, ShardFault(one.how), one.seconds)
            case Fault.CLOCK:
                self._record("store", f"its clock jumps {one.seconds:+.1f} s", "store jumped")
                self.workers.store.clock.jump(one.seconds)
            case Fault.VERSIONS:
                item_id, shards = self.workers.scenario.items[one.target].id, self._shards
                place = partition(BOARD, shard_of(item_id, shards), shards)
                shadow = self.shadows.of.get(item_id)
                if shadow is not None and take_over(self.workers.store, place, item_id, shadow):
                    self._record(item_id, "is taken over by a newer version", "taken over")
            case Fault.EDIT:
                self.figures.count("asked")
                self.operators.request(one.how, one.target, one.seconds)
            case _:
                member = self.workers.seats.get(one.target)
                if member is not None:
                    self._inject_into(member, one)

    def _inject_into(self, member: WorkerProcess, one: Injection) -> None:
        process = member.process
        match one.fault:
            case Fault.KILL | Fault.PAUSE:
                when = TrapPoint(one.how)
                process.trap = (
                    Trap(when=when, seconds=one.seconds)
                    if one.fault is Fault.PAUSE
                    else Trap(when=when, seconds=None, replaced_after=one.seconds)
                )
                if when is TrapPoint.NOW:
                    self.trigger(process, process.trap)
            case Fault.JUMP:
                self._record(process.name, f"its wall clock jumps {one.seconds:+.0f} s", "jumped")
                process.clock.offset += one.seconds
            case Fault.PARTITION:
                self._record(process.name, f"{one.how}, for {one.seconds:.1f} s", "partitions")
                self._fail(self.network.link_faults, process.name, LinkFault(one.how), one.seconds)
            case _:
                self._record(process.name, "is asked to stop", "redeployed")
                process.loop.call_soon(self.workers.ask_to_stop, member)

    def trigger(self, process: Process, trap: Trap) -> None:
        """Kills or stops a process, as its trap says."""
        process.trap = None
        member = self.workers.by_name.get(process.name)
        if self.over or member is None or not process.runs:
            return
        now, about = self.timeline.now, _ABOUT[trap.when]
        process.loop.stop_process()  # a process that is killed may be executing code now
        if trap.seconds is None:
            self._record(process.name, f"is killed{about}", "killed")
            self.timeline.at(now, self._bury, member, trap.replaced_after)
        else:
            self._record(process.name, f"stops for {trap.seconds:.1f} s{about}", "paused")
            self.timeline.at(now + trap.seconds, self.go_on, process)

    def _bury(self, member: WorkerProcess, replaced_after: float) -> None:
        seat = self.workers.seat_of(member)
        self.workers.kill(member)
        self.timeline.at(self.timeline.now + replaced_after, self.start, seat)

    def go_on(self, process: Process) -> None:
        """Continues a process that was stopped."""
        if process.loop.stopped and not process.loop.dead:
            self._record(process.name, "continues")
            process.went_on = self.timeline.now
            process.loop.continue_process()

    def _end_outage(self) -> None:
        if self.network.away:
            self._record("store", "is back")
            self.network.away = False

    def _fail(self, faults: dict[str, Any], name: str, how: object, seconds: float) -> None:
        faults[name] = how
        self.timeline.at(self.timeline.now + seconds, faults.pop, name, None)

    # ---- seats

    def start(self, seat: int) -> None:
        """Starts a worker in a seat, if the seat is empty."""
        if self.workers.seats.get(seat) is None:
            self._record(self.workers.start(seat).process.name, "starts")

    def ended(self, member: WorkerProcess, seat: int, problem: BaseException | None) -> None:
        """Starts another worker after one has ended by itself. Raises Violation if it failed."""
        if problem is not None:
            raise Violation("CRASHED", f"{member.process.name}: {problem!r}")
        self._record(member.process.name, "has ended")
        self.timeline.at(self.timeline.now + RESTARTED_AFTER, self.start, seat)

    def stop(self) -> None:
        """Stops all faults: every process continues, and each empty seat gets a worker."""
        self.over = True
        self._record("world", "all faults stop")
        self.network.fates.stop()
        self.network.away = False
        self.network.link_faults.clear()
        self.network.shard_faults.clear()
        for seat, member in sorted(self.workers.seats.items()):
            if member is None:
                self.start(seat)
            else:
                member.process.trap = None
                self.go_on(member.process)

    @property
    def _shards(self) -> int:
        return self.workers.scenario.shards

    def _record(self, who: str, what: str, counted: str = "") -> None:
        self.trace.add(self.timeline.now, who, what)
        if counted:
            self.figures.count(counted)


def take_over(store: Store, partition: str, item_id: str, shadow: Shadow) -> bool:
    """Raises the version of an item, and of its token if that waits: only its holder writes a lock.
    Returns whether there was anything to raise.
    """
    item = shadow.item
    if item is None or item.version == NEWER:
        return False
    keys = [item_key(item_id), *(next_key(one.ready, item_id) for one in shadow.tokens.values())]
    rows = [row for key in keys if (row := store.contents.row(partition, key)) is not None]
    raised: dict[str, Value] = {"version": NEWER, **more(store.contents.etag)}
    ops = [Merge(row.key, raised, row.etag) for row in rows]
    sender = Sender(name="newer version", verb="take over", newer=True)
    store.commit(sender, partition, ops, [dict(raised) for _ in ops], sent=store.timeline.now)
    return True
