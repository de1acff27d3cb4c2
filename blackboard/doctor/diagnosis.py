"""What is wrong with an item and its tokens, from their rows alone. Pure.

    D1   active and not running: its waiting token is there, under the time the item says, alone
    D2   running: its lock is there, with the same fence and owner, and no waiting token
    D3   paused, done or removed: no waiting token; a lock only while it drains
    D4   no token without its item, of an earlier life of it, or in a shard where it does not belong
    D5   the waiting token says what the item says: it is a projection of it
    D6   no run in the history has a higher fence than the item; the newest agrees with it, but may
         end later; no history is without an item, for a removed one leaves a tombstone
    D7   every row can be read, and the board of a group or of elections has its own row; no item
         is due beyond the horizon, unless a person chose that time; nothing is overdue for long,
         unless the board is paused
    D8   no lock is older than its lease plus the longer of lease and cycle, unless the board is
         paused; no lease is longer than a duration can be
    D9   every row is of a kind that belongs in its partition; every key fits the id in its row
    D10  rows of a newer version cannot be judged by this program
    D11  no start or stop lies in the future, and no token waits for a time that its schedule does
         not explain
    D12  the settings of an item that is not removed can be computed, and the limit that its run
         counts against; its type is a pump only if it is a partition
    D13  the board is paused in all shards or in none
    D14  no rename was interrupted: until it is done, its items are paused

These hold of rows that were read at one moment. Rows that are read one after another while workers
run show a healthy item in two places or in none; `cases.py` reads them as of one moment.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from msgspec import Struct

from blackboard.errors import BadRow
from blackboard.model import HIGHEST_FLOOR, VERSION, Item, Lock, Outcome, Run, State, Token, Work
from blackboard.phrases import command, since, span, stamp
from blackboard.protocol import keys
from blackboard.protocol.batches import token_of
from blackboard.protocol.keys import item_key, next_key, shard_of
from blackboard.protocol.rename_marks import renaming_of
from blackboard.protocol.rows import Record, WrongKey, record_in, version_of
from blackboard.rules.wrong_clock import Planning, is_named, problem_of_times
from blackboard.schedule.times import LONGEST
from blackboard.table import Etag, Row

LEASE_NOT_KNOWN = timedelta(hours=1)
"""The lease assumed for an item whose settings cannot be computed, and the shortest one for a lock
that cannot be read: longer than most."""
HORIZON = timedelta(days=51 * 366)
"""How far ahead an item may be due: no repeating schedule looks further than fifty years."""
_APART = {"id", "born", "version", "etag"}
COMPARED = tuple(name for name in Work.__struct_fields__ if name not in _APART)
"""The fields that a token repeats of its item, but those that are judged apart."""
NEWER = "D10"
REPAIR = "`blackboard doctor --repair`"


class Finding(Struct, frozen=True, kw_only=True):
    """Something that is not as it should be."""

    code: str
    subject: str
    """The item's id, a key, or the name of another thing that it is about."""
    problem: str
    grave: bool = True
    """False: worth reporting, but nothing is broken."""
    repaired: bool = False


class Unreadable(Exception):
    """A row that cannot be judged, and why."""

    def __init__(self, code: str, problem: str) -> None:
        super().__init__(problem)
        self.code = code
        self.problem = problem


def judged_in(record_type: type[Record], row: Row, *, age: float = 0.0) -> Record:
    """The record in a row. Raises Unreadable."""
    if (version := version_of(row.data)) > VERSION:
        raise Unreadable(NEWER, newer_words(version))
    try:
        return record_in(record_type, row, age=age)
    except BadRow as bad:
        code = "D9" if isinstance(bad, WrongKey) else "D7"
        raise Unreadable(code, bad.problem) from None


def newer_words(version: int) -> str:
    return f"version {version}, this program reads {VERSION}"


class BadCaseRow(Struct, frozen=True, kw_only=True):
    """A row of an id that cannot be judged, and why."""

    etag: Etag
    code: str
    problem: str
    age: float
    """Seconds since it was written."""
    has_nonce: bool = False
    """Whether it may be a lock that its holder still finds to be its own."""


