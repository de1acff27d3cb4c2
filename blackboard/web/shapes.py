"""The shapes of the JSON interface: what a request may say, and what an answer has.

Requests are decoded into these structs. Those of answers are made by `views.py`; here they are for
the description of the interface alone, and the tests compare what is answered with it.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from blackboard.display.queries import SORTS
from blackboard.errors import BadInput
from blackboard.model import Outcome
from blackboard.rules.status import STATES
from blackboard.schedule.times import EARLIEST, LATEST
from blackboard.spec import Spec
from blackboard.web.filters import LONGEST

MOST_RUNS = 1_000
MOST_TIMES = 100
MOST_ACTIONS = 1_000
LAST_PAGE = 10**6 - 1

ItemId = Annotated[str, Meta(min_length=1, description="The id of an item.")]
Reason = Annotated[str, Meta(max_length=2_000, description="Why; it is recorded.")]
Moment = Annotated[datetime, Meta(tz=True)]
MarkOrNull = Annotated[Any, Meta(description="{by, at, reason}; null where there is none.")]
Value = Annotated[Any, Meta(description="Any JSON.")]


class Said(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What a request says. A name that is not here is refused."""


# ---- the parameters of a GET


class NothingSaid(Said, frozen=True):
    """No parameters."""


class ItemsSaid(Said, frozen=True):
    """Which items, and in which order."""

    q: Annotated[
        str,
        Meta(
            max_length=LONGEST,
            description="Words, all of which are in the id, type, description, owner or tags.",
        ),
    ] = ""
    state: Annotated[
        list[Annotated[str, Meta(extra_json_schema={"enum": [*STATES]})]],
        Meta(description="Any of these states."),
    ] = []
    type: Annotated[list[str], Meta(description="Any of these types.")] = []
    tag: Annotated[list[str], Meta(description="Any of these tags.")] = []
    sort: Annotated[
        str,
        Meta(
            description="What to sort by. Items without that value come last.",
            extra_json_schema={"enum": [*SORTS]},
        ),
    ] = "id"
    order: Literal["asc", "desc"] = "asc"
    page: Annotated[
        int,
        Meta(ge=1, le=LAST_PAGE, description="From 1 on; the last where there are not so many."),
    ] = 1

    def __post_init__(self) -> None:
        _check_one_of("state", self.state, STATES)
        _check_one_of("sort", [self.sort], [*SORTS])


class OneSaid(Said, frozen=True):
    """One item."""

    id: ItemId


class RunsSaid(Said, frozen=True):
    """Which runs."""

    id: Annotated[
        str | UnsetType,
        Meta(
            description="Of this item, from its whole history; else of all items, of each the "
            "newest 50.",
            extra_json_schema={"minLength": 1},
        ),
    ] = UNSET
    type: Annotated[list[str], Meta(description="Any of these types.")] = []
    outcome: Annotated[list[Outcome], Meta(description="Any of these outcomes.")] = []
    since: Annotated[Moment | UnsetType, Meta(description="Runs that stopped then or later.")] = (
        UNSET
    )
    until: Annotated[Moment | UnsetType, Meta(description="Runs that stopped then or earlier.")] = (
        UNSET
    )
    limit: Annotated[int, Meta(ge=1, le=MOST_RUNS, description="So many at the most.")] = 100

    def __post_init__(self) -> None:
        if self.id == "":
            raise BadInput("id", "it is empty", "name an item, or leave it out")
        for name, moment in (("since", self.since), ("until", self.until)):
            if moment is not UNSET and not EARLIEST < moment.year < LATEST:
                raise BadInput(name, f"{moment.isoformat()} is too far away", "another year")


class RunSaid(Said, frozen=True):
    """One run of an item."""

    id: ItemId
    fence: Annotated[int, Meta(ge=0, lt=10**12, description="The fence of the run.")]


class NextSaid(Said, frozen=True):
    """The next times of an item."""

    id: ItemId
    count: Annotated[int, Meta(ge=1, le=MOST_TIMES, description="So many at the most.")] = 10


class ActionsSaid(Said, frozen=True):
    """How many actions."""

    limit: Annotated[int, Meta(ge=1, le=MOST_ACTIONS, description="So many at the most.")] = 100


def _check_one_of(field: str, said: list[str], known: tuple[str, ...] | list[str]) -> None:
    for one in said:
        if one not in known:
            raise BadInput(field, f"{one[:60]!r} is none", f"one of {', '.join(known)}")


# ---- the bodies of a POST


class RunBody(Said, frozen=True):
    """Which item to run now; `params` are laid over its own for this run."""

    id: ItemId
    params: dict[str, Any] = {}


class ReasonBody(Said, frozen=True):
    """Which item, and why."""

    id: ItemId
    reason: Reason = ""


OPTIONS = tuple(name for name in Spec.__struct_fields__ if name != "params")
"""What an edit may say of how an item is run; "" takes back what the item says."""


def _option(kind: Any) -> Any:
    if kind == int | None:
        return int | Literal[""] | UnsetType
    return list[str] | UnsetType if kind == list[str] | None else str | UnsetType


EditBody = msgspec.defstruct(
    "EditBody",
    [
        ("params", dict[str, Any], msgspec.field(default_factory=dict)),
        ("unset", list[str], msgspec.field(default_factory=list)),
        ("type", str | UnsetType, UNSET),
        ("checkpoint", Any, UNSET),
        *((name, _option(Spec.__annotations__[name]), UNSET) for name in OPTIONS),
    ],
    bases=(OneSaid,),
    namespace={
        "__doc__": "Which item, and how it is run from now on. `params` are laid over its own, "
        'those named in `unset` are taken away. "" takes back what the item says. The next run '
        "goes on at `checkpoint`; null: it begins anew."
    },
    module=__name__,
    kw_only=True,
    frozen=True,
    forbid_unknown_fields=True,
)


