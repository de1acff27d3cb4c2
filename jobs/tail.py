"""Pump `tail`: follows append-only files, and gives their new lines to a command, in order.

    [jobs.tail]
    files = ["/var/log/app/*.log"]    globs; each file is a partition
    command = ["./ship"]              reads whole lines; exit code 0: they are done with
    batch = 65536                     bytes that it is given at the most, one longer line apart

Each batch is given once, and again when its command fails or its worker dies before the place
behind it was saved: at least once, and in order. Whoever needs it exactly once lets the command
refuse what it has had: BLACKBOARD_PARTITION and BLACKBOARD_POSITION (bytes from the beginning of
the file) name a batch, and BLACKBOARD_FENCE rises from one holder to the next. The command does not
get the connection string of the store.

A file is looked for on the worker's own machine, or where all workers find the same. New files are
found within a minute. A file that became shorter is read from its beginning: rotate by moving a
file away and making it anew. What has no end of line yet waits for it.
"""

import asyncio
import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blackboard import BadInput, Context, Item, pump
from blackboard.tables.azure_address import child_environment

PAUSE = 0.5
"""Seconds to the next look at a file without new lines."""
USUAL_BATCH = 65_536
LONGEST_LINE = 16 << 20
"""Bytes."""


class CommandFailed(Exception):
    """The command did not take a batch: how, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TailSettings:
    """`[jobs.tail]`, checked."""

    files: Sequence[str]
    command: Sequence[str]
    batch: int


def settings_of(table: Mapping[str, Any]) -> TailSettings:
    """Raises BadInput naming the setting."""
    for name in table:
        if name not in TailSettings.__slots__:
            taken = ", ".join(TailSettings.__slots__)
            raise BadInput(f"jobs.tail.{name}", "means nothing to tail", f"it takes {taken}")
    batch = table.get("batch", USUAL_BATCH)
    if type(batch) is not int or not 1 <= batch <= LONGEST_LINE:
        raise BadInput("jobs.tail.batch", f"{batch!r} is no size", f"1 to {LONGEST_LINE} bytes")
    return TailSettings(
        files=_texts(table, "files", 'such as ["/var/log/app/*.log"]'),
        command=_texts(table, "command", 'such as ["./ship", "--json"]'),
        batch=batch,
    )


def _texts(table: Mapping[str, Any], name: str, remedy: str) -> Sequence[str]:
    found = table.get(name)
    if not isinstance(found, list) or not found:
        raise BadInput(f"jobs.tail.{name}", "is missing or no list", remedy)
    for one in found:
        if not isinstance(one, str) or not one or "\0" in one:
            raise BadInput(f"jobs.tail.{name}", f"{one!r} is no text", remedy)
    return found


def files_of(table: Mapping[str, Any]) -> list[str]:
    """The files that there are, each once: the partitions."""
    found = {path for pattern in settings_of(table).files for path in glob.glob(pattern)}  # noqa: PTH207 - they may be absolute
    return sorted(path for path in found if Path(path).is_file())


@pump("tail", partitions=files_of)
async def follow(file: Item, ctx: Context) -> None:
    """Give the new lines of a file to the command, until the partition goes elsewhere."""
    settings = settings_of(ctx.settings)
    position = ctx.checkpoint or 0
    while not ctx.stopping:
        size = await asyncio.to_thread(_size, file.id)
        if size is not None and size < position:
            ctx.log.warning("%s became shorter: it is read from its beginning", file.id)
            position = 0
        lines = await asyncio.to_thread(lines_at, file.id, position, settings.batch)
        if not lines:
            await ctx.stopping.wait(PAUSE)
            continue
        await _give(lines, settings.command, file.id, position, ctx.fence)
        position += len(lines)
        await ctx.save(position)


def _size(path: str) -> int | None:
    try:
        return Path(path).stat().st_size
    except FileNotFoundError:
        return None


def lines_at(path: str, position: int, batch: int) -> bytes:
    """The whole lines at a place of a file: as many as fit a batch, or one that does not; none
    where the file is not there. Raises CommandFailed for a line that is too long.
    """
    try:
        with Path(path).open("rb") as file:
            file.seek(position)
            found = file.read(batch)
            end = found.rfind(b"\n") + 1
            while not end and len(found) >= batch and (more := file.read(batch)):
                found += more
                end = found.find(b"\n") + 1
                if not end and len(found) > LONGEST_LINE:
                    raise CommandFailed(f"a line at byte {position} is longer than {LONGEST_LINE}")
    except FileNotFoundError:
        return b""
    return found[:end]


async def _give(
    lines: bytes, command: Sequence[str], partition: str, position: int, fence: int
) -> None:
    """Raises CommandFailed for how the command ended, BadInput where it cannot be started."""
    about = {
        "BLACKBOARD_PARTITION": partition,
        "BLACKBOARD_POSITION": str(position),
        "BLACKBOARD_FENCE": str(fence),
    }
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            env={**child_environment(os.environ), **about},
        )
    except OSError as problem:
        what = f"cannot run {command[0]!r}: {problem.strerror}"
        raise BadInput("jobs.tail.command", what) from None
    try:
        await process.communicate(lines)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise CommandFailed(f"the command ended with exit code {process.returncode}")
