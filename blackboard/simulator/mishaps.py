"""What goes wrong in a world: the plan carried out, and what follows of it.

A worker that is killed, or has ended, is followed by another in its seat. A trap waits for the
next batch of its process: so kills and pauses come about between any two steps of the protocol,
and not only in the long times in which nothing is under way.
"""

from dataclasses import dataclass

from blackboard.protocol.keys import partition, shard_of
from blackboard.simulator.changes import Shadows
from blackboard.simulator.crew import BOARD, Crew, Member
from blackboard.simulator.desk import Desk
from blackboard.simulator.figures import Figures
from blackboard.simulator.host import Process, Trap, When
from blackboard.simulator.network import Broken, Network, Sick
from blackboard.simulator.plan import Happening
from blackboard.simulator.scenario import Trouble
from blackboard.simulator.timeline import Timeline
from blackboard.simulator.trace import Trace
from blackboard.simulator.versions import take_over
from blackboard.simulator.violation import Violation
from blackboard.simulator.weather import Calm

RESTARTED_AFTER = 1.0
"""Seconds until another takes the seat of a worker that has ended."""
_ABOUT = {
    When.NOW: "",
    When.BEFORE: ", a batch of its own about to be sent",
    When.SENT: ", a batch of its own just sent",
    When.APPLIED: ", a batch of its own just applied",
}


@dataclass(slots=True, kw_only=True)
class Mishaps:
    """Does to a world what its plan says."""

    timeline: Timeline
    trace: Trace
    figures: Figures
    network: Network
    crew: Crew
    desk: Desk
    shadows: Shadows
    over: bool = False
    """Whether all troubles have stopped."""

    def happens(self, one: Happening) -> None:
        """One trouble of the plan."""
        if self.over:
            return
        match one.trouble:
            case Trouble.OUTAGE:
                self._the_store_goes_away(one.seconds)
            case Trouble.SHARD:
                self._a_partition_falls_sick(one.target, Sick(one.how), one.seconds)
            case Trouble.CLOCK:
                self._tell("store", f"its clock jumps {one.seconds:+.1f} s", "store jumped")
                self.crew.store.clock.jump(one.seconds)
            case Trouble.VERSIONS:
                self._an_item_is_taken_over(self.crew.scenario.items[one.target].id)
            case Trouble.EDIT:
                self.figures.count("asked")
                self.desk.ask(one.how, one.target, one.seconds)
            case _:
                member = self.crew.seats.get(one.target)
                if member is not None:
                    self._befalls(member, one)

    def _befalls(self, member: Member, one: Happening) -> None:
        process = member.process
        match one.trouble:
            case Trouble.KILL | Trouble.PAUSE:
                when = When(one.how)
                process.trap = (
                    Trap(when=when, seconds=one.seconds)
                    if one.trouble is Trouble.PAUSE
                    else Trap(when=when, seconds=None, replaced_after=one.seconds)
                )
                if when is When.NOW:
                    self.spring(process, process.trap)
            case Trouble.JUMP:
                self._tell(process.name, f"its wall clock jumps {one.seconds:+.0f} s", "jumped")
                process.clock.offset += one.seconds
            case Trouble.PARTITION:
                self._is_cut_off(process, Broken(one.how), one.seconds)
            case _:
                self._tell(process.name, "is asked to stop", "redeployed")
                process.loop.call_soon(self.crew.ask_to_stop, member)

    def spring(self, process: Process, trap: Trap) -> None:
        """A trap does its work."""
        process.trap = None
        member = self.crew.by_name.get(process.name)
        if self.over or member is None or not process.runs:
            return
        now, about = self.timeline.now, _ABOUT[trap.when]
        if trap.seconds is None:
            self._tell(process.name, f"is killed{about}", "killed")
            process.loop.stop_process()  # it may be in the middle of something, here and now
            self.timeline.at(now, self._is_buried, member, trap.replaced_after)
        else:
            self._tell(process.name, f"stands still for {trap.seconds:.1f} s{about}", "paused")
            process.loop.stop_process()
            self.timeline.at(now + trap.seconds, self.goes_on, process)

    def _is_buried(self, member: Member, replaced_after: float) -> None:
        seat = self.crew.seat_of(member)
        self.crew.kill(member)
        self.timeline.at(self.timeline.now + replaced_after, self.hire, seat)

    def goes_on(self, process: Process) -> None:
        """A process that stood still is continued."""
        if process.loop.stopped and not process.loop.dead:
            self._tell(process.name, "goes on")
            process.went_on = self.timeline.now
            process.loop.continue_process()

    def _the_store_goes_away(self, seconds: float) -> None:
        self._tell("store", f"is away for {seconds:.1f} s", "outages")
        self.network.away = True
        self.timeline.at(self.timeline.now + seconds, self._the_store_comes_back)

    def _the_store_comes_back(self) -> None:
        if self.network.away:
            self._tell("store", "is back")
            self.network.away = False

    def _a_partition_falls_sick(self, number: int, how: Sick, seconds: float) -> None:
        name = partition(BOARD, number, self.crew.scenario.shards)
        self._tell(name, f"{how.value}, for {seconds:.1f} s", "sick partitions")
        self.network.sick[name] = how
        mended = self.timeline.now + seconds
        self.timeline.at(mended, self.network.sick.pop, name, None)

    def _an_item_is_taken_over(self, item_id: str) -> None:
        shards = self.crew.scenario.shards
        place = partition(BOARD, shard_of(item_id, shards), shards)
        shadow = self.shadows.of.get(item_id)
        if shadow is not None and take_over(self.crew.store, place, item_id, shadow):
            self._tell(item_id, "is taken over by a newer version", "taken over")

    def _is_cut_off(self, process: Process, how: Broken, seconds: float) -> None:
        self._tell(process.name, f"{how.value}, for {seconds:.1f} s", "partitions")
        self.network.broken[process.name] = how
        mended = self.timeline.now + seconds
        self.timeline.at(mended, self.network.broken.pop, process.name, None)

    # ---- seats

    def hire(self, seat: int) -> None:
        """A new worker starts in a seat, if nobody sits there."""
        if self.crew.seats.get(seat) is None:
            self._tell(self.crew.hire(seat).process.name, "starts")

    def ended(self, member: Member, seat: int, problem: BaseException | None) -> None:
        """A worker has ended by itself: because it was asked to, or it is a violation."""
        if problem is not None:
            raise Violation("CRASHED", f"{member.process.name}: {problem!r}")
        self._tell(member.process.name, "has ended")
        self.timeline.at(self.timeline.now + RESTARTED_AFTER, self.hire, seat)

    def stop(self) -> None:
        """All troubles stop: whoever is away comes back."""
        self.over = True
        self._tell("world", "all troubles stop")
        self.network.weather = Calm()
        self.network.away = False
        self.network.broken.clear()
        self.network.sick.clear()
        for seat, member in sorted(self.crew.seats.items()):
            if member is None:
                self.hire(seat)
            else:
                member.process.trap = None
                self.goes_on(member.process)

    def _tell(self, who: str, what: str, counted: str = "") -> None:
        self.trace.add(self.timeline.now, who, what)
        if counted:
            self.figures.count(counted)
