"""Clients that claim, renew, release, override, unlock and read items at once, all noted.

Each walks the board as a worker does and decides by the same rules, but in an order from a seed,
and with more errors: it ignores some of its claims until their locks are stale, and releases them
then as usual. Where replies are lost, a claim or an override that was not found
to have landed has no answer; it may land when its client lets it, and is adopted then.

A batch of claims that was refused says nothing of any one of them, and is not noted.
"""

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from blackboard.clock import Clock
from blackboard.model import Item, Lock, Mark, Token
from blackboard.protocol import claims
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim
from blackboard.protocol.edits import unlock
from blackboard.protocol.releases import ReleaseOutcome, release
from blackboard.rules.due import Move, decide_lock
from blackboard.table import Busy, Etag, Op, Unknown
from tests.proof.history.model import Answer, Verb
from tests.proof.history.recorder import Asked, Recorder
from tests.support.boards import ALL_DAY, finished
from tests.support.faults import FaultyTable

LEASE = 3.0
"""Seconds: the shortest there is."""
TYPE = "fenced"
"""Late results are dropped, so that nothing but a lock's own verbs can make a batch fail."""
MOST_HELD = 3
"""Claims that a client has at once."""
OVERRIDES = 0.4
"""The part of the stale locks it sees that a client overrides: or most would come too late."""
RENEWS, RELEASES = 0.5, 0.85
"""Where a die must fall below for a claim that is held to be renewed; or else released."""
LANDS = 0.3


