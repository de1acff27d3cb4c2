"""What operators do on the pages: one item at a time, or all that a filter matches.

Each is a verb of the board. A form carries the value that proves it to be ours; the name of the
visitor is recorded with what is done. Before many items are changed a page names their number, and
when another number matches by then, it asks again. Many items are changed in the background, while
a page shows how far that is; that it began is recorded before the first of them is changed. A run
is ended, a lock taken, and a failure acknowledged, only if it is the one that was shown, or of many
items the one that was there when it was confirmed: another has begun since. A form that is sent
twice, as by a double click or a proxy, requests no second run, and no second change of many items.
"""

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from blackboard.clock import Clock
from blackboard.display.escaping import shown
from blackboard.errors import BadInput, BlackboardError
from blackboard.inputs import check_keys, number_of
from blackboard.phrases import plural
from blackboard.protocol.actions import Done, param_names, recording_action
from blackboard.records import AskedRun
from blackboard.table import TableError
from blackboard.tasks import cancel_all, in_turns, until_one_ends
from blackboard.web.access import LONGEST_VISITOR, visitor_of
from blackboard.web.filters import Filter
from blackboard.web.refusals import NotAllowed, body_of, root_of
from blackboard.web.site import Site, WebPage, of_field

_log = logging.getLogger("blackboard.web")
Form = ImmutableMultiDict[str, str]
FORM_TYPE = "application/x-www-form-urlencoded"
LONGEST_FORM = 1_000_000
"""Bytes."""
MOST_FIELDS = 25_000
MOST_ITEMS = 20_000
"""Items that are changed by one form."""
NO_RUN = 0
"""No run has this fence."""
AT_ONCE = 16
LAST_CHANGES = 10.0
"""Seconds for which changes of many items go on when the server ends."""
NAMED = 10
"""Ids, and problems, that a page names."""
KEPT = 20
"""Bulk changes that are remembered."""
EDITABLE: Mapping[str, str] = {
    "every": "8h",
    "cron": "0 3 * * *",
    "rrule": "FREQ=WEEKLY;BYDAY=MO",
    "at": "2027-01-31T09:00",
    "timezone": "Europe/Berlin",
    "timeout": "5m",
    "retries": "2",
    "description": "what it is for",
}
"""What a form may say of how an item is run, each with an example."""


async def read_form(request: Request) -> Form:
    """The fields of a form, with ends of lines as they are elsewhere. Raises BadInput for what no
    page sends.
    """
    remedy = "choose fewer items"
    body = await body_of(request, FORM_TYPE, most=LONGEST_FORM, remedy=remedy)
    try:
        fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise BadInput("form", "it cannot be read", remedy) from None
    return Form((name, value.replace("\r\n", "\n")) for name, value in fields)


class ItemVerb(NamedTuple):
    """Something that operators do to an item: the method of that name of a board."""

    fields: tuple[str, ...]
    """What is said of it besides the item and a reason, by the names of `FIELDS`."""
    said: str
    """What the page of the item says then."""
    words: str
    """What is done to many items; "": it is for one."""


VERBS: Mapping[str, ItemVerb] = {
    "run": ItemVerb(("params", "trigger"), "A run was requested.", "run now"),
    "pause": ItemVerb((), "It was paused.", "pause"),
    "resume": ItemVerb((), "It was resumed.", "resume"),
    "ack": ItemVerb(("fence",), "Its failure was acknowledged.", "acknowledge"),
    "cancel": ItemVerb(("fence",), "The run was cancelled.", "cancel"),
    "unlock": ItemVerb(("fence",), "The lock was taken away.", "unlock"),
    "edit": ItemVerb(("options",), "It was changed.", "edit"),
    "rename": ItemVerb(("new_id",), "It was renamed.", ""),
    "remove": ItemVerb((), "It was removed.", ""),
}
SAID = {name: verb.said for name, verb in VERBS.items()} | {
    "joined": "A run was requested: one run is for this request and for one that waits already.",
    "again": "A run was asked for by this form before: there is no second run. Load the page anew"
    " to ask for one.",
}
"""What the page of an item says of what was done, by how its address names that."""
OF_MANY = {name: verb.words for name, verb in VERBS.items() if verb.words}


