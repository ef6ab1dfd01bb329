"""The store in storage: `SqlItemStore`, the adapter of the port `ItemStore`.

A namespace is one text in which each label ends with the separator (`a.b.`), so that a prefix is a range of it. The column
is ordered by bytes on both databases. Fields of values are rows of their own, by which a filter finds the items.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import bindparam, delete, insert, select, update

from app.core.clock import now_ms
from app.core.errors import Conflict
from app.core.store import SEPARATOR, Namespace, StoredItem, StorePage
from app.runs.ports import Swept
from app.storage.database import Database, Tx
from app.storage.labels import label
from app.storage.statement import Row, Statement
from app.storage.tables import store_fields, store_items
from app.threads.store import NewItem

MAX_PAGE_BYTES = 4 << 20
"""Most bytes of values in a page; one item always fits."""

_MAX_NAME = 64
_MAX_VALUE = 128
"""Characters of a field that are kept as they are: with the namespace they fit into an index of Postgres. Others by hash."""

_AFTER_SEPARATOR = chr(ord(SEPARATOR) + 1)

_i, _f = store_items.c, store_fields.c
_tenant = bindparam("of_tenant", type_=_i.tenant.type)
_id = bindparam("of_id", type_=_i.id.type)
_now = bindparam("now", type_=_i.expires_at.type)
_limit = bindparam("most", type_=_i.version.type)
_live = _i.expires_at.is_(None) | (_i.expires_at > _now)
_place = (_i.tenant == _tenant, _i.namespace == bindparam("of_namespace"), _i.key == bindparam("of_key"))

_COLUMNS = (_i.namespace, _i.key, _i.value, _i.version, _i.created_at, _i.updated_at, _i.expires_at, _i.id)
_GET = Statement(select(*_COLUMNS).where(*_place, _live))
_THERE = Statement(select(_i.id, _i.version, _i.created_at, _i.expires_at).where(*_place))
_INSERT = Statement(insert(store_items))
_REPLACE = Statement(
    update(store_items)
    .values(
        {name: bindparam(f"new_{name}") for name in ("value", "size", "fields", "version", "updated_at", "expires_at")}
    )
    .where(_i.id == _id)
)
_DELETE = Statement(delete(store_items).where(*_place).returning(_i.id, _i.expires_at))
_DELETE_ID = Statement(delete(store_items).where(_i.id == _id))
_INSERT_FIELD = Statement(insert(store_fields))
_DELETE_FIELDS = Statement(delete(store_fields).where(_f.item_id == _id))
_EXPIRED = Statement(
    select(_i.id, _i.size, _i.fields).where(_i.expires_at <= _now).order_by(_i.expires_at).limit(_limit)
)
_DELETE_EXPIRED = Statement(delete(store_items).where(_i.id == _id, _i.expires_at <= _now).returning(_i.id))
_UPPER = _i.namespace < bindparam("below")


@functools.lru_cache(128)
def _search(prefixed: bool, filters: int, after: bool) -> Statement:
    """(id, size) of the items, the newest first. Of the prefix and each filter, the rows of fields know both."""
    within = (_i.namespace >= bindparam("from"), _UPPER) if prefixed and not filters else ()
    query = select(_i.id, _i.size).where(_i.tenant == _tenant, _live, *within)
    for n in range(filters):
        same = [_f.tenant == _tenant, _f.name == bindparam(f"name_{n}"), _f.value == bindparam(f"value_{n}")]
        if prefixed:
            same += [_f.namespace >= bindparam("from"), _f.namespace < bindparam("below")]
        if after:
            same.append(_f.item_id < bindparam("after"))
        query = query.where(_i.id.in_(select(_f.item_id).where(*same)))
    if after and not filters:
        # Of a prefix the index of ids must not be walked: it holds all of the tenant's items.
        query = query.where((_i.id.concat("") if prefixed else _i.id) < bindparam("after"))
    return Statement(query.order_by(_i.id.desc()).limit(_limit))


_READ_AT_ONCE = 20
_BY_IDS = Statement(select(*_COLUMNS).where(_i.id.in_([bindparam(f"id_{n}") for n in range(_READ_AT_ONCE)])))


@functools.lru_cache(4)
def _next_namespace(first: bool, prefixed: bool) -> Statement:
    """The first namespace from a text on, or behind it: a seek, however many items it holds."""
    begin = bindparam("from", type_=_i.namespace.type)
    query = select(_i.namespace).where(_i.tenant == _tenant, _live)
    query = query.where(_i.namespace >= begin if first else _i.namespace > begin)
    if prefixed:
        query = query.where(_UPPER)
    return Statement(query.order_by(_i.namespace).limit(1))


class SqlItemStore:
    """The port `ItemStore` on a database. `clock` gives milliseconds since the epoch."""

    def __init__(self, database: Database, clock: Callable[[], int] = now_ms) -> None:
        self._db = database
        self._clock = clock

    async def put(self, tenant: str, new: NewItem) -> tuple[StoredItem, bool]:
        now = self._clock()
        return await self._db.write(lambda tx: _put(tx, tenant, new, now))

    async def get(self, tenant: str, namespace: Namespace, key: str) -> StoredItem | None:
        values = {**_place_of(tenant, namespace, key), "now": self._clock()}
        row = await self._db.look(lambda tx: tx.one(_GET, values))
        return None if row is None else _item(row)

    async def delete(self, tenant: str, namespace: Namespace, key: str) -> bool:
        now, place = self._clock(), _place_of(tenant, namespace, key)
        return await self._db.write(lambda tx: _delete(tx, place, now))

    async def search(
        self, tenant: str, prefix: Namespace, where: Mapping[str, str], *, after: str | None, limit: int
    ) -> StorePage[StoredItem]:
        values: dict[str, Any] = {"of_tenant": tenant, "now": self._clock(), **_range(prefix)}
        for n, (name, value) in enumerate(where.items()):
            values |= {f"name_{n}": label(name, _MAX_NAME), f"value_{n}": label(value, _MAX_VALUE)}
        if after is not None:
            values["after"] = after
        statement = _search(bool(prefix), len(where), after is not None)

        def read(tx: Tx) -> StorePage[StoredItem]:
            heads = tx.all(statement, {**values, "most": limit + 1})
            count = _fitting(heads, limit)
            items = _items(tx, [row[0] for row in heads[:count]])
            return StorePage(items, items[-1].id if len(heads) > count else None)

        return await self._db.read(read)

    async def namespaces(
        self, tenant: str, prefix: Namespace, *, after: Namespace | None, limit: int
    ) -> StorePage[Namespace]:
        values: dict[str, Any] = {"of_tenant": tenant, "now": self._clock(), **_range(prefix)}
        begin: str = values.get("from", "")
        first = after is None or _text(after) < begin
        if after is not None and not first:
            begin = _text(after)

        def read(tx: Tx) -> StorePage[Namespace]:
            found: list[Namespace] = []
            at, inclusive = begin, first
            while len(found) <= limit:
                row = tx.one(_next_namespace(inclusive, bool(prefix)), {**values, "from": at})
                if row is None:
                    return StorePage(found, None)
                at, inclusive = row[0], False
                found.append(_labels(at))
            return StorePage(found[:limit], SEPARATOR.join(found[limit - 1]))

        return await self._db.read(read)


async def delete_expired(database: Database, now: int, *, most_items: int, most_rows: int, most_bytes: int) -> Swept:
    """Delete items whose time is over, as many as one short transaction may."""
    due = await database.read(lambda tx: tx.all(_EXPIRED, {"now": now, "most": most_items}))
    chosen: list[str] = []
    rows = size = 0
    for item, length, fields in due:
        rows, size = rows + 1 + fields, size + length
        if chosen and (rows > most_rows or size > most_bytes):
            break
        chosen.append(item)
    if not chosen:
        return Swept(0, more=False)
    count = await database.write(lambda tx: sum(_expire(tx, item, now) for item in chosen))
    return Swept(count, more=len(chosen) < len(due) or len(due) == most_items)


def _put(tx: Tx, tenant: str, new: NewItem, now: int) -> tuple[StoredItem, bool]:
    place = _place_of(tenant, new.namespace, new.key)
    row = tx.one(_THERE, place)
    there = row if row is not None and (row[3] is None or row[3] > now) else None
    version = 0 if there is None else int(there[1])
    if new.expected is not None and new.expected != version:
        raise Conflict(
            f"The item's version is {version} and not {new.expected}; read it again. (0: there is none)",
            code="version_mismatch",
        )
    expires_at = None if new.ttl_ms is None else now + new.ttl_ms
    facts: dict[str, Any] = {
        "value": new.text,
        "size": len(new.text.encode()),
        "fields": len(new.fields),
        "version": version + 1,
        "updated_at": now,
        "expires_at": expires_at,
    }
    if row is not None:
        tx.run(_DELETE_FIELDS, {"of_id": row[0]})
    if there is None:
        if row is not None:
            tx.run(_DELETE_ID, {"of_id": row[0]})
        item_id, created_at = new.id, now
        named = {"tenant": tenant, "namespace": _text(new.namespace), "key": new.key}
        tx.run(_INSERT, {"id": item_id, **named, "created_at": now, **facts})
    else:
        item_id, created_at = there[0], there[2]
        tx.run(_REPLACE, {"of_id": item_id, **{f"new_{name}": value for name, value in facts.items()}})
    where = {"tenant": tenant, "namespace": _text(new.namespace), "item_id": item_id}
    tx.many(
        _INSERT_FIELD,
        [
            {**where, "name": label(name, _MAX_NAME), "value": label(value, _MAX_VALUE)}
            for name, value in new.fields.items()
        ],
    )
    item = StoredItem(new.namespace, new.key, new.text, version + 1, created_at, now, expires_at, item_id)
    return item, there is None


def _delete(tx: Tx, place: Mapping[str, Any], now: int) -> bool:
    row = tx.one(_DELETE, place)
    if row is None:
        return False
    tx.run(_DELETE_FIELDS, {"of_id": row[0]})
    return row[1] is None or row[1] > now


def _expire(tx: Tx, item_id: str, now: int) -> bool:
    if tx.one(_DELETE_EXPIRED, {"of_id": item_id, "now": now}) is None:  # it was made anew meanwhile
        return False
    tx.run(_DELETE_FIELDS, {"of_id": item_id})
    return True


def _fitting(heads: list[Row], limit: int) -> int:
    """How many of (id, size) make a page."""
    size = 0
    for count, (_, length) in enumerate(heads[:limit]):
        size += length
        if count and size > MAX_PAGE_BYTES:
            return count
    return min(limit, len(heads))


def _items(tx: Tx, ids: list[str]) -> list[StoredItem]:
    """In the order of their ids given."""
    found: dict[str, StoredItem] = {}
    for begin in range(0, len(ids), _READ_AT_ONCE):
        part = ids[begin : begin + _READ_AT_ONCE]
        part += part[-1:] * (_READ_AT_ONCE - len(part))
        for row in tx.all(_BY_IDS, {f"id_{n}": item for n, item in enumerate(part)}):
            item = _item(row)
            found[item.id] = item
    return [found[item] for item in ids]


def _place_of(tenant: str, namespace: Namespace, key: str) -> dict[str, Any]:
    return {"of_tenant": tenant, "of_namespace": _text(namespace), "of_key": key}


def _text(namespace: Namespace) -> str:
    return "".join(f"{name}{SEPARATOR}" for name in namespace)


def _labels(text: str) -> Namespace:
    return tuple(text[: -len(SEPARATOR)].split(SEPARATOR))


def _range(prefix: Namespace) -> dict[str, str]:
    """Of the texts that begin with a prefix."""
    text = _text(prefix)
    return {"from": text, "below": text[: -len(SEPARATOR)] + _AFTER_SEPARATOR} if prefix else {}


def _item(row: Row) -> StoredItem:
    return StoredItem(_labels(row[0]), *row[1:])
