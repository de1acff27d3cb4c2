"""What all pages share: the board, the snapshot, the templates, and how a page is answered.

A page is a function that reads what it shows and returns it as a `WebPage`. The same function
answers the address of the page, and again, whenever `signature` changes, the stream that keeps the
page live: then its template is rendered without what stands around that part. Times are written in
full, for scripts to shorten; so a page that nothing has changed on is the same text, and is not
sent again.
"""

import asyncio
import hmac
import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import unquote, urlencode
from zoneinfo import ZoneInfo

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response

from blackboard import __version__
from blackboard.display import columns
from blackboard.display.escaping import shown, shown_json, shown_text
from blackboard.errors import BadInput
from blackboard.phrases import brief, iso, last_seen, plural, span, stamp
from blackboard.protocol.board_table import BoardTable
from blackboard.records import decoded
from blackboard.rules.status import ItemStatus
from blackboard.schedule.zones import find_zone
from blackboard.settings import Settings
from blackboard.tasks import cancel_all, drop_error, in_thread
from blackboard.web.access import SESSION_LASTS, Access, Sessions, cookie_name, visitor_of
from blackboard.web.filters import Chooser
from blackboard.web.recent import RecentRuns
from blackboard.web.refusals import path_of, root_of
from blackboard.web.snapshot import Snapshot