def arguments_in(verb: str, form: Form) -> dict[str, Any]:
    """The arguments of a verb that a form has. Raises BadInput."""
    arguments = {"reason": form.get("reason", "")}
    return arguments | {k: v for name in VERBS[verb].fields for k, v in FIELDS[name](form).items()}


def fence_in(form: Form) -> int | None:
    """The fence of the run that a page showed; None where the form says none. Raises BadInput."""
    text = form.get("fence", "")
    fence = number_of(text, digits=12)
    if text and fence is None:
        raise BadInput("fence", f"{text[:60]!r} is no fence", "load the page again")
    return fence


def request_in(form: Form) -> str:
    """The name of the request that a form makes, the same where it is sent once more as it was; ""
    for one without a nonce, which no page has made.
    """
    if not form.get("nonce"):
        return ""
    fields = [pair for pair in form.multi_items() if pair[0] != "csrf"]
    return hashlib.sha256(msgspec.json.encode(fields)).hexdigest()[:32]


def params_in(text: str) -> dict[str, Any]:
    """The params of a run, from JSON. Raises BadInput."""
    if not text.strip():
        return {}
    try:
        params = msgspec.json.decode(text)
        check_keys(text, "params")
    except (ValueError, RecursionError) as problem:
        raise BadInput("params", f"it is not JSON: {problem}", 'as in {"days": 3}') from None
    if not isinstance(params, dict):
        raise BadInput("params", "it is not an object", 'as in {"days": 3}')
    return params


def options_in(form: Form) -> dict[str, Any]:
    """What a form changes: each option that is another one than the form showed, so that two who
    edit an item at the same time do not undo each other's changes. Raises BadInput.
    """
    given = {name: form.get(name, "").strip() for name in EDITABLE}
    options: dict[str, Any] = {
        name: value for name, value in given.items() if value != form.get(f"was.{name}", "").strip()
    }
    if not options:
        raise BadInput("edit", "nothing is changed", "change a field")
    if text := options.get("retries"):
        options["retries"] = number_of(text)
        if options["retries"] is None:
            raise BadInput("retries", f"{text!r} is not a number", "0 or more")
    return options


FIELDS: Mapping[str, Callable[[Form], Mapping[str, Any]]] = {
    "params": lambda form: {"params": params_in(form.get("params", ""))},
    "trigger": lambda form: {"trigger": request_in(form)},
    "fence": lambda form: {"fence": fence_in(form)},
    "options": options_in,
    "new_id": lambda form: {"new_id": form.get("new_id", "").strip()},
}
"""How the arguments of verbs are read from a form."""


def check_verb(verb: str, verbs: Collection[str]) -> None:
    """Raises BadInput."""
    if verb not in verbs:
        raise BadInput("action", f"there is no {verb[:60]!r}", f"one of {', '.join(verbs)}")


def name_of(request: Request) -> str:
    """Who is recorded."""
    visitor = visitor_of(request)
    assert visitor is not None
    return visitor.name[:LONGEST_VISITOR]


async def own_form(site: Site, request: Request) -> Form:
    """The form of a visitor. Raises NotAllowed for one that was made for another visit."""
    form = await read_form(request)
    request.state.item_id = of_field(form.get("id", ""))  # where a refusal leads back to
    if not site.is_form_ours(request, form.get("csrf", "")):
        raise NotAllowed(
            "this form is of another visit, or the server was started anew: open the page again,"
            " and send the form from there"
        )
    return form


async def checked_form(site: Site, request: Request) -> Form:
    """The form of an operator, checked. Raises NotAllowed where it may not be sent."""
    if not site.access.operator:
        raise NotAllowed("this page is read-only: `blackboard serve --operator` allows changes")
    return await own_form(site, request)


