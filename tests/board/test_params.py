"""The params of a type, as `@handler(params=...)` declares them: described, checked, given."""

import asyncio
import dataclasses
import enum
import json
import math
import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest

from blackboard import BadInput, Context, Item, handler, open_blocking
from blackboard.handlers.handler import handlers_of
from blackboard.handlers.params import Params, described, written
from blackboard.model import Outcome, replace
from blackboard.runners.runner import HandlerCall, Runner
from tests.cli.command_line import CommandLine, blackboard
from tests.jobs_for_tests.plain import ReportParams
from tests.support.runs import PATIENCE, Told, call_of, on_the_loop, run, with_processes

__all__ = ["blackboard"]


class Depth(enum.Enum):
    SHORT = "short"
    LONG = "long"


class Source(msgspec.Struct, tag="source"):
    url: str


class File(msgspec.Struct, tag="file"):
    path: str


NO_NAME = UUID(int=0)


@dataclasses.dataclass
class Everything:
    """One field of each kind."""

    text: str
    days: Annotated[int, msgspec.Meta(ge=1, le=90)] = 30
    share: float = 0.5
    loud: bool = False
    depth: Depth = Depth.SHORT
    way: Literal["up", "down"] = "up"
    level: Literal[1, 2] = 1
    names: list[str] = dataclasses.field(default_factory=list)
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    source: Source | File | None = None
    pair: tuple[int, str] | None = None
    day: date = date(2026, 11, 21)
    code: Annotated[str, msgspec.Meta(pattern="^[a-z]+$", max_length=4)] = "ab"
    key: bytes = b""
    name: UUID = NO_NAME
    price: Decimal = Decimal("1.5")
    wait: timedelta = timedelta(minutes=5)


EVERYTHING = described(Everything, "handler")
FROM_A_MANIFEST = Params(schema=json.loads(json.dumps(EVERYTHING.schema)))
"""As it is where the class is not at hand."""
THE_VALUE_OF = "the value of ${%s} in the worker's environment does not fit"
both = pytest.mark.parametrize("params", [EVERYTHING, FROM_A_MANIFEST], ids=["class", "manifest"])


@both
def test_a_summary_says_what_each_field_may_be(params: Params) -> None:
    lines = dict(line.split(" ", 1) for line in params.summary())
    assert lines["text*"] == "(text)"
    assert lines["days"] == "(a whole number, at least 1, at most 90) = 30"
    assert lines["way"] == '(one of down, up) = "up"'
    assert lines["source"] == "(a table or nothing) = null"
    assert lines["day"] == '(text of the format date) = "2026-11-21"'


@both
@pytest.mark.parametrize(
    "given",
    [
        {"text": "x"},
        {"text": "", "days": 90, "share": 1, "loud": True, "depth": "long", "way": "down"},
        {"text": "x", "names": ["a", ""], "sizes": {"a": 1}, "code": "abcd"},
        {"text": "x", "source": {"type": "source", "url": "y"}},
        {"text": "x", "source": {"type": "file", "path": "y"}, "pair": [1, "a"]},
        {"text": "x", "source": {"type": "${TYPE}", "path": "y"}},
        {"text": "${TEXT}", "days": "${DAYS}", "names": ["${NAME}"], "loud": "${LOUD}"},
        {"text": "x", "day": "2026-08-21"},
        {"text": "x", "day": date(2026, 8, 21)},
        {"text": "x", "key": "aGk=", "name": str(UUID(int=7)), "price": "2", "wait": "PT1S"},
        {"text": "x", "key": b"hi", "name": UUID(int=7), "price": Decimal(2)},
        {"text": "x", "wait": timedelta(seconds=1), "depth": Depth.LONG, "names": {"a"}},
    ],
)
def test_what_fits_is_taken(params: Params, given: dict[str, Any]) -> None:
    params.check(given)


