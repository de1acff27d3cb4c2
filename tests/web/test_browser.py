"""The pages in a real browser: live parts, addresses, actions, what text in items may do.

Playwright keeps an event loop in this thread, so boards are read through a portal.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Page, Route, sync_playwright

from blackboard import BlockingBoard, open_blocking
from blackboard.clock import SystemClock
from blackboard.inputs import LONGEST_TEXT
from blackboard.web.filters import PAGE
from tests.support.processes import PATIENCE, Site, eventually, site
from tests.support.web_pictures import ARGUMENTS, CHROMIUM

pytestmark = pytest.mark.of_sqlite("the pages show records, and records are the same of any store")
HOSTILE = """<img src=x onerror=window.hacked=1>"'><script>window.hacked=1</script>"""
LONG_ID, LONG_TYPE, LONG_TAG = "i" * LONGEST_TEXT, "k" * 200, "t" * 50
"""Without a blank at which a line could end."""
PAGES = (
    "",
    "item?id=calm",
    "runs",
    "timeline",
    "failures",
    "workers",
    "leases",
    "leaders",
    "health",
    "actions",
)
THEMES: Mapping[Literal["light", "dark"], Mapping[str, Any]] = {
    "light": {},
    "dark": {"runOnly": ["color-contrast"]},
}
"""The colours of the pages, and options of axe that say which rules are checked in them."""
JOBS = f"""
import asyncio

from blackboard import handler

HOSTILE = {HOSTILE!r}


@handler("works", every="1h")
async def works(item, ctx):
    return {{"params": dict(item.params)}}


@handler("lasts", every="1h")
async def lasts(item, ctx):
    ctx.progress(1, 4)
    await asyncio.sleep(3600)


@handler({LONG_TYPE!r}, every="1h")
async def named_long(item, ctx):
    return "r" * 500


@handler("fails", every="1h", retries=0)
async def fails(item, ctx):
    print(HOSTILE)
    ctx.warn(HOSTILE)
    ctx.log.error(HOSTILE)
    raise ValueError(HOSTILE)
"""


POLLED = """
from blackboard.cli import main
from blackboard.web import live

live.MOST_STREAMS, live.QUIET = 0, {seconds}
main()
"""
"""A server without a stream for any page. Its pages ask it every so often for what is new."""

UNENDING = """
import asyncio
from blackboard.cli import main
from blackboard.web import actions

async def never(*_):
    await asyncio.sleep(3600)

actions._change = never
main()
"""
"""A server whose changes of many items do not get on."""

WAITS = "(document.getElementById('live')._htmx?.sse?.delayCanceller ?? null) !== null"
"""Whether the script waits until it connects again; the part is new when it was just read."""

HIDE = """(value) => {
    Object.defineProperty(document, "hidden", { value, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not Path(CHROMIUM).exists() and not shutil.which("chromium"):
        if os.environ.get("CI"):
            pytest.fail(f"{CHROMIUM} is not installed")
        pytest.skip(f"{CHROMIUM} is not installed")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield started
        started.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, str]]:
    folder = tmp_path_factory.mktemp("pages")
    (folder / "jobs.py").write_text(JOBS, encoding="utf-8")
    (folder / "blackboard.toml").write_text('[board]\njobs = ["jobs.py"]\n', encoding="utf-8")
    with site(folder, str(folder / "blackboard.db")) as found:
        with open_blocking(found.store, settings=folder / "blackboard.toml", create=True) as board:
            for one in ("calm", "quick"):
                board.add(one, "works", first="next", tags=["kept"])
            board.add("slow", "lasts")
            board.add(
                HOSTILE,
                "fails",
                params={HOSTILE: HOSTILE},
                description=HOSTILE,
                owner="<b>owner</b>",
            )
            board.pause("quick", reason=HOSTILE, by=HOSTILE)
            board.resume("quick", reason=HOSTILE, by=HOSTILE)
        found.works(found.start("worker", "--cycle", "1s"))
        pages = found.start("serve", "--operator", "--listen", "127.0.0.1:0", "--json")
        eventually(lambda: "url" in pages.text, "the pages are served")
        with open_blocking(found.store) as board:
            eventually(lambda: board.item("slow").running, "the slow one runs")
            eventually(lambda: board.item(HOSTILE).failures == 1, "the hostile one has failed")
        yield found, json.loads(pages.text.splitlines()[0])["url"]


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page without motion, which a browser draws all the time. It fails the test where its
    console has an error, or a script of a text ran.
    """
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    trouble: list[str] = []
    refused = "the server responded with a status of 400"  # as a test wants it
    page.on(
        "console",
        lambda said: (
            trouble.append(said.text) if said.type == "error" and refused not in said.text else None
        ),
    )
    page.on("pageerror", lambda problem: trouble.append(str(problem)))
    yield page
    assert page.evaluate("typeof window.hacked") == "undefined"
    context.close()
    assert trouble == []


