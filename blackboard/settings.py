"""`blackboard.toml`: where the board is, how workers work, defaults of types, declared items.

The file is read and checked as a whole: an unknown name, a wrong type or a bad value refuses it,
with the line. Nothing in it is a secret; secrets come from the environment.
"""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from blackboard.bus import redis_parts
from blackboard.display.toml_text import line_of
from blackboard.errors import BadInput, NoTimeLeft
from blackboard.handlers.handler import Handler, check_type
from blackboard.inputs import check_new_id
from blackboard.model import replace
from blackboard.named_files import read_text
from blackboard.notify.settings import NotifyTable, RouteTable, check_notify, check_route
from blackboard.protocol.board_table import Resolve
from blackboard.protocol.keys import check_board_name
from blackboard.protocol.retention import Retention
from blackboard.rules.applied import REMEMBERED
from blackboard.rules.grab import Times
from blackboard.schedule.limits import check_calendars
from blackboard.schedule.times import format_duration, parse_duration
from blackboard.spec import (
    MOST_SLOTS,
    OF_ITS_TIMES,
    RunSettings,
    Spec,
    check_count,
    check_first,
    check_spec,
    check_value,
    concurrency_of,
    decode_spec,
    encode_spec,
    resolve,
)

FILE_NAME = "blackboard.toml"
MOST_REMEMBERED = 20_000
"""The most specs whose settings a resolver caches."""
LONGEST_REMEMBERED = 1_000
"""Characters of a spec with params that it caches: params may be long, and others in each item."""
MOST_HISTORY = 1_000_000
"""The most runs that are kept of an item."""


class BoardSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """Where the board is, which handlers it has, and how many runs it keeps."""

    store: str | None = None
    """The store: a path, `sqlite:PATH`, `azurite:` or `https://ACCOUNT.table.core.windows.net/TABLE`.
    Default: `blackboard.db` in the folder of the settings file."""
    name: str | None = None
    """The name of the board, where a store has several. Default: `blackboard`."""
    jobs: list[str] = []
    """Where handlers are: folders, files, modules, or names of jobs that come with blackboard."""
    history: int = 100
    """How many runs are kept of each item."""
    history_age: str = "90d"
    """Runs and actions that are older are deleted; runs at twice this age at the latest."""
    tombstones: str = "90d"
    """How long a removed item leaves a row with its fence, and its history; at least 10m."""
    coordinator: bool = True
    """Whether workers elect one of them to keep house: to count items, delete what is old, examine
    the rows."""
    stale_after: str | None = None
    """The lease of items whose type does not say one, or `interval`. Default: the interval of the
    schedule, at most 5m."""


class WorkerTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """How a worker works; options of `blackboard worker` override it."""

    cycle: str = "60s"
    """The time from one walk over the board to the next."""
    slots: int = 8
    """How many runs a worker runs at a time."""
    grace: str = "30s"
    """How long a worker that stops waits for its runs before it stops them; `0` does not wait."""
    types: list[str] | None = None
    """The types that this worker runs. Default: all that have a handler."""
    otel: bool = False
    """Whether each run is a span of OpenTelemetry, which `OTEL_*` in the environment says where to
    send."""


class RedisTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The bus of pumps with `balance="grab"`, and the durations of their races."""

    url: str | None = None
    """Where Redis is, without a password: `redis://HOST:6379/0`, `rediss://...` or `unix://PATH`.
    BLACKBOARD_REDIS_URL in the environment wins, and may hold a password."""
    prefix: str = "blackboard"
    """How the names of its hashes and channels begin. The name of the board follows, and when it
    was made: so boards of several stores may have one name, but a copy of a store needs another
    prefix."""
    normal: str = "1m"
    """A partition is raced for once in this time."""
    maximum: str = "3m"
    """What Redis says of a partition counts no more when there was no race for it for so long."""
    shutdown: str = "30s"
    """A winner waits so long for the pump of the loser to end."""
    minimum: str = "10s"
    """The winner of a race has the partition for so long at least."""
    per_held: str = "250ms"
    """A worker bids so much later for each partition that it holds."""

    def times(self) -> Times:
        """The durations. Raises BadInput for some that cannot work together."""
        names = ("normal", "maximum", "shutdown", "minimum", "per_held")
        texts = {name: getattr(self, name) for name in names}
        return Times(**{name: parse_duration(texts[name], name).total_seconds() for name in names})


class TypeTable(Spec, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What runs of a type are run with; it overrides `@handler`, and an item overrides it."""

    slots: int | None = None
    """How many runs of this type a worker runs at a time. Default: as many as it has slots."""
    concurrency: int | None = None
    """How many runs of this type go on at a time on the whole board, whichever workers run them.
    Default: as many as the workers have slots."""
    key: str | None = None
    """The name of a param: `concurrency` holds for each of its values apart, and is 1 unless it is
    given."""
    fenced: bool | None = None
    """Whether the result of a run that a later run has overtaken is dropped."""
    first: str | None = None
    """When a new item runs first, if it does not say: `now`, `next` (the next slot of its schedule)
    or a time. Default: `now` for `every`, `next` for other schedules."""


