"""`client.tool_calls`: the audit of all tool calls, what became of uncertain ones, and the switch that stops all of them."""

from collections.abc import AsyncIterator
from datetime import datetime

from app.client.connection import Params, encode, path_of
from app.client.keys import idempotency_key as _key
from app.client.registries import Named
from app.client.runs import PAGE
from app.client.values import JsonObject, Page


class ToolCalls(Named):
    """The tool calls of all runs, as JSON objects with a `tool_call_id`; newest first."""

    kind = "tool-calls"

    async def list(
        self,
        *,
        tool: str | None = None,
        outcome: str | None = None,
        thread_id: str | None = None,
        run_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Page[JsonObject]:
        """A page. `outcome`: a step's final status. `since` (included), `until` (not): when the model asked for the call."""
        return await self._list(_filters(tool, outcome, thread_id, run_id, since, until), limit, after)

    async def iterate(
        self,
        *,
        tool: str | None = None,
        outcome: str | None = None,
        thread_id: str | None = None,
        run_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> AsyncIterator[JsonObject]:
        """All calls that fit, page by page."""
        filters = _filters(tool, outcome, thread_id, run_id, since, until)
        after: str | None = None
        while True:
            page = await self._list(filters, PAGE, after)
            for item in page.data:
                yield item
            after = page.next_cursor
            if after is None:
                return

    async def reconcile(self, tool_call_id: str) -> JsonObject:
        """Ask the tool what became of a call of unknown outcome; `reconciled` is `None` while that stays unknown."""
        path = f"{path_of(self.kind, tool_call_id)}/reconcile"
        # Asking a second time changes nothing: what was found is kept, and told again.
        answer = await self._connection.request("POST", path, key=_key(None))
        return self._connection.object_of(answer, "a reconciliation")

    async def disable(self, reason: str = "") -> JsonObject:
        """Stop every tool call of the tenant from now on; calls under way are not cut. Needs the scope `admin`."""
        return await self._switch({"disabled": True, "reason": reason})

    async def enable(self) -> JsonObject:
        """Let tool calls go again."""
        return await self._switch({"disabled": False})

    async def _switch(self, body: JsonObject) -> JsonObject:
        answer = await self._connection.request("PUT", f"{path_of(self.kind)}/disabled", body=encode(body))
        return self._connection.object_of(answer, "a switch")


def _filters(
    tool: str | None,
    outcome: str | None,
    thread_id: str | None,
    run_id: str | None,
    since: datetime | None,
    until: datetime | None,
) -> Params:
    """Raises `ValueError`: a time without a time zone."""
    texts = {"tool": tool, "outcome": outcome, "thread_id": thread_id, "run_id": run_id}
    params: dict[str, str | int | float | bool] = {name: text for name, text in texts.items() if text is not None}
    for name, at in (("from", since), ("to", until)):
        if at is None:
            continue
        if at.tzinfo is None:
            raise ValueError("`since` and `until` are times with a time zone.")
        params[name] = at.isoformat()
    return params