def soon(page: Page, condition: Callable[[], object], what: str, *, seconds: float) -> None:
    """Wait until a page shows something, while its events are handled."""
    clock = SystemClock()
    ends = clock.monotonic() + seconds
    while not condition():
        assert clock.monotonic() < ends, what
        page.wait_for_timeout(50)


def seconds_since(board: BlockingBoard, item_id: str) -> float:
    """How long ago the last run of an item ended: what is that young, a page calls `now`, and it
    is drawn again when something changes, or after half a minute.
    """
    stop = board.item(item_id).stop
    assert stop is not None
    return (SystemClock().now() - stop).total_seconds()


def row(page: Page, item_id: str) -> str:
    return page.locator(f"table.items tr:has(a.id:text-is('{item_id}'))").inner_text()


@pytest.fixture
def board(place: tuple[Site, str]) -> Iterator[BlockingBoard]:
    with open_blocking(place[0].store) as found:
        yield found


def test_a_change_from_elsewhere_is_shown_without_loading_the_page_again(
    page: Page, place: tuple[Site, str], board: BlockingBoard
) -> None:
    soon(page, lambda: seconds_since(board, HOSTILE) > 2, "a run is over", seconds=PATIENCE)
    page.goto(place[1])
    page.evaluate("window.mark = 1")
    page.locator("input[value=quick]").check()
    assert "s ago" in page.locator("main").inner_text()
    board.pause("quick", reason="lunch")
    soon(page, lambda: "paused" in row(page, "quick"), "it is live", seconds=PATIENCE)
    board.resume("quick")
    soon(page, lambda: "paused" not in row(page, "quick"), "and again", seconds=PATIENCE)
    assert page.evaluate("window.mark") == 1
    assert page.locator("input[value=quick]").is_checked()


def test_filters_are_in_the_address_and_survive_reload_and_back(
    page: Page, place: tuple[Site, str]
) -> None:
    page.goto(f"{place[1]}?type=works")
    assert page.locator("table.items tbody tr").count() == 2
    page.locator("#search").fill("cal")
    soon(page, lambda: "q=cal" in page.url, "the address says it", seconds=PATIENCE)
    lines = page.locator("table.items tbody tr")
    soon(page, lambda: lines.count() == 1, "one is left", seconds=PATIENCE)
    assert page.evaluate("document.activeElement.id") == "search"
    page.locator("a.live").click()
    page.wait_for_url(lambda url: "q=cal" in url and "live=off" in url)
    page.locator("a.live.paused").click()
    page.wait_for_url(lambda url: "q=cal" in url and "live" not in url)
    page.reload()
    assert lines.count() == 1
    page.locator("table.items th a", has_text="next").click()
    page.wait_for_url("**sort=next**")
    page.go_back()
    page.wait_for_url(lambda url: "q=cal" in url and "sort" not in url)
    assert lines.count() == 1
    page.goto(place[1])
    page.locator(".tiles a.failed").click()
    page.wait_for_url("**state=failed")
    assert lines.count() == 1


def test_each_action_is_done_and_recorded(
    page: Page, place: tuple[Site, str], board: BlockingBoard
) -> None:
    def does(name: str, **fields: str) -> None:
        page.locator("details.act summary", has_text=name).click()
        for field, text in fields.items():
            page.locator(f"details[open] [name={field}]").fill(text)
        with page.expect_navigation():
            page.locator("details[open] button").click()

    page.goto(f"{place[1]}item?id=calm")
    does("Run now", params='{"days": 3}')
    assert page.locator("[role=status].banner").inner_text() == "A run was requested."
    eventually(lambda: (board.item("calm").result or {}).get("params") == {"days": 3}, "it ran")
    does("Pause", reason="because")
    paused = board.item("calm").paused
    assert paused is not None
    assert paused.reason == "because"
    does("Resume")
    assert board.item("calm").state == "active"
    does("Edit", every="3h")
    assert board.item("calm").schedule == "every 3h"
    does("Edit", every="soon")
    assert "every" in page.locator("[role=alert]").inner_text()
    page.get_by_role("link", name="calm").click()
    page.wait_for_url("**/item?id=calm")
    page.goto(f"{place[1]}item?id=slow")
    does("Cancel")
    eventually(lambda: [run.outcome for run in board.runs("slow")] == ["cancelled"], "it ended")
    done = [one.verb for one in board.actions() if one.via == "web"]
    assert sorted(done) == ["cancel", "edit", "pause", "resume", "run"]