# ---- answers


class Answered(Struct, kw_only=True, forbid_unknown_fields=True):
    """What is answered: these names and no others."""


class ErrorObject(Answered):
    """What is wrong, where, and what to do."""

    field: str | None
    problem: str
    remedy: str | None


class ErrorAnswer(Answered):
    """Any answer that is no success."""

    error: ErrorObject


class LabelsObject(Answered):
    """What people say of an item."""

    description: str
    owner: str
    tags: list[str]


class ItemObject(Answered):
    """An item, as `blackboard show --json` has it."""

    id: str
    type: str
    state: str
    schedule: str
    timezone: str
    params: Value
    start: datetime | None
    stop: datetime | None
    running: bool
    outcome: Outcome | None
    due: datetime | None
    ready: datetime | None
    owner: str | None
    fence: int
    attempt: int
    runs: int
    failures: int
    error: str | None
    skipped: str | None
    result: Value
    warnings: list[str]
    warned: int
    paused: MarkOrNull
    resumed: MarkOrNull
    acknowledged: MarkOrNull
    checkpoint: Value
    progress: Value
    stale_after: float | None
    overdue: bool
    stale: bool
    silent: bool
    labels: LabelsObject


class WhyObject(ItemObject):
    """An item, and why it runs or does not, as `blackboard why --json` has it."""

    decision: str
    headline: str
    facts: dict[str, str]


class ItemsAnswer(Answered):
    """A page of items."""

    items: list[ItemObject]
    total: int
    page: int
    pages: int


class RunObject(Answered):
    """A run, as `blackboard log --json` has it."""

    id: str
    type: str
    due: datetime
    start: datetime
    stop: datetime
    lag: float
    duration: float
    outcome: Outcome
    worker: str
    fence: int
    attempt: int
    result: Value
    error: str | None
    skipped: str | None
    warnings: list[str]
    note: MarkOrNull


class LoggedObject(Answered):
    """A line that a handler logged."""

    at: datetime
    level: str
    logger: str | None
    text: str


class WholeRunObject(RunObject):
    """A run with what its handler printed and logged."""

    output: str
    log: list[LoggedObject]


class RunsAnswer(Answered):
    """Runs, the newest first; `more` where the limit left out some."""

    runs: list[RunObject]
    more: bool


class NextAnswer(Answered):
    """The next times of an item, the earliest first."""

    id: str
    times: list[datetime]


class WorkerObject(Answered):
    """A worker, as `blackboard workers --json` has it."""

    owner: str
    host: str
    started: datetime
    seen: datetime
    age: float | None
    alive: bool
    slots: int
    running: int
    types: list[str]
    cycle: float
    version: str


class WorkersAnswer(Answered):
    """The workers that have announced themselves."""

    workers: list[WorkerObject]


class PartitionObject(Answered):
    """A partition of a group."""

    id: str
    owner: str | None
    since: datetime | None
    fence: int
    renewed: float | None
    free: float
    paused: bool
    checkpoint: str | None
    failures: int
    last_move: str | None


class GroupObject(Answered):
    """A group of partitions, as `blackboard leases --json` has it."""

    group: str
    kind: str
    lease: float
    well: bool
    held: int
    workers: int
    free: float
    partitions: list[PartitionObject]


class LeasesAnswer(Answered):
    """The groups of partitions."""

    groups: list[GroupObject]


class ElectionObject(Answered):
    """An election, as `blackboard leader --json` has it."""

    election: str
    leader: str | None
    since: datetime | None
    term: int
    kind: str
    lease: float | None
    renewed: float | None
    paused: bool
    late: bool


class LeadersAnswer(Answered):
    """The elections."""

    elections: list[ElectionObject]


class AlarmObject(Answered):
    """One thing that is wrong."""

    id: str
    type: str
    problem: str
    since: datetime | None
    message: str


class AlarmsAnswer(Answered):
    """What is wrong, as `blackboard check --json` has it."""

    well: bool
    items: int
    board_paused: MarkOrNull
    problems: list[AlarmObject]


class ActionObject(Answered):
    """What a person did, as `blackboard actions --json` has it."""

    at: datetime
    by: str
    verb: str
    ids: list[str]
    count: int
    reason: str | None
    detail: str | None
    via: str


class ActionsAnswer(Answered):
    """What people did, the newest first."""

    actions: list[ActionObject]


class PresenceObject(Answered):
    """How many workers there are."""

    alive: int
    lost: int


class CoordinatorObject(Answered):
    """The worker that coordinates the others."""

    worker: str
    since: datetime | None
    term: int


class BoardAnswer(Answered):
    """The board in short. An item is counted under each state that holds."""

    board: str
    store: str
    version: str
    operator: bool
    at: datetime
    board_paused: MarkOrNull
    items: int
    states: dict[str, int]
    types: dict[str, int]
    tags: dict[str, int]
    workers: PresenceObject
    coordinator: CoordinatorObject | None


class AskedAnswer(Answered):
    """A run that was asked for: when it is due, how many wait before it, and whether it joined one
    that waits.
    """

    id: str
    due: datetime
    ahead: int
    joined: bool
