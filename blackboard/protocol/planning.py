"""With which settings an item is planned, as far as this process knows them."""

from blackboard.errors import BadInput, BadSpec, BlackboardError
from blackboard.model import Item, replace
from blackboard.protocol.permits import limit_of
from blackboard.protocol.reading import BoardTable
from blackboard.rules.next_run import Planning
from blackboard.schedule.schedule import parse_schedule
from blackboard.spec import RunSettings, Spec, decode_spec


def spec_of(item: Item) -> Spec:
    """An item's own spec. Raises BadSpec naming the item."""
    try:
        return decode_spec(item.spec)
    except BadSpec as bad:
        raise BadSpec(bad.problem, item.id) from None


def settings_of(board: BoardTable, item: Item, spec: str) -> RunSettings:
    """The settings of a run of `item` with `spec`. A schedule that only a handler sets, which this
    process may not have, is the one of the item's last run.
    """
    elsewhere = not spec_of(item).has_schedule
    settings = board.resolve(item.type, spec)
    if settings.schedule is None and elsewhere and item.schedule:
        schedule = parse_schedule(item.schedule, item.timezone)
        return replace(settings, schedule=schedule, timezone=item.timezone)
    return settings


def why_unplanned(board: BoardTable, item: Item) -> str:
    """Why the settings of an item, or what its run is counted by, cannot be computed; "" where they
    can.
    """
    try:
        limit_of(item, settings_of(board, item, item.spec))
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
    """None where it cannot be computed. A schedule that the settings have by now may not be the one
    that the waiting token was planned by: the item's row has that.
    """
    try:
        settings = settings_of(board, item, item.spec)
        written = parse_schedule(item.schedule, item.timezone) if item.schedule else None
    except (BadInput, ValueError):
        return None
    schedules = [settings.schedule] if settings.schedule else []
    if written is not None and written not in schedules:
        schedules.append(written)
    return Planning(settings=settings, schedules=schedules)
