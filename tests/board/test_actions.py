"""What a program does in the name of a person is recorded; what it does by itself is not."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import blackboard
from blackboard import BadInput, Board, open_blocking
from blackboard.location import Location
from blackboard.model import Via
from blackboard.settings import Settings
from blackboard.table import Unavailable
from tests.board.test_front_door import long, until


@pytest.fixture(name="url")
def _url(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return store_url


@asynccontextmanager
async def opened(store: str) -> AsyncIterator[Board]:
    async with blackboard.open(store, handlers=[long], create=True) as board:
        await board.add("davis", "long", params={"token": "s3cret"})
        yield board


async def told(board: Board) -> list[tuple[str, str, str, str]]:
    """What is recorded, sorted: actions of one millisecond come in any order."""
    return sorted(
        (one.by, one.verb, one.reason or "", one.detail or "") for one in await board.actions()
    )


def test_verbs_that_are_given_who_does_it_are_recorded(url: str) -> None:
    async def story() -> None:
        async with opened(url) as board:
            await board.edit("davis", every="2h", params={"token": "other"}, reason="few", by="ann")
            await board.run("davis", params={"token": "third"}, reason="late", by="ann")
            await board.pause("davis", reason="moving", by="ben")
            await board.resume("davis", by="ben")
            await board.rename("davis", "woodland", reason="typo", by="ann")
            await board.remove("woodland", reason="moved", by="ann")
            assert await told(board) == [
                ("ann", "edit", "few", "every, params.token"),
                ("ann", "remove", "moved", ""),
                ("ann", "rename", "typo", "to woodland"),
                ("ann", "run", "late", "params.token"),
                ("ben", "pause", "moving", ""),
                ("ben", "resume", "", ""),
            ]
            found = {one.verb: one for one in await board.actions()}
            removed = found["remove"]
            assert (removed.ids, removed.count, removed.via) == (("woodland",), 1, "python")
            assert found["edit"].ids == ("davis",)
            assert found["edit"].at <= removed.at
            assert len(await board.actions(limit=2)) == 2

    asyncio.run(story())


def test_a_cancelled_and_an_unlocked_run_are_recorded(url: str) -> None:
    async def story() -> None:
        async with opened(url) as board:
            await board.add("dayton", "long")
            async with board.worker(grace="0"):

                async def run() -> bool:
                    return all([one.running async for one in board.items()])

                await until(run)
                await board.cancel("davis", reason="enough", by="ann")
                await board.unlock("dayton", reason="gone", by="ben")
            assert await told(board) == [
                ("ann", "cancel", "enough", ""),
                ("ben", "unlock", "gone", ""),
            ]

    asyncio.run(story())


def test_what_says_neither_who_nor_why_is_not_recorded(url: str) -> None:
    async def story() -> None:
        async with opened(url) as board:
            await board.edit("davis", every="2h")
            await board.run("davis")
            await board.pause("davis")
            await board.resume("davis")
            await board.rename("davis", "woodland")
            await board.remove("woodland")
            assert await board.actions() == []

    asyncio.run(story())


def test_a_reason_alone_is_recorded_with_the_user_of_the_process(url: str) -> None:
    async def story() -> None:
        async with opened(url) as board:
            paused = await board.pause("davis", reason="moving")
            assert paused.paused is not None
            assert await told(board) == [(paused.paused.by, "pause", "moving", "")]
            assert "@" in paused.paused.by

    asyncio.run(story())


def test_what_changes_nothing_is_not_recorded(url: str) -> None:
    async def story() -> None:
        async with opened(url) as board:
            await board.resume("davis", by="ann")
            await board.edit("davis", params={"token": "s3cret"}, by="ann")
            await board.run("davis", trigger="deploy", by="ann")
            await board.run("davis", trigger="deploy", by="ann")
            await board.pause("davis", by="ann")
            await board.pause("davis", by="ben")
            await board.rename("davis", "woodland", by="ann")
            await board.rename("davis", "woodland", by="ben")
            with pytest.raises(BadInput, match="it is the same"):
                await board.rename("woodland", "woodland", by="ann")
            assert [(by, verb) for by, verb, *_ in await told(board)] == [
                ("ann", "pause"),
                ("ann", "rename"),
                ("ann", "run"),
            ]

    asyncio.run(story())


@pytest.mark.parametrize(("via", "recorded"), [("web", ["web"]), (None, [])])
def test_the_board_says_through_what_it_is_done(
    url: str, via: Via | None, recorded: list[str]
) -> None:
    async def story() -> None:
        async with opened(url) as board:
            location = Location(settings=Settings(), folder=Path(), store=url, name=board.name)
            async with location.open() as table:
                await Board(table, location, via=via).pause("davis", by="ann")
            assert [one.via for one in await board.actions()] == recorded

    asyncio.run(story())


def test_a_store_that_does_not_take_the_record_is_logged(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise Unavailable("cable cut")

    async def story() -> None:
        async with opened(url) as board:
            monkeypatch.setattr("blackboard.board.record_action", away)
            with caplog.at_level(logging.WARNING, "blackboard"):
                assert (await board.pause("davis", by="ann")).state == "paused"
            assert caplog.messages == ["pause of davis is done, and not recorded: cable cut"]

    asyncio.run(story())


def test_a_program_without_a_loop_reads_and_records_them(url: str) -> None:
    about: dict[str, Any] = {"handlers": [long], "create": True}
    with open_blocking(url, **about) as board:
        board.add("davis", "long")
        board.run("davis", by="ann")
        [only] = board.actions(limit=5)
        assert (only.by, only.verb, only.ids) == ("ann", "run", ("davis",))
