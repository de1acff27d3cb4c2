"""A worker that was written from docs/rows.md alone, with nothing but azure-data-tables.

It uses nothing of the package, only what the page says about rows. It takes items that have an
`every` and a `stale_after`, and all its runs end `ok`.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import Any
from uuid import uuid4

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ServiceResponseError
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.data.tables import TableTransactionError, UpdateMode
from azure.data.tables.aio import TableClient

Entity = dict[str, Any]
Op = tuple[str, str, Entity, str]
"""Verb, key, columns, and the expected etag: an etag, `*`, or "" for an Insert. A Delete has the
column `item` alone."""


def encoded(item_id: str) -> str:
    raw = item_id.encode()
    text = "".join(
        chr(byte) if re.match(rb"[A-Za-z0-9._-]", bytes([byte])) else f"={byte:02X}" for byte in raw
    )
    return text if len(text) <= 160 else f"{text[:120]}=~{sha256(raw).hexdigest()[:32]}"


def in_key(moment: datetime) -> str:
    return f"{moment:%Y%m%dT%H%M%S}.{moment.microsecond // 1000:03d}Z"


def seconds_of(duration: str) -> float:
    units = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1, "ms": 0.001}
    parts = re.findall(r"(\d+)([a-z]+)", duration)
    return float(sum(int(count) * units[unit] for count, unit in parts))


@dataclass(kw_only=True)
class Held:
    """A run of an independent worker, with its item and its lock as they were last read."""

    item: Entity
    """The item from which a release is built; {} if it has to be read first."""
    item_etag: str
    lock: Entity
    lock_etag: str
    sent: float

    @property
    def deadline(self) -> float:
        return self.sent + 0.8 * float(self.lock["stale_after"])


class Dates(SansIOHTTPPolicy[Any, Any]):
    """Remembers the service's time, and the moment of the response that had it."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self.date, self.at = datetime.min.replace(tzinfo=UTC), 0.0

    def on_response(self, request: Any, response: Any) -> None:
        shown = response.http_response.headers.get("Date")
        self.date, self.at = parsedate_to_datetime(shown), self.monotonic()

    def now(self) -> datetime:
        return self.date + timedelta(seconds=self.monotonic() - self.at)


