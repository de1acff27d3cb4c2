"""One feed for several cities, or twice in one list: it is fetched once while it is fresh."""

import asyncio
import errno
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.calendars.cache import FOLDER, FetchCache
from jobs.calendars.params import RunContext
from tests.calendars.serving import Answer, serving
from tests.calendars.support import aggregate, calendar, event, events, report
from tests.support.patience import patience

ONE = calendar(event("1", "One"))
LARGE = calendar(*(event(str(n), "x" * 500) for n in range(200)))


class Clock:
    def __init__(self) -> None:
        self.time = datetime.now(UTC)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.01))


@pytest.mark.parametrize("body", [ONE, LARGE], ids=["small", "large"])
def test_cities_of_one_folder_share_a_fetch_while_it_is_fresh(tmp_path: Path, body: bytes) -> None:
    clock = Clock()
    with serving({"/one": Answer(body, headers={"Cache-Control": "max-age=60"})}) as site:
        for name in ("a", "b", "c"):
            aggregate(tmp_path, [site.url("/one")], name=name, run=RunContext(clock=clock))
            assert events(tmp_path, name)
        assert len(site.asked) == 1
        clock.time += timedelta(seconds=61)
        aggregate(tmp_path, [site.url("/one")], name="d", run=RunContext(clock=clock))
        assert len(site.asked) == 2
    assert not list((tmp_path / FOLDER).glob("*.body"))


@pytest.mark.parametrize("control", ["no-store", "no-cache", "max-age=0", "private, max-age=0"])
def test_what_is_not_to_be_kept_is_fetched_by_each(tmp_path: Path, control: str) -> None:
    with serving({"/one": Answer(ONE, headers={"Cache-Control": control})}) as site:
        for name in ("a", "b"):
            aggregate(tmp_path, [site.url("/one")], name=name)
        assert len(site.asked) == 2


def test_a_city_that_runs_again_asks_again_and_the_others_have_what_it_got(tmp_path: Path) -> None:
    with serving({"/one": Answer(ONE)}) as site:
        for name in ("a", "b"):
            aggregate(tmp_path, [site.url("/one")], name=name)
        site.answers["/one"].body = calendar(event("2", "Two"))
        for name in ("a", "b"):
            aggregate(tmp_path, [site.url("/one")], name=name)
            assert [one["title"] for one in events(tmp_path, name)] == ["Two"]
        assert len(site.asked) == 2


def test_an_unchanged_feed_is_unchanged_for_all_who_have_the_same(tmp_path: Path) -> None:
    with serving({"/one": Answer(ONE, headers={"Cache-Control": "no-cache"})}) as site:
        for name in ("a", "b"):
            aggregate(tmp_path, [site.url("/one")], name=name)
        site.answers["/one"].headers = {}
        for name in ("a", "b"):
            assert aggregate(tmp_path, [site.url("/one")], name=name)["unchanged"] == 1
        assert len(site.asked) == 3


def test_cities_that_want_a_feed_at_the_same_time_wait_for_the_first(tmp_path: Path) -> None:
    hold = threading.Event()
    with serving({"/one": Answer(ONE, hold=hold)}) as site:

        def city(name: str) -> None:
            aggregate(tmp_path, [site.url("/one")], name=name, readers=True)

        threads = [threading.Thread(target=city, args=(name,)) for name in ("a", "b", "c")]
        threads[0].start()
        while not site.asked:
            hold.wait(0.01)
        for thread in threads[1:]:
            thread.start()
        hold.wait(0.3)
        hold.set()
        for thread in threads:
            thread.join(patience(30))
        assert len(site.asked) == 1
    assert all(events(tmp_path, name) for name in ("a", "b", "c"))


def test_what_a_killed_city_left_is_not_waited_for_and_cleared_away(tmp_path: Path) -> None:
    with serving({"/one": Answer(ONE)}) as site:
        aggregate(tmp_path, [site.url("/one")], name="a")
        [head] = (tmp_path / FOLDER).glob("*.json")
        lock = head.with_suffix(".lock")
        lock.write_text("killed")
        body = tmp_path / FOLDER / "x.body"
        body.touch()
        for path in (lock, body):
            os.utime(path, (1_000_000_000, 1_000_000_000))
        aggregate(tmp_path, [site.url("/one")], name="b")
        assert len(site.asked) == 1
    assert not lock.exists()
    assert not body.exists()


