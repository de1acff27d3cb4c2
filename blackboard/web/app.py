"""The pages as an ASGI application: addresses, errors, static files, sign-in."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from blackboard import metrics
from blackboard.display.health import Overview, read_overview
from blackboard.errors import BlackboardError, Missing
from blackboard.metrics.board import board_metrics
from blackboard.model import Statistics, replace
from blackboard.protocol.board_row import Remade
from blackboard.protocol.board_table import BoardTable
from blackboard.rules.status import CURRENT, counts_of
from blackboard.runners.secrets import WEB_TOKEN
from blackboard.settings import Settings
from blackboard.table import Replaced, TableError
from blackboard.web import actions, health, pages, refusals, runs
from blackboard.web.access import LONGEST_VISITOR, SAFE, Access, Gate, Sessions, visitor_of
from blackboard.web.api import api_app
from blackboard.web.live import Fragments, stream
from blackboard.web.site import Signature, Site, WebPage, is_live, trouble_page

PageValues = Callable[[Site, Request], Awaitable[Mapping[str, Any]]]
PAGES: dict[str, tuple[PageValues, Signature | None]] = {
    "board": (pages.board_page, pages.by_version),
    "item": (pages.item_page, pages.item_signature),
    "run": (pages.run_page, None),
    "runs": (runs.runs_page, runs.runs_signature),
    "timeline": (runs.timeline_page, runs.runs_signature),
    "failures": (runs.failures_page, runs.runs_signature),
    "workers": (pages.workers_page, pages.workers_signature),
    "leases": (pages.leases_page, pages.by_second),
    "leaders": (pages.leaders_page, pages.by_second),
    "health": (health.health_page, runs.runs_signature),
    "report": (pages.report_page, pages.item_signature),
    "actions": (pages.actions_page, pages.by_second),
}
"""Each page by its name, with the function whose value changes when the page has to be made anew;
None: the page never changes. The name is its address, but for the board, which is the root; and,
where its values name no others, it is that of its template, and its title."""
READY_LASTS = 1.0
"""Seconds for which the board counts as readable: who need not sign in costs few requests."""
HEALTH_WAITS = 0.5
"""Seconds for which the answer whether the server is well waits for the store."""
REPLACED = "the board was removed, or made anew: start the server again\n"
SIGN_IN = "send the header Authorization: Bearer TOKEN"
BY_PROXY = "come through the proxy that signs people in"
"""Remedies for a request without a visitor, where there is a token, and where there is none."""
NOT_DONE = "Nothing was done, as you are not signed in any more."
FIGURES_LAST = 5.0
"""Seconds for which figures of the board are good, at the least."""


def web_app(
    board: BoardTable,
    verbs: object,
    *,
    unrecorded: object,
    store: str,
    settings: Settings,
    access: Access,
    secret: str,
) -> "WebPages":
    """The pages of a board. `verbs` is the board with methods that record what they do; those of
    `unrecorded` do not: they change one item of many, which are recorded together. `secret` signs
    sessions and forms.
    """
    site = Site(
        board=board,
        verbs=verbs,
        unrecorded=unrecorded,
        store=store,
        settings=settings,
        access=access,
        sessions=Sessions(access, clock=board.clock, chance=board.chance, secret=secret),
    )
    bulk = actions.BulkChanges()
    fragments = Fragments()
    routes = _routes(site, bulk, fragments)
    app = Starlette(
        routes=routes,
        exception_handlers={
            **{kind: _trouble(site, *about) for kind, about in refusals.REFUSED.items()},
            ClientDisconnect: refusals.client_gone,
            404: _trouble(site, *refusals.REFUSED[Missing]),
        },
    )
    app.router.redirect_slashes = False
    addresses = {"/".join(route.path.split("/")[:2]) for route in routes}
    gate = Gate(app, site.sessions, unknown=partial(_unknown, site))
    return WebPages(gate, site, bulk, fragments, addresses - {"/"})


def _routes(site: Site, bulk: actions.BulkChanges, fragments: Fragments) -> list[Route | Mount]:
    return [
        *(
            route
            for name, (page, signature) in PAGES.items()
            for route in _page_routes(site, fragments, name, page, signature)
        ),
        Route("/act/{verb}", partial(actions.act, site), methods=["POST"]),
        Route("/confirm", partial(actions.confirm, site, bulk), methods=["POST"]),
        Route("/bulk", partial(actions.bulk_page, site, bulk)),
        Route("/login", partial(_sign_in, site), methods=["GET", "POST"]),
        Route("/logout", partial(_sign_out, site), methods=["POST"]),
        Route("/healthz", partial(_healthz, site)),
        Route("/readyz", partial(_readyz, site)),
        Route("/metrics", partial(_metrics, site)),
        Mount(refusals.API, api_app(site)),
        Mount("/static", StaticFiles(directory=str(files("blackboard.web") / "static"))),
    ]


@dataclass(frozen=True, slots=True)
class WebPages:
    _app: ASGIApp
    _site: Site
    _bulk: actions.BulkChanges
    _fragments: Fragments
    addresses: Collection[str]
    """The first parts of all addresses, as in /runs, that no prefix can begin with."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def close(self) -> None:
        """Ends what goes on without a request. Changes of many items go on for a few seconds; what
        they have done is recorded.
        """
        await self._bulk.close(self._site.board.clock)
        await self._fragments.close()
        await self._site.close()
        await self._site.snapshot.close()


