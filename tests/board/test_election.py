"""`board.election`: who leads, for how long, and what it is told when that is over."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import blackboard
from blackboard.display.sharing import is_late
from blackboard.errors import BadInput, BlackboardError, BoardClosed
from blackboard.model import Message, MessageKind, Outcome, Run, replace
from blackboard.protocol import edits, keys
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.leaders import open_elections, read_elections
from blackboard.protocol.releases import release
from blackboard.protocol.retention import PRUNE_EVERY
from blackboard.protocol.rows import record_of
from blackboard.protocol.status import read_status
from blackboard.sharing import election
from blackboard.sharing.election import (
    FORKED as OF_A_FORK,
)
from blackboard.sharing.election import (
    GONE,
    RESIGNED,
    UNANSWERED,
    Election,
)
from blackboard.sharing.lasting_trouble import AGAIN_AFTER, ANOTHER_REASON_AFTER
from blackboard.table import ANY, Insert, Merge, Replace, Row, Unavailable, read
from blackboard.tables.memory import Contents, MemoryTable
from tests.support.boards import make_board
from tests.support.clocks import ManualClock
from tests.support.faults import Fault, FaultyTable
from tests.support.patience import is_within, patience
from tests.support.processes import eventually, halt, own_environ, whole_lines
from tests.support.stores import rows_of
from tests.support.turns import settled

LEASE = 15.0
CHECK = LEASE / 3
DEADLINE = 0.8 * LEASE


class Wire(FaultyTable):
    """A candidate's way to the store, which may be cut."""

    cut = False
    reason = "the store does not answer"

    async def _next(self, script: Any) -> Fault:
        if self.cut:
            raise Unavailable(self.reason)
        return await super()._next(script)


@dataclass
class Town:
    """Candidates in one loop, on one table, by a clock that is turned by hand."""

    clock: ManualClock
    contents: Contents
    stack: AsyncExitStack
    wires: list[Wire] = field(default_factory=list)

    async def candidate(self, *, name: str = "report", enter: bool = True, **said: Any) -> Election:
        """In a process of its own, as far as it can tell."""
        said = {"name": name, "owner": f"host:{len(self.wires)}:c", **said}
        wire = Wire(MemoryTable(self.clock, self.contents))
        self.wires.append(wire)
        board = await make_board(wire, self.clock, seed=len(self.wires))
        election = Election(board, **said)
        if enter:
            await self.stack.enter_async_context(election)
            await self.turns(0)
        return election

    async def turns(self, seconds: float, *, by: float = 0.25) -> None:
        """Time passes, and everybody does what is due."""
        end = self.clock.monotonic() + seconds
        await settled()
        while self.clock.monotonic() < end:
            self.clock.advance(min(by, end - self.clock.monotonic()))
            await settled()

    async def until(self, condition: Callable[[], object], seconds: float) -> float:
        """Time passes until that holds; how much it was."""
        begun = self.clock.monotonic()
        while not condition():
            await self.turns(0.05, by=0.05)
            assert self.clock.monotonic() - begun <= seconds, f"not within {seconds:g} s"
        return self.clock.monotonic() - begun

    async def elections(self) -> BoardTable:
        table = MemoryTable(self.clock, self.contents)
        return await open_elections(await make_board(table, self.clock, seed=99))

    async def elections_made(self) -> BoardTable:
        """With an election of bullies that has no candidate."""
        async with await self.candidate(kind="bully", enter=False):
            pass
        return await self.elections()

    async def mail(self) -> int:
        """Messages that nobody has fetched."""
        board = await self.elections()
        return len(await rows_of(board.table, keys.mail_partition(board.name)))

    async def history(self, name: str = "report") -> list[Run]:
        return [run async for run in (await self.elections()).runs(name)][::-1]


