"""The parser's process: reads feeds from its input, writes their events in a window to its output.

One bad event never spoils a feed: it is left out, counted, and the first reason is reported. Events
and series that are over are passed over before they cost anything (`are_outside`). Events marked as
private or confidential are left out and counted, unless they are asked for.

It is started by path, not as part of a package, because the folder of a job may be loaded under any
name. It dies with its parent, and takes no more memory, and no more processor time for a feed, than
it was given.
"""

import hashlib
import re
import resource
import signal
import sys
import warnings
from collections import Counter, defaultdict
from contextlib import suppress
from datetime import date, timedelta
from itertools import count
from typing import BinaryIO

import msgspec

from blackboard.runners.interpreter import die_with, reset_signals

from .budget import FEED_EVENTS, FEED_TEXT, LONG_SERIES, Budget, TooMuch
from .events import Vevent, access_of, plain, read_vevent, text_of_vevent
from .lines import ALL_DAY, Block, NotACalendar, Sections, read_calendar
from .records import ANSWER, HEAD, Ask, Occurrence, Parsed, Text, Window
from .series import Instance, instances_of
from .times import LONGEST, Zones, length_of

_NOT_IN_UID = frozenset({"IMAGE", "ATTACH", "GEO", "CLASS", ALL_DAY})
_TEXT_BESIDES = 500
"""Characters that an event costs besides its description."""


def parse(body: bytes, ask: Ask) -> Parsed:
    """Never raises on bad input: what is wrong with a feed is in the answer."""
    try:
        sections = read_calendar(body, ask.charset)
    except NotACalendar as problem:
        return Parsed(error=str(problem))
    orders = [_canonical(block) for block in sections.events]
    meaning = _meaning(sections, orders)
    if meaning == ask.known:
        return Parsed(meaning=meaning, same=True, seen=len(sections.events))
    return _Feed(sections, orders, ask).parsed(meaning)


def _canonical(block: Block) -> str:
    """A VEVENT as text that the order of its lines, its stamps and SEQUENCE do not change."""
    lines = (f"{one.name}{one.params}:{one.value}" for one in block.lines if one.name != "SEQUENCE")
    return "\n".join([*sorted(lines), block.zone])


def _meaning(sections: Sections, orders: list[str]) -> str:
    """A digest of what matters. SEQUENCE does where it chooses between VEVENTs of one UID."""
    times = Counter(block.value("UID") for block in sections.events)
    parts = []
    for block, order in zip(sections.events, orders, strict=True):
        chosen = times[block.value("UID")] > 1
        parts.append(f"{order}\n{block.value('SEQUENCE')}" if chosen else order)
    digest = hashlib.sha256()
    zones = sorted(
        "\n".join([str(zone.calendar), *(f"{one.name}:{one.value}" for one in zone.lines)])
        for zone in sections.zones
    )
    for part in (*sorted(parts), *zones):
        raw = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(raw) + raw)
    return digest.hexdigest()