def _page_routes(
    site: Site, fragments: Fragments, name: str, read: PageValues, signature: Signature | None
) -> list[Route]:
    """The address of a page, and that of the stream that keeps it live."""
    whole_path = "/" if name == "board" else f"/{name}"

    async def page(site: Site, request: Request) -> WebPage:
        values: dict[str, Any] = {"template": f"{name}.html", "title": name.capitalize()}
        values |= await read(site, request)
        return WebPage(template=values["template"], title=values["title"], values=values)

    async def whole(request: Request) -> Response:
        async with site.turn(request, name):
            web_page = await page(site, request)
        has_stream = signature is not None and is_live(request)
        live_path = f"{refusals.root_of(request.scope)}/live/{name}{refusals.query_of(request)}"
        now = None
        with contextlib.suppress(TableError):  # the page shows what was read before
            now = await site.board.table.now()
        return site.answer(request, web_page, stream=live_path if has_stream else "", now=now)

    routes = [Route(whole_path, whole)]
    if signature is not None:
        changed = signature

        async def live(request: Request) -> Response:
            return stream(site, request, page, changed, fragments)

        routes.append(Route(f"/live/{name}", live))
    return routes


def _trouble(
    site: Site, status: int, title: str
) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, problem: Exception) -> Response:
        text = str(problem) if isinstance(problem, BlackboardError | TableError) else ""
        item_id = getattr(request.state, "item_id", "") if status != 404 else ""
        page = trouble_page(text or title, title=title, status=status, item_id=item_id)
        answer = site.answer(request, page)
        answer.headers.update(refusals.retry_after(problem) if status == 503 else {})
        return answer

    return answer


# ---- signing in


def _unknown(site: Site, request: Request) -> Response:
    """The answer to a request without a visitor: the page to sign in, or a refusal."""
    headers = {"www-authenticate": "Bearer"} if site.access.token else {}
    remedy = SIGN_IN if site.access.token else BY_PROXY
    if refusals.is_api(request.scope):
        return refusals.refusal(401, "sign in first", remedy=remedy, headers=headers)
    if not site.access.token or "text/html" not in request.headers.get("accept", ""):
        return PlainTextResponse(f"blackboard: sign in first ({remedy})\n", 401, headers)
    if request.method in SAFE:
        back = f"{refusals.path_of(request.scope)}{refusals.query_of(request)}"
        page = _login(back=back, problem="", status=401)
    else:
        page = _login(back="/", problem=NOT_DONE, status=401)
    answer = site.answer(request, page)
    answer.headers.update(headers)
    return answer


