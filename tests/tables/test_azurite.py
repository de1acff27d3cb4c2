"""What `start.cjs` makes of the emulator: etags, Timestamps, and a clock that tests turn.

Its answers are read as they come over the wire: what the store's client makes of them is tested
with the store.
"""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from blackboard.tables.azurite import Emulator
from tests.support.azurite_client import Client

FAR = datetime(2031, 5, 6, 7, 8, 9, 123000, tzinfo=UTC)
"""A moment that is not now."""


@pytest.fixture
def client(azurite: Emulator) -> Client:
    found = Client(azurite.port)
    assert found.make().status == 201
    return found


# ---- etags and Timestamps


def test_writes_that_race_never_get_one_etag_twice(client: Client) -> None:
    def writes(_: int) -> list[str]:
        return [client.write().etag for _ in range(200)]

    with ThreadPoolExecutor(8) as threads:
        etags = [etag for some in threads.map(writes, range(8)) for etag in some]
    assert len(set(etags)) == len(etags) == 1600


def test_timestamps_never_go_back(client: Client) -> None:
    stamps = [client.write().etag for _ in range(500)]
    assert stamps == sorted(stamps)


def test_writes_at_one_moment_are_told_apart(client: Client) -> None:
    found = [client.write(at=FAR) for _ in range(500)]
    assert len({one.etag for one in found}) == 500
    assert {one.stamp.replace(microsecond=123000) for one in found} == {FAR}


def test_writes_under_other_clocks_between_them_change_nothing_about_that(client: Client) -> None:
    found = []
    for _ in range(100):
        found += [client.write(at=FAR), client.write(), client.write(at=FAR - timedelta(hours=1))]
    assert len({one.etag for one in found}) == 300
    hosts = [one.etag for one in found[1::3]]
    assert hosts == sorted(hosts)


# ---- the clock


def test_every_reply_to_a_request_with_a_clock_shows_its_time(azurite: Emulator) -> None:
    client = Client(azurite.port)
    replies = [
        (201, client.make(at=FAR)),
        (409, client.make(at=FAR)),
        (204, client.insert(at=FAR)),
        (409, client.insert(at=FAR)),
        (204, client.write(at=FAR)),
        (200, client.read(at=FAR)),
        (404, client.read("absent", at=FAR)),
        (202, client.batch("one", "two", at=FAR)),
        (202, client.batch("three", "one", at=FAR)),
        (200, client.page(at=FAR)),
        (204, client.delete(at=FAR)),
        (404, client.delete(at=FAR)),
        (403, client.ask("GET", "Tables", at=FAR, Authorization="none")),
    ]
    assert [reply.status for _, reply in replies] == [status for status, _ in replies]
    assert {reply.date for _, reply in replies} == {FAR.replace(microsecond=0)}
    assert b"EntityAlreadyExists" in replies[8][1].body


def test_rows_are_written_at_the_time_of_their_request(client: Client) -> None:
    client.batch("one", "two", at=FAR)
    client.write("three", at=FAR - timedelta(days=3))
    stamps = {row["RowKey"]: str(row["Timestamp"])[:23] for row in client.page().rows}
    assert stamps == {
        "one": "2031-05-06T07:08:09.123",
        "two": "2031-05-06T07:08:09.123",
        "three": "2031-05-03T07:08:09.123",
    }


def test_requests_without_a_clock_see_the_hosts(client: Client) -> None:
    client.write(at=FAR)
    before = datetime.now(UTC).replace(microsecond=0)
    written = client.write()
    after = datetime.now(UTC)
    assert before <= written.date <= after
    assert before <= written.stamp <= after
    assert before <= client.batch("one").date


def test_a_clock_that_is_none_is_refused(client: Client) -> None:
    for text in ("noon", "", "1.5"):
        refused = client.ask("GET", "Tables", at=text)
        assert (refused.status, b"milliseconds since 1970" in refused.body) == (400, True), text
