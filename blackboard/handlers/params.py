"""The params of a type, where its handler declares them: `@handler("report", params=ReportParams)`.

`ReportParams` is a dataclass or a Struct of msgspec. Its fields are described by a JSON schema, as
msgspec writes it, so that params can be checked where the class is not at hand. Checked is what
such a schema says of types, ranges, lengths, patterns, choices, dates and times; what only the
class can refuse (`__post_init__`, some formats) is refused when an instance is made. A field that
the class does not have is refused too: most are typing errors.

A text with `${NAME}` may stand for any value: it is checked when the handler is called. There,
texts that are numbers are read as such. An error names the variable, and never shows its value.
"""

import dataclasses
import json
import re
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from difflib import get_close_matches
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct

from blackboard.errors import BadInput
from blackboard.handlers.context import Fail, HandlerItem, variables
from blackboard.model import replace
from blackboard.phrases import class_of, message_of

Schema = Mapping[str, Any]


_AT = re.compile(r"(.*) - at (`key` in )?`\$(.*)`", re.DOTALL)
_CLASS = re.compile(r"<class '([^']+)'>")
_STEPS = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
"""A step to a place: the name of a field or number of an element; `...` is a key of a mapping."""
_TYPES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "string": ("text", lambda value: isinstance(value, str)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "integer": (
        "a whole number",
        lambda value: isinstance(value, int) and not isinstance(value, bool),
    ),
    "number": (
        "a number",
        lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    ),
    "array": ("a list", lambda value: isinstance(value, list | tuple)),
    "object": ("a table", lambda value: isinstance(value, Mapping)),
    "null": ("nothing", lambda value: value is None),
}
"""The types of JSON: each in words, and the test whether a value has it."""
_ANY = "a value", lambda _: True
_FORMATS: Mapping[str, tuple[type, str]] = {
    "date": (date, "a date like 2026-08-21"),
    "date-time": (datetime, "a time like 2026-08-21T18:00:00Z"),
    "time": (time, "a time like 18:00:00"),
    "duration": (timedelta, "a duration like PT5M"),
    "uuid": (UUID, "a UUID like 01234567-89ab-cdef-0123-456789abcdef"),
    "decimal": (Decimal, "a number as text, like 1.50"),
    "base64": (bytes, "text in base64"),
}
"""Formats and encodings of text: the type of each, and the words for it."""
_UNFIT: Mapping[str, str] = {
    "Invalid RFC3339 encoded datetime": _FORMATS["date-time"][1],
    "Invalid RFC3339 encoded time": _FORMATS["time"][1],
}
"""What msgspec says of text whose format is not in a schema, as it may have a zone or not; and the
words for it."""
_LIMITS: Mapping[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": ("at least", lambda value, limit: value >= limit),
    "maximum": ("at most", lambda value, limit: value <= limit),
    "exclusiveMinimum": ("more than", lambda value, limit: value > limit),
    "exclusiveMaximum": ("less than", lambda value, limit: value < limit),
    "multipleOf": ("a multiple of", lambda value, limit: value % limit == 0),
    "minLength": ("a length of at least", lambda value, limit: len(value) >= limit),
    "maxLength": ("a length of at most", lambda value, limit: len(value) <= limit),
    "minItems": ("a number of at least", lambda value, limit: len(value) >= limit),
    "maxItems": ("a number of at most", lambda value, limit: len(value) <= limit),
    "minProperties": ("a number of at least", lambda value, limit: len(value) >= limit),
    "maxProperties": ("a number of at most", lambda value, limit: len(value) <= limit),
    "pattern": ("text that matches", lambda value, limit: re.search(limit, value) is not None),
}
"""Limits, by their key in a schema: each in words, and the test whether a value keeps to it."""