def test_what_is_typed_and_picked_outlives_updates(
    page: Page, place: tuple[Site, str], board: BlockingBoard
) -> None:
    page.goto(f"{place[1]}item?id=calm")
    page.locator("#act-pause summary").click()
    page.locator("#act-pause input").fill("half a sent")
    board.edit("calm", description="told by another")
    main = page.locator("main")
    soon(page, lambda: "told by another" in main.inner_text(), "it is live", seconds=PATIENCE)
    assert page.locator("#act-pause input").input_value() == "half a sent"
    board.pause("calm", reason="by another")
    soon(page, lambda: "by another" in main.inner_text(), "it is paused", seconds=PATIENCE)
    assert page.locator("#act-pause input").input_value() == "half a sent"
    page.keyboard.press("Escape")
    assert not page.locator("#act-pause input").is_visible()
    board.resume("calm")

    page.goto(f"{place[1]}?type=works")
    page.locator("input[name=pick][value=quick]").check()
    assert page.locator("#which").inner_text() == "With the 1 picked:"
    board.add("before", "works", every="1h", first="next")
    soon(page, lambda: "before" in main.inner_text(), "there is one more", seconds=PATIENCE)
    picked = "[...document.querySelectorAll('input[name=pick]:checked')].map((one) => one.value)"
    assert page.evaluate(picked) == ["quick"]
    board.remove("before")


def test_what_is_opened_while_scripts_load_or_a_page_changes_stays_open(
    page: Page, place: tuple[Site, str], board: BlockingBoard
) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/static/app.js*", hold)
    page.goto(f"{place[1]}item?id=calm", wait_until="commit")
    soon(page, lambda: held, "the script is asked for", seconds=PATIENCE)
    page.locator("#act-pause summary").click()
    page.locator("#act-pause input").fill("half a sent")
    held[0].continue_()
    board.edit("calm", description="told while it loads")
    main = page.locator("main")
    soon(page, lambda: "while it loads" in main.inner_text(), "it is live", seconds=PATIENCE)
    assert page.locator("#act-pause input").input_value() == "half a sent"
    assert page.locator("#act-pause input").is_visible()
    page.keyboard.press("Escape")
    opens = """() => {
        const details = document.getElementById("act-pause");
        const before = details.hasAttribute("hx-morph-skip");
        details.querySelector("summary").click();
        return [before, details.open, details.hasAttribute("hx-morph-skip")];
    }"""
    assert page.evaluate(opens) == [False, True, True]
    page.unroute_all()


def test_times_in_sentences_follow_the_zone(page: Page, place: tuple[Site, str]) -> None:
    page.goto(f"{place[1]}item?id=calm")
    exact = page.locator("main time.exact").first
    soon(page, lambda: exact.inner_text().endswith("UTC"), "in UTC", seconds=PATIENCE)
    page.locator("#zone").select_option("Asia/Tokyo")
    soon(page, lambda: "GMT+9" in exact.inner_text(), "in Japan", seconds=PATIENCE)


def test_a_time_to_come_is_rounded_as_the_command_line_does(
    page: Page, place: tuple[Site, str]
) -> None:
    page.goto(f"{place[1]}?live=off")
    shown = page.locator("main time").first

    def reads(words: str) -> bool:
        return shown.inner_text() == words

    for seconds, words in ((7200 * 5 - 100, "in 10h"), (-6500, "108m ago"), (7190, "in 2h")):
        at = f"new Date(Date.now() + {1000 * seconds}).toISOString()"
        shown.evaluate(f"(time) => {{ time.dateTime = {at}; }}")
        soon(page, partial(reads, words), words, seconds=PATIENCE)


