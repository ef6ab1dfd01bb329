"""In-process tools that remember things in the store."""

from typing import Any

from runwire import StoreConflict, ToolContext, tool


@tool(effect="write")
async def remember(key: str, value: dict[str, Any], context: ToolContext) -> int:
    """Keep something for later."""
    item = await context.store.put(["memories"], key, value)
    return item.version


@tool(effect="read")
async def recall(filter: dict[str, Any], context: ToolContext) -> list[object]:
    """Find what was kept."""
    page = await context.store.search(["memories"], filter=filter)
    return [{"key": item.key, **item.value} for item in page.data]


@tool(effect="write")
def everything_from_a_thread(context: ToolContext) -> dict[str, object]:
    """Use all of the store, from a thread."""
    store = context.store.blocking
    made = store.put(["thread", "a"], "k", {"n": 1}, ttl_s=3600, if_version=0)
    try:
        store.put(["thread", "a"], "k", {"n": 2}, if_version=0)
    except StoreConflict:
        changed = store.put(["thread", "a"], "k", {"n": 3}, if_version=made.version)
    else:
        raise AssertionError("the conflict was not told")
    item = store.get(["thread", "a"], "k")
    assert item is not None
    item.value["n"] = 99
    found = {
        "version": changed.version,
        "value": item.value,
        "namespaces": store.namespaces(["thread"]).data,
        "found": [item.key for item in store.search(["thread"], filter={"n": 3}).data],
    }
    return {**found, "deleted": [store.delete(["thread", "a"], "k"), store.delete(["thread", "a"], "k")]}


@tool(effect="pure")
async def block_the_loop(context: ToolContext) -> str:
    """Try to wait where nothing may wait."""
    try:
        context.store.blocking.get(["a"], "k")
    except RuntimeError as error:
        return str(error)
    return "it waited"


@tool(effect="pure")
async def misuse(context: ToolContext) -> list[str]:
    """Ask the store for what it does not take."""
    store = context.store
    refused: list[str] = []
    wrong: list[Any] = [
        store.put("memories", "k", {}),
        store.put([], "k", {}),
        store.put(["a.b"], "k", {}),
        store.put(["\ud800"], "k", {}),
        store.put(["a\0"], "k", {}),
        store.put(["a"], "k" * 10_000, {}),
        store.put(["a"], "k", {"x": float("nan")}),
        store.put(["a"], "k", {"x": "\0"}),
        store.put(["a"], "k", {"x": 2**64}),
        store.put(["a"], "k", {"x": object()}),
        store.put(["a"], "k", {"x": "x" * 5_000_000}),
        store.put(["a"], "k", [1]),  # pyright: ignore[reportArgumentType]
        store.put(["a"], "k", {}, ttl_s=float("nan")),
        store.search(["a"], limit=0),
        store.put(["a"], "k", {}, ttl_s="1"),  # pyright: ignore[reportArgumentType]
        store.search([""]),
        store.search(["a"], after="\0"),
        store.namespaces(["a"], after="a..b"),
        store.get(["a"], 3),  # pyright: ignore[reportArgumentType]
    ]
    for work in wrong:
        try:
            await work
        except ValueError as error:
            refused.append(str(error).partition(":")[0])
    return refused