class Params(Struct, frozen=True, kw_only=True):
    """The params that a type takes."""

    schema: Schema
    """JSON schema of an object, as `msgspec.json.schema` writes it."""
    kind: type | None = None
    """The class; None where the handler's module was not imported."""

    def check(self, params: Mapping[str, Any]) -> None:
        """Raises BadInput naming the field, with the remedy; or with the message of the class,
        where that refuses them by itself.
        """
        with suppress(TypeError, RecursionError):  # what no row can hold is refused elsewhere
            params = msgspec.to_builtins(params, str_keys=True)
        self.check_fields(params)
        if self.kind is None or variables(params):
            return
        try:
            self.made(params)
        except BadInput:
            raise
        except BaseException as problem:  # a SystemExit of the class would end a loop of asyncio
            if isinstance(problem, KeyboardInterrupt) and _may_be_ctrl_c():
                raise
            raise BadInput("params", f"{class_of(problem)}: {message_of(problem)}") from problem

    def check_fields(self, params: Mapping[str, Any]) -> None:
        """The same, by the schema alone."""
        self._check(params, self.schema, "params")

    def made(self, params: Mapping[str, Any], *, written: Mapping[str, Any] | None = None) -> Any:
        """An instance of the class; `written` are the params with `${NAME}`, if they have any.
        Raises BadInput naming the field, and what the class raises but ValueError and TypeError.
        """
        assert self.kind is not None
        try:
            return msgspec.convert(params, self.kind, strict=written is None, str_keys=True)
        except msgspec.ValidationError as problem:
            match = _AT.fullmatch(str(problem))
            text, of_key, place = match.groups() if match else (str(problem), None, "")
            if of_key:
                raise BadInput(f"params{place}", f"one of its keys: {text}") from None
            is_own = problem.__cause__ is not None  # the class has raised it
            names = set[str]() if is_own else variables(_value_at(written, place))
            if not names:
                remedy = "" if is_own or text not in _UNFIT else f"give {_UNFIT[text]}"
                raise BadInput(f"params{place}", text, remedy) from None
            listed = " and ".join(f"${{{name}}}" for name in sorted(names))
            wrong = f"the value of {listed} in the worker's environment does not fit"
            raise BadInput(f"params{place}", wrong, self._remedy_at(place)) from None

    def _remedy_at(self, place: str) -> str:
        schemas: list[Schema] = [self.schema]
        for step in _STEPS.findall(place):
            schemas = [
                inner
                for schema in schemas
                for way in self._ways(schema)
                if isinstance(inner := _inner(way, *step), Mapping)
            ]
        return self._remedy({"anyOf": schemas})

    def summary(self) -> list[str]:
        """Each field in a few words: its name, with * if it must be given, its kind and default."""
        body, lines = self.referred(self.schema), []
        for name, schema in body.get("properties", {}).items():
            kinds = dict.fromkeys(map(_words, self._ways(schema)))
            text = f"{name}{'*' * (name in body.get('required', ()))} ({' or '.join(kinds)})"
            lines.append(
                f"{text} = {json.dumps(schema['default'])}" if "default" in schema else text
            )
        return lines

    def _check(self, value: Any, schema: Schema, where: str) -> None:
        if isinstance(value, str) and variables(value):
            return
        if isinstance(value, date | time):  # of TOML; a row has its text
            value = value.isoformat()
        schema = self._tagged(value, self.referred(schema), where)
        if "anyOf" in schema:
            self._check_any(value, schema["anyOf"], where)
        choices = [schema["const"]] if "const" in schema else schema.get("enum")
        if choices is not None and not any(_is_same(value, choice) for choice in choices):
            named = ", ".join(map(str, choices))
            raise BadInput(where, f"{value!r} is not one of its values", f"give one of {named}")
        words, is_one = _TYPES.get(schema.get("type", ""), _ANY)
        if not is_one(value):
            raise BadInput(where, f"{value!r} is not {words}", f"give {words}")
        _check_format(value, schema.get("format") or schema.get("contentEncoding", ""), where)
        for key, (words, is_within) in _LIMITS.items():
            if key in schema and not is_within(value, schema[key]):
                raise BadInput(where, f"{value!r} is out of range", f"{words} {schema[key]}")
        if isinstance(value, Mapping):
            self._check_object(value, schema, where)
        elif isinstance(value, list | tuple):
            self._check_list(value, schema, where)

    def _tagged(self, value: Any, schema: Schema, where: str) -> Schema:
        """Of a choice of classes, the schema of the one that the tag of a table names; all of them,
        where a variable is the tag. Any other schema as it is.
        """
        tags = schema.get("discriminator")
        if tags is None or not isinstance(value, Mapping):
            return schema
        name, classes = tags["propertyName"], tags["mapping"]
        remedy = f"give one of {', '.join(classes)}"
        if variables(value.get(name)):
            return schema
        if name not in value:
            raise BadInput(f"{where}.{name}", "it is missing", remedy)
        if str(value[name]) not in classes:
            raise BadInput(f"{where}.{name}", f"{value[name]!r} is not one of its values", remedy)
        return self.referred({"$ref": classes[str(value[name])]})

    def _check_any(self, value: Any, schemas: Sequence[Schema], where: str) -> None:
        """One of the schemas must fit; where one alone is of the value's type, it says what is
        wrong.
        """
        problems: list[BadInput] = []
        for schema in schemas:
            try:
                self._check(value, schema, where)
            except BadInput as problem:
                problems.append(problem)
            else:
                return
        inner = [problem for problem in problems if problem.field != where]
        if len(inner) == 1:
            raise inner[0]
        remedies = " or ".join(
            dict.fromkeys(problem.remedy.removeprefix("give ") for problem in problems)
        )
        raise BadInput(where, f"{value!r} fits nothing that it may be", f"give {remedies}")

    def _check_object(self, value: Mapping[str, Any], schema: Schema, where: str) -> None:
        fields: Mapping[str, Schema] = schema.get("properties", {})
        others = schema.get("additionalProperties", "properties" not in schema)
        for key, inner in value.items():
            if key in fields:
                self._check(inner, fields[key], f"{where}.{key}")
            elif isinstance(others, Mapping):
                self._check(inner, others, f"{where}.{key}")
            elif not others:
                raise BadInput(f"{where}.{key}", "there is no such field", _instead(key, fields))
        for key in schema.get("required", ()):
            if key not in value:
                raise BadInput(f"{where}.{key}", "it is missing", self._remedy(fields.get(key, {})))

    def _check_list(self, value: Sequence[Any], schema: Schema, where: str) -> None:
        first: Sequence[Schema] = schema.get("prefixItems", ())
        rest = schema.get("items", {})
        for number, member in enumerate(value):
            inner = first[number] if number < len(first) else rest
            if isinstance(inner, Mapping):
                self._check(member, inner, f"{where}[{number}]")

    def _remedy(self, schema: Schema) -> str:
        words = dict.fromkeys(_words(way) for way in self._ways(schema))
        return f"give {' or '.join(words) or 'another'}"

    def _ways(self, schema: Schema) -> list[Schema]:
        """The schemas of which a value has to fit one: references and choices are resolved."""
        schema = self.referred(schema)
        if "anyOf" not in schema:
            return [schema]
        return [way for each in schema["anyOf"] for way in self._ways(each)]

    def referred(self, schema: Schema) -> Schema:
        """The schema itself, where this one only refers to it."""
        name = schema.get("$ref")
        return schema if name is None else self.schema["$defs"][name.rpartition("/")[2]]


