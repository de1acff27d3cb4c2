r"""The lines of a crontab as items of the type `shell`.

Read as crontab(5) of Debian says: `NAME = value` lines count for the lines below; a `%` ends the
command, and what follows is its input, a line for each further `%`; `\%` is a `%`, and `\\` in the
command a `\`, which a warning says, because cronie leaves both. Of other crons: `NAME =` is empty;
CRON_TZ is the zone of the lines below, RANDOM_DELAY their jitter in minutes; `1~5` as a minute or
hour is the first, with a jitter up to the last; a dash before the minute, and the flags -n, -q and
-s before the command, are dropped. TZ is a variable of the commands alone, which a warning says. Of
a crontab of the system, whose lines name a user, those of one user are read.
"""

import os
import re
import shlex
import shutil
import zoneinfo
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from blackboard.command_names import name_of
from blackboard.errors import BadInput
from blackboard.schedule.cron import Cron
from blackboard.schedule.times import parse_duration
from blackboard.schedule.zones import find_zone
from blackboard.spec import is_of_a_line

LONGEST_ID = 40
"""The most characters of an id that is made from a comment or a command."""
SHELL = "/bin/sh"
REBOOT = (
    "@reboot is left out: a board has no host that starts; the host's own manager does that "
    "(systemd: WantedBy=multi-user.target)"
)
_SETTING = re.compile(
    r"""\s*(?P<name>[^\s="'#]+|"[^"]+"|'[^']+')\s*="""
    r"""\s*(?P<value>"[^"]*"|'[^']*'|(?P<open>["'].*)|.*?)\s*"""
)
_HEADING = re.compile(
    r"m(in(ute)?)?\s+h(our)?\s|[.|+┌│├╭╔║][\s.|─═-]|(vim?|ex):\s|-\*-\s", re.IGNORECASE
)
"""Matches the names of the five fields in a comment, in one line, or each with a line that leads to
its field; and the settings of an editor.
"""
_FRAME = "#-=* "
"""What comments are underlined and framed with."""
_COMMAND = re.compile(r"(?:\\.|[^%])*", re.DOTALL)
_ESCAPED = re.compile(r"\\([%\\])")
_PERCENT = re.compile(r"(?<!\\)%")
_WORD = re.compile(r"[^\W_]+", re.UNICODE)
_USER = re.compile(r"[a-z_][a-z0-9_-]*(?:\$|:[a-z_][a-z0-9_-]*)?")
"""Matches a user, or with its group as in FreeBSD."""
_DAYS = "(?:sun|mon|tue|wed|thu|fri|sat)"
_SIXTH = re.compile(rf"[*?](?:/\d+)?|\d[\d,/*-]*|{_DAYS}(?:[-,]{_DAYS})+", re.IGNORECASE)
"""Matches a field in the place of the command."""
_STEP_OF_ONE = re.compile(r"(?<![^\s,])(?:[0-9]+|[a-z]{3})/\w+", re.IGNORECASE)
_OF_CHANCE = re.compile(r"([0-9]{0,2})~([0-9]{0,2})")
"""Matches a field as OpenBSD has it: any number of a range, or of all."""
_FLAGS = re.compile(r"\A(?:-[nqs]+\s+)+")
_NOT_UTF_8 = re.compile("[\udc80-\udcff]")
_END_OF_COMMAND = re.compile(r"(?<!\\)[ \t]+\Z")
"""A blank after a backslash is of the command."""
_NO_ARGUMENTS = "case|cd|for|if|until|while"
_BEGINS = re.compile(rf"(?:{_NO_ARGUMENTS}|!|\{{|\[\[?)\s|\(")
"""Matches the beginning of a shell command that cannot be an argument."""
_OF_SHELLS = re.compile(
    rf"{_NO_ARGUMENTS}|builtin|command|declare|eval|exec|exit|export|function|pushd|read|set"
    "|shopt|source|time|trap|type|ulimit|umask|unset|wait"
)
"""Matches the words of the shell that no user is called."""
_OF_ANACRON = re.compile(r"@\w+\s+\d+\s|\d+\s+\d+\s+(?!l-)[a-z][\w.-]{2,}\s+[a-z/]", re.IGNORECASE)
"""Matches a period, a delay, and the name of a job."""
_JOINED = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
"""Matches a backslash at the end that no other one escapes."""
TAKE_ONE = (
    "take the lines of one user by --user; a worker runs commands as its own user, so start one as "
    "that"
)
LOCALTIME, TIMEZONE = Path("/etc/localtime"), Path("/etc/timezone")


