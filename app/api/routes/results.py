"""Routes of what became of calls: a step's whole result, and the truth about a call of unknown outcome."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from app.api.body import read_body
from app.api.context import authenticate, services_of
from app.api.parameters import CheckedRoute
from app.api.views import reconciled_view
from app.core.json import encode

router = APIRouter(tags=["tool calls"], route_class=CheckedRoute)

_BINARY = {"type": "string", "format": "binary"}


@router.get(
    "/runs/{run_id}/steps/{step}/result",
    summary="The whole result of a step, as its tool gave it",
    responses={200: {"description": "Up to 8 MiB of it.", "content": {"*/*": {"schema": _BINARY}}}},
)
async def get_result(
    request: Request,
    run_id: Annotated[str, Path(max_length=64)],
    step: Annotated[int, Path(ge=0, le=2**31 - 1)],
) -> Response:
    whole = await services_of(request).results.whole(authenticate(request, "runs:read"), run_id, step)
    headers = {
        # It is a stranger's: no browser may take it for a page of this server.
        "Content-Disposition": "attachment",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "X-Content-Type-Options": "nosniff",
        "Runwire-Complete": str(whole.complete).lower(),
    }
    if whole.sha256:
        headers["Runwire-Sha256"] = whole.sha256
    return Response(whole.data, headers=headers, media_type=whole.content_type)


@router.post("/tool-calls/{tool_call_id}/reconcile", summary="Ask what became of a call of unknown outcome")
async def reconcile(request: Request, tool_call_id: Annotated[str, Path(max_length=64)]) -> Response:
    principal = authenticate(request, "runs:write")
    await read_body(request)
    found = await services_of(request).results.reconcile(principal, tool_call_id)
    return Response(encode(reconciled_view(found)), media_type="application/json")
