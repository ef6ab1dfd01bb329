"""`client.agents`, `client.tools`, `client.models`: what the server knows by a name."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

from app.client.connection import Connection, Params, encode, path_of
from app.client.keys import idempotency_key as _key
from app.client.runs import PAGE, read_page
from app.client.values import JsonObject, Page, object_of


class Named:
    """Things of one kind, to read. They are JSON objects as the contract has them; secrets never come back."""

    kind: str
    """The first part of their paths."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def get(self, name: str) -> JsonObject:
        return self._connection.object_of(
            await self._connection.request("GET", path_of(self.kind, name)), f"an item of {self.kind}"
        )

    async def list(self, *, limit: int | None = None, after: str | None = None) -> Page[JsonObject]:
        """A page, in name order."""
        return await self._list({}, limit, after)

    async def iterate(self) -> AsyncIterator[JsonObject]:
        """All of them, in name order, page by page."""
        after: str | None = None
        while True:
            page = await self.list(limit=PAGE, after=after)
            for item in page.data:
                yield item
            after = page.next_cursor
            if after is None:
                return

    async def _list(self, params: Params, limit: int | None, after: str | None) -> Page[JsonObject]:
        more: dict[str, str | int] = {} if limit is None else {"limit": limit}
        if after is not None:
            more["after"] = after
        return await read_page(self._connection, path_of(self.kind), {**params, **more}, self._item)

    def _item(self, value: object) -> JsonObject:
        return object_of(value, f"an item of {self.kind}")


class Registry(Named):
    """Things of one kind that can be registered."""

    async def create(self, spec: Mapping[str, Any], *, idempotency_key: str | None = None) -> JsonObject:
        """Register it under its `name`. Raises `Conflict` when the name is taken."""
        answer = await self._connection.request(
            "POST", path_of(self.kind), body=encode(spec), key=_key(idempotency_key)
        )
        return self._connection.object_of(answer, f"an item of {self.kind}")

    async def put(self, name: str, spec: Mapping[str, Any]) -> JsonObject:
        """Register or replace it. Runs in flight keep the version that they began with."""
        answer = await self._connection.request("PUT", path_of(self.kind, name), body=encode(spec))
        return self._connection.object_of(answer, f"an item of {self.kind}")

    async def delete(self, name: str) -> None:
        await self._connection.request("DELETE", path_of(self.kind, name))


class Agents(Registry):
    """The registered agents."""

    kind = "agents"


class Tools(Registry):
    """The registered tools and, to read, the server's plugins."""

    kind = "tools"

    async def list(
        self,
        *,
        limit: int | None = None,
        after: str | None = None,
        source: Literal["registered", "plugin"] | None = None,
    ) -> Page[JsonObject]:
        """A page, in name order. `source`: only those."""
        return await self._list({} if source is None else {"source": source}, limit, after)

    async def invoke(
        self, name: str, arguments: Mapping[str, Any], *, idempotency_key: str | None = None, timeout_s: float = 600.0
    ) -> JsonObject:
        """Call the tool once, outside a run; the envelope `{"ok", "data", "error", "meta", …}`, also of a failed call.

        The server does not know a repeated call, the tool may; so a request that may have been taken is not sent again.
        Ask again under the same `idempotency_key` if the tool honours it. `timeout_s`: how long the answer may take.
        """
        answer = await self._connection.request(
            "POST",
            f"{path_of(self.kind, name)}/invoke",
            body=encode({"arguments": arguments}),
            key=_key(idempotency_key),
            repeatable=False,
            extra_s=max(0.0, timeout_s - self._connection.timeout_s),
        )
        return self._connection.object_of(answer, "an envelope")

    async def rotate_secret(self, name: str, *, idempotency_key: str | None = None) -> JsonObject:
        """Make a new signing secret, beside which the old one signs for 24 h: `{"signing_secret", "old_secret_expires_at"}`.

        The same `idempotency_key` gives the same secret again for 24 hours; without one each call makes another.
        """
        path = f"{path_of(self.kind, name)}/rotate-secret"
        return self._connection.object_of(
            await self._connection.request("POST", path, key=_key(idempotency_key)), "a signing secret"
        )

    async def disable(self, name: str, reason: str = "") -> JsonObject:
        """Switch a tool off, plugins too: its next calls are denied, calls under way are not cut. The switch's state."""
        return await self._switch(name, {"disabled": True, "reason": reason})

    async def enable(self, name: str) -> JsonObject:
        """Switch it on again. The switch's state: `{"disabled", "reason", "by", "at", "history"}`."""
        return await self._switch(name, {"disabled": False})

    async def _switch(self, name: str, body: JsonObject) -> JsonObject:
        path = f"{path_of(self.kind, name)}/disabled"
        return self._connection.object_of(await self._connection.request("PUT", path, body=encode(body)), "a switch")


class Models(Named):
    """The models that the server has a name for: aliases and plugins, never their keys."""

    kind = "models"
