"""The name of a command of the shell, as a person would call the job: `backup` for
`cd /srv && /usr/bin/nice -n 10 ./backup.sh`, `manage-clearsessions` for `python manage.py
clearsessions`. It is for ids alone, so what cannot be read has some name, and nothing is refused.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

_PREPARES = {
    ".", ":", "[", "[[", "cd", "echo", "exit", "export", "fi", "if", "mkdir", "pushd", "set",
    "sleep", "source", "test", "true", "umask", "unset", "which", "{", "}",
}  # fmt: skip
"""Programs that a command begins with, and is not about."""
_SEPARATORS = {"&&", ";", "||", "|", "&", "(", ")", ";;"}
_WRAPPERS = {
    "!", "bundle", "cgexec", "chronic", "command", "do", "doas", "else", "env", "exec", "flock",
    "ionice", "nice", "nohup", "setsid", "stdbuf", "sudo", "then", "time", "timeout",
}  # fmt: skip
"""Programs and words that another command follows, behind their options."""
_WITH_VALUE = {"-u", "-g", "--user", "--group", "-n", "-c", "-k", "-s", "-w", "-E"}
"""Options of wrappers whose values are words of their own."""
_FIRST_OF_ITSELF = {"flock", "timeout"}
"""Wrappers whose first argument is theirs: the file of a lock, a duration."""
_INTERPRETER = re.compile(
    r"(?:ba|z|k|da|fi)?sh|python[\d.]*|pypy3?|ruby[\d.]*|php[\d.]*|perl[\d.]*|node(?:js)?|deno|bun"
    r"|Rscript|lua|tclsh"
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_SUBSTITUTION = re.compile(r"\$\([^()]*\)|`[^`]*`")
_SUBCOMMAND = re.compile(r"[A-Za-z][\w:.-]*")


def name_of(command: str) -> str:
    """The name of what a command runs: a program or a script without its path and suffix, with a
    dash and its subcommand if it has one; "" for a command without words.
    """
    segments = list(_segments(command))
    main = next((words for words in segments if words[0] not in _PREPARES), None)
    program, *arguments = main or (segments or [[""]])[0]
    if _INTERPRETER.fullmatch(_stem(program)):
        program, arguments = _script(program, arguments)
    parts = [_stem(program)]
    if arguments and _SUBCOMMAND.fullmatch(arguments[0]):
        parts.append(arguments[0])
    return "-".join(parts)


def _segments(command: str) -> Iterator[list[str]]:
    """The commands of a list or a pipe, each as its words, without assignments and wrappers."""
    plain = _SUBSTITUTION.sub("", command)
    lexer = shlex.shlex(plain, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a quote that does not end
        words = plain.split()
    segment: list[str] = []
    for word in [*words, ";"]:
        if word not in _SEPARATORS:
            segment.append(word)
            continue
        if inner := _unwrapped(segment):
            yield inner
        segment = []


def _unwrapped(words: Sequence[str]) -> list[str]:
    """A command without what stands before it: `sudo -u www nice -n 10 x` is x."""
    rest, wrapper = list(words), ""
    while rest:
        word = rest[0]
        if _ASSIGNMENT.fullmatch(word):
            del rest[0]
        elif _stem(word) in _WRAPPERS:
            wrapper = _stem(word)
            del rest[0]
        elif wrapper and word.startswith("-"):
            del rest[: 2 if word in _WITH_VALUE else 1]
        elif wrapper in _FIRST_OF_ITSELF:
            wrapper = "env"
            del rest[0]
        else:
            break
    return rest or list(words[:1])


def _script(interpreter: str, arguments: Sequence[str]) -> tuple[str, list[str]]:
    """What an interpreter runs, and the arguments of that: a file, or the module behind `-m`. The
    interpreter itself where it runs code of its arguments, or its input.
    """
    for place, word in enumerate(arguments):
        if word == "-m":
            module = "".join(arguments[place + 1 : place + 2])
            return module.replace(".", "-") or interpreter, list(arguments[place + 2 :])
        if word.startswith("-") and word.endswith("c") and not word.startswith("--"):
            return interpreter, []
        if not word.startswith("-"):
            return word, list(arguments[place + 1 :])
    return interpreter, []


def _stem(program: str) -> str:
    path = PurePosixPath(program)
    return path.stem or path.name