def _may_be_ctrl_c() -> bool:
    """Whether a signal can raise KeyboardInterrupt in this thread, by Python's own handler."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def written(params: Any) -> Any:
    """An instance of a dataclass or a Struct as a dict, without fields, at any depth, that are None
    by default: a row keeps no null. Such instances in a dict likewise; anything else as it is.
    Raises BadInput for an instance that a row cannot hold.
    """
    if _is_instance(params):
        try:
            fields = msgspec.to_builtins(params, str_keys=True)
            _leave_out_nulls(params, fields)
        except (TypeError, RecursionError) as problem:
            raise BadInput("params", f"{type(params).__name__}: {problem}") from None
        return fields
    try:
        return _written_within(params) if isinstance(params, Mapping) else params
    except RecursionError:  # it is refused with its place
        return params


def _is_instance(value: Any) -> bool:
    is_of_dataclass = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return is_of_dataclass or isinstance(value, Struct)


def _written_within(value: Any) -> Any:
    """A value in which each instance of a dataclass or a Struct is a dict; one that JSON cannot
    hold stays as it is, to be refused with its place.
    """
    if isinstance(value, Mapping):
        return {key: _written_within(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_written_within(inner) for inner in value]
    if _is_instance(value):
        try:
            fields = msgspec.to_builtins(value)
        except TypeError:
            return value
        _leave_out_nulls(value, fields)
        return fields
    return value


def _fields_of(value: Any) -> Iterable[tuple[str, str, Any]]:
    """The fields of an instance that msgspec writes as an object: the name, the key and the default
    of each. Annotations are not read, as they may name what is there for type checkers alone.
    """
    kind = type(value)
    if isinstance(value, Struct):
        names, defaults = kind.__struct_fields__, kind.__struct_defaults__
        all_defaults = (msgspec.NODEFAULT,) * (len(names) - len(defaults)) + defaults
        return zip(names, kind.__struct_encode_fields__, all_defaults, strict=True)
    fields = getattr(kind, "__attrs_attrs__", ()) or dataclasses.fields(value)
    return [(field.name, field.name, field.default) for field in fields]


def _leave_out_nulls(value: Any, written: Any) -> None:
    """Removes fields that are None by default from `written`, which msgspec made of `value`."""
    pairs: list[tuple[Any, Any]] = []
    if isinstance(value, Mapping):
        pairs += zip(value.values(), written.values(), strict=True)
    elif isinstance(value, list | tuple | set | frozenset):
        pairs += zip(value, written, strict=True)
    elif isinstance(written, dict):
        for name, key, default in _fields_of(value):
            inner = getattr(value, name, None)
            if inner is None and default is None:
                written.pop(key, None)
            elif key in written:
                pairs.append((inner, written[key]))
    for part, inner in pairs:
        _leave_out_nulls(part, inner)


def described(kind: Any, name: str) -> Params:
    """The params of a type, by the class that `@handler` names. Raises BadInput naming `name`."""
    is_class = isinstance(kind, type) and (
        dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct)
    )
    if not is_class:
        found = _CLASS.sub(r"\1", repr(kind))
        problem = f"params {found} is not a dataclass or a Struct of msgspec"
        remedy = "name one; or leave it out, and validate `item.params` in the handler"
        raise BadInput(name, problem, remedy)
    try:
        schema = msgspec.json.schema(kind)
    except (TypeError, NameError) as problem:
        remedy = "use what JSON has, and dates, enumerations and classes of these"
        said = _CLASS.sub(r"\1", str(problem).rpartition("\n")[2])  # advice for msgspec is before
        raise BadInput(name, f"params {kind.__name__}: {said}", remedy) from None
    for named, definition in schema["$defs"].items():
        _check_kept(definition, named, name)
    params = Params(schema=schema, kind=kind)
    if params.referred(schema).get("type") == "array":
        listed = f"params {kind.__name__}: it is written as a list"
        raise BadInput(name, listed, "leave out `array_like`")
    return params


def _check_kept(schema: Schema, where: str, name: str, *, is_field: bool = False) -> None:
    """Raises BadInput naming `name` for what may be None and could not be left out: rows keep no
    null.
    """
    kinds = schema.get("anyOf", [schema])
    is_left_out = is_field and schema.get("default", ...) is None
    if not is_left_out and any(form.get("type") == "null" for form in kinds):
        problem = f"params {where}: it may be None, which no row can keep"
        raise BadInput(name, problem, "make None the default of a field, which is left out then")
    for form in kinds:
        for field, inner in form.get("properties", {}).items():
            _check_kept(inner, f"{where}.{field}", name, is_field=True)
        others = form.get("items"), form.get("additionalProperties"), *form.get("prefixItems", ())
        for inner in others:
            if isinstance(inner, Mapping):
                _check_kept(inner, f"{where}[...]", name)


def with_params(item: HandlerItem, params: Params | None) -> HandlerItem:
    """The item as a handler with these params gets it. Raises Fail, as no retry would help."""
    if params is None or params.kind is None:
        return item
    try:
        params.check_fields(item.written or item.params)
        return replace(item, params=params.made(item.params, written=item.written))
    except BadInput as problem:
        raise Fail(str(problem)) from None


def _instead(key: str, fields: Iterable[str]) -> str:
    near = get_close_matches(key, fields, n=1)
    return f"did you mean {near[0]}?" if near else f"there are: {', '.join(fields) or 'none'}"


def _words(schema: Schema) -> str:
    """What a value has to be: "a whole number, at least 1"."""
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    kind, _ = _TYPES.get(schema.get("type", ""), _ANY)
    kind += f" of the format {schema['format']}" if "format" in schema else ""
    limits = [f"{words} {schema[key]}" for key, (words, _) in _LIMITS.items() if key in schema]
    return ", ".join([kind, *limits])


def _check_format(value: Any, name: str, where: str) -> None:
    kind, words = _FORMATS.get(name, (None, ""))
    try:
        if kind is not None:
            msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise BadInput(where, f"{value!r} is not {words}", f"give {words}") from None


def _inner(schema: Schema, name: str, number: str) -> Any:
    """The schema of a field, of an element, or of the values of a mapping; None if it has none."""
    if name:
        return schema.get("properties", {}).get(name)
    if not number.isdigit():
        return schema.get("additionalProperties")
    return dict(enumerate(schema.get("prefixItems", ()))).get(int(number), schema.get("items"))


def _value_at(value: Any, place: str) -> Any:
    """The value at a place; where a step leads nowhere, the one around it."""
    for name, number in _STEPS.findall(place):
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        elif isinstance(value, list) and number.isdigit():
            value = value[int(number)]
    return value


def _is_same(value: Any, other: Any) -> bool:
    """Whether two values are the same to msgspec, for which neither true nor 1.0 is 1."""
    kinds = bool, float
    is_of_a_kind = all(isinstance(value, kind) == isinstance(other, kind) for kind in kinds)
    return value == other and is_of_a_kind