@pytest.mark.parametrize("minutes", [10, -10])
def test_times_are_those_of_the_store_where_the_clock_of_the_browser_is_wrong(
    page: Page, place: tuple[Site, str], board: BlockingBoard, minutes: int
) -> None:
    if not board.item("slow").running:  # another test may have cancelled it
        board.run("slow")
        eventually(lambda: board.item("slow").running, "the slow one runs")
    page.add_init_script(f"""window.Right = Date;
        window.Date = class extends Right {{
            constructor(...of) {{ super(...(of.length ? of : [Date.now()])); }}
            static now() {{ return Right.now() + {60_000 * minutes}; }}
        }};""")
    page.goto(f"{place[1]}item?id=slow")
    since = page.locator("time.elapsed")
    soon(page, lambda: "since" not in since.inner_text(), "it is shown", seconds=PATIENCE)
    shown = since.inner_text()
    elapsed = page.evaluate(
        "(Right.now() - new Date(document.querySelector('time.elapsed').dateTime)) / 1000"
    )
    unit = {"s": 1, "m": 60, "h": 3600}[shown[-1]]
    assert elapsed - unit - 2 <= int(shown[:-1]) * unit <= elapsed + 1


def test_what_was_done_is_said_once(
    page: Page, place: tuple[Site, str], board: BlockingBoard
) -> None:
    page.goto(f"{place[1]}item?id=quick")
    for verb in ("pause", "resume"):
        page.locator(f"#act-{verb} summary").click()
        page.locator(f"#act-{verb} button.primary").click()
        said = page.locator(".banner.good")
        soon(page, lambda: f"{verb}d." in said.inner_text(), "it is said", seconds=PATIENCE)  # noqa: B023
    assert page.url == f"{place[1]}item?id=quick"
    page.reload()
    assert said.count() == 0
    page.go_back()
    assert said.count() == 0
    assert "done" not in (page.locator("a.live").get_attribute("href") or "")


@pytest.mark.parametrize("path", ["", "item?id=calm", f"item?id={quote(HOSTILE)}", "runs"])
def test_a_page_is_whole_on_paper_and_dark_on_light(
    browser: Browser, place: tuple[Site, str], path: str
) -> None:
    context = browser.new_context(viewport={"width": 720, "height": 1000}, color_scheme="dark")
    page = context.new_page()
    page.goto(place[1] + path)
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 36, 32)"
    assert page.evaluate("document.documentElement.scrollWidth") == 720
    scrolls = """all => all.filter((one) => {
        const style = getComputedStyle(one);
        return style.overflowX !== "visible" || style.maxHeight !== "none";
    }).length"""
    assert page.locator(".scroll, pre").evaluate_all(scrolls) == 0
    hidden = "all => all.every((one) => !one.offsetHeight)"
    assert page.locator(".actions, .bulk, .filter").evaluate_all(hidden)
    context.close()


def test_a_zone_and_keys_go_by_the_root_also_on_a_paused_board(
    page: Page, place: tuple[Site, str]
) -> None:
    page.goto(f"{place[1]}?live=off")
    page.locator("#zone").select_option("Asia/Tokyo")
    page.keyboard.press("Escape")
    page.locator("#zone").blur()
    page.keyboard.type("gr")
    page.wait_for_url(lambda url: url == f"{place[1]}runs")
    assert page.locator("#zone").input_value() == "Asia/Tokyo"


def test_a_zone_is_kept_below_a_path_with_and_without_its_slash(
    page: Page, place: tuple[Site, str]
) -> None:
    serve = ("serve", "--prefix", "/team", "--listen", "127.0.0.1:0", "--json")
    served = place[0].start(*serve)
    eventually(lambda: "url" in served.text, "the pages are served")
    url = json.loads(served.text.splitlines()[0])["url"]
    page.goto(url)
    page.locator("#zone").select_option("Asia/Tokyo")
    for address in (url, url.rstrip("/"), f"{url}runs"):
        page.goto(address)
        assert page.locator("#zone").input_value() == "Asia/Tokyo", address
    page.goto("about:blank")
    served.process.terminate()
    assert served.ended() == 0


def test_a_server_that_is_gone_is_said(browser: Browser, place: tuple[Site, str]) -> None:
    """In a page of its own: the console of a browser reports what was not answered."""
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    served = place[0].start("serve", "--listen", "127.0.0.1:0", "--json")
    eventually(lambda: "url" in served.text, "the pages are served")
    url = json.loads(served.text.splitlines()[0])["url"]
    page.goto(url)
    sign = page.locator("a.live")
    soon(page, lambda: "ago" in page.locator("main").inner_text(), "times", seconds=PATIENCE)
    assert sign.inner_text() == "live"
    served.process.terminate()
    assert served.ended() == 0
    soon(page, lambda: sign.inner_text() == "not connected", "it is said", seconds=PATIENCE)
    again = place[0].start("serve", "--listen", url.removeprefix("http://").strip("/"), "--json")
    soon(page, lambda: sign.inner_text() == "live", "it is live again", seconds=PATIENCE)
    context.close()
    again.process.terminate()
    assert again.ended() == 0


