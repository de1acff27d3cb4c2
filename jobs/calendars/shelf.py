"""Feeds that one city has fetched and another may use, in the folder that both write to.

What is fetched lies there for as long as its server calls it fresh. A city uses the same fetch
once: when it runs again it asks again, so what a person has mended shows at once. Cities that want
the same feed at the same time wait for the first of them. All of this is best effort: what cannot
be read or written here is fetched.
"""

import contextlib
import hashlib
import os
import secrets
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from blackboard.clock import Clock, SystemClock

from .fetched import Body, Fetched

FOLDER = ".fetched"
_PAUSE = 0.1
_KEPT = timedelta(hours=2)
"""What is older is deleted: nothing is fresh for so long, and no run takes so long."""


class _Head(msgspec.Struct):
    """What is known of a fetch. `users` are the cities that have used it."""

    at: datetime
    fresh: float
    users: list[str]
    etag: str = ""
    modified: str = ""
    charset: str = ""
    body: str = ""
    """The name of the file with its bytes; "" when the server said that nothing changed."""


class Shelf:
    """The fetches of a folder, as one city sees them. Without a folder there are none."""

    def __init__(
        self, folder: Path | None = None, user: str = "", *, clock: Clock | None = None
    ) -> None:
        self.folder = folder
        self._user = user
        self._clock = clock or SystemClock()

    def tidied(self) -> "Shelf":
        """The shelf, without what was left on it; one without a folder if it cannot be used."""
        if self.folder is None:
            return self
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            oldest = (self._clock.now() - _KEPT).timestamp()
            for path in self.folder.iterdir():
                if path.lstat().st_mtime < oldest:
                    path.unlink(missing_ok=True)
        except OSError:
            return Shelf(clock=self._clock)
        return self

    async def taken(self, key: str, conditions: dict[str, str], wait: float) -> Fetched | None:
        """What another city has fetched and this one has not used, if it is fresh. Waits for as
        many seconds while one fetches it.
        """
        if self.folder is None:
            return None
        waited = 0.0
        while waited < wait and self._under_way(key, wait):
            await self._clock.sleep(_PAUSE)
            waited += _PAUSE
        return self._usable(key, conditions.get("If-None-Match", ""))

    def begin(self, key: str) -> bool:
        """Has others wait for this fetch. Whether `end` is to be called."""
        if self.folder is None:
            return False
        with contextlib.suppress(OSError):
            self._write(self._path(key, ".lock"), self._user.encode("utf-8", "surrogatepass"))
            return True
        return False

    def end(self, key: str) -> None:
        with contextlib.suppress(OSError):
            self._path(key, ".lock").unlink(missing_ok=True)

    def put(self, key: str, fetched: Fetched) -> None:
        """Lays down what was fetched, for other cities."""
        of_use = fetched.content is not None or fetched.etag
        if self.folder is None or fetched.fresh <= 0 or not of_use:
            return
        head = _Head(
            at=self._clock.now(),
            fresh=fetched.fresh,
            users=[self._user],
            etag=fetched.etag,
            modified=fetched.modified,
            charset=fetched.charset,
        )
        with contextlib.suppress(OSError):
            if fetched.content is not None:
                head.body = f"{_name(key)}.{secrets.token_hex(6)}.kept"
                self._write(self.folder / head.body, fetched.content.read())
            self._write_head(key, head)

    def _under_way(self, key: str, longest: float) -> bool:
        """Whether another city fetches it just now. One that died is not waited for for long."""
        path = self._path(key, ".lock")
        try:
            begun = path.stat().st_mtime
            mine = path.read_bytes() == self._user.encode("utf-8", "surrogatepass")
        except OSError:
            return False
        return not mine and abs(self._clock.now().timestamp() - begun) < longest

    def _usable(self, key: str, etag: str) -> Fetched | None:
        assert self.folder is not None
        try:
            head = msgspec.json.decode(self._path(key, ".json").read_bytes(), type=_Head)
            age = (self._clock.now() - head.at).total_seconds()
            if not 0 <= age < head.fresh or self._user in head.users:
                return None
            content = None
            if head.body:
                content = Body(self.folder)
                content.write((self.folder / head.body).read_bytes())
            elif not etag or etag != head.etag:
                return None
            head.users.append(self._user)
            self._write_head(key, head)
        except (OSError, ValueError, RecursionError):
            return None
        return Fetched(
            content=content,
            etag=head.etag,
            modified=head.modified,
            charset=head.charset,
            way=None,
        )

    def _write_head(self, key: str, head: _Head) -> None:
        self._write(self._path(key, ".json"), msgspec.json.encode(head))

    def _write(self, path: Path, content: bytes) -> None:
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(6)}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as sink:
            sink.write(content)
        temporary.replace(path)

    def _path(self, key: str, ending: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{_name(key)}{ending}"


def _name(key: str) -> str:
    """Stands for an address, which may hold secrets."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
