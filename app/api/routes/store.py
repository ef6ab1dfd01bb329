"""Routes of the store (contract, section 7)."""

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from app.api.body import read_json
from app.api.context import authenticate, services_of
from app.api.idempotency import stored
from app.api.openapi import body_of, responses
from app.api.pagination import Limit
from app.api.parameters import CheckedRoute
from app.core.clock import rfc3339
from app.core.errors import NotFound
from app.core.json import encode
from app.core.store import SEPARATOR, StoredItem
from app.runs.validation import check
from app.threads.store_spec import StorePut, StoreSearch

router = APIRouter(tags=["store"], route_class=CheckedRoute)
JSON = "application/json"
_Dotted = Annotated[str, Query(description="The labels of a namespace, with `.` between them.")]
_Key = Annotated[str, Query(description="The item's key.")]
_Prefix = Annotated[str | None, Query(description="Labels with `.` between them: only what is in this namespace.")]
_After = Annotated[str | None, Query(description="`next_cursor` of the page before.")]


@router.put(
    "/store/items",
    summary="Keep a value under a namespace and a key, in the place of what is there",
    openapi_extra=body_of(StorePut),
    responses=responses(200, "The item, replaced.", "StoreItem") | responses(201, "The item, new.", "StoreItem"),
)
async def put_item(request: Request) -> Response:
    principal = authenticate(request, "threads:write")
    body, _ = await read_json(request)
    spec = check(StorePut, body)
    item, created = await services_of(request).store.put(
        principal.tenant, spec.namespace, spec.key, spec.value, ttl_s=spec.ttl_s, if_version=spec.if_version
    )
    return stored(item_view(item), _address(item), created=created)


@router.get("/store/items", summary="Get an item", responses=responses(200, "The item.", "StoreItem"))
async def get_item(request: Request, namespace: _Dotted, key: _Key) -> Response:
    principal = authenticate(request, "runs:read")
    found = await services_of(request).store.get(principal.tenant, namespace.split(SEPARATOR), key, at="/query")
    if found is None:
        raise _unknown()
    return Response(encode(item_view(found)), media_type=JSON)


@router.delete("/store/items", status_code=204, summary="Delete an item")
async def delete_item(request: Request, namespace: _Dotted, key: _Key) -> Response:
    principal = authenticate(request, "threads:write")
    if not await services_of(request).store.delete(principal.tenant, namespace.split(SEPARATOR), key, at="/query"):
        raise _unknown()
    return Response(status_code=204)


@router.post(
    "/store/search",
    summary="Search items by a prefix of their namespace and by fields of their values, newest first",
    openapi_extra=body_of(StoreSearch),
    responses=responses(200, "A page of items.", "StoreItem", page=True),
)
async def search_items(request: Request) -> Response:
    principal = authenticate(request, "runs:read")
    body, _ = await read_json(request)
    spec = check(StoreSearch, body)
    found = await services_of(request).store.search(
        principal.tenant, spec.namespace_prefix, spec.filter, after=spec.after, limit=spec.limit
    )
    return _page([item_view(item) for item in found.data], found.next_cursor)


@router.get(
    "/store/namespaces",
    summary="List the namespaces that hold items",
    responses=responses(200, "A page of namespaces, in the order of their text.", "StoreNamespace", page=True),
)
async def list_namespaces(
    request: Request, prefix: _Prefix = None, limit: Limit = 20, after: _After = None
) -> Response:
    principal = authenticate(request, "runs:read")
    found = await services_of(request).store.namespaces(
        principal.tenant,
        prefix.split(SEPARATOR) if prefix else (),
        after=after,
        limit=limit,
        at="/query",
    )
    return _page([{"namespace": namespace} for namespace in found.data], found.next_cursor)


def item_view(item: StoredItem) -> dict[str, object]:
    """An item as callers see it; its value goes out as the bytes that are stored."""
    return {
        "namespace": item.namespace,
        "key": item.key,
        "value": orjson.Fragment(item.text),
        "version": item.version,
        "created_at": rfc3339(item.created_at),
        "updated_at": rfc3339(item.updated_at),
        "expires_at": None if item.expires_at is None else rfc3339(item.expires_at),
    }


def _page(data: Sequence[object], cursor: str | None) -> Response:
    body = {"data": data, "has_more": cursor is not None, "next_cursor": cursor}
    return Response(encode(body), media_type=JSON)


def _address(item: StoredItem) -> str:
    return f"/store/items?{urlencode({'namespace': SEPARATOR.join(item.namespace), 'key': item.key})}"


def _unknown() -> NotFound:
    return NotFound("There is nothing under this namespace and key.", code="item_not_found")
