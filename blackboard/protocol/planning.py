"""The settings by which an item is planned, as far as this process can compute them."""

from blackboard.errors import BadInput, BadSpec, BlackboardError
from blackboard.model import Item, replace
from blackboard.protocol.groups import check_no_pump
from blackboard.protocol.permits import limit_of
from blackboard.protocol.reading import BoardTable
from blackboard.rules.wrong_clock import Planning
from blackboard.schedule.schedule import parse_schedule
from blackboard.spec import RunSettings, Spec, decode_spec


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


def why_unplanned(board: BoardTable, item: Item) -> str:
    """Why no worker can run an item: its settings, or the limit that its run counts for, cannot be
    computed, or its type is a pump; "" where one can.
    """
    try:
        settings = settings_of(board, item, item.spec)
        limit_of(item, settings)
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
    """The settings by which an item is planned, and the schedule in its row; None where they cannot
    be computed. The waiting token was planned by the schedule in the row, and the settings may have
    another one by now.
    """
    try:
        settings = settings_of(board, item, item.spec)
        written = parse_schedule(item.schedule, item.timezone) if item.schedule else None
    except (BadInput, ValueError):
        return None
    return Planning(settings=settings, written=written)
