"""A fleet of real workers to which everything happens at once, as `troubles.py` has planned it.

On Azurite each worker has a proxy of its own, which loses and refuses requests all the time. On
SQLite, whose clock is the host's, no worker's clock is ahead of the host's: what is written by one
that is would not be due, for the others, until they are there too.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from blackboard.protocol.board_table import BoardTable
from blackboard.tables.azurite import Emulator
from tests.proof.chaos.skewed import DAY, HOUR, WallClock
from tests.proof.chaos.troubles import SEATS, Strike, Trouble
from tests.support.processes import Site, Started, all_gone, eventually, halt
from tests.support.proxy import BUSY, Fault, Lost, Proxy, Stall, proxied

BUSY_RATE, LOST_RATE = 0.05, 0.02
LAGGING = (5, 6, 7)
"""Seats whose clocks are always behind the host's by two hours: behind the true time by one."""
ONE_WAY: dict[Trouble, Fault] = {Trouble.DEAF: Lost(), Trouble.SLOW: Stall(after=4.0)}
LOOK_EVERY = 1.0


@dataclass
class Seat:
    """Where one worker after the other works."""

    clock: WallClock
    store: str
    """The address that its workers have."""
    proxy: Proxy | None = None
    lag: int = 0
    """Seconds that its clock is behind the host's, from the beginning."""
    fallen: int = 0
    """Seconds that it is behind besides, for some time."""
    worker: Started = field(init=False)


@dataclass
class Storm:
    """The workers of a site, and what has happened to them."""

    site: Site
    seats: list[Seat]
    host: WallClock
    """What the workers' host takes the time for. An hour ahead, and then days."""
    ahead: int = HOUR
    happened: Counter[Trouble] = field(default_factory=Counter)
    killed: dict[int, float] = field(default_factory=dict)
    """By process id, the monotonic moment."""
    back: list[str] = field(default_factory=list)
    """Fences that were seen to go back."""
    _fences: dict[str, int] = field(default_factory=dict)
    _looked: float = 0.0
    _walks: list[int] = field(default_factory=list)
    """Of each worker, when all was healed."""

    # ---- from beginning to end

    def begin(self) -> None:
        """All workers are there, and trouble begins."""
        self._set_clocks()
        for seat in self.seats:
            self._take_seat(seat)
        for seat in self.seats:
            self.site.works(seat.worker)
            self._mend(seat)

    def rage(self, strikes: Sequence[Strike], *, seconds: float) -> None:
        """What is planned within so many seconds happens, each at its moment or soon after."""
        begun = time.monotonic()
        for strike in strikes:
            if strike.at < seconds:
                self._wait_until(begun + strike.at)
                self._strike(strike)
        self._wait_until(begun + seconds)

    def heal(self) -> None:
        """Nothing happens any more, and all goes on. Clocks that were wrong from the beginning
        stay so.
        """
        for seat in self.seats:
            seat.worker.send(signal.SIGCONT)
            seat.fallen = 0
            if seat.proxy is not None:
                seat.proxy.up()
                seat.proxy.calm()
                seat.proxy.land()
        self._set_clocks()
        self._walks = [walks(seat.worker) for seat in self.seats]

    def all_walk_again(self) -> bool:
        """Whether each worker has walked the board since, and again."""
        return all(
            walks(seat.worker) > before + 1
            for seat, before in zip(self.seats, self._walks, strict=True)
        )

    def end(self) -> None:
        """Each worker is asked to stop, and does; nothing that any of them started is left."""
        for seat in self.seats:
            self.site.below(seat.worker)
            seat.worker.send(signal.SIGTERM)
        for seat in self.seats:
            assert seat.worker.ended() == 0, seat.worker.text
        eventually(lambda: all_gone(self.site.orphans), "all processes end")

    def _wait_until(self, moment: float) -> None:
        """Look at the board meanwhile."""
        while (left := moment - (now := time.monotonic())) > 0:
            if now >= self._looked + LOOK_EVERY:
                self._looked = now
                self._look()
            else:
                time.sleep(min(left, LOOK_EVERY))

    def _look(self) -> None:
        for item_id, fence in self.site.run(_fences_of).items():
            if fence < self._fences.get(item_id, 0):
                self.back.append(f"{item_id}: {fence} after {self._fences[item_id]}")
            self._fences[item_id] = fence

    # ---- one trouble

    def _strike(self, strike: Strike) -> None:
        seat = self.seats[strike.seat]
        self.happened[strike.trouble] += 1
        match strike.trouble:
            case Trouble.KILL:
                self._kill(seat)
            case Trouble.STOP:
                self._stop(seat)
            case Trouble.GO_ON:
                seat.worker.send(signal.SIGCONT)
            case Trouble.FALL_BACK | Trouble.CATCH_UP:
                seat.fallen = DAY if strike.trouble is Trouble.FALL_BACK else 0
                self._set_clocks()
            case Trouble.DAY:
                self.ahead += DAY
                self._set_clocks()
            case Trouble.MEND:
                self._mend(seat)
            case _:
                self._part(seat, strike.trouble)

    def _take_seat(self, seat: Seat) -> None:
        seat.worker = self.site.worker(
            "-v", cycle="1s", store=seat.store, environ=seat.clock.environ
        )

    def _kill(self, seat: Seat) -> None:
        self.site.below(seat.worker)
        seat.worker.send(signal.SIGKILL)
        assert seat.worker.ended() == -signal.SIGKILL, seat.worker.text
        self.killed[seat.worker.pid] = time.monotonic()
        self._take_seat(seat)

    def _stop(self, seat: Seat) -> None:
        halt(seat.worker.process, seat.store)

    def _part(self, seat: Seat, trouble: Trouble) -> None:
        assert seat.proxy is not None
        if trouble is Trouble.CUT:
            seat.proxy.down()
        else:
            seat.proxy.chance(1.0, ONE_WAY[trouble])

    def _mend(self, seat: Seat) -> None:
        """It has its store again, as bad as it always is."""
        if seat.proxy is not None:
            seat.proxy.up()
            seat.proxy.calm()
            seat.proxy.chance(BUSY_RATE, BUSY)
            seat.proxy.chance(LOST_RATE, Lost())

    def _set_clocks(self) -> None:
        self.host.is_ahead(self.ahead)
        for seat in self.seats:
            seat.clock.is_ahead(self.ahead - seat.lag - seat.fallen)


def walks(worker: Started) -> int:
    return sum(event["event"] == "walked" for event in worker.events)


async def _fences_of(board: BoardTable) -> dict[str, int]:
    return {item.id: item.fence async for item in board.items()}


@contextmanager
def storm_over(site: Site, emulator: Callable[[], Emulator], *, seed: int) -> Iterator[Storm]:
    """A storm that has not begun. `emulator` is asked when the board of the site is on Azurite."""
    with ExitStack() as stack:
        seats = []
        for number in range(SEATS):
            seat = Seat(
                clock=WallClock(site.folder / f"clock-{number}"),
                store=site.store,
                lag=2 * HOUR if number in LAGGING else 0,
            )
            if site.store.startswith("azurite:"):
                port = emulator().port
                seat.proxy = stack.enter_context(proxied(port, seed=seed + number))
                seat.store = site.store.replace(f":{port}/", f":{seat.proxy.port}/")
            seats.append(seat)
        yield Storm(site=site, seats=seats, host=WallClock(site.folder / "clock-host"))