@dataclass(slots=True)
class Crontab:
    zone: str
    user: str = ""
    """The user whose lines are read, where lines name one; else ""."""
    items: list[dict[str, Any]] = field(default_factory=list)
    """The items, each with the keys of an `[[items]]` table."""
    problems: dict[int, str] = field(default_factory=dict)
    """The problems of lines that cannot be imported, by their numbers."""
    left_out: list[str] = field(default_factory=list)
    """Lines that mean nothing on a board, with their numbers and why."""
    doubled: list[int] = field(default_factory=list)
    r"""The numbers of the lines whose commands have `\\`."""
    others: list[str] = field(default_factory=list)
    """The users of the lines that are not read."""
    _env: dict[str, str] = field(default_factory=dict)
    _above: list[str] = field(default_factory=list)
    """The comment right above the line."""
    _numbers: dict[str, Iterator[int]] = field(default_factory=dict)
    """The numbers behind an id that is there already."""
    _ids: set[str] = field(default_factory=set)
    _commands: dict[int, str] = field(default_factory=dict)
    """By the number of the line."""

    def read(self, text: str) -> None:
        for number, line in enumerate(text.split("\n"), 1):
            try:
                self._read(line.rstrip("\r").lstrip(), number)
            except BadInput as problem:
                self.problems[number] = str(problem)

    def check_users(self, *, system: bool) -> list[str]:
        """Names the lines with a user between the time and the command, as in /etc/crontab. One
        line with a sure user makes a file such a crontab: then it is each line whose first word may
        be one, and no program of this host unless all lines are alike. Returns what may be users.
        """
        pairs = {n: command.split(None, 1) for n, command in self._commands.items()}
        of_host = _users()
        sure = {n for n, command in self._commands.items() if _has_user(command, of_host)}
        alike = all(rest and _is_name(first) for first, *rest in pairs.values())
        system = system or (bool(sure) and alike)
        for number, (first, *rest) in pairs.items():
            elsewhere = sure and _is_name(first) and shutil.which(first) is None
            if number in sure or (rest and (system or elsewhere)):
                problem = f"{first!r} is a user, as in /etc/crontab"
                self.problems[number] = str(BadInput("user", problem, TAKE_ONE))
        return list(dict.fromkeys(filter(None, map(_user_in, self._commands.values()))))

    def _read(self, line: str, number: int) -> None:
        if "\r" in line:
            problem = "it has a carriage return, which ends no line"
            raise BadInput("line", problem, "save the file with the line ends of Unix")
        if line.startswith("#"):
            words = _one_line(_in_any_encoding(line.lstrip("#")))
            if not words or _HEADING.match(words) or _is_job(words):
                self._above.clear()
            else:
                self._above.append(words.strip(_FRAME))
            return
        above, self._above = self._above, []
        if not line:
            return
        if _NOT_UTF_8.search(line):
            raise BadInput("line", "it is not UTF-8 text", "save the file as UTF-8")
        if "\0" in line:
            raise BadInput("line", "it has a NUL, which no command can have", "leave it out")
        if (setting := _SETTING.fullmatch(line)) is not None:
            if setting["open"]:
                problem = f"the quote at the beginning of {setting['name']} does not end with it"
                raise BadInput("line", problem, "cron takes a value in one pair of quotes, or none")
            self._set(_unquoted(setting["name"]), _unquoted(setting["value"]))
        else:
            self._add(line, number, " ".join(filter(None, above)))

    def _add(self, line: str, number: int, comment: str) -> None:
        expression, user, command = _split(line, has_user=bool(self.user))
        if user != self.user:
            self.others.append(user)
            return
        if expression.lower() == "@reboot":
            self.left_out.append(f"{number}: {REBOOT}")
            return
        if (stepped := _STEP_OF_ONE.search(expression)) is not None:
            problem = f"{stepped[0]!r} has a step after a single number: Debian's cron refuses it"
            raise BadInput("cron", problem, "write the number alone, or a range, as in 5-59/15")
        expression, spread = _without_chance(expression)
        Cron(expression, self.zone)
        self._commands[number] = command
        if "\\\\" in _whole_command(command):
            self.doubled.append(number)
        self.items.append(self._item(expression, command, comment, spread))

    def _set(self, name: str, value: str) -> None:
        zone, *rest = value.split(maxsplit=1) or [""]
        if name in {"CRON_TZ", "TZ"} and rest:
            problem = f"{value[:60]!r} is more than a zone: cron takes all of it for one"
            raise BadInput(name, problem, f"write {name}={zone} in a line of its own")
        if name == "CRON_TZ":
            find_zone(value)
            self.zone = value
            return
        if name == "RANDOM_DELAY" and (delay := _delay(value)):
            parse_duration(delay, name)
        self._env[name] = value

    def _item(self, expression: str, command: str, comment: str, spread: int) -> dict[str, Any]:
        item: dict[str, Any] = {
            "id": self._id(comment or name_of(_command_and_input(command)[0])),
            "type": "shell",
            "cron": expression,
            "timezone": self.zone,
        }
        if comment:
            item["description"] = comment[:1_000]
        delay = _delay(self._env.get("RANDOM_DELAY", "")) or "0m"
        if minutes := int(delay.removesuffix("m")) + spread:
            item["jitter"] = f"{minutes}m"
        if mail_to := _one_line(self._env.get("MAILTO", "")):
            item["owner"] = mail_to[:100]
        return item | {"params": _params(command, self._env)}

    def _id(self, words: str) -> str:
        slug = "-".join(_WORD.findall(words.lower())) or "job"
        if len(slug) > LONGEST_ID:
            slug = slug[: LONGEST_ID + 1].rpartition("-")[0] or slug[:LONGEST_ID]
        name = slug
        while name in self._ids:
            name = f"{slug}-{next(self._numbers.setdefault(slug, count(2)))}"
        self._ids.add(name)
        return name


