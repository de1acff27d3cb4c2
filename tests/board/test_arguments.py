"""What programs give to the verbs of a board: what cannot be used is refused by name, and before
anything is done.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import blackboard
from blackboard import BadInput, BlackboardError, Board, Context, Item, handler
from blackboard.board_worker import worker_settings
from blackboard.events import BoardEvent, RunStarted
from blackboard.inputs import argument
from blackboard.settings import Settings

pytestmark = pytest.mark.of_sqlite("arguments are checked above the store")

SURROGATE = "\ud800"
LONG = "x" * 40_000
NO_OFFSET = datetime(2026, 11, 21)  # noqa: DTZ001 - it is refused


class Text(str):
    """As template engines and parsers have it."""

    __slots__ = ()


class Number(int):
    pass


class Colour(StrEnum):
    RED = "red"


class Detached:
    """As a record of a database whose session has ended."""

    def __repr__(self) -> str:
        raise LookupError


class Nowhere(tzinfo):
    """A zone that has no offset, as Python allows."""

    def utcoffset(self, moment: datetime | None) -> None:
        return None

    def dst(self, moment: datetime | None) -> None:
        return None

    def tzname(self, moment: datetime | None) -> None:
        return None


@handler("feed", every="1h")
async def feed(item: Item, ctx: Context) -> dict[str, Any]:
    return {"text": Text("seen"), "number": Number(5)}


@handler("slow", every="1h")
async def slow(item: Item, ctx: Context) -> None:
    await asyncio.sleep(60)


def on_board(folder: Path, work: Callable[[Board], Awaitable[None]]) -> None:
    async def opened() -> None:
        store = folder / "board.db"
        async with blackboard.open(store, handlers=[feed, slow], create=True) as board:
            await board.add("davis", "feed")
            await work(board)

    asyncio.run(opened())


Call = Callable[[Board], Awaitable[Any]]
ITEM_ID: dict[str, Callable[[Board, Any], Awaitable[Any]]] = {
    "item": lambda board, it: board.item(it),
    "why": lambda board, it: board.why(it),
    "run": lambda board, it: board.run(it),
    "edit": lambda board, it: board.edit(it, every="2h"),
    "pause": lambda board, it: board.pause(it),
    "resume": lambda board, it: board.resume(it),
    "cancel": lambda board, it: board.cancel(it),
    "unlock": lambda board, it: board.unlock(it),
    "ack": lambda board, it: board.ack(it),
    "next": lambda board, it: board.next(it),
    "rename": lambda board, it: board.rename(it, "new"),
    "remove": lambda board, it: board.remove(it),
}


def about(item_id: Any, call: Callable[[Board, Any], Awaitable[Any]]) -> Call:
    return lambda board: call(board, item_id)


def with_fence(verb: str, fence: int) -> Call:
    """A call of one of the verbs that are about a run."""
    return lambda board: getattr(board, verb)("davis", fence=fence)


def with_the_second_of_two_times(name: str) -> Call:
    moment = NO_OFFSET.replace(fold=1)
    return lambda board: board.add("x", "feed", **{name: moment})  # type: ignore[arg-type]


REFUSED: dict[str, tuple[str, Call]] = {
    "by of a pause": ("by", lambda board: board.pause("davis", by=5)),  # type: ignore[arg-type]
    "by of a removal": ("by", lambda board: board.remove("davis", by=5)),  # type: ignore[arg-type]
    "by of a rename": ("by", lambda board: board.rename("davis", "x", by=5)),  # type: ignore[arg-type]
    "a reason": ("reason", lambda board: board.pause("davis", reason={"a": 1})),  # type: ignore[arg-type]
    "bytes": ("reason", lambda board: board.pause("davis", reason=b"x")),  # type: ignore[arg-type]
    "no UTF-8": ("reason", lambda board: board.pause("davis", reason=SURROGATE)),
    "a trigger": ("trigger", lambda board: board.run("davis", trigger=None)),  # type: ignore[arg-type]
    "unset": ("unset", lambda board: board.edit("davis", unset="abc")),
    "a description": ("description", lambda board: board.add("x", "feed", description=5)),  # type: ignore[arg-type]
    "retries": ("retries", lambda board: board.add("x", "feed", retries="3")),  # type: ignore[arg-type]
    "a truth": ("retries", lambda board: board.add("x", "feed", retries=True)),
    "an interval": ("every", lambda board: board.add("x", "feed", every=True)),
    "cron": ("cron", lambda board: board.add("x", "feed", cron=0)),  # type: ignore[arg-type]
    "tags": ("tags", lambda board: board.add("x", "feed", tags="abc")),
    "a list of tags": ("tags", lambda board: board.add("x", "feed", tags=[["a"]])),  # type: ignore[list-item]
    "a tag": ("tags", lambda board: board.add("x", "feed", tags=[1])),  # type: ignore[list-item]
    "first": ("first", lambda board: board.add("x", "feed", first=timedelta(1))),  # type: ignore[arg-type]
    "params": ("params", lambda board: board.add("x", "feed", params=5)),
    "an empty list": ("params", lambda board: board.add("x", "feed", params=[])),
    "an object": ("params.k", lambda board: board.add("x", "feed", params={"k": object()})),
    "a key": ("params", lambda board: board.add("x", "feed", params={1: 2})),
    "a key of a run": ("params", lambda board: board.run("davis", params={1: 2})),  # type: ignore[dict-item]
    "a bad key": ("params", lambda board: board.add("x", "feed", params={SURROGATE: 1})),
    "a large number": ("params.k", lambda board: board.add("x", "feed", params={"k": 10**5000})),
    "no number in a tuple": (
        "params.k",
        lambda board: board.run("davis", params={"k": (math.nan,)}),
    ),
    "nothing in a set": ("params.k", lambda board: board.add("x", "feed", params={"k": {None}})),
    "an id of many": ("id", lambda board: board.add_many({5: {}}, "feed")),  # type: ignore[dict-item]
    "no UTF-8 in many": ("id", lambda board: board.add_many({"x": {}, SURROGATE: {}}, "feed")),
    "a checkpoint": ("checkpoint", lambda board: board.edit("davis", checkpoint=object())),
    "a limit": ("limit", lambda board: board.actions(limit=2.5)),  # type: ignore[arg-type]
    "what has no repr": ("item_id", lambda board: board.pause(Detached())),  # type: ignore[arg-type]
    "no repr in a list": ("tags", lambda board: board.add("x", "feed", tags=[Detached()])),  # type: ignore[list-item]
    "no repr in params": (
        "params.k",
        lambda board: board.add("x", "feed", params={"k": Detached()}),
    ),
    "no repr of a key": ("params", lambda board: board.add("x", "feed", params={Detached(): 1})),
    "a number that Python does not write": ("by", lambda board: board.run("davis", by=10**5_000)),  # type: ignore[arg-type]
    **{
        f"a {sign}fence to {verb}": ("fence", with_fence(verb, fence))
        for verb in ("ack", "cancel", "unlock")
        for sign, fence in (("", 10**5_000), ("negative ", -(10**5_000)))
    },
    "a large limit": ("limit", lambda board: board.actions(limit=10**5_000)),
    "a limit of runs": ("limit", lambda board: anext(board.runs("davis", limit=-(10**5_000)))),
    "a count of times": ("count", lambda board: board.next("davis", count=-(10**5_000))),
    "a large interval": ("every", lambda board: board.add("x", "feed", every=10**5_000)),
    "slots": ("slots", lambda board: as_coroutine(board.worker(slots=-(10**5_000)))),
    "a rank": ("rank", lambda board: as_coroutine(board.election("x", rank=10**5_000))),
    **{
        f"the second of two times as {name}": (name, with_the_second_of_two_times(name))
        for name in ("at", "until", "first")
    },
    "a blank type": ("type", lambda board: board.add("x", " feed")),
    "no type": ("types", lambda board: as_coroutine(board.worker(types=[]))),
    "a long type": ("types", lambda board: as_coroutine(board.worker(types=[LONG]))),
    "a long key": ("unset", lambda board: board.edit("davis", unset=[LONG])),
    "a long kind": ("kind", lambda board: as_coroutine(board.election("x", kind=LONG))),  # type: ignore[arg-type]
    "a long state": ("state", lambda board: anext(board.items(state=LONG))),
    "a time without an offset": ("since", lambda board: anext(board.runs(since=NO_OFFSET))),
    "a zone without one": (
        "until",
        lambda board: anext(board.runs(until=NO_OFFSET.replace(tzinfo=Nowhere()))),
    ),
}


async def as_coroutine(made: object) -> object:
    return made


async def refused(board: Board, call: Call) -> BadInput:
    """The refusal of a call that has done nothing."""
    before = [item async for item in board.items()]
    with pytest.raises(BadInput) as caught:
        await call(board)
    assert [item async for item in board.items()] == before
    assert len(str(caught.value)) < 400
    return caught.value


def test_what_cannot_be_used_is_refused_by_name(tmp_path: Path) -> None:
    async def work(board: Board) -> None:
        fields = {name: (await refused(board, call)).field for name, (_, call) in REFUSED.items()}
        assert fields == {name: field for name, (field, _) in REFUSED.items()}

    on_board(tmp_path, work)


@pytest.mark.parametrize("item_id", [5, None, b"davis", ["davis"], SURROGATE])
def test_an_id_is_text(tmp_path: Path, item_id: Any) -> None:
    async def work(board: Board) -> None:
        for verb, call in ITEM_ID.items():
            problem = await refused(board, about(item_id, call))
            assert problem.field == "item_id", verb

    on_board(tmp_path, work)


@pytest.mark.parametrize("limit", [-1, 2.5, float("nan"), "3", True])
def test_a_limit_is_a_whole_number(tmp_path: Path, limit: Any) -> None:
    async def work(board: Board) -> None:
        async def all_runs(board: Board) -> list[Any]:
            return [run async for run in board.runs("davis", limit=limit)]

        assert (await refused(board, all_runs)).field == "limit"

    on_board(tmp_path, work)


def test_texts_and_numbers_of_classes_of_their_own_are_taken_as_what_they_are(
    tmp_path: Path,
) -> None:
    async def work(board: Board) -> None:
        params = {Text("k"): Text("x"), "n": Number(3), "of": [Text("y")], "c": Colour.RED}
        item = await board.add(
            *(Text("own"), Text("feed")),
            params=params,
            description=Text("d"),
            retries=Number(2),
            priority=Number(1),
            tags=[Text("t"), Colour.RED],
        )
        assert item.params == {"k": "x", "n": 3, "of": ["y"], "c": "red"}
        for tag in ("t", "red"):
            assert [tagged.id async for tagged in board.items(f"tag:{tag}")] == ["own"]
        await board.edit("own", unset=[Text("c")])
        assert type(item.params["k"]) is str
        await board.worker().work("idle")
        (run,) = [run async for run in board.runs("own")]
        assert run.result == {"text": "seen", "number": 5}

    on_board(tmp_path, work)


@dataclass
class Part:
    value: object


def test_values_that_json_lacks_are_kept_as_text_in_params_and_results(tmp_path: Path) -> None:
    values = {
        "price": Decimal("1.50"),
        "id": UUID(int=7),
        "day": date(2026, 11, 21),
        "at": datetime(2026, 11, 21, 9, tzinfo=UTC),
        "bytes": b"x",
        "part": Part(Decimal("0.1")),
        "parts": [Part("a")],
    }
    kept = {
        "price": "1.50",
        "id": "00000000-0000-0000-0000-000000000007",
        "day": "2026-11-21",
        "at": "2026-11-21T09:00:00Z",
        "bytes": "eA==",
        "part": {"value": "0.1"},
        "parts": [{"value": "a"}],
    }

    @handler("priced")
    async def priced(item: Item, ctx: Context) -> dict[str, Any]:
        return values

    async def work() -> None:
        store = tmp_path / "board.db"
        async with blackboard.open(store, handlers=[priced], create=True) as board:
            assert (await board.add("a", "priced", params=values)).params == kept
            assert (await board.edit("a", checkpoint=values)).checkpoint == kept
            await board.worker().work("idle")
            assert (await board.item("a")).result == kept

    asyncio.run(work())


@dataclass
class Priced:
    price: Decimal
    id: UUID


@handler("typed", params=Priced)
async def typed(item: Item, ctx: Context) -> str:
    return str(item.params.price + 1)


def test_a_field_of_a_class_takes_a_value_of_its_type_that_json_lacks(tmp_path: Path) -> None:
    async def work() -> None:
        store = tmp_path / "board.db"
        async with blackboard.open(store, handlers=[typed], create=True) as board:
            await board.add("a", "typed", params={"price": Decimal("1.50"), "id": UUID(int=7)})
            await board.worker().work("idle")
            assert (await board.item("a")).result == "2.50"

    asyncio.run(work())


@pytest.mark.parametrize(
    ("inner", "problem"),
    [
        (None, "params.k.value: null says nothing"),
        (math.nan, "params.k.value: nan is not a number"),
        (2**63, "params.k.value: the number is too large"),
        ({1: 2}, "params.k.value: the key 1 is not text"),
        (SURROGATE, "params.k.value: it is not UTF-8 text"),
        (object(), "params.k: Part"),
    ],
)
def test_what_an_object_in_params_holds_is_checked_as_well(
    tmp_path: Path, inner: object, problem: str
) -> None:
    """Else no later edit of the params would be taken."""

    async def work(board: Board) -> None:
        params = {"k": Part(inner)}
        calls: tuple[Callable[[Board], Awaitable[Any]], ...] = (
            lambda board: board.add("x", "feed", params=params),
            lambda board: board.edit("davis", params=params),
            lambda board: board.run("davis", params=params),
        )
        for call in calls:
            assert str(await refused(board, call)).startswith(problem)

    on_board(tmp_path, work)


def test_fields_of_an_object_in_params_that_are_none_by_default_are_left_out(
    tmp_path: Path,
) -> None:
    async def work(board: Board) -> None:
        params, kept = {"of": [Note()]}, {"of": [{"count": 1}]}
        assert (await board.add("x", "feed", params=params)).params == kept
        assert (await board.edit("davis", params=params)).params == kept
        await board.add("once", "feed")
        await board.run("once", params=params)
        assert await board.add_many({"y": params}, "feed") == ["y"]
        assert (await board.item("y")).params == kept

    on_board(tmp_path, work)


def test_tuples_and_sets_are_kept_as_lists(tmp_path: Path) -> None:
    async def work(board: Board) -> None:
        item = await board.add("own", "feed", params={"k": (1, {2}), "of": frozenset(["x"])})
        assert item.params == {"k": [1, [2]], "of": ["x"]}
        assert (await board.edit("own", checkpoint=({1},))).checkpoint == [[1]]

    on_board(tmp_path, work)


@dataclass
class Note:
    text: str | None = None
    count: int = 1


class Listener:
    """Whose coroutines nothing would await."""

    async def __call__(self, event: BoardEvent) -> None: ...


@pytest.mark.parametrize("callback", [None, 5, slow, Listener(), partial(asyncio.sleep, 0)])
def test_what_cannot_be_called_with_events_is_refused(tmp_path: Path, callback: Any) -> None:
    async def work(board: Board) -> None:
        with pytest.raises(BadInput, match=r"^callback: "):
            board.subscribe(callback)

    on_board(tmp_path, work)


def test_a_value_is_quoted_shortly() -> None:
    with pytest.raises(BadInput) as caught:
        argument("name", ["x" * 1_000_000], str)
    assert len(str(caught.value)) < 200


DURATIONS: dict[str, Callable[[Board, Any], Any]] = {
    "cycle": lambda board, it: board.worker(cycle=it),
    "grace": lambda board, it: board.worker(grace=it),
    "lease": lambda board, it: board.election("report", lease=it),
}


@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize("wrong", [True, math.nan, math.inf, -5, "5", "soon", [5]])
def test_what_is_no_duration_is_refused_by_name(tmp_path: Path, name: str, wrong: Any) -> None:
    with blackboard.open_blocking(tmp_path / "board.db", handlers=[feed], create=True) as board:
        with pytest.raises(BadInput) as caught:
            DURATIONS[name](board, wrong)  # type: ignore[arg-type] # it has the same verbs
        assert caught.value.field == name


@pytest.mark.parametrize("seconds", [4.5, "4s500ms", timedelta(seconds=4.5)])
def test_a_duration_is_text_a_timedelta_or_seconds(tmp_path: Path, seconds: Any) -> None:
    found = worker_settings(Settings(), cycle=seconds, grace=seconds)
    assert (found.cycle, found.grace) == (timedelta(seconds=4.5), timedelta(seconds=4.5))
    with blackboard.open_blocking(tmp_path / "board.db", handlers=[feed], create=True) as board:
        assert board.election("report", lease=seconds).lease == timedelta(seconds=4.5)


@pytest.mark.parametrize("nothing", [0, 0.0, "0", "0s", timedelta(0)])
def test_what_runs_may_be_given_no_grace(nothing: Any) -> None:
    assert worker_settings(Settings(), grace=nothing).grace == timedelta(0)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda board: board.pause("davis", reason=LONG), "reason: it has 40,000 characters"),
        (lambda board: board.run("davis", by=LONG), "by: it has 40,000 characters"),
        (lambda board: board.edit("davis", every="5m", by=LONG), "by: it has 40,000 characters"),
        (lambda board: board.remove("davis", by=LONG), "by: it has 40,000 characters"),
        (lambda board: board.pause("davis", by=LONG), "by: it has 40,000 characters"),
        (lambda board: board.rename("davis", "elk", by=LONG), "by: it has 40,000 characters"),
        (lambda board: board.rename("davis", LONG), "id: it has 40,000 characters"),
        (lambda board: board.add("new", LONG), "type: it has 40,000 characters"),
        (
            lambda board: board.add("new", "feed", cron=";".join(["0 * * * *"] * 9_000)),
            "cron: 9,000 expressions of 98,998 characters",
        ),
        (lambda board: board.actions(limit=-1), "limit: -1 is too few"),
        (lambda board: board.worker(cycle=timedelta(0)).work("once"), "cycle: '0s' is not longer"),
        (lambda board: board.worker(cycle="").work("once"), "cycle: '' is not a duration"),
        (lambda board: board.election(5).won(), "name: 5 is not text"),
        (lambda board: board.add("new", "feed", until=5), "until: 5 is not text or a date"),
        (lambda board: board.add("new", "feed", missed="some"), "missed: 'some' is not one of one"),
        (lambda board: board.add("new", "feed", every=0), "every: 0 is not longer than nothing"),
        (lambda board: board.add("new", "feed", every=math.nan), "every: nan is not a number"),
        (lambda board: board.add("new", "feed", every=1e-9), "every: 1e-09 is not longer than"),
        (lambda board: board.add("new", "feed", every=10**300), "every: it is longer than ten"),
        (lambda board: board.add("new", "feed", every=10**5_000), "every: it is longer than ten"),
        (lambda board: board.worker().work(["idle"]), r"until: there is no \['idle'\]"),
        (lambda board: board.worker(slots=10**30).work("once"), "slots: it is too many"),
        (lambda board: board.worker(slots=0).work("once"), "slots: 0 is too few"),
        (lambda board: board.worker(slots=True).work("once"), "slots: True is not a whole number"),
        (
            lambda board: board.add("new", "feed", every=timedelta(seconds=-1)),
            "every: '-1s' is not a duration",
        ),
    ],
)
def test_what_is_too_long_or_too_little_is_refused_by_name(
    tmp_path: Path, call: Call, problem: str
) -> None:
    async def work(board: Board) -> None:
        before = await board.item("davis")
        with pytest.raises(BadInput, match=problem):
            await call(board)
        assert [item async for item in board.items()] == [before]
        assert await board.actions() == []

    on_board(tmp_path, work)


@pytest.mark.parametrize(
    "said",
    [
        {"store": 3},
        {"store": " "},
        {"store": ":memory:"},
        {"store": "sqlite::memory:"},
        {"settings": 3},
        {"name": 3},
        {"handlers": None},
        {"handlers": feed},
        {"handlers": {"feed": feed}},
        {"handlers": [asyncio]},
        {"shards": 2.0},
        {"shards": True},
        {"shards": 0},
        {"shards": 101},
        {"shards": 10**5_000},
        {"create": "no"},
    ],
    ids=lambda said: " ".join(f"{name} {type(it).__name__}" for name, it in said.items()),
)
def test_a_board_is_opened_by_what_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]
) -> None:
    """And nothing is made where it is refused."""
    monkeypatch.chdir(tmp_path)
    (name,) = said

    async def story() -> None:
        async with blackboard.open(**{"store": "app.db", "create": True, **said}):
            pass

    with pytest.raises(BadInput, match=rf"^{name}: "):
        asyncio.run(story())
    assert not list(tmp_path.iterdir())


def test_a_settings_file_has_a_name_that_a_file_may_have() -> None:
    async def story() -> None:
        async with blackboard.open("memory:", settings="a\0b", create=True):
            pass

    with pytest.raises(BadInput, match=r"config: .* is not a path"):
        asyncio.run(story())


def test_a_file_of_handlers_may_be_a_path(tmp_path: Path) -> None:
    jobs = tmp_path / "its_jobs.py"
    jobs.write_text("from blackboard import handler\n@handler\ndef own(item, ctx): ...\n")
    with blackboard.open_blocking(tmp_path / "app.db", handlers=[jobs], create=True) as board:
        assert board.add("a", "own").type == "own"


@dataclass
class Report:
    url: str
    days: int = 30
    owner: str | None = None


@dataclass
class Odd:
    """What no row can hold."""

    it: object = field(default_factory=object)


@handler("report", params=Report)
async def report(item: Item, ctx: Context) -> str:
    return repr(item.params)


def test_an_item_is_added_with_the_class_of_its_params(tmp_path: Path) -> None:
    """A field that is None by default is as one that was left out: a row keeps no null."""
    with blackboard.open_blocking(tmp_path / "app.db", handlers=[report], create=True) as board:
        item = board.add("a", "report", params=Report("x"))
        assert item.params == {"url": "x", "days": 30}
        board.worker().work("idle")
        assert board.item("a").result == repr(Report("x"))
        assert board.add("b", "other", params=Report("x")).params == {"url": "x", "days": 30}
        with pytest.raises(BadInput, match="params: Odd: "):
            board.add("c", "other", params=Odd())


def test_the_last_slot_may_be_of_a_day(tmp_path: Path) -> None:
    async def work(board: Board) -> None:
        await board.edit("davis", until=date(2100, 1, 1))
        assert (await board.why("davis")).count("2100-01-01") > 0

    on_board(tmp_path, work)


def test_a_board_without_a_name_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(BadInput, match="board: '' is not a name for a board"),
        blackboard.open_blocking(tmp_path / "board.db", name="", create=True),
    ):
        pass


def test_a_worker_works_once(tmp_path: Path) -> None:
    async def work(board: Board) -> None:
        worker = board.worker()
        await worker.work("idle")
        with pytest.raises(BlackboardError, match="a worker works once"):
            await worker.work("idle")

    on_board(tmp_path, work)


def test_many_changes_of_one_item_at_once_are_all_made(tmp_path: Path) -> None:
    async def work(board: Board) -> None:
        await asyncio.gather(*(board.run("davis", trigger=f"t{n}") for n in range(50)))
        await asyncio.gather(*(board.edit("davis", params={f"k{n}": n}) for n in range(50)))
        assert len((await board.item("davis")).params) == 50

    on_board(tmp_path, work)


def test_a_worker_ends_with_its_board(tmp_path: Path) -> None:
    """What it runs is put back, and one that has not begun never works."""

    async def story() -> None:
        store = tmp_path / "board.db"
        async with blackboard.open(store, handlers=[slow], create=True) as board:
            await board.add("long", "slow")
            begun = asyncio.Event()
            board.subscribe(lambda event: begun.set() if isinstance(event, RunStarted) else None)
            works = asyncio.create_task(board.worker().work())
            await begun.wait()
            late = board.worker()
        await works
        with pytest.raises(BlackboardError, match="board is closed"):
            await late.work()
        async with blackboard.open(store) as board:
            item = await board.item("long")
            assert (item.running, item.outcome) == (False, "cancelled")

    asyncio.run(story())