async def act(site: Site, request: Request) -> Response:
    form = await checked_form(site, request)
    verb = request.path_params["verb"]
    check_verb(verb, VERBS)
    item_id = of_field(form.get("id", ""))
    arguments = arguments_in(verb, form)
    done = await do(site, request, verb, item_id, arguments)
    if isinstance(done, AskedRun) and done.joined:
        verb = "joined" if done.changed else "again"
    query = urlencode({"id": arguments.get("new_id", item_id), "done": verb})
    return RedirectResponse(f"{root_of(request.scope)}/item?{query}", 303)


async def do(
    site: Site, request: Request, verb: str, item_id: str, arguments: Mapping[str, Any]
) -> Any:
    """What the method of a board answers to the visitor; the item is shown as it is then."""
    done = await getattr(site.verbs, verb)(item_id, by=name_of(request), **arguments)
    await site.snapshot.reread({item_id, arguments.get("new_id", item_id)})
    return done


# ---- many items


@dataclass(slots=True, kw_only=True)
class BulkChange:
    request: str
    """The name of the request for it, by which the process that does it finds its page."""
    verb: str
    by: str
    ids: Sequence[str]
    changed: Done = field(default_factory=Done)
    """What is recorded of it."""
    done: int = 0
    problems: list[tuple[str, str]] = field(default_factory=list)
    """Ids, each with what was wrong."""
    failed: int = 0
    left: deque[str] = field(init=False)
    """The ids of those that are not begun."""
    task: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.left = deque(self.ids)

    @property
    def total(self) -> int:
        return len(self.ids)

    @property
    def is_over(self) -> bool:
        return self.done >= self.total

    @property
    def words(self) -> str:
        return VERBS[self.verb].words


class BulkChanges:
    """The latest changes of many items, by the names of their requests."""

    def __init__(self) -> None:
        self._latest: dict[str, BulkChange] = {}
        self._starting: dict[str, asyncio.Task[None]] = {}

    def get(self, request: str) -> BulkChange | None:
        return self._latest.get(request)

    async def start(self, site: Site, change: BulkChange, arguments: Mapping[str, Any]) -> None:
        """Begin to change items, unless its request has begun that. Of runs, those end that the
        snapshot has now. Raises TableError where the store does not take the record.
        """
        name = change.request
        if name in self._latest:
            return
        if name not in self._starting:
            self._starting[name] = asyncio.create_task(self._start(site, change, arguments))
            self._starting[name].add_done_callback(lambda _: self._starting.pop(name))
        await asyncio.shield(self._starting[name])

    async def _start(self, site: Site, change: BulkChange, arguments: Mapping[str, Any]) -> None:
        entries = site.snapshot.entries
        fences = {one: entries[one].item.fence for one in change.ids if one in entries}
        recording = recording_action(
            site.board,
            by=change.by,
            verb=change.verb,
            ids=change.ids,
            reason=arguments["reason"],
            via="web",
            warn=_log.warning,
        )
        ending = AsyncExitStack()
        change.changed = await ending.enter_async_context(recording)
        change.changed.details.extend(_details(change.verb, arguments))
        self._latest[change.request] = change
        for old in list(self._latest)[:-KEPT]:
            if self._latest[old].is_over:
                del self._latest[old]
        change.task = asyncio.create_task(_change(site, change, arguments, fences, ending))

    async def close(self, clock: Clock) -> None:
        """Wait for those under way; after a while they begin no other item."""
        await cancel_all(self._starting.values())
        ending = asyncio.gather(
            *(action.task for action in self._latest.values() if action.task is not None),
            return_exceptions=True,
        )
        await until_one_ends(asyncio.shield(ending), clock.sleep(LAST_CHANGES))
        for action in self._latest.values():
            if action.left:
                left = f"{len(action.left):,} of {action.total:,} items are left as they are"
                _log.warning("%s by %s: %s: the server ends", action.verb, shown(action.by), left)
                action.left.clear()
        await ending


