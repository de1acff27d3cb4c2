"""The pictures of the pages as coordinates, which templates draw as SVG. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo

from blackboard.display.columns import run_outcome, worker_name
from blackboard.model import Outcome, Run
from blackboard.phrases import brief
from blackboard.rules.transitions import FAILING

WIDTH = 1000.0
"""Of a picture, in units of its own."""
BARS_HEIGHT = 90.0
"""Of the picture of an item's runs; `item.html` and the style sheet have it, too."""
LEAST_BAR = 2.0
"""A shorter run is drawn as long as this."""
LANE, LANE_GAP, ROW_GAP = 6.0, 2.0, 8.0
"""A row of a timeline has a lane for each of the runs that it shows side by side."""
LEAST_ROW = 22.0
MOST_LANES = 8
"""The style sheet has the heights of rows with so many. What is more lies in the last lane."""
MOST_ROWS = 60
"""Of a timeline."""
STEPS = (
    *(timedelta(seconds=count) for count in (1, 5, 15)),
    *(timedelta(minutes=count) for count in (1, 5, 15, 30)),
    *(timedelta(hours=count) for count in (1, 2, 3, 6, 12, 24, 48, 168)),
)
"""Between two marks of an axis."""
MOST_MARKS = 9
MOST_SHIFT = timedelta(hours=3)
"""By which clocks are put back or forward, at the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A run in a picture."""

    x: float
    width: float
    style: str
    """How it ended, as `display` calls the styles; "busy": it has not."""
    fence: int
    id: str
    words: str
    y: float = 0.0
    height: float = 0.0


# ---- the durations of an item's runs


def duration_bars(runs: Sequence[Run]) -> list[Bar]:
    """The newest last; as high as they took, the longest as high as the picture."""
    longest = max((run.duration for run in runs), default=0.0) or 1.0
    step = WIDTH / max(len(runs), 20)
    bars = []
    for place, run in enumerate(reversed(runs)):
        size = max(run.duration / longest * BARS_HEIGHT, LEAST_BAR)
        outcome, style = run_outcome(run)
        bars.append(
            Bar(
                x=round(place * step, 2),
                width=round(step * 0.8, 2),
                y=round(BARS_HEIGHT - size, 2),
                height=round(size, 2),
                style=style.value or "plain",
                fence=run.fence,
                id=run.id,
                words=f"{outcome} after {brief(run.duration)}",
            )
        )
    return bars


def sparkline(values: Sequence[float], *, width: float, height: float) -> str:
    """The points of a polyline through values, the first at the left; those below 0 are at 0."""
    if not values:
        return ""
    longest = max(*values, 0.0) or 1.0
    step = width / max(len(values) - 1, 1)
    points = (
        f"{place * step:.1f},{height - max(value, 0.0) / longest * (height - 2) - 1:.1f}"
        for place, value in enumerate(values)
    )
    return " ".join(points)


# ---- the timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisMark:
    x: float
    at: datetime
    is_day: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineRow:
    """What one item or one worker did."""

    name: str
    lanes: int
    y: float
    height: float
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpan:
    """A run between two times, ended or not."""

    id: str
    worker: str
    fence: int
    start: datetime
    stop: datetime
    style: str
    words: str


def spans_of(runs: Iterable[Run]) -> list[RunSpan]:
    """Runs that have ended."""
    spans = []
    for run in runs:
        outcome, style = run_outcome(run)
        spans.append(
            RunSpan(
                id=run.id,
                worker=run.worker,
                fence=run.fence,
                start=run.start,
                stop=run.stop,
                style=style.value or "plain",
                words=f"{run.id}: {outcome} after {brief(run.duration)}, {worker_name(run.worker)}",
            )
        )
    return spans


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePicture:
    """Runs between two times, a row for each item or worker."""

    rows: Sequence[TimelineRow]
    marks: Sequence[AxisMark]
    height: float
    left_out: int
    """Rows that are not drawn."""


def timeline(
    spans: Sequence[RunSpan], *, since: datetime, until: datetime, by: str, zone: tzinfo = UTC
) -> TimelinePicture:
    """`by` is "item" or "worker", whose rows have those of the same host and process. Rows are in
    the order of the names; those with the most runs are drawn where there are too many.
    """
    rows: defaultdict[str, list[RunSpan]] = defaultdict(list)
    for span in spans:
        if span.stop >= since and span.start <= until:
            rows[span.id if by == "item" else worker_name(span.worker)].append(span)
    names = sorted(rows, key=lambda name: (-len(rows[name]), name))
    drawn: list[TimelineRow] = []
    height = 0.0
    for name in sorted(names[:MOST_ROWS]):
        drawn.append(_row(name, rows[name], y=height, since=since, until=until))
        height += drawn[-1].height
    return TimelinePicture(
        rows=drawn,
        marks=axis(since, until, zone),
        height=max(height, LEAST_ROW),
        left_out=len(names) - len(drawn),
    )


