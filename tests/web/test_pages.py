"""Each page answers, whatever the board has and whatever an address says."""

import asyncio
import gc
import hashlib
import html
import inspect
import random
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, unquote_plus, urlencode

import msgspec
import pytest
from starlette.datastructures import ImmutableMultiDict, QueryParams
from starlette.requests import Request

import blackboard
from blackboard import cost
from blackboard.board import Board
from blackboard.display import report, run_queries
from blackboard.display.health import Overview, checked, read_overview
from blackboard.display.item_queries import SORTS, ItemQuery
from blackboard.display.run_queries import RunQuery, cursor_of, newest_runs
from blackboard.errors import BadInput
from blackboard.inputs import LONGEST_TEXT
from blackboard.model import Ended, Item, LogLine, Mark, Outcome, Run, replace
from blackboard.phrases import iso
from blackboard.protocol.actions import BEGUN, Done, actions, record_action, recording_action
from blackboard.protocol.additions import add_election
from blackboard.protocol.board_pause import pause_board
from blackboard.protocol.board_row import Remade
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim
from blackboard.protocol.edits import cancel, pause, remove, unlock
from blackboard.protocol.keys import BOARD_KEY, item_key, meta_partition
from blackboard.protocol.leaders import open_elections
from blackboard.protocol.releases import release
from blackboard.rules import transitions
from blackboard.rules import upcoming as upcoming_times
from blackboard.rules.status import STATES
from blackboard.schedule.zones import find_zone
from blackboard.spec import RunOptions, Spec, decode_spec
from blackboard.table import ANY, Merge, Replaced, TableError, Unavailable
from blackboard.tables.memory import MemoryTable
from blackboard.web import actions as web_actions
from blackboard.web import app, health, live, pages, recent, runs, snapshot
from blackboard.web import site as site_module
from blackboard.web.access import LONGEST_QUERY
from blackboard.web.actions import EDITABLE, VERBS, arguments_in
from blackboard.web.api import ARGUMENTS, OPERATIONS
from blackboard.web.app import PAGES, WebPages, web_app
from blackboard.web.filters import MOST_VALUES, PAGE, Chooser, Filter
from blackboard.web.recent import RecentRuns
from blackboard.web.site import Site, WebPage, prose
from blackboard.web.snapshot import Snapshot
from tests.metrics.test_board_metrics import group
from tests.support.boards import Scene, finished, story
from tests.support.clocks import ManualClock
from tests.support.expositions import samples
from tests.support.patience import patience
from tests.support.processes import eventually
from tests.support.turns import settled
from tests.support.web_site import (
    PATHS,
    Stream,
    WebSite,
    addresses_of,
    door,
    fields_of,
    forms_of,
    main_of,
    served,
    streamed,
)
from tests.support.wrong_rows import break_rules

ODD = (
    "a/b",
    "a b",
    "100%",
    "q\"uo'te",
    "<b>bold</b>",
    "&amp;",
    "über-ß",
    "日本",
    "a?b=c&d",
    "a#b",
    "..",
    "%2e%2e%2f",
    "{{ 7*7 }}",
)


@pytest.fixture(name="site")
def _site() -> Iterator[WebSite]:
    with served(operator=True) as site:
        yield site


@pytest.fixture(name="odd", scope="module")
def _odd() -> Iterator[WebSite]:
    """A board whose items have odd ids; one has run, one is running."""
    with served(operator=True) as site:
        site.add(*ODD)
        site.add("davis", "keene", item_type="a/<i>type")

        async def ran() -> None:
            scene = site.scene
            made = await scene.claimed("davis")
            site.clock.advance(3)
            await scene.let_go(made, "failed", error="<script>alert(1)</script>", result={"a": "<"})
            made = await scene.claimed("keene")

        site.do(ran)
        site.clock.advance(5)
        yield site


def test_what_people_and_handlers_say_turns_and_steers_nothing(site: WebSite) -> None:
    """On the page, and in a terminal into which it is copied."""
    odd = "\x1b[31m\x9b1m\u202e\U000e0001é"
    site.add("davis", params={"text": odd})

    async def said() -> None:
        made = await site.scene.claimed("davis")
        line = LogLine(at=site.clock.now(), level="INFO", text=f"logged\t{odd}")
        ended = Ended(
            outcome=Outcome.FAILED, error=f"failed\n{odd}", output=f"printed\n{odd}", log=(line,)
        )
        await release(site.board, [replace(finished(made), ended=ended)])
        mark = Mark(by=odd, at=site.clock.now(), reason=odd)
        await pause(site.board, "davis", mark)

    site.do(said)
    for path in ("/item?id=davis", "/run?id=davis&fence=1", "/runs", "/actions"):
        page = site.get(path).text
        assert {char for char in page if not char.isprintable()} == {"\n"}, path
    page = html.unescape(site.get("/run?id=davis&fence=1").text)
    for words in ("failed\n", "printed\n", "logged  "):
        assert rf"{words}\x1b[31m\x9b1m\u202e\U000e0001é" in page
    assert r'"text": "\u001b[31m\u009b1m\u202e\udb40\udc01é"' in html.unescape(
        site.get("/item?id=davis").text
    )


def test_the_title_of_a_page_turns_nothing_either(site: WebSite) -> None:
    site.add("\u202eodd")
    head = site.get(f"/item?id={quote(chr(0x202E) + 'odd')}").text.partition("</title>")[0]
    assert r"<title>\u202eodd" in head


def test_a_form_changes_the_item_that_it_shows_whatever_a_browser_makes_of_an_id(
    site: WebSite,
) -> None:
    ids = ("a\nb", "a\rb", "a\r\nb", "a\0b", "a\ufffdb", "a%0Db", "a%250Db")
    site.add(*ids)
    for one in ids:
        form = forms_of(browsed(site.get(f"/item?{urlencode({'id': one})}").text))[0]
        said = {name: sent(text) for name, text in form.items()}
        assert site.post("/act/pause", said).status_code == 303
        assert paused_ids(site) == [one]
        assert site.post("/act/resume", said).status_code == 303
    picks = re.findall(r'name="pick" value="([^"]*)"', browsed(site.get("/").text))
    picked = [sent(html.unescape(text)) for text in picks]
    page = browsed(site.post("/confirm", {**said, "verb": "pause", "pick": picked}).text)
    picks = re.findall(r'name="pick" value="([^"]*)"', page)
    picked = [sent(html.unescape(text)) for text in picks]
    fields = {**said, "verb": "pause", "pick": picked, "count": str(len(ids))}
    answer = site.post("/confirm", fields)
    for _ in range(1000):
        if "Done by" in site.get(answer.headers["location"]).text:
            break
    assert paused_ids(site) == sorted(ids)


def browsed(page: str) -> str:
    """A page as a browser reads it (HTML, 13.2.3.5 and 13.2.5)."""
    return page.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def sent(value: str) -> str:
    """The value of a field as a browser sends it (HTML, 4.10.21.4)."""
    return re.sub("\r\n?|\n", "\r\n", value)


def test_the_pages_of_an_empty_board(site: WebSite) -> None:
    assert [path.strip("/") or "board" for path in PATHS] == list(PAGES)
    for path in PATHS:
        answer = site.get(path)
        assert answer.status_code == (404 if path in {"/item", "/run", "/report"} else 200), path
        assert "<h1" in answer.text
    assert '<h2>Lag</h2><p class="big">–</p><p class="quiet">no run</p>' in site.get("/health").text


def test_the_pages_of_a_board_with_items(odd: WebSite) -> None:
    for path in PATHS:
        query = "?id=davis&fence=1" if path in {"/item", "/run", "/report"} else ""
        answer = odd.get(path + query)
        assert answer.status_code == 200, path
        assert "<script>alert" not in answer.text
        assert "<i>type" not in answer.text
        assert "<b>bold" not in answer.text
    assert odd.get("/nothing").status_code == 404
    assert odd.get("/readyz").text == "ready\n"
    assert "blackboard_" in odd.get("/metrics").text


@pytest.mark.parametrize("item_id", ODD)
def test_odd_ids(odd: WebSite, item_id: str) -> None:
    said = urlencode({"id": item_id})
    page = odd.get(f"/item?{said}")
    assert page.status_code == 200
    assert f"/item?{said}" in odd.get("/").text
    assert forms_of(page.text)[0]["id"] == item_id
    assert odd.get(f"/report?{said}").status_code == 200
    assert odd.get(f"/run?{said}&fence=1").status_code == 404
    fields = {"csrf": odd.csrf(f"/item?{said}"), "id": item_id, "reason": item_id}
    assert odd.post("/act/pause", fields).headers["location"] == f"/item?{said}&done=pause"
    assert odd.get(f"/item?{said}").status_code == 200
    assert odd.get("/actions").status_code == 200


@pytest.mark.parametrize(
    "item_id", ["", "nothing", "a" * 3000, "\0", "\ud800", "a\nb", "\u202e", "|", "'" * 300]
)
def test_items_that_are_not_there(odd: WebSite, item_id: str) -> None:
    said = quote(item_id, errors="surrogatepass")
    for path in ("item", "run", "report"):
        assert odd.get(f"/{path}?id={said}&fence=1").status_code in {400, 404}
    fields = {"csrf": odd.csrf(), "id": item_id.encode(errors="replace").decode()}
    for verb in ("run", "pause", "resume", "cancel", "unlock", "edit", "nothing"):
        assert odd.post(f"/act/{verb}", fields).status_code in {400, 404, 409}


NAMES = (
    *("page", "q", "state", "type", "tag", "sort", "order", "zone", "live", "since", "until"),
    *("outcome", "by", "hours", "group", "number", "id", "fence"),
)
VALUES = (
    *("", "0", "-1", "9e9", "9" * 5000, "1e400", "-inf", "nan", "1_0", "²", "٣", "0x10"),
    *("nonsense", "../../etc/passwd", "America", "Europe/Berlin", "a" * 300, "%00", "\ud800"),
    *("2026-01-01", "2026-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59Z"),
    *("1971-01-01T00:00:00+00:00", "8999-12-31T23:59:59-23:59", "2026-11-21T08:00:00 00:00"),
    *("failed", "id", "desc", "off", "worker", "ok", "davis", "<script>", "(", "{{ 1/0 }}"),
)


def test_nonsense_in_an_address(odd: WebSite) -> None:
    chance = random.Random(11)
    asked = [(path, [(name, value)]) for path in PATHS for name, value in _told(path)]
    asked += [
        (
            chance.choice([*PATHS, "/bulk", "/metrics"]),
            [(chance.choice(NAMES), chance.choice(VALUES)) for _ in range(4)],
        )
        for _ in range(60)
    ]
    for path, pairs in asked:
        address = f"{path}?{urlencode(pairs, errors='surrogatepass')}"
        answer = odd.get(address)
        assert answer.status_code in {200, 400, 404}, address[:300]
        assert "<script>" not in answer.text


def _told(path: str) -> Iterator[tuple[str, str]]:
    """What a page itself reads, with each value."""
    names = {
        "/": ("page", "sort"),
        "/item": ("zone",),
        "/run": ("fence",),
        "/runs": ("since",),
        "/timeline": ("hours", "until", "zone"),
        "/failures": ("zone",),
        "/leases": ("group",),
    }
    return ((name, value) for name in names.get(path, ()) for value in VALUES)


