"""The store: long-term memory of a tenant, across threads. Its use cases, and what they need from storage."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from app.core.errors import FieldError, InvalidRequest
from app.core.ids import IdFactory, is_id
from app.core.store import (
    MAX_FIELDS,
    MAX_FILTERS,
    SEPARATOR,
    Namespace,
    StoredItem,
    StorePage,
    check_key,
    check_ttl,
    comparable,
    namespace_of,
    text_of,
)
from app.core.values import immutable


@immutable
class NewItem:
    """What is to be kept under a namespace and a key."""

    id: str
    """Where nothing is there yet."""
    namespace: Namespace
    key: str
    text: str
    """The value as JSON."""
    fields: Mapping[str, str]
    """By each field of the value: what a filter compares."""
    ttl_ms: int | None
    expected: int | None
    """The version that must be there; 0: none; `None`: whatever there is."""


class ItemStore(Protocol):
    """Another tenant's items are absent, and so are those whose time is over."""

    async def put(self, tenant: str, new: NewItem) -> tuple[StoredItem, bool]:
        """Keep it in the place of what is there; `True`: nothing was. Raises `Conflict` (`version_mismatch`)."""
        ...

    async def get(self, tenant: str, namespace: Namespace, key: str) -> StoredItem | None: ...

    async def delete(self, tenant: str, namespace: Namespace, key: str) -> bool:
        """False when unknown."""
        ...

    async def search(
        self, tenant: str, prefix: Namespace, where: Mapping[str, str], *, after: str | None, limit: int
    ) -> StorePage[StoredItem]:
        """Those in the prefix whose fields compare equal, the newest first, older than the item `after`."""
        ...

    async def namespaces(
        self, tenant: str, prefix: Namespace, *, after: Namespace | None, limit: int
    ) -> StorePage[Namespace]:
        """Those that hold items, in the order of their text, behind `after`; the cursor is the last one's text."""
        ...


class StoreService:
    """Checks what is asked; `at` is the JSON pointer of the request's part that holds it. All raise `InvalidRequest`."""

    def __init__(self, items: ItemStore, new_id: IdFactory) -> None:
        self._items = items
        self._new_id = new_id

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
        """`value`: JSON that was checked. `True`: nothing was there. Raises `Conflict` (`version_mismatch`)."""
        new = NewItem(
            self._new_id(),
            namespace_of(namespace, "/namespace"),
            check_key(key, "/key"),
            text_of(value, "/value"),
            comparable(value, "/value", MAX_FIELDS),
            check_ttl(ttl_s, "/ttl_s"),
            if_version,
        )
        return await self._items.put(tenant, new)

    async def get(self, tenant: str, namespace: Sequence[str], key: str, *, at: str = "") -> StoredItem | None:
        place = namespace_of(namespace, f"{at}/namespace")
        return await self._items.get(tenant, place, check_key(key, f"{at}/key"))

    async def delete(self, tenant: str, namespace: Sequence[str], key: str, *, at: str = "") -> bool:
        """False when unknown."""
        place = namespace_of(namespace, f"{at}/namespace")
        return await self._items.delete(tenant, place, check_key(key, f"{at}/key"))

    async def search(
        self,
        tenant: str,
        prefix: Sequence[str],
        where: Mapping[str, object],
        *,
        after: str | None = None,
        limit: int = 20,
    ) -> StorePage[StoredItem]:
        """The newest first. A page may be shorter than `limit` where its values are long."""
        place = namespace_of(prefix, "/namespace_prefix", prefix=True)
        if after is not None and not is_id(after):
            raise _no_cursor("/after")
        return await self._items.search(
            tenant, place, comparable(where, "/filter", MAX_FILTERS), after=after, limit=limit
        )

    async def namespaces(
        self,
        tenant: str,
        prefix: Sequence[str],
        *,
        after: str | None = None,
        limit: int = 20,
        at: str = "",
    ) -> StorePage[Namespace]:
        """In the order of their text."""
        place = namespace_of(prefix, f"{at}/prefix", prefix=True)
        behind = None
        if after is not None:
            try:
                behind = namespace_of(after.split(SEPARATOR), "")
            except InvalidRequest as error:
                raise _no_cursor(f"{at}/after") from error
        return await self._items.namespaces(tenant, place, after=behind, limit=limit)


def _no_cursor(at: str) -> InvalidRequest:
    return InvalidRequest(
        "`after` must be a `next_cursor` of this list.",
        code="invalid_cursor",
        errors=(FieldError(at, "not a cursor"),),
    )