def _row(
    name: str, spans: Sequence[RunSpan], *, y: float, since: datetime, until: datetime
) -> TimelineRow:
    """Runs at the same time lie in lanes, one below the other."""
    placed: list[tuple[RunSpan, int]] = []
    ends: list[datetime] = []
    for span in sorted(spans, key=lambda each: (each.start, each.stop)):
        lane = next((n for n, end in enumerate(ends) if end <= span.start), len(ends))
        lane = min(lane, MOST_LANES - 1)
        if lane == len(ends):
            ends.append(span.stop)
        else:
            ends[lane] = max(ends[lane], span.stop)
        placed.append((span, lane))
    lanes = len(ends)
    height = max(lanes * (LANE + LANE_GAP) - LANE_GAP + ROW_GAP, LEAST_ROW)
    thick = LANE if lanes > 1 else height - ROW_GAP
    whole = (until - since) / timedelta(seconds=1)

    def bar(span: RunSpan, lane: int) -> Bar:
        begin = max((span.start - since).total_seconds(), 0.0) / whole * WIDTH
        end = min((span.stop - since).total_seconds(), whole) / whole * WIDTH
        return Bar(
            x=round(min(begin, WIDTH - LEAST_BAR), 2),
            width=round(max(end - begin, LEAST_BAR), 2),
            y=ROW_GAP / 2 + lane * (LANE + LANE_GAP),
            height=thick,
            style=span.style,
            fence=span.fence,
            id=span.id,
            words=span.words,
        )

    bars = [bar(span, lane) for span, lane in placed]
    return TimelineRow(name=name, lanes=lanes, y=y, height=height, bars=bars)


def axis(since: datetime, until: datetime, zone: tzinfo) -> list[AxisMark]:
    """Marks at round times of a zone."""
    whole = until - since
    step = next((width for width in STEPS if whole / width <= MOST_MARKS), STEPS[-1])
    marks: list[AxisMark] = []
    for at in _round_times(since, until, step, zone):
        local = at.astimezone(zone)
        x = round((at - since) / whole * WIDTH, 2)
        is_day = local.time() == time()
        marks.append(AxisMark(x=x, at=local, is_day=is_day))
    return marks


def _round_times(
    since: datetime, until: datetime, step: timedelta, zone: tzinfo
) -> Iterator[datetime]:
    """The instants between two at which clocks of a zone show a multiple of a step, counted from
    midnight: those that are shown twice as two, those that are jumped over not at all.
    """
    first, last = (moment.astimezone(zone).replace(tzinfo=None) for moment in (since, until))
    day = first.replace(hour=0, minute=0, second=0, microsecond=0)
    wall = day + max((first - day - MOST_SHIFT) // step, 0) * step
    times = set()
    while wall <= last + MOST_SHIFT:
        for fold in (0, 1):
            at = wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
            if since < at < until and at.astimezone(zone).replace(tzinfo=None) == wall:
                times.add(at)
        wall += step
    yield from sorted(times)


# ---- failures by day and hour


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatCell:
    since: datetime
    until: datetime
    runs: int
    failed: int

    @property
    def level(self) -> int:
        """0: no run; 1: none has failed; 2: less than a quarter; 3: less than half; 4: more;
        5: all.
        """
        if not self.failed:
            return 1 if self.runs else 0
        return 5 if self.failed == self.runs else min(2 + 4 * self.failed // self.runs, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatDay(HeatCell):
    """The sums of a day, and its hours."""

    day: datetime
    cells: Sequence[HeatCell]


def first_of_days(days: int, *, until: datetime, zone: tzinfo) -> datetime:
    """When the first of so many days begins; the last is that of `until`."""
    return (_midnight(until, zone) - timedelta(days=days - 1)).astimezone(UTC)


def _midnight(moment: datetime, zone: tzinfo) -> datetime:
    """The begin of the day of a moment."""
    return moment.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)


def heat_map(
    runs: Iterable[Run], *, until: datetime, days: int, zone: tzinfo = UTC
) -> list[HeatDay]:
    """The runs of so many days, the newest first, by the hours of a zone in which they stopped."""
    counted: Counter[datetime] = Counter()
    failed: Counter[datetime] = Counter()
    for run in runs:
        hour = run.stop.astimezone(zone).replace(minute=0, second=0, microsecond=0)
        counted[hour] += 1
        failed[hour] += run.outcome in FAILING
    today = _midnight(until, zone)
    rows: list[HeatDay] = []
    for number in range(days):
        day = today - timedelta(days=number)
        hours = [day.replace(hour=hour) for hour in range(24)]
        cells = [
            HeatCell(
                since=hour.astimezone(UTC),
                until=(hour + timedelta(hours=1)).astimezone(UTC),  # two, of one shown twice
                runs=counted[hour],
                failed=failed[hour],
            )
            for hour in hours
        ]
        rows.append(
            HeatDay(
                since=cells[0].since,
                until=cells[-1].until,
                runs=sum(cell.runs for cell in cells),
                failed=sum(cell.failed for cell in cells),
                day=day,
                cells=cells,
            )
        )
    return rows


# ---- numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNumbers:
    """What the newest runs say of a board."""

    runs: int
    good: int
    lag_p50: float
    lag_p99: float
    duration_p50: float
    duration_p99: float

    @property
    def success(self) -> float | None:
        """The share of good ones; None: there are no runs."""
        return self.good / self.runs if self.runs else None


def numbers_of(runs: Sequence[Run]) -> RunNumbers:
    """Of some runs. Those that were cancelled count neither as good nor as bad."""
    judged = [run for run in runs if run.outcome is not Outcome.CANCELLED]
    lags = sorted(run.lag for run in runs)
    durations = sorted(run.duration for run in runs)
    return RunNumbers(
        runs=len(judged),
        good=sum(run.outcome is Outcome.OK for run in judged),
        lag_p50=percentile(lags, 50),
        lag_p99=percentile(lags, 99),
        duration_p50=percentile(durations, 50),
        duration_p99=percentile(durations, 99),
    )


def percentile(values: Sequence[float], percent: int) -> float:
    """Of sorted values, the nearest rank; 0 where there are none."""
    if not values:
        return 0.0
    return values[max(-(-percent * len(values) // 100) - 1, 0)]
