"""The time to mask the texts of a run, and how long a large result holds up the worker's loop."""

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measure import best_of, report, seconds
from blackboard.bench import RESOLVE, Measurement
from blackboard.clock import SystemChance, SystemClock
from blackboard.emitter import EventEmitter
from blackboard.handlers.registry import load
from blackboard.model import Ended, Item, Outcome, State
from blackboard.protocol.batches import lock_of
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim
from blackboard.protocol.rows import text_of
from blackboard.rules.transitions import claimed
from blackboard.runners.inline import InlineRunner
from blackboard.runners.outcome import fitting_result
from blackboard.runners.process import ProcessRunner
from blackboard.runners.secrets import Mask
from blackboard.spec import Spec, resolve
from blackboard.tables.base import MAX_VALUE
from blackboard.tables.memory import MemoryTable
from blackboard.worker.heartbeat import Heartbeat
from blackboard.worker.holdings import Holdings
from blackboard.worker.running import Runs

TIMES = 5
OUTPUT = "one line of what a handler prints, again and again\n" * 160
RESULT = [{"title": "a meeting", "url": f"https://example.org/{n}"} for n in range(500)]
JOBS = """
from blackboard import handler

@handler("returns")
def returns(item, ctx):
    return [{"n": n, "text": "x" * 50} for n in range(item.params["count"])]
"""


def measured() -> Iterator[Measurement]:
    for characters in (40, 4_000, 40_000, 130_000):
        yield Measurement(
            name=f"a secret of {characters:,}, no output",
            value=_masking(characters, ""),
            unit="ms",
            beside=_masking(40, ""),
            reference="one of 40",
        )
    for characters in (40, 4_000, 40_000, 130_000):
        yield Measurement(
            name=f"a secret of {characters:,}, 8 KB and 30 KB",
            value=_masking(characters, OUTPUT, RESULT),
            unit="ms",
            beside=_encoding(),
            reference="the result as JSON, twice",
        )
    for megabytes in (1, 15, 60):
        yield Measurement(
            name=f"a child returns {megabytes} MB",
            value=_standstill(megabytes * 14_000),
            unit="ms",
            beside=_standstill(1),
            reference="a child returns 70 bytes",
        )


def _masking(characters: int, output: str, result: Any = None) -> float:
    """Milliseconds that masking the output and the result of one run takes."""
    secret = ("0123456789abcdefghijklmnopqrstuvwxyzABCD" * (1 + characters // 40))[:characters]
    ended = Ended(outcome=Outcome.OK, output=output, result=result)
    return 1000 * best_of(
        1 if characters > 10_000 else TIMES,
        lambda: seconds(lambda: _mask(ended, Mask({"TOKEN": secret}))),
    )


def _mask(ended: Ended, mask: Mask) -> None:
    mask.output(ended.output)
    fitting_result(ended.result, mask, limit=MAX_VALUE)


def _encoding() -> float:
    return 1000 * best_of(TIMES, lambda: seconds(lambda: [text_of(RESULT), text_of(RESULT)]))


def _standstill(count: int) -> float:
    """Milliseconds that the loop of a worker stands still at the most while one run ends."""
    with TemporaryDirectory() as folder:
        Path(folder, "large.py").write_text(JOBS)
        return 1000 * best_of(3, lambda: asyncio.run(_longest_pause(Path(folder), count)))


async def _longest_pause(folder: Path, count: int) -> float:
    longest = 0.0

    async def turn() -> None:
        nonlocal longest
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0)
            longest = max(longest, time.perf_counter() - before)

    clock, holdings, events = SystemClock(), Holdings(2), EventEmitter()
    board = BoardTable(MemoryTable(clock), clock=clock, chance=SystemChance(), resolve=RESOLVE)
    ended = asyncio.Event()
    runs = Runs(
        board=board,
        handlers=load(["large.py"], folder),
        settings={},
        inline=InlineRunner(),
        process=ProcessRunner(idle=1),
        events=events,
        holdings=holdings,
        heartbeat=Heartbeat(board=board, saving=board, holdings=holdings, events=events),
        ended=lambda _held, _how: ended.set(),
        starts_again=lambda: None,
        environ={"TOKEN": "0123456789abcdefghijklmnopqrstuvwxyz"},
    )
    try:
        runs.start([_claim(1)])
        await ended.wait()
        ended.clear()
        turning = asyncio.create_task(turn())
        runs.start([_claim(count)])
        await ended.wait()
        await asyncio.sleep(0)  # its last pause is the longest, maybe
        turning.cancel()
    finally:
        await runs.close()
    return longest


def _claim(count: int) -> Claim:
    params = {"count": count, "token": "${TOKEN}"}
    now = datetime.now(UTC)
    settings = resolve([Spec(timeout="10m")])
    item = Item(
        id="x",
        type="returns",
        state=State.ACTIVE,
        spec=text_of({"params": params, "timeout": "10m"}),
        slot=now,
        ready=now,
        planned=now,
    )
    held = claimed(item, settings=settings, owner="", now=now)
    lock = lock_of(held, nonce=f"{count}", stale_after=3600.0)
    return Claim(item=held, lock=lock, settings=settings, sent=time.monotonic())


if __name__ == "__main__":
    report(measured())
