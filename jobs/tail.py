"""Pump `tail`: follows append-only files, and gives their new lines to a command, in order.

    [jobs.tail]
    files = ["/var/log/app/*.log"]    globs; each file is a partition
    command = ["./ship"]              reads whole lines; exit code 0: they are done with
    batch = 65536                     bytes that it is given at the most, one longer line apart

docs/sharing.md says what is promised. The command has in its environment BLACKBOARD_PARTITION,
BLACKBOARD_INODE (another for each file of that name) and BLACKBOARD_POSITION (bytes from its
beginning), which name a batch, so that a command may refuse one that it has processed already; and
BLACKBOARD_FENCE, which rises from one holder to the next. It does not get the connection string of
the store.

A file is looked for on the worker's own machine, or where all workers find the same. New files are
found within a minute. It is the one that was found if it has that inode, and those bytes at its
beginning: one that was cut short, or copied and emptied, is read from its beginning, and what was
not read of it is lost. So is what is written to a file after the new one has lines, and all of a
file that was never looked at: rotate no more often than it is read.
"""

import asyncio
import glob
import hashlib
import json
import os
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec

from blackboard import BadInput, Context, Item, pump
from blackboard.inputs import check_names
from blackboard.named_files import regular_file
from blackboard.phrases import command
from blackboard.runners.commands import child_environment, end_command, how_it_ended, start_command
from blackboard.runners.guard_process import Watch

PAUSE = 0.5
"""Seconds to the next look at a file without new lines."""
USUAL_BATCH = 65_536
BLOCK = 65_536
"""Bytes of a line that is too long that are read at a time."""
LONGEST_LINE = 16 << 20
"""Bytes of a line, its end included."""
HEAD = 1_024
"""Bytes at the beginning of a file, by which it is recognised."""
Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""As many as a file can have."""
SHOWN = 200
"""Characters that are logged of a checkpoint that `tail` did not save."""


class CommandFailed(Exception):
    """The command did not take a batch: how, in words."""


class CannotFollow(Exception):
    """A file cannot be followed any further: which one, why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TailSettings:
    """`[jobs.tail]`, checked."""

    files: Sequence[str]
    command: Sequence[str]
    batch: int


def settings_of(table: Mapping[str, Any]) -> TailSettings:
    """Raises BadInput naming the setting."""
    check_names(table, TailSettings.__slots__, of="tail", where="jobs.tail.")
    batch = table.get("batch", USUAL_BATCH)
    if type(batch) is not int or not 1 <= batch <= LONGEST_LINE:
        raise BadInput("jobs.tail.batch", f"{batch!r} is not a size", f"1 to {LONGEST_LINE} bytes")
    return TailSettings(
        files=_texts(table, "files", 'such as ["/var/log/app/*.log"]'),
        command=_texts(table, "command", 'such as ["./ship", "--json"]'),
        batch=batch,
    )


def _texts(table: Mapping[str, Any], name: str, remedy: str) -> Sequence[str]:
    texts = table.get(name)
    if not isinstance(texts, list) or not texts:
        raise BadInput(f"jobs.tail.{name}", "is missing or no list", remedy)
    for one in texts:
        if not isinstance(one, str) or not one or "\0" in one:
            raise BadInput(f"jobs.tail.{name}", f"{one!r} is not text", remedy)
    return texts


def files_of(table: Mapping[str, Any]) -> list[str]:
    """The files that there are, each once: the partitions."""
    paths = {path for pattern in settings_of(table).files for path in glob.glob(pattern)}  # noqa: PTH207 - they may be absolute
    return sorted(path for path in paths if Path(path).is_file())


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The place from which a file is read on, as it is saved."""

    position: Bytes = 0
    """From the beginning of the file."""
    inode: Annotated[int, msgspec.Meta(ge=0)] = 0
    """0: no file was found yet."""
    head: str = ""
    """A digest of the first bytes that were read or, as long as none were, found."""
    found: Bytes = 0
    """Those that were there when the file was found, as long as nothing was read."""

    @property
    def known(self) -> int:
        """Bytes that the file has at least, if it is the same."""
        return max(self.position, self.found)

    def is_in(self, file: BinaryIO) -> bool:
        """Whether this is the file that was found, and still has the bytes that it had."""
        status = os.fstat(file.fileno())
        if not self.known or status.st_ino != self.inode or status.st_size < self.known:
            return False
        return _head(file, self.known) == self.head


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The lines that were found at a place."""

    lines: bytes = b""
    behind: Place
    """Where a file is read on after the lines."""