class _Feed:
    """One feed while it is parsed."""

    def __init__(self, sections: Sections, orders: list[str], ask: Ask) -> None:
        self._events = sections.events
        self._orders = orders
        self._window = ask.window
        self._edges = ask.window.edges()
        self._base = ask.base
        self._zones = Zones(ask.window.zone)
        self._budget = Budget()
        self._skipped = 0
        self._repeated = 0
        self._problem = ""
        self._private = 0
        self._mended = 0
        self._mending = ""
        for zone in sections.zones:
            try:
                with self._budget.bounded("a time zone of its own"):
                    self._zones.learn(zone)
            except (TooMuch, Exception) as problem:  # noqa: BLE001 - a library may raise anything
                self._problem = f"a VTIMEZONE is not understood: {_reason(problem)}"

    def parsed(self, meaning: str) -> Parsed:
        texts: list[Text] = []
        occurrences: list[Occurrence] = []
        characters = 0
        is_over = False
        for uid, numbers in self._groups().items():
            counted = self._skipped + self._private
            public = [] if is_over else self._public(numbers, self._happenings(numbers))
            rest = len(numbers) - (self._skipped + self._private - counted)
            texts_of = {
                member: text_of_vevent(self._events[member], uid, self._base)
                for member in dict.fromkeys(one.member for one in public)
            }
            more = sum(len(texts_of[one.member].description) + _TEXT_BESIDES for one in public)
            together = len(occurrences) + (1 if is_over else len(public))
            bound = _beyond(together, characters + more, is_long=len(public) > LONG_SERIES)
            if bound:
                is_over = is_over or len(occurrences) == FEED_EVENTS
                self._budget.is_cut = True
                self._skip(TooMuch(bound), rest)
                continue
            characters += more
            places = dict(zip(texts_of, count(len(texts))))
            texts += texts_of.values()
            occurrences += [
                Occurrence(places[one.member], one.start, one.end, one.recurrence) for one in public
            ]
        seen = len(self._events)
        error = self._problem if seen and self._skipped == seen else ""
        return Parsed(
            meaning=meaning,
            texts=tuple(texts),
            occurrences=tuple(occurrences),
            seen=seen,
            skipped=self._skipped,
            repeated=self._repeated,
            problem=self._problem,
            private=self._private,
            mended=self._mended,
            mending=self._mending,
            is_cut=self._budget.is_cut,
            error=error,
        )

    def _groups(self) -> dict[str, list[int]]:
        """The VEVENTs that may matter, by UID. One without a UID gets one from what it says."""
        groups: defaultdict[str, list[int]] = defaultdict(list)
        for number, block in enumerate(self._events):
            uid = block.value("UID")
            groups[uid if plain(uid, len(uid)) else _made_uid(block)].append(number)
        return {
            uid: numbers
            for uid, numbers in groups.items()
            if not are_outside([self._events[number] for number in numbers], self._window)
        }

    def _happenings(self, numbers: list[int]) -> list[Instance]:
        kinds: dict[bool, list[int]] = {True: [], False: []}
        for number in numbers:
            kinds[self._events[number].first("RECURRENCE-ID") is None].append(number)
        members = self._members(kinds[True], None)
        series = max(members, key=lambda one: one.rank).start.zone if members else None
        members += self._members(kinds[False], series)
        try:
            instances, dropped = instances_of(
                members, self._window, edges=self._edges, budget=self._budget
            )
        except (TooMuch, Exception) as problem:  # noqa: BLE001 - a library may raise anything
            self._skip(problem, len(members))
            return []
        self._repeated += dropped
        for member in members:
            if member.mended:
                self._mended += 1
                self._mending = self._mending or " ".join(member.mended[0].split())[:200]
        return instances

    def _members(self, numbers: list[int], series: str | None) -> list[Vevent]:
        members: list[Vevent] = []
        for number in numbers:
            block, order = self._events[number], self._orders[number]
            try:
                members.append(read_vevent(block, number, self._zones, order, series=series))
            except (ValueError, OverflowError) as problem:
                self._skip(problem, 1)
        return members

    def _public(self, numbers: list[int], instances: list[Instance]) -> list[Instance]:
        """Without what is private. A change to a private series that does not say is private; a
        private change hides its time: what the series says of it is not true.
        """
        if self._window.private:
            return instances
        access = {number: access_of(self._events[number]) for number in numbers}
        hidden = {number for number, word in access.items() if word not in {"", "PUBLIC"}}
        if any(self._events[number].first("RECURRENCE-ID") is None for number in hidden):
            hidden |= {
                number
                for number, word in access.items()
                if not word and self._events[number].first("RECURRENCE-ID") is not None
            }
        self._private += len({one.member for one in instances if one.member in hidden})
        return [one for one in instances if one.member not in hidden]

    def _skip(self, problem: BaseException, count: int) -> None:
        if isinstance(problem, MemoryError):
            raise problem
        self._skipped += count
        self._problem = self._problem or _reason(problem)


def _beyond(events: int, characters: int, *, is_long: bool) -> str:
    """The bound that a feed exceeds with so many events and so much text, the last of them, it may
    be, those of a long series; or "".
    """
    if events > FEED_EVENTS:
        return f"the feed has more than {FEED_EVENTS:,} events"
    if is_long and events > FEED_EVENTS * 0.9:
        long = f"a series of more than {LONG_SERIES} times"
        return f"{long} would use up the last tenth of {FEED_EVENTS:,}"
    if characters > FEED_TEXT:
        return f"the feed has more than {FEED_TEXT >> 20} Mi characters of text"
    return ""


def _reason(problem: BaseException) -> str:
    text = " ".join(str(problem).split())[:200]
    if isinstance(problem, TooMuch | ValueError) and text:
        return text
    return f"{type(problem).__name__}: {text}"


def _made_uid(block: Block) -> str:
    """A UID made of what the event says, without addresses that may change each day."""
    lines = [line for line in block.lines if line.name not in _NOT_IN_UID]
    order = _canonical(Block(lines, block.zone))
    return hashlib.sha256(order.encode("utf-8", "surrogatepass")).hexdigest()[:32] + "@no-uid"


# ---- what is outside the window, by a quick look
#
# Feeds keep what is over for years. To read an event takes a hundred times as long as this look at
# its text, and to expand a series a thousand times as long. The look may say of an event that is
# outside that it is not, never the other way round: it leaves two days for zones, and whatever it
# does not understand is for a closer one.