def test_what_another_city_clears_away_meanwhile_is_no_reason_to_keep_no_shelf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda folder: [folder / "gone.lock", *listed(folder)])
    outdated = tmp_path / "outdated.json"
    outdated.touch()
    os.utime(outdated, (1_000_000_000, 1_000_000_000))
    assert FetchCache(tmp_path, "a").tidied().folder == tmp_path
    assert not outdated.exists()


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"at": 3}', b"\xff"])
def test_a_damaged_shelf_is_no_reason_to_fail(tmp_path: Path, damage: bytes) -> None:
    with serving({"/one": Answer(ONE)}) as site:
        aggregate(tmp_path, [site.url("/one")], name="a")
        for path in (tmp_path / FOLDER).iterdir():
            path.write_bytes(damage)
        assert aggregate(tmp_path, [site.url("/one")], name="b")["ok"] == 1
        assert len(site.asked) == 2


def test_a_shelf_that_cannot_be_written_keeps_no_copy_of_what_was_taken_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with serving({"/one": Answer(LARGE)}) as site:
        aggregate(tmp_path, [site.url("/one")], name="a")
        monkeypatch.setattr(FetchCache, "_write", refuse)
        aggregate(tmp_path, [site.url("/one")], name="b")
        assert len(events(tmp_path, "b")) == len(events(tmp_path, "a"))
    assert not list((tmp_path / FOLDER).glob("*.body"))


@pytest.mark.parametrize("owner", ["link", "user"])
def test_a_shelf_that_leads_elsewhere_or_is_of_another_user_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if owner == "link":
        (tmp_path / FOLDER).symlink_to(elsewhere)
    else:
        elsewhere.rename(tmp_path / FOLDER)
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    precious = tmp_path / FOLDER / "precious"
    precious.touch()
    os.utime(precious, (1_000_000_000, 1_000_000_000))
    with serving({"/one": Answer(ONE)}) as site:
        for name in ("a", "b"):
            assert aggregate(tmp_path, [site.url("/one")], name=name)["ok"] == 1
        assert len(site.asked) == 2
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["precious"]


def test_the_shelf_is_for_its_owner_alone(tmp_path: Path) -> None:
    with serving({"/one": Answer(ONE)}) as site:
        aggregate(tmp_path, [site.url("/one")])
    paths = [tmp_path / FOLDER, *(tmp_path / FOLDER).iterdir()]
    assert len(paths) == 3
    assert not any(path.stat().st_mode & 0o077 for path in paths)


def test_an_address_that_is_listed_twice_is_fetched_once(tmp_path: Path) -> None:
    with serving({"/one": Answer(ONE, etag=False)}) as site:
        plain = site.url("/one")
        feeds = [
            {"url": plain, "name": "A"},
            {"url": f"{plain}#top", "name": "B"},
            {"url": plain.replace("http:", "HTTP:"), "name": "C"},
            {"url": f"{plain}?x", "name": "D"},
        ]
        site.answers["/one?x"] = Answer(ONE)
        summary = aggregate(tmp_path, feeds)
        assert sorted(path for path, _headers in site.asked) == ["/one", "/one?x"]
    assert (summary["feeds"], summary["ok"], summary["events"]) == (4, 4, 1)
    assert set(report(tmp_path)) == {"A", "B", "C", "D"}
    assert events(tmp_path)[0]["sources"] == ["A", "B", "C", "D"]


def test_a_feed_that_fails_twice_in_a_list_is_asked_once(tmp_path: Path) -> None:
    with serving({"/one": Answer(ONE), "/bad": Answer(status=500, etag=False)}) as site:
        feeds = [site.url("/one"), site.url("/bad"), site.url("/bad")]
        summary = aggregate(tmp_path, feeds)
        assert len(site.asked) == 2
    assert (summary["ok"], summary["failed"]) == (1, 2)
