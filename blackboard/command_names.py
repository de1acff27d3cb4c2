"""The name of a command of the shell, as a person would call the job: `backup` for
`cd /srv && nice -n 10 ./backup.sh`, `manage-clearsessions` for `python manage.py clearsessions`. It
is for ids alone: what cannot be read has some name, and nothing is refused.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

_WITH_VALUE = {
    "env": "uC",
    "flock": "wE",
    "ionice": "cn",
    "nice": "n",
    "node": "r",
    "perl": "I",
    "php": "dc",
    "python": "WX",
    "ruby": "rIEC",
    "sh": "o",
    "sudo": "ugpChD",
    "time": "fo",
    "timeout": "ks",
    **dict.fromkeys(("bundle", "chronic", "command", "exec", "nohup", "setsid"), ""),
}
"""Programs that run what their arguments name, a command or a script; and the letters of options
whose value may be a word of its own."""
_CODE = {"node": "ep", "perl": "eE", "php": "r", "python": "c", "ruby": "e", "sh": "c"}
"""The letters of options that are given code to run, which has no name."""
_WITH_ARGUMENT = {"bundle", "flock", "timeout"}
"""Programs with an argument before what is run, as the file of a lock."""
_SHELL = re.compile(r"(?:ba|z|k|da|fi|a)sh")
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
    while inner := _behind_options(words):
        words = inner
    return words


def _behind_options(words: Sequence[str]) -> list[str]:
    """What a command runs; empty where that is itself, or code, or its input."""
    name = PurePosixPath(words[0]).name.lower()
    runner = "sh" if _SHELL.fullmatch(name) else name.rstrip(".0123456789")
    if runner not in _WITH_VALUE:
        return []
    rest, code, own = [*words[1:]], _CODE.get(runner, ""), runner in _WITH_ARGUMENT
    while rest:
        word = rest.pop(0)
        if runner == "python" and re.fullmatch("-[a-zA-Z]*m", word):
            return [rest[0].replace(".", "-"), *rest[1:]] if rest else []
        if word.startswith("-"):
            letters = "" if word.startswith("--") else word[1:]
            values = [one for one in letters if one in _WITH_VALUE[runner] + code]
            if values and values[0] in code:
                return []
            if values and letters[-1] == values[0]:
                del rest[:1]
        elif own:
            own = False
        elif not _ASSIGNMENT.fullmatch(word):
            return [word, *rest]
    return []


def _stem(program: str) -> str:
    path = PurePosixPath(program)
    return path.stem or path.name