def of_town(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a story in a town of its own."""

    @wraps(test)
    def run(**arguments: Any) -> None:
        async def told() -> None:
            async with asyncio.timeout(patience(60)), AsyncExitStack() as stack:
                town = Town(ManualClock(), Contents(), stack)
                await test(town, **arguments)
                for wire in town.wires:
                    wire.cut = False

        asyncio.run(told())

    del run.__wrapped__  # pytest would look for a fixture `town`
    names = list(test.__annotations__)[1:-1]
    run.__signature__ = _signature(names)  # type: ignore[attr-defined]
    return run


def _signature(names: list[str]) -> Any:
    import inspect

    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature([inspect.Parameter(name, kind) for name in names])


KINDS = pytest.mark.parametrize("kind", ["mutex", "bully", "ring"])
ONE_STORE = pytest.mark.of_one_store("kinds of elections differ above the store")


# ---- who leads


@KINDS
@of_town
async def test_one_of_three_leads_and_the_next_when_it_leaves(town: Town, kind: str) -> None:
    all_ = [await town.candidate(kind=kind, enter=False) for _ in range(3)]
    stacks = [AsyncExitStack() for _ in all_]
    for one, stack in zip(all_, stacks, strict=True):
        await stack.enter_async_context(one)
    left: list[Election] = []
    for number in (1, 2, 3):
        await town.until(lambda: [one for one in all_ if one.is_leader], CHECK * 3)
        (leader,) = [one for one in all_ if one.is_leader]
        term = await leader.won()
        assert (term.fence, leader not in left) == (number, True)
        await town.turns(4 * LEASE)
        assert [one for one in all_ if one.is_leader] == [leader]
        assert (bool(term.lost), term.lost.reason) == (False, "")
        await stacks[all_.index(leader)].aclose()
        assert (leader.is_leader, bool(term.lost), term.lost.reason) == (False, True, RESIGNED)
        left.append(leader)
    assert [run.outcome for run in await town.history()] == [Outcome.CANCELLED] * 3


@of_town
async def test_a_successor_acts_within_a_third_of_a_lease(town: Town) -> None:
    one = await town.candidate(enter=False)
    async with one:
        await town.until(lambda: one.is_leader, 1)
        other = await town.candidate()
        await town.turns(LEASE)
    assert await town.until(lambda: other.is_leader, CHECK) <= CHECK


@of_town
async def test_an_election_that_was_left_while_a_clock_was_ahead_has_a_leader_soon(
    town: Town,
) -> None:
    one = await town.candidate(enter=False)
    async with one:
        await town.until(lambda: one.is_leader, 1)
        town.clock.jump(3600.0)
        await town.turns(CHECK)
    town.clock.jump(-3600.0)
    found = await read_status(await town.elections())
    assert is_late(found.statuses[0], found.now)
    other = await town.candidate()
    await town.until(lambda: other.is_leader, 2 * CHECK)


@pytest.mark.case("EL02", on="memory")
@KINDS
@of_town
async def test_a_leader_that_is_cut_off_stops_before_another_leads(town: Town, kind: str) -> None:
    one = await town.candidate(kind=kind)
    await town.until(lambda: one.is_leader, CHECK)
    other = await town.candidate(kind=kind)
    await town.turns(LEASE)
    term = await one.won()
    town.wires[0].cut = True
    stopped = await town.until(lambda: not one.is_leader, LEASE)
    assert not other.is_leader
    assert DEADLINE - CHECK <= stopped <= DEADLINE + 0.1
    assert (bool(term.lost), term.lost.reason) == (True, UNANSWERED)
    after = stopped + await town.until(lambda: other.is_leader, 2 * LEASE)
    assert LEASE - CHECK < after <= LEASE + CHECK + 1
    assert (term.fence, (await other.won()).fence) == (1, 2)
    town.wires[0].cut = False
    await town.turns(2 * LEASE)
    assert (one.is_leader, other.is_leader) == (False, True)
    assert [(run.fence, run.outcome) for run in await town.history()] == [(1, Outcome.ABANDONED)]


@of_town
async def test_a_term_that_is_over_does_not_come_back(town: Town) -> None:
    """The store is away for longer than 0.8 of a lease, and no other took the lock."""
    one = await town.candidate()
    await town.until(lambda: one.is_leader, CHECK)
    first = await one.won()
    town.wires[0].cut = True
    await town.until(lambda: not one.is_leader, LEASE)
    town.wires[0].cut = False
    await town.until(lambda: one.is_leader, 2 * LEASE)
    assert ((await one.won()).fence, bool(first.lost)) == (2, True)
    assert [run.outcome for run in await town.history()] == [Outcome.CANCELLED]


@of_town
async def test_a_term_stays_over_for_a_program_that_looks_when_its_candidate_leads_again(
    town: Town,
) -> None:
    """Another has led in between, and the program has not asked for its next term."""
    one = await town.candidate()
    term = await one.won()
    async with await town.candidate(enter=False) as other:
        town.wires[0].cut = True
        await town.until(lambda: other.is_leader, 2 * LEASE)
        town.wires[0].cut = False
    await town.until(lambda: one.is_leader, 2 * CHECK)
    assert (term.fence, bool(term.lost), term.lost.reason) == (1, True, UNANSWERED)
    assert (await one.won()).fence == 3


@of_town
async def test_a_damaged_row_of_the_history_ends_no_term(town: Town) -> None:
    for _ in range(PRUNE_EVERY):
        async with await town.candidate(enter=False) as one:
            await town.until(lambda: one.is_leader, CHECK)
            board = await town.elections()
            term = await one.won()
            if term.fence == 2:
                harm = Merge(keys.run_key("report", 1), {"outcome": "a later one"}, ANY)
                await board.table.commit(board.shard(0), [harm])
            await town.turns(0.5)
            assert one.is_leader, term.lost.reason
    assert term.fence == PRUNE_EVERY


@of_town
async def test_a_program_that_stood_still_sees_at_once_that_its_term_is_over(town: Town) -> None:
    one = await town.candidate()
    await town.until(lambda: one.is_leader, CHECK)
    lost = (await one.won()).lost
    town.clock.advance(DEADLINE)  # nothing here has run since
    assert (one.is_leader, bool(lost), lost.reason) == (False, True, UNANSWERED)
    lost.claim = replace(lost.claim, sent=town.clock.monotonic())  # a renewal is answered now
    assert (one.is_leader, bool(lost)) == (False, True)


@of_town
async def test_mail_of_others_that_cannot_be_deleted_keeps_no_candidate_out(town: Town) -> None:
    async def away(_board: BoardTable) -> int:
        raise Unavailable("cable cut")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("blackboard.sharing.election.mail.forget_old", away)
        one = await town.candidate(kind="bully")
    await town.until(lambda: one.is_leader, CHECK)


@of_town
async def test_waiting_for_the_end_of_a_term(town: Town) -> None:
    one = await town.candidate()
    lost = (await one.won()).lost
    waiting = asyncio.create_task(lost.wait())
    await town.turns(2 * LEASE)
    assert not waiting.done()
    board = await town.elections()
    await edits.unlock(board, "report", (await mark(board)), fence=1)
    await town.until(waiting.done, CHECK)
    assert (bool(lost), lost.reason) == (True, GONE)
    won = asyncio.create_task(one.won())
    await town.until(won.done, 2 * CHECK)
    term = won.result()
    assert (term.fence, bool(term.lost)) == (3, False), "an unlock raises the fence, a claim again"


@of_town
async def test_waiting_ends_at_the_deadline_while_no_renewal_is_answered(town: Town) -> None:
    """Nothing else looks whether the term is over."""
    one = await town.candidate()
    waiting = asyncio.create_task((await one.won()).lost.wait())
    await town.turns(LEASE)
    town.wires[0].cut = True
    assert await town.until(waiting.done, LEASE) <= DEADLINE + 0.1


@of_town
async def test_a_term_is_over_before_its_leader_releases_the_lock(town: Town) -> None:
    async with await town.candidate(enter=False) as one:
        term = await one.won()
        over = list[bool]()

        async def released(*run: Any) -> Any:
            over.append(bool(term.lost))
            return await release(*run)

        town.stack.enter_context(patch.object(election, "release", released))
    assert over == [True]


@of_town
async def test_candidates_that_make_an_election_at_the_same_time_enter_the_same(town: Town) -> None:
    await (await town.candidate(name="other")).won()
    both = [await town.candidate(enter=False) for _ in range(2)]
    await asyncio.gather(*map(town.stack.enter_async_context, both))
    await town.until(lambda: [one.is_leader for one in both].count(True) == 1, CHECK)


async def mark(board: BoardTable) -> Any:
    from blackboard.model import Mark

    return Mark(by="ann", at=await board.table.now())


@of_town
async def test_candidates_go_by_the_lease_of_the_lock_once_it_was_edited(town: Town) -> None:
    all_ = [await town.candidate() for _ in range(2)]
    await town.until(lambda: all_[0].is_leader, CHECK)
    board = await town.elections()
    await edits.edit(board, "report", lambda spec, _: replace(spec, stale_after="3s"))
    await edits.unlock(board, "report", await mark(board), fence=1)
    await town.turns(CHECK)
    await town.until(lambda: any(one.is_leader for one in all_), CHECK)
    await town.turns(3 * LEASE)
    (leader,) = [one for one in all_ if one.is_leader]
    (other,) = [one for one in all_ if one is not leader]
    assert (await leader.won()).fence == 3
    town.wires[all_.index(leader)].cut = True
    await town.until(lambda: other.is_leader, 3 + 1)


@of_town
async def test_a_paused_election_has_no_leader_until_it_is_resumed(town: Town) -> None:
    board = await town.elections_made()
    await edits.pause(board, "report", await mark(board))
    all_ = [await town.candidate(kind="bully") for _ in range(2)]
    sent = await town.mail()
    await town.turns(4 * LEASE)
    assert not any(one.is_leader for one in all_)
    assert await town.mail() == sent == 0
    await edits.resume(board, "report", await mark(board))
    await town.until(lambda: any(one.is_leader for one in all_), LEASE)


@of_town
async def test_an_election_that_was_removed_is_made_again_with_higher_terms(town: Town) -> None:
    one = await town.candidate()
    await town.until(lambda: one.is_leader, CHECK)
    await edits.remove(await town.elections(), "report")
    await town.until(lambda: not one.is_leader, CHECK)
    await town.until(lambda: one.is_leader, 2 * CHECK)
    assert (await one.won()).fence == 3


@pytest.mark.parametrize("kind", ["mutex", "bully", "ring"])
@of_town
async def test_an_election_goes_on_after_its_table_was_deleted_and_made_anew(
    town: Town, kind: str
) -> None:
    all_ = [await town.candidate(kind=kind) for _ in range(2)]
    await town.until(lambda: any(one.is_leader for one in all_), 2 * CHECK)
    (lost,) = [(await one.won()).lost for one in all_ if one.is_leader]
    town.contents.parts.clear()
    await town.until(lambda: bool(lost), DEADLINE + CHECK)
    await town.until(lambda: any(one.is_leader for one in all_), 2 * LEASE)
    await town.turns(LEASE)
    assert sum(one.is_leader for one in all_) == 1
    found = await read_elections(await make_board(all_[0]._main.table, town.clock), "report")
    assert [one.item.type for one in found.statuses] == [kind]


# ---- lost replies


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.NEVER, Fault.LATE])
@of_town
async def test_a_claim_without_an_answer_is_settled(town: Town, fault: Fault) -> None:
    one = await town.candidate(enter=False)
    async with one:
        town.wires[0].script(fault)
        await town.turns(0)
        assert town.wires[0].quiet
        await town.wires[0].land()
        assert await town.until(lambda: one.is_leader, 2 * CHECK) <= 2 * CHECK
        await town.turns(2 * LEASE)
        assert (one.is_leader, (await one.won()).fence) == (True, 1)


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.NEVER, Fault.LATE, Fault.BUSY, Fault.AWAY])
@of_town
async def test_a_renewal_without_an_answer_ends_no_term(town: Town, fault: Fault) -> None:
    one = await town.candidate()
    await town.until(lambda: one.is_leader, CHECK)
    town.wires[0].script(fault)
    await town.turns(3 * LEASE)
    assert town.wires[0].quiet
    await town.wires[0].land()
    await town.turns(LEASE)
    assert (one.is_leader, (await one.won()).fence) == (True, 1)


@of_town
async def test_leaving_while_the_store_is_away_takes_a_lease_at_the_most(town: Town) -> None:
    one = await town.candidate(enter=False, lease="3s")
    await one.__aenter__()
    await town.until(lambda: one.is_leader, CHECK)
    town.wires[0].cut = True
    leaving = asyncio.create_task(one.__aexit__(None, None, None))
    await asyncio.wait([leaving], timeout=patience(30))
    assert leaving.done()
    assert not one.is_leader


# ---- ranks


@of_town
async def test_a_bully_of_a_higher_rank_takes_the_lead(town: Town) -> None:
    low = await town.candidate(kind="bully", rank=1)
    await town.until(lambda: low.is_leader, CHECK)
    term = await low.won()
    high = await town.candidate(kind="bully", rank=2)
    await town.until(lambda: high.is_leader, 2 * CHECK)
    assert (low.is_leader, term.lost.reason) == (False, RESIGNED)
    await town.turns(4 * LEASE)
    assert (high.is_leader, (await high.won()).fence) == (True, 2)


@pytest.mark.parametrize(("kind", "said"), [("bully", {"preempt": False}), ("ring", {})])
@of_town
async def test_a_leader_stays_where_ranks_do_not_preempt(
    town: Town, kind: str, said: dict[str, Any]
) -> None:
    low = await town.candidate(kind=kind, rank=1, **said)
    await town.until(lambda: low.is_leader, CHECK)
    high = await town.candidate(kind=kind, rank=2, **said)
    await town.turns(4 * LEASE)
    assert (low.is_leader, high.is_leader) == (True, False)


@pytest.mark.parametrize("kind", ["bully", "ring"])
@of_town
async def test_the_highest_that_is_left_follows_a_leader_that_is_gone(
    town: Town, kind: str
) -> None:
    """The leader says nothing more: it was killed."""
    first = await town.candidate(kind=kind, rank=9)
    await town.until(lambda: first.is_leader, CHECK)
    others = [await town.candidate(kind=kind, rank=rank) for rank in (1, 4, 3, 2)]
    await town.turns(2 * LEASE)
    town.wires[0].cut = True
    took = await town.until(lambda: any(one.is_leader for one in others), 3 * LEASE)
    assert took <= LEASE + CHECK + 4, "nobody waits for a whole check while there is no leader"
    assert [one.is_leader for one in others] == [False, True, False, False]
    await town.turns(4 * LEASE)
    assert [one.is_leader for one in others] == [False, True, False, False]
    assert (await others[1].won()).fence == 2
    assert await town.mail() == 0


@pytest.mark.parametrize("kind", ["bully", "ring"])
@of_town
async def test_candidates_of_an_election_called_by_a_star_are_none_of_another(
    town: Town, kind: str
) -> None:
    """A star ends the list of a worker that takes more types than are in it."""
    await town.candidate(name="*", kind=kind, rank=9)
    low, high = [await town.candidate(kind=kind, rank=rank) for rank in (1, 2)]
    await town.turns(4 * LEASE)
    assert low.is_leader is not high.is_leader


@of_town
async def test_a_list_passes_over_a_candidate_that_does_not_fetch_it(town: Town) -> None:
    """It has announced itself a moment ago, and is gone."""
    first = await town.candidate(kind="ring", rank=9)
    await town.until(lambda: first.is_leader, CHECK)
    others = [await town.candidate(kind="ring", rank=rank) for rank in (1, 2, 3)]
    await town.turns(2 * LEASE)
    town.wires[0].cut = town.wires[2].cut = True
    board = await town.elections()
    for _ in range(30):
        await town.turns(CHECK / 2)
        await touch(board)
    assert [one.is_leader for one in (first, *others)] == [False, False, False, True]
    assert (await others[2].won()).fence == 2
    asked = {
        (message.sender, message.to)
        for wire in town.wires
        for batch in wire.batches
        for op in batch
        if isinstance(op, Insert) and op.key.startswith(keys.MAIL)
        for message in [record_of(Message, Row(op.key, "", op.data))]
        if message.kind is MessageKind.ELECTION
    }
    gone, low, lost, high = (one.owner for one in (first, *others))
    assert asked >= {(low, lost), (low, high), (high, gone), (high, low)}


async def touch(board: BoardTable) -> None:
    """All members seem to have announced themselves just now."""
    partition = keys.workers_partition(board.name)
    for row in await rows_of(board.table, partition):
        await board.table.commit(partition, [Merge(row.key, {}, row.etag)])


# ---- what it costs


@of_town
async def test_nothing_of_other_elections_is_read(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be thousands that are not entered any more."""
    monkeypatch.setattr(BoardTable, "walk", None)
    leader = await town.candidate()
    await town.until(lambda: leader.is_leader, CHECK)
    other = await town.candidate()
    await town.turns(2 * CHECK)
    leaving = asyncio.create_task(leader.end())
    await town.until(lambda: other.is_leader, 2 * CHECK)
    await leaving


@of_town
async def test_a_mutex_costs_one_request_a_check(town: Town) -> None:
    leader = await town.candidate()
    await town.until(lambda: leader.is_leader, CHECK)
    await town.candidate()
    await town.turns(CHECK)
    before = (
        [len(wire.batches) for wire in town.wires],
        [wire.requests.pages for wire in town.wires],
    )
    await town.turns(20 * CHECK)
    batches = [len(wire.batches) - old for wire, old in zip(town.wires, before[0], strict=True)]
    pages = [wire.requests.pages - old for wire, old in zip(town.wires, before[1], strict=True)]
    assert 20 <= batches[0] <= 26
    assert (pages[0], batches[1]) == (0, 0)
    assert 20 <= pages[1] <= 26


@of_town
async def test_sigterm_is_caught_for_the_length_of_the_block_and_only_if_that_is_asked_for(
    town: Town,
) -> None:
    def caught() -> bool:
        return signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL

    async with await town.candidate(enter=False, ends_at_sigterm=False):
        assert not caught()
    async with await town.candidate(enter=False):
        async with await town.candidate(enter=False):
            assert caught()
        assert caught()
    assert not caught()


@of_town
async def ended_by_sigterm(town: Town) -> None:
    async with await town.candidate(enter=False):
        signal.raise_signal(signal.SIGTERM)
        await asyncio.Event().wait()


def test_sigterm_ends_the_program_and_is_as_it_was_before() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as ended:
            ended_by_sigterm()
        assert ended.value.code == 128 + signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


@of_town
async def test_a_handler_of_sigterm_that_a_program_installs_in_the_block_stays(town: Town) -> None:
    def own(*_: object) -> None:
        heard.append("own")

    heard, loop = list[str](), asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGTERM)
    try:
        for installed in (own, signal.SIG_IGN):
            async with await town.candidate(enter=False):
                signal.signal(signal.SIGTERM, installed)
                signal.raise_signal(signal.SIGTERM)
                await asyncio.sleep(0)
            assert signal.signal(signal.SIGTERM, signal.SIG_DFL) is installed
        assert heard == ["own"]
        async with await town.candidate(enter=False):
            loop.add_signal_handler(signal.SIGTERM, heard.append, "of the loop")
        signal.raise_signal(signal.SIGTERM)
        async with asyncio.timeout(patience(10)):
            while len(heard) < 2:  # noqa: ASYNC110 - the loop reads its pipe
                await asyncio.sleep(0)
        assert heard == ["own", "of the loop"]
        loop.remove_signal_handler(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


# ---- bad input


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"kind": "vote"}, "kind: there is no kind 'vote' (one of mutex, bully, ring)"),
        ({"lease": "15"}, "lease: '15' has no unit (write 15s for seconds)"),
        (
            {"lease": "2s"},
            "lease: 2s is too short: a leader renews every third of it (3s at the least)",
        ),
        (
            {"lease": "2h"},
            "lease: 2h is too long: a dead leader is replaced after it (1h at the most)",
        ),
        ({"kind": "bully", "rank": -1}, "rank: -1 is out of range (0 to 1000000000)"),
        ({"kind": "bully", "rank": True}, "rank: True is out of range (0 to 1000000000)"),
        (
            {"rank": 1},
            'rank: a mutex has no ranks: the first leads (kind="bully" or "ring")',
        ),
    ],
)
@of_town
async def test_what_cannot_be_is_refused(town: Town, said: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as refused:
        await town.candidate(enter=False, **said)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            {"kind": "ring"},
            (
                "kind: the election 'east; west' is a mutex (all candidates say the same; "
                "`blackboard --board town.leaders rm 'east; west'` ends it)"
            ),
        ),
        (
            {"lease": "20s"},
            (
                "lease: that of the election 'east; west' is 15s (all candidates say the same; "
                "`blackboard --board town.leaders edit --stale-after 20s 'east; west'` changes it)"
            ),
        ),
    ],
)
@of_town
async def test_all_candidates_say_the_same(town: Town, said: dict[str, Any], message: str) -> None:
    await town.candidate(name="east; west")
    with pytest.raises(BadInput) as refused:
        await town.candidate(name="east; west", **said)
    assert str(refused.value) == message


