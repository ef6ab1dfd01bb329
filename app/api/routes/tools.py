"""Routes of tools (contract, section 4)."""

from typing import Annotated, Literal, cast

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from app.api.body import read_body, read_json
from app.api.context import authenticate, services_of, trace_of
from app.api.idempotency import key_of, plain_key, replay_headers, stored
from app.api.openapi import NO_BODY, InvokeBody, SwitchBody, body_of, responses
from app.api.pagination import After, Limit, cursor_of_name, name_cursor
from app.api.parameters import CheckedRoute
from app.core.errors import FieldError, InvalidRequest
from app.core.json import encode
from app.runs.validation import check
from app.tools.spec import ToolSpec

router = APIRouter(tags=["tools"], route_class=CheckedRoute)
ToolName = Annotated[str, Path(max_length=64)]
Source = Annotated[Literal["registered", "plugin"] | None, Query()]


def _object(body: object) -> dict[str, object]:
    if not isinstance(body, dict):
        raise InvalidRequest("The body must be a JSON object.", errors=(FieldError("", "not an object"),))
    return cast("dict[str, object]", body)


@router.post("/tools", status_code=201, summary="Register a tool", openapi_extra=body_of(ToolSpec, idempotent=True))
async def create_tool(request: Request) -> Response:
    principal = authenticate(request, "tools:write")
    body, raw = await read_json(request)
    key = key_of(request, principal.tenant, "POST /tools", raw)
    tool, replayed = await services_of(request).tools.create(principal, _object(body), key)
    return stored(tool, f"/tools/{tool['name']}", created=True, replayed=replayed)


@router.get("/tools", summary="List tools, registered and plugins")
async def list_tools(
    request: Request,
    source: Source = None,
    limit: Limit = 20,
    after: After = None,
) -> Response:
    principal = authenticate(request, "tools:read")
    behind = name_cursor(after)
    found, last = await services_of(request).tools.list(principal, source=source, after=behind, limit=limit)
    cursor = None if last is None else cursor_of_name(last)
    body = {"data": found, "has_more": last is not None, "next_cursor": cursor}
    return Response(encode(body), media_type="application/json")


@router.get("/tools/{name}", summary="Get a tool")
async def get_tool(request: Request, name: ToolName, source: Source = None) -> Response:
    tool = await services_of(request).tools.get(authenticate(request, "tools:read"), name, source=source)
    return Response(encode(tool), media_type="application/json")


@router.put("/tools/{name}", summary="Create or replace a tool", openapi_extra=body_of(ToolSpec))
async def put_tool(request: Request, name: ToolName) -> Response:
    principal = authenticate(request, "tools:write")
    body, _ = await read_json(request)
    tool, new = await services_of(request).tools.put(principal, name, _object(body))
    return stored(tool, f"/tools/{name}", created=new)


@router.delete("/tools/{name}", status_code=204, summary="Delete a tool")
async def delete_tool(request: Request, name: ToolName) -> Response:
    await services_of(request).tools.delete(authenticate(request, "tools:write"), name)
    return Response(status_code=204)


@router.post(
    "/tools/{name}/rotate-secret",
    summary="Make a new signing secret; the old one signs beside it for 24 h",
    openapi_extra=NO_BODY,
)
async def rotate_secret(request: Request, name: ToolName) -> Response:
    principal = authenticate(request, "tools:write")
    raw = await read_body(request)
    if raw.strip() not in (b"", b"{}"):
        raise InvalidRequest("This request has no body.", errors=(FieldError("", "leave it out"),))
    key = key_of(request, principal.tenant, f"POST /tools/{name}/rotate-secret", raw)
    made, replayed = await services_of(request).tools.rotate_secret(principal, name, key)
    headers = {"Cache-Control": "no-store", **replay_headers(replayed)}
    return Response(encode(made), headers=headers, media_type="application/json")


@router.get("/tools/{name}/disabled", summary="Is the tool switched off")
async def get_disabled(request: Request, name: ToolName) -> Response:
    state = await services_of(request).switches.state(authenticate(request, "tools:read"), name)
    return Response(encode(state), media_type="application/json")


@router.put(
    "/tools/{name}/disabled", summary="Switch a tool off, or on again; plugins too", openapi_extra=body_of(SwitchBody)
)
async def put_disabled(request: Request, name: ToolName) -> Response:
    principal = authenticate(request, "tools:write")
    body, _ = await read_json(request)
    state = await services_of(request).switches.set(principal, name, check(SwitchBody, body))
    return Response(encode(state), media_type="application/json")


@router.delete("/tools/{name}/disabled", status_code=204, summary="Switch a tool on again")
async def delete_disabled(request: Request, name: ToolName) -> Response:
    await services_of(request).switches.lift(authenticate(request, "tools:write"), name)
    return Response(status_code=204)


@router.post(
    "/tools/{name}/invoke",
    summary="Call a tool once, outside a run",
    openapi_extra=body_of(InvokeBody),
    responses=responses(200, "Its envelope, with its status.", "Envelope"),
)
async def invoke_tool(request: Request, name: ToolName) -> Response:
    principal = authenticate(request, "runs:write")
    body, _ = await read_json(request)
    arguments = check(InvokeBody, body).arguments
    envelope = await services_of(request).tools.invoke(
        principal, name, arguments, idempotency_key=plain_key(request), trace=trace_of(request)
    )
    return Response(encode(envelope), media_type="application/json")
