"""Pump `tail`: follows append-only files, and gives their new lines to a command, in order.

    [jobs.tail]
    files = ["/var/log/app/*.log"]    globs; each file is a partition
    command = ["./ship"]              reads whole lines; exit code 0: they are done with
    batch = 65536                     bytes that it is given at the most, one longer line apart

Each batch is given once, and again when its command fails or its worker dies before the place
behind it was saved: at least once, and in order. For exactly once, the command has to refuse a
batch that it has processed already: BLACKBOARD_PARTITION, BLACKBOARD_INODE (another for each file
of that name) and BLACKBOARD_POSITION (bytes from its beginning) name a batch, and BLACKBOARD_FENCE
rises from one holder to the next. The command does not get the connection string of the store.

The command runs in a session of its own. What it has started in its process group is killed when
it has ended, and with it when its partition is stopped, or its worker ends, for whatever reason.
The command of a worker that stands still (SIGSTOP, a paused machine) may go on beside its
successor: let it refuse a BLACKBOARD_FENCE lower than one that it has seen.

A file is looked for on the worker's own machine, or where all workers find the same. New files are
found within a minute. What has no end of line yet waits for it. A line of more than 16 MiB is not
given: the pump fails, and its error says by which command the line is left out. It fails as well
while something else than a file, such as a FIFO or a directory, has the name of one.

Rotate by moving a file away, within its folder, to a name that is not followed, and making it anew:
what was not read of the old one is given first, then the new one from its beginning. A last line of
the old one that has no end is given with one, so that it is no part of the next line. That is so
when no batch of the old one was taken yet, too: where a file begins is saved before its first batch
is given. A file is the one that was found if it has that inode, and those bytes at its beginning;
so one that was cut short, or copied and emptied, is read from its beginning, too, and what was not
read of it is lost. So is what is written to a file after the new one has lines, and all of a file
that was never looked at: rotate no more often than it is read.
"""

import asyncio
import glob
import hashlib
import json
import os
import shlex
import stat
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from blackboard import BadInput, Context, Item, pump
from blackboard.inputs import check_names
from blackboard.phrases import command
from blackboard.runners.commands import child_environment, end_command, how_it_ended, start_command
from blackboard.runners.guard_process import Watch

PAUSE = 0.5
"""Seconds to the next look at a file without new lines."""
USUAL_BATCH = 65_536
BLOCK = 65_536
"""Bytes of a long line that are read at a time, at the least."""
LONGEST_LINE = 16 << 20
"""Bytes of a line, its end included."""
HEAD = 1_024
"""Bytes at the beginning of a file, by which it is recognised."""
FARTHEST = 2**63 - 1
"""The last byte that a file can have."""
SHOWN = 200
"""Characters that are logged of a checkpoint that `tail` did not save."""
_KINDS = {stat.S_ISFIFO: "a FIFO", stat.S_ISDIR: "a directory", stat.S_ISSOCK: "a socket"}


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

    position: int = 0
    """Bytes from the beginning of the file."""
    inode: int = 0
    """0: no file was found yet."""
    head: str = ""
    """A digest of what was read, of its first bytes at the most; where nothing was read, of the
    bytes that were there when the file was found.
    """
    found: int = 0
    """Bytes that were there when the file was found, as long as nothing was read."""

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
    searched: int = 0
    """Bytes at that place in which no line ends: where nothing has changed, they need not be
    searched again.
    """


@pump("tail", partitions=files_of)
async def follow(file: Item, ctx: Context) -> None:
    """Gives the new lines of a file to the command, until the partition goes elsewhere."""
    settings = settings_of(ctx.settings)
    place, odd = _saved(ctx.checkpoint)
    if odd:
        ctx.log.warning("%s is read from its beginning: %s", file.id, odd)
    searched = 0
    async with _guarded() as watch:
        while not ctx.stopping:
            batch = await asyncio.to_thread(next_lines, file.id, place, settings.batch, searched)
            searched = batch.searched
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
        place = msgspec.convert(checkpoint, Place)
    except (msgspec.ValidationError, RecursionError):
        return Place(), f"its checkpoint {shown} is not a place in a file"
    if place.inode < 0 or not 0 <= place.position <= FARTHEST or not 0 <= place.found <= FARTHEST:
        return Place(), f"its checkpoint {shown} has a number that is out of range"
    return place, ""


