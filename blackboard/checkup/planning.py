"""What an item is planned by, as far as its reader can say."""

from blackboard.board import Board
from blackboard.errors import BadInput
from blackboard.model import Item
from blackboard.rules.ahead import Planning
from blackboard.schedules import parse_schedule
from blackboard.verbs.change import settings_of


def planning_of(board: Board, item: Item) -> Planning | None:
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
