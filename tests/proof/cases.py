"""Situations in which systems of this kind are known to fail, and what must hold in each.

They come from the tests and the incident reports of other schedulers, locks and lease libraries,
which `after` names. Each is shown by tests that have its mark (`@pytest.mark.case("LF01")`), on
every store that it touches: those in `stores`, with the reason in `why` where they are fewer than
all. A situation without tests cannot occur in this system; `why` says for what reason.
"""

from dataclasses import dataclass

EVERY_STORE = ("memory", "sqlite", "azurite")
SEVERAL_PROCESSES = ("sqlite", "azurite")
PROCESSES = "needs processes of their own, which a table in memory does not have"
NO_STORE = "decided without a store"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A situation, and what must hold in it."""

    says: str
    after: str = ""
    stores: tuple[str, ...] = EVERY_STORE
    why: str = ""
    absent: bool = False
    """Whether it cannot occur in this system."""


GUARANTEES: dict[str, Case] = {
    "S1": Case(says="For each item and period, at most one completion takes effect."),
    "S2": Case(says="No worker releases the lock of another."),
    "S3": Case(says="After a higher fence, no lower one is accepted."),
    "S4": Case(says="A holder whose lock was touched within its lease is not overridden."),
    "L1": Case(says="Once faults stop, every due period takes effect within its bound."),
    "L2": Case(says="No worker waits for a lock of its own."),
}

LOCKS: dict[str, Case] = {
    "ME01": Case(
        says="To take a lock and let it go leaves no row of it.",
        after="ShedLock shouldCreateLock",
    ),
    "ME03": Case(
        says="Two items are locked independently of each other.",
        after="ShedLock shouldCreateTwoIndependentLocks",
    ),
    "ME05": Case(
        says="Counters that only locks protect are exact, with eight workers at two locks, one of "
        "which works less than the others.",
        after="ShedLock FuzzTester",
    ),
    "ME07": Case(
        says="Of items that run once, 10,000 in the long form, two processes with ten slots each "
        "run every one exactly once; none is left, none is told as dead.",
        after="db-scheduler ClusterTests",
    ),
    "ME09": Case(
        says="What workers see of a lock agrees with some order of its takings and releases.",
        after="jepsen, porcupine",
    ),
    "ME11": Case(
        says="A holder that claims its own item again is refused.",
        after="acquireLock_withReentrantFalse_failsIfHoldingLock",
    ),
    "ME13": Case(
        says="A lock outlives the client that took it.",
        after="ShedLock lockShouldSurviveCacheClearingInTheMiddle",
    ),
    "ME15": Case(
        says="Of several that want a turn at one lock, each gets it, within as many turns.",
        after="Consul TestLock_Contend",
    ),
    "OV02": Case(
        says="A lock that is touched between the reading of an overrider and its batch stays.",
        after="acquireLock_whenExpiredCachedLockIsConcurrentlyUpdated",
    ),
    "OV04": Case(says="A holder that was overridden, and lets go, leaves the overrider's lock."),
    "OV06": Case(
        says="A lock that is renewed while a worker waits for it has a new lease, and is left."
    ),
    "OV08": Case(
        says="A process that has just started may override at once: by the store's own two stamps, "
        "when they say more than the lease and what the clock can tell."
    ),
    "OV10": Case(
        says="An interval that is changed while its item runs leaves the lease as it was."
    ),
    "OV12": Case(
        says="At exactly its lease, and a millisecond beside it, a lock is not overridden.",
        after="ShedLock 1968",
    ),
    "LF01": Case(
        says="A holder that paused longer than its lease, while a successor finished, is told as "
        "late; where the type is fenced, its result is dropped.",
        after="Kleppmann, etcd contrib/lock",
    ),
    "LF03": Case(
        says="Fences rise, over release, override, unlock, removal, re-creation and restarts.",
        after="FencingTokenMonotonic",
    ),
    "LF05": Case(
        says="Who does not hold a lock, or holds it no more, can neither renew it nor let it go.",
        after="cannotReleaseLockYouDontOwn, cannotHeartbeatExpiredLock",
    ),
    "LF07": Case(says="A release that comes late dispatches nothing again.", after="solid_queue"),
    "LF09": Case(
        says="A worker does not renew, or let go, a newer claim of its own for an older one.",
        after="River DoesNotResignNewerTermForSameLeaderID",
    ),
    "LF11": Case(
        says="A run whose item was removed meanwhile neither brings it back nor leaves a lock.",
        after="opendistro job-scheduler 54",
    ),
}

REPLIES: dict[str, Case] = {
    "LR01": Case(
        says="A claim or an adding whose reply was lost is known by its nonce, and runs once."
    ),
    "LR03": Case(
        says="A release or an override whose reply was lost is settled by reading, and has "
        "happened once.",
        after="azure-storage-node 290",
    ),
    "LR05": Case(says="A renewal whose reply was lost keeps its lock, with the etag it now has."),
    "LR07": Case(says="A request that never arrived is made again, and leaves one row."),
    "LR09": Case(
        says="A claim that lands after its owner gave it up is found and adopted by its owner.",
        after="jepsen lock.clj",
    ),
    "LR11": Case(says="A batch of which nothing is known is settled one by one."),
}

CLOCKS: dict[str, Case] = {
    "CS02": Case(says="Wall clocks that are ten years wrong, or in 1970, do no harm."),
    "CS04": Case(says="A store whose clock differs from those of all workers decides alone."),
    "CS06": Case(
        says="Two nodes that differ by more than a run takes run each slot once.",
        after="ShedLock 6",
    ),
    "CJ01": Case(says="A wall clock that jumps by a day takes no lock: leases go by seconds."),
    "CJ03": Case(
        says="What was due runs when a clock that jumped back returns.",
        after="Quartz.NET SystemTimeClockJumpTest",
    ),
    "CJ05": Case(says="Clocks set a little, and leap seconds that are smeared, cost no run."),
}

PROCESSES_AND_NETWORKS: dict[str, Case] = {
    "PP02": Case(
        says="A process that stood still between reading a stale lock and replacing it takes "
        "nothing that changed meanwhile."
    ),
    "PP04": Case(
        says="A handler whose worker stands still is stopped before anybody takes its lock.",
        stores=SEVERAL_PROCESSES,
        why=PROCESSES,
    ),
    "PP06": Case(
        says="Handlers that hold the interpreter's lock, or all threads, delay no renewal.",
        stores=SEVERAL_PROCESSES,
        why=PROCESSES,
    ),
    "KI01": Case(
        says="A holder that is killed has a successor within its lease and two cycles.",
        after="TestKillOneWorker",
    ),
    "KI03": Case(
        says="A worker may end before or after every single request, and nothing is lost.",
        after="etcd's failpoints",
    ),
    "KI05": Case(
        says="A worker that is back before its lease is over goes on under its old name, or waits "
        "under a new one; there are never two.",
        after="TestWorkerRestartBeforeLeaseExpired, Akka",
    ),
    "KI07": Case(
        says="Workers whose supervisor is killed stop by themselves, and so do their children.",
        after="solid_queue",
        stores=SEVERAL_PROCESSES,
        why=PROCESSES,
    ),
    "KI09": Case(
        says="A worker whose renewals stop, for whatever reason, takes nothing more and ends.",
        after="solid_queue 778",
    ),
    "NP02": Case(says="A holder that can read and not write stops before anybody takes its lock."),
    "NP04": Case(
        says="With the network cut into halves again and again, every target is met once it is "
        "whole.",
        after="Chronos",
        stores=("memory",),
        why="the network between many workers and their store is simulated, over one in memory",
    ),
    "NP06": Case(
        says="Requests that take up to half a second, and overtake each other, move no lock."
    ),
}

STORES: dict[str, Case] = {
    "SO02": Case(
        says="Nodes that lost their store for hours recover each item once when it is back.",
        after="Quartz 847",
    ),
    "SO04": Case(says="A worker that starts before its store is there waits for it."),
    "SO06": Case(
        says="After an outage workers come back one after the other.",
        after="the collapse of EC2's leases",
    ),
    "SO08": Case(
        says="A table that is missing, or is being deleted, is told with a remedy and waited for.",
        after="Akka.Persistence.Azure 10",
        stores=SEVERAL_PROCESSES,
        why="a table in memory is there as long as its process",
    ),
    "TH02": Case(
        says="A wait that a busy store asks for may be seconds, a date, nothing, too long or "
        "garbage, and has an upper limit.",
        stores=("azurite",),
        why="no other store says how long to wait",
    ),
    "TH04": Case(
        says="A thousand items that are due in one partition stay below what it takes in a "
        "second, or are given the time that it needs."
    ),
    "SR01": Case(says="After a restart that loses nothing, all go on within the longest pause."),
    "SR03": Case(
        says="After a restart that loses all rows, workers live, and run what is added again.",
        stores=("azurite",),
        why="the emulator alone can be started again without its rows",
    ),
    "DF02": Case(
        says="A disk that is full, or fails at a write, corrupts nothing and loses nothing that "
        "was acknowledged.",
        stores=("sqlite",),
        why="the only store on a disk of this machine",
    ),
    "DF04": Case(
        says="A worker that cannot write its log goes on.",
        stores=SEVERAL_PROCESSES,
        why=PROCESSES,
    ),
    "CR02": Case(says="A lock without an item goes; an item without a lock or token gets one."),
    "CR04": Case(
        says="A file that was cut short, or has flipped bits, is refused in clear words.",
        stores=("sqlite",),
        why="the only store that is a file",
    ),
}

RUNS: dict[str, Case] = {
    "DD01": Case(
        says="The second call for a period finds it done, or learns that it is the second."
    ),
    "DD03": Case(says="A run that is asked for and the schedule's own are one run for each."),
    "DD05": Case(
        says="Messages of a partition that moved are given up, not worked on.",
        after="durable-extension 382",
        absent=True,
        why="no worker owns a partition, or keeps messages of one",
    ),
    "RR02": Case(
        says="What outlasts the grace of a worker that is asked to stop is put back once it has "
        "stopped; what cannot be stopped keeps its lock, and others wait.",
        after="solid_queue",
    ),
    "RR04": Case(
        says="Old and new versions share a board: fields that one does not know are kept, items it "
        "does not understand are left alone.",
        after="etcd's mixed versions",
    ),
    "RR06": Case(says="Asked to stop again and again, a worker stops at once, and once."),
}

SIZES: dict[str, Case] = {
    "OP01": Case(says="What is too large for a row or a batch is refused before it is sent."),
    "HK01": Case(says="Any text is an id: its key can be read back, and no two share one."),
    "HK03": Case(
        says="Partition and key cannot be taken for others that are the same side by side.",
        after="uniqueIdentifier_whenPartitionAndSortKeyCouldConcatenateSame",
    ),
}

CALENDARS: dict[str, Case] = {
    "CAL01": Case(
        says="A fixed time that the clocks skip runs once, right after.",
        after="Quartz.NET FixedTimeInsideGap",
        stores=(),
        why=NO_STORE,
    ),
    "CAL03": Case(
        says="A local day has 23 or 25 hourly runs when the clocks change, and what runs every 15 "
        "seconds is never silent for an hour.",
        after="cron-plus 108",
        stores=(),
        why=NO_STORE,
    ),
    "CAL05": Case(
        says="29 February, days that never come, last days, the year 2100, week 53 and the number "
        "of Sunday are as the calendar has them.",
        stores=(),
        why=NO_STORE,
    ),
    "CAL07": Case(
        says="An outage of three days is caught up by one run: not none, not 4,320.",
        after="Kubernetes 42649, 81557",
    ),
}

CROWDS: dict[str, Case] = {
    "HERD01": Case(
        says="Of 1,000 items due at one moment and 100 workers, all start within seconds, a "
        "worker loses a handful of claims on the way, and phases outlast a restart.",
        after="hertzbeat 4328",
        stores=("memory",),
        why="so many workers are simulated, over a store in memory",
    ),
    "BAL02": Case(
        says="Who joins or leaves moves few partitions, and nothing moves in a steady state.",
    ),
    "EL02": Case(
        says="An election gives no authority; a lease in the store does.",
        stores=("memory",),
        why="the lock of an election is that of any item, which is shown on every store",
    ),
}

CASES: dict[str, Case] = {
    **LOCKS,
    **REPLIES,
    **CLOCKS,
    **PROCESSES_AND_NETWORKS,
    **STORES,
    **RUNS,
    **SIZES,
    **CALENDARS,
    **CROWDS,
    **GUARANTEES,
}