def test_a_page_too_many_to_be_live_says_so_and_is_read_now_and_then(
    browser: Browser, place: tuple[Site, str], board: BlockingBoard
) -> None:
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    serve = ("serve", "--listen", "127.0.0.1:0", "--json")
    served = place[0].start(*serve, program=("-c", POLLED.format(seconds=1.0)))
    eventually(lambda: "url" in served.text, "the pages are served")
    page.goto(json.loads(served.text.splitlines()[0])["url"])
    sign = page.locator("a.live")
    soon(page, lambda: sign.inner_text() == "every 15 s", "it is said", seconds=PATIENCE)
    for change, holds in ((board.pause, True), (board.resume, False)):
        change("quick")
        soon(page, lambda: ("paused" in row(page, "quick")) is holds, "read", seconds=PATIENCE)  # noqa: B023
        assert sign.inner_text() == "every 15 s"
    served.process.terminate()
    assert served.ended() == 0
    soon(page, lambda: sign.inner_text() == "not connected", "it is gone", seconds=PATIENCE)
    context.close()


@pytest.mark.parametrize("where", ["background", "windows"])
def test_many_tabs_and_windows_of_one_browser_leave_it_a_connection(
    browser: Browser, place: tuple[Site, str], where: str
) -> None:
    """A browser has six connections to a host. A tab that is opened in the background is loaded
    hidden; windows beside each other are all visible.
    """
    is_hidden = where == "background"
    context = browser.new_context(reduced_motion="reduce")
    shown = context.new_page()
    shown.goto(place[1])
    if is_hidden:
        context.add_init_script(f"({HIDE})(true)")
    others = [context.new_page() for _ in range(8)]
    for other in others:
        other.goto(f"{place[1]}item?id=calm")
    last = others[-1].locator("a.live")
    tries = "document.getElementById('live')._htmx?.sse?.attempt"
    soon(shown, lambda: not is_hidden or others[0].evaluate(tries), "it is dropped", seconds=5)
    shown.goto(f"{place[1]}item?id=quick")
    if is_hidden:
        with others[-1].expect_request(lambda one: "/live/" in one.url):
            others[-1].evaluate(HIDE, False)
    else:
        soon(shown, lambda: last.inner_text() == "every 15 s", "it says so", seconds=PATIENCE)
    context.close()


def test_a_page_too_many_to_be_live_is_read_at_once_when_it_is_shown_again(
    page: Page, place: tuple[Site, str]
) -> None:
    polls: list[str] = []
    page.on("request", lambda one: polls.append(one.url) if "/live/" in one.url else None)
    serve = ("serve", "--listen", "127.0.0.1:0", "--json")
    served = place[0].start(*serve, program=("-c", POLLED.format(seconds=600.0)))
    eventually(lambda: "url" in served.text, "the pages are served")
    page.goto(json.loads(served.text.splitlines()[0])["url"])
    soon(page, lambda: len(polls) == 1, "it is read", seconds=PATIENCE)
    soon(page, lambda: page.evaluate(WAITS), "it is to be read again", seconds=PATIENCE)
    for is_hidden in (True, False):
        page.evaluate(HIDE, is_hidden)
    soon(page, lambda: len(polls) == 2, "it is read at once", seconds=PATIENCE)
    assert page.locator("a.live").inner_text() == "every 15 s"
    page.goto("about:blank")
    served.process.terminate()
    assert served.ended() == 0


