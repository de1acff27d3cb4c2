"""What the terminal, if there is one, is like."""

import os
import shutil
import sys

import click


def is_terminal() -> bool:
    return sys.stdout.isatty()


def colour() -> bool:
    """Colours on a terminal, but for https://no-color.org and terminals that are dumb."""
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") != "dumb"


def width() -> int | None:
    """Columns to fit; None when a file or a pipe takes lines of any length."""
    if is_terminal() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns
    return None


def wrapped(text: str) -> str:
    """A paragraph as wide as the terminal, one line where there is none."""
    columns = width()
    return text if columns is None else click.wrap_text(text, columns)