@both
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "params.text: it is missing (give text)"),
        ({"text": 1}, "params.text: 1 is not text (give text)"),
        ({"days": "30"}, "params.days: '30' is not a whole number (give a whole number)"),
        ({"days": 0}, "params.days: 0 is out of range (at least 1)"),
        ({"days": 91}, "params.days: 91 is out of range (at most 90)"),
        ({"days": True}, "params.days: True is not a whole number (give a whole number)"),
        ({"days": 3.0}, "params.days: 3.0 is not a whole number (give a whole number)"),
        ({"days": "$${DAYS}"}, "params.days: '$${DAYS}' is not a whole number"),
        ({"share": "half"}, "params.share: 'half' is not a number (give a number)"),
        ({"loud": 1}, "params.loud: 1 is not true or false (give true or false)"),
        ({"depth": "deep"}, "params.depth: 'deep' is not one of its values (give one of"),
        ({"way": "left"}, "params.way: 'left' is not one of its values (give one of"),
        ({"level": 1.0}, "params.level: 1.0 is not one of its values (give one of 1, 2)"),
        ({"level": True}, "params.level: True is not one of its values (give one of 1, 2)"),
        ({"names": "a"}, "params.names: 'a' is not a list (give a list)"),
        ({"names": ["a", 1]}, "params.names[1]: 1 is not text (give text)"),
        ({"sizes": {"a": "b"}}, "params.sizes.a: 'b' is not a whole number"),
        ({"source": {"type": "file"}}, "params.source.path: it is missing (give text)"),
        ({"source": {"url": "x"}}, "params.source.type: it is missing (give one of source, file)"),
        ({"source": {"type": "x"}}, "params.source.type: 'x' is not one of its values (give one"),
        ({"source": {"type": "file", "pfad": ""}}, "params.source.pfad: there is no such field"),
        ({"source": 3}, "params.source: 3 fits nothing that it may be (give a table or nothing)"),
        ({"pair": [1, 2]}, "params.pair"),
        ({"day": "tomorrow"}, "params.day: 'tomorrow' is not a date like 2026-08-21 (give a date"),
        ({"day": "20260821"}, "params.day: '20260821' is not a date like 2026-08-21 (give a date"),
        ({"code": "ABC"}, "params.code: 'ABC' is out of range (text that matches ^[a-z]+$)"),
        ({"code": "abcde"}, "params.code: 'abcde' is out of range (a length of at most 4)"),
        ({"key": "??"}, "params.key: '??' is not text in base64 (give text in base64)"),
        ({"name": "7"}, "params.name: '7' is not a UUID like 01234567-89ab-cdef-0123-456789abcdef"),
        ({"price": "much"}, "params.price: 'much' is not a number as text, like 1.50 (give a num"),
        ({"wait": "5m"}, "params.wait: '5m' is not a duration like PT5M (give a duration like PT"),
        ({"txet": 3}, "params.txet: there is no such field (did you mean text?)"),
        ({"qqq": 3}, "params.qqq: there is no such field (there are: text, days,"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_field_and_the_remedy(
    params: Params, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput) as refused:
        params.check(given if not given or "text" in given else {"text": "x", **given})
    assert str(refused.value).startswith(message)


def test_fields_that_are_none_by_default_are_left_out_at_any_depth() -> None:
    @dataclasses.dataclass
    class Inner:
        note: str | None = None
        count: int = 1

    class Outer(msgspec.Struct, rename="camel"):
        one_inner: Inner
        more: list[Inner]
        by_name: dict[str, Inner]
        note: str | None = None

    one = {"count": 1}
    assert written(Outer(Inner(), [Inner(), Inner("x")], {"a": Inner()})) == {
        "oneInner": one,
        "more": [one, {"note": "x", "count": 1}],
        "byName": {"a": one},
    }
    assert written({"inner": Inner(), "more": [{"a": Inner("x")}]}) == {
        "inner": one,
        "more": [{"a": {"note": "x", "count": 1}}],
    }


def test_annotations_that_name_what_is_not_there_do_not_matter_for_params() -> None:
    """As those of imports below `if TYPE_CHECKING:`."""

    @dataclasses.dataclass
    class Inner:
        note: "NotThere | None" = None  # type: ignore[name-defined]  # noqa: F821
        count: int = 1

    class Outer(msgspec.Struct, rename="camel"):
        one_inner: "NotThere"  # type: ignore[name-defined]  # noqa: F821
        note: "NotThere | None" = None  # type: ignore[name-defined]  # noqa: F821

    assert written(Outer(Inner())) == {"oneInner": {"count": 1}}
    assert written({"inner": Inner()}) == {"inner": {"count": 1}}


class Odd(msgspec.Struct):
    number: int

    def __post_init__(self) -> None:
        if self.number % 2 == 0:
            raise ValueError("it is even")


def test_what_only_the_class_can_refuse_is_refused_by_it() -> None:
    odd = described(Odd, "handler")
    odd.check({"number": 3})
    Params(schema=odd.schema).check({"number": 2})
    with pytest.raises(BadInput, match="it is even"):
        odd.check({"number": 2})


@pytest.mark.parametrize(
    ("field", "written", "value", "place", "remedy"),
    [
        ("days", "${A}", "many", "days", "a whole number, at least 1, at most 90"),
        ("days", "${A}", "91", "days", "a whole number, at least 1, at most 90"),
        ("day", "${A}", "tomorrow", "day", "text of the format date"),
        ("depth", "${A}", "deepest", "depth", "one of long, short"),
        ("names", "${A}", "many", "names", "a list"),
        ("sizes", {"x": "${A}"}, {"x": "many"}, "sizes[...]", "a whole number"),
        ("pair", ["${A}", "b"], ["many", "b"], "pair[0]", "a whole number"),
        (
            "source",
            {"type": "${A}"},
            {"type": "other"},
            "source.type",
            "one of source or one of file",
        ),
    ],
)
def test_a_variable_that_does_not_fit_is_named_without_its_value(
    field: str, written: Any, value: Any, place: str, remedy: str
) -> None:
    with pytest.raises(BadInput) as refused:
        EVERYTHING.made({"text": "x", field: value}, written={"text": "${B}", field: written})
    assert str(refused.value) == f"params.{place}: {THE_VALUE_OF % 'A'} (give {remedy})"


def test_a_variable_beside_what_does_not_fit_is_not_named() -> None:
    params = {"text": "x", "day": "tomorrow"}
    with pytest.raises(BadInput, match=r"^params\.day: Invalid RFC3339"):
        EVERYTHING.made(params, written=params | {"text": "${A}"})


@dataclasses.dataclass
class Numbered:
    names: dict[int, str]


def test_keys_may_be_of_what_json_writes_as_text() -> None:
    numbered = described(Numbered, "handler")
    given = {"names": {"1": "a"}}
    numbered.check(given)
    assert numbered.made(given) == Numbered({1: "a"})
    with pytest.raises(BadInput, match=r"^params\.names: one of its keys: Expected `int`"):
        numbered.made({"names": {"x": "a"}}, written={"names": {"x": "${A}"}})


class Times(msgspec.Struct):
    at: datetime
    """Its schema does not say that it is a time, as that may have a zone or not."""


def test_a_time_without_a_format_is_refused_with_the_remedy() -> None:
    times = described(Times, "handler")
    times.check({"at": "2026-08-21T18:00:00"})
    with pytest.raises(BadInput) as refused:
        times.check({"at": "2026-08-21"})
    assert str(refused.value) == (
        "params.at: Invalid RFC3339 encoded datetime (give a time like 2026-08-21T18:00:00Z)"
    )


ENDING: dict[int, type[BaseException]] = {
    101: SystemExit,
    102: KeyboardInterrupt,
    103: asyncio.CancelledError,
    104: GeneratorExit,
}


@dataclasses.dataclass
class Span:
    """Which refuses by itself."""

    days: int = 1

    def __post_init__(self) -> None:
        if self.days < 0:
            raise ValueError("a span has no negative days")
        if self.days > 100:
            raise ENDING[self.days](self.days)
        if self.days > 90:
            raise OverflowError(self.days)


@pytest.mark.parametrize(
    ("days", "message"),
    [
        (-1, "params: a span has no negative days"),
        (91, "params: OverflowError: 91"),
        *((days, f"params: {kind.__name__}: {days}") for days, kind in ENDING.items()),
    ],
)
def test_what_the_class_refuses_by_itself_no_item_can_have(
    tmp_path: Path, days: int, message: str
) -> None:
    @handler("span", params=Span)
    async def span(item: Item, ctx: Context) -> None: ...

    with open_blocking(tmp_path / "app.db", handlers=[span], create=True) as board:
        with pytest.raises(BadInput) as refused:
            board.add("a", "span", params={"days": days})
        assert str(refused.value) == message
        board.add("a", "span", params={"days": "${DAYS}"})
        with pytest.raises(BadInput) as refused:
            board.edit("a", params={"days": days})
        assert str(refused.value) == message
        assert board.item("a").params == {"days": "${DAYS}"}


def test_ctrl_c_while_a_class_looks_at_params_is_no_refusal() -> None:
    with pytest.raises(KeyboardInterrupt):
        described(Span, "handler").check({"days": 102})


@pytest.mark.parametrize("kind", [int, dict, "ReportParams", lambda: 1])
def test_what_is_no_class_of_params_is_refused_where_it_is_declared(kind: Any) -> None:
    with pytest.raises(
        BadInput, match=r"handler 't' .* is not a dataclass .* validate `item.params`"
    ):

        @handler("t", params=kind)
        def run(item: Item, ctx: Context) -> None: ...


def test_a_class_that_json_cannot_describe_is_refused_where_it_is_declared() -> None:
    @dataclasses.dataclass
    class Odd:
        number: complex

    with pytest.raises(BadInput, match=r"handler 't' .*params Odd"):
        handler("t", params=Odd)(lambda item, ctx: None)


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ((int | None,), ".field"),
        ((int | None, 30), ".field"),
        ((list[int | None],), ".field[...]"),
        ((dict[str, int | None],), ".field[...]"),
        ((tuple[int, str | None] | None, None), ".field[...]"),
    ],
)
def test_a_field_whose_none_no_row_can_keep_is_refused_where_it_is_declared(
    kind: tuple[Any, ...], field: str
) -> None:
    Odd = msgspec.defstruct("Odd", [("field", *kind)])  # noqa: N806 - a class
    Outer = msgspec.defstruct("Outer", [("inner", Odd)])  # noqa: N806
    for one in (Odd, Outer):
        with pytest.raises(BadInput, match=rf"handler 't' .*params Odd{re.escape(field)}: .* None"):
            handler("t", params=one)(lambda item, ctx: None)


