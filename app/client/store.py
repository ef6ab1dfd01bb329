"""`client.store`: long-term memory of the key's tenant, across threads."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar, cast

from app.client.connection import Answer, Connection, encode
from app.client.fields import JsonObject, NotOurs, number, object_of, optional_time, required_text
from app.client.runs import PAGE, page_of, read_page
from app.client.values import Page

T = TypeVar("T")

_ITEMS = "/store/items"


@dataclass(frozen=True, slots=True)
class StoreItem:
    """An item of the store."""

    namespace: tuple[str, ...]
    key: str
    value: JsonObject
    version: int = 0
    """One more with each change; for `if_version`."""
    created_at: datetime | None = None
    updated_at: datetime | None = None
    expires_at: datetime | None = None
    """`None`: it stays."""
    data: JsonObject = field(default_factory=dict[str, Any], repr=False)
    """The item as it came."""

    @classmethod
    def of(cls, value: object) -> "StoreItem":
        """A StoreItem from its JSON. Raises `NotOurs`."""
        data = object_of(value, "an item")
        return cls(
            namespace=_namespace(data),
            key=required_text(data, "key", "an item"),
            value=object_of(data.get("value"), "an item's value"),
            version=number(data, "version"),
            created_at=optional_time(data, "created_at"),
            updated_at=optional_time(data, "updated_at"),
            expires_at=optional_time(data, "expires_at"),
            data=data,
        )


class Store:
    """The store. A namespace is a list of labels, none with a `.`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def put(
        self,
        namespace: Sequence[str],
        key: str,
        value: Mapping[str, Any],
        *,
        ttl_s: float | None = None,
        if_version: int | None = None,
    ) -> StoreItem:
        """Keep a value in the place of what is there. `ttl_s`: seconds until it is gone; `None`: it stays.

        `if_version`: the version that must be there (0: none), else `Conflict`; such a request is not sent again when it may
        have been taken.
        """
        body: dict[str, Any] = {"namespace": _labels(namespace), "key": key, "value": dict(value)}
        body |= {} if ttl_s is None else {"ttl_s": ttl_s}
        body |= {} if if_version is None else {"if_version": if_version}
        answer = await self._connection.request("PUT", _ITEMS, body=encode(body), repeatable=if_version is None)
        return self._read(answer, StoreItem.of)

    async def get(self, namespace: Sequence[str], key: str) -> StoreItem:
        """Raises `NotFound`."""
        answer = await self._connection.request("GET", _ITEMS, params=_place(namespace, key))
        return self._read(answer, StoreItem.of)

    async def delete(self, namespace: Sequence[str], key: str) -> None:
        """Raises `NotFound`."""
        await self._connection.request("DELETE", _ITEMS, params=_place(namespace, key))

    async def search(
        self,
        prefix: Sequence[str] = (),
        *,
        filter: Mapping[str, Any] | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Page[StoreItem]:
        """A page of what is in a namespace and in those within, newest first. `filter`: fields that must be equal."""
        body: dict[str, Any] = {"namespace_prefix": _labels(prefix), "filter": dict(filter or {})}
        body |= {} if limit is None else {"limit": limit}
        body |= {} if after is None else {"after": after}
        answer = await self._connection.request("POST", "/store/search", body=encode(body))
        return page_of(self._connection, answer, StoreItem.of)

    async def iterate(
        self, prefix: Sequence[str] = (), *, filter: Mapping[str, Any] | None = None
    ) -> AsyncIterator[StoreItem]:
        """All that `search` finds, newest first, page by page."""
        after: str | None = None
        while True:
            page = await self.search(prefix, filter=filter, limit=PAGE, after=after)
            for item in page.data:
                yield item
            after = page.next_cursor
            if after is None:
                return

    async def namespaces(
        self, prefix: Sequence[str] = (), *, limit: int | None = None, after: str | None = None
    ) -> Page[tuple[str, ...]]:
        """A page of the namespaces that hold items."""
        params: dict[str, str | int] = {} if limit is None else {"limit": limit}
        params |= {"prefix": ".".join(_labels(prefix))} if prefix else {}
        params |= {} if after is None else {"after": after}
        return await read_page(
            self._connection, "/store/namespaces", params, lambda item: _namespace(object_of(item, "a namespace"))
        )

    def _read(self, answer: Answer, of: Callable[[object], T]) -> T:
        try:
            return of(answer.body)
        except NotOurs as error:
            raise self._connection.not_ours(error, answer.status) from None


def _place(namespace: Sequence[str], key: str) -> dict[str, str]:
    return {"namespace": ".".join(_labels(namespace)), "key": key}


def _labels(namespace: Sequence[str]) -> list[str]:
    """Raises `ValueError` for what would name another namespace."""
    if isinstance(namespace, str) or any("." in label for label in namespace):
        raise ValueError("A namespace is a list of labels, none of which has a `.`.")
    return list(namespace)


def _namespace(data: JsonObject) -> tuple[str, ...]:
    found: object = data.get("namespace")
    labels = cast("list[object]", found) if isinstance(found, list) else []
    if not labels or not all(isinstance(label, str) for label in labels):
        raise NotOurs("an item without `namespace`")
    return tuple(str(label) for label in labels)