def test_what_is_typed_is_sent_to_a_server_that_was_started_anew(
    browser: Browser, place: tuple[Site, str], board: BlockingBoard
) -> None:
    """It takes no form that an earlier one has made. A page where nothing is typed is loaded anew,
    which shows by the mark that it had; so is one whose stream begins only now, as that of a tab
    that was opened in the background.
    """
    context = browser.new_context(reduced_motion="reduce")
    idle, page, late = context.new_page(), context.new_page(), context.new_page()
    held: list[Route] = []
    late.route("**/live/**", lambda route: held.append(route))  # noqa: PLW0108 - it is marked
    serve = ("serve", "--operator", "--json", "--listen")
    served = place[0].start(*serve, "127.0.0.1:0")
    eventually(lambda: "url" in served.text, "the pages are served")
    url = json.loads(served.text.splitlines()[0])["url"]
    for one in (idle, page, late):
        one.goto(f"{url}item?id=calm")
        one.evaluate("document.body.dataset.mark = ''")
    page.locator("#act-pause summary").click()
    page.locator("#act-pause input").fill("typed before")
    served.process.terminate()
    assert served.ended() == 0
    before = page.locator("[name=csrf]").first.input_value()
    again = place[0].start(*serve, url.removeprefix("http://").strip("/"))
    eventually(lambda: "url" in again.text, "the pages are served again")
    held[0].continue_()
    for one in (idle, late):
        one.locator("[data-mark]").wait_for(state="detached", timeout=PATIENCE * 1000)
    csrf = page.locator("[name=csrf]").first
    soon(page, lambda: csrf.input_value() != before, "its forms are", seconds=PATIENCE)
    page.locator("#act-pause button").click()
    page.wait_for_url("**/item?id=calm&done=pause")
    paused = board.item("calm").paused
    assert paused is not None
    assert paused.reason == "typed before"
    board.resume("calm")
    context.close()
    again.process.terminate()
    assert again.ended() == 0


def test_a_connection_that_fell_silent_is_made_anew(page: Page, place: tuple[Site, str]) -> None:
    """As that of a laptop that slept: it is never closed."""
    streams: list[str] = []
    page.on("request", lambda one: streams.append(one.url) if "/live/" in one.url else None)
    page.clock.install()
    page.goto(place[1])
    soon(page, lambda: len(streams) == 1, "it is live", seconds=PATIENCE)
    page.wait_for_function("document.getElementById('live')._htmx?.sse?.reader")
    page.clock.fast_forward(3_600_000)
    soon(page, lambda: len(streams) == 2, "it is live again", seconds=PATIENCE)


def test_more_items_than_a_page_has_are_paused_after_their_number_was_confirmed(
    page: Page, place: tuple[Site, str], board: BlockingBoard
) -> None:
    ids = [f"many-{number:03}" for number in range(PAGE + 50)]
    for one in ids:
        board.add(one, "works", every="1h", first="next", tags=["many"])
    page.goto(f"{place[1]}?tag=many")
    soon(page, lambda: "150" in page.locator(".pager").inner_text(), "all", seconds=PATIENCE)
    page.locator(".bulk button[value=pause]").click()
    page.wait_for_url("**/confirm")
    assert page.locator("h1").inner_text() == "Pause 150 items?"
    page.locator("input[name=reason]").fill("spring cleaning")
    page.locator("button.primary").click()
    page.get_by_text("Done by").wait_for(timeout=PATIENCE * 1000)
    assert sum(1 for _ in board.items("many-*", state="paused")) == 150
    [action] = [one for one in board.actions() if one.count == 150]
    assert (action.verb, action.reason, action.via) == ("pause", "spring cleaning", "web")
    for one in ids:
        board.remove(one)


def test_texts_of_items_are_text(page: Page, place: tuple[Site, str]) -> None:
    for address in PAGES:
        page.goto(place[1] + address)
        page.wait_for_timeout(100)
    page.goto(place[1])
    page.locator("a.id", has_text="onerror").click()
    page.wait_for_url("**/item**")
    assert "onerror" in page.locator("h1").inner_text()
    page.locator("table.lines tbody a").first.click()
    page.wait_for_url("**/run?**")
    text = page.locator("main").inner_text()
    assert text.count("onerror=window.hacked=1") >= 3
    page.goto(place[1])
    page.locator(".bulk button[value=resume]").click()
    page.wait_for_url("**/confirm")
    assert "onerror" in page.locator("main").inner_text()