def test_a_class_that_is_written_as_a_list_is_refused_where_it_is_declared() -> None:
    class Point(msgspec.Struct, array_like=True):
        x: int

    class Place(msgspec.Struct):
        point: Point

    with pytest.raises(BadInput, match=r"handler 't' .*params Point: it is written as a list"):
        handler("t", params=Point)(lambda item, ctx: None)
    described(Place, "t").check({"point": [1]})


@dataclasses.dataclass
class Odder:
    number: complex


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Odder, "params Odder: type complex is not supported (use what JSON has"),
        (complex, "params complex is not a dataclass or a Struct of msgspec (name one"),
    ],
)
def test_a_class_that_no_row_can_keep_is_named_in_a_line(kind: Any, words: str) -> None:
    with pytest.raises(BadInput, match=r"\Ahandler 't' .*\Z") as refused:
        handler("t", params=kind)(lambda item, ctx: None)
    assert words in str(refused.value)


def test_a_handler_describes_its_params_as_json() -> None:
    @handler("t", params=ReportParams)
    def report(item: Item, ctx: Context) -> None: ...

    [one] = handlers_of(report)
    assert one.params is not None
    described = json.loads(json.dumps(one.params.schema))
    fields = described["$defs"]["ReportParams"]["properties"]
    assert fields["days"] == {"type": "integer", "default": 30}
    assert described["$defs"]["ReportParams"]["required"] == ["url"]