@pytest.mark.parametrize(
    ("path", "name"),
    [("/", "state"), ("/", "type"), ("/", "tag"), ("/runs", "type"), ("/runs", "outcome")],
)
def test_a_page_shows_what_so_many_values_of_a_name_choose_and_refuses_more(
    odd: WebSite, path: str, name: str
) -> None:
    """Each of its links repeats them, and each link has one more, or one less."""
    values = [(name, str(number)) for number in range(MOST_VALUES)]
    assert odd.get(f"{path}?{urlencode(values)}").status_code == 200
    assert odd.get(f"{path}?{urlencode([*values, values[0], (name, '')])}").status_code == 200
    answer = odd.get(f"{path}?{urlencode([*values, (name, 'more')])}")
    assert answer.status_code == 400
    assert f"{name}: {MOST_VALUES + 1} are too many (at most {MOST_VALUES}" in answer.text


def test_many_items_are_not_chosen_by_more_values_than_a_page_has(odd: WebSite) -> None:
    values = [str(number) for number in range(MOST_VALUES + 1)]
    fields = {"csrf": odd.csrf(), "verb": "pause", "tag": values}
    assert odd.post("/confirm", fields).status_code == 400


def test_an_address_that_is_too_long_is_refused_before_it_is_read(odd: WebSite) -> None:
    longest = f"q={'a' * (LONGEST_QUERY - 2)}"
    for path in (*PATHS, "/live/board", "/metrics", "/bulk", "/nothing", "/api/v1/items"):
        answer = odd.get(f"{path}?{longest}a")
        assert answer.status_code == 400, path
        assert f"at most {LONGEST_QUERY:,}" in answer.text
    page = odd.get(f"/?{longest}")
    assert page.status_code == 200
    tags = urlencode([("tag", "\u65e5" * 150 + str(number)) for number in range(MOST_VALUES)])
    assert len(odd.get(f"/?{tags}").content) < 50 * LONGEST_QUERY
    for path, name in (("/", "tag"), ("/runs", "id")):
        page = odd.get(f"{path}?{name}={'a' * (LONGEST_QUERY - 4)}")
        assert len(page.content) < 3 * LONGEST_QUERY


def test_the_longest_id_has_pages(site: WebSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "OF_A_LIST", 1)
    longest = "\U0001f642" * LONGEST_TEXT
    site.add(longest)
    ran_hourly(site, longest, "ok", "ok")
    said = urlencode({"id": longest})
    for path in ("/item", "/runs", "/report", "/timeline", "/api/v1/item", "/api/v1/why"):
        assert site.get(f"{path}?{said}").status_code == 200, path
    assert [fence for _, fence in shown_runs(site, f"/runs?{said}")] == ["2", "1"]


def test_nonsense_in_forms(odd: WebSite) -> None:
    csrf = odd.csrf()
    for name in ("retries", "every", "cron", "rrule", "at", "timezone", "timeout"):
        for value in ("²", "9" * 5000, "-1", "\0", "nan", "1e400", "a" * 500):
            fields = {"csrf": csrf, "id": "davis", name: value}
            answer = odd.post("/act/edit", fields)
            assert answer.status_code in {303, 400, 409}, (name, value[:20])
    for text in ("[1]", "{", "[" * 5000, '{"a": 1e400}', '{"a": 1, "a": 2}', "9" * 5000):
        answer = odd.post("/act/run", {"csrf": csrf, "id": "davis", "params": text})
        assert answer.status_code == 400
    assert odd.post("/confirm", {"csrf": csrf, "verb": "remove"}).status_code == 400
    assert odd.get(f"/bulk?request={'9' * 5000}").status_code == 400


def test_the_zone_of_a_cookie(odd: WebSite) -> None:
    for said in ("Europe%2FBerlin", "Europe/Berlin"):
        page = odd.get("/failures", cookie=f"blackboard_zone={said}").text
        assert "Hours are those of Europe/Berlin" in page
    page = odd.get("/failures", cookie="blackboard_zone=%2e%2e%2fetc%2fpasswd").text
    assert "Hours are those of UTC" in page