class ItemTable(Spec, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """An item that `blackboard apply` keeps as it is declared."""

    id: str
    """The name of the item; each has its own."""
    type: str
    """The name of the handler's type."""
    first: str | None = None
    """When a new item runs first: `now`, `next` (the next slot of its schedule) or a time. Default:
    that of its type."""

    def spec(self) -> Spec:
        return Spec(**{name: getattr(self, name) for name in Spec.__struct_fields__})


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The whole file."""

    board: BoardSettings = BoardSettings()
    worker: WorkerTable = WorkerTable()
    notify: NotifyTable | None = None
    redis: RedisTable = RedisTable()
    types: dict[str, TypeTable] = {}
    jobs: dict[str, dict[str, Any]] = {}
    """`[jobs.NAME]`: settings of a job, handed to its handlers as `ctx.settings`."""
    items: list[ItemTable] = []
    calendars: dict[str, list[str]] = {}
    """`[calendars]`: windows by name, such as days off, for `blackout`."""

    @property
    def retention(self) -> Retention:
        """How long the history is kept. Raises BadInput."""
        return Retention(
            runs=self.board.history,
            age=parse_duration(self.board.history_age, "history_age"),
            tombstones=parse_duration(self.board.tombstones, "tombstones"),
        )

    @property
    def is_of_items_alone(self) -> bool:
        return self == Settings(items=self.items)


KINDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "datetime": "a time",
    "date": "a day",
    "time": "a time of day",
    "array": "a list",
    "object": "a table",
}
"""The kinds of values of TOML, in words."""

_TABLES: dict[str, type[msgspec.Struct]] = {
    "board": BoardSettings,
    "worker": WorkerTable,
    "notify": NotifyTable,
    "redis": RedisTable,
    "types": TypeTable,
    "items": ItemTable,
}

_HEADS = {"types": "[types.NAME]", "items": "[[items]]"}
"""How the head of a table of this name is written, where that is not the name in brackets."""

_OPTIONS = {"tz": "timezone"}
"""Options of commands that settings have under another name."""

_ENTRIES = {"types": TypeTable, "jobs": dict[str, Any], "calendars": list[str]}
"""The kinds of the entries of tables whose names are free."""


def current_folder() -> Path:
    """The current folder. Raises BadInput where it was removed, or may not be read."""
    try:
        return Path.cwd()
    except OSError as error:
        problem = f"the current one cannot be used: {error.strerror}"
        raise BadInput("folder", problem, "change to a folder that is there") from None


def find(path: str | None, *, folder: Path) -> tuple[Settings, Path]:
    """The settings of a named file, of `blackboard.toml` in `folder`, or the defaults; and the
    folder that relative paths in them start from: that of the file, `folder` for a pipe.
    """
    if path == "":
        raise BadInput("config", "it is empty", "name a file, or leave it out")
    if path is not None and "\0" in path:
        raise BadInput("config", f"{path!r} is not a path", "name a file")
    file = folder / (path or FILE_NAME)
    try:
        file.lstat()  # a link that leads nowhere is there, and cannot be read
    except (FileNotFoundError, NotADirectoryError):
        if path is None:
            return Settings(), folder
    except OSError as error:
        remedy = "call it from a folder that can be read, or name the file: --config"
        raise BadInput("config", f"{file}: {error.strerror}", remedy) from None
    typed = Path(path or FILE_NAME) if folder == current_folder() else file
    return load_settings(typed), file.resolve().parent if file.is_file() else folder


def load_settings(file: Path) -> Settings:
    """Reads and checks a settings file. Raises BadInput with the file and the line."""
    return parse_settings(read_text(file, field="config"), file)


def parse_settings(text: str, file: Path, *, is_whole: bool = True) -> Settings:
    """The settings in a text, which messages say is in `file`. Where that is not `is_whole` and has
    items alone, what they refer to may be in another file. Raises BadInput with the line.
    """
    try:
        data = tomllib.loads(text)
        if "jobs" in data:
            data["jobs"] = msgspec.to_builtins(data["jobs"])  # times are text, as in params
    except tomllib.TOMLDecodeError as error:
        raise BadInput("config", _placed(file, error), "mend the TOML") from None
    except ValueError:
        problem = f"{file}: a number has thousands of digits"
        raise BadInput("config", problem, "mend the TOML") from None
    except RecursionError:
        raise BadInput("config", f"{file} is nested too deeply") from None
    for table in _with_schedules(data):
        for name in ("at", "until", "first"):
            if isinstance(table.get(name), date):  # or datetime, which is one
                table[name] = table[name].isoformat()
    try:
        settings = msgspec.convert(data, type=Settings)
    except msgspec.ValidationError as error:
        raise _located(file, text, data, str(error)) from None
    _check(file, text, settings, is_whole=is_whole or not settings.is_of_items_alone)
    return settings


def _with_schedules(data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The tables that may have times, which TOML can also write without quotes."""
    types, items = data.get("types"), data.get("items")
    for table in (
        *(types.values() if isinstance(types, dict) else ()),
        *(items if isinstance(items, list) else ()),
    ):
        if isinstance(table, dict):
            yield table


@contextmanager
def naming_line(file: Path, text: str, *table: str | int) -> Iterator[None]:
    """Adds to a BadInput the file, whose text this is, and the line of the field in a table."""
    try:
        yield
    except BadInput as error:
        line = line_of(text, (*table, *error.field.split(".")))
        kind = NoTimeLeft if isinstance(error, NoTimeLeft) else BadInput
        raise kind(error.field, f"{file}:{line}: {error.problem}", error.remedy) from None


def check_types(types: Sequence[str] | None) -> None:
    """Raises BadInput where a worker is to take no type. None: it takes all."""
    if types is not None and not types:
        raise BadInput("types", "it names none", "leave it out for all types")


def _check(file: Path, text: str, settings: Settings, *, is_whole: bool) -> None:
    """Checks what the types of fields do not: durations, schedules, numbers, ids given twice."""
    within = partial(naming_line, file, text)
    with within("board"):
        _check_board(settings.board)
    if settings.board.name is not None:
        with within("board", "name"):
            check_board_name(settings.board.name)
    with within("worker"):
        _check_worker(settings.worker)
    if settings.notify is not None:
        for number, route in enumerate(settings.notify.routes):
            with within("notify", "routes", number):
                check_route(route)
        with within("notify"):
            check_notify(settings.notify)
    with within("redis"):
        _check_redis(settings.redis)
    with within("calendars"):
        check_calendars(settings.calendars)
    for name, job in settings.jobs.items():
        with within("jobs", name):
            _check_job(job)
    for name, table in settings.types.items():
        with within("types", name):
            check_type(name)
            _check_type(table)
            _resolved(settings, {}, name, "{}")
    ids: set[str] = set()
    resolved = resolver(settings, {})
    for number, item in enumerate(settings.items):
        with within("items", number):
            check_item(item)
            if item.id in ids:
                remedy = "give each item an id of its own"
                raise BadInput("id", f"{item.id!r} is declared twice", remedy)
            ids.add(item.id)
            if is_whole:
                resolved(item.type, encode_spec(item.spec()))


def _check_board(table: BoardSettings) -> None:
    parse_duration(table.history_age, "history_age")
    _check_tombstones(table.tombstones)
    check_spec(Spec(stale_after=table.stale_after))
    check_count("history", table.history, most=MOST_HISTORY)


def _check_worker(table: WorkerTable) -> None:
    parse_duration(table.cycle, "cycle")
    parse_duration(table.grace, "grace")
    check_count("slots", table.slots, most=MOST_SLOTS)
    check_types(table.types)


def _check_redis(table: RedisTable) -> None:
    if table.url is not None:
        redis_parts(table.url, "url")
    table.times()


def _check_job(table: Mapping[str, Any]) -> None:
    for name, value in table.items():
        check_value(value, name)


def _check_type(table: TypeTable) -> None:
    check_spec(table)
    if table.slots is not None:
        check_count("slots", table.slots, most=MOST_SLOTS)
    concurrency_of(table.concurrency, table.key)
    check_first(table.first, table.timezone or "UTC")
    if table.params:
        raise BadInput("params", "a type has none of its own", "give them to its items")


def check_item(item: ItemTable) -> None:
    """Checks an item as a file declares it. Raises BadInput."""
    check_spec(item)
    check_new_id(item.id)
    check_type(item.type)
    check_first(item.first, item.timezone or "UTC")


def _check_tombstones(text: str) -> None:
    if parse_duration(text, "tombstones") < REMEMBERED:
        shortest = format_duration(REMEMBERED)
        problem = f"{text!r} is too short: requests that are in doubt are tried again meanwhile"
        raise BadInput("tombstones", problem, f"{shortest} at the least")


def _placed(file: Path, error: tomllib.TOMLDecodeError) -> str:
    """A syntax error as FILE:LINE: what is wrong."""
    match = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", str(error), re.DOTALL)
    return f"{file}:{match[2]}: {match[1]}" if match else f"{file}: {error}"


def _located(file: Path, text: str, data: Mapping[str, Any], message: str) -> BadInput:
    """A validation error with its line, and the name that was probably meant."""
    problem, _, where = message.partition(" - at `")
    path = _path(where.rstrip("`"), data)
    field, remedy = _field(path), ""
    if kinds := re.fullmatch(r"Expected `(.+)`, got `(.+)`", problem):
        problem, remedy = _of_another_kind(kinds[1].removesuffix(" | null"), kinds[2])
        if len(path) == 1 and isinstance(value := data[field], str | list) and value:
            is_table = isinstance(value[0], Mapping)  # else `jobs = ["jobs"]`, above [board]
            remedy = "its head has one bracket: [...]" if is_table else _home(field, "") or remedy
    if name := re.search(r"field `([^`]+)`", problem):
        field = name[1]
        if "unknown" in problem:
            problem, remedy = "there is no such setting", _meant_instead(field, path)
        else:
            problem, remedy = "it is missing", f"add a line {field} = ..."
        path = (*path, field)
    return BadInput(field, f"{file}:{line_of(text, path)}: {problem}", remedy)


def _meant_instead(field: str, path: tuple[str | int, ...]) -> str:
    """What was probably meant by a setting that the table at `path` does not have."""
    section = str(path[0]) if path else ""
    kind = RouteTable if path[:2] == ("notify", "routes") else _TABLES.get(section, Settings)
    names = kind.__struct_fields__
    if near := difflib.get_close_matches(_OPTIONS.get(field, field), names, 1):
        return f"did you mean {near[0]}?"
    if home := _home(field, section):
        return home
    of_params = f"for its handler, params = {{ {field} = ... }}; " if section == "items" else ""
    return f"{of_params}known here: {', '.join(names)}"


def _home(field: str, section: str) -> str:
    """Where a setting belongs that this section does not have; "": nowhere. What an item has
    beside its settings is for its type, or else for its handler.
    """
    homes = [name for name, table in _TABLES.items() if field in table.__struct_fields__]
    if section == "items":
        homes = [home for home in homes if home == "types"]
    if not homes or section in homes:
        return ""
    return f"write it below {_HEADS.get(homes[0], f'[{homes[0]}]')}"


def _field(path: Sequence[str | int]) -> str:
    """The name at the end of a path, with its place in a list: "routes[0]"."""
    names = [place for place, part in enumerate(path) if isinstance(part, str)]
    if not names:
        return "config"
    name, *places = path[names[-1] :]
    return f"{name}{''.join(f'[{place}]' for place in places)}"


def _of_another_kind(expected: str, got: str) -> tuple[str, str]:
    """The problem of a value of another kind, and the remedy."""
    problem = f"it is {KINDS.get(got, got)}, not {KINDS.get(expected, expected)}"
    match expected, got:
        case "str", "int" | "float":
            return problem, 'put it in quotes; a duration has its unit in there, as in "90s"'
        case "str", "bool" | "datetime" | "date" | "time":
            return problem, "put it in quotes"
        case "int" | "float" | "bool", "str":
            return problem, "leave out the quotes"
        case "array", "object":
            return problem, "its head has two brackets: [[...]]"
        case "array", _:
            return problem, "put it in brackets: [...]"
        case "object", _:
            return problem, "write a table, as in {days = 3}"
        case _:
            return problem, f"write {KINDS.get(expected, expected)}"


def _path(where: str, data: Mapping[str, Any]) -> tuple[str | int, ...]:
    """The path in `$.types[...].every`, `$.items[2].id`. `[...]` is the first entry that is
    wrong.
    """
    path: list[str | int] = []
    for name, number in re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", where):
        if name:
            path.append(name)
        elif number != "...":
            path.append(int(number))
        elif len(path) == 1 and path[0] in _ENTRIES:
            table = str(path[0])
            path.append(next(k for k, v in data[table].items() if not _is_of(_ENTRIES[table], v)))
    return tuple(path)


def _is_of(kind: Any, value: Any) -> bool:
    try:
        msgspec.convert(value, type=kind)
    except msgspec.ValidationError:
        return False
    return True


def resolver(settings: Settings, handlers: Mapping[str, Handler], *, unread: str = "") -> Resolve:
    """A function that returns the settings of a run: item, else `[types]`, else `@handler`. It
    caches them: specs that differ in nothing but their params are resolved once. `unread` says why
    there are no handlers: then an item that has no schedule without them raises BadInput.
    """
    cached: dict[tuple[str, str], RunSettings] = {}

    def resolved(item_type: str, spec: str) -> RunSettings:
        entry = cached.get((item_type, spec))
        if entry is None:
            if len(cached) >= MOST_REMEMBERED:
                cached.clear()
            own = decode_spec(spec)
            bare = encode_spec(msgspec.structs.replace(own, params={})) if own.params else spec
            entry = cached.get((item_type, bare)) or _resolved(settings, handlers, item_type, bare)
            if unread and entry.schedule is None:
                problem = f"{unread}; {item_type!r} may have its schedule there"
                raise BadInput("jobs", problem, "mend that first, or say when the item runs")
            cached[item_type, bare] = entry
            if len(spec) <= LONGEST_REMEMBERED:
                cached[item_type, spec] = entry
        return entry

    return resolved


def _resolved(
    settings: Settings, handlers: Mapping[str, Handler], item_type: str, spec: str
) -> RunSettings:
    table = settings.types.get(item_type, TypeTable())
    handler = handlers.get(item_type)

    def value_of(name: str) -> Any:
        """An option of the type, which no item has."""
        value = getattr(table, name)
        return getattr(handler, name, None) if value is None else value

    layers: list[Spec] = [decode_spec(spec), table]
    if handler is not None:
        layers.append(handler.spec)
    layers.append(Spec(stale_after=settings.board.stale_after))
    concurrency = concurrency_of(value_of("concurrency"), value_of("key"))
    resolved = replace(
        resolve(layers, calendars=settings.calendars),
        fenced=bool(value_of("fenced")),
        endless=handler is not None and handler.pump is not None,
        slots=value_of("slots"),
        concurrency=concurrency,
        first=value_of("first"),
        has_handler=handler is not None,
    )
    if resolved.endless:
        _check_group(item_type, table, resolved)
    return resolved


def _check_group(name: str, table: TypeTable, settings: RunSettings) -> None:
    """Raises BadInput for what the type of a group of partitions cannot have."""
    group = f"{name!r} is a group of partitions"
    if settings.concurrency is not None:
        problem = f"{group}, each of which has one pump"
        raise BadInput("concurrency", problem, "leave out concurrency and key")
    if settings.slots is not None:
        problem = f"{group}, and a worker serves its share of them"
        raise BadInput("slots", problem, "leave out slots")
    for field in OF_ITS_TIMES:
        if getattr(table, field) is not None:
            none = "time limit" if field == "timeout" else "schedule"
            problem = f"{group}, which are held and have no {none}"
            raise BadInput(field, problem, f"leave out {field}")
