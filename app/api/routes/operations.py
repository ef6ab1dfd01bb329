"""Routes for operators: is the process alive, may it get traffic, what is it, what has it done."""

import asyncio

from fastapi import APIRouter, HTTPException
from starlette.requests import Request
from starlette.responses import Response

from app import __version__
from app.api.context import authenticate, services_of
from app.api.parameters import CheckedRoute
from app.core.errors import Unavailable
from app.core.json import encode

router = APIRouter(tags=["operations"], route_class=CheckedRoute)

FEATURES = (
    "runs", "streams", "agents", "structured_output", "threads", "state", "store", "tools", "plugins", "models", "middleware",
    "approvals", "client_tools", "deferred_tools", "policies", "reconciliation", "audit", "kill_switches", "secret_rotation",
    "idempotency", "retention",
)  # fmt: skip
"""What callers may look for before they rely on it; a name that stood here once stays."""


@router.get("/livez", summary="Is the process alive")
async def livez() -> Response:
    return Response(b'{"status":"ok"}', media_type="application/json")


@router.get("/readyz", summary="May it get traffic: database, not draining")
async def readyz(request: Request) -> Response:
    services = services_of(request)
    if not services.lifecycle.ready:
        doing = "shutting down" if services.lifecycle.draining else "starting"
        raise Unavailable(f"The server is {doing}.", code="not_ready")
    await services.ping()
    return Response(b'{"status":"ready"}', media_type="application/json")


@router.get(
    "/metrics",
    summary="What the server has done, for Prometheus",
    responses={200: {"description": "All metrics as text.", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    page = services_of(request).metrics
    if page is None:
        raise HTTPException(404)
    authenticate(request, "admin")
    # Many series take a while to write out, and runs should not wait for it.
    body, content_type = await asyncio.to_thread(page.render, request.headers.get("accept", ""))
    return Response(body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})


@router.get("/info", summary="Version and features")
async def info(request: Request) -> Response:
    services = services_of(request)
    body = {
        "name": "runwire",
        "version": __version__,
        "features": [*FEATURES, *(["metrics"] if services.metrics is not None else [])],
        "agent_types": services.agents.types,
        "model_providers": list(services.models.providers),
    }
    return Response(encode(body), media_type="application/json")