def next_lines(path: str, place: Place, batch: int, searched: int = 0) -> Batch:
    """The whole lines from a place on: as many as fit a batch, or one that does not; and the place
    behind them. No lines and the same place where there are none yet, or the file is not there; no
    lines and the beginning of another file where that is found. `searched`: as found at this place
    before. Raises CannotFollow for a line that is too long, and for what is not a file.
    """
    with ExitStack() as stack:
        file = _opened(path, stack)
        if file is not None and place.is_in(file):
            return _batch(path, file, place, batch, searched)
        is_followed_by = file is not None and os.fstat(file.fileno()).st_size > 0
        moved = _moved(path, place, stack)
        if moved is not None:
            rest = _batch(path, moved, place, batch, searched)
            if not rest.lines and is_followed_by:
                rest = _last_line(path, moved, place, batch)
            if rest.lines or not is_followed_by:
                return rest
        return Batch(behind=_beginning(file) if file is not None and is_followed_by else place)


def _batch(path: str, file: BinaryIO, place: Place, batch: int, searched: int) -> Batch:
    """The whole lines at a place of the file that was found."""
    left = os.fstat(file.fileno()).st_size - place.position
    lines, searched = lines_at(file, place.position, batch, searched if searched <= left else 0)
    if searched > LONGEST_LINE:
        raise CannotFollow(_too_long(path, file, place))
    if not lines:
        return Batch(behind=place, searched=searched)
    return Batch(lines=lines, behind=_at(file, place.position + len(lines), place.inode))


def _last_line(path: str, file: BinaryIO, place: Place, batch: int) -> Batch:
    """A last line that is never completed, with an end added; or lines that were just completed."""
    file.seek(place.position)
    rest = file.read()
    if not rest:
        return Batch(behind=place)
    if b"\n" in rest:
        return _batch(path, file, place, batch, 0)
    return Batch(lines=rest + b"\n", behind=_at(file, place.position + len(rest), place.inode))


def _too_long(path: str, file: BinaryIO, place: Place) -> str:
    """An error that names the file, and the command that leaves out the line that is too long."""
    file.seek(place.position)
    end = place.position
    while more := file.read(BLOCK):
        length = more.find(b"\n") + 1
        end += length or len(more)
        if length:
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
    """The file of a name, where there is one. Waits for no program that writes into a FIFO."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError:
        _check_kind(path, Path(path).stat().st_mode)
        raise
    try:
        _check_kind(path, os.fstat(number).st_mode)
    except CannotFollow:
        os.close(number)
        raise
    return stack.enter_context(os.fdopen(number, "rb"))


def _check_kind(path: str, mode: int) -> None:
    """Raises CannotFollow for what is not a file."""
    if stat.S_ISREG(mode):
        return
    kind = next((words for is_one, words in _KINDS.items() if is_one(mode)), "a device")
    remedy = command("rm --exact", path, board="BOARD.tail")
    raise CannotFollow(f"{path} is {kind}, no file (move it away, or follow it no more: {remedy})")


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


def lines_at(file: BinaryIO, position: int, batch: int, searched: int = 0) -> tuple[bytes, int]:
    """The whole lines at a place of a file, and 0. Where there are none, or the first one is longer
    than `LONGEST_LINE`: nothing, and how many bytes were searched for its end. `searched`: so many
    were before.
    """
    file.seek(position + searched)
    if searched < batch:
        more = file.read(batch - searched)
        if end := more.rfind(b"\n") + 1:
            return _read(file, position, searched + end) if searched else more[:end], 0
        searched += len(more)
        if searched < batch:
            return b"", searched
    while searched <= LONGEST_LINE and (more := file.read(max(batch, BLOCK))):
        end = more.find(b"\n") + 1
        searched += end or len(more)
        if end and searched <= LONGEST_LINE:
            return _read(file, position, searched), 0
    return b"", searched


def _read(file: BinaryIO, position: int, length: int) -> bytes:
    """Lines of a file; nothing where they are no longer there."""
    file.seek(position)
    lines = file.read(length)
    return lines if lines.endswith(b"\n") else b""


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
