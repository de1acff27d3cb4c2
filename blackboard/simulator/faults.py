"""Fault injection: carries out the plan of a world, and sends operators' requests.

When a worker was killed or has ended, another one starts in its seat. A trap waits for the next
batch of its process, so that kills and pauses happen between any two steps of the protocol.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from msgspec.structs import replace

from blackboard.errors import BlackboardError
from blackboard.model import Mark
from blackboard.phrases import iso
from blackboard.protocol import additions, edits
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.keys import item_key, next_key, partition, shard_of
from blackboard.simulator.changes import Shadows
from blackboard.simulator.invariants import Violation
from blackboard.simulator.network import BusFault, LinkFault, Network, ShardFault
from blackboard.simulator.processes import Process, Timeline, Trap, TrapPoint
from blackboard.simulator.results import Figures, Trace
from blackboard.simulator.scenario import BOARD, Fault, Injection, Scenario, SimulatedItem
from blackboard.simulator.store import NEWER, Sender, StoreClient, more
from blackboard.simulator.workers import Happening, WorkerProcess, Workers
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

_FAILING = {Fault.SHARD: "sick partitions", Fault.PARTITION: "partitions", Fault.BUS: "sick buses"}
"""How faults that last are counted."""
How = TypeVar("How")

# ---- operators

MISSED = ("one", "all", "none")
JITTERS = (None, None, "90s")
HALF = 0.5
EMPTYING = 0.25
"""The share of edits that empty the checkpoint."""
ABOUT_NOW = timedelta(hours=1)
"""How far before or after now a single time of an edited item lies, at most."""
_MARKS: dict[str, Callable[..., Any]] = {"pause": edits.pause, "resume": edits.resume}
_FREES: dict[str, Callable[..., Any]] = {"unlock": edits.unlock, "cancel": edits.cancel}
OF_SHARED = {"pause", "resume", "unlock", "cancel", "edit"}
"""Verbs for the items of shared work; of these, an edit changes the checkpoint alone."""


class Operators:
    """The operators of a world. Each of their requests is a task and a sender of its own."""

    def __init__(
        self, board: BoardTable, client: StoreClient, process: Process, scenario: Scenario
    ) -> None:
        self._board = board
        self._client = client
        self._process = process
        self._items = scenario.items
        self._shared = [
            (item_id, shared.group) for shared in scenario.shared for item_id in shared.ids
        ]
        self._count = 0

    def request(self, verb: str, number: int, detail: float) -> None:
        """Sends one request about item `number`. It may be refused, or change nothing."""
        self._count += 1
        sender = Sender(name=f"person-{self._count}", verb=verb)
        board = self._board.using(self._client.as_sender(sender))
        number %= len(self._items) + len(self._shared)
        if number < len(self._items):
            work = self._request(board, sender, self._items[number], detail)
        elif verb in OF_SHARED:
            item_id, group = self._shared[number - len(self._items)]
            work = self._request_shared(board.group(group), sender, item_id)
        else:
            return
        self._process.loop.spawn(work)

    async def _request_shared(self, board: BoardTable, sender: Sender, item_id: str) -> None:
        with suppress(BlackboardError, TableError):
            if sender.verb == "edit":
                await edits.edit(board, item_id, lambda spec, _: spec, checkpoint="")
            else:
                await _mark(board, sender, item_id)

    async def _request(
        self, board: BoardTable, sender: Sender, item: SimulatedItem, detail: float
    ) -> None:
        spec = other_spec(self._items, detail, board.clock.now())
        with suppress(BlackboardError, TableError):  # refused, or not answered: it gives up
            match sender.verb:
                case "add":
                    await additions.add(board, additions.New(id=item.id, type=item.type, spec=spec))
                case "edit":
                    emptied = "" if detail * 100 % 1 < EMPTYING else None
                    await edits.edit(board, item.id, lambda *_: spec, checkpoint=emptied)
                case "run_now":
                    own_params = {"request": sender.name} if detail < HALF else None
                    await edits.run_now(board, item.id, once=own_params)
                case "remove":
                    await edits.remove(board, item.id)
                case _:
                    await _mark(board, sender, item.id)


async def _mark(board: BoardTable, sender: Sender, item_id: str) -> None:
    """Makes a request that names who makes it."""
    mark = Mark(by="ann", at=board.clock.now())
    if sender.verb in _MARKS:
        await _MARKS[sender.verb](board, item_id, mark)
        return
    item = await board.item(item_id)
    if item is not None and item.running:
        sender.fence = item.fence
        await _FREES[sender.verb](board, item_id, mark, fence=item.fence)


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
    on_back: Callable[[float], None]
    """Called when the store is back, with the moment since when it was away."""
    over: bool = False
    """Whether all faults have stopped."""
    _away_since: float = 0.0

    def inject(self, injection: Injection) -> None:
        if self.over:
            return
        match injection.fault:
            case Fault.OUTAGE:
                self._record("store", f"is away for {injection.seconds:.1f} s", "outages")
                if not self.network.away:
                    self._away_since = self.timeline.now
                self.network.away = True
                self.timeline.at(self.timeline.now + injection.seconds, self._end_outage)
            case Fault.SHARD:
                places = self.workers.scenario.places
                place = places[injection.target % len(places)]  # shrinking leaves places out
                faults, how = self.network.shard_faults, ShardFault(injection.how)
                self._fail(faults, place, how, injection)
            case Fault.BUS:
                self._fail_bus(injection)
            case Fault.CLOCK:
                self._record("store", f"its clock jumps {injection.seconds:+.1f} s", "store jumped")
                self.workers.store.clock.jump(injection.seconds)
            case Fault.VERSIONS:
                self._take_over(injection.target)
            case Fault.EDIT:
                self.figures.count("asked")
                self.operators.request(injection.how, injection.target, injection.seconds)
            case _:
                member = self.workers.seats.get(injection.target)
                if member is not None:
                    self._inject_into(member, injection)

    def _inject_into(self, member: WorkerProcess, injection: Injection) -> None:
        process = member.process
        match injection.fault:
            case Fault.KILL | Fault.PAUSE:
                when = TrapPoint(injection.how)
                process.trap = (
                    Trap(when=when, seconds=injection.seconds)
                    if injection.fault is Fault.PAUSE
                    else Trap(when=when, seconds=None, replaced_after=injection.seconds)
                )
                if when is TrapPoint.NOW:
                    self.trigger(process, process.trap)
            case Fault.JUMP:
                words = f"its wall clock jumps {injection.seconds:+.0f} s"
                self._record(process.name, words, "jumped")
                process.clock.offset += injection.seconds
            case Fault.PARTITION:
                faults, how = self.network.link_faults, LinkFault(injection.how)
                self._fail(faults, process.name, how, injection)
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
        self.workers.happened(member, Happening.STANDS_STILL)
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
        if process.loop.stopped and not process.loop.dead:
            self._record(process.name, "continues")
            process.went_on = self.timeline.now
            process.loop.continue_process()
            self.workers.happened(self.workers.by_name[process.name], Happening.GOES_ON)

    def _end_outage(self) -> None:
        if self.network.away:
            self._record("store", "is back")
            self.network.away = False
            self.on_back(self._away_since)

    def _take_over(self, number: int) -> None:
        """Raises the version of an item, and of its token if it has one, but not of a lock: only
        its holder writes that.
        """
        items, shards = self.workers.scenario.items, self.workers.scenario.shards
        item_id, store = items[number % len(items)].id, self.workers.store  # fewer when shrunk
        shadow = self.shadows.of.get(item_id)
        if shadow is None or shadow.item is None or shadow.item.version == NEWER:
            return
        place = partition(BOARD, shard_of(item_id, shards), shards)
        tokens = (next_key(token.ready, item_id) for token in shadow.tokens.values())
        found = (store.contents.row(place, key) for key in (item_key(item_id), *tokens))
        raised: dict[str, Value] = {"version": NEWER, **more(store.contents.etag)}
        ops = [Merge(row.key, raised, row.etag) for row in found if row is not None]
        sender = Sender(name="newer version", verb="take over", newer=True)
        store.commit(sender, place, ops, [dict(raised) for _ in ops], sent=self.timeline.now)
        self._record(item_id, "is taken over by a newer version", "taken over")

    def _fail_bus(self, injection: Injection) -> None:
        names = self.workers.scenario.with_bus
        if injection.target >= len(names):
            return  # shrinking leaves shared work out
        name = names[injection.target]
        self._record_failing(name, injection)
        part = self.workers.parts[name]
        part.bus_fails(BusFault(injection.how))
        self.timeline.at(self.timeline.now + injection.seconds, part.bus_recovers)

    def _fail(self, faults: dict[str, How], name: str, how: How, injection: Injection) -> None:
        self._record_failing(name, injection)
        faults[name] = how
        self.timeline.at(self.timeline.now + injection.seconds, faults.pop, name, None)

    def _record_failing(self, who: str, injection: Injection) -> None:
        words = f"{injection.how}, for {injection.seconds:.1f} s"
        self._record(who, words, _FAILING[injection.fault])

    # ---- seats

    def start(self, seat: int) -> None:
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
        self._end_outage()
        self.network.link_faults.clear()
        self.network.shard_faults.clear()
        for part in self.workers.parts.values():
            part.faults_stop()
        for seat, member in sorted(self.workers.seats.items()):
            if member is None:
                self.start(seat)
            else:
                member.process.trap = None
                self.go_on(member.process)

    def _record(self, who: str, words: str, counted: str = "") -> None:
        self.trace.add(self.timeline.now, who, words)
        if counted:
            self.figures.count(counted)
