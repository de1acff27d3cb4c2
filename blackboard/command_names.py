"""The name of a command of the shell, as a person would call the job: `backup` for
`cd /srv && nice -n 10 ./backup.sh`, `manage-clearsessions` for `python manage.py clearsessions`. It
is for ids alone: what cannot be read has some name, and nothing is refused.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple


class _Runner(NamedTuple):
    """A program that runs what its arguments name: a command, or a script."""

    with_value: str = ""
    """The letters of options whose value may be a word of its own."""
    code: str = ""
    """The letters of options that are given code to run, which has no name."""
    own: int = 0
    """How many arguments stand before what is run, as the file of a lock."""

    def is_given_code(self, option: str) -> bool:
        """Whether an option is given code to run, as in `sh -ec`."""
        letter = self._first_with_value(option)
        return letter != "" and letter in self.code

    def takes_next_word(self, option: str) -> bool:
        """Whether the next word is the value of an option: it is not behind the letter, as in
        `nice -n5`.
        """
        letter = self._first_with_value(option)
        return option in _LONG_WITH_VALUE or (letter != "" and option.endswith(letter))

    def _first_with_value(self, option: str) -> str:
        """The first letter of a short option, or of several in one word, that takes a value; "" if
        none does.
        """
        letters = "" if option.startswith("--") else option[1:]
        return next((one for one in letters if one in self.with_value + self.code), "")


_PYTHON = _Runner(with_value="WX", code="c")
_RUNNERS = {
    "bun": _Runner(own=1),
    "bundle": _Runner(own=1),
    "cgexec": _Runner(with_value="g"),
    "chronic": _Runner(),
    "command": _Runner(),
    "deno": _Runner(own=1),
    "doas": _Runner(with_value="uC"),
    "env": _Runner(with_value="uC"),
    "exec": _Runner(with_value="a"),
    "flock": _Runner(with_value="wE", own=1),
    "ionice": _Runner(with_value="cn"),
    "lua": _Runner(code="e"),
    "nice": _Runner(with_value="n"),
    "node": _Runner(with_value="r", code="ep"),
    "nohup": _Runner(),
    "perl": _Runner(with_value="I", code="eE"),
    "php": _Runner(with_value="dc", code="r"),
    "pypy": _PYTHON,
    "python": _PYTHON,
    "rscript": _Runner(code="e"),
    "ruby": _Runner(with_value="rIEC", code="e"),
    "setsid": _Runner(),
    "sh": _Runner(with_value="o", code="c"),
    "stdbuf": _Runner(with_value="ioe"),
    "sudo": _Runner(with_value="ugpChD"),
    "time": _Runner(with_value="fo"),
    "timeout": _Runner(with_value="ks", own=1),
}
_SHELL = re.compile(r"(?:ba|z|k|da|fi|a)sh")
_LONG_WITH_VALUE = {"--adjustment", "--group", "--kill-after", "--require", "--signal", "--user"}
_KEYWORDS = {"!", "{", "do", "else", "then"}
"""Words of the shell that a command follows."""
_PREPARES = {
    ".", ":", "[", "[[", "cd", "echo", "exit", "export", "mkdir", "pushd", "set", "sleep",
    "source", "test", "true", "ulimit", "umask", "unset", "which",
    "case", "done", "elif", "esac", "fi", "for", "if", "until", "while", "}",
}  # fmt: skip
"""How commands begin that stand around what a line is about."""
_OPERATOR = re.compile(r"[();<>|&]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_SUBSTITUTION = re.compile(r"\$\([^()]*\)|`[^`]*`")
_SUBCOMMAND = re.compile(r"[A-Za-z][\w:.-]*")


def name_of(command: str) -> str:
    """The name of what a command runs: a program or a script without its path and suffix, with a
    dash and its subcommand if it has one; "" for a command without words.
    """
    commands = list(_commands(command))
    words = next((words for words in commands if words[0] not in _PREPARES), None)
    program, *arguments = _run_by(words) if words else (commands or [[""]])[0]
    parts = [_stem(program)]
    if arguments and _SUBCOMMAND.fullmatch(arguments[0]):
        parts.append(arguments[0])
    return "-".join(parts)


def _commands(line: str) -> Iterator[list[str]]:
    """The words of each command of a list or a pipe, without keywords, assignments and files."""
    plain = _SUBSTITUTION.sub("", line)
    lexer = shlex.shlex(plain, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a quote that does not end
        words = plain.split()
    command: list[str] = []
    is_file = False
    for word in [*words, ";"]:
        if not _OPERATOR.fullmatch(word):
            is_left_out = word in _KEYWORDS or _ASSIGNMENT.fullmatch(word)
            if not is_file and (command or not is_left_out):
                command.append(word)
            is_file = False
        elif "<" in word or ">" in word:
            is_file = True
        elif command:
            yield command
            command = []


def _run_by(words: Sequence[str]) -> Sequence[str]:
    """The command or the script that a command runs in the end, with its arguments."""
    while (runner := _RUNNERS.get(_kind(words[0]))) and (inner := _behind_options(runner, words)):
        words = inner
    return words


def _behind_options(runner: _Runner, words: Sequence[str]) -> list[str]:
    """What a runner runs; empty where it runs code, its input or nothing."""
    rest, own = list(words[1:]), runner.own
    while rest:
        word = rest.pop(0)
        if runner is _PYTHON and re.fullmatch("-[a-zA-Z]*m", word):
            return [rest[0].replace(".", "-"), *rest[1:]] if rest else []
        if word.startswith("-"):
            if runner.is_given_code(word):
                return []
            if runner.takes_next_word(word):
                del rest[:1]
        elif own:
            own -= 1
        elif not _ASSIGNMENT.fullmatch(word):
            return [word, *rest]
    return []


def _kind(program: str) -> str:
    """The key of a program among the runners."""
    name = PurePosixPath(program).name.lower()
    if _SHELL.fullmatch(name):
        return "sh"
    return "node" if name == "nodejs" else name.rstrip(".0123456789")


def _stem(program: str) -> str:
    path = PurePosixPath(program)
    return path.stem or path.name
