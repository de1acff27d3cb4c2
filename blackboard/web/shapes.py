"""The shapes of the JSON interface: what a request may say, and what an answer has.

Requests are decoded into these structs, and answers are encoded from them; the description of the
interface is made of both.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from blackboard.display.health import Alarm, CoordinatorRecord, WorkerCount
from blackboard.display.item_queries import SORTS
from blackboard.display.sharing import ElectionRecord, GroupRecord
from blackboard.errors import BadInput
from blackboard.inputs import LONGEST_TEXT
from blackboard.model import LARGEST, Mark, Moment, Outcome
from blackboard.records import AnnouncedWorker, BoardAction, BoardItem, RunSummary
from blackboard.rules.applied import LONGEST_NAME
from blackboard.rules.status import STATES
from blackboard.schedule.times import EARLIEST, LATEST
from blackboard.spec import Spec
from blackboard.web.filters import LONGEST, MOST_VALUES

MOST_RUNS = 1_000
MOST_TIMES = 100
MOST_ACTIONS = 1_000
LAST_PAGE = 10**6 - 1

ItemId = Annotated[str, Meta(min_length=1, description="The id of an item.")]
Reason = Annotated[str, Meta(max_length=LONGEST_TEXT, description="Why; it is recorded.")]
AnyType = Annotated[list[str], Meta(max_length=MOST_VALUES, description="Any of these types.")]
Fence = Annotated[int, Meta(ge=0, le=LARGEST)]


class RequestFields(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The fields of a request. A name that is not here is refused."""


# ---- the parameters of a GET


class NoQuery(RequestFields, frozen=True):
    """No parameters."""


class ItemsQuery(RequestFields, frozen=True):
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
        Meta(max_length=MOST_VALUES, description="Any of these states."),
    ] = []
    type: AnyType = []
    tag: Annotated[list[str], Meta(max_length=MOST_VALUES, description="Any of these tags.")] = []
    sort: Annotated[
        str,
        Meta(
            description="What to sort by. Items without that value come last.",
            extra_json_schema={"enum": [*SORTS]},
        ),
    ] = "id"
    order: Literal["asc", "desc"] = "asc"
    page: Annotated[
        int, Meta(ge=1, le=LAST_PAGE, description="From 1 on; one after the last is empty.")
    ] = 1

    def __post_init__(self) -> None:
        _check_one_of("state", self.state, STATES)
        _check_one_of("sort", [self.sort], [*SORTS])


class OneItemQuery(RequestFields, frozen=True):
    """One item."""

    id: ItemId


class RunsQuery(RequestFields, frozen=True):
    """Which runs."""

    id: Annotated[
        str | UnsetType,
        Meta(
            description="Of this item, from its whole history; else of all items, of each the "
            "newest 50.",
            extra_json_schema={"minLength": 1},
        ),
    ] = UNSET
    type: AnyType = []
    outcome: Annotated[
        list[Outcome], Meta(max_length=MOST_VALUES, description="Any of these outcomes.")
    ] = []
    since: Annotated[Moment | UnsetType, Meta(description="Runs that stopped then or later.")] = (
        UNSET
    )
    until: Annotated[Moment | UnsetType, Meta(description="Runs that stopped then or earlier.")] = (
        UNSET
    )
    limit: Annotated[int, Meta(ge=1, le=MOST_RUNS, description="So many at the most.")] = 100
    after: Annotated[
        str | UnsetType, Meta(description="`next` of the answer before: the runs that follow.")
    ] = UNSET

    def __post_init__(self) -> None:
        if self.id == "":
            raise BadInput("id", "it is empty", "name an item, or leave it out")
        for name, moment in (("since", self.since), ("until", self.until)):
            if moment is not UNSET and not EARLIEST < moment.year < LATEST:
                raise BadInput(name, f"{moment.isoformat()} is too far away", "another year")


class OneRunQuery(RequestFields, frozen=True):
    """One run of an item."""

    id: ItemId
    fence: Annotated[Fence, Meta(description="The fence of the run.")]


class NextQuery(RequestFields, frozen=True):
    """The next times of an item."""

    id: ItemId
    count: Annotated[int, Meta(ge=1, le=MOST_TIMES, description="So many at the most.")] = 10


class ActionsQuery(RequestFields, frozen=True):
    """How many actions."""

    limit: Annotated[int, Meta(ge=1, le=MOST_ACTIONS, description="So many at the most.")] = 100


def _check_one_of(field: str, values: list[str], allowed: tuple[str, ...] | list[str]) -> None:
    for value in values:
        if value not in allowed:
            raise BadInput(field, f"there is no {value[:60]!r}", f"one of {', '.join(allowed)}")


