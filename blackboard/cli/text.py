"""Text from the board on its way to a terminal: what would steer the terminal is spelled out."""


def shown(text: str) -> str:
    """`text` on one line: control characters, lone surrogates and other characters that have no
    look of their own are written as escapes.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def one_line(text: str) -> str:
    """A message on one line."""
    return shown(" ".join(text.splitlines()))


def _escaped(one: str) -> str:
    return one.encode("unicode_escape").decode()