def _split(line: str, *, has_user: bool) -> tuple[str, str, str]:
    """The expression of a line, its user without a group, or "", and its command, without what
    other crons have besides. Raises BadInput.
    """
    if _OF_ANACRON.match(line):
        problem = "this is a line of an anacrontab: its second column is a delay"
        raise BadInput("line", problem, "write its times as those of a crontab")
    bare = line.removeprefix("-")
    fields = 1 if bare.startswith("@") else 5
    parts = bare.split(None, fields + has_user)
    command = _FLAGS.sub("", parts.pop(), count=1) if len(parts) > fields + has_user else ""
    if not _whole_command(command).strip():
        expected = "five fields, or @daily, " + "a user, " * has_user + "and a command"
        raise BadInput("line", f"{line[:60]!r} has no command", expected)
    if _JOINED.search(line):
        raise BadInput("line", "it ends in a backslash: cron joins no lines", "write it in one")
    if fields == 5 and _SIXTH.fullmatch(sixth := bare.split(None, 6)[5]):
        problem = f"six fields: {sixth!r} is where the {'user' if has_user else 'command'} belongs"
        raise BadInput("line", problem, "leave out the seconds, or the field that is too many")
    user = "".join(parts[fields:]).partition(":")[0]
    return " ".join(parts[:fields]), user, command


def _without_chance(expression: str) -> tuple[str, int]:
    """An expression with the first minute and hour in place of any of several, and the minutes up
    to the last. What it cannot be stays, to be refused.
    """
    fields, spread = expression.split(), 0
    for place, (text, last, minutes) in enumerate(zip(fields, (59, 23), (1, 60), strict=False)):
        if match := _OF_CHANCE.fullmatch(text):
            low, high = int(match[1] or 0), int(match[2] or last)
            if low <= high <= last:
                fields[place] = str(low)
                spread += (high - low) * minutes
    return " ".join(fields), spread


def _is_job(words: str) -> bool:
    """Whether a comment is a line that was commented out, or the five fields of none."""
    try:
        Cron(" ".join(words.split()[: 1 if words.startswith("@") else 5]))
    except BadInput:
        return False
    return True


def _in_any_encoding(comment: str) -> str:
    """A comment that may be older than UTF-8."""
    if _NOT_UTF_8.search(comment) is None:
        return comment
    return comment.encode("utf-8", "surrogateescape").decode("cp1252", "replace")


def _delay(minutes: str) -> str:
    """A duration; "" for none, and for what is not a number."""
    digits = minutes.lstrip("0")
    return f"{digits}m" if digits.isascii() and digits.isdecimal() else ""


def _is_name(word: str) -> bool:
    """Whether a word may be a user, with its group or without."""
    return _USER.fullmatch(word) is not None and _OF_SHELLS.fullmatch(word) is None


