"""A small world of workers and people over one table, driven step by step from a seed.

Every request to the table is two steps: one before it and one after. Between any two of them
any other request may come, the clock may advance, a worker may die; a reply may be lost and a batch
may be applied later or never. The code that runs is the real one, without an event loop.
"""

import random
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from blackboard.errors import BlackboardError
from blackboard.model import Ended, Item, Lock, Mark, Outcome, State
from blackboard.protocol import additions, edits
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.checkpoints import save
from blackboard.protocol.claims import Claim, adopt, claim, override, pass_over, renew
from blackboard.protocol.releases import FinishedRun, release
from blackboard.rules import due as claims
from blackboard.rules.due import Move
from blackboard.simulator.changes import Saved, saved_of, text_of_saved
from blackboard.simulator.invariants import Violation
from blackboard.spec import Spec
from blackboard.table import Busy, Unknown
from tests.proof.planted.steps import PARTITION, Doing, StepClock, StepTable, step
from tests.support.boards import settings_of
from tests.support.clocks import SeededChance

LEASE = 10.0
SPECS = (
    Spec(every="30s", stale_after="10s", retries=1, backoff="1s"),
    Spec(cron="* * * * *", stale_after="10s"),
    Spec(cron="* * * * *", stale_after="10s", missed="none", missed_after="30s"),
)
TYPES = ("feed", "fenced")
NAMES = ("a", "b")
TYPES_OF = dict(zip(NAMES, TYPES, strict=True))
VERBS = ("add", "edit", "pause", "resume", "run_now", "unlock", "cancel", "remove")
TOO_LONG = 4000


@dataclass(slots=True, kw_only=True, eq=False)
class Actor:
    """A coroutine under way, and who sends its batches."""

    sender: Doing
    coroutine: Coroutine[Any, Any, None]
    worker: "Worker | None" = None


@dataclass(slots=True, kw_only=True, eq=False)
class Worker:
    """One process. When it dies, another takes its place under another name."""

    owner: str
    board: BoardTable
    nonces: set[str] = field(default_factory=set)


