"""The settings by which an item is planned, as far as this process can compute them."""

from blackboard.errors import BadInput, BadSpec, BlackboardError
from blackboard.model import HIGHEST_FLOOR, LARGEST, Item, Token, replace
from blackboard.phrases import command
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.groups import check_no_pump
from blackboard.protocol.permits import Limit, limit_of
from blackboard.protocol.rows import text_of
from blackboard.rules.wrong_clock import Planning
from blackboard.schedule.schedule import interval_of, parse_schedule
from blackboard.spec import RunSettings, Spec, decode_spec
from blackboard.table import units

TOO_LARGE = "`blackboard edit` can shorten its spec, `blackboard rm` removes it"
"""What to do about an item of which the store does not take a row, because it is too large."""


def spec_of(item: Item) -> Spec:
    """An item's own spec. Raises BadSpec naming the item."""
    try:
        return decode_spec(item.spec)
    except BadSpec as bad:
        raise BadSpec(bad.problem, item.id) from None


def settings_of(board: BoardTable, item: Item, spec: str) -> RunSettings:
    """The settings of a run of `item` with `spec`. A schedule that only a handler sets, where this
    process has no handler of its type, is the one of the item's last run.
    """
    elsewhere = not spec_of(item).has_schedule
    settings = board.resolve(item.type, spec)
    if settings.schedule is None and elsewhere and item.schedule and not settings.has_handler:
        schedule = parse_schedule(item.schedule, item.timezone)
        return replace(settings, schedule=schedule, timezone=item.timezone)
    return settings


def check_fences(tombstone: Item) -> None:
    """Raises BadInput where an item over a tombstone would have no fences for its runs."""
    if tombstone.fence >= HIGHEST_FLOOR:
        raise BadInput("id", f"{tombstone.id!r} has used up its fences", "another id")


def check_runnable(board: BoardTable, work: Item | Token, settings: RunSettings) -> Limit | None:
    """The limit that a run counts for. Raises BadInput or ValueError where no worker can run it:
    the limit, or the times of its schedule, cannot be computed, or the run could not be released.
    """
    if work.fence >= LARGEST:
        remedy = f"{command('rm', work.id)}; another id can be added"
        raise BadInput("fence", f"no fence is above {work.fence:,}", remedy)
    texts = {"spec": work.spec, "once": work.once, "checkpoint": work.checkpoint}
    if work.requests:
        texts["requests"] = text_of(work.requests)
    limit = board.table.max_value
    for name, text in texts.items():  # the store would not take the end of its run
        if 2 * len(text) > limit and units(text) > limit:
            problem = f"{units(text):,} characters; a value holds at most {limit:,}"
            raise BadInput(name, problem, TOO_LARGE)
    interval_of(settings.schedule, work.slot)
    return limit_of(work, settings)


def why_unplanned(board: BoardTable, item: Item) -> str:
    """Why no worker can run an item: its settings cannot be computed, it is not `check_runnable`,
    or its type is a pump; "" where one can.
    """
    try:
        settings = settings_of(board, item, item.spec)
        check_runnable(board, item, settings)
        check_no_pump(board.name, item.type, settings)
    except (BadInput, ValueError) as error:
        return problem_of(error)
    return ""


def problem_of(error: BlackboardError | ValueError) -> str:
    """Why settings cannot be computed. Without the remedy of a bad spec, which is to ask `doctor`
    or `why`: they use this.
    """
    if isinstance(error, BadSpec):
        return f"its spec cannot be read: {error.problem}"
    return str(error)


def planning_of(board: BoardTable, item: Item) -> Planning | None:
    """The settings by which an item is planned, and the schedule in its row; None where they, or
    the times of the schedule, cannot be computed. The waiting token was planned by the
    schedule in the row, and the settings may have another one by now.
    """
    try:
        settings = settings_of(board, item, item.spec)
        written = parse_schedule(item.schedule, item.timezone) if item.schedule else None
        interval_of(settings.schedule, item.slot)
    except (BadInput, ValueError):
        return None
    return Planning(settings=settings, written=written)
