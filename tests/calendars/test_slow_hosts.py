"""Slow and silent hosts: they cost a city neither its other feeds nor its files."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest

from jobs.calendars.addresses import Address
from jobs.calendars.aggregation import NothingCame
from jobs.calendars.fetch import Fetcher
from jobs.calendars.responses import FetchFailed, Limits
from tests.calendars.serving import Answer, Site, serving
from tests.calendars.support import LOCAL, aggregate, body_of, calendar, event, events, report
from tests.support.patience import patience

GOOD = calendar(event("g", "Good"))
READ = patience(0.5)
"""Seconds in which a good host of this process answers, also on a busy machine."""
HURRIED = Limits(connect=10 * READ, read=READ, total=2 * READ, quick=0.1)
FAST = replace(LOCAL, limits=HURRIED)


def slow(number: int, hold: threading.Event, *, drips: bool) -> dict[str, Answer]:
    return {f"/slow{n}": Answer(GOOD, hold=hold, drips=drips, etag=False) for n in range(number)}


@contextmanager
def released() -> Iterator[threading.Event]:
    """Set when the test is over, so that no thread of a server waits on."""
    hold = threading.Event()
    try:
        yield hold
    finally:
        hold.set()


@pytest.mark.parametrize("drips", [True, False])
def test_a_slow_host_is_given_up_and_the_others_are_asked_meanwhile(
    tmp_path: Path, *, drips: bool
) -> None:
    """The good feeds stand last in the list; all of them are there before the host is given up."""
    with released() as hold, serving(slow(56, hold, drips=drips)) as bad, serving() as site:
        site.answers = {f"/good{n}": Answer(GOOD) for n in range(10)}
        feeds = [bad.url(f"/slow{n}") for n in range(56)] + [
            site.url(path) for path in site.answers
        ]
        summary = aggregate(tmp_path, feeds, settings=FAST)
        asked = len(bad.asked)
    assert (summary["ok"], summary["failed"]) == (10, 56)
    assert asked <= HURRIED.per_host + 1
    errors = [one["error"] for one in report(tmp_path).values() if one["status"] == "failed"]
    assert sum(one.startswith("not asked: its host timed out") for one in errors) == 56 - asked


def test_feeds_of_many_slow_hosts_hold_no_place_that_the_good_ones_need() -> None:
    """As many slow hosts as there are places, each of which would be held for the whole test."""
    limits = replace(HURRIED, read=30.0, total=30.0, together=4)
    with released() as hold, ExitStack() as stack, serving({"/good": Answer(GOOD)}) as site:
        sites = [stack.enter_context(serving(slow(4, hold, drips=True))) for _host in range(6)]

        async def go() -> bytes | None:
            fetcher = Fetcher(LOCAL.policy, limits)
            waiting = [
                asyncio.create_task(fetcher.fetch(one.url(path)))
                for one in sites
                for path in one.answers
            ]
            await asyncio.sleep(0)
            body = body_of(await fetcher.fetch(site.url("/good")))
            assert not any(task.done() for task in waiting)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            fetcher.close()
            return body

        assert asyncio.run(go()) == GOOD


def test_a_host_that_timed_out_twice_is_not_asked_again_but_its_neighbour_is() -> None:
    """A host is a name and a port."""
    with (
        released() as hold,
        serving(slow(3, hold, drips=False)) as bad,
        serving({"/good": Answer(GOOD)}) as site,
    ):

        async def go() -> list[str]:
            fetcher = Fetcher(LOCAL.policy, HURRIED)
            told = []
            for path in bad.answers:
                with pytest.raises(FetchFailed) as caught:
                    await fetcher.fetch(bad.url(path))
                told.append(str(caught.value))
            assert body_of(await fetcher.fetch(site.url("/good"))) == GOOD
            return told

        assert asyncio.run(go()) == [
            *[f"silent for {READ:g} s"] * 2,
            "not asked: its host timed out 2 times in this run",
        ]


def test_feeds_that_are_redirected_to_a_slow_host_wait_in_its_line_and_not_in_their_own() -> None:
    with released() as hold, serving(slow(1, hold, drips=False)) as bad, serving() as site:
        there = {"Location": bad.url("/slow0")}
        site.answers = {
            f"/{n}": Answer(status=302, headers=there, etag=False) for n in range(20)
        } | {"/good": Answer(GOOD)}

        async def go() -> list[str]:
            fetcher = Fetcher(LOCAL.policy, replace(HURRIED, read=30.0, total=30.0))
            lost = [asyncio.create_task(fetcher.fetch(site.url(f"/{n}"))) for n in range(20)]
            await asyncio.sleep(0)
            body = body_of(await fetcher.fetch(site.url("/good")))
            assert body == GOOD
            for task in lost:
                task.cancel()
            await asyncio.gather(*lost, return_exceptions=True)
            return [path for path, _headers in bad.asked]

        assert len(asyncio.run(go())) <= HURRIED.per_host


def test_a_name_server_that_does_not_answer_counts_as_a_slow_host() -> None:
    async def never(_host: str, _port: int) -> list[Address]:
        await asyncio.Event().wait()
        return [ip_address("127.0.0.1")]

    async def go() -> list[str]:
        fetcher = Fetcher(LOCAL.policy, replace(HURRIED, connect=0.05), never)
        told = []
        for _again in range(3):
            with pytest.raises(FetchFailed) as caught:
                await fetcher.fetch("http://feeds.example/x.ics")
            told.append(str(caught.value))
        return told

    first, second, third = asyncio.run(go())
    assert first == second == "no name server knew 'feeds.example' within 0.05 s"
    assert third.startswith("not asked")


def test_a_host_that_takes_no_connection_counts_as_a_slow_host() -> None:
    """Its queue of connections is full, so a connection is neither taken nor refused."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        with ExitStack() as stack:
            for _one in range(4):
                held = stack.enter_context(socket.socket())
                held.setblocking(False)
                held.connect_ex(("127.0.0.1", port))

            async def go() -> list[str]:
                fetcher = Fetcher(LOCAL.policy, replace(HURRIED, connect=0.1))
                told = []
                for _again in range(3):
                    with pytest.raises(FetchFailed) as caught:
                        await fetcher.fetch(f"http://127.0.0.1:{port}/")
                    told.append(str(caught.value))
                return told

            assert asyncio.run(go()) == [
                *["no connection within 0.1 s"] * 2,
                "not asked: its host timed out 2 times in this run",
            ]