def test_axe_finds_nothing_serious_and_neither_a_narrow_screen_nor_large_text_scrolls(
    browser: Browser, place: tuple[Site, str]
) -> None:
    """All rules and a narrow screen in light colours; in dark ones the rule about colours. Text is
    twice as large by the size of the root. The setting of a person would choose the rules for a
    narrow screen, too, as those are in em.
    """
    context = browser.new_context(bypass_csp=True, reduced_motion="reduce")
    context.add_init_script(AXE_SCRIPT)
    page = context.new_page()

    def check(where: str) -> None:
        for theme, rules in THEMES.items():
            page.emulate_media(color_scheme=theme)
            options = {"resultTypes": ["violations"], **rules}
            found = page.evaluate("(options) => axe.run(options)", options)["violations"]
            grave = [one for one in found if one["impact"] in {"serious", "critical"}]
            shown = [(one["id"], one["nodes"][0]["html"][:200]) for one in grave]
            assert shown == [], (where, theme)
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), where
        page.set_viewport_size({"width": 1280, "height": 800})
        page.evaluate("document.documentElement.style.fontSize = '200%'")
        assert page.evaluate("getComputedStyle(document.body).fontSize") == "28px"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), where
        page.evaluate("document.documentElement.style.fontSize = ''")

    hostile = quote(HOSTILE)
    others = (f"run?id={hostile}&fence=1", f"item?id={hostile}&done=edit", "report?id=slow")
    for address in (*PAGES, *others, "item?id=none", "?q=none", "?live=off"):
        page.goto(place[1] + address)
        check(address)
    page.goto(f"{place[1]}item?id=calm")
    for verb in ("run", "edit"):
        page.locator(f"#act-{verb} summary").click()
        check(f"what {verb} asks")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    check("the keys")
    for verb in ("run", "edit", "pause"):
        page.goto(f"{place[1]}?type=works")
        page.locator(f".bulk button[value={verb}]").click()
        page.wait_for_url("**/confirm")
        check(f"whether to {verb} them")
    context.close()


def test_long_names_make_no_page_wider_than_a_narrow_screen(
    browser: Browser, place: tuple[Site, str], board: BlockingBoard
) -> None:
    root = place[1]
    context = browser.new_context(reduced_motion="reduce", viewport={"width": 320, "height": 640})
    page = context.new_page()

    def check(where: str) -> None:
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width == 320, (where, width)

    board.add(LONG_ID, LONG_TYPE, tags=[LONG_TAG])
    eventually(lambda: board.item(LONG_ID).runs == 1, "it ran")
    board.pause(LONG_ID, reason="r" * LONGEST_TEXT, by="b" * 80)
    for address in (
        f"?type={LONG_TYPE}&tag={LONG_TAG}",
        f"item?id={LONG_ID}",
        f"run?id={LONG_ID}&fence=1",
        f"run?id={LONG_ID}&fence=999",  # there is none
        f"report?id={LONG_ID}",
        f"runs?id={LONG_ID}&type={LONG_TYPE}",
        f"timeline?id={LONG_ID}&type={LONG_TYPE}",
        "health",
        "actions",
    ):
        page.goto(root + address)
        check(address)
    page.goto(f"{root}?type={LONG_TYPE}")
    page.locator(".bulk button[value=run]").click()
    page.wait_for_url("**/confirm")
    check("whether to run it")
    page.locator("#confirm button.primary").click()
    page.wait_for_url("**/bulk?**")
    page.get_by_text("could not be changed").wait_for()
    check("that it cannot be run")
    board.remove(LONG_ID)
    page.goto(f"{root}item?id={LONG_ID}")
    check("that it was removed")
    context.close()


def no_answer(route: Route) -> None:
    route.abort()


def no_server(route: Route) -> None:
    """What a proxy answers whose server does not."""
    route.fulfill(status=503, body="<h1>No server is available</h1>", content_type="text/html")


def portal(route: Route) -> None:
    """What a network answers before one has signed in to it."""
    route.fulfill(status=200, body="<h1>Welcome</h1>", content_type="text/html")


@pytest.mark.parametrize(
    ("query", "fails"), [("", no_answer), ("?live=off", no_server), ("?live=off", portal)]
)
def test_a_search_without_an_answer_is_said_and_made_again(
    browser: Browser, place: tuple[Site, str], query: str, fails: Callable[[Route], None]
) -> None:
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto(place[1] + query)
    said = page.get_by_text("The server does not answer")
    reads = "document.getElementById('live')._htmx?.sse?.reader != null"
    soon(page, lambda: query or page.evaluate(reads), "it has a stream", seconds=PATIENCE)
    page.route("**/*", fails)
    page.locator("#search").fill("qui")
    said.wait_for()
    assert "calm" in page.locator("main").inner_text()
    page.unroute_all()
    if query:
        page.locator("#search").fill("quic")
    else:
        page.evaluate("document.getElementById('live')._htmx.sse.reader.cancel()")
    found = page.locator("table.items a.id")
    soon(page, lambda: found.all_inner_texts() == ["quick"], "it is found", seconds=PATIENCE)
    assert not said.is_visible()
    context.close()


