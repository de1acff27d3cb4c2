"""What is promised, and who sees to it: the oracles of the simulator by the kinds of violation that
they tell of, the judges of the model, the model of histories, the tests of real chaos.
"""

from dataclasses import dataclass

from tests.model import judges


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One promise."""

    says: str
    simulator: tuple[str, ...] = ()
    """Kinds of violation."""
    model: tuple[str, ...] = ()
    """Invariants."""
    histories: str = ""
    """What would make a history that cannot be explained."""
    chaos: tuple[str, ...] = ()
    """Files of tests/chaos."""


PROMISES = (
    Promise(
        says="At most one completion takes effect for each item and fence.",
        simulator=("TWICE", "HISTORY", "LATE"),
        model=(judges.HISTORY, judges.LATE, judges.COUNTS_ONCE),
        histories="two releases of one fence are accepted",
        chaos=("test_storm.py", "test_killed.py", "test_faults.py"),
    ),
    Promise(
        says="Fences never go back, as long as the tombstones of removed items are kept.",
        simulator=("FENCE", "ETAG"),
        model=(judges.FENCES_RISE,),
        histories="a fence is granted again, or one is left out",
        chaos=("test_storm.py", "test_killed.py"),
    ),
    Promise(
        says="Nobody frees another's lock, nor renews it; nobody overrides one that was touched "
        "within its `stale_after`.",
        simulator=("FOREIGN release", "RENEWED", "RETRY", "OVERRIDE", "NOT TOLD", "UNTRUSTED"),
        model=(judges.OWN_LOCK, judges.HELD),
        histories="a release or a renewal is accepted from who does not hold the lock; an "
        "override of a lock that was touched since it was read",
        chaos=("test_storm.py", "test_killed.py", "test_paused.py"),
    ),
    Promise(
        says="Every due item starts within one cycle + `stale_after`, while one worker lives that "
        "has a free slot for its type.",
        simulator=("STUCK", "ORPHAN", "NO TOKEN", "TWO TOKENS", "REFUSED", "CRASHED", "PRIORITY"),
        model=(judges.ONE_TOKEN, judges.AGES, judges.RESTS),
        chaos=("test_storm.py", "test_killed.py", "test_away.py", "test_faults.py"),
    ),
    Promise(
        says="A run starts when it is due: by the schedule that its item has by then, or because a "
        "person asked for it. Nothing that is paused starts.",
        simulator=("CLOCK", "SLOT", "SERVED", "PASSED", "STARTED", "WAITING TOKEN"),
        model=(judges.HELD,),
    ),
    Promise(
        says="A run that finished is in the history.",
        simulator=("HISTORY", "LATE"),
        model=(judges.HISTORY,),
        chaos=("test_storm.py", "test_killed.py"),
    ),
    Promise(
        says="No write that was acknowledged is lost, and each counts once.",
        simulator=(
            "TWICE",
            "EDIT LOST",
            "RUN NOW LOST",
            "PROMISE",
            "PARAMS",
            "TOKEN",
            "WAITING TOKEN",
        ),
        model=(judges.PROMISE, judges.ASKED, judges.PROJECTION),
        histories="something later does not see what was acknowledged",
        chaos=("test_disk.py", "test_killed.py"),
    ),
    Promise(
        says="Retries and takeovers keep their limits; a handler that lost its lock, or is told to "
        "stop, is gone within its bound.",
        simulator=("ATTEMPTS", "STOPPED"),
    ),
    Promise(
        says="A handler that spins, or holds the interpreter's lock, delays no renewal, and is "
        "really stopped at its timeout.",
        chaos=("test_starved.py", "test_stubborn.py"),
    ),
)