# ---- the bodies of a POST


class ReasonBody(RequestFields, frozen=True):
    """Which item, and why."""

    id: ItemId
    reason: Reason = ""


class RenameBody(ReasonBody, frozen=True, kw_only=True):
    """Which item, its new id, and why."""

    new_id: ItemId


class RunBody(ReasonBody, frozen=True):
    """Which item to run now; `params` are laid over its own for this run. The same `trigger` twice
    is one run: while that waits, for ten minutes, and until 64 other requests have come.
    """

    params: dict[str, Any] = {}
    trigger: Annotated[str, Meta(max_length=LONGEST_NAME, description="Names the request.")] = ""


class OneRunBody(ReasonBody, frozen=True):
    """Which item, which of its runs, and why."""

    fence: Annotated[
        Fence | UnsetType, Meta(description="Only the run with this fence; else any.")
    ] = UNSET


OPTIONS = tuple(name for name in Spec.__struct_fields__ if name != "params")
"""What an edit may say of how an item is run; "" takes back what the item says."""

_NUMBER, _TEXTS = int | Literal[""] | UnsetType, list[str] | Literal[""] | UnsetType
KINDS: dict[Any, str] = {_NUMBER: "a number", _TEXTS: "a list of texts"}
"""The types of options that are no text, in words."""


def _option(kind: Any) -> Any:
    return {int | None: _NUMBER, list[str] | None: _TEXTS}.get(kind, str | UnsetType)


EditBody = msgspec.defstruct(
    "EditBody",
    [
        ("params", dict[str, Any], msgspec.field(default_factory=dict)),
        ("unset", list[str], msgspec.field(default_factory=list)),
        ("type", str | UnsetType, UNSET),
        ("first", str | UnsetType, UNSET),
        ("checkpoint", Any, UNSET),
        *((name, _option(Spec.__annotations__[name]), UNSET) for name in OPTIONS),
    ],
    bases=(ReasonBody,),
    namespace={
        "__doc__": "Which item, and how it is run from now on. `params` are laid over its own, "
        'those named in `unset` are taken away. "" takes back what the item says. The next run '
        "goes on at `checkpoint`; null: it begins anew. `first` (now, next or a time) moves the "
        "first run of an item that never ran."
    },
    module=__name__,
    kw_only=True,
    frozen=True,
    forbid_unknown_fields=True,
)


# ---- answers


class Answered(Struct, kw_only=True, frozen=True):
    """What is answered, made of the records that `--json` prints."""


class ErrorObject(Answered, frozen=True):
    """What is wrong, where, and what to do."""

    field: str | None
    problem: str
    remedy: str | None


class ErrorAnswer(Answered, frozen=True):
    """Any answer that is no success."""

    error: ErrorObject


class RemovedAnswer(Answered, frozen=True):
    """The item that was removed."""

    id: str


class ItemsAnswer(Answered, frozen=True):
    """A page of items, as they were read at `at`."""

    at: datetime
    items: list[BoardItem]
    total: int
    page: int
    pages: int


class RunsAnswer(Answered, frozen=True):
    """Runs, the newest first; with `next` as `after` the following ones are answered. It is null
    where there are none. A search that takes long answers fewer than `limit`, or none, with `next`;
    one that takes long to get to the time where it begins is refused: name an item or a type.
    """

    runs: list[RunSummary]
    next: str | None


class NextAnswer(Answered, frozen=True):
    """The next times of an item, the earliest first; `cut` where to compute more takes too long."""

    id: str
    times: list[datetime]
    cut: bool


class WorkersAnswer(Answered, frozen=True):
    """The workers that have announced themselves."""

    workers: list[AnnouncedWorker]


class LeasesAnswer(Answered, frozen=True):
    """The groups of partitions."""

    groups: list[GroupRecord]


class LeadersAnswer(Answered, frozen=True):
    """The elections; `problem` is why they cannot be read, where that is so."""

    elections: list[ElectionRecord]
    problem: str | None


class AlarmsAnswer(Answered, frozen=True):
    """What is wrong, as `blackboard check --json` has it; examined at `at`."""

    at: datetime
    well: bool
    items: int
    board_paused: Mark | None
    problems: list[Alarm]


class ActionsAnswer(Answered, frozen=True):
    """What people did, the newest first."""

    actions: list[BoardAction]


class BoardAnswer(Answered, frozen=True):
    """The board in short. An item is counted under each state that holds."""

    board: str
    store: str
    version: str
    operator: bool
    at: datetime
    board_paused: Mark | None
    items: int
    states: dict[str, int]
    types: dict[str, int]
    tags: dict[str, int]
    workers: WorkerCount
    coordinator: CoordinatorRecord | None