@of_town
async def test_outside_of_its_block_a_candidate_is_none(town: Town) -> None:
    one = await town.candidate(enter=False)
    assert not one.is_leader
    with pytest.raises(BlackboardError, match="only inside"):
        await one.won()
    async with one:
        waiting = asyncio.create_task(one.won())
        await town.until(waiting.done, CHECK)
    with pytest.raises(BlackboardError, match="only inside"):
        await one.won()
    with pytest.raises(BlackboardError, match="entered once"):
        await one.__aenter__()


@pytest.mark.parametrize("name", ["", "a,b", "\ud800", "x" * 1_001, "coordinator"])
def test_a_name_that_cannot_be_used_is_refused(tmp_path: Path, name: str) -> None:
    opened = blackboard.open_blocking(tmp_path / "app.db", create=True)
    with opened as board, pytest.raises(BadInput, match=r"^name: "):
        board.election(name)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [({"version": 2}, "was written by a newer version"), ({"state": "odd"}, "row item:report: ")],
)
@of_town
async def test_an_item_that_cannot_be_read_keeps_candidates_waiting_in_their_blocks(
    town: Town, caplog: pytest.LogCaptureFixture, columns: dict[str, Any], problem: str
) -> None:
    one = await town.candidate()
    await town.until(lambda: one.is_leader, CHECK)
    other = await town.candidate()
    board = await town.elections()
    town.wires[0].cut = True
    key = keys.item_key("report")
    row = await read(board.table, board.shard(0), key)
    assert row is not None
    await board.table.commit(board.shard(0), [Merge(key, columns, ANY)])
    await town.turns(3 * LEASE)
    assert not other.is_leader
    said = [one.getMessage() for one in caplog.records if problem in one.getMessage()]
    assert len(said) == 1, caplog.text
    assert "the election 'report'" in said[0]
    await board.table.commit(board.shard(0), [Replace(key, row.data, ANY)])
    await town.until(lambda: other.is_leader, 2 * CHECK)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name.startswith("blackboard")]


