"""docs/api.md: its tables are the code's, and what its requests answer is shown."""

import json
import re
import shlex
from pathlib import Path

from anyio.from_thread import start_blocking_portal

import blackboard
from tests.support.api_page import PAGE, page
from tests.support.page_commands import Command, blocks, commands, same_each_time, typed
from tests.support.web_pages import PagedBoard

TEXT = PAGE.read_text(encoding="utf-8")
SERVE = "blackboard serve --operator --listen 127.0.0.1:8100"
CURL = re.compile(r"(curl -s .*?)(?: \| jq (\S+))?")


def test_the_tables_are_what_their_command_writes() -> None:
    assert page(TEXT) == TEXT, "run python -m tests.support.api_page"


def test_every_request_is_answered_as_shown(tmp_path: Path) -> None:
    """What `curl` and `jq` do is done here, without a server."""
    found = blocks(TEXT)
    for block in found:
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    lines = [one for block in found if block.language == "console" for one in commands(block)]
    served = [one.line.strip() for one in lines].index(SERVE)
    for one in lines[:served]:
        typed(one, tmp_path)
    with start_blocking_portal() as portal:
        opened = blackboard.open(tmp_path / "blackboard.db")
        with portal.wrap_async_context_manager(opened) as board:
            paged = PagedBoard(board=board, portal=portal)
            for one in lines[served + 1 :]:
                assert same_each_time(one, answer(paged, one)) == same_each_time(one, one.shown)


def answer(paged: PagedBoard, command: Command) -> str:
    asked = CURL.fullmatch(command.line.strip())
    assert asked is not None, command.line
    _, _, url, *more = shlex.split(asked[1])
    client, path = paged.client(operator=True), url.removeprefix("http://127.0.0.1:8100")
    if more:
        assert more[0] == "--json"
        headers = {"content-type": "application/json"}
        text = client.post(path, content=more[1], headers=headers).text
    else:
        text = client.get(path).text
    if asked[2] is None:
        return f"{text}\n"
    found = json.loads(text)
    for name in asked[2].strip(".").split("."):
        found = found[name]
    return f"{json.dumps(found)}\n"
