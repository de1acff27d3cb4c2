"""`[notify]` is read whole and refused whole, and no refusal repeats an address."""

from pathlib import Path

import pytest

from blackboard.errors import BadInput
from blackboard.notify.settings import NotifyTable
from blackboard.settings import load_settings

SECRET = "T0PSECRET"

WHOLE = """
[notify]
webhook = "https://hooks.example.org/${KEY}"
command = ["page-somebody", "--now", "$${KEY}"]
dead_man = "${PING}"
on = ["failed"]
overdue = "1h"
again = "never"
at_most = 5
timeout = "30s"
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "blackboard.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_whole_table_is_read(tmp_path: Path) -> None:
    assert load_settings(written(tmp_path, WHOLE)).notify == NotifyTable(
        webhook="https://hooks.example.org/${KEY}",
        command=["page-somebody", "--now", "$${KEY}"],
        dead_man="${PING}",
        on=("failed",),
        overdue="1h",
        again="never",
        at_most=5,
        timeout="30s",
    )


def test_without_a_table_nobody_is_told(tmp_path: Path) -> None:
    assert load_settings(written(tmp_path, "[worker]\nslots = 1\n")).notify is None


ADDRESS = f"ftp://a.example/{SECRET}"
BAD = [
    ("a typo", 'webhok = "https://a.example"', "webhok", 2, "did you mean webhook?"),
    ("nobody to tell", 'on = ["failed"]', "webhook", 1, "add a webhook, a command or a dead_man"),
    ("no http", f'webhook = "{ADDRESS}"', "webhook", 2, "it is not an http or https address"),
    (
        "nobody to tell on a route",
        '[[notify.routes]]\nmatch = ["a"]',
        "webhook",
        1,
        "there is nowhere to send notices",
    ),
    (
        "a ping by ftp",
        f'dead_man = "{ADDRESS}"',
        "dead_man",
        2,
        "it is not an http or https address",
    ),
    ("no scheme", f'webhook = "a.example/{SECRET}"', "webhook", 2, "such as"),
    ("no host", f'webhook = "https:///{SECRET}"', "webhook", 2, "such as"),
    ("a space", f'webhook = "https://a.example/ {SECRET}"', "webhook", 2, "write them as %XX"),
    ("a password", f'webhook = "https://me:{SECRET}@a.example"', "webhook", 2, "would not be sent"),
    (
        "a route to ftp",
        f'[[notify.routes]]\nmatch = ["a"]\nwebhook = "{ADDRESS}"',
        "webhook",
        4,
        "not an http",
    ),
    ("no match", "[[notify.routes]]\nmatch = []", "match", 3, "it matches nothing"),
    (
        "a state",
        '[[notify.routes]]\nmatch = ["state:failed"]',
        "match",
        3,
        "is no pattern of items",
    ),
    ("an event", '[[notify.routes]]\nmatch = ["a"]\non = ["bad"]', "on", 4, "there is no 'bad'"),
    ("a typo of a route", '[[notify.routes]]\nmatsch = ["a"]', "matsch", 3, "did you mean match?"),
    ("a bad port", f'webhook = "https://a.example:{SECRET}"', "webhook", 2, "such as"),
    ("text for a command", f'command = "page {SECRET}"', "command", 2, "put it in brackets"),
    (
        "a secret",
        'command = ["page", "--key=${K}"]',
        "command",
        2,
        "${K} would show in the list of",
    ),
    (
        "a secret of a route",
        '[[notify.routes]]\nmatch = ["a"]\ncommand = ["${K}"]',
        "command",
        4,
        "the program finds K in its environment",
    ),
    ("an empty program", 'command = [""]', "command", 2, "it is empty"),
    ("no such news", 'dead_man = "${X}"\non = ["faild"]', "on", 3, "known here: failed, rec"),
    ("a bad duration", 'dead_man = "${X}"\noverdue = "10"', "overdue", 3, "no unit"),
    ("a bad reminder", 'dead_man = "${X}"\nagain = "soon"', "again", 3, "not a duration"),
    ("nothing a minute", 'dead_man = "${X}"\nat_most = 0', "at_most", 3, "1 or more"),
    ("a long timeout", 'dead_man = "${X}"\ntimeout = "2m"', "timeout", 3, "1m or less"),
]


@pytest.mark.parametrize(("case", "text", "field", "line", "hint"), BAD)
def test_what_is_wrong_is_refused_with_its_line(
    *, tmp_path: Path, case: str, text: str, field: str, line: int, hint: str
) -> None:
    with pytest.raises(BadInput) as caught:
        load_settings(written(tmp_path, f"[notify]\n{text}\n"))
    said = str(caught.value).replace(f"{tmp_path}/", "")
    assert said.startswith(f"{field}: blackboard.toml:{line}: "), said
    assert hint in said
    assert SECRET not in said
