"""Routes for operators: is the process alive, may it get traffic, what is it."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from app import __version__
from app.api.context import services_of
from app.core.errors import Unavailable
from app.core.json import encode

router = APIRouter(tags=["operations"])


@router.get("/livez", summary="Is the process alive")
async def livez() -> Response:
    return Response(b'{"status":"ok"}', media_type="application/json")


@router.get("/readyz", summary="May it get traffic: database, not draining")
async def readyz(request: Request) -> Response:
    services = services_of(request)
    if not services.lifecycle.ready:
        raise Unavailable("The server is starting or shutting down.", code="not_ready")
    await services.ping()
    return Response(b'{"status":"ready"}', media_type="application/json")


@router.get("/info", summary="Version and features")
async def info() -> Response:
    body = {
        "name": "runwire",
        "version": __version__,
        "features": ["runs", "streams", "agents", "tools", "plugins", "idempotency"],
        "agent_types": ["tool_calling"],
        "model_providers": ["openai", "anthropic", "scripted", "demo"],
    }
    return Response(encode(body), media_type="application/json")