def test_an_unknown_zone_is_looked_for_once(odd: WebSite, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(name: str) -> Any:
        asked.append(name)
        return find_zone(name)

    monkeypatch.setattr(site_module, "find_zone", counted)
    site_module._zone.cache_clear()
    for _ in range(3):
        assert "Hours are those of UTC" in odd.get("/failures?zone=Mars/Olympus").text
    assert asked.count("Mars/Olympus") == 1


# ---- filters


@story
async def test_filters_select_what_show_selects(scene: Scene) -> None:
    for number in range(12):
        kind = "feed" if number % 3 else "mail"
        await scene.add(f"item-{number:02d}", item_type=kind, every=f"{number % 4 + 1}h")
    await pause(scene.other, "item-03", scene.mark())
    await scene.let_go(await scene.claimed("item-01"), "failed")
    await scene.let_go(await scene.claimed("item-04"))
    await scene.claimed("item-05")
    scene.later(minutes=5)
    snapshot = Snapshot(scene.board)
    await snapshot.look()
    chooser = Chooser(snapshot)
    for sort in SORTS:
        for reverse in (False, True):
            query = ItemQuery(sort=sort, reverse=reverse)
            shown = [one.item.id for one in (await query.read(scene.other)).items]
            said = [("sort", sort), ("order", "desc" if reverse else "asc")]
            found = await chooser.all(Filter.of(QueryParams(said)))
            assert [one.item.id for one in found] == shown, (sort, reverse)
    for states in [(one,) for one in STATES] + [("failed", "paused")]:
        for types in ((), ("mail",)):
            shown = [
                one.item.id
                for one in (await ItemQuery(states=states, types=types).read(scene.other)).items
            ]
            pairs = [("state", one) for one in states] + [("type", one) for one in types]
            found = await chooser.all(Filter.of(QueryParams(pairs)))
            assert [one.item.id for one in found] == shown


def test_what_an_address_says_is_what_a_filter_says() -> None:
    pairs = [("q", "tör &"), ("state", "failed"), ("state", "paused"), ("type", "a,b")]
    pairs += [("tag", "x"), ("sort", "stop"), ("order", "desc"), ("page", "3")]
    found = Filter.of(QueryParams(pairs))
    assert found.pairs == pairs
    assert Filter.of(QueryParams(found.pairs)) == found
    assert Filter.of(QueryParams(page="9" * 5000, state="x", sort="x")) == Filter()
    assert found.toggled("states", "failed").states == ("paused",)
    assert found.sorted_by("stop").reverse is False
    assert found.but(search="").page == 1


def test_pages_of_a_table(site: WebSite) -> None:
    site.add(*(f"item-{number:03d}" for number in range(PAGE + 3)))
    first = site.get("/").text
    assert "page 1 of 2" in first
    assert f"1–{PAGE} of {PAGE + 3}" in first
    last = site.get("/?page=2").text
    assert 'rel="prev"' in last
    assert 'rel="next"' not in last
    for beyond in ("3", "999999"):
        page = site.get(f"/?page={beyond}").text
        assert "page 2 of 2" in page
        assert 'value="item-101"' in page
    assert 'value="item-101"' in last
    assert "No item matches" in site.get("/?q=nothing").text


# ---- changes


def pauses(site: WebSite, *, picked: tuple[str, ...] = (), **fields: str) -> str:
    """The page that asks for a confirmation."""
    pairs = {"csrf": site.csrf(), "verb": "pause", "pick": list(picked), **fields}
    answer = site.post("/confirm", pairs)
    assert answer.status_code == 200
    return answer.text


def paused_ids(site: WebSite) -> list[str]:
    async def work() -> list[str]:
        return [one.id async for one in site.board.items() if one.is_paused]

    return sorted(site.do(work))


def test_a_change_of_many_items(site: WebSite) -> None:
    site.add("davis", "dayton", "keene")
    page = pauses(site, q="da")
    assert "Pause 2 items?" in page
    assert paused_ids(site) == []
    form = forms_of(page)[-1]
    assert (form["count"], form["q"]) == ("2", "da")
    site.add("darmstadt")
    again = site.post("/confirm", form)
    assert again.status_code == 200
    assert "It was 2 when you looked" in again.text
    assert paused_ids(site) == []
    form = forms_of(again.text)[-1] | {"reason": "a holiday"}
    answer = site.post("/confirm", form)
    assert answer.status_code == 303
    for _ in range(1000):
        page = site.get(answer.headers["location"]).text
        if "Done by" in page:
            break
    assert "3 of 3" in page
    assert paused_ids(site) == ["darmstadt", "davis", "dayton"]
    (action,) = site.do(lambda: actions(site.board, limit=10))
    assert (action.verb, action.count, action.reason) == ("pause", 3, "a holiday")
    assert action.via == "web"
    assert set(action.ids) == {"darmstadt", "davis", "dayton"}


def test_picked_items_and_params(site: WebSite) -> None:
    site.add("davis", "keene")
    assert "Pause 1 item?" in pauses(site, picked=("keene",))
    assert "Pause 1 item?" in pauses(site, picked=("",)), "an empty one does not stand for all"
    answer = site.post(
        "/confirm",
        {
            "csrf": site.csrf(),
            "verb": "run",
            "pick": ["davis"],
            "params": '{"a": "<"}',
            "count": "5",
        },
    )
    assert "{&#34;a&#34;: &#34;&lt;&#34;}" in answer.text


def test_one_action_on_one_item(site: WebSite) -> None:
    site.add("davis")
    csrf = site.csrf("/item?id=davis")
    for verb in ("pause", "resume", "run"):
        assert site.post(f"/act/{verb}", {"csrf": csrf, "id": "davis"}).status_code == 303
    fields = {"csrf": csrf, "id": "davis", "every": "2h", "retries": "3", "description": "a <b>"}
    assert site.post("/act/edit", fields).status_code == 303
    page = site.get("/item?id=davis").text
    assert 'value="2h"' in page
    assert "a &lt;b&gt;" in page
    assert site.post("/act/edit", fields | {"cron": "0 3 * * *"}).status_code == 400
    found = site.do(lambda: actions(site.board, limit=10))
    assert {one.verb for one in found} == {"pause", "resume", "run", "edit"}
    assert {one.via for one in found} == {"web"}


def waiting_params(site: WebSite, item_id: str) -> list[str]:
    """The params of each run of an item that was requested and has not begun."""
    item = site.do(lambda: site.board.item(item_id))
    assert item is not None
    return [text for text in (item.once, *(one.once for one in item.requests)) if text]


def test_a_form_that_is_sent_once_more_requests_no_second_run(site: WebSite) -> None:
    """As by a double click, by a proxy, or after the button back."""
    site.add("davis")
    form = fields_of(site.get("/item?id=davis").text, "do-run") | {"params": '{"days": 3}'}
    assert site.post("/act/run", form).headers["location"] == "/item?id=davis&done=run"
    again = site.post("/act/run", form).headers["location"]
    assert "by this form before: there is no second run" in site.get(again).text
    assert waiting_params(site, "davis") == ['{"days":3}']
    assert len(site.do(lambda: actions(site.board, limit=10))) == 1
    site.post("/act/run", form | {"params": '{"days": 4}'})
    anew = fields_of(site.get("/item?id=davis").text, "do-run") | {"params": '{"days": 3}'}
    assert site.post("/act/run", anew).headers["location"] == "/item?id=davis&done=run"
    assert waiting_params(site, "davis") == ['{"days":3}', '{"days":4}', '{"days":3}']


def test_a_request_that_joins_a_run_that_waits_says_so(site: WebSite) -> None:
    """Also where that is a retry, or waits for the end of a blackout, and none has requested it."""
    site.add("davis")
    for words in ("A run was requested.", "one run is for this request and for one that waits"):
        form = fields_of(site.get("/item?id=davis").text, "do-run")
        assert words in site.get(site.post("/act/run", form).headers["location"]).text


def test_a_change_of_many_items_that_is_sent_twice_at_once_is_one(site: WebSite) -> None:
    site.add("davis", "dayton", "keene")
    asked = {"csrf": site.csrf(), "verb": "run", "q": "da"}
    form = forms_of(site.post("/confirm", asked).text)[-1] | {"params": '{"days": 3}'}

    async def sent() -> list[str]:
        async with site.visitor() as visitor:
            answers = await asyncio.gather(*(visitor.post("/confirm", data=form) for _ in range(2)))
        return [answer.headers["location"] for answer in answers]

    first, second = site.do(sent)
    assert first == second
    site.add("dalton")  # another number matches, which is no reason to ask again
    assert site.post("/confirm", form).headers["location"] == first
    eventually(lambda: "2 of 2" in site.get(first).text, "both are changed")
    assert [waiting_params(site, one) for one in ("davis", "dayton")] == [['{"days":3}']] * 2
    assert waiting_params(site, "dalton") == []
    assert len(site.do(lambda: actions(site.board, limit=10))) == 1


def test_a_change_of_many_items_does_not_wait_for_that_of_another_visitor(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.add("davis", "dayton", "keene", "kent")
    is_held, may_go_on = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def late(board: BoardTable, *, ids: Sequence[str], **said: Any) -> AsyncIterator[Done]:
        if "davis" in ids:
            is_held.set()
            await may_go_on.wait()
        async with recording_action(board, ids=ids, **said) as done:
            yield done

    async def told() -> None:
        async with asyncio.timeout(patience(5)), site.visitor() as visitor:
            davis, keene = (partial(visitor.post, "/confirm", data=form) for form in forms)
            first, again = (asyncio.create_task(davis()) for _ in range(2))
            await is_held.wait()
            assert (await keene()).status_code == 303
            assert not first.done()
            may_go_on.set()
            assert (await first).headers["location"] == (await again).headers["location"]

    asked = {"csrf": site.csrf(), "verb": "pause"}
    pages = [site.post("/confirm", asked | {"q": q}).text for q in ("da", "ke")]
    forms = [fields_of(one, "confirm") for one in pages]
    monkeypatch.setattr(web_actions, "recording_action", late)
    site.do(told)


def test_an_edit_changes_what_its_form_changes(site: WebSite) -> None:
    """Two visitors have opened the same form; neither undoes what the other changes."""
    site.add("davis")
    first, second = (form_of_edit(site) for _ in range(2))
    assert site.post("/act/edit", first | {"every": "2h"}).status_code == 303
    assert site.post("/act/edit", second | {"description": "mine"}).status_code == 303
    page = site.get("/item?id=davis").text
    assert "every 2 hours" in page
    assert "mine" in page
    answer = site.post("/act/edit", form_of_edit(site))
    assert answer.status_code == 400
    assert "nothing is changed" in answer.text
    assert 'href="/item?id=davis"' in answer.text
    answer = site.post("/act/edit", form_of_edit(site) | {"cron": "0 3 * * *"})
    assert answer.status_code == 303
    assert "every 2 hours" not in site.get("/item?id=davis").text
    assert site.post("/act/edit", form_of_edit(site) | {"description": ""}).status_code == 303
    assert "mine" not in site.get("/item?id=davis").text


def test_a_rule_of_several_lines_is_edited(site: WebSite) -> None:
    rule = "DTSTART;TZID=Europe/Paris:20260101T090000\nRRULE:FREQ=WEEKLY"
    site.add("davis", rrule=rule)
    assert site.post("/act/edit", form_of_edit(site) | {"timeout": "7m"}).status_code == 303
    changed = form_of_edit(site)["rrule"].replace("WEEKLY", "DAILY")
    assert site.post("/act/edit", form_of_edit(site) | {"rrule": changed}).status_code == 303
    spec = decode_spec(site.do(lambda: site.board.found("davis")).spec)
    assert (spec.rrule, spec.timeout) == (rule.replace("WEEKLY", "DAILY"), "7m")


def test_blanks_at_the_ends_of_what_a_form_shows_are_no_change(site: WebSite) -> None:
    site.add("davis", rrule="FREQ=WEEKLY\n", description=" the town ")
    assert "nothing is changed" in site.post("/act/edit", form_of_edit(site)).text
    assert site.post("/act/edit", form_of_edit(site) | {"timeout": "7m"}).status_code == 303
    spec = decode_spec(site.do(lambda: site.board.found("davis")).spec)
    assert (spec.rrule, spec.description, spec.timeout) == ("FREQ=WEEKLY\n", " the town ", "7m")


def form_of_edit(site: WebSite) -> dict[str, str]:
    """What a browser sends of the form for editing."""
    return fields_of(site.get("/item?id=davis").text, "do-edit")


def test_an_edit_of_many_items(site: WebSite) -> None:
    site.add("davis", "dayton", "keene")
    fields = {"csrf": site.csrf(), "verb": "edit", "q": "da"}
    asked = site.post("/confirm", fields)
    assert "Edit 2 items?" in asked.text
    form = fields_of(asked.text, "confirm")
    assert site.post("/confirm", form).status_code == 400
    wrong = site.post("/confirm", form | {"retries": "many"})
    assert (wrong.status_code, "retries" in wrong.text) == (400, True)
    over(site, form | {"every": "3h", "timeout": "5m"})

    async def schedules() -> list[str]:
        return sorted([f"{one.id} {one.schedule}" async for one in site.board.items()])

    assert site.do(schedules) == ["davis every 3h", "dayton every 3h", "keene every 1h"]
    (action,) = site.do(lambda: actions(site.board, limit=10))
    assert (action.verb, action.count, action.detail) == ("edit", 2, "every, timeout")


def test_locks_of_many_items_are_taken_away(site: WebSite) -> None:
    site.add("davis", "keene")

    site.do(lambda: site.scene.claimed("davis"))
    asked = site.post("/confirm", {"csrf": site.csrf(), "verb": "unlock", "state": "running"})
    assert "Unlock 1 item?" in asked.text
    over(site, fields_of(asked.text, "confirm") | {"reason": "its host is gone"})
    item = site.do(lambda: site.board.item("davis"))
    assert item is not None
    assert not item.running


@pytest.mark.parametrize("verb", ["cancel", "unlock"])
def test_a_run_that_has_begun_since_is_left_alone(site: WebSite, verb: str) -> None:
    site.add("davis")
    made = site.do(lambda: site.scene.claimed("davis"))
    form = fields_of(site.get("/item?id=davis").text, f"do-{verb}")
    assert form["fence"] == str(made.item.fence)
    site.do(lambda: runs_anew(site, made))
    answer = site.post(f"/act/{verb}", form | {"reason": "it hangs"})
    assert (answer.status_code, f"with fence {made.item.fence}" in answer.text) == (409, True)
    assert site.post(f"/act/{verb}", form | {"fence": "x"}).status_code == 400
    body = {"id": "davis", "fence": made.item.fence}
    found = site.client.post(f"/api/v1/{verb}", json=body)
    assert (found.status_code, f"with fence {made.item.fence}" in found.text) == (409, True)
    item = site.do(lambda: site.board.found("davis"))
    assert item.running
    form = fields_of(site.get("/item?id=davis").text, f"do-{verb}")
    assert site.post(f"/act/{verb}", form).status_code == 303
    assert not site.do(lambda: site.board.found("davis")).running


async def runs_anew(site: WebSite, made: Claim) -> None:
    """The run ends, and another one begins."""
    await site.scene.let_go(made)
    site.clock.advance(3600)
    await site.scene.claimed(made.item.id)


@pytest.mark.parametrize("verb", ["cancel", "unlock"])
def test_of_many_runs_those_end_that_were_there_at_the_confirmation(
    site: WebSite, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    site.add("davis", "keene")
    made = [site.do(partial(site.scene.claimed, one)) for one in ("davis", "keene")]
    asked = site.post("/confirm", {"csrf": site.csrf(), "verb": verb, "state": "running"})
    look = Snapshot.look

    async def late(snapshot: Snapshot, **said: Any) -> None:
        await look(snapshot, **said)
        if made:
            await runs_anew(site, made.pop())

    monkeypatch.setattr(Snapshot, "look", late)
    over(site, fields_of(asked.text, "confirm"))
    assert not site.do(lambda: site.board.found("davis")).running
    assert site.do(lambda: site.board.found("keene")).running


def over(site: WebSite, form: dict[str, str]) -> None:
    """Change many items, and wait until that is done."""
    answer = site.post("/confirm", form)
    assert answer.status_code == 303
    for _ in range(1000):
        if "Done by" in site.get(answer.headers["location"]).text:
            return
    pytest.fail("it is not done")


def test_what_was_done_is_said(site: WebSite) -> None:
    site.add("davis")
    for verb, one in VERBS.items():
        assert one.said in site.get(f"/item?id=davis&done={verb}").text
    assert 'role="status">' not in main_of(site.get("/item?id=davis&done=<b>").text)


def test_a_failure_is_acknowledged_on_the_page_of_its_item(site: WebSite) -> None:
    site.add("davis")
    hidden = 'id="act-ack" name="act" hidden'
    assert hidden in site.get("/item?id=davis").text
    ran_hourly(site, "davis", "failed", "failed")
    assert "failing" in main_of(site.get("/health").text)
    form = fields_of(site.get("/item?id=davis").text, "do-ack") | {"reason": "the feed is gone"}
    assert site.post("/act/ack", form).status_code == 303
    page = site.get("/item?id=davis").text
    assert "the feed is gone" in page
    assert hidden in page
    assert "failing" not in main_of(site.get("/health").text)


def test_what_forms_and_bodies_say_is_what_the_verbs_of_a_board_take() -> None:
    form = ImmutableMultiDict({"every": "1h"})
    said = {(verb, name) for verb in VERBS for name in arguments_in(verb, form)}
    said |= {("edit", name) for name in EDITABLE}
    said |= {
        (one.path.removeprefix("/"), ARGUMENTS.get(name, name))
        for one in OPERATIONS
        if one.method == "POST"
        for name in set(one.request.__struct_fields__) - {"id"}
    }
    options = {("edit", name) for name in RunOptions.__annotations__}
    signatures = {verb: inspect.signature(getattr(Board, verb)) for verb in VERBS}
    taken = {(verb, name) for verb, one in signatures.items() for name in one.parameters}
    assert said <= taken | options


def test_a_failure_that_the_page_has_not_shown_is_not_acknowledged(site: WebSite) -> None:
    site.add("davis", "eureka")
    ran_hourly(site, "davis", "failed")
    form = fields_of(site.get("/item?id=davis").text, "do-ack") | {"reason": "seen"}
    ran_hourly(site, "davis", "failed")
    assert "davis has run since run 1" in site.post("/act/ack", form).text
    assert 'id="act-ack" name="act">' in site.get("/item?id=davis").text


def test_an_item_is_renamed_and_removed_for_a_reason_on_its_page(site: WebSite) -> None:
    site.add("davis")
    form = fields_of(site.get("/item?id=davis").text, "do-rename") | {"reason": "a typo"}
    answer = site.post("/act/rename", form | {"new_id": " eureka "})
    assert answer.headers["location"] == "/item?id=eureka&done=rename"
    page = site.get("/item?id=eureka&done=rename").text
    assert "It was renamed." in page
    answer = site.post("/act/remove", fields_of(page, "do-remove") | {"reason": "has moved"})
    page = site.get(answer.headers["location"]).text
    assert "It was removed." in page
    assert "was removed" in main_of(page)
    page = site.get("/actions").text
    assert "a typo" in page
    assert "has moved" in page


def test_a_fault_in_a_change_of_many_items_is_counted_and_the_others_are_changed(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(board: Board, item_id: str, **said: Any) -> Any:
        if item_id == "davis":
            raise KeyError("a fault")
        return paused(board, item_id, **said)

    site.add("davis", "keene")
    paused = Board.pause
    monkeypatch.setattr(Board, "pause", faulty)
    over(site, fields_of(pauses(site), "confirm"))
    assert paused_ids(site) == ["keene"]
    (action,) = site.do(lambda: actions(site.board, limit=10))
    assert (action.verb, action.ids) == ("pause", ("keene",))


def test_a_change_of_many_items_ends_with_the_server_though_the_store_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(web_actions, "AT_ONCE", 2)
    monkeypatch.setattr(web_actions, "name_of", lambda _: "ann\x1b[31m")
    with served(operator=True) as site:
        begun: list[str] = []
        answered = asyncio.Event()

        async def silent(board: Board, item_id: str, **said: Any) -> Any:
            begun.append(item_id)
            await answered.wait()
            return await paused(board, item_id, **said)

        async def ends() -> None:
            closing = asyncio.ensure_future(pages.close())
            for _ in range(5):
                await asyncio.sleep(0)
            assert not closing.done()
            site.clock.advance(web_actions.LAST_CHANGES)
            for _ in range(5):
                await asyncio.sleep(0)
            answered.set()
            await closing

        site.add("davis", "dayton", "keene", "salem")
        paused, pages = Board.pause, cast(WebPages, site.app)
        monkeypatch.setattr(Board, "pause", silent)
        assert site.post("/confirm", fields_of(pauses(site), "confirm")).status_code == 303
        (action,) = site.do(lambda: actions(site.board, limit=10))
        assert (action.count, action.detail) == (4, BEGUN)
        reread: list[str] = []

        async def noted(_: Snapshot, ids: Iterable[str]) -> None:
            reread.extend(ids)

        monkeypatch.setattr(Snapshot, "reread", noted)
        site.do(ends)
        assert reread == [], "the server ends"
        assert paused_ids(site) == ["davis", "dayton"]
        (action,) = site.do(lambda: actions(site.board, limit=10))
        assert (action.verb, action.ids, action.detail) == ("pause", ("davis", "dayton"), "")
    assert r"pause by ann\x1b[31m: 2 of 4 items are left as they are: the server" in caplog.text


def test_an_action_on_an_item_that_was_removed_meanwhile(site: WebSite) -> None:
    site.add("davis")
    csrf = site.csrf("/item?id=davis")
    site.do(lambda: remove(site.board, "davis"))
    said = {"csrf": csrf, "id": "davis"}
    for verb in VERBS:
        answer = site.post(f"/act/{verb}", said | {"every": "2h", "new_id": "keene"})
        assert answer.status_code in {404, 409}, verb
        assert 'href="/item' not in answer.text


def test_the_page_of_an_item_whose_schedule_cannot_be_computed_says_why(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.add("davis", rrule="FREQ=DAILY")
    break_rules(monkeypatch)
    page = site.get("/item?id=davis")
    assert page.status_code == 200
    assert "cannot be computed: IndexError" in page.text
    answer = site.get("/api/v1/next?id=davis")
    assert (answer.status_code, "cannot be computed" in answer.text) == (409, True)


def test_the_page_of_a_removed_item_says_so_and_shows_its_runs(site: WebSite) -> None:
    site.add("davis")

    async def ran() -> None:
        await site.scene.let_go(await site.scene.claimed("davis"))
        await remove(site.board, "davis")

    site.do(ran)
    removed = site.do(lambda: site.board.item("davis"))
    page = main_of(site.get("/item?id=davis").text)
    assert removed is not None
    assert removed.stop is not None
    assert f'was removed <time datetime="{iso(removed.stop)}">' in page
    assert "/run?id=davis&amp;fence=1" in page
    for word in ("next", "Schedule", "due", "blackboard run", "starts"):
        assert word not in page, word


# ---- rows that are damaged


LEADERS = "town.leaders"


def spoil(site: WebSite, board: BoardTable, key: str, **columns: Any) -> None:
    """Damage a row of a board, or that of the board itself."""
    is_item = key != BOARD_KEY
    partition = board.partition("") if is_item else meta_partition(board.name)
    site.do(lambda: board.table.commit(partition, [Merge(key, columns, ANY)]))


@pytest.mark.parametrize(
    ("columns", "words"),
    [({"shards": "x"}, "has no good shards"), ({"version": 99}, "a newer version wrote the row")],
)
def test_elections_whose_board_is_damaged_hide_nothing_else(
    site: WebSite, columns: dict[str, Any], words: str
) -> None:
    site.add("davis")
    spoil(site, site.do(lambda: open_elections(site.board, create=True)), BOARD_KEY, **columns)
    for path in ("/health", "/leaders"):
        page = site.get(path)
        assert (page.status_code, words in page.text) == (200, True), path
    assert LEADERS in main_of(site.get("/health").text)
    answer = site.get("/api/v1/board")
    assert (answer.status_code, answer.json()["coordinator"]) == (200, None)
    answer = site.get("/api/v1/leaders")
    assert (answer.status_code, answer.json()["elections"]) == (200, [])
    assert words in answer.json()["problem"]


def test_the_page_of_health_reads_elections_once_and_workers_not_at_all(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot has them."""
    read: Counter[str] = Counter()
    scan = MemoryTable.scan

    def counted(table: MemoryTable, partition: str, *about: Any, **named: Any) -> Any:
        read[partition] += 1
        return scan(table, partition, *about, **named)

    site.add("davis")
    site.do(lambda: open_elections(site.board, create=True))
    site.get("/health")
    monkeypatch.setattr(MemoryTable, "scan", counted)
    assert site.get("/health").status_code == 200
    assert read["town.leaders"] == 1
    assert read["town-workers"] == 0


def test_elections_that_are_damaged_are_named(site: WebSite) -> None:
    board = site.do(lambda: open_elections(site.board, create=True))
    for name in ("good", "lost", "odd"):
        spec = Spec(stale_after="15s")
        site.do(partial(add_election, board, name, "mutex", spec))
    spoil(site, board, item_key("lost"), slot="soon")
    spoil(site, board, item_key("odd"), spec="{")
    page = main_of(site.get("/leaders").text)
    assert "the row item:lost in town.leaders cannot be read" in page
    assert "odd: its settings cannot be read" in page
    answer = site.get("/api/v1/leaders").json()
    found = {one["election"]: one["problem"] for one in answer["elections"]}
    assert found.keys() == {"good", "odd", "item:lost"}
    assert (found["good"], answer["problem"]) == (None, None)
    assert "cannot be read" in found["item:lost"]


def test_a_group_that_is_damaged_is_not_well(site: WebSite) -> None:
    board = site.do(lambda: group(site.scene))
    site.clock.advance(5)
    assert "moving" in main_of(site.get("/leases").text)
    spoil(site, board, item_key("01"), state="odd")
    page = main_of(site.get("/leases").text)
    assert "the row item:01 in town.clicks cannot be read" in page
    assert "damaged" in page
    assert "moving" not in page
    (found,) = site.get("/api/v1/leases").json()["groups"]
    assert not found["well"]


# ---- what stands on all pages


def test_a_paused_board_and_a_store_that_is_away_are_said_on_each_page(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.add("davis")
    site.do(lambda: pause_board(site.board, Mark(by="ann", at=site.clock.now(), reason="moving")))
    site.get("/")
    for name in PAGES:
        page = site.get(f"/{'' if name == 'board' else name}?id=davis&fence=1").text
        assert "paused by ann" in main_of(page), name

    def away(*_: object) -> object:
        raise Unavailable("the disk is gone: `mount` it")

    monkeypatch.setattr(type(site.board.table), "scan", away)
    site.clock.advance(60)
    for name in PAGES:
        answer = site.get(f"/{'' if name == 'board' else name}?id=davis&fence=1")
        assert "the disk is gone: <code>mount</code> it" in answer.text, name


def test_a_board_that_was_never_read_is_not_shown_as_empty(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> object:
        raise Unavailable("the disk is gone")

    monkeypatch.setattr(type(site.board.table), "scan", away)
    for name in ("", "runs", "timeline", "failures", "workers", "health"):
        answer = site.get(f"/{name}")
        assert answer.status_code == 503, name
        assert "the disk is gone" in answer.text
        assert "No items yet" not in answer.text
        assert "never" not in main_of(answer.text)


@pytest.mark.parametrize("problem", [Replaced("it is another one"), Remade("with other shards")])
def test_a_server_whose_board_was_made_anew_is_not_well(
    site: WebSite, monkeypatch: pytest.MonkeyPatch, problem: TableError
) -> None:
    async def check(board: BoardTable) -> None:
        raise problem

    monkeypatch.setattr(BoardTable, "check_shards", check)
    answer = site.get("/healthz")
    assert (answer.status_code, "start the server again" in answer.text) == (503, True)


def test_whether_a_server_is_well_does_not_wait_for_its_store(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(board: BoardTable) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(BoardTable, "check_shards", check)
    monkeypatch.setattr("blackboard.web.app.HEALTH_WAITS", 0.01)
    assert site.get("/healthz").text == "ok\n"


def test_trouble_of_the_store_itself_leads_to_no_group(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoardTable, "trouble", "its log grows")
    text = site.get("/health").text
    assert "its log grows" in text
    assert "/leases?" not in text


def test_a_probe_that_did_not_wait_for_an_error_leaves_none_in_the_log(
    site: WebSite, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answering = asyncio.Event()

    async def check(board: BoardTable) -> None:
        await answering.wait()
        raise Unavailable("it does not answer")

    async def answered() -> None:
        answering.set()
        await settled()

    monkeypatch.setattr(BoardTable, "check_shards", check)
    monkeypatch.setattr("blackboard.web.app.HEALTH_WAITS", 0.01)
    assert site.get("/healthz").text == "ok\n"
    site.do(answered)
    site.clock.advance(60)
    assert site.get("/healthz").text == "ok\n"
    gc.collect()
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("use `blackboard show`", "use <code>blackboard show</code>"),
        (
            "(2026-11-21 09:00:00Z)",
            '(<time class="exact" datetime="2026-11-21T09:00:00Z">2026-11-21 09:00:00Z</time>)',
        ),
        ("`<b>`", "<code>&lt;b&gt;</code>"),
        ("<script>2026-11-21</script>", "&lt;script&gt;2026-11-21&lt;/script&gt;"),
        ("one ` alone", "one ` alone"),
    ],
)
def test_sentences_of_the_command_line(text: str, shown: str) -> None:
    assert str(prose(text)) == shown


def test_numbers_lead_to_what_they_count(odd: WebSite) -> None:
    failures = odd.get("/failures").text
    leading = [one for one in addresses_of(failures) if one.startswith("/runs?")]
    assert len(leading) == 4  # an hour, a day, of an item those that failed, and all
    for address in leading:
        page = odd.get(html.unescape(address)).text
        assert "1 run" in page, address
        assert "/run?id=davis" in page
    item = odd.get("/item?id=davis").text
    [timeline] = [one for one in addresses_of(item) if one.startswith("/timeline?")]
    assert "1 run of 1 item" in odd.get(html.unescape(timeline)).text
    assert "0 runs of 1 item" in odd.get("/timeline?id=keene&hours=24").text
    assert "item, of 15" in odd.get("/health").text  # that has failed


def ran_hourly(site: WebSite, item_id: str, *outcomes: str) -> None:
    """An item runs once an hour."""

    async def ran() -> None:
        for outcome in outcomes:
            made = await site.scene.claimed(item_id)
            await site.scene.let_go(made, outcome)
            site.clock.advance(3600)

    site.do(ran)


def test_numbers_of_failures_lead_to_those_of_the_time_that_is_shown(site: WebSite) -> None:
    site.add("davis")
    ran_hourly(site, "davis", "failed", "ok", "failed")
    site.clock.advance(20 * 86_400)
    ran_hourly(site, "davis", "failed", "ok")
    page = site.get("/failures").text
    assert "1 of 2 runs of the last 14 days failed" in page
    bad, everything = [one for one in addresses_of(page) if one.startswith("/runs?id=")]
    for address, words in ((bad, "1 run."), (everything, "2 runs.")):
        assert words in site.get(html.unescape(address)).text


def test_failures_are_counted_of_the_days_that_the_table_shows(site: WebSite) -> None:
    site.add("davis")
    ran_hourly(site, "davis", "failed")
    site.clock.advance(14 * 86_400 - 7200)
    page = site.get("/failures").text
    assert "0 of 0 runs of the last 14 days failed" in page
    assert [one for one in addresses_of(page) if one.startswith("/runs?")] == []


def test_of_a_busy_board_the_newest_runs_are_counted_and_the_pages_say_so(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Items that ran before these are not read."""
    ids = [f"item {number}" for number in range(40)]
    site.add(*ids)
    for one in ids:
        ran_hourly(site, one, "ok")
    site.add("newest")
    ran_hourly(site, "newest", *["ok"] * 4)
    read: set[str] = set()
    runs_of = BoardTable.runs

    def noted(board: BoardTable, item_id: str, **about: Any) -> AsyncIterator[Run]:
        read.add(item_id)
        return runs_of(board, item_id, **about)

    monkeypatch.setattr(BoardTable, "runs", noted)
    for module in (runs, health):
        monkeypatch.setattr(module, "MOST_COUNTED", 3)
    for path, words in (("/failures", "0 of 3 runs"), ("/health", "3 runs</a> in 24 h")):
        page = site.get(path).text
        assert words in page
        assert "runs count, and of all items the newest 3." in page
    assert read == {"newest"}
    for module in (runs, health):
        monkeypatch.setattr(module, "MOST_COUNTED", 100)
    for path in ("/failures", "/health"):
        assert "runs count." in site.get(path).text


def test_a_search_that_takes_long_is_cut_and_goes_on_where_it_ended(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All runs are found, each once and in order, also those of items that ran since."""
    ids = [f"item {number:02}" for number in range(30)]
    site.add(*ids)
    for one in ids[:10]:
        ran_hourly(site, one, "failed")
    for one in ids[10:]:
        ran_hourly(site, one, "failed" if one == "item 27" else "ok")
    runs_of = BoardTable.runs

    def slowly(board: BoardTable, item_id: str, **about: Any) -> AsyncIterator[Run]:
        site.clock.advance(1)
        return runs_of(board, item_id, **about)

    monkeypatch.setattr(BoardTable, "runs", slowly)
    monkeypatch.setattr(run_queries, "AT_ONCE", 1)
    found, address, asked = list[str](), "/runs?outcome=failed", 0
    while address:
        before, page = site.clock.monotonic(), site.get(address).text
        found += re.findall(r'<td><a href="/run\?id=([^"&]+)', page)
        onward = [one for one in addresses_of(page) if one.startswith("/runs?") and "after" in one]
        if asked == 0:
            assert "found so far: the search takes long" in page
            assert site.clock.monotonic() - before < 2 * recent.LONGEST
        address, asked = html.unescape(onward[0]) if onward else "", asked + 1
    assert [unquote_plus(one) for one in found] == ["item 27", *ids[9::-1]]
    assert asked > 3


def test_a_search_that_takes_long_to_get_to_its_beginning_is_refused(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that goes on where another was cut, when what that has read is not kept. Pages that
    show runs of some hours say that they were cut.
    """
    ids = [f"item {number:02}" for number in range(20)]
    site.add(*ids)
    for one in ids:
        ran_hourly(site, one, "ok")
    begun, runs_of = site.clock.now() - timedelta(hours=15), BoardTable.runs
    reading, most = 0, 0

    async def slowly(board: BoardTable, item_id: str, **about: Any) -> AsyncIterator[Run]:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        site.clock.advance(1)
        await asyncio.sleep(0)
        async for run in runs_of(board, item_id, **about):
            yield run
        reading -= 1

    def seconds(address: str, status: int, words: str) -> float:
        before, answer = site.clock.monotonic(), site.get(address)
        assert (answer.status_code, words in answer.text) == (status, True), address
        return site.clock.monotonic() - before

    monkeypatch.setattr(BoardTable, "runs", slowly)
    monkeypatch.setattr(run_queries, "AT_ONCE", 1)
    monkeypatch.setattr(recent, "MOST_KEPT", 2)
    until = quote(begun.isoformat())
    for address, status, words in (
        ("/runs?q=zzz", 200, "0 found so far: the search takes long"),
        (f"/runs?q=zzz&until={until}", 400, "more items have run since then"),
        (f"/runs?after={begun.timestamp()},1,x", 400, "choose an item or a type"),
        (f"/api/v1/runs?until={until}", 400, "more items have run since then"),
        ("/timeline?hours=72", 200, "runs found so far: the search takes long"),
        ("/failures?q=zzz", 200, "of all items those that were found so far"),
        ("/health", 200, "of all items those that were found so far"),
    ):
        assert seconds(address, status, words) == recent.LONGEST

    async def at_once() -> None:
        items = [one async for one in site.board.items()]
        searches, wanted = RecentRuns(site.board), RunQuery(until=begun)
        looks = [searches.newest(items, wanted, limit=9) for _ in range(3)]
        ended = await asyncio.gather(*looks, return_exceptions=True)
        assert [type(one) for one in ended] == [BadInput] * 3

    site.do(at_once)
    assert most == 1


def test_a_timeline_goes_back_past_more_runs_than_it_shows(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MOST_DRAWN", 3)
    site.add("davis")
    begun = site.clock.now()
    ran_hourly(site, "davis", *["ok"] * 8)
    until = quote((begun + timedelta(hours=2.5)).isoformat())
    assert "3 runs of 1 item" in site.get(f"/timeline?hours=3&until={until}").text
    assert "2 runs of 1 item" in site.get(f"/timeline?hours=2&until={until}").text


def shown_runs(site: WebSite, address: str) -> list[tuple[str, str]]:
    """The runs of a page, and of the earlier ones that it leads to."""
    found: list[tuple[str, str]] = []
    while address:
        assert len(found) < 1_000
        page = site.get(address).text
        found += re.findall(r"/run\?id=([^&]+)&amp;fence=(\d+)", page)
        earlier = [one for one in addresses_of(page) if re.match(r"/runs\?.*\bafter=", one)]
        address = earlier[0] if earlier else ""
    return found


def test_all_runs_of_an_item_can_be_reached(site: WebSite) -> None:
    site.add("davis")
    ran_hourly(site, "davis", *["ok"] * 120)
    fences = [int(fence) for _, fence in shown_runs(site, "/runs?id=davis")]
    assert fences == [*range(120, 0, -1)]
    assert "all that are kept" in site.get("/item?id=davis").text


def test_runs_that_stopped_at_the_same_time_are_each_on_one_page(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "OF_A_LIST", 2)
    ids = [f"item,{number}" for number in range(7)]
    site.add(*ids)

    async def ran() -> None:
        for one in ids:
            await site.scene.let_go(await site.scene.claimed(one))

    site.do(ran)
    assert [one for one, _ in shown_runs(site, "/runs")] == [quote(one) for one in ids]
    found: list[str] = []
    said: dict[str, str] = {}
    while len(found) < 10:
        answer = site.client.get("/api/v1/runs", params={"limit": "3", **said}).json()
        found += [one["id"] for one in answer["runs"]]
        if answer["next"] is None:
            break
        said = {"after": answer["next"]}
    assert found == ids


def test_the_runs_of_a_removed_item_are_among_those_of_all(site: WebSite) -> None:
    site.add("davis", "eureka")
    ran_hourly(site, "davis", "failed")
    site.get("/runs")
    site.do(partial(remove, site.board, "davis"))
    site.clock.advance(2)
    assert "1 of 1 runs" in site.get("/failures").text
    assert shown_runs(site, "/runs") == [("davis", "1")]
    site.add("davis")
    ran_hourly(site, "davis", "ok")
    assert len(shown_runs(site, "/runs")) == 2


@pytest.mark.parametrize(("verb", "ended"), [("unlock", "abandoned"), ("cancel", "cancelled")])
def test_a_run_that_is_released_late_is_shown_as_superseded(
    site: WebSite, verb: str, ended: str
) -> None:
    site.add("davis")

    async def lost() -> Claim:
        made = await site.scene.claimed("davis")
        take_lock = {"unlock": unlock, "cancel": cancel}[verb]
        await take_lock(site.board, "davis", Mark(by="ann", at=site.clock.now()), fence=1)
        return made

    made = site.do(lost)
    assert len(shown_runs(site, f"/runs?outcome={ended}")) == 1
    site.do(lambda: site.scene.let_go(made))
    site.clock.advance(61)
    assert shown_runs(site, f"/runs?outcome={ended}") == []
    assert len(shown_runs(site, "/runs?outcome=superseded")) == 1


def test_a_search_in_runs_finds_none_that_is_under_way(site: WebSite) -> None:
    site.add("davis")
    site.do(lambda: site.scene.claimed("davis"))
    site.clock.advance(3)
    assert "davis: running" in site.get("/timeline").text
    assert "davis: running" not in site.get("/timeline?q=out+of+memory").text


# ---- what takes long


@pytest.mark.parametrize(
    ("path", "place", "name"),
    [
        ("/", Filter, "choose"),
        ("/runs", run_queries, "_in_turn"),
        ("/timeline", runs, "timeline"),
        ("/failures", runs, "heat_map"),
        ("/health", health, "numbers_of"),
        ("/health", health, "checked"),
        ("/health", cost, "rhythms_of"),
        ("/health", cost, "asked_for"),
        ("/item?id=davis", upcoming_times, "claimed"),
        ("/report?id=davis", pages, "report_table"),
        ("/report?id=davis", report, "_report_at"),
        ("/api/v1/next?id=davis", upcoming_times, "claimed"),
        ("/api/v1/items", Filter, "choose"),
        ("/api/v1/alarms", health, "checked"),
    ],
)
def test_what_is_computed_for_a_page_leaves_the_event_loop_to_others(
    site: WebSite, monkeypatch: pytest.MonkeyPatch, path: str, place: Any, name: str
) -> None:
    """A worker beside the pages renews its locks meanwhile."""
    threads: set[int] = set()
    function = getattr(place, name)

    def noted(*values: Any, **named: Any) -> Any:
        threads.add(threading.get_ident())
        return function(*values, **named)

    async def thread_of_the_loop() -> int:
        return threading.get_ident()

    site.add("davis", every="1h", params={"out": "nowhere"})
    ran_hourly(site, "davis", "ok")
    monkeypatch.setattr(place, name, noted)
    assert site.get(path).status_code == 200
    assert threads
    assert site.do(thread_of_the_loop) not in threads


def test_of_a_long_report_the_first_rows_are_shown(
    site: WebSite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    columns = [{"title": "feed", "key": "name"}]
    feeds = [{"name": f"feed {number}"} for number in range(1_203)]
    written = {"table": {"rows": "feeds", "columns": columns}, "feeds": feeds}
    (tmp_path / "davis.report.json").write_bytes(msgspec.json.encode(written))
    site.add("davis", every="1h", params={"out": str(tmp_path)})
    text = site.get("/report?id=davis").text
    assert text.count("<td>feed ") == 1_203
    monkeypatch.setattr(pages, "MOST_ROWS", 2)
    text = site.get("/report?id=davis").text
    assert text.count("<td>feed ") == 2
    assert "1,201 more" in text


def test_what_is_wrong_and_the_cost_are_computed_less_often_where_they_take_long(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: Counter[str] = Counter()

    def slowly(place: Any, name: str) -> None:
        function = getattr(place, name)

        def noted(*values: Any) -> Any:
            computed[name] += 1
            site.clock.advance(2)
            return function(*values)

        monkeypatch.setattr(place, name, noted)

    slowly(health, "checked")
    slowly(cost, "rhythms_of")
    site.add("davis")
    for number in (1, 1, 2):
        site.get("/health")
        site.get("/api/v1/alarms")
        assert computed == {"checked": number, "rhythms_of": number}
        site.clock.advance(25)


def test_a_cost_that_takes_long_to_compute_is_left_out(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    rhythms_of, computed = cost.rhythms_of, 0

    def slowly(*values: Any) -> Any:
        nonlocal computed
        computed += 1
        site.clock.advance(2)
        return rhythms_of(*values)

    site.add(*[f"item-{number}" for number in range(9)])
    assert "requests a run" in site.get("/health").text
    monkeypatch.setattr(cost, "rhythms_of", slowly)
    page = site.get("/health").text
    assert "requests a run" not in page
    assert "<code>blackboard cost</code> computes it" in page
    assert computed == 3


def test_next_times_that_take_long_to_compute_are_cut(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = transitions.claimed

    def slowly(*values: Any, **named: Any) -> Any:
        site.clock.advance(0.08)
        return claimed(*values, **named)

    site.add("davis")
    words = "Later ones take too long to compute."
    assert words not in site.get("/item?id=davis").text
    monkeypatch.setattr(upcoming_times, "claimed", slowly)
    answer = site.get("/api/v1/next?id=davis").json()
    assert (len(answer["times"]), answer["cut"]) == (4, True)
    assert words in site.get("/item?id=davis").text


def test_next_times_that_differ_by_seconds_are_told_apart(site: WebSite) -> None:
    site.add("davis", every="20s")
    times = re.findall(r"<td>\w{3} 2026-11-21 (\S+)</td>", site.get("/item?id=davis").text)
    assert len({*times}) == len(times) == pages.NEXT_TIMES


def test_the_board_says_how_many_tags_it_does_not_offer(site: WebSite) -> None:
    site.add("davis", every="1h", tags=[f"t{number:02}" for number in range(14)])
    offered = main_of(site.get("/").text)
    assert "t11 " in offered
    assert "t12 <span>" not in offered
    assert "and 2 more" in offered


def test_next_times_that_take_long_hold_up_no_other_page(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, claimed = threading.Event(), transitions.claimed

    def slowly(*values: Any, **named: Any) -> Any:
        assert goes_on.wait(patience(20))
        return claimed(*values, **named)

    async def pages() -> None:
        async with site.visitor() as client:
            searches = [client.get("/api/v1/next?id=davis") for _ in range(5)]
            searching = asyncio.gather(*searches)
            try:
                async with asyncio.timeout(patience(20)):
                    for path in ("/?q=dav", "/failures", "/health"):
                        assert (await client.get(path)).status_code == 200
                assert not searching.done()
            finally:
                goes_on.set()
            assert all(answer.json()["times"] for answer in await searching)

    site.add("davis")
    monkeypatch.setattr(upcoming_times, "claimed", slowly)
    site.do(pages)


def test_what_fails_to_be_read_for_all_viewers_is_not_read_again_for_each(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def away(_board: BoardTable) -> Any:
        nonlocal asked
        asked += 1
        for _turn in range(50):
            await asyncio.sleep(0)
        raise Unavailable("the store is away")

    async def alarms() -> list[int]:
        async with site.visitor() as client:
            answers = await asyncio.gather(*(client.get("/api/v1/alarms") for _ in range(5)))
        return [answer.status_code for answer in answers]

    site.add("davis")
    site.get("/")
    with monkeypatch.context() as patched:
        patched.setattr(health, "read_groups", away)
        assert site.do(alarms) == [503] * 5
        assert asked == 1
    assert site.do(alarms) == [200] * 5


def test_what_a_viewer_has_acknowledged_is_wrong_no_more_however_long_that_takes_to_examine(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(*values: Any) -> Any:
        site.clock.advance(2)
        return checked(*values)

    site.add("davis")
    ran_hourly(site, "davis", "failed")
    monkeypatch.setattr(health, "checked", slowly)
    before = site.get("/api/v1/alarms").json()
    assert "failing" in [one["kind"] for one in before["problems"]]
    form = fields_of(site.get("/item?id=davis").text, "do-ack")
    assert site.post("/act/ack", form).status_code == 303
    after = site.get("/api/v1/alarms").json()
    assert "failing" not in [one["kind"] for one in after["problems"]]
    assert after["at"] > before["at"]
    assert "failing" not in main_of(site.get("/health").text)


def test_figures_that_take_long_are_read_less_often(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []

    async def slowly(board: BoardTable, **about: Any) -> Overview:
        reads.append(site.clock.monotonic())
        site.clock.advance(2)
        return await read_overview(board, **about)

    def age() -> float:
        text = site.get("/metrics").text
        return float(text.partition("\nblackboard_board_statistics_age_seconds ")[2].split()[0])

    monkeypatch.setattr(app, "read_overview", slowly)
    assert age() == 0
    site.clock.advance(39)
    assert age() == 39
    assert len(reads) == 1
    site.clock.advance(2)
    assert age() == 0
    assert len(reads) == 2


def test_figures_of_a_large_board_without_workers_are_those_of_the_items_in_memory(
    site: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All items are read for the first of them alone, and then beside them."""
    monkeypatch.setattr(snapshot, "QUICK", -1.0)
    monkeypatch.setattr(snapshot, "SMALL", 0)
    may_read = asyncio.Event()
    may_read.set()
    items = BoardTable.items

    async def slowly(board: BoardTable, **about: Any) -> AsyncIterator[Item]:
        await may_read.wait()
        async for item in items(board, **about):
            yield item

    def figures() -> dict[tuple[str, ...], float]:
        site.clock.advance(600)
        return samples(site.get("/metrics").content, "blackboard_board_")

    monkeypatch.setattr(BoardTable, "items", slowly)
    site.add("davis", "keene")
    assert figures()["items_overdue", "feed"] == 2
    may_read.clear()
    site.add("toronto")
    while_read = figures()
    assert while_read["items_overdue", "feed"] == 2
    assert while_read["statistics_age_seconds",] == 602
    may_read.set()


def test_figures_of_a_board_that_cannot_be_read_are_refused(site: WebSite) -> None:
    site.add("davis")
    spoil(site, site.board, BOARD_KEY, shards=2)
    answer = site.get("/metrics")
    assert (answer.status_code, "shards" in answer.text) == (503, True)


# ---- below another application


@pytest.mark.parametrize("where", [{"mounted": "/jobs"}, {"prefix": "/jobs"}])
def test_pages_below_a_path(where: dict[str, Any]) -> None:
    with served(**where, operator=True, hosts=None) as site:
        site.add("davis", "keene")
        for path in PATHS:
            query = "?id=davis" if path in {"/item", "/run", "/report"} else ""
            page = site.get(f"/jobs{path}{query}").text
            for one in addresses_of(page):
                assert one.startswith(("/jobs/", "?", "#")), one
        statics = [one for one in addresses_of(page) if "/static/" in one]
        assert len(statics) >= 5
        for one in statics:
            assert site.get(one).status_code == 200, one
        csrf = site.csrf("/jobs/item?id=davis")
        answer = site.post("/jobs/act/pause", {"csrf": csrf, "id": "davis"})
        assert answer.headers["location"] == "/jobs/item?id=davis&done=pause"
        site.client.cookies.clear()
        assert "path=/jobs" in site.get("/jobs/").headers["set-cookie"].lower()
        assert 'hx-sse:connect="/jobs/live/board' in site.get("/jobs/").text
        assert site.client.head("/jobs/live/board").status_code == 200
    with served(**where, token="t" * 16, hosts=None) as site:
        answer = site.post("/jobs/login", {"token": "t" * 16, "back": "/runs"})
        assert answer.headers["location"] == "/jobs/runs"
        assert site.get("/jobs/runs").status_code == 200
        assert site.get("/jobs/static/app.css").status_code == 200


def test_a_proxy_may_leave_out_the_path_below_which_it_shows_the_pages() -> None:
    with served(prefix="/jobs", operator=True) as site:
        site.add("davis")
        for path in ("/", "/item?id=davis", "/api/v1/items", "/healthz", "/static/app.css"):
            whole, rest = site.get(f"/jobs{path}"), site.get(path)
            assert (whole.status_code, rest.status_code) == (200, 200)
            assert addresses_of(whole.text) == addresses_of(rest.text), path
        assert site.get("/jobs").text == site.get("/jobs/").text
        assert site.get("/api/v1/openapi.json").json()["servers"] == [{"url": "/jobs/api/v1"}]
        assert site.get("/jobsx").status_code == 404


@pytest.mark.parametrize("where", [{}, {"mounted": "/jobs"}, {"prefix": "/jobs"}])
def test_a_page_for_an_address_that_is_not_there_has_the_links_of_all_pages(
    where: dict[str, Any],
) -> None:
    root = "/jobs" if where else ""
    with served(**where) as site:
        usual = addresses_of(site.get(f"{root}/actions").text)
        for path in ("/static/xxx", "/runs/", "/api"):
            site.client.cookies.clear()
            answer = site.get(f"{root}{path}")
            assert answer.status_code == 404, path
            assert {*addresses_of(answer.text)} <= {*usual}, path
            assert f"path={root or '/'};" in answer.headers["set-cookie"].lower()


def test_files_of_the_pages_are_kept_by_browsers_and_asked_for_again(site: WebSite) -> None:
    answer = site.get("/static/app.css")
    assert answer.headers["cache-control"] == "no-cache"
    again = site.get("/static/app.css", if_none_match=answer.headers["etag"])
    assert (again.status_code, again.content) == (304, b"")
    assert site.get("/").headers["cache-control"] == "no-store"


# ---- streams


def test_a_stream_sends_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "APART", 0.0)
    monkeypatch.setattr(live, "STATE_EVERY", 0.01)
    with served() as site:
        site.add("davis")
        site.get("/")

        async def told() -> None:
            async with streamed(site.app, "/live/board", "sort=type") as stream:
                await stream.until(lambda sent: "davis" in "".join(sent.events))
                begun = len(stream.events)
                site.clock.advance(live.QUIET)
                await stream.until(lambda sent: live.STILL_THERE in sent.text)
                assert stream.status == 200
                assert len(stream.events) == begun
                await pause(site.board, "davis", Mark(by="ann", at=site.clock.now()))

                def is_sent(sent: Stream) -> bool:
                    site.clock.advance(1)
                    return "<b>1</b>paused" in sent.events[-1]

                await stream.until(is_sent)
                shown.append(stream.events[-1])

        shown: list[str] = []
        site.do(told)
        whole = main_of(site.get("/?sort=type").text)
        assert [one for one in shown[0].splitlines() if one.strip()] == [
            one for one in whole.splitlines() if one.strip()
        ]


def test_a_part_that_takes_long_is_made_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the stream says meanwhile that it is there."""
    monkeypatch.setattr(live, "APART", 0.0)
    monkeypatch.setattr(live, "STATE_EVERY", 0.01)
    made: list[float] = []
    with served() as site:
        fragment = Site.fragment

        def slowly(of: Site, request: Request, page: WebPage) -> str:
            made.append(site.clock.monotonic())
            site.clock.advance(4)
            return fragment(of, request, page)

        monkeypatch.setattr(Site, "fragment", slowly)
        site.get("/runs")

        async def told() -> None:
            async with streamed(site.app, "/live/actions") as stream:  # depends on the second

                def is_made_thrice(sent: Stream) -> bool:
                    site.clock.advance(1)
                    return len(made) == 3

                await stream.until(is_made_thrice)
                assert live.STILL_THERE in stream.text

        site.do(told)
    assert all(later - earlier >= 24 for earlier, later in pairwise(made))


def test_a_stream_says_that_it_is_there_while_its_part_is_made_and_ends_with_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "STATE_EVERY", 0.01)
    with served() as site:
        site.get("/")

        async def waits(_: Snapshot) -> None:
            await asyncio.Event().wait()

        async def told() -> None:
            async with streamed(site.app, "/live/board") as stream:
                await stream.until(lambda sent: sent.status == 200)
                site.clock.advance(live.QUIET)
                await stream.until(lambda sent: live.STILL_THERE in sent.text)
                monkeypatch.setattr(live, "is_server_ending", lambda: True)
                await stream.until(lambda sent: sent.is_over)

        monkeypatch.setattr(Snapshot, "fresh", waits)
        site.do(told)


def test_a_page_too_many_to_be_live_is_read_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_STREAMS", 1)
    with served() as site:
        site.add("davis")
        site.get("/")

        async def told() -> None:
            async with streamed(site.app, "/live/board") as first:
                await first.until(lambda sent: bool(sent.events))
                assert "event: server\n" in first.text
                async with streamed(site.app, "/live/board") as second:
                    await second.until(lambda sent: sent.is_over)
                    assert f"retry: {1000 * live.QUIET:.0f}\nevent: polled\n" in second.text
                    assert second.events == first.events
                [seen] = re.findall("^id: (.*)", second.text, re.MULTILINE)
                async with streamed(site.app, "/live/board", seen=seen) as again:
                    await again.until(lambda sent: sent.is_over)
                    assert (again.events, live.STILL_THERE in again.text) == ([], True)
                await pause(site.board, "davis", Mark(by="ann", at=site.clock.now()))

                def is_sent(sent: Stream) -> bool:
                    site.clock.advance(1)
                    return len(sent.events) > 1

                await first.until(is_sent)
                async with streamed(site.app, "/live/board", seen=seen) as later:
                    await later.until(lambda sent: sent.is_over)
                    assert "<b>1</b>paused" in later.events[0]
                assert not first.is_over
            async with streamed(site.app, "/live/board") as other:
                await other.until(lambda sent: "event: server\n" in sent.text)

        site.do(told)


def test_a_page_too_many_does_not_stay_while_the_store_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "STATE_EVERY", 0.01)
    monkeypatch.setattr(live, "MOST_STREAMS", 0)
    with served() as site:
        site.get("/")

        async def waits(_: Snapshot) -> None:
            await asyncio.Event().wait()

        async def told() -> None:
            async with streamed(site.app, "/live/board") as stream:
                await stream.until(lambda sent: "event: polled\n" in sent.text)
                site.clock.advance(live.QUIET)
                await stream.until(lambda sent: sent.is_over)
                assert (stream.events, live.STILL_THERE in stream.text) == ([], True)

        monkeypatch.setattr(Snapshot, "fresh", waits)
        site.do(told)


def test_a_page_too_many_waits_for_a_part_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "STATE_EVERY", 0.01)
    monkeypatch.setattr(live, "MOST_STREAMS", 0)
    fresh = Snapshot.fresh
    with served() as site:
        site.get("/")

        async def slowly(of: Snapshot) -> None:
            await asyncio.sleep(20 * live.STATE_EVERY)
            await fresh(of)

        async def told() -> None:
            async with streamed(site.app, "/live/board") as stream:
                await stream.until(lambda sent: sent.is_over)
                assert len(stream.events) == 1

        monkeypatch.setattr(Snapshot, "fresh", slowly)
        site.do(told)


def parts_take_a_second(site: WebSite, monkeypatch: pytest.MonkeyPatch) -> list[Site]:
    """Makes each part of a page take a second. Returns the sites that have made one."""
    fragment, sites = Site.fragment, list[Site]()

    def slowly(of: Site, request: Request, page: WebPage) -> str:
        sites.append(of)
        site.clock.advance(1)
        return fragment(of, request, page)

    monkeypatch.setattr(Site, "fragment", slowly)
    return sites


def test_a_page_too_many_is_sent_a_part_that_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names no part as its own before it was sent one, so it would be sent none for long."""
    monkeypatch.setattr(live, "MOST_STREAMS", 1)
    with served() as site:
        sites = parts_take_a_second(site, monkeypatch)

        async def told() -> None:
            async with streamed(site.app, "/live/board") as first:
                await first.until(lambda sent: bool(sent.events))
                await pause(site.board, "davis", Mark(by="ann", at=site.clock.now()))
                await sites[0].snapshot.look()
                async with streamed(site.app, "/live/board") as second:
                    await second.until(lambda sent: sent.is_over)
                    assert second.events == first.events

        site.add("davis")
        site.do(told)


def test_a_change_while_a_part_rests_is_shown_when_it_has_rested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stream that begins meanwhile shows nothing older than the page that was loaded for it."""
    monkeypatch.setattr(live, "APART", 0.0)
    monkeypatch.setattr(live, "STATE_EVERY", 0.01)
    with served() as site:
        sites = parts_take_a_second(site, monkeypatch)

        async def told() -> None:
            site.clock.advance(-site.clock.monotonic() % live.QUIET + live.QUIET - 2)
            async with streamed(site.app, "/live/board") as early:
                await early.until(lambda sent: bool(sent.events))
                site.clock.advance(1.5)  # another turn has begun
                await early.until(lambda sent: live.STILL_THERE in sent.text)
                await pause(site.board, "davis", Mark(by="ann", at=site.clock.now()))
                await sites[0].snapshot.look()
                async with streamed(site.app, "/live/board") as late:
                    await late.until(lambda sent: live.STILL_THERE in sent.text)
                    assert (len(early.events), late.events) == (1, [])
                    site.clock.advance(live.SHARE - 1.5)
                    await early.until(lambda sent: "<b>1</b>paused" in sent.events[-1])
                    await late.until(lambda sent: bool(sent.events))
                    assert len(early.events) == 2
                    assert late.events == early.events[1:]

        site.add("davis")
        site.do(told)


@pytest.mark.parametrize("name", ["leases", "leaders", "actions"])
def test_a_page_that_shows_more_than_items_is_live_as_well(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Partitions and elections are on boards of their own, and an action may change no item."""
    monkeypatch.setattr(live, "APART", 0.0)
    monkeypatch.setattr(live, "STATE_EVERY", 0.01)
    monkeypatch.setattr(live, "QUIET", 1e9)
    with served() as site:
        board = site.do(lambda: open_elections(site.board, create=True))
        site.get("/")

        async def change() -> None:
            match name:
                case "leases":
                    await group(site.scene)
                case "leaders":
                    await add_election(board, "mayor", "mutex", Spec(stale_after="15s"))
                case "actions":
                    await record_action(site.board, by="ann", verb="pause", ids=["a"], via="cli")

        async def told() -> None:
            async with streamed(site.app, f"/live/{name}") as stream:
                await stream.until(lambda sent: bool(sent.events))
                begun = len(stream.events)
                await change()

                def is_sent(sent: Stream) -> bool:
                    site.clock.advance(1)
                    return len(sent.events) > begun

                await stream.until(is_sent)

        site.do(told)


def test_each_live_page_has_its_part(odd: WebSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "APART", 0.0)
    for name, (_, signature) in PAGES.items():
        query = "zone=Asia/Tokyo" + ("&id=davis" if name in {"item", "report"} else "")
        page = odd.get(f"/{'' if name == 'board' else name}?{query}").text
        if signature is None:
            assert "hx-sse:connect" not in page
            continue
        parts: list[str] = []

        async def told(name: str = name, query: str = query, parts: list[str] = parts) -> None:
            async with streamed(odd.app, f"/live/{name}", query) as stream:
                await stream.until(lambda sent: bool(sent.events))
                parts.extend(stream.events)

        odd.do(told)
        there = [one for one in main_of(page).splitlines() if one.strip()]
        assert [one for one in parts[0].splitlines() if one.strip()] == there, name
        assert "hx-sse:connect" not in odd.get(f"/{'' if name == 'board' else name}?live=off").text


@pytest.mark.parametrize("query", ["", "?q=a+%26b&state=failed&state=late"])
def test_updates_are_paused_and_go_on_by_a_link_without_a_script(site: WebSite, query: str) -> None:
    def live_link(address: str) -> str:
        found = re.search(r'class="live(?: paused)?" href="([^"]+)"', site.get(address).text)
        assert found is not None
        return html.unescape(found[1])

    paused = live_link(f"/{query}")
    assert "hx-sse:connect" not in site.get(f"/{paused}").text
    assert live_link(f"/{paused}") == (query or "?")


@pytest.mark.parametrize("path", ["/", "/runs", "/timeline"])
def test_what_is_chosen_on_a_page_goes_on_as_the_page_is_shown(odd: WebSite, path: str) -> None:
    """With its updates paused, and in the zone of its address."""
    page = odd.get(f"{path}?live=off&zone=Asia/Tokyo&q=a").text
    found = addresses_of(main_of(page))
    links = [html.unescape(one) for one in found if one.startswith(f"{path}?")]
    assert links
    for one in links:
        assert "live=off&zone=Asia%2FTokyo" in one, one
    assert "live=off" not in "".join(one for one in addresses_of(page) if "/static/" in one)
    if 'role="search"' in page:
        form = page.partition('role="search"')[2].partition("</form>")[0]
        for name, value in (("live", "off"), ("zone", "Asia/Tokyo")):
            assert f'type="hidden" name="{name}" value="{value}"' in form


class MadeParts:
    """The parts of a page that waits until it goes on, and of each number in `faulty` fails."""

    def __init__(self, *faulty: int, size: int = 0) -> None:
        self.fragments = live.Fragments()
        self.size = size
        self.goes_on = asyncio.Event()
        self.made = 0
        self.state: object = "as it is"
        self.clock = ManualClock()
        self.board = self
        self._faulty = faulty

    def looked_at(self, address: bytes = b"id=x") -> asyncio.Task[str]:
        return asyncio.create_task(self._part(address))

    async def _part(self, address: bytes) -> str:
        scope = {"type": "http", "path": "/live/item", "query_string": address, "headers": []}
        site = cast(Site, self)
        making = self.fragments.get(site, Request(scope), self._page, self.state)
        part = await asyncio.shield(making)
        return part.event.decode().splitlines()[1].removeprefix("data: ").rstrip(".")

    async def _page(self, site: Site, request: Request) -> WebPage:
        self.made += 1
        number = self.made
        await self.goes_on.wait()
        if number in self._faulty:
            raise KeyError("a fault of the page")
        return WebPage(template="", title=f"made {number}")

    def fragment(self, request: Request, page: WebPage) -> str:
        return f"{page.title}{'.' * self.size}"


def test_a_part_is_made_once_for_all_that_wait_for_it() -> None:
    """Also when the one that asked first is gone."""

    async def told() -> None:
        parts = MadeParts()
        with parts.fragments.viewed():
            first, *others = [parts.looked_at() for _ in range(4)]
            await asyncio.sleep(0)
            first.cancel()
            parts.goes_on.set()
            assert await asyncio.gather(*others, parts.looked_at()) == ["made 1"] * 4
            assert first.cancelled()
            assert await parts.looked_at() == "made 1"

    asyncio.run(told())


def test_a_part_rests_for_all_viewers_of_its_address() -> None:
    """They see the latest until then."""

    async def told() -> None:
        parts = MadeParts()
        with parts.fragments.viewed():
            first = parts.looked_at()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            parts.clock.advance(2)
            parts.goes_on.set()
            assert await first == "made 1"
            parts.state = "another"
            parts.clock.advance(2 * live.SHARE - 1)
            assert await parts.looked_at() == "made 1"
            assert await parts.looked_at(b"id=y") == "made 2"
            parts.clock.advance(1)
            assert await asyncio.gather(*(parts.looked_at() for _ in range(3))) == ["made 3"] * 3
            assert parts.fragments.size == sum(map(size_of, (b"id=x", b"id=y")))

    def size_of(address: bytes) -> int:
        return len(address) + len(b"id: 0123456789ab\ndata: made 1\n\n")

    asyncio.run(told())


def test_so_many_bytes_of_parts_are_kept_and_the_oldest_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "MOST_CACHED", 3_500)

    async def told() -> None:
        parts = MadeParts(size=1_000)
        parts.goes_on.set()
        with parts.fragments.viewed():
            for address in (b"id=a", b"id=b", b"id=c", b"id=d"):
                await parts.looked_at(address)
            assert await parts.looked_at(b"id=d") == "made 4"
            assert await parts.looked_at(b"id=b") == "made 2"
            assert await parts.looked_at(b"id=a") == "made 5"

    asyncio.run(told())


def test_the_parts_are_dropped_when_no_stream_is_open() -> None:
    """Also one that is ready only when its viewer is gone."""

    async def told() -> None:
        parts = MadeParts()
        with parts.fragments.viewed():
            parts.goes_on.set()
            await parts.looked_at()
            parts.goes_on.clear()
            gone = parts.looked_at(b"id=y")
            await asyncio.sleep(0)
            gone.cancel()
        parts.goes_on.set()
        for _ in range(4):
            await asyncio.sleep(0)
        assert parts.made == 2
        assert parts.fragments.size == 0

    asyncio.run(told())


def test_a_part_that_failed_is_made_again() -> None:
    """Also when its viewer was gone before it failed."""

    async def told() -> None:
        parts = MadeParts(1, 2)
        gone = parts.looked_at()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        parts.goes_on.set()
        for _ in range(3):
            await asyncio.sleep(0)
        with pytest.raises(KeyError):
            await parts.looked_at()
        assert await parts.looked_at() == "made 3"

    asyncio.run(told())


def test_the_parts_that_are_being_made_end_with_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those beyond the number that is kept."""
    monkeypatch.setattr(live, "MOST_CACHED", 0)

    async def told() -> None:
        parts = MadeParts()
        gone = parts.looked_at()
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        await parts.fragments.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(told())


# ---- runs in memory


@story
async def test_runs_that_several_pages_read_at_once_count_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "MOST_KEPT", 3)
    await scene.add()
    await scene.let_go(await scene.claimed())
    runs = RecentRuns(scene.board)
    for _ in range(4):
        items: list[Item] = [await scene.item()]
        query = RunQuery()
        found = await asyncio.gather(*(runs.newest(items, query, limit=5) for _ in range(3)))
        assert [[run.fence for _, run in one] for one, _ in found] == [[1]] * 3
        assert runs._number == 1
        runs._kept["davis"] = runs._kept["davis"]._replace(version=None)


@story
async def test_few_runs_with_long_results_are_kept(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "MOST_KEPT", 40)
    runs = RecentRuns(scene.board)
    for number in range(5):
        claim = await scene.claimed((await scene.add(f"item {number}")).id)
        await scene.let_go(claim, result=f'"{"x" * 15_000}"')
    found, _ = await runs.newest([one async for one in scene.board.items()], RunQuery(), limit=9)
    assert (len(found), len(runs._kept)) == (5, 2)


@story
async def test_searches_that_waited_for_one_without_an_answer_wait_for_no_other(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = await scene.add()
    asked: list[float] = []

    async def times_out() -> datetime:
        asked.append(scene.clock.monotonic())
        await asyncio.sleep(0)
        scene.later(seconds=10)
        raise Unavailable("it does not answer")

    runs = RecentRuns(scene.board)
    with monkeypatch.context() as away:
        away.setattr(scene.table, "now", times_out)
        for times in (1, 2):
            searches = (runs.newest([item], RunQuery(), limit=5) for _ in range(5))
            ended = await asyncio.gather(*searches, return_exceptions=True)
            assert [str(one) for one in ended] == ["it does not answer"] * 5
            assert len(asked) == times
    assert await runs.newest([item], RunQuery(), limit=5) == ([], None)


@story
async def test_a_second_look_reads_the_items_again_that_are_not_kept_and_no_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "MOST_KEPT", 4)
    ids = [f"item {number}" for number in range(6)]
    for one in ids:
        await scene.add(one)
        await scene.let_go(await scene.claimed(one))
        scene.later(minutes=1)
    read: list[str] = []
    runs_of = scene.board.runs

    async def counted(item_id: str, **about: Any) -> AsyncIterator[Run]:
        read.append(item_id)
        for _ in range(chance.randrange(10)):
            await asyncio.sleep(0)
        async for run in runs_of(item_id, **about):
            yield run

    monkeypatch.setattr(scene.board, "runs", counted)
    runs = RecentRuns(scene.board)
    chance = random.Random(1)  # reads that go on at one time end in any order

    async def look() -> set[str]:
        read.clear()
        items = [one async for one in scene.board.items()]
        found, _ = await runs.newest(items, RunQuery(), limit=100)
        assert [run.id for _, run in found] == latest
        return set(read)

    latest = ids[::-1]
    assert await look() == set(ids)
    for _ in range(20):
        assert await look() == {"item 0", "item 1"}
    scene.later(hours=1)
    await scene.let_go(await scene.claimed("item 0"))  # is now the first of all
    latest = ["item 0", "item 5", "item 4", "item 3", "item 2", "item 1", "item 0"]
    await look()
    assert await look() == {"item 1", "item 2", "item 3"}  # of one, two runs are kept


def test_pages_are_computed_while_threads_of_handlers_stand(site: WebSite) -> None:
    """They may hold all threads that the loop has."""
    site.add("davis")
    over = threading.Event()

    async def stand() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        loop.run_in_executor(None, over.wait)

    site.do(stand)
    given_up = threading.Timer(patience(20), over.set)
    given_up.start()
    for path in ("/", "/runs", "/failures"):
        assert site.get(path).status_code == 200
    assert not over.is_set()
    given_up.cancel()
    over.set()


@story
async def test_the_newest_of_many_runs_are_found_without_sorting_all_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.add()
    await scene.let_go(await scene.claimed())
    [run] = [one async for one in scene.board.runs("davis")]
    item = await scene.item()
    assert item.stop is not None
    scene.later(seconds=1_000)
    later = [timedelta(seconds=number) for number in range(1_000)]
    items = [replace(item, id=f"item {one.seconds:03}", stop=item.stop + one) for one in later]

    async def runs_of(item: Item) -> AsyncIterator[Run]:
        assert item.stop is not None
        for back in range(3):
            stop = item.stop - timedelta(minutes=back)
            yield replace(run, id=item.id, stop=stop, fence=3 - back)

    compared = 0

    class Place(tuple[float, str, int]):
        """Counts how often it is compared."""

        __slots__ = ()

        def __lt__(self, other: tuple[float | str | int, ...]) -> bool:
            nonlocal compared
            compared += 1
            return super().__lt__(other)

    monkeypatch.setattr(run_queries, "cursor_of", lambda *of: Place(cursor_of(*of)))
    everything = [one for item in items async for one in runs_of(item)]
    ordered = sorted(everything, key=lambda run: cursor_of(run, run.stop))
    for limit in (1, 7, 1_500, 4_000):
        compared = 0
        found, _ = await newest_runs(scene.board, items, RunQuery(), limit=limit, runs_of=runs_of)
        assert [run for _, run in found] == ordered[:limit]
        assert compared < 20 * len(everything)
    assert compared


# ---- the door, and the scripts of others


@story
async def test_a_board_refuses_what_cannot_be_served(scene: Scene) -> None:
    board = door(scene.board)
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("token", {"token": "short"}),
        ("proxies", {"user_header": "x", "proxies": ["nonsense"]}),
        ("proxies", {"user_header": "x", "proxies": "10.0.0.7"}),
        ("proxies", {"proxies": ["10.0.0.7"]}),
        ("user_header", {"user_header": "x"}),
        ("hosts", {"hosts": ["http://a.example"]}),
        ("hosts", {"hosts": "a.example"}),
    ]
    for argument, said in wrong:
        with pytest.raises(BadInput) as caught:
            board.web(**said)
        assert caught.value.field == argument
    assert callable(board.web(operator=True, token="t" * 16, hosts=["A.example"]))
    assert callable(web_app)


def test_the_scripts_of_others_are_unchanged() -> None:
    folder = Path(blackboard.__file__).parent / "web" / "static" / "vendor"
    written = dict(
        re.findall(r"\| `([\w.-]+)` \|.*`([0-9a-f]{64})`", (folder / "VENDOR.md").read_text())
    )
    there = {
        one.name: hashlib.sha256(one.read_bytes()).hexdigest()
        for one in folder.iterdir()
        if one.name != "VENDOR.md"
    }
    assert written == there


def test_what_is_wrong_leads_to_where_it_is_shown() -> None:
    with served() as site:
        site.add("ann", "bad")

        async def harm() -> None:
            board = site.board
            await group(site.scene)
            spoiled = Merge(item_key("bad"), {"state": "odd"}, ANY)
            await board.table.commit(board.partition("bad"), [spoiled])

        site.do(harm)
        site.clock.advance(3600)
        text = site.get("/health").text
        assert {"item:bad", "clicks/00"} <= set(re.findall(r"[\w:/]+", text))
        links = re.findall(r'href="([^"]*)"', text)
        assert "/leases?group=clicks" in links
        for link in links:
            if link.startswith("/"):
                assert site.get(html.unescape(link)).status_code == 200, link
