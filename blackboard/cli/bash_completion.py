"""Completion in bash, where words end at a colon and at `=` as well, and a completion is inserted
as it is. So click's own script completes no ids with a colon, a space or a quote, and no jobs
beside files.
"""

import os
import re

from click.shell_completion import BashComplete, CompletionItem, add_completion_class
from click.shell_completion import split_arg_string as words_of

_SPECIAL = {"": re.compile(r"([^\w@%+=:,./-])"), '"': re.compile(r"([$`\"\\])")}
"""What a backslash must stand before, by the quote that is open."""


@add_completion_class
class Bash(BashComplete):
    """Reads the line up to the cursor, and offers what bash must insert for its own last word.
    A script of click's own, which gives words in place of the line, gets what it expects.
    """

    source_template = """\
%(complete_func)s() {
    local kind value file
    COMPREPLY=()
    while IFS=, read -r kind value; do
        if [[ $kind == plain ]]; then
            COMPREPLY+=("$value")
        elif [[ $kind == file || $kind == dir ]]; then
            compopt -o filenames
            while IFS= read -r file; do
                COMPREPLY+=("$file")
            done < <(compgen -A "${kind/dir/directory}" -- "${COMP_WORDS[COMP_CWORD]#=}")
        fi
    done < <(COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORD="${COMP_WORDS[COMP_CWORD]}" \\
        %(complete_var)s=bash_complete "$1")
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("COMP_LINE")
        if line is None:
            return super().get_completion_args()
        words = _unfinished(line)
        return words[1:-1], words[-1]

    def format_completion(self, item: CompletionItem) -> str:
        if item.type != "plain" or "COMP_LINE" not in os.environ:
            return super().format_completion(item)
        word, value = os.environ["COMP_WORD"], str(item.value)
        typed = _unfinished(os.environ["COMP_LINE"])[-1]
        own = _unfinished(word)[-1] if word.strip(":=") else ""
        value = value.removeprefix(typed.removesuffix(own))
        if word.startswith("'"):
            return "plain," + value.replace("'", r"'\''")
        quote = '"' if word.startswith('"') else ""
        return "plain," + _SPECIAL[quote].sub(r"\\\1", value)


def _unfinished(line: str) -> list[str]:
    """The words of a line, the last of which is incomplete."""
    *words, last = words_of(f"{line}x")
    return [*words, last.removesuffix("x")]