class LastRun(Struct, frozen=True, gc=False):
    """What the newest run of an item has to agree with."""

    fence: int
    outcome: Outcome
    stop: datetime

    @classmethod
    def of(cls, run: Run) -> "LastRun":
        return cls(run.fence, run.outcome, run.stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the rows of one shard say about one id at one moment."""

    part: str
    """The id as it stands in the keys."""
    id: str
    """The id, or its part of the keys where no row says it."""
    shard: int
    item: Item | None = None
    lock: Lock | None = None
    tokens: Mapping[str, Token] = field(default_factory=dict)
    """Waiting tokens by their keys."""
    newest: LastRun | None = None
    """The run with the highest fence of those that can be read."""
    highest: int = 0
    """The highest fence in the keys of its history that a run can have."""
    bad: Mapping[str, BadCaseRow] = field(default_factory=dict)
    """Its rows that cannot be judged, by key."""

    @property
    def etags(self) -> Mapping[str, Etag]:
        """The etags of all its waiting tokens, by key; an item has the values of bad ones."""
        bad = {key: bad_row.etag for key, bad_row in self.bad.items() if key.startswith(keys.NEXT)}
        return {key: token.etag for key, token in self.tokens.items()} | bad

    @property
    def bad_lock(self) -> BadCaseRow | None:
        return self.bad.get(f"{keys.LOCK}{self.part}")

    @property
    def is_sealed(self) -> bool:
        """Whether nothing but its bad rows is judged: its item is one of them, or it has a lock or
        a token of a newer version.
        """
        return any(
            key.startswith(keys.ITEM) or (bad_row.code == NEWER and not key.startswith(keys.RUN))
            for key, bad_row in self.bad.items()
        )


class Bounds(Struct, frozen=True, kw_only=True):
    """The conditions by which a case is judged."""

    now: datetime
    board: str
    shards: int
    cycle: timedelta
    """What is due or stale is claimed within it, while a worker has a free slot."""
    lease: timedelta
    """The lease that a lock of the item would have."""
    planning: Planning | None
    """The settings and the schedule of the item; None: they cannot be computed."""
    unplanned: str
    """Why no worker can run it (`why_unplanned`)."""
    served: bool
    """Whether a worker is present that takes the item's type: if not, being late is not grave."""
    paused: bool = False
    """Whether the shard is paused: then nothing is late."""


def diagnose(case: Case, bounds: Bounds) -> list[Finding]:
    """All that is wrong with one item and what belongs to it."""
    findings = [_bad(case, key, bounds) for key in case.bad]
    if case.is_sealed:
        return findings
    if case.item is None:
        problems = [*_orphans(case, bounds)]
    elif is_astray(case, bounds):
        problems = [("D4", _astray(f"the row {item_key(case.id)}", case, bounds))]
    else:
        problems = [*_tokens(case, case.item), *_lock(case, case.item), *_history(case, case.item)]
        renaming = renaming_of(case.item)
        if renaming is not None and renaming.is_interrupted(now=bounds.now):
            problems.append(("D14", renaming.words))
        findings += _times(case, case.item, bounds)
    return [
        Finding(code=code, subject=case.id, problem=problem) for code, problem in problems
    ] + findings


def _bad(case: Case, key: str, bounds: Bounds) -> Finding:
    """What is wrong with a row of an id, what it means, and what to do."""
    bad_row = case.bad[key]
    where = keys.partition(bounds.board, case.shard, bounds.shards)
    problem = f"the row {key} in {where}: {bad_row.problem}: {_means(case, key, bounds)}"
    is_grave = not key.startswith(keys.RUN)
    return Finding(code=bad_row.code, subject=case.id, problem=problem, grave=is_grave)


def _means(case: Case, key: str, bounds: Bounds) -> str:
    """What it means that a row of an id cannot be read, and what to do."""
    if case.bad[key].code == NEWER:
        return "it is left to programs of that version"
    family = f"{key.partition(':')[0]}:"
    means = _MEANS[family]
    if family == keys.RUN:
        return means if keys.fence_in(key) else "nothing goes by it (delete it)"
    if family == keys.ITEM:
        is_known = keys.encode_id(case.id) == case.part
        remove = f"{_command('rm', case.id, bounds)} removes it" if is_known else "delete it"
        return f"{means} (write good values into it, or {remove})"
    if case.is_sealed:
        return "its item is not judged either"
    if case.item is None:
        return f"no item has it ({REPAIR} deletes it)"
    if family == keys.LOCK and may_be_held(case, bounds):
        cancel = _command("cancel", case.id, bounds)
        after = span(_longest_held(bounds).total_seconds())
        return f"it is not overridden ({cancel} ends the run; {REPAIR} does, after {after})"
    return means


_MEANS = {
    keys.ITEM: "no worker runs it, and no command but `rm` can use it",
    keys.LOCK: f"it is neither renewed nor overridden ({REPAIR} deletes it)",
    keys.NEXT: f"no worker takes it ({REPAIR} puts that right)",
    keys.RUN: "`log` leaves it out (write good values into it, or delete it)",
}
"""What it means that a row cannot be read, and what to do, by its family."""


def _command(verb: str, item_id: str, bounds: Bounds) -> str:
    """A command about an item, with its board if that belongs to another."""
    return command(verb, item_id, board=keys.group_of(bounds.board) and bounds.board)


def may_be_held(case: Case, bounds: Bounds) -> bool:
    """Whether the lock of an item cannot be read, but may have a holder that is at work."""
    bad, item = case.bad_lock, case.item
    if bad is None or item is None or not item.running:
        return False
    return bad.has_nonce and bad.age <= _longest_held(bounds).total_seconds()


def _longest_held(bounds: Bounds) -> timedelta:
    """The age of a lock that cannot be read after which its holder must be dead."""
    return max(bounds.lease, LEASE_NOT_KNOWN)


def is_astray(case: Case, bounds: Bounds) -> bool:
    """Whether the rows of an id lie in a wrong shard."""
    return shard_of(case.id, bounds.shards) != case.shard


def _astray(subject: str, case: Case, bounds: Bounds) -> str:
    here = keys.partition(bounds.board, case.shard, bounds.shards)
    right = keys.partition(bounds.board, shard_of(case.id, bounds.shards), bounds.shards)
    remedy = f"move it to {right} if that has none, or delete it"
    return f"{subject} lies in {here}, where nothing looks for it ({remedy})"


Problems = Iterator[tuple[str, str]]
"""The code and the text of each problem."""


def _orphans(case: Case, bounds: Bounds) -> Problems:
    if case.lock is not None:
        yield "D4", f"a lock of {case.lock.owner}, but no item"
    for key in case.tokens:
        yield "D4", f"the token {key}, but no item"
    if case.newest is not None and is_astray(case, bounds):
        yield "D4", _astray("its history", case, bounds)
    elif case.newest is not None:
        yield "D6", "a history, but no item: its row is lost (add the item again)"


def _tokens(case: Case, item: Item) -> Problems:
    """D1 to D5, as far as waiting tokens go."""
    named = next_key(item.ready, item.id)
    others = [key for key in case.tokens if key != named]
    if not item.waits:
        code, state = ("D2", "running") if item.running else ("D3", item.state.value)
        for key in case.tokens:
            yield code, f"is {state}, but has the token {key}"
        return
    if named not in case.etags:
        yield "D1", f"waits, but has no token for {stamp(item.ready)}: it will never run"
    for key in others:
        yield "D1", f"has another token, {key}: it would run twice"
    token = case.tokens.get(named)
    if token is None:
        return
    if token.born != item.born:
        yield "D4", f"its token is of an earlier life (born {token.born}, not {item.born})"
    wrong = differences(token, item)
    if wrong:
        yield "D5", f"its token has another {', '.join(wrong)}"


def differences(token: Token, item: Item) -> list[str]:
    """The names of the fields in which a waiting token differs from its item."""
    right = token_of(item)
    return [name for name in COMPARED if getattr(token, name) != getattr(right, name)]


def _lock(case: Case, item: Item) -> Problems:
    """D1 to D4, as far as the lock goes."""
    lock = case.lock
    if lock is None:
        if item.running and case.bad_lock is None:
            yield "D2", f"is running by {item.owner}, but has no lock: it will never run again"
        return
    if item.state is State.REMOVED:
        yield "D3", f"is removed, but {lock.owner} has a lock"
    elif not item.running:
        code = "D1" if item.state is State.ACTIVE else "D3"
        yield code, f"is not running, but {lock.owner} has a lock (fence {lock.fence})"
    elif lock.fence != item.fence:
        yield "D2", f"has fence {item.fence}, but its lock {lock.fence}"
    elif lock.owner != item.owner:
        yield "D2", f"is running by {item.owner}, but its lock is of {lock.owner}"
    if lock.born != item.born:
        yield "D4", f"its lock is of an earlier life (born {lock.born}, not {item.born})"
    if not has_lease(lock):
        yield "D8", f"its lock says that it is good for {lock.stale_after:g} s: no lease is so long"


def _history(case: Case, item: Item) -> Problems:
    """D6. A run may end later than its item says: the repair of a wrong clock changes the item, and
    never the history.
    """
    if case.highest > item.fence:
        yield "D6", f"has fence {item.fence}, but its history goes to {case.highest}"
    run = case.newest
    if run is None:
        return
    same = item.outcome == run.outcome and item.stop is not None and item.stop <= run.stop
    if not same and not item.running and speaks_for(run, case, item):
        has = f"{item.outcome} at {stamp(item.stop)}" if item.stop else "nothing of a run"
        yield "D6", f"says {has}, but its newest run {run.outcome} at {stamp(run.stop)}"


def speaks_for(run: LastRun, case: Case, item: Item) -> bool:
    """Whether an item that does not run should agree with its newest run. A run of an earlier life,
    one that came back late, or one below another that cannot be read, may differ from the item.
    """
    ours = item.state is not State.REMOVED and run.fence > item.born
    return ours and run.fence == case.highest and run.outcome is not Outcome.SUPERSEDED


def _times(case: Case, item: Item, bounds: Bounds) -> Iterator[Finding]:
    """D7, D8, D11 and D12. An item that is late where no worker takes its type is not grave."""
    if bounds.unplanned and item.state is not State.REMOVED:
        problem = f"no worker runs it: {bounds.unplanned}"
        yield Finding(code="D12", subject=item.id, problem=problem)
    elif item.fence >= HIGHEST_FLOOR:
        problem = f"has fence {item.fence}: nothing is added under its id once it is removed"
        yield Finding(code="D12", subject=item.id, problem=problem, grave=False)
    late = bounds.now - item.ready
    if item.waits and -late > HORIZON and not is_named(item):
        run = _command("run", item.id, bounds)
        problem = f"is due {stamp(item.ready)}: too far ({run} runs it now)"
        yield Finding(code="D7", subject=item.id, problem=problem)
    elif bounds.planning and (problem := problem_of_times(item, bounds.planning, now=bounds.now)):
        if item.running:
            problem += f" (until its run ends, or {item.owner} is restarted)"
        yield Finding(code="D11", subject=item.id, problem=problem, grave=not item.running)
    if bounds.paused:
        return
    if item.waits and late > bounds.cycle + bounds.lease:
        why = _command("why", item.id, bounds)
        problem = f"has been ready for {span(late.total_seconds())} ({why} says why)"
        yield Finding(code="D7", subject=item.id, problem=problem, grave=bounds.served)
    lock = case.lock
    if lock is None or not item.running:
        return
    grace = max(lock.stale_after, bounds.cycle.total_seconds())
    if lock.age > lock.stale_after + grace:
        good = span(lock.stale_after)
        problem = f"its lock, good for {good}, was not renewed {since(lock.age)} nor overridden"
        problem += f" ({_command('cancel', item.id, bounds)} ends the run)"
        yield Finding(code="D8", subject=item.id, problem=problem, grave=bounds.served)


def has_lease(lock: Lock) -> bool:
    """Whether the lease of a lock is no longer than a duration can be."""
    return lock.stale_after <= LONGEST.total_seconds()