def _has_user(command: str, of_host: set[str]) -> bool:
    """Whether a command certainly begins with a user: root, one of this host, or what stands before
    a word that begins a command of the shell. Programs have users of their names.
    """
    first, *rest = command.split(None, 1)
    name = first.partition(":")[0]
    is_user = name in of_host and shutil.which(first) is None
    before_shell = bool(_user_in(command)) and _BEGINS.match(rest[0]) is not None
    return name == "root" or (bool(rest) and (is_user or before_shell))


def _user_in(command: str) -> str:
    """The first word, if it may be a user of another host: it is no command of this host, and a
    command follows it.
    """
    first, *rest = command.split(None, 1)
    if not rest or not _is_name(first) or shutil.which(first) is not None:
        return ""
    second = rest[0].split(None, 1)[0]
    follows = _BEGINS.match(rest[0]) or second.startswith("/") or shutil.which(second)
    return first if follows else ""


def _users() -> set[str]:
    """The users of this host whose names are not those of a command on any host."""
    import pwd  # noqa: PLC0415 - not everywhere

    commands = {"sync", "mail", "man", "backup", "games", "news", "list", "lp"}
    return {account.pw_name for account in pwd.getpwall()} - commands


def _params(command: str, env: Mapping[str, str]) -> dict[str, Any]:
    """The params of `shell`: nothing in them is a variable of the board."""
    text, given = _command_and_input(command)
    text = _END_OF_COMMAND.sub("", text)
    shell = env.get("SHELL", SHELL)
    if given is not None:
        # In a shell of its own: a here-document of the command would read the input as its text.
        end = "END"
        while end in given.split("\n"):
            end += "_"
        text = f"{shlex.quote(shell)} -c {shlex.quote(text)} <<'{end}'\n{given}\n{end}"
        shell = SHELL
    text = text.replace("${", "$${")
    # Commands see what is meant for cron, too: `mail $MAILTO`. LOGNAME is not theirs to say.
    kept = {name: value for name, value in env.items() if name != "LOGNAME"}
    params: dict[str, Any] = {"command": text, "shell": True}
    if shell != SHELL:
        params = {"command": [shell, "-c", text]}
    if home := kept.get("HOME"):
        params["cwd"] = home.replace("${", "$${")
    if kept:
        params["env"] = {name: value.replace("${", "$${") for name, value in kept.items()}
    return params


def _whole_command(line: str) -> str:
    """What stands before the first `%` that is not escaped."""
    match = _COMMAND.match(line)
    assert match is not None  # it matches any text
    return match[0]


def _command_and_input(line: str) -> tuple[str, str | None]:
    """A command as its shell gets it, and its input without the last line end, None for none. In
    the command a backslash escapes another one, too; in the input it stands for itself, but before
    a `%`.
    """
    whole = _whole_command(line)
    command, rest = _ESCAPED.sub(r"\1", whole), line[len(whole) :]
    given = _PERCENT.sub("\n", rest[1:]).replace(r"\%", "%")
    return command, given.removesuffix("\n") if rest[1:] else None


def _one_line(text: str) -> str:
    """The part of a text that a label may have."""
    return "".join(char for char in " ".join(text.split()) if is_of_a_line(char))


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def zone_of_host() -> tuple[str, str]:
    """The zone in which cron of this host runs, and why it may be another, in words, or "". Cron
    does not have the TZ of a shell, which may have other rules. The zone may have no name, as in a
    container that is given the file of the zone alone: UTC.
    """
    of_shell = os.environ.get("TZ", "")
    named = of_shell.lstrip(":").rpartition("zoneinfo/")[2]
    linked = str(LOCALTIME.resolve()).partition("zoneinfo/")[2]
    written = TIMEZONE.read_text(errors="replace").strip() if TIMEZONE.is_file() else ""
    for name in (linked, written, named):
        with suppress(BadInput):
            zone = find_zone(name).key
            if not named or _rules(named) == _rules(zone):
                return zone, ""
            words = f"cron runs in {zone}, the zone of this host, and not by TZ={of_shell}"
            return zone, f"{words}: {zone} is taken"
    doubt = "nothing here says how the zone of this host is called: UTC is taken"
    return "UTC", doubt if LOCALTIME.is_file() else ""


def _rules(zone: str) -> bytes:
    """The contents of the file of a zone, by its name or path; the name where there is no file."""
    for folder in zoneinfo.TZPATH:
        with suppress(OSError):
            return Path(folder, zone).read_bytes()
    return os.fsencode(zone)