class DoubtfulTable(FaultyTable):
    """Counts the replies that it lost."""

    doubts = 0

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        try:
            return await super().commit(partition, ops)
        except Unknown:
            self.doubts += 1
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What clients of one history have in common."""

    keys: int = 16
    """Items on the board: item-0 and so on."""
    batch: int = 1
    """Claims in one request, at the most."""
    noted: int = 3
    """Rows of a walk that are noted, at the most: or a history would be of little but reads."""
    forgets: float = 0.08
    """The part of its claims that a client forgets until they are stale."""
    unlocks: float = 0.03
    """The part of its turns in which it is a person who unlocks what is held."""


@dataclass(slots=True, kw_only=True, eq=False)
class Client:
    """One process, and the person in front of it."""

    owner: str
    table: DoubtfulTable
    board: BoardTable
    """Over that table, which may lose replies."""
    desk: BoardTable
    """The same board, whose requests are all answered."""
    clock: Clock
    recorder: Recorder
    random: random.Random
    habits: Habits
    held: list[Claim] = field(default_factory=list)
    forgotten: list[tuple[float, Claim]] = field(default_factory=list)
    """With the moment at which each is remembered."""

    async def turn(self) -> None:
        if self.random.random() < self.habits.unlocks:
            await self._unlock()
        else:
            await self._walk()
        await self._tend()
        await self._land()

    # ---- taking

    async def _walk(self) -> None:
        now = self.clock.now()
        asked = await self.recorder.ask(self._rows())
        rows = asked.said or []
        for row in self.random.sample(rows, min(len(rows), self.habits.noted)):
            self.recorder.read(asked, row, client=self.owner)
        for lock in [row for row in rows if isinstance(row, Lock)]:
            await self._look_at(lock)
        due = [row for row in rows if isinstance(row, Token) and row.ready <= now]
        wanted = min(MOST_HELD - len(self.held), self.random.randint(0, MOST_HELD), len(due))
        if wanted > 0:
            chosen = self.random.sample(due, wanted)
            for at in range(0, wanted, self.habits.batch):
                await self._claim(chosen[at : at + self.habits.batch])

    async def _rows(self) -> list[Lock | Token]:
        return [row async for row in self.board.walk(0, until=self.clock.now() + ALL_DAY)]

    async def _look_at(self, lock: Lock) -> None:
        mine = {claim.nonce for claim in self.held}
        mine |= {claim.nonce for _, claim in self.forgotten}
        move = decide_lock(
            lock,
            owner=self.owner,
            types={TYPE},
            in_flight=self.board.in_flight | mine,
            resolution=self.board.table.resolution,
        )
        if move is Move.ADOPT:
            asked = await self.recorder.ask(claims.adopt(self.board, lock))
            self._renewed(asked, lock)
        elif move is Move.OVERRIDE and self.random.random() < OVERRIDES:
            await self._override(lock)

    async def _claim(self, tokens: list[Token]) -> None:
        doubts = self._doubts
        asked = await self.recorder.ask(claims.claim(self.board, tokens, owner=self.owner))
        otherwise = self._without_claim(asked, doubts, alone=len(tokens) == 1)
        made = {claim.id: claim for claim in asked.said.claims} if asked.said else {}
        for token in tokens:
            self._took(asked, Verb.CLAIM, token, made.get(token.id), otherwise=otherwise)

    async def _override(self, lock: Lock) -> None:
        doubts = self._doubts
        asked = await self.recorder.ask(claims.override(self.board, lock, owner=self.owner))
        otherwise = self._without_claim(asked, doubts)
        self._took(asked, Verb.OVERRIDE, lock, asked.said, otherwise=otherwise)

    def _took(
        self,
        asked: Asked[Any],
        verb: Verb,
        about: Token | Lock,
        claim: Claim | None,
        *,
        otherwise: Answer | None,
    ) -> None:
        if claim is not None:
            self.held.append(claim)
            self._note(asked, verb, Answer.YES, about, got=claim.fence, touch=claim.lock.etag)
        elif otherwise is not None:
            self._note(asked, verb, otherwise, about)

    def _without_claim(
        self, asked: Asked[Any], doubts: int, *, alone: bool = True
    ) -> Answer | None:
        """What it means that there is no claim; None when it means nothing."""
        if self._doubts > doubts:
            return Answer.NONE
        return None if asked.busy or not alone else Answer.NO

    # ---- keeping, and letting go

    async def _tend(self) -> None:
        done = self._remembered()
        for claim in list(self.held):
            dice = self.random.random()
            if dice < self.habits.forgets:
                self.held.remove(claim)
                self.forgotten.append((self.clock.monotonic() + 2 * LEASE, claim))
            elif dice < RENEWS:
                await self._renew(claim)
            elif dice < RELEASES:
                self.held.remove(claim)
                done.append(claim)
        while done:
            batch = {claim.id: claim for claim in done}
            await self._release(list(batch.values()))
            done = [claim for claim in done if batch[claim.id] is not claim]

    def _remembered(self) -> list[Claim]:
        """Claims that were forgotten until now: half of them are taken up as if nothing were."""
        now = self.clock.monotonic()
        late = [claim for when, claim in self.forgotten if when <= now]
        self.forgotten = [(when, claim) for when, claim in self.forgotten if when > now]
        done = [claim for claim in late if self.random.random() < 0.5]
        self.held += [claim for claim in late if claim not in done]
        return done

    async def _renew(self, claim: Claim) -> None:
        self.held.remove(claim)
        self._renewed(await self.recorder.ask(claims.renew(self.board, claim)), claim)

    def _renewed(self, asked: Asked[Claim | None], about: Claim | Lock) -> None:
        if asked.said is not None:
            self.held.append(asked.said)
            self._note(asked, Verb.RENEW, Answer.YES, about, touch=asked.said.lock.etag)
        elif not asked.busy:
            self._note(asked, Verb.RENEW, Answer.NO, about)
        elif isinstance(about, Claim):
            self.held.append(about)

    async def _release(self, claims: list[Claim]) -> None:
        asked = await self.recorder.ask(release(self.board, [finished(one) for one in claims]))
        for claim, released in zip(claims, asked.said or [], strict=True):
            answer = Answer.YES if released.how is ReleaseOutcome.DONE else Answer.NO
            self._note(asked, Verb.RELEASE, answer, claim)

    # ---- a person, and the wire

    async def _unlock(self) -> None:
        """Look at one item, and unlock it if it is held."""
        key = f"item-{self.random.randrange(self.habits.keys)}"
        found = await self.recorder.ask(self.desk.item(key))
        if found.said is None:
            return
        item = found.said
        self.recorder.read(found, item, client=self.owner)
        if item.running:
            mark = Mark(by="ann", at=self.clock.now())
            asked = await self.recorder.ask(unlock(self.desk, key, mark, fence=item.fence))
            if asked.said is not None:
                answer = Answer.YES if asked.said.changed else Answer.NO
                got = asked.said.item.fence if asked.said.changed else 0
                self._note(asked, Verb.UNLOCK, answer, item, got=got)

    async def _land(self) -> None:
        """Let a batch land that got no answer some time ago."""
        if self.table.in_flight and self.random.random() < LANDS:
            with suppress(Busy):
                await self.table.land_one()

    @property
    def _doubts(self) -> int:
        return self.table.doubts

    def _note(
        self,
        asked: Asked[Any],
        verb: Verb,
        answer: Answer,
        about: Token | Lock | Claim | Item,
        *,
        got: int = 0,
        touch: str = "",
    ) -> None:
        self.recorder.wrote(
            asked, verb, answer, client=self.owner, about=about, got=got, touch=touch
        )