class World:
    """Everything that happens, from one seed."""

    def __init__(self, seed: int, *, verbs: Sequence[str] = VERBS) -> None:
        self.random = random.Random(seed)
        self.clock = StepClock()
        self.table = StepTable(self.clock, self.fate)
        self.actors: list[Actor] = []
        self.verbs = verbs
        self.people = self.random.choice((1, 2, 3))
        self.names = NAMES[: self.random.choice((1, 1, 2))]
        self.bad_luck = self.random.choice((0.05, 0.2, 0.4))
        self.boots = 0
        self.started: set[tuple[str, int]] = set()
        self.admin = self.board(seed)
        self.workers = [self.worker() for _ in range(self.random.choice((1, 2, 3)))]
        for name in self.names:
            self.finish(self.ask("add", name))

    def board(self, seed: int) -> BoardTable:
        return BoardTable(
            self.table,
            name=PARTITION,
            clock=self.clock,
            chance=SeededChance(seed),
            resolve=settings_of,
        )

    def worker(self) -> Worker:
        self.boots += 1
        seed = self.random.getrandbits(64)
        return Worker(owner=f"worker-{self.boots}", board=self.board(seed))

    # ---- what may happen next

    def go(self, steps: int) -> None:
        """So many steps, whatever they are."""
        for _ in range(steps):
            self.clock.advance(0.001)
            dice = self.random.random()
            if dice < 0.70 and self.actors:
                self.turn(self.random.choice(self.actors))
            elif dice < 0.84:
                self.walk(self.random.choice(self.workers))
            elif dice < 0.92:
                self.person()
            elif dice < 0.95 and self.table.in_flight:
                self.table.land(self.random.randrange(len(self.table.in_flight)))
            elif dice < 0.99:
                self.clock.advance(self.random.choice((1.0, 0.8 * LEASE, LEASE + 1, 40.0)))
            elif dice < 0.995:
                self.crash(self.random.choice(self.workers))

    def fate(self) -> str:
        """Of one commit."""
        if self.random.random() >= self.bad_luck:
            return "answered"
        return self.random.choice(("lost", "lost", "late", "late", "never", "busy"))

    def turn(self, actor: Actor) -> None:
        """One step of one actor."""
        self.table.sender = actor.sender
        try:
            actor.coroutine.send(None)
        except StopIteration:
            self.actors.remove(actor)

    def finish(self, actor: Actor) -> None:
        """All its steps, without those of others in between."""
        for _ in range(TOO_LONG):
            if actor not in self.actors:
                return
            self.turn(actor)
        raise Violation("NO END", actor.sender.task)

    def start(self, actor: Actor) -> Actor:
        self.actors.append(actor)
        return actor

    def crash(self, worker: Worker) -> None:
        """Kill -9, and a new process in its place."""
        for actor in [one for one in self.actors if one.worker is worker]:
            self.actors.remove(actor)
            actor.coroutine.close()
        self.workers[self.workers.index(worker)] = self.worker()

    # ---- workers

    def walk(self, worker: Worker) -> Actor | None:
        """A worker begins a walk, if it is not on one."""
        if any(one.worker is worker and one.sender.task == "walk" for one in self.actors):
            return None
        sender = Doing(name=worker.owner, task="walk")
        return self.start(Actor(sender=sender, coroutine=self.walks(worker), worker=worker))

    async def walks(self, worker: Worker) -> None:
        board = worker.board
        try:
            now = await board.table.now()
            found = [row async for row in board.walk(0, until=now)]
            for lock in (row for row in found if isinstance(row, Lock)):
                await self.take_over(worker, lock)
            tokens = []
            for token in (row for row in found if not isinstance(row, Lock)):
                settings = settings_of(token.type, token.spec)
                move = claims.decide_token(token, now=now, types=TYPES, settings=settings)
                if move in (Move.SKIP, Move.PUT_OFF):
                    await pass_over(board, token, move=move)
                elif move is Move.RUN:
                    tokens.append(token)
            chosen = tokens[: self.random.choice((1, 2))]
            if chosen:
                answer = await claim(board, chosen, owner=worker.owner)
                for made in answer.claims:
                    self.run(worker, made)
        except Busy:
            return

    async def take_over(self, worker: Worker, lock: Lock) -> None:
        board = worker.board
        move = claims.decide_lock(
            lock,
            owner=worker.owner,
            types=TYPES,
            in_flight=board.in_flight | worker.nonces,
            resolution=board.table.resolution,
        )
        made: Claim | None = None
        if move is Move.ADOPT:
            made = await adopt(board, lock)
        elif move is Move.OVERRIDE:
            made = await override(board, lock, owner=worker.owner)
        if made is not None:
            self.run(worker, made)

    def run(self, worker: Worker, made: Claim) -> None:
        if (made.id, made.fence) in self.started:
            raise Violation("TWICE", f"started fence {made.fence}", item=made.id)
        self.started.add((made.id, made.fence))
        self.table.checkpoints.begins(made.id, made.fence, saved_of(made.item))
        worker.nonces.add(made.nonce)
        sender = Doing(name=worker.owner, task="run")
        self.start(Actor(sender=sender, coroutine=self.runs(worker, made), worker=worker))

    async def runs(self, worker: Worker, made: Claim) -> None:
        outcome = Outcome(self.random.choice(("ok", "ok", "ok", "failed", "timeout", "cancelled")))
        for _ in range(self.random.choice((0, 0, 1, 2))):
            for _ in range(self.random.choice((1, 5))):
                await step()
            try:
                held = await self.random.choice((renew, self.saves))(worker.board, made)
            except Busy:
                continue
            if held is None:
                break
            made = held
        result = made.fence if outcome is Outcome.OK else None
        finished = FinishedRun(
            claim=made,
            ended=Ended(outcome=outcome, result=result),
            requeue=outcome is Outcome.CANCELLED,
        )
        await release(worker.board, [finished])
        worker.nonces.discard(made.nonce)

    async def saves(self, board: BoardTable, made: Claim) -> Claim | None:
        saved = Saved(saved_of(made.item).number + 1, made.fence)
        held = await save(board, made, text_of_saved(saved))
        if held is not None:
            self.table.checkpoints.acknowledged(made.id, saved)
        return held

    # ---- people

    def person(self) -> None:
        if sum(one.sender.is_person for one in self.actors) < self.people:
            self.ask(self.random.choice(self.verbs), self.random.choice(self.names))

    def ask(self, verb: str, name: str) -> Actor:
        sender = Doing(name="ann", verb=verb, task=verb)
        return self.start(Actor(sender=sender, coroutine=self.asks(sender, name)))

    async def asks(self, sender: Doing, name: str) -> None:
        """One request. It may be refused, or find nothing to do."""
        mark = Mark(by="ann", at=self.clock.now())
        try:
            match sender.verb:
                case "add":
                    spec = self.random.choice(SPECS)
                    await additions.add(
                        self.admin, additions.New(id=name, type=TYPES_OF[name], spec=spec)
                    )
                case "edit":
                    spec = self.random.choice(SPECS)
                    await edits.edit(self.admin, name, lambda *_: spec)
                case "pause" | "resume":
                    await getattr(edits, sender.verb)(self.admin, name, mark)
                case "unlock" | "cancel":
                    item = await self.admin.item(name)
                    if item is not None and item.running:
                        sender.fence = item.fence
                        verb = getattr(edits, sender.verb)
                        await verb(self.admin, name, mark, fence=item.fence)
                case verb:
                    await getattr(edits, verb)(self.admin, name)
        except (BlackboardError, Busy, Unknown):  # nobody may know whether it is done
            return

    # ---- the end

    def close(self) -> None:
        """No actor goes any further."""
        while self.actors:
            self.actors.pop().coroutine.close()

    def drain(self) -> None:
        """Faults stop: everything under way ends, and every active item is run again."""
        self.bad_luck = 0.0
        while self.table.in_flight:
            self.table.land(0)
        self.settle()
        for worker in self.workers:
            walk = self.walk(worker)
            assert walk is not None, "no worker is on a walk"
            self.finish(walk)
        living = {worker.owner: worker.nonces for worker in self.workers}
        for lock in self.locks():
            if lock.owner in living and lock.nonce not in living[lock.owner]:
                raise Violation("ORPHAN", "its worker does not know it", item=lock.id)
        self.settle()
        fences = {item.id: item.fence for item in self.items()}
        for _ in range(10):
            self.clock.advance(19.0)
            for worker in (*self.workers, *self.workers):
                self.walk(worker)
                self.settle()
        for item in self.items():
            if item.state is State.ACTIVE and item.fence == fences[item.id]:
                raise Violation("STUCK", "it is active and is not run", item=item.id)

    def settle(self) -> None:
        """All that is under way ends."""
        while self.actors:
            self.finish(self.actors[0])

    def items(self) -> list[Item]:
        return [one.item for one in self.table.shadows.of.values() if one.item is not None]

    def locks(self) -> list[Lock]:
        return [one.lock for one in self.table.shadows.of.values() if one.lock is not None]
