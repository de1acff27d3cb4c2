"""What a fetch comes to: a feed's bytes, the news that nothing changed, or why there is no feed."""

import os
import tempfile
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import IO

IN_MEMORY = 32 * 1024
"""Bytes of a body that are held in memory; a longer one goes to a file."""


class Why(StrEnum):
    """Why there is no feed, as far as it decides what is shown and when to ask again."""

    TROUBLE = "trouble"
    """It may pass: the last good events stay."""
    GONE = "gone"
    """The server says that there is no such feed."""
    REFUSED = "refused"
    """It may not be fetched, or is no address: nothing of it is shown."""


@dataclass(slots=True)
class Seconds:
    """What a feed took, without the time in which it waited for its turn."""

    connect: float = 0.0
    """Name servers, connections and TLS."""
    wait: float = 0.0
    """From each request to the head of its answer."""
    read: float = 0.0
    """The body."""
    parse: float = 0.0

    @property
    def all(self) -> float:
        return self.connect + self.wait + self.read + self.parse


class FetchFailed(Exception):
    """No feed. The text is one line and never holds the address, which may be secret."""

    def __init__(
        self,
        problem: str,
        *,
        why: Why = Why.TROUBLE,
        said: str = "",
        until: datetime | None = None,
    ) -> None:
        super().__init__(problem)
        self.why = why
        self.said = said
        """What the server said of it, in its own words."""
        self.until = until
        """Before then the server does not want to be asked again."""
        self.seconds = Seconds()

    @property
    def gone(self) -> bool:
        """Whether it is of no use to wait for it."""
        return self.why is not Why.TROUBLE


class TimedOut(FetchFailed):
    """The host took too long."""


class Body:
    """Bytes that came. Many of them are put into a file, which `close` deletes: a run that waits
    for its readers holds the bodies of hundreds of feeds. `folder` is where the file is made; by
    default where the system keeps such files.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._parts: list[bytes] = []
        self._path: Path | None = None
        self._file: IO[bytes] | None = None
        self.size = 0

    def write(self, part: bytes) -> None:
        self.size += len(part)
        if self._file is None and self.size > IN_MEMORY:
            descriptor, name = tempfile.mkstemp(suffix=".body", dir=self._folder)
            self._path, self._file = Path(name), os.fdopen(descriptor, "wb")
            self._file.writelines(self._parts)
            self._parts = []
        if self._file is None:
            self._parts.append(part)
        else:
            self._file.write(part)

    def read(self) -> bytes:
        """All of it; nothing can be written any more."""
        self.finish()
        return b"".join(self._parts) if self._path is None else self._path.read_bytes()

    def finish(self) -> None:
        """No more will come."""
        if self._file is not None:
            self._file.close()

    def close(self) -> None:
        self.finish()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        self._parts, self._path = [], None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What came. `content` is None when the server says that nothing changed."""

    content: Body | None
    etag: str = ""
    modified: str = ""
    charset: str = ""
    fresh: float = 0.0
    """Seconds for which what came may be used by others too."""
    seconds: Seconds = field(default_factory=Seconds)
    way: tuple[str, ...] | None = ()
    """The addresses that were asked for it, of which its words may quote the secrets; None when
    they are lost.
    """

    @property
    def body(self) -> bytes | None:
        return self.content.read() if self.content is not None else None