class IndependentWorker:
    """Takes items with an `every`, of some types."""

    def __init__(
        self, table: TableClient, dates: Dates, *, board: str, owner: str, types: set[str]
    ) -> None:
        self.table, self.dates = table, dates
        self.board, self.owner, self.types = board, owner, types
        self.shards = 0
        self.deaf = False
        """Whether the next reply to a batch is lost."""

    async def open(self) -> None:
        board = await self.table.get_entity(f"{self.board}-meta", "board")
        assert board["version"] <= 1
        self.shards = board["shards"]

    async def announce(self) -> None:
        now = self.dates.now()
        row = {"owner": self.owner, "started": now, "seen": now, "slots": 4, "running": 0}
        row |= {"release": "independent 7", "types": ",".join(self.types), "cycle": 60.0}
        key = {"PartitionKey": f"{self.board}-workers", "RowKey": f"worker:{encoded(self.owner)}"}
        await self.table.create_entity({**key, **row})

    def partition(self, item_id: str) -> str:
        digest = sha256(item_id.encode()).digest()
        number = int.from_bytes(digest[:8], "big") % self.shards
        return self.board if self.shards == 1 else f"{self.board}-{number:02d}"

    async def commit(self, *ops: Op) -> list[str]:
        """Sends a batch; returns the new etags."""
        item_id = next(columns["item"] for _, _, columns, _ in ops if "item" in columns)
        parts: list[Any] = []
        for verb, key, columns, etag in ops:
            match: Entity = {"match_condition": MatchConditions.Unconditionally}
            if etag != "*":
                match = {"match_condition": MatchConditions.IfNotModified, "etag": etag}
            entity = {"PartitionKey": self.partition(item_id), "RowKey": key, **columns}
            match verb:
                case "Insert":
                    parts.append(("create", entity))
                case "Delete":
                    parts.append(("delete", entity, match))
                case "Replace":
                    parts.append(("update", entity, {"mode": UpdateMode.REPLACE, **match}))
                case _:
                    del entity["item"]
                    parts.append(("update", entity, {"mode": UpdateMode.MERGE, **match}))
        answers = await self.table.submit_transaction(parts)
        if self.deaf:
            self.deaf = False
            raise ServiceResponseError("the answer got lost")
        return [str(one.get("etag", "")) for one in answers]

    async def read(self, item_id: str, key: str) -> tuple[Entity, str]:
        """A row and its etag; {} when there is none."""
        try:
            row = await self.table.get_entity(self.partition(item_id), key)
        except HttpResponseError as error:
            if error.status_code != 404:
                raise
            return {}, ""
        return self.columns(row), str(row.metadata["etag"])

    def columns(self, row: Any) -> Entity:
        return {
            name: value for name, value in row.items() if name not in {"PartitionKey", "RowKey"}
        }

    async def walk(self, *, most: int = 100) -> list[Held]:
        """Take due items, and override stale locks."""
        taken: list[Held] = []
        for number in range(self.shards):
            partition = self.board if self.shards == 1 else f"{self.board}-{number:02d}"
            due: list[tuple[Entity, str, str]] = []
            until = f"next:{in_key(self.dates.now())};"
            mine = f"PartitionKey eq '{partition}' and RowKey ge 'lock:' and RowKey lt '{until}'"
            async for row in self.table.query_entities(mine):
                found, etag = self.columns(row), str(row.metadata["etag"])
                if found.get("version", 1) > 1 or found["type"] not in self.types:
                    continue
                if row["RowKey"].startswith("next:"):
                    due.append((found, row["RowKey"], etag))
                    continue
                age = self.age(row)
                if age > found["stale_after"] + 0.5:
                    taken += await self.override(found, etag)
            taken += await self.claim(due[: min(most, 33)])
        return taken

    def age(self, row: Any) -> float:
        written: datetime = row.metadata["timestamp"]
        return (self.dates.now() - written).total_seconds()

    async def claim(self, tokens: list[tuple[Entity, str, str]]) -> list[Held]:
        if not tokens:
            return []
        now, sent, ops, held = self.dates.now(), self.dates.monotonic(), [], []
        for token, key, etag in tokens:
            spec = json.loads(token["spec"])
            lock = {name: token[name] for name in ("item", "type", "born", "slot", "attempt")}
            lock |= {"owner": self.owner, "nonce": uuid4().hex, "fence": token["fence"] + 1}
            lock |= {"since": now, "stale_after": seconds_of(spec["stale_after"])}
            lock |= {"progress": "", "version": 1}
            merge = {"start": now, "running": True, "owner": self.owner, "fence": lock["fence"]}
            merge |= {"schedule": f"every {spec['every']}", "timezone": "UTC", "put_back": False}
            part = encoded(token["item"])
            ops += [
                ("Delete", key, {"item": token["item"]}, etag),
                ("Insert", f"lock:{part}", lock, ""),
                ("Merge", f"item:{part}", {"item": token["item"], **merge}, "*"),
            ]
            item = {**token, **merge, "state": "active"}
            held.append(Held(item=item, item_etag="", lock=lock, lock_etag="", sent=sent))
        try:
            etags = await self.commit(*ops)
        except TableTransactionError:
            return []
        except ServiceResponseError:
            return [one for one in held if await self.is_mine(one)]
        for number, one in enumerate(held):
            one.lock_etag, one.item_etag = etags[3 * number + 1 : 3 * number + 3]
        return held

    async def is_mine(self, held: Held) -> bool:
        """Whether the lock has the run's nonce. If so, notes the lock's present etag."""
        item_id = held.lock["item"]
        lock, etag = await self.read(item_id, f"lock:{encoded(item_id)}")
        if lock.get("nonce") != held.lock["nonce"]:
            return False
        held.lock_etag, held.item = etag, {}
        return True

    async def override(self, lock: Entity, etag: str) -> list[Held]:
        item_id, part = lock["item"], encoded(lock["item"])
        item, item_etag = await self.read(item_id, f"item:{part}")
        assert item["running"]
        assert item["fence"] == lock["fence"]
        assert item["state"] == "active", (
            "of others an independent worker of this kind knows nothing"
        )
        now, sent = self.dates.now(), self.dates.monotonic()
        mine = {**lock, "owner": self.owner, "nonce": uuid4().hex, "fence": lock["fence"] + 1}
        mine |= {"since": now, "attempt": lock["attempt"] + 1, "progress": ""}
        merge = {"start": now, "owner": self.owner, "fence": mine["fence"]}
        merge |= {"attempt": mine["attempt"], "runs": item["runs"] + 1}
        merge |= {"failures": item["failures"] + 1}
        gone = self.run(lock, item, outcome="abandoned", now=now)
        try:
            etags = await self.commit(
                ("Replace", f"lock:{part}", mine, etag),
                ("Merge", f"item:{part}", {"item": item_id, **merge}, item_etag),
                ("Insert", self.run_key(gone), gone, ""),
            )
        except TableTransactionError:
            return []
        lock_etag, item_etag, _ = etags
        item |= merge
        return [Held(item=item, item_etag=item_etag, lock=mine, lock_etag=lock_etag, sent=sent)]

    async def renew(self, held: Held) -> bool:
        part, sent = encoded(held.lock["item"]), self.dates.monotonic()
        touch = ("Merge", f"lock:{part}", {"item": held.lock["item"]}, held.lock_etag)
        try:
            (held.lock_etag,) = await self.commit(touch)
        except (TableTransactionError, ServiceResponseError):
            return await self.is_mine(held)
        held.sent = sent
        return True

    async def release(self, held: Held, *, result: str) -> str:
        """Release a run that ended `ok`. Returns "done" or "late"."""
        item_id, part = held.lock["item"], encoded(held.lock["item"])
        while True:
            if not held.item:
                held.item, held.item_etag = await self.read(item_id, f"item:{part}")
            ops = self.release_ops(held, part, result=result)
            try:
                await self.commit(*ops)
            except (TableTransactionError, ServiceResponseError):
                if not await self.is_mine(held):
                    return await self.settle(held, result=result)
            else:
                return "done"

    def release_ops(self, held: Held, part: str, *, result: str) -> list[Op]:
        item, now = held.item, self.dates.now()
        requests = json.loads(item["requests"]) if item["requests"] else []
        every = timedelta(seconds=seconds_of(json.loads(item["spec"])["every"]))
        planned = held.lock["since"] + every
        merge = {"state": item["state"], "slot": planned, "ready": planned, "planned": planned}
        merge |= {"attempt": 1, "failures": 0, "once": "", "stop": now, "running": False}
        merge |= {"outcome": "ok", "runs": item["runs"] + 1, "error": "", "put_back": False}
        merge |= {"result": result, "result_fence": held.lock["fence"]}
        merge |= {"requests": json.dumps(requests[1:]) if requests[1:] else ""}
        if requests:
            merge |= {"slot": datetime.fromisoformat(requests[0]["slot"]), "ready": now}
            merge |= {"once": requests[0]["once"]}
        ended = self.run(held.lock, item, outcome="ok", now=now, result=result)
        ops = [("Delete", f"lock:{part}", {"item": item["item"]}, held.lock_etag)]
        if item["state"] == "active":
            after = {**item, **merge, "fence": held.lock["fence"]}
            names = (
                "item type spec once requests fence born attempt runs failures slot ready planned"
            )
            token = {name: after[name] for name in names.split()} | {"version": 1}
            ops.append(("Insert", f"next:{in_key(after['ready'])}:{part}", token, ""))
        ops.append(("Merge", f"item:{part}", {"item": item["item"], **merge}, held.item_etag))
        ops.append(("Insert", self.run_key(ended), ended, ""))
        return ops

    async def settle(self, held: Held, *, result: str) -> str:
        """The lock is not mine: my release was applied, or I am late."""
        item_id, fence = held.lock["item"], held.lock["fence"]
        item, item_etag = await self.read(item_id, f"item:{encoded(item_id)}")
        run = self.run(held.lock, item, outcome="ok", now=self.dates.now(), result=result)
        told, etag = await self.read(item_id, self.run_key(run))
        if told and told["nonce"] == run["nonce"] and told["outcome"] == "ok" and not told["note"]:
            return "done"
        if not item or item["state"] == "removed" or item["born"] >= fence:
            return "late"
        run |= {"outcome": "superseded", "note": told.get("note", "")}
        merge = {"item": item_id, "result": result, "result_fence": fence}
        older = item["result_fence"] < fence
        await self.commit(
            *([("Merge", f"item:{encoded(item_id)}", merge, item_etag)] if older else []),
            ("Replace" if told else "Insert", self.run_key(run), run, etag),
        )
        return "late"

    def run(
        self, lock: Entity, item: Entity, *, outcome: str, now: datetime, result: str = ""
    ) -> Entity:
        row = {name: lock[name] for name in ("item", "type", "fence", "attempt", "slot", "nonce")}
        lag = max((lock["since"] - item["ready"]).total_seconds(), 0.0)
        row |= {"start": lock["since"], "stop": now, "lag": lag, "outcome": outcome}
        row |= {"worker": lock["owner"], "result": result, "error": "", "output": "", "note": ""}
        return row | {"version": 1}

    def run_key(self, run: Entity) -> str:
        return f"run:{encoded(run['item'])}:{10**12 - run['fence']:012d}"
