"""The two handlers of `bench`, which do nothing. Child processes import this module, each anew, so
it imports little.
"""

from typing import Any

from blackboard.handlers.context import Context, HandlerItem
from blackboard.handlers.handler import handler


@handler("bench-coroutine", every="8h")
async def coroutine(_item: HandlerItem, _ctx: Context) -> dict[str, Any]:
    return {"ok": 1}


@handler("bench-function", every="8h")
def function(_item: HandlerItem, _ctx: Context) -> dict[str, Any]:
    return {"ok": 1}
