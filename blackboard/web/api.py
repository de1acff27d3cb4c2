"""The JSON interface of a board: what the pages show and do, for programs.

    GET /api/v1/items?state=failed        answers with the records that `--json` prints
    POST /api/v1/pause {"id": "davis"}    an operator's verb; answers with the item as it is then

One table, `OPERATIONS`, makes the routes and their description, /api/v1/openapi.json. The pages
ignore parameters that they do not understand; here they are an error, as is what there is not, and
every error is one object. An id is any text, so it is a parameter and no part of a path.

A POST has to be application/json: no form of a page elsewhere can send that without asking first,
and the gate has looked at its origin besides.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, get_origin, get_type_hints

import msgspec
from msgspec import UNSET
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from blackboard import __version__
from blackboard.display import sharing
from blackboard.display.health import coordinator_record, worker_count
from blackboard.display.run_queries import RunQuery
from blackboard.errors import BadInput, BlackboardError, Missing, MissingRun
from blackboard.inputs import check_keys
from blackboard.protocol.actions import actions
from blackboard.protocol.groups import read_groups
from blackboard.protocol.members import busy_workers, lost_since, with_silence, workers
from blackboard.protocol.planning import settings_of
from blackboard.records import (
    AskedRun,
    BoardItem,
    BoardRun,
    action_record,
    item_record,
    run_record,
    run_summary,
    worker_record,
)
from blackboard.rules.status import STATES, ItemStatus
from blackboard.web import refusals, shapes
from blackboard.web.actions import do
from blackboard.web.filters import Filter, facet_counts
from blackboard.web.health import LARGEST_EXAMINED, examined
from blackboard.web.openapi import JSON_TYPE, Operation, description
from blackboard.web.pages import next_times
from blackboard.web.runs import cursor_in, page_of
from blackboard.web.site import Site
from blackboard.web.snapshot import READ_EVERY
from blackboard.why import ExplainedItem, explained_record, read_one

VERSION = "/v1"
LONGEST_BODY = 2_000_000
"""Bytes."""
REMEDIES: Mapping[type[Exception], str] = {
    Missing: "GET /items lists them",
    MissingRun: "GET /runs lists those that are kept",
}
"""What a program can do here, where errors name a command."""
_HALF = re.compile(rb"(?i)\\ud[89ab]..(?!\\ud[c-f])|(?<!\\ud[89ab]..)\\ud[c-f]")
"""An escape of half a character, without the other half."""
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_PLACE = re.compile(r"(?s)(.*) - at `\$(?:\.([^.\[`]+))?.*`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_LACKING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)

ARGUMENTS = {"type": "item_type"}
"""Fields of a body that the methods of a board call otherwise."""

Act = Callable[[Site, Request, Any], Awaitable[Any]]
"""Does what an operation is for. The last argument is the decoded query or body of the request."""


# ---- what is read


async def _fresh(site: Site) -> None:
    """See that the items in memory are new. Raises TableError where the store does not answer."""
    await site.snapshot.fresh(oldest=READ_EVERY)
    if site.snapshot.problem:
        raise copy(site.snapshot.problem)


def _record(site: Site, status: ItemStatus, lost: Mapping[str, float]) -> BoardItem:
    """An item, with whether its worker is `lost` (`lost_since`)."""
    return item_record(with_silence(status, lost), site.board.labels(status.item))


async def _board(site: Site, request: Request, query: shapes.NoQuery) -> shapes.BoardAnswer:
    await _fresh(site)
    snapshot = site.snapshot
    elections = await sharing.read_leaders(site.board)
    return shapes.BoardAnswer(
        board=site.board.name,
        store=site.store,
        version=__version__,
        operator=site.access.operator,
        at=snapshot.at or await site.board.table.now(),
        board_paused=snapshot.paused,
        items=len(snapshot.entries),
        states={state: snapshot.counts["state", state] for state in STATES},
        types=dict(facet_counts(snapshot.counts, "type")),
        tags=dict(facet_counts(snapshot.counts, "tag")),
        workers=worker_count(snapshot.present),
        coordinator=coordinator_record(elections.coordinator),
    )


async def _items(site: Site, request: Request, query: shapes.ItemsQuery) -> shapes.ItemsAnswer:
    await _fresh(site)
    filters = Filter(
        search=query.q.strip(),
        states=tuple(query.state),
        types=tuple(query.type),
        tags=tuple(query.tag),
        sort=query.sort,
        reverse=query.order == "desc",
        page=query.page,
    )
    page = await site.chooser.page(filters)
    entries = page.entries if page.page == query.page else ()  # there are not so many pages
    lost = lost_since(site.snapshot.present)
    return shapes.ItemsAnswer(
        at=site.snapshot.at or await site.board.table.now(),
        items=[_record(site, entry.status, lost) for entry in entries],
        total=page.total,
        page=query.page,
        pages=page.pages,
    )


async def _one(site: Site, request: Request, query: shapes.OneItemQuery) -> BoardItem:
    status, _ = await read_one(site.board, await site.board.found(query.id))
    present = await workers(site.board) if status.running else ()
    return _record(site, status, lost_since(present))


async def _why(site: Site, request: Request, query: shapes.OneItemQuery) -> ExplainedItem:
    item = await site.board.found(query.id)
    return await explained_record(site.board, item, await workers(site.board))


async def _next(site: Site, request: Request, query: shapes.NextQuery) -> shapes.NextAnswer:
    item = await site.board.found(query.id)
    try:
        settings = settings_of(site.board, item, item.spec)
        coming = await next_times(site, item, settings, count=query.count)
    except (BadInput, ValueError) as problem:
        raise BlackboardError(f"the schedule of {item.id} is not known here: {problem}") from None
    return shapes.NextAnswer(id=item.id, times=coming.times, cut=coming.is_cut)


async def _runs(site: Site, request: Request, query: shapes.RunsQuery) -> shapes.RunsAnswer:
    after = None if query.after is UNSET else cursor_in(query.after)
    if after is None and query.after is not UNSET:
        problem = f"{query.after[:60]!r} is not a place in a list of runs"
        raise BadInput("after", problem, "give `next` of the answer before")
    filters = RunQuery(
        outcomes=query.outcome,
        types=query.type,
        since=None if query.since is UNSET else query.since,
        until=None if query.until is UNSET else query.until,
        after=after,
    )
    item = None
    if query.id is UNSET:
        await _fresh(site)
    elif (item := await site.board.item(query.id)) is None:
        raise Missing(query.id)
    runs, following = await page_of(site, item, filters, size=query.limit)
    return shapes.RunsAnswer(runs=[run_summary(run) for run in runs], next=following or None)


async def _run(site: Site, request: Request, query: shapes.OneRunQuery) -> BoardRun:
    run = await site.board.run(query.id, query.fence)
    if run is None:
        raise MissingRun(query.id, query.fence)
    return run_record(run)


async def _workers(site: Site, request: Request, query: shapes.NoQuery) -> shapes.WorkersAnswer:
    return shapes.WorkersAnswer(
        workers=[worker_record(worker) for worker in await busy_workers(site.board)]
    )


async def _leases(site: Site, request: Request, query: shapes.NoQuery) -> shapes.LeasesAnswer:
    return shapes.LeasesAnswer(
        groups=[sharing.group_record(group) for group in await read_groups(site.board)]
    )


async def _leaders(site: Site, request: Request, query: shapes.NoQuery) -> shapes.LeadersAnswer:
    elections = await sharing.read_leaders(site.board)
    shown = [sharing.election_record(status, elections.now) for status in elections.statuses]
    shown += map(sharing.unreadable_election, elections.unreadable)
    return shapes.LeadersAnswer(elections=shown, problem=elections.trouble or None)


async def _alarms(site: Site, request: Request, query: shapes.NoQuery) -> shapes.AlarmsAnswer:
    await _fresh(site)
    check, _ = await examined(site)
    if check is None:
        problem = f"more than {LARGEST_EXAMINED:,} items are not examined here"
        raise BlackboardError(f"{problem}: use `blackboard check --json`")
    return shapes.AlarmsAnswer(
        at=check.now,
        well=not check.alarms,
        items=check.items,
        board_paused=check.paused,
        problems=[*check.alarms],
    )


async def _actions(
    site: Site, request: Request, query: shapes.ActionsQuery
) -> shapes.ActionsAnswer:
    newest = await actions(site.board, limit=query.limit)
    return shapes.ActionsAnswer(actions=[action_record(action) for action in newest])


async def _openapi(site: Site, request: Request, query: shapes.NoQuery) -> Any:
    return description(OPERATIONS, root=_root(request), board=site.board.name)


def _root(request: Request) -> str:
    """Where the paths of the operations begin."""
    return f"{refusals.root_of(request.scope)}{refusals.API}{VERSION}"


# ---- what an operator does


async def _do(verb: str, site: Site, request: Request, body: Any) -> Any:
    """What the method of a board answers. A field that was left out has its default there."""
    arguments = {
        ARGUMENTS.get(name, name): value
        for name in body.__struct_fields__
        if name != "id" and (value := getattr(body, name)) is not UNSET
    }
    return await do(site, request, verb, body.id, arguments)


async def _remove(site: Site, request: Request, body: shapes.ReasonBody) -> shapes.RemovedAnswer:
    await _do("remove", site, request, body)
    return shapes.RemovedAnswer(id=body.id)


# ---- the table


def _get(path: str, act: Act, query: Any, answer: Any, summary: str) -> Operation:
    return Operation("GET", path, query, answer, summary, act)


def _post(verb: str, body: Any, answer: Any, summary: str, act: Act | None = None) -> Operation:
    return Operation("POST", f"/{verb}", body, answer, summary, act or partial(_do, verb))


_NONE = shapes.NoQuery
OPERATIONS: Sequence[Operation] = (
    _get("/board", _board, _NONE, shapes.BoardAnswer, "The board in short."),
    _get("/items", _items, shapes.ItemsQuery, shapes.ItemsAnswer, "Items, 100 a page."),
    _get("/item", _one, shapes.OneItemQuery, BoardItem, "One item."),
    _get("/why", _why, shapes.OneItemQuery, ExplainedItem, "Why an item runs or does not."),
    _get("/next", _next, shapes.NextQuery, shapes.NextAnswer, "The next times of an item."),
    _get("/runs", _runs, shapes.RunsQuery, shapes.RunsAnswer, "Runs, the newest first."),
    _get("/run", _run, shapes.OneRunQuery, BoardRun, "One run, with its output."),
    _get("/workers", _workers, _NONE, shapes.WorkersAnswer, "The workers."),
    _get("/leases", _leases, _NONE, shapes.LeasesAnswer, "The groups of partitions."),
    _get("/leaders", _leaders, _NONE, shapes.LeadersAnswer, "The elections."),
    _get("/alarms", _alarms, _NONE, shapes.AlarmsAnswer, "What is wrong."),
    _get("/actions", _actions, shapes.ActionsQuery, shapes.ActionsAnswer, "What people did."),
    _get("/openapi.json", _openapi, _NONE, None, "This description."),
    _post("run", shapes.RunBody, AskedRun, "Run an item now."),
    _post("pause", shapes.ReasonBody, BoardItem, "Start no more runs of an item."),
    _post("resume", shapes.ReasonBody, BoardItem, "Undo a pause."),
    _post("ack", shapes.OneRunBody, BoardItem, "Acknowledge that an item failed."),
    _post("cancel", shapes.OneRunBody, BoardItem, "End the running run of an item."),
    _post(
        "unlock", shapes.OneRunBody, BoardItem, "Take the lock of a running item from its worker."
    ),
    _post("edit", shapes.EditBody, BoardItem, "Change how an item is run."),
    _post("rename", shapes.RenameBody, BoardItem, "Give an item another id."),
    _post("remove", shapes.ReasonBody, shapes.RemovedAnswer, "Remove an item.", _remove),
)


# ---- from a request to an answer


def api_app(site: Site) -> Starlette:
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    app = Starlette(
        routes=[
            Route(f"{VERSION}{path}", partial(_answer, site, path, methods), methods=[*methods])
            for path, methods in by_path.items()
        ],
        exception_handlers={
            **{kind: _refuses(status) for kind, (status, _) in refusals.REFUSED.items()},
            refusals.WrongType: _refuses(415),
            ClientDisconnect: refusals.client_gone,
            HTTPException: _of_http,
            Exception: _fails,
        },
    )
    app.router.redirect_slashes = False
    return app


async def _answer(
    site: Site, path: str, methods: dict[str, Operation], request: Request
) -> Response:
    operation = methods["GET" if request.method == "HEAD" else request.method]
    if operation.has_body:
        if not site.access.operator:
            raise refusals.NotAllowed(
                "this board is read-only: `blackboard serve --operator` allows changes"
            )
        decoded = await _body(request, operation.request)
        return refusals.json_answer(await operation.act(site, request, decoded))
    decoded = _query(request, operation.request)
    async with site.turn(request, f"{VERSION}{path}"):
        return refusals.json_answer(await operation.act(site, request, decoded))


def _query(request: Request, struct: Any) -> Any:
    """The parameters of an address. Raises BadInput."""
    hints = get_type_hints(struct)
    parameters: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if get_origin(hints.get(name)) is list:
            parameters.setdefault(name, []).append(value)
        elif name in parameters:
            raise BadInput(name, "it is given more than once", "give it once")
        else:
            is_number = hints.get(name) is int and _NUMBER.fullmatch(value)
            parameters[name] = int(value) if is_number else value
    try:
        return msgspec.convert(parameters, struct)
    except msgspec.ValidationError as problem:
        raise _bad(problem, struct, request, part="query") from None


async def _body(request: Request, struct: Any) -> Any:
    """The body of a request. Raises BadInput."""
    remedy = f"at most {LONGEST_BODY:,} bytes"
    body = await refusals.body_of(request, JSON_TYPE, most=LONGEST_BODY, remedy=remedy)
    try:
        decoded = msgspec.json.decode(body, type=struct)
        check_keys(body, "body")
    except msgspec.ValidationError as problem:
        raise _bad(problem, struct, request, part="body") from None
    except (ValueError, RecursionError) as problem:
        reason = "half of a surrogate pair is no character" if _HALF.search(body) else problem
        raise BadInput("body", f"it is not JSON: {reason}", 'as in {"id": "davis"}') from None
    return decoded


def _bad(problem: msgspec.ValidationError, struct: Any, request: Request, *, part: str) -> BadInput:
    """What is wrong with a `part` of a request, and with which field."""
    text = str(problem)
    placed = _PLACE.fullmatch(text)
    if placed is not None:
        text = placed[1]
    names = ", ".join(struct.__struct_fields__)
    if unknown := _UNKNOWN.fullmatch(text):
        return BadInput(unknown[1], "it is unknown", f"one of {names}" if names else "leave it out")
    if lacking := _LACKING.fullmatch(text):
        return BadInput(lacking[1], "it is missing", f"one of {names}")
    field = placed[2] if placed is not None else None
    if kind := shapes.KINDS.get(get_type_hints(struct).get(field or "")):
        text = f'expected {kind}, or ""'
    return BadInput(field or part, f"{text[:1].lower()}{text[1:]}", _document(request))


def _document(request: Request) -> str:
    """A remedy: where all is described."""
    return f"see {_root(request)}/openapi.json"


def _refuses(status: int) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, problem: Exception) -> Response:
        if isinstance(problem, BadInput):
            remedy = REMEDIES.get(type(problem), problem.remedy)
            return refusals.refusal(status, problem.problem, field=problem.field, remedy=remedy)
        headers = refusals.retry_after(problem) if status == 503 else None
        return refusals.refusal(status, str(problem), headers=headers)

    return answer


async def _of_http(request: Request, problem: Exception) -> Response:
    """No such path, or no such method of a path."""
    assert isinstance(problem, HTTPException)
    if problem.status_code == 404:
        return refusals.refusal(404, "there is no such address", remedy=_document(request))
    allowed = (problem.headers or {}).get("Allow", "")
    remedy = f"one of {allowed}" if allowed else ""
    text = f"{request.method} is not answered here" if allowed else problem.detail
    return refusals.refusal(problem.status_code, text, remedy=remedy, headers=problem.headers)


async def _fails(request: Request, problem: Exception) -> Response:
    """A fault of this program: the log has it."""
    return refusals.refusal(500, "an error of the server", remedy="see the log of the server")
