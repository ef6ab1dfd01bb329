"""Routes of tool calls over all runs: their audit, and the switch that stops all of them."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from app.agent.ports import StepStatus
from app.api.body import read_json
from app.api.context import authenticate, services_of
from app.api.openapi import SwitchBody, body_of, responses
from app.api.pagination import After, Limit, check_id_cursor, page
from app.api.parameters import CheckedRoute
from app.api.views import audit_detail, audit_view
from app.core.errors import FieldError, InvalidRequest
from app.core.json import encode
from app.runs.audit import AuditFilter
from app.runs.validation import check
from app.tools.port import ALL_TOOLS

router = APIRouter(tags=["tool calls"], route_class=CheckedRoute)

_Name = Annotated[str | None, Query(max_length=64)]
_Id = Annotated[str | None, Query(max_length=64)]
_Time = Annotated[str | None, Query(max_length=40, description="RFC 3339, with an offset.")]


@router.get(
    "/tool-calls",
    summary="The audit: tool calls of all runs, newest first",
    responses=responses(200, "A page of calls.", None, page=True),
)
async def list_calls(
    request: Request,
    tool: _Name = None,
    outcome: Annotated[StepStatus | None, Query()] = None,
    thread_id: _Id = None,
    run_id: _Id = None,
    from_: Annotated[_Time, Query(alias="from")] = None,
    to: _Time = None,
    limit: Limit = 20,
    after: After = None,
) -> Response:
    principal = authenticate(request, "runs:read")
    check_id_cursor(after)
    where = AuditFilter(tool, outcome, thread_id, run_id, _moment("from", from_), _moment("to", to))
    found = await services_of(request).audit.page(principal, where, after=after, limit=limit + 1)
    return page(found, limit, lambda item: item.call.id, audit_view)


@router.get("/tool-calls/disabled", summary="Are all tool calls of the tenant stopped")
async def get_all_disabled(request: Request) -> Response:
    state = await services_of(request).switches.state(authenticate(request, "admin"), ALL_TOOLS)
    return Response(encode(state), media_type="application/json")


@router.put(
    "/tool-calls/disabled",
    summary="Stop all tool calls of the tenant, or let them go again",
    openapi_extra=body_of(SwitchBody),
)
async def put_all_disabled(request: Request) -> Response:
    principal = authenticate(request, "admin")
    body, _ = await read_json(request)
    state = await services_of(request).switches.set(principal, ALL_TOOLS, check(SwitchBody, body))
    return Response(encode(state), media_type="application/json")


@router.delete("/tool-calls/disabled", status_code=204, summary="Let the tenant's tool calls go again")
async def delete_all_disabled(request: Request) -> Response:
    await services_of(request).switches.lift(authenticate(request, "admin"), ALL_TOOLS)
    return Response(status_code=204)


@router.get("/tool-calls/{tool_call_id}", summary="One tool call with everything that is known of it")
async def get_call(request: Request, tool_call_id: Annotated[str, Path(max_length=64)]) -> Response:
    found = await services_of(request).audit.get(authenticate(request, "runs:read"), tool_call_id)
    return Response(encode(audit_detail(found)), media_type="application/json")


def _moment(name: str, text: str | None) -> int | None:
    """Milliseconds since the epoch. A `+` that was not percent-encoded comes as a space. Raises `InvalidRequest`."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text.strip().replace(" ", "+") if "T" in text else text)
        if at.tzinfo is not None:
            return round(at.timestamp() * 1000)
    except (ValueError, OverflowError):
        pass
    raise InvalidRequest(
        f"`{name}` must be a time such as 2026-01-31T12:00:00Z.", errors=(FieldError(f"/query/{name}", "not RFC 3339"),)
    )
