"""Routes of middleware: what an agent's `middleware` may name on this server."""

from typing import cast

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app.api.context import authenticate, services_of
from app.api.openapi import responses
from app.api.pagination import After, Limit, cursor_of_name, name_cursor, page
from app.api.parameters import CheckedRoute

router = APIRouter(tags=["middleware"], route_class=CheckedRoute)


@router.get(
    "/middleware",
    summary="List the middleware that agents may name",
    responses=responses(
        200, "A page in name order, with the JSON Schema of each one's config.", "Middleware", page=True
    ),
)
async def list_middleware(request: Request, limit: Limit = 20, after: After = None) -> Response:
    authenticate(request, "runs:read")
    found = services_of(request).agents.middleware.page(after=name_cursor(after), limit=limit + 1)
    return page(found, limit, lambda item: cursor_of_name(cast("str", item["name"])), lambda item: item)
