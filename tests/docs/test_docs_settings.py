"""docs/settings.md is what its command writes, and has every setting that the file may have."""

import msgspec
import pytest

from blackboard.notify.settings import NotifyTable
from blackboard.settings import BoardSettings, ItemTable, TypeTable, WorkerTable
from tests.support.settings_page import PAGE, described, page


def test_the_page_is_what_its_command_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.support.settings_page"


@pytest.mark.parametrize("table", [BoardSettings, WorkerTable, TypeTable, ItemTable, NotifyTable])
def test_every_setting_has_a_meaning(table: type[msgspec.Struct]) -> None:
    explained = {one.name for one in described() if one.meaning}
    assert set(table.__struct_fields__) <= explained