def _login(*, back: str, problem: str, status: int) -> WebPage:
    values = {"back": back, "problem": problem, "variable": WEB_TOKEN}
    return WebPage(template="login.html", title="Sign in", values=values, status=status)


async def _sign_out(site: Site, request: Request) -> Response:
    await actions.own_form(site, request)
    answer = RedirectResponse(f"{refusals.root_of(request.scope)}/login", 303)
    site.sessions.end(site.session(request))
    site.set_cookie(request, answer, "")
    return answer


async def _sign_in(site: Site, request: Request) -> Response:
    root = refusals.root_of(request.scope)
    if request.method != "POST":
        if visitor_of(request) is not None:
            return RedirectResponse(f"{root}/", 303)
        return site.answer(request, _login(back="/", problem="", status=200))
    form = await actions.read_form(request)
    back = _local(form.get("back", ""))
    if not site.sessions.is_token(form.get("token", "")):
        await site.sessions.refuse()
        problem = "This is not the token." if form.get("token") else "The token is missing."
        return site.answer(request, _login(back=back, problem=problem, status=401))
    answer = RedirectResponse(f"{root}{back}", 303)
    name = " ".join(form.get("name", "").split())[:LONGEST_VISITOR]
    site.set_cookie(request, answer, site.sessions.new_session(name or site.access.user))
    return answer


def _local(back: str) -> str:
    """An address of these pages, whatever a form says."""
    try:
        parts = urlsplit(back)
    except ValueError:
        return "/"
    is_ours = not parts.scheme and not parts.netloc and back.startswith("/")
    return back if is_ours and "\\" not in back and not back.startswith("//") else "/"


# ---- for programs that watch this one


async def _healthz(site: Site, request: Request) -> Response:
    """Whether the server can do its work. A store that is away, or slow, does not count: a new
    start would not help.
    """
    try:
        async with asyncio.timeout(HEALTH_WAITS):
            await site.shared(BoardTable.check_shards, site.board, at_least=READY_LASTS)
    except (Replaced, Remade):
        return PlainTextResponse(REPLACED, 503)
    except (BlackboardError, TableError, TimeoutError):
        pass
    return PlainTextResponse("ok\n")


async def _readyz(site: Site, request: Request) -> Response:
    """Whether the board can be read. The reason why not is for visitors alone."""
    try:
        await site.shared(BoardTable.check_shards, site.board, at_least=READY_LASTS)
    except (BlackboardError, TableError) as problem:
        why = "the board cannot be read" if visitor_of(request) is None else problem
        return PlainTextResponse(f"store: {why}\n", 503, refusals.retry_after(problem))
    return PlainTextResponse("ready\n")


async def _metrics(site: Site, request: Request) -> Response:
    """The figures of the board for Prometheus, in the format that the request accepts."""
    try:
        read_at, overview = await site.shared(_figures, site, at_least=FIGURES_LAST)
    except (BlackboardError, TableError) as problem:
        return PlainTextResponse(f"store: {problem}\n", 503, refusals.retry_after(problem))
    overview = replace(overview, age=overview.age + site.board.clock.monotonic() - read_at)
    accepted = request.headers.get("accept", "")
    content_type, body = metrics.exposition(board_metrics(overview), accepted)
    return Response(body, headers={"content-type": content_type})


async def _figures(site: Site) -> tuple[float, Overview]:
    """The figures, and when they were read. Without a coordinator the items in memory are counted:
    while no worker is alive, a scrape must be answered in time.
    """
    overview = await read_overview(site.board, exact=False, counting=partial(_counted, site))
    return site.board.clock.monotonic(), overview


async def _counted(site: Site, _: BoardTable) -> Statistics:
    snapshot = site.snapshot
    await snapshot.fresh(oldest=CURRENT.total_seconds())
    assert snapshot.at is not None
    statuses = [entry.status for entry in snapshot.entries.values()]
    return await site.compute(partial(counts_of, statuses, now=snapshot.at))
