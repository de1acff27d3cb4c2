"""Handlers that do nothing: what is measured is all that happens around them."""

from typing import Any

from blackboard import Context, Item, handler


@handler("coroutine", every="8h")
async def coroutine(_item: Item, _ctx: Context) -> dict[str, Any]:
    return {"ok": 1}


@handler("plain", every="8h")
def plain(_item: Item, _ctx: Context) -> dict[str, Any]:
    return {"ok": 1}