T = TypeVar("T")
P = TypeVar("P")
SHARE = 20
"""Of the time, reading something for all viewers takes one part in so many at the most."""
COMPUTED_AT_ONCE = 2
"""Functions that take long in threads: they share the time of the processor with the event loop."""
READ_AT_ONCE = 16
"""Readings of one page, or of one part of the API, at a time: a search that takes long keeps others
waiting, and no other page. Live parts do not count: each is made once for all viewers."""
_CODE = re.compile("`([^`]+)`")
_STAMP = re.compile(r"\b(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)Z")
_CHANGED = re.compile(r"[\0\r\n]|%(?=00|0A|0D|25)")
_WRITTEN = re.compile(r"%(00|0A|0D|25)")
MOST_JSON = 20_000
"""Characters of a value that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebPage:
    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


def trouble_page(problem: str, *, title: str, status: int = 200, item_id: str = "") -> WebPage:
    """What went wrong; `item_id` is the item that it was about, if any."""
    values = {"problem": problem, "item_id": item_id}
    return WebPage(template="error.html", title=title, values=values, status=status)


PageFunction = Callable[["Site", Request], Awaitable[WebPage]]
Signature = Callable[["Site", Request], object]


@dataclass(slots=True)
class _Reading:
    """What is read for all viewers, or was."""

    of: object
    until: float = float("-inf")
    """Monotonic seconds until which it is good, once it is done."""
    task: asyncio.Task[Any] = field(init=False)


@dataclass(slots=True, kw_only=True)
class Site:
    """One board, served as pages."""

    board: BoardTable
    verbs: object
    """What an operator does: the methods of a `blackboard.Board`."""
    unrecorded: object
    """The same, which leave no record of who did it: for one item of many."""
    store: str
    settings: Settings
    access: Access
    sessions: Sessions
    snapshot: Snapshot = field(init=False)
    runs: RecentRuns = field(init=False)
    chooser: Chooser = field(init=False)
    templates: Environment = field(init=False)
    searching: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """Held while next times are searched for: of one item at a time."""
    _readings: dict[object, _Reading] = field(default_factory=dict, init=False)
    _computing: asyncio.Semaphore = field(init=False)
    _turns: defaultdict[str, asyncio.Semaphore] = field(init=False)

    def __post_init__(self) -> None:
        self.snapshot, self.runs = Snapshot(self.board), RecentRuns(self.board)
        self.chooser = Chooser(self.snapshot)
        self._computing = asyncio.Semaphore(COMPUTED_AT_ONCE)
        self._turns = defaultdict(lambda: asyncio.Semaphore(READ_AT_ONCE))
        self.templates = Environment(
            loader=PackageLoader("blackboard.web"),
            autoescape=select_autoescape(default=True, default_for_string=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self.templates.filters |= {
            "time": time_element,
            "prose": prose,
            "elapsed": elapsed_element,
            "wall": wall_text,
            "brief": brief,
            "style": columns.style_of,
            "outcome": columns.outcome_cell,
            "progress": progress_of,
            "next_words": next_text,
            "run_outcome": columns.run_outcome,
            "run_words": columns.run_words,
            "last_seen": last_seen,
            "span": span,
            "field": as_field,
            "shown": shown,
            "shown_text": shown_text,
            "worker": columns.worker_name,
            "json": json_text,
            "share": lambda value: "–" if value is None else f"{100 * value:.1f} %",
            "number": lambda value: f"{value:,}",
            "plural": plural,
        }

    # ---- what takes long

    async def compute(self, function: Callable[..., T], *values: Any) -> T:
        """Call a function of many runs, or a long one of all items, in a thread. On the event loop
        it would hold up all else there, such as a worker that renews its locks. Those that others
        must not wait for go to a thread by themselves.
        """
        async with self._computing:
            return await in_thread(function, *values)

    @asynccontextmanager
    async def turn(self, request: Request, of: str) -> AsyncIterator[None]:
        """Waits for the turn of a request to read the page or the part of the API of this name.
        Raises ClientDisconnect where its client has gone meanwhile: on a busy machine, clients that
        give up and ask again would else be answered later and later.
        """
        await request.body()  # else some servers say first that it is there
        async with self._turns[of]:
            if await request.is_disconnected():
                raise ClientDisconnect
            yield

    async def shared(
        self,
        read: Callable[[P], Awaitable[T]],
        place: P,
        *,
        of: object = None,
        at_least: float = 0.0,
    ) -> T:
        """What `read` finds at the site or its board, read once for all that ask while it is good:
        `SHARE` times as long as the reading took, `at_least` so many seconds, and while `of` is the
        same. An error is raised for as long as the reading took: a store that was waited for may be
        back soon.
        """
        reading, now = self._readings.get(read), self.board.clock.monotonic()
        if reading is None or reading.of != of or (reading.task.done() and now >= reading.until):
            reading = self._readings[read] = _Reading(of)
            reading.task = asyncio.create_task(self._read(reading, read, place, at_least))
            reading.task.add_done_callback(drop_error)
        value: T = await asyncio.shield(reading.task)  # others wait for it too
        return value

    async def _read(
        self, reading: _Reading, read: Callable[[P], Awaitable[T]], place: P, at_least: float
    ) -> T:
        began, share = self.board.clock.monotonic(), 1
        try:
            value = await read(place)
            share = SHARE
            return value
        finally:
            ended = self.board.clock.monotonic()
            reading.until = ended + max(share * (ended - began), at_least)

    async def close(self) -> None:
        tasks = (kept.task for kept in self._readings.values())
        await cancel_all(task for task in tasks if not task.done())

    # ---- answering

    def answer(
        self, request: Request, page: WebPage, *, stream: str = "", now: datetime | None = None
    ) -> Response:
        """A whole page; `stream` is the address that keeps it live, if any, and `now` the store's
        time, by which scripts show others whatever the clock of a visitor's machine is.
        """
        html = self._rendered(request, page, layout="base.html", stream=stream, now=now)
        response = HTMLResponse(html, page.status)
        if made := getattr(request.state, "new_session", ""):
            self.set_cookie(request, response, made)
        return response

    def fragment(self, request: Request, page: WebPage) -> str:
        return self._rendered(request, page, layout="live.html", stream="", now=None)

    def _rendered(
        self, request: Request, page: WebPage, *, layout: str, stream: str, now: datetime | None
    ) -> str:
        about = {"layout": layout, "stream": stream, "title": page.title, "now": now}
        values = self.common(request) | about | dict(page.values)
        return self.templates.get_template(page.template).render(values)

    def common(self, request: Request) -> dict[str, Any]:
        root = root_of(request.scope)
        visitor = visitor_of(request)
        own_path = path_of(request.scope).removeprefix("/live")
        own_path = "/" if own_path in {"", "/board"} else own_path
        kept = [] if is_live(request) else [("live", "off")]
        kept += [("zone", zone_name(request))] if "zone" in request.query_params else []

        def url(path: str, *pairs: tuple[str, Any], **query: Any) -> str:
            """An address; one of the same page goes on as that is shown."""
            given = [*pairs, *((name, value) for name, value in query.items() if value is not None)]
            given += kept if path == own_path else ()
            return f"{root}{path}" + (f"?{urlencode(given)}" if given else "")

        return {
            "url": url,
            "root": root,
            "path": own_path,
            "here": f"{root}{own_path}",
            "kept": kept,
            "board": self.board.name,
            "store": self.store,
            "version": __version__,
            "visitor": visitor,
            "is_operator": self.access.operator and visitor is not None,
            "has_sessions": bool(self.access.token)
            and visitor is not None
            and not visitor.by_header,
            # Nothing signed: by it tokens could be tried out elsewhere, without a pause.
            "csrf": self.sessions.csrf(self.session(request)) if visitor else "",
            "server": self.sessions.mark if visitor else "",
            "zone": zone_name(request),
            "zone_cookie": zone_cookie(request),
            "snapshot": self.snapshot,
            "is_live": is_live(request),
            "switched": switched(request),
        }

    # ---- sessions

    def session(self, request: Request) -> str:
        """The visitor's session: the one in the cookie, else a new one for the answer."""
        visitor = visitor_of(request)
        if visitor is not None and visitor.session:
            return visitor.session
        made: str | None = getattr(request.state, "new_session", None)
        if made is None:
            made = self.sessions.new_session("")
            request.state.new_session = made
        return made

    def set_cookie(self, request: Request, response: Response, session: str) -> None:
        """Hand a session to the browser; "" ends the one that it has."""
        response.set_cookie(
            cookie_name(request.scope),
            session,
            max_age=int(SESSION_LASTS) if session else 0,
            path=root_of(request.scope) or "/",
            secure=is_https(request),
            httponly=True,
            samesite="lax",
        )

    def is_form_ours(self, request: Request, csrf: str) -> bool:
        """Whether the form that carries this value was made for this visitor."""
        visitor = visitor_of(request)
        if visitor is None:
            return False
        if visitor.by_header:
            return True
        return bool(visitor.session) and hmac.compare_digest(
            csrf.encode("utf-8", "replace"), self.sessions.csrf(visitor.session).encode()
        )


