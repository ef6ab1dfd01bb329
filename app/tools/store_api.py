"""The store as a tool has it: `ToolStore`, bound to the tenant that the tool works for. Re-exported by the module `runwire`."""

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

from app.agent.state_schema import own_copy
from app.core.errors import Conflict, InvalidRequest
from app.core.json import check_value
from app.core.store import MAX_VALUE_BYTES, Namespace, StoredItem, StorePage

T = TypeVar("T")

_NOTHING: Mapping[str, object] = {}


class StoreConflict(Exception):
    """`if_version` is not the item's version any more: somebody else changed it. Read it again."""


class StoreAccess(Protocol):
    """The store of all tenants (`app.threads.store`). Raises `InvalidRequest`."""

    async def put(
        self,
        tenant: str,
        namespace: Sequence[str],
        key: str,
        value: Mapping[str, object],
        *,
        ttl_s: float | None = None,
        if_version: int | None = None,
    ) -> tuple[StoredItem, bool]:
        """Raises `Conflict`, too."""
        ...

    async def get(self, tenant: str, namespace: Sequence[str], key: str) -> StoredItem | None: ...

    async def delete(self, tenant: str, namespace: Sequence[str], key: str) -> bool: ...

    async def search(
        self,
        tenant: str,
        prefix: Sequence[str],
        where: Mapping[str, object],
        *,
        after: str | None = None,
        limit: int = 20,
    ) -> StorePage[StoredItem]: ...

    async def namespaces(
        self, tenant: str, prefix: Sequence[str], *, after: str | None = None, limit: int = 20
    ) -> StorePage[Namespace]: ...


class ToolStore:
    """Long-term memory across threads (docs/store.md). A tool that is no coroutine uses `blocking`.

    An item has `namespace`, `key`, `value` (a copy), `version`, `created_at`, `updated_at`, `expires_at` (milliseconds
    since the epoch, UTC). All methods raise `ValueError` for what the store does not take.
    """

    __slots__ = ("_access", "_loop", "_tenant")

    def __init__(self, access: StoreAccess, tenant: str, loop: asyncio.AbstractEventLoop) -> None:
        self._access = access
        self._tenant = tenant
        self._loop = loop

    @property
    def blocking(self) -> "BlockingStore":
        """The same for a function that runs in a thread."""
        return BlockingStore(self, self._loop)

    async def put(
        self,
        namespace: Sequence[str],
        key: str,
        value: Mapping[str, object],
        *,
        ttl_s: float | None = None,
        if_version: int | None = None,
    ) -> StoredItem:
        """Keep a value of JSON in the place of what is there.

        `ttl_s`: seconds until it is gone; `None`: it stays. `if_version`: the version that must be there (0: none), else
        `StoreConflict`.
        """
        held = cast("dict[str, object]", _json(value, "value"))
        item, _ = await _told(self._access.put(self._tenant, namespace, key, held, ttl_s=ttl_s, if_version=if_version))
        return item

    async def get(self, namespace: Sequence[str], key: str) -> StoredItem | None:
        return await _told(self._access.get(self._tenant, namespace, key))

    async def delete(self, namespace: Sequence[str], key: str) -> bool:
        """False: there was nothing."""
        return await _told(self._access.delete(self._tenant, namespace, key))

    async def search(
        self,
        prefix: Sequence[str] = (),
        *,
        filter: Mapping[str, object] = _NOTHING,
        limit: int = 20,
        after: str | None = None,
    ) -> StorePage[StoredItem]:
        """Items of the namespace and of those in it, whose fields equal the filter's, the newest first: `data`.

        `next_cursor` is the `after` of the next page, `None` where there is none.
        """
        where = cast("dict[str, object]", _json(filter, "filter"))
        return await _told(self._access.search(self._tenant, prefix, where, after=after, limit=_limited(limit)))

    async def namespaces(
        self, prefix: Sequence[str] = (), *, limit: int = 20, after: str | None = None
    ) -> StorePage[Namespace]:
        """Namespaces that hold items, in the order of their text: `data`. Pages as in `search`."""
        return await _told(self._access.namespaces(self._tenant, prefix, after=after, limit=_limited(limit)))


class BlockingStore:
    """`ToolStore` for functions that run in a thread: each method waits. On the event loop it raises `RuntimeError`."""

    __slots__ = ("_loop", "_store")

    def __init__(self, store: ToolStore, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop

    def put(
        self,
        namespace: Sequence[str],
        key: str,
        value: Mapping[str, object],
        *,
        ttl_s: float | None = None,
        if_version: int | None = None,
    ) -> StoredItem:
        return self._wait(self._store.put(namespace, key, value, ttl_s=ttl_s, if_version=if_version))

    def get(self, namespace: Sequence[str], key: str) -> StoredItem | None:
        return self._wait(self._store.get(namespace, key))

    def delete(self, namespace: Sequence[str], key: str) -> bool:
        return self._wait(self._store.delete(namespace, key))

    def search(
        self,
        prefix: Sequence[str] = (),
        *,
        filter: Mapping[str, object] = _NOTHING,
        limit: int = 20,
        after: str | None = None,
    ) -> StorePage[StoredItem]:
        return self._wait(self._store.search(prefix, filter=filter, limit=limit, after=after))

    def namespaces(
        self, prefix: Sequence[str] = (), *, limit: int = 20, after: str | None = None
    ) -> StorePage[Namespace]:
        return self._wait(self._store.namespaces(prefix, limit=limit, after=after))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        work.close()
        raise RuntimeError("`store.blocking` would stop the event loop: await the store's own methods here.")


async def _told(work: Awaitable[T]) -> T:
    """The answer, or its refusal in the words of a plugin's author."""
    try:
        return await work
    except InvalidRequest as error:
        raise ValueError("; ".join(f"{e.pointer}: {e.detail}" for e in error.errors) or error.message) from error
    except Conflict as error:
        raise StoreConflict(error.message) from error


def _json(value: object, name: str) -> object:
    """Our own copy of an object. Raises `ValueError`."""
    if not isinstance(value, Mapping):
        raise ValueError(f"/{name}: must be an object")
    held = dict(cast("Mapping[object, object]", value))
    try:
        check_value(held)  # before it is text: there NaN is null already
    except InvalidRequest as error:
        raise ValueError(f"/{name}: {error.message}") from error
    try:
        return own_copy(held, MAX_VALUE_BYTES)
    except ValueError as error:
        raise ValueError(f"/{name}: {error}") from error


def _limited(limit: int) -> int:
    if not 1 <= limit <= 100:
        raise ValueError("/limit: 1 to 100")
    return limit