async def _change(
    site: Site,
    change: BulkChange,
    arguments: Mapping[str, Any],
    fences: Mapping[str, int],
    recording: AsyncExitStack,
) -> None:
    act = getattr(site.unrecorded, change.verb)

    async def act_on(item_id: str) -> None:
        fence = {"fence": fences.get(item_id, NO_RUN)} if "fence" in arguments else {}
        try:
            await act(item_id, by=change.by, **{**arguments, **fence})
            change.changed.ids.add(item_id)
        except Exception as problem:  # noqa: BLE001 - it is counted, as refusals are
            if not isinstance(problem, BlackboardError | TableError):
                _log.exception("%s of %s failed", change.verb, shown(item_id))
            change.failed += 1
            if len(change.problems) < NAMED:
                change.problems.append((item_id, str(problem)))
        finally:
            change.done += 1

    async with recording:
        await in_turns(change.left, act_on, at_once=AT_ONCE)
    if change.is_over:  # else the server ends
        await site.snapshot.reread(change.ids)


def _details(verb: str, arguments: Mapping[str, Any]) -> list[str]:
    """What an action says besides, as `blackboard.Board` has it."""
    match verb:
        case "run":
            return param_names(arguments["params"])
        case "edit":
            return [name for name in arguments if name != "reason"]
        case _:
            return []


async def confirm(site: Site, bulk: BulkChanges, request: Request) -> Response:
    """Name the number of items that a change is about; change them once that was confirmed."""
    form = await checked_form(site, request)
    verb = form.get("verb", "")
    check_verb(verb, OF_MANY)
    name = request_in(form) or site.board.chance.nonce()
    if bulk.get(name) is not None:
        return _to_bulk(request, name)
    # Each once; an empty one does not stand for all items.
    picked = list(dict.fromkeys(map(of_field, form.getlist("pick"))))
    filters = Filter.of(form)
    await site.snapshot.look()
    chosen = picked or [entry.item.id for entry in await site.chooser.all(filters)]
    if len(chosen) > MOST_ITEMS:
        problem = f"{plural(len(chosen), 'item')} at once are too many"
        raise BadInput("items", problem, f"at most {MOST_ITEMS:,}: choose fewer by a filter")
    is_confirmed = bool(chosen) and form.get("count") == str(len(chosen))
    if is_confirmed:
        arguments = arguments_in(verb, form)
        change = BulkChange(request=name, verb=verb, by=name_of(request), ids=chosen)
        await bulk.start(site, change, arguments)
        return _to_bulk(request, name)
    page = WebPage(
        template="confirm.html",
        title=OF_MANY[verb].capitalize(),
        values={
            "verb": verb,
            "words": OF_MANY[verb],
            "asks": VERBS[verb].fields,
            "ids": chosen[:NAMED],
            "count": len(chosen),
            "was": form.get("count"),
            "picked": picked,
            "filters": filters,
            "reason": form.get("reason", ""),
            "params": form.get("params", ""),
            "editable": EDITABLE,
            "own": {name: form.get(name, "") for name in EDITABLE},
            "nonce": site.board.chance.nonce(),
        },
    )
    return site.answer(request, page)


def _to_bulk(request: Request, name: str) -> Response:
    return RedirectResponse(f"{root_of(request.scope)}/bulk?request={name}", 303)


async def bulk_page(site: Site, bulk: BulkChanges, request: Request) -> Response:
    """How far a change of many items is. Raises BadInput."""
    change = bulk.get(request.query_params.get("request", ""))
    if change is None:
        problem = "it was long ago, or before the server was started, or another process does it"
        raise BadInput("request", problem, "the board shows what it has done")
    page = WebPage(template="bulk.html", title=change.words.capitalize(), values={"change": change})
    return site.answer(request, page)