def is_https(request: Request) -> bool:
    """Whether the browser speaks TLS: with this server, or with a proxy before it, as the origin of
    what it sends says.
    """
    origin = request.headers.get("origin", "")
    return request.url.scheme == "https" or origin.lower().startswith("https://")


def is_live(request: Request) -> bool:
    return request.query_params.get("live") != "off"


def switched(request: Request) -> str:
    """The address of a page that goes on with its updates, or pauses them."""
    pairs = [pair for pair in request.query_params.multi_items() if pair[0] != "live"]
    return f"?{urlencode([*pairs, ('live', 'off')] if is_live(request) else pairs)}"


# ---- values in templates


def zone_cookie(request: Request) -> str:
    """The name of the cookie in which scripts keep the zone."""
    return f"{cookie_name(request.scope)}_zone"


def zone_name(request: Request) -> str:
    """The zone that times are shown in: as the address says, else the cookie; UTC otherwise."""
    cookie = request.cookies.get(zone_cookie(request), "")
    name = request.query_params.get("zone") or unquote(cookie)
    return name if name and _zone(name) is not None else "UTC"


def zone_of(request: Request) -> tzinfo:
    """The same as a zone."""
    return _zone(zone_name(request)) or UTC


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo | None:
    """Cached: each page asks for it, and names that are no zone take long."""
    try:
        return find_zone(name)
    except BadInput:
        return None


def time_element(moment: datetime | None, missing: str = "–") -> Markup:
    """A time in full; scripts show it relative to now, in the zone that was chosen."""
    if moment is None:
        return Markup(escape(missing))  # noqa: S704 - escaped
    return Markup('<time datetime="{}">{}</time>').format(iso(moment), stamp(moment))


def as_field(item_id: str) -> str:
    """An id as a field of a form has it: browsers would change some characters, and it would be the
    id of another item.
    """
    return _CHANGED.sub(lambda char: f"%{ord(char[0]):02X}", item_id)


def of_field(text: str) -> str:
    """The id that a field of a form has."""
    return _WRITTEN.sub(lambda code: chr(int(code[1], 16)), text)


def prose(text: str) -> Markup:
    """A sentence as the command line writes it: its times, which are in UTC, follow the zone that
    was chosen, and what stands in backticks is code.
    """
    html = _CODE.sub(r"<code>\1</code>", str(escape(shown(text))))
    html = _STAMP.sub(r'<time class="exact" datetime="\1T\2Z">\1 \2Z</time>', html)
    return Markup(html)  # noqa: S704 - escaped before


def elapsed_element(moment: datetime) -> Markup:
    """How long ago that is, which scripts keep up to date."""
    words = f"since {stamp(moment)}"
    return Markup('<time class="elapsed" datetime="{}">{}</time>').format(iso(moment), words)


def wall_text(moment: datetime, zone: str, *, date: bool = True, seconds: bool = False) -> str:
    """A time as clocks of a zone show it."""
    local = moment.astimezone(_zone(zone) or UTC)
    day, rest = "%a %Y-%m-%d" if date else "%a", ":%S" if seconds else ""
    return f"{local:{day} %H:%M{rest}}"


def next_text(status: ItemStatus) -> str:
    """When an item runs next, where that is not a time: "paused", "again"; "" where it is one."""
    times = columns.ShownTimes(status.item.ready)
    return "" if status.waiting else columns.next_words(status, times)


def progress_of(status: ItemStatus) -> tuple[str, float | None]:
    """How far a running item is, in words, and its share, 0 to 1, where there is a total."""
    progress, share = decoded(status.lock.progress) if status.lock else None, None
    match progress:
        case [int() | float() as done, int() | float() as total] if total > 0:
            share = min(max(done / total, 0.0), 1.0)
    return columns.percent(progress), share


def json_text(value: Any) -> str:
    """A value as JSON on several lines."""
    try:
        text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(str(value))
    text = shown_json(text)
    return text if len(text) <= MOST_JSON else f"{text[:MOST_JSON]}\n… ({len(text):,} characters)"