KINDS = [(on_the_loop, "a-report"), (with_processes, "report")]
on_each_runner = pytest.mark.parametrize(("on", "type_"), KINDS, ids=["coroutine", "plain"])


def called(type_: str, params: Mapping[str, Any], written: Any = None) -> HandlerCall:
    call = call_of(type_)
    return replace(call, item=replace(call.item, params=params, written=written))


@on_each_runner
def test_a_handler_gets_its_params_as_the_class(on: Any, type_: str) -> None:
    async def story(runner: Runner) -> None:
        ended = await run(runner, type_, url="x")
        assert (ended.outcome, ended.result) == (Outcome.OK, ["ReportParams", "x", 30])
        # A variable of the environment is text, whatever it stands for.
        call = called(type_, {"url": "x", "days": "60"}, {"url": "x", "days": "${DAYS}"})
        execution = runner.start(call, Told(), math.inf)
        ended = await asyncio.wait_for(execution.wait(), PATIENCE)
        assert (ended.outcome, ended.result) == (Outcome.OK, ["ReportParams", "x", 60])

    on(story)


@on_each_runner
def test_params_are_checked_before_the_run_and_bad_ones_are_not_tried_again(
    on: Any, type_: str
) -> None:
    async def story(runner: Runner) -> None:
        for call, error in (
            (called(type_, {}), "params.url: it is missing (give text)"),
            (called(type_, {"url": 3}), "params.url: 3 is not text (give text)"),
            (
                called(type_, {"url": "x", "days": "many"}, {"url": "x", "days": "${DAYS}"}),
                f"params.days: {THE_VALUE_OF % 'DAYS'} (give a whole number)",
            ),
        ):
            execution = runner.start(call, Told(), math.inf)
            ended = await asyncio.wait_for(execution.wait(), PATIENCE)
            assert (ended.outcome, ended.error, ended.final) == (Outcome.FAILED, error, True)

    on(story)


