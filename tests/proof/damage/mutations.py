"""Rows that have come to harm: seeded mutations of real rows, of every family.

A mutation is what a hand, a failing disk, another program or a newer version could have made of a
row: a value of another type, a column too few or too many, numbers and times beyond all bounds,
odd text, JSON that is none, a key that is not what its row says, a row in a wrong shard or family,
another version, a row written again. Nothing here says what should become of it.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from blackboard.model import VERSION, replace
from blackboard.protocol import keys

ENDED = "fence"
DEEP = "[" * 5_000
ODD_TEXTS = (
    "",
    " ",
    "\x00",
    "\n\t\x1b[31m",
    "ü" * 200,
    "\u202egnp.exe",
    "\U0001f9e8",
    "'; DROP TABLE rows; --",
    "../../etc",
    "%s%n{0}",
    "null",
    "-1",
    "x" * 32_000,
)
BROKEN_JSON = ("{", "[]", "null", '"x"', "17", '{"a":', "{'every':'1h'}", DEEP, '{"a":' * 2_000)
ODD_SPECS = (
    '{"every":"0s"}',
    '{"every":5}',
    '{"every":"1h","cron":"* * * * *"}',
    '{"every":"99999999d"}',
    '{"cron":"61 * * * *"}',
    '{"cron":"0 0 31 2 *"}',
    '{"cron":"0 0 29 2 *","timezone":"Mars/Base"}',
    '{"rrule":"FREQ=YEARLY;COUNT=1"}',
    '{"rrule":"FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30"}',
    '{"at":"yesterday"}',
    '{"at":"9999-12-31T23:59:59Z"}',
    '{"every":"10m","retries":-1}',
    '{"every":"10m","retries":99999999999999999999}',
    '{"every":"10m","stale_after":"1ms"}',
    '{"every":"10m","backoff":"1000000000d"}',
    '{"every":"10m","jitter":"9999999d"}',
    '{"every":"10m","timeout":"-1s"}',
    '{"every":"10m","missed":"some"}',
    '{"every":"10m","params":[1]}',
    '{"every":"10m","params":{"a":"${NOT_SET_ANYWHERE}"}}',
    '{"every":"10m","params":{"a":' + "[" * 900 + "]" * 900 + "}}",
    '{"every":"10m","flavour":"vanilla"}',
    "{}",
)
NUMBERS = (-1, 0, 1, 7, 999, -(2**31), 2**31, 10**12, 10**12 + 1, 2**53, 2**63 - 1, -(2**63))
FLOATS = (-0.5, 0.0, 1e-300, 59.9, 1e18, 1e308, math.inf, -math.inf, math.nan)
TIMES = (
    datetime(1601, 1, 2, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2026, 11, 21, 9, 0, 0, 123456, tzinfo=UTC),
    datetime(2500, 1, 1, tzinfo=UTC),
    datetime(8999, 12, 31, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
)
ODD_TIMES = (
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(2026, 11, 21, 9),  # noqa: DTZ001 - that is what is odd
    datetime(1, 1, 1, 3, tzinfo=timezone(timedelta(hours=14))),
    datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-12))),
)
"""What no store would take, and a file edited by hand may hold."""
NO_VALUES: tuple[Any, ...] = (None, [], {}, ["x"], {"a": 1}, b"bytes", 2**70)
"""As `ODD_TIMES`."""
JSON_COLUMNS = ("spec", "once", "requests", "paused", "resumed", "applied", "result", "progress")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A row where it lies."""

    partition: str
    key: str
    data: Mapping[str, Any]

    @property
    def family(self) -> str:
        return self.key.partition(":")[0]

    @property
    def id(self) -> str:
        """Of its item; of a member its owner."""
        return str(self.data.get("item", self.data.get("owner", "")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """What is done to a row, and what it is then. Without `stays` the row goes from its place."""

    what: str
    before: Kept
    after: Kept
    stays: bool = False

    def __str__(self) -> str:
        changed = {
            name: value
            for name, value in self.after.data.items()
            if name not in self.before.data or repr(self.before.data[name]) != repr(value)
        }
        gone = sorted(self.before.data.keys() - self.after.data.keys())
        where = "" if self.after.key == self.before.key else f" at {self.after.key[:60]}"
        told = f"{changed!r:.300}" + (f" without {', '.join(gone)}" if gone else "")
        return f"{self.what} of {self.before.key}{where}: {told}"


class Mutator:
    """Draws mutations from one seed. `wild` adds values that no store takes from a program."""

    def __init__(
        self, seed: int, *, partitions: Sequence[str], owners: Sequence[str], wild: bool
    ) -> None:
        self.random = random.Random(seed)
        self.partitions = partitions
        self.owners = owners
        self.wild = wild
        self.ways: Sequence[Callable[[Kept], Mutation]] = (
            self.retyped,
            self.retyped,
            self.shortened,
            self.extended,
            self.renumbered,
            self.reworded,
            self.with_odd_json,
            self.retimed,
            self.rekeyed,
            self.in_another_family,
            self.elsewhere,
            self.of_another_version,
            self.written_again,
            self.ended_before,
        )

    def mutated(self, row: Kept) -> Mutation:
        return self.random.choice(self.ways)(row)

    def retyped(self, row: Kept) -> Mutation:
        """A column has a value of any type."""
        return self._with(row, "type", self.random.choice(sorted(row.data)), self._any())

    def shortened(self, row: Kept) -> Mutation:
        names = sorted(row.data)
        gone = self.random.sample(names, k=min(len(names), self.random.choice((1, 1, 2, 5, 30))))
        data = {name: value for name, value in row.data.items() if name not in gone}
        return Mutation(what="fields removed", before=row, after=replace(row, data=data))

    def extended(self, row: Kept) -> Mutation:
        names = [self.random.choice(("note", "id", "fence2", "Ready", "_")) for _ in range(3)]
        data = {**row.data, **{name: self._any() for name in names}}
        return Mutation(what="fields added", before=row, after=replace(row, data=data))

    def renumbered(self, row: Kept) -> Mutation:
        numbers = [name for name in sorted(row.data) if type(row.data[name]) in (int, float)]
        value = self.random.choice((*NUMBERS, *(FLOATS if self.wild else FLOATS[:6])))
        return self._with(row, "number", self._one(numbers, row), value)

    def reworded(self, row: Kept) -> Mutation:
        texts = [name for name in sorted(row.data) if isinstance(row.data[name], str)]
        text = self.random.choice((*ODD_TEXTS, *self.owners))
        return self._with(row, "text", self._one(texts, row), text)

    def with_odd_json(self, row: Kept) -> Mutation:
        there = [name for name in JSON_COLUMNS if name in row.data]
        name = self._one(there, row)
        odd = BROKEN_JSON + ODD_SPECS if name == "spec" else BROKEN_JSON
        return self._with(row, "JSON", name, self.random.choice(odd))

    def retimed(self, row: Kept) -> Mutation:
        times = [name for name in sorted(row.data) if isinstance(row.data[name], datetime)]
        value = self.random.choice((*TIMES, *(ODD_TIMES if self.wild else ())))
        return self._with(row, "time", self._one(times, row), value)

    def rekeyed(self, row: Kept) -> Mutation:
        """The row lies under a key that is not what its id makes of it."""
        part = keys.encode_id(row.id)
        key = self.random.choice(
            (
                f"{row.family}:",
                f"{row.family}:{part}x",
                f"{row.family}:{part}:",
                f"{row.family}:=~{part}",
                f"{keys.NEXT}soon:{part}",
                f"{keys.NEXT}00000000T000000.000Z:{part}",
                f"{keys.NEXT}20261121T090000.000Z",
                f"{keys.LOCK}{part}:000",
                f"{keys.RUN}{part}:abc",
                f"mail:{part}",
                f"aaa:{part}",
                f"zzz:{part}",
            )
        )
        after = replace(row, key=key)
        return Mutation(what="key", before=row, after=after, stays=self.random.random() < 0.5)

    def in_another_family(self, row: Kept) -> Mutation:
        key = self.random.choice(
            (
                keys.item_key(row.id),
                keys.lock_key(row.id),
                keys.next_key(TIMES[2], row.id),
                keys.run_key(row.id, 900),
            )
        )
        stays = self.random.random() < 0.5
        return Mutation(what="family", before=row, after=replace(row, key=key), stays=stays)

    def elsewhere(self, row: Kept) -> Mutation:
        others = [one for one in self.partitions if one != row.partition]
        after = replace(row, partition=self.random.choice(others))
        return Mutation(what="shard", before=row, after=after, stays=self.random.random() < 0.5)

    def of_another_version(self, row: Kept) -> Mutation:
        versions = (VERSION + 1, VERSION + 98, 0, -1, "2", 1.5, True, 2**62)
        return self._with(row, "version", "version", self.random.choice(versions))

    def written_again(self, row: Kept) -> Mutation:
        """As it was, under an etag that nobody knows."""
        return Mutation(what="etag", before=row, after=row)

    def ended_before(self, row: Kept) -> Mutation:
        """The history has a run of the fence that runs now: the store went back in time."""
        fence = row.data.get("fence")
        if row.family != "lock" or type(fence) is not int:
            return self.written_again(row)
        names = ("item", "type", "fence", "attempt", "slot")
        data = {name: row.data[name] for name in names if name in row.data}
        since = row.data.get("since")
        data |= {"start": since, "stop": since, "outcome": "ok", "nonce": "f" * 32, "lag": 0.0}
        data["worker"] = row.data.get("owner", "")
        after = replace(row, key=keys.run_key(row.id, fence), data=data)
        return Mutation(what=ENDED, before=row, after=after, stays=True)

    def _any(self) -> Any:
        """A value of any type."""
        kinds: list[Sequence[Any]] = [ODD_TEXTS, NUMBERS, FLOATS[:6], (True, False), TIMES]
        if self.wild:
            kinds += [NO_VALUES, ODD_TIMES, FLOATS]
        return self.random.choice(self.random.choice(kinds))

    def _one(self, names: Sequence[str], row: Kept) -> str:
        return self.random.choice(names or sorted(row.data))

    def _with(self, row: Kept, what: str, name: str, value: Any) -> Mutation:
        after = replace(row, data={**row.data, name: value})
        return Mutation(what=what, before=row, after=after)