def two(site: Site, bad: Site) -> list[dict[str, str]]:
    return [{"url": bad.url("/"), "name": "slow"}, {"url": site.url("/"), "name": "good"}]


def test_when_the_time_is_up_what_has_come_is_written_with_the_old_events_of_the_rest(
    tmp_path: Path,
) -> None:
    settings = replace(LOCAL, deadline=round(patience(3.0), 1))
    with released() as hold, serving({"/": Answer(GOOD)}) as site, serving() as bad:
        bad.answers["/"] = Answer(calendar(event("s", "Slow")), etag=False)
        aggregate(tmp_path, two(site, bad))
        bad.answers["/"].hold = hold
        site.answers["/"] = Answer(calendar(event("n", "New")))
        summary = aggregate(tmp_path, two(site, bad), settings=settings)
    assert (summary["ok"], summary["failed"]) == (1, 1)
    assert {one["title"] for one in events(tmp_path)} == {"Slow", "New"}
    told = report(tmp_path)["slow"]
    assert (told["error"], told["stale"]) == (
        f"not done when the time was up ({settings.deadline:g} s)",
        True,
    )


def test_feeds_that_failed_last_time_are_asked_last(tmp_path: Path) -> None:
    limits = Limits(per_host=1, together=1)
    with serving() as site:
        site.answers = {f"/{n}": Answer(GOOD) for n in (1, 2)}
        feeds = [site.url(f"/{n}") for n in range(3)]
        aggregate(tmp_path, feeds, settings=replace(LOCAL, limits=limits))
        aggregate(tmp_path, feeds, settings=replace(LOCAL, limits=limits))
        assert [path for path, _headers in site.asked] == ["/0", "/1", "/2", "/1", "/2", "/0"]


def test_a_city_of_slow_hosts_alone_keeps_its_files_and_fails(tmp_path: Path) -> None:
    with released() as hold, serving({"/": Answer(GOOD, etag=False)}) as site:
        aggregate(tmp_path, [site.url("/")])
        made = (tmp_path / "town.ics").read_bytes()
        site.answers["/"].hold = hold
        with pytest.raises(NothingCame, match="its only feed failed"):
            aggregate(tmp_path, [site.url("/")], settings=FAST)
    assert (tmp_path / "town.ics").read_bytes() == made
