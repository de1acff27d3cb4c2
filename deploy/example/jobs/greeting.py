"""A handler to see run: it greets a town, and takes its time, as real work does."""

import asyncio

from blackboard import Context, Item, handler


@handler("greeting", every="1m", timeout="30s", retries=2, stale_after="30s")
async def greet(item: Item, ctx: Context) -> dict[str, str]:
    for step in range(3):
        ctx.progress(step, 3)
        await asyncio.sleep(1)
    return {"said": f"{item.params.get('words', 'hello')}, {item.id}"}
