r"""The lines of a crontab as items of the type `shell`.

Read as crontab(5) of Debian says: `NAME = value` lines count for the lines below; a `%` ends the
command, and what follows is its input, a line for each further `%`; `\%` is a `%`, and `\\` in the
command a `\`, which a warning says, because cronie leaves both. Of other crons: `NAME =` is empty;
CRON_TZ is the zone of the lines below, RANDOM_DELAY their jitter in minutes; `1~5` as a minute or
hour is the first, with a jitter up to the last; a dash before the minute, and the flags -n, -q and
-s before the command, are dropped. TZ is a variable of the commands alone, which a warning says. Of
a crontab of the system, whose lines name a user, those of one user are read.
"""

import pwd
import re
import shlex
import shutil
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
_NO_USERS = {
    "builtin", "case", "cd", "command", "declare", "eval", "exec", "exit", "export", "for",
    "function", "if", "pushd", "read", "set", "shopt", "source", "time", "trap", "type", "ulimit",
    "umask", "unset", "until", "wait", "while",
    "backup", "games", "list", "lp", "mail", "man", "news", "sync",
}  # fmt: skip
"""Words of the shell; and commands, which a host without them may have users of."""
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
    """Each has the keys of an `[[items]]` table."""
    problems: dict[int, str] = field(default_factory=dict)
    """Of lines that cannot be imported, by their numbers."""
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

    def read(self, text: str) -> None:
        for number, line in enumerate(text.split("\n"), 1):
            try:
                self._read(line.rstrip("\r").lstrip(), number)
            except BadInput as problem:
                self.problems[number] = str(problem)

    def check_users(self, *, system: bool) -> list[str]:
        """Names the lines with a user between the time and the command, as in /etc/crontab. One
        that begins with root or another user of this host makes the file such a crontab: then it is
        each line whose first word may be a user, and is no program of this host. Returns the words
        before a path that may be users of another host.
        """
        pairs = {n: command.split(None, 1) for n, command in self._commands.items()}
        words = {number: pair[0] for number, pair in pairs.items() if pair[1:]}
        may_be = {n for n, word in words.items() if _USER.fullmatch(word) and word not in _NO_USERS}
        may_be = {n for n in may_be if words[n] == "root" or shutil.which(words[n]) is None}
        users = {"root", *(account.pw_name for account in pwd.getpwall())}
        named = {*words} if system else set[int]()
        if any(words[n].partition(":")[0] in users for n in may_be):
            named |= may_be
        for number in named:
            problem = f"{words[number]!r} is a user, as in /etc/crontab"
            self.problems[number] = str(BadInput("user", problem, TAKE_ONE))
        return [words[n] for n in sorted(may_be) if pairs[n][1].startswith("/")]

    def _read(self, line: str, number: int) -> None:
        if "\r" in line:
            problem = "it has a carriage return, which ends no line"
            raise BadInput("line", problem, "save the file with the line ends of Unix")
        if line.startswith("#"):
            if _NOT_UTF_8.search(line):
                line = line.encode("utf-8", "surrogateescape").decode("cp1252", "replace")
            words = _one_line(line.lstrip("#"))
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
    """The expression of a line, its user without a group, and its command. Raises BadInput."""
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
    """With the first minute and hour in place of any, and the minutes up to the last."""
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


def _delay(minutes: str) -> str:
    """A duration; "" for none, and for what is not a number."""
    digits = minutes.lstrip("0")
    return f"{digits}m" if digits.isascii() and digits.isdecimal() else ""


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
    return match[0] if match else ""


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
    """The zone in which cron of this host runs, and why it may be another, in words, or "". The TZ
    of a shell is not cron's. The zone may have no name, as in a container that is given the file of
    the zone alone: UTC.
    """
    linked = str(LOCALTIME.resolve()).partition("zoneinfo/")[2]
    written = TIMEZONE.read_text(errors="replace").strip() if TIMEZONE.is_file() else ""
    for name in (linked, written):
        with suppress(BadInput):
            return find_zone(name).key, ""
    doubt = "nothing here says how the zone of this host is called: UTC is taken"
    return "UTC", doubt if LOCALTIME.is_file() else ""