_SLACK = timedelta(days=2)
"""By how much an event must clear the window, whatever the zone."""
_DAY = re.compile(r"\s*(\d{4})-?(\d\d)-?(\d\d)(?!\d)", re.ASCII)
_UNTIL = re.compile(r"(?:^|;)\s*UNTIL\s*=([^;]*)", re.IGNORECASE)
_STEPS = {
    "DAILY": timedelta(days=1),
    "WEEKLY": timedelta(days=7),
    "MONTHLY": timedelta(days=31),
    "YEARLY": timedelta(days=366),
}
_NUMBER = re.compile(r"[1-9]\d{0,4}", re.ASCII)
_IN_ALL_MONTHS = range(2, 28)
"""Days that no month is without, in any zone."""


def are_outside(blocks: list[Block], window: Window) -> bool:
    """Whether none of the VEVENTs that share a UID has a time near the window. A change of all
    later times of a series can take them anywhere.
    """
    return not any(
        line.name == "RECURRENCE-ID" and "THISANDFUTURE" in line.params.upper()
        for block in blocks
        for line in block.lines
    ) and all(_is_outside(block, window) for block in blocks)


def _is_outside(block: Block, window: Window) -> bool:
    if block.first("RDATE"):
        return False
    start = _day(block.value("DTSTART"))
    if start is None:
        return False
    if start > window.end + _SLACK:
        return True
    lasts = _lasts(block, start)
    ends = [_last(line.value, start) for line in block.all("RRULE")]
    if lasts is None or None in ends:
        return False
    last = max([start, *filter(None, ends)])
    return last < window.first - _SLACK - lasts


def _day(text: str) -> date | None:
    parts = _DAY.match(text)
    try:
        return date(*map(int, parts.groups())) if parts else None
    except ValueError:
        return None


def _lasts(block: Block, start: date) -> timedelta | None:
    """How long the event lasts at the most; None when that takes a closer look."""
    if written := block.value("DTEND"):
        end = _day(written)
        days = LONGEST.days if end is None else max((end - start).days, 0)
    else:
        length = length_of(block.value("DURATION"))
        days = 0 if length is None else length.days + length.seconds // 86_400 + 1
    return timedelta(days=days) if days < LONGEST.days else None


def _last(rule: str, start: date) -> date | None:
    """A day after which the rule has no time; None when that takes a closer look."""
    until = _UNTIL.findall(rule)
    return _day(until[-1]) if until else _last_counted(rule.upper().strip("; "), start)


def _last_counted(rule: str, start: date) -> date | None:
    """The same for a rule with COUNT, if it has at least one time in every one of its steps."""
    parts = dict(part.partition("=")[::2] for part in rule.split(";"))
    step = _STEPS.get(parts.pop("FREQ", ""))
    numbers = parts.pop("COUNT", ""), parts.pop("INTERVAL", "1")
    others = parts.keys() - {"WKST"}
    weekly = step == _STEPS["WEEKLY"] and others == {"BYDAY"}
    if step is None or not all(map(_NUMBER.fullmatch, numbers)) or (others and not weekly):
        return None
    count, every = map(int, numbers)
    days = (count + 1) * every * step.days
    if start.day not in _IN_ALL_MONTHS or days > LONGEST.days:
        return None
    return start + timedelta(days=days)


# ---- the process


def main(parent: int, memory: int, seconds: float) -> None:
    """Serves feeds until its input ends, or one takes more than so many seconds of processor time:
    then SIGPROF ends this process, whatever it does.
    """
    die_with(parent)
    reset_signals(())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _limit(memory)
    warnings.simplefilter("ignore")
    while _serve(sys.stdin.buffer, sys.stdout.buffer, memory, seconds):
        signal.setitimer(signal.ITIMER_PROF, 0)


def _limit(memory: int) -> None:
    """Takes no more memory than this, or than the system lets this process have."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    with suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _serve(source: BinaryIO, sink: BinaryIO, memory: int, seconds: float) -> bool:
    head = source.read(HEAD.size)
    if len(head) < HEAD.size:
        return False
    request, body = HEAD.unpack(head)
    ask = msgspec.json.decode(source.read(request), type=Ask)
    feed = source.read(body)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        answer = msgspec.json.encode(parse(feed, ask))
    except (MemoryError, RecursionError):
        problem = f"needs more than {memory >> 20} MiB of memory"
        answer = msgspec.json.encode(Parsed(error=problem, large=True))
    sink.write(ANSWER.pack(len(answer)) + answer)
    sink.flush()
    return True
