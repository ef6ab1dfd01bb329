"""Routes that deferred tools call back (contract, section 4): their permission is the call's own token."""

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from app.api.body import read_json
from app.api.context import services_of
from app.api.openapi import body_of
from app.api.parameters import CheckedRoute
from app.runs.callbacks import ProgressSpec

router = APIRouter(tags=["tools"], route_class=CheckedRoute)
CallId = Annotated[str, Path(max_length=64)]

_DONE = b'{"status":"accepted"}'


@router.post("/tool-calls/{tool_call_id}/result", summary="A deferred tool's result")
async def call_result(request: Request, tool_call_id: CallId) -> Response:
    body, _ = await read_json(request)
    await services_of(request).callbacks.result(tool_call_id, _token(request), body)
    return Response(_DONE, media_type="application/json")


@router.post(
    "/tool-calls/{tool_call_id}/progress",
    summary="A deferred tool's progress",
    openapi_extra=body_of(ProgressSpec),
)
async def call_progress(request: Request, tool_call_id: CallId) -> Response:
    body, _ = await read_json(request)
    await services_of(request).callbacks.progress(tool_call_id, _token(request), body)
    return Response(_DONE, media_type="application/json")


def _token(request: Request) -> str | None:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None