@of_town
async def test_a_store_that_is_away_for_longer_than_a_term_outlasts_is_logged_and_its_return(
    town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    leader, waiting = await town.candidate(), await town.candidate()
    await town.until(lambda: leader.is_leader, CHECK)
    for wire in town.wires:
        wire.cut = True
    await town.turns(DEADLINE - CHECK)
    assert logged(caplog) == [], "it may be back in time"
    await town.turns(AGAIN_AFTER - LEASE, by=1.0)
    away = "its candidate cannot lead while the store is away: the store does not answer"
    assert logged(caplog) == [f"the election 'report': {away}"] * 2, "one of each candidate"
    await town.turns(2 * LEASE)
    assert len(logged(caplog)) == 4
    await town.turns(ANOTHER_REASON_AFTER)
    caplog.clear()
    for number in range(8):
        town.wires[0].reason = f"another reason, {number}"
        await town.turns(LEASE)
    assert [text.partition("away: ")[2] for text in logged(caplog)] == [
        "another reason, 0",
        "another reason, 4",
    ]
    caplog.clear()
    for wire in town.wires:
        wire.cut = False
    await town.until(lambda: leader.is_leader or waiting.is_leader, 2 * LEASE)
    await town.turns(LEASE)
    assert logged(caplog) == ["the election 'report': the store answers again"] * 2


@of_town
async def test_a_candidate_that_reports_its_problems_leaves_outages_to_its_worker(
    town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    problems = list[BlackboardError]()
    await town.candidate(report=problems.append)
    town.wires[0].cut = True
    await town.turns(3 * LEASE)
    town.wires[0].cut = False
    await town.turns(LEASE)
    assert (logged(caplog), problems) == ([], [])


@of_town
async def test_a_claim_that_the_store_refuses_is_reported_once_and_tried_again(
    town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    one = await town.candidate(enter=False)
    async with one:
        town.wires[0].script(Fault.REFUSED, Fault.REFUSED)
        await town.until(lambda: one.is_leader, 3 * CHECK)
    said = logged(caplog)
    assert len(said) == 1, caplog.text
    assert "the election 'report': item: the store does not take its rows: too large" in said[0]


# ---- processes

CANDIDATE = """
import asyncio, json, sys, time
import blackboard

store, kind, rank = sys.argv[1:]

def tell(event, fence=0):
    print(json.dumps({"event": event, "term": fence, "at": time.time()}), flush=True)

async def main():
    async with blackboard.open(store, create=True) as board:
        async with board.election("report", kind=kind, lease="3s", rank=int(rank)) as leader:
            tell("there")
            while True:
                term = await leader.won()
                tell("leads", term.fence)
                await term.lost.wait()
                tell("lost", term.fence)

asyncio.run(main())
"""
BLOCKING = """
import json, sys, time
import blackboard

store, kind, rank = sys.argv[1:]

def tell(event, fence=0):
    print(json.dumps({"event": event, "term": fence, "at": time.time()}), flush=True)

with blackboard.open_blocking(store, create=True) as board:
    with board.election("report", kind=kind, lease="3s", rank=int(rank)) as leader:
        tell("there")
        while True:
            term = leader.won()
            assert leader.is_leader and not term.lost
            tell("leads", term.fence)
            term.lost.wait()
            tell("lost", term.fence)
"""


@dataclass
class Process:
    """A candidate in a process of its own."""

    process: subprocess.Popen[bytes]
    said: Path

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in whole_lines(self.said) if line.endswith("}")]

    @property
    def leads(self) -> bool:
        return self.events[-1:] != [] and self.events[-1]["event"] == "leads"

    def ends(self, number: signal.Signals) -> float:
        """When the signal was sent."""
        at = time.time()
        self.process.send_signal(number)
        self.process.wait(patience(30))
        return at


@pytest.fixture(name="start")
def _start(store_url: str, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(kind: str = "mutex", rank: int = 0, *, program: str = CANDIDATE) -> Process:
        said = tmp_path / f"said-{len(started)}"
        problem = tmp_path / f"problem-{len(started)}"
        with said.open("wb") as out, problem.open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-c", program, store_url, kind, str(rank)],
                cwd=tmp_path,
                env=own_environ(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        started.append(Process(process, said))
        eventually(lambda: started[-1].events, "the candidate is there")
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()


def next_leader(all_: list[Process], *, seconds: float) -> Process:
    (leader,) = eventually(lambda: [one for one in all_ if one.leads], "one leads", seconds=seconds)
    return leader


def terms(all_: list[Process]) -> list[int]:
    return [event["term"] for one in all_ for event in one.events if event["event"] == "leads"]


@pytest.mark.parametrize("kind", ["mutex", pytest.param("bully", marks=ONE_STORE)])
def test_a_leader_that_is_killed_is_replaced_after_a_lease(
    start: Callable[..., Process], kind: str
) -> None:
    all_ = [start(kind, 0 if kind == "mutex" else rank) for rank in range(3)]
    leader = next_leader(all_, seconds=patience(20))
    at = leader.ends(signal.SIGKILL)
    all_.remove(leader)
    following = next_leader(all_, seconds=patience(20))
    took = following.events[-1]["at"] - at
    assert is_within(took, 3 + 1 + 1.5 + (0 if kind == "mutex" else 3)), f"{took:.1f} s"
    assert following.events[-1]["term"] > leader.events[-1]["term"]
    found = terms([*all_, leader])
    assert len(found) == len(set(found))


@pytest.mark.parametrize(
    ("kind", "program"),
    [
        ("mutex", CANDIDATE),
        pytest.param("ring", BLOCKING, marks=ONE_STORE),
        pytest.param("bully", CANDIDATE, marks=ONE_STORE),
    ],
)
def test_a_leader_that_is_shut_down_resigns(
    start: Callable[..., Process], kind: str, program: str
) -> None:
    leader = start(kind, program=program)
    eventually(lambda: leader.leads, "it leads")
    follower = start(kind, program=program)
    at = leader.ends(signal.SIGTERM)
    eventually(lambda: follower.leads, "the successor leads")
    took = follower.events[-1]["at"] - at
    assert is_within(took, 1 + 1), f"{took:.1f} s"
    assert leader.process.returncode == 128 + signal.SIGTERM
    assert [leader.events[-1]["term"], follower.events[-1]["term"]] == [1, 2]
    problem = leader.said.with_name("problem-0").read_text()
    assert problem == "", problem


def test_a_leader_that_was_stopped_sees_when_it_goes_on_that_it_was_replaced(
    start: Callable[..., Process], store_url: str
) -> None:
    leader = start()
    eventually(lambda: leader.leads, "it leads")
    follower = start()
    halt(leader.process, store_url.removeprefix("sqlite:"))
    eventually(lambda: follower.leads, "another leads")
    leader.process.send_signal(signal.SIGCONT)
    eventually(lambda: leader.events[-1]["event"] == "lost", "the first sees it")
    assert follower.leads
    assert terms([leader]) == [1]
    assert terms([follower])[0] == 2  # on a busy machine it may lose that term, too


HANDLED = """
import asyncio, signal, sys
import blackboard

async def main():
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with blackboard.open(sys.argv[1], create=True) as board:
        async with board.election("a") as one, board.election("b") as other:
            await one.won()
            await other.won()
            print('{"event": "leads"}', flush=True)
            await ended.wait()
    print('{"event": "done"}', flush=True)

asyncio.run(main())
"""
TWO = HANDLED.replace("asyncio.get_running_loop()", "# ")


@pytest.mark.cases_of_one_store("a program handles its signals above the store")
@pytest.mark.parametrize(("program", "code"), [(HANDLED, 0), (TWO, 143)])
def test_a_program_may_handle_sigterm_itself_and_be_in_two_elections(
    start: Callable[..., Process], store_url: str, program: str, code: int
) -> None:
    one = start(program=program)
    one.ends(signal.SIGTERM)
    assert one.process.returncode == code
    assert one.events[-1] == {"event": "done" if code == 0 else "leads"}
    with blackboard.open_blocking(store_url, name="blackboard.leaders") as board:
        assert [(item.id, item.running, item.outcome) for item in board.items()] == [
            ("a", False, "cancelled"),
            ("b", False, "cancelled"),
        ]


FORKED = """
import asyncio, blackboard, os, sys

def fork(leader, term):
    if (child := os.fork()) == 0:
        lost = term.lost
        has_lost = asyncio.run(waits(lost)) if sys.argv[1] == "loop" else lost.wait(60)
        print("child", leader.is_leader, bool(lost), has_lost, lost.reason, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print("parent", leader.is_leader, bool(term.lost), term.lost.reason)

async def waits(lost):
    return await lost.wait(60)

async def main():
    async with blackboard.open("memory:", create=True) as board:
        async with board.election("report") as leader:
            term = await leader.won()
            await asyncio.to_thread(fork, leader, term)

if sys.argv[1] == "loop":
    asyncio.run(main())
else:
    with blackboard.open_blocking("memory:", create=True) as board:
        with board.election("report") as leader:
            fork(leader, leader.won())
"""


@pytest.mark.parametrize("door", ["loop", "blocking"])
def test_a_process_that_a_leader_forks_does_not_lead(tmp_path: Path, door: str) -> None:
    said = subprocess.check_output(
        [sys.executable, "-c", FORKED, door], cwd=tmp_path, env=own_environ(), text=True
    )
    assert said.splitlines() == [f"child False True True {OF_A_FORK}", "parent True False "]


# ---- the blocking door


def test_a_program_without_a_loop_takes_part(tmp_path: Path) -> None:
    with (
        blackboard.open_blocking(tmp_path / "app.db", create=True) as board,
        board.election("report", lease="3s") as leader,
    ):
        term = leader.won()
        assert (leader.is_leader, term.fence, leader.name) == (True, 1, "report")
        assert not term.lost.wait(0.01)
        with blackboard.open_blocking(tmp_path / "app.db", name="blackboard.leaders") as elections:
            elections.unlock("report")
        assert term.lost.wait(patience(30))
        assert term.lost.reason == GONE
        assert (leader.won().fence, bool(term.lost)) == (3, True)
    assert not leader.is_leader


def test_a_program_may_wait_for_its_term_for_a_limited_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            blackboard.open(tmp_path / "app.db", create=True) as board,
            board.election("report", lease="3s") as other,
        ):
            with pytest.raises(TimeoutError):
                await other.won(timeout=0.01)

    with (
        blackboard.open_blocking(tmp_path / "app.db", create=True) as board,
        ExitStack() as leading,
    ):
        leader = leading.enter_context(board.election("report", lease="3s"))
        assert leader.won(timeout=patience(30)).fence == 1
        assert leader.won(timeout=0).fence == 1, "it leads already"
        asyncio.run(story())
        with board.election("report", lease="3s") as other:
            with pytest.raises(TimeoutError):
                other.won(timeout=0.01)
            leading.close()
            assert other.won(timeout=patience(30)).fence == 2


@pytest.mark.parametrize("timeout", ["5s", b"5", True, float("nan"), timedelta(seconds=5)])
def test_a_timeout_that_is_no_number_of_seconds_is_refused(tmp_path: Path, timeout: Any) -> None:
    with (
        blackboard.open_blocking(tmp_path / "app.db", create=True) as board,
        board.election("report", lease="3s") as leader,
    ):
        with pytest.raises(BadInput, match=r"^timeout: .* is no number of seconds"):
            leader.won(timeout)
        assert leader.won(patience(30)).fence == 1


def test_an_election_that_is_entered_twice_goes_on(tmp_path: Path) -> None:
    with (
        blackboard.open_blocking(tmp_path / "app.db", create=True) as board,
        board.election("report", lease="3s") as leader,
    ):
        leader.won()
        with pytest.raises(BlackboardError, match="is entered once"):
            leader.__enter__()
        assert leader.is_leader
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_leader_resigns_when_its_board_is_closed(tmp_path: Path) -> None:
    async def story() -> None:
        async with blackboard.open(tmp_path / "app.db", create=True) as board:
            leader, late = board.election("report"), board.election("report")
            await leader.__aenter__()
            term = await leader.won()
        assert (leader.is_leader, term.lost.reason) == (False, RESIGNED)
        with pytest.raises(BoardClosed):
            await leader.won()
        await leader.__aexit__(None, None, None)
        with pytest.raises(BlackboardError, match="is closed"):
            await late.__aenter__()

    asyncio.run(story())


@pytest.mark.parametrize("waits", [True, False])
def test_threads_that_use_a_board_go_on_when_it_is_closed(tmp_path: Path, *, waits: bool) -> None:
    problems: list[BlackboardError] = []
    led, closed = threading.Event(), threading.Event()

    def leads(board: blackboard.BlockingBoard) -> None:
        try:
            with board.election("report") as leader:
                term = leader.won()
                led.set()
                if waits:
                    assert term.lost.wait()
                else:
                    closed.wait()
                leader.won()
        except BlackboardError as problem:
            problems.append(problem)

    with blackboard.open_blocking(tmp_path / "app.db", create=True) as board:
        thread = threading.Thread(target=leads, args=[board])
        thread.start()
        led.wait()
    closed.set()
    thread.join()
    (problem,) = problems
    assert isinstance(problem, BoardClosed)


def test_what_cannot_be_is_refused_without_a_loop_too(tmp_path: Path) -> None:
    with blackboard.open_blocking(tmp_path / "app.db", create=True) as board:
        with pytest.raises(BadInput, match="lease"):
            board.election("report", lease="1s")
        with pytest.raises(BadInput, match="it is empty"):
            board.election("")
        with pytest.raises(BadInput, match=r"^name: 'report ' has blanks at its ends"):
            board.election("report ")
        with pytest.raises(BadInput, match=r"^name: .* looks like another one: .*NFC"):
            board.election("e\u0301t\u00e9")
        with pytest.raises(BadInput, match=r"^name: .* is not UTF-8 text"):
            board.election("\udc80")
        with board.election("report"), pytest.raises(BadInput, match="kind"):
            board.election("report", kind="ring").__enter__()
