"""The guard: a small process beside a worker that ends child processes whose lease ran out.

**Why a process of its own.** A handler must not run on when its worker is stopped (SIGSTOP, a
paused container, a debugger) and the lease has passed, for then another worker runs the same item.
The worker cannot end it: it is stopped. The child cannot be trusted to end itself: a handler in C
code that holds the interpreter's lock keeps every Python thread of the child from running, its
signal handlers too. An alarm set in the child beforehand (setitimer, RLIMIT_CPU) would kill it, but
could not be postponed: the same handler keeps the child from reading that the lease was renewed,
and a healthy one would die with each renewal it missed. So a process that runs no handler, receives
the renewals and has nothing else to do keeps the time.

It also ends all children when the worker has ended, for whatever reason, together with what they
started; and the worker itself, when its loop stands still: an `async def` handler that computes, or
holds the interpreter's lock, blocks every renewal. SIGABRT makes the worker's faulthandler show
where it is. A worker that is still there some seconds later is killed: its traceback waits for a
stream that is not read, or a handler ignores the signal. (faulthandler's own alarm cannot
distinguish a loop that stands still from a process that was stopped and continued, and would end
the latter when it continues.)

**Protocol.** It reads lines from stdin: `PID DEADLINE` lets the child PID, the leader of a session
of its own, run until DEADLINE on the monotonic clock, which is one for all processes of a host;
`PID` alone says that the child has ended; PID 0 is the worker's loop. It writes the PID of each
child that it is about to kill. It ends when stdin does. It starts in 10 ms because it imports next
to nothing; therefore it takes the clock from `time`, as no other file but `clock.py` does.
"""

import os
import select
import signal
from contextlib import suppress
from time import monotonic

LONGEST_SLEEP = 3600.0
"""Seconds. `select` takes no infinite timeout."""
LOOP = 0
"""The PID that stands for the worker's loop."""
ASLEEP = -1
"""The PID that stands for a worker that was found stopped."""
ABORTED = -2
"""The PID that stands for a worker that was sent SIGABRT."""
ABORTS_WITHIN = 5.0
"""Seconds in which a worker shows where it is, and ends."""
AWAKE = 2.0
"""Seconds in which a worker that was stopped must say that its loop turns, once it continues."""
LOOK_AGAIN = 0.5
"""Seconds between two looks at a stopped worker. Where the guard itself is later than that, it was
stopped, too."""


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.set_blocking(1, False)
    worker = os.getppid()
    deadlines: dict[int, float] = {}
    half = b""
    while True:
        nearest = min(deadlines.values(), default=LONGEST_SLEEP + monotonic())
        sleep = min(max(nearest - monotonic(), 0.0), LONGEST_SLEEP)
        if select.select([0], [], [], sleep)[0]:
            data = os.read(0, 65536)
            if not data:
                break
            *lines, half = (half + data).split(b"\n")
            for line in lines:
                update(line, deadlines)
        else:
            # Only when nothing is left to read: a renewal may have been waiting there.
            end_overdue(deadlines, worker)
    for pid in deadlines:
        if pid > LOOP:
            kill(pid)


def update(line: bytes, deadlines: dict[int, float]) -> None:
    match line.split():
        case [pid, deadline]:
            deadlines[int(pid)] = float(deadline)
        case [pid]:
            deadlines.pop(int(pid), None)


def end_overdue(deadlines: dict[int, float], worker: int) -> None:
    now = monotonic()
    for pid in [pid for pid, deadline in deadlines.items() if deadline <= now]:
        late = now - deadlines.pop(pid)
        if pid <= LOOP:
            check_loop(pid, deadlines, worker, late=late)
            continue
        with suppress(OSError):  # the worker no longer reads
            os.write(1, b"%d\n" % pid)
        kill(pid)


def check_loop(pid: int, deadlines: dict[int, float], worker: int, *, late: float) -> None:
    """Ends a worker whose loop stands still: by SIGABRT, and if that does not help by SIGKILL. A
    worker that was stopped, or stood still together with this process, gets time to say that its
    loop turns, or to end.
    """
    now = monotonic()
    if pid == ABORTED:
        if late > LOOK_AGAIN or is_stopped(worker):
            deadlines[ABORTED] = now + ABORTS_WITHIN
        elif os.getppid() == worker:  # else it has just gone
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
    elif is_stopped(worker):
        deadlines[ASLEEP] = now + LOOK_AGAIN
    elif pid == ASLEEP or late > LOOK_AGAIN:
        deadlines[LOOP] = max(now + AWAKE, deadlines.get(LOOP, 0.0))
    else:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGABRT)
            deadlines.setdefault(ABORTED, now + ABORTS_WITHIN)


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal or a debugger."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - quicker to start
            state = file.read().rpartition(b")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # no /proc, or the worker has just gone
        # Only a number goes to the shell.
        with os.popen(f"ps -o state= -p {pid:d} 2>/dev/null") as output:  # noqa: S605
            state = output.read().strip().encode()
    return state[:1] in {b"T", b"t"}


def kill(pid: int) -> None:
    """Kills the child and all that it started. The number is still the child's: the worker reports
    that a child has ended before it reaps it.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
