"""Times as people give them on a command line."""

from datetime import datetime

from blackboard.errors import BadInput
from blackboard.model import whole_milliseconds
from blackboard.schedule.schedule import Once, make_schedule, next_due
from blackboard.spec import RunSettings


def moment_of(text: str, zone: str, field: str) -> datetime:
    """An ISO 8601 time; without an offset it is wall time in `zone`. Raises BadInput."""
    try:
        schedule = make_schedule(at=text, zone=zone)
    except BadInput as problem:
        raise BadInput(field, problem.problem, problem.remedy) from None
    assert isinstance(schedule, Once)
    return whole_milliseconds(schedule.moment)


def check_first(text: str | None, settings: RunSettings) -> None:
    """Refuse a `first` that `first_of` could not read."""
    if text == "next" and settings.schedule is None:
        problem = "there is no schedule whose next time could be waited for"
        raise BadInput("first", problem, "now, or a time")
    if text not in {None, "now", "next"}:
        moment_of(str(text), settings.timezone, "first")


def first_of(text: str | None, settings: RunSettings, now: datetime) -> datetime | None:
    """When a new item is due first: "now", "next" by its schedule, or a time. None when nothing
    was said.
    """
    check_first(text, settings)
    match text:
        case None:
            return None
        case "now":
            return now
        case "next":
            assert settings.schedule is not None
            following = next_due(settings.schedule, now)
            if following is None:
                raise BadInput("first", "the schedule has no next time", "now, or a time")
            return following
        case _:
            return moment_of(text, settings.timezone, "first")
