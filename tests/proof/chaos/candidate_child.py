"""A candidate in an election, in a process of its own: `candidate_child.py STORE KIND RANK`. While
it leads it appends lines to `notes`: its term, its rank, and the moments before and after it looked
whether it leads, in monotonic seconds.
"""

import asyncio
import os
import sys
from pathlib import Path
from time import monotonic
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import blackboard


async def stand(store: str, kind: Any, rank: int) -> None:
    notes = os.open("notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    rank_said = 0 if kind == "mutex" else rank
    async with (
        blackboard.open(store) as board,
        board.election("boss", kind=kind, lease="3s", rank=rank_said) as candidate,
    ):
        while True:
            term, before = await candidate.won(), monotonic()
            if not term.lost:
                os.write(notes, f"{term.fence} {rank} {before} {monotonic()}\n".encode())
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    _, of_store, of_kind, of_rank = sys.argv
    asyncio.run(stand(of_store, of_kind, int(of_rank)))