@pytest.mark.parametrize("fails", [no_answer, no_server])
def test_a_page_whose_stream_is_not_there_at_first_is_live_later(
    browser: Browser,
    place: tuple[Site, str],
    board: BlockingBoard,
    fails: Callable[[Route], None],
) -> None:
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.route("**/live/**", fails)
    page.goto(place[1])
    sign = page.locator("a.live")
    soon(page, lambda: sign.inner_text() == "not connected", "it is said", seconds=PATIENCE)
    assert "calm" in page.locator("main").inner_text()
    page.unroute_all()
    soon(page, lambda: sign.inner_text() == "live", "it is live", seconds=PATIENCE)
    board.pause("quick")
    soon(page, lambda: "paused" in row(page, "quick"), "it is shown", seconds=PATIENCE)
    board.resume("quick")
    context.close()


def test_a_change_of_many_items_says_that_its_server_is_gone(
    browser: Browser, place: tuple[Site, str]
) -> None:
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    serve = ("serve", "--operator", "--listen", "127.0.0.1:0", "--json")
    served = place[0].start(*serve, program=("-c", UNENDING))
    eventually(lambda: "url" in served.text, "the pages are served")
    page.goto(f"{json.loads(served.text.splitlines()[0])['url']}?type=works")
    page.locator(".bulk button[value=resume]").click()
    page.locator("#confirm button.primary").click()
    page.get_by_text("Resume: 0 of").wait_for()
    said = page.get_by_text("The server does not answer")
    assert not said.is_visible()
    served.process.kill()
    served.ended()
    said.wait_for()
    context.close()


def test_keys_search_move_and_open(page: Page, place: tuple[Site, str]) -> None:
    page.goto(place[1])
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.locator("dialog#help").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/item?id=*")


def test_bars_leave_room_where_a_page_is_zoomed_in(page: Page, place: tuple[Site, str]) -> None:
    """A window of 1280 by 900 at 300 %."""
    page.set_viewport_size({"width": 427, "height": 300})
    page.goto(f"{place[1]}?q=quick")
    page.locator("input[name=pick]").check()
    covered = """all => all.filter((one) => getComputedStyle(one).position === "sticky")
        .reduce((sum, one) => sum + one.offsetHeight, 0)"""
    assert page.locator(".top, .bulk").evaluate_all(covered) < 100


@pytest.mark.parametrize("width", [1000, 730])
def test_what_is_focused_by_keys_is_not_covered_by_the_bars_that_stay(
    page: Page, place: tuple[Site, str], width: int
) -> None:
    """Those with the pages at the top, and with what can be done to items at the bottom. Where the
    screen is narrower the one at the top is higher, most where its sign says much.
    """
    covered = """() => {
        const [element, bulk] = [document.activeElement, document.querySelector(".bulk")];
        if (!element.closest("main") || bulk.contains(element)) return "";
        const top = document.querySelector(".top").getBoundingClientRect();
        const [box, low] = [element, bulk].map((one) => one.getBoundingClientRect());
        if (box.height > low.top - top.bottom) return "";
        return box.top < top.bottom || box.bottom > low.top ? element.outerHTML : "";
    }"""
    page.set_viewport_size({"width": width, "height": 400})
    page.goto(f"{place[1]}?live=off")
    page.evaluate("document.querySelector('a.live').lastElementChild.textContent = 'every 15 s'")
    for key in ("Tab", "Shift+Tab"):
        for _ in range(60):
            page.keyboard.press(key)
            assert page.evaluate(covered) == ""


def test_a_finger_that_scrolls_over_a_timeline_does_not_zoom_it_at_its_next_tap(
    page: Page, place: tuple[Site, str]
) -> None:
    page.goto(f"{place[1]}timeline")
    address = page.url
    for kind, x in (("pointerdown", 400), ("pointercancel", 400), ("pointerup", 900)):
        page.locator(".picture" if kind == "pointerdown" else "footer").dispatch_event(
            kind, {"clientX": x, "button": 0}
        )
    assert page.locator(".brush").is_hidden()
    page.evaluate("new Promise((done) => setTimeout(done, 200))")
    assert page.url == address
    for kind, x in (("pointerdown", 400), ("pointerup", 900)):
        page.locator(".picture").dispatch_event(kind, {"clientX": x, "button": 0})
    page.wait_for_url("**/timeline?*hours=*")