JOBS = """
import dataclasses
from blackboard import handler

@dataclasses.dataclass
class ReportParams:
    url: str
    days: int = 30

@handler("report", every="1h", params=ReportParams)
def report(item, ctx):
    return item.params.days
"""


def test_add_edit_and_apply_refuse_params_that_do_not_fit(blackboard: CommandLine) -> None:
    Path("reports.py").write_text(JOBS)
    blackboard.write('[board]\njobs = ["reports.py"]\n')
    remedy = "params.dayz: there is no such field (did you mean days?)"
    assert remedy in blackboard("add", "a", "--type", "report", "--set", "dayz=3", code=2).err
    blackboard("add", "a", "--type", "report", "--set", "url=x")
    bad = "params.days: 'many' is not a whole number"
    assert bad in blackboard("edit", "a", "--set", "days=many", code=2).err
    assert "params.url: it is missing" in blackboard("edit", "a", "--unset", "url", code=2).err
    blackboard("edit", "a", "--set", "days=${DAYS}")
    blackboard.write(
        '[board]\njobs = ["reports.py"]\n[[items]]\nid = "b"\ntype = "report"\n'
        "params = { url = 3 }\n"
    )
    said = blackboard("apply", code=2).err
    assert said == "blackboard: params.url: blackboard.toml:6: 3 is not text (give text)\n"
    assert blackboard.ids() == ["a"]


def test_an_edit_of_other_things_does_not_check_params(blackboard: CommandLine) -> None:
    """As of an item whose type has got another class since; of many items the one is named that
    refuses an edit.
    """
    Path("reports.py").write_text(JOBS)
    blackboard.write('[board]\njobs = ["reports.py"]\n')
    blackboard("add", "a", "--type", "report", "--set", "url=x")
    Path("reports.py").write_text(JOBS.replace("url: str", "address: str"))
    blackboard("add", "b", "--type", "report", "--set", "address=x")
    blackboard("edit", "a", "b", "--every", "2h")
    assert blackboard("next", "a").out.startswith("a: active, every 2 hours")
    with open_blocking(blackboard.store, handlers=["reports.py"]) as board:
        assert board.edit("a", owner="ann").labels.owner == "ann"
        with pytest.raises(BadInput, match=r"params\.url: there is no such field"):
            board.edit("a", params={"days": 2})
    one = "params.url: there is no such field (there are: address, days)"
    assert one in blackboard("edit", "a", "--set", "days=2", code=2).err
    of_many = "params.url: a: there is no such field (there are: address, days)"
    assert of_many in blackboard("edit", "b", "a", "--set", "days=2", code=2).err


def test_the_python_interface_refuses_params_that_do_not_fit(tmp_path: Path) -> None:
    @handler("report", every="1h", params=ReportParams)
    async def report(item: Item, ctx: Context) -> int:
        days: int = item.params.days
        return days

    store = str(tmp_path / "app.db")
    with open_blocking(store, handlers=[report], create=True) as board:
        with pytest.raises(BadInput, match=r"params\.url: it is missing"):
            board.add("a", "report", timeout=600)
        board.add("a", "report", params={"url": "x"}, timeout=600)
        with pytest.raises(BadInput, match=r"params\.days: 'many' is not a whole number"):
            board.edit("a", params={"days": "many"})
        board.edit("a", params={"days": 60})
        assert board.item("a").params == {"url": "x", "days": 60}