@pump("tail", partitions=files_of)
async def follow(file: Item, ctx: Context) -> None:
    """Gives the new lines of a file to the command, until the partition goes elsewhere."""
    settings = settings_of(ctx.settings)
    place, odd = _saved(ctx.checkpoint)
    if odd:
        ctx.log.warning("%s is read from its beginning: %s", file.id, odd)
    async with _guarded() as watch:
        while not ctx.stopping:
            batch = await asyncio.to_thread(next_lines, file.id, place, settings.batch)
            if batch.lines:
                about = {
                    "BLACKBOARD_PARTITION": file.id,
                    "BLACKBOARD_INODE": str(place.inode),
                    "BLACKBOARD_POSITION": str(place.position),
                    "BLACKBOARD_FENCE": str(ctx.fence),
                }
                await _give(batch.lines, settings.command, about, watch)
            elif batch.behind == place:
                await ctx.stopping.wait(PAUSE)
                continue
            elif place.known:
                _explain(file.id, place, batch.behind, ctx)
            place = batch.behind
            await ctx.save(msgspec.to_builtins(place))


def _explain(path: str, place: Place, behind: Place, ctx: Context) -> None:
    """Logs why a file is read from its beginning."""
    if behind.inode != place.inode:
        ctx.log.info("%s was made anew: it is read from its beginning", path)
        return
    why = "its beginning is not the one that its checkpoint says"
    if behind.known < place.known:
        why = f"it has {behind.known} bytes, and was read on at byte {place.known}"
    ctx.log.warning("%s is read from its beginning: %s", path, why)


def _saved(checkpoint: Any) -> tuple[Place, str]:
    """Where a file is read on. What `tail` did not save is not a place: the file is read from its
    beginning, because that loses nothing. Returns what is wrong with it, too; "" for nothing.
    """
    if checkpoint is None:
        return Place(), ""
    shown = repr(checkpoint)[:SHOWN]
    try:
        return msgspec.convert(checkpoint, Place), ""
    except (msgspec.ValidationError, RecursionError):
        return Place(), f"its checkpoint {shown} is not a place in a file"


def next_lines(path: str, place: Place, batch: int) -> Batch:
    """The whole lines from a place on: as many as fit a batch, or one that does not; and the place
    behind them. No lines and the same place where there are none yet, or the file is not there; no
    lines and the beginning of another file where that is found. Raises CannotFollow for a line that
    is too long, and for what is not a file.
    """
    with ExitStack() as stack:
        file = _opened(path, stack)
        if file is not None and place.is_in(file):
            return _batch(path, file, place, batch)
        is_followed_by = file is not None and os.fstat(file.fileno()).st_size > 0
        moved = _moved(path, place, stack)
        if moved is not None:
            rest = _batch(path, moved, place, batch)
            if not rest.lines and is_followed_by:
                rest = _last_line(path, moved, place, batch)
            if rest.lines or not is_followed_by:
                return rest
        return Batch(behind=_beginning(file) if file is not None and is_followed_by else place)


def _batch(path: str, file: BinaryIO, place: Place, batch: int) -> Batch:
    """The whole lines at a place of the file that was found."""
    file.seek(place.position)
    lines = file.read(batch)
    if len(lines) == batch and b"\n" not in lines:
        lines += file.readline(LONGEST_LINE + 1 - batch)
        if len(lines) > LONGEST_LINE:
            raise CannotFollow(_too_long(path, file, place))
    lines = lines[: lines.rfind(b"\n") + 1]
    if not lines:
        return Batch(behind=place)
    return Batch(lines=lines, behind=_at(file, place.position + len(lines), place.inode))


def _last_line(path: str, file: BinaryIO, place: Place, batch: int) -> Batch:
    """A last line that is never completed, with an end added; or lines that were just completed."""
    file.seek(place.position)
    rest = file.read()
    if not rest:
        return Batch(behind=place)
    if b"\n" in rest:
        return _batch(path, file, place, batch)
    return Batch(lines=rest + b"\n", behind=_at(file, place.position + len(rest), place.inode))


def _too_long(path: str, file: BinaryIO, place: Place) -> str:
    """An error that names the file, and the command that leaves out the line that is too long."""
    file.seek(place.position)
    end = place.position
    while part := file.readline(BLOCK):
        end += len(part)
        if part.endswith(b"\n"):
            break
    behind = json.dumps(msgspec.to_builtins(_at(file, end, place.inode)))
    edit = command(f"edit --exact --checkpoint {shlex.quote(behind)}", path, board="BOARD.tail")
    return (
        f"{path} has a line at byte {place.position} that is longer than {LONGEST_LINE} bytes "
        f"({edit} goes on behind it)"
    )


def _at(file: BinaryIO, position: int, inode: int) -> Place:
    """A place behind what was read."""
    return Place(position=position, inode=inode, head=_head(file, position))


def _beginning(file: BinaryIO) -> Place:
    status = os.fstat(file.fileno())
    return Place(inode=status.st_ino, head=_head(file, status.st_size), found=status.st_size)


def _opened(path: str, stack: ExitStack) -> BinaryIO | None:
    """The file of a name, where there is one. Raises CannotFollow for what is not a file."""
    try:
        return stack.enter_context(regular_file(Path(path)))
    except FileNotFoundError:
        return None
    except OSError:
        if Path(path).is_file():
            raise
        remedy = command("rm --exact", path, board="BOARD.tail")
        problem = f"{path} is no file (move it away, or follow it no more: {remedy})"
        raise CannotFollow(problem) from None


def _moved(path: str, place: Place, stack: ExitStack) -> BinaryIO | None:
    """The file that was found, under another name of its folder."""
    with suppress(FileNotFoundError), os.scandir(Path(path).resolve().parent) as entries:
        for entry in entries:
            if place.known and entry.inode() == place.inode and entry.is_file():
                file = _opened(entry.path, stack)
                if file is not None and place.is_in(file):
                    return file
    return None


def _head(file: BinaryIO, position: int) -> str:
    """A digest of the beginning of a file, up to a position at the most."""
    file.seek(0)
    return hashlib.sha256(file.read(min(position, HEAD))).hexdigest()[:32]


_WATCHES = dict[asyncio.AbstractEventLoop, tuple[Watch, int]]()
"""The guard of the commands that are started on a loop, and how many pumps use it."""


@asynccontextmanager
async def _guarded() -> AsyncIterator[Watch]:
    """The guard that ends commands together with this worker. One is enough for all pumps."""
    loop = asyncio.get_running_loop()
    watch, pumps = _WATCHES.get(loop) or (Watch(), 0)
    _WATCHES[loop] = watch, pumps + 1
    watch.begin()
    try:
        yield watch
    finally:
        watch, pumps = _WATCHES.pop(loop)
        if pumps > 1:
            _WATCHES[loop] = watch, pumps - 1
        else:
            await watch.close()


async def _give(
    lines: bytes, command: Sequence[str], about: Mapping[str, str], watch: Watch
) -> None:
    """Raises CommandFailed for how the command ended, BadInput where it cannot be started."""
    try:
        process = await start_command(
            command, stdin=asyncio.subprocess.PIPE, env={**child_environment(os.environ), **about}
        )
    except OSError as problem:
        words = f"cannot run {command[0]!r}: {problem.strerror}"
        raise BadInput("jobs.tail.command", words) from None
    watch.keep(process.pid)
    try:
        try:
            await process.communicate(lines)
        finally:
            await end_command(process)
    finally:
        watch.forget(process.pid)
    if process.returncode:
        raise CommandFailed(f"the command failed: {how_it_ended(process.returncode)}")
