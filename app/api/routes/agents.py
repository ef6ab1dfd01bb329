"""Routes of agents (contract, section 7)."""

from typing import Annotated, cast

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from app.api.body import read_json
from app.api.context import authenticate, services_of
from app.api.idempotency import key_of, stored
from app.api.openapi import body_of
from app.api.pagination import After, Limit, cursor_of_name, name_cursor, page
from app.api.parameters import CheckedRoute
from app.core.json import encode
from app.runs.spec import RegisteredAgentSpec

router = APIRouter(tags=["agents"], route_class=CheckedRoute)
AgentName = Annotated[str, Path(max_length=64)]


@router.post(
    "/agents", status_code=201, summary="Register an agent", openapi_extra=body_of(RegisteredAgentSpec, idempotent=True)
)
async def create_agent(request: Request) -> Response:
    principal = authenticate(request, "agents:write")
    body, raw = await read_json(request)
    key = key_of(request, principal.tenant, "POST /agents", raw)
    agent, replayed = await services_of(request).agents.create(principal, body, key)
    return stored(agent, f"/agents/{agent['name']}", created=True, replayed=replayed)


@router.get("/agents", summary="List agents")
async def list_agents(request: Request, limit: Limit = 20, after: After = None) -> Response:
    principal = authenticate(request, "runs:read")
    found = await services_of(request).agents.page(principal, after=name_cursor(after), limit=limit + 1)
    return page(found, limit, lambda agent: cursor_of_name(cast("str", agent["name"])), lambda agent: agent)


@router.get("/agents/{name}", summary="Get an agent")
async def get_agent(request: Request, name: AgentName) -> Response:
    agent = await services_of(request).agents.get(authenticate(request, "runs:read"), name)
    return Response(encode(agent), media_type="application/json")


@router.put("/agents/{name}", summary="Create or replace an agent", openapi_extra=body_of(RegisteredAgentSpec))
async def put_agent(request: Request, name: AgentName) -> Response:
    principal = authenticate(request, "agents:write")
    body, _ = await read_json(request)
    agent, new = await services_of(request).agents.put(principal, name, body)
    return stored(agent, f"/agents/{name}", created=new)


@router.delete("/agents/{name}", status_code=204, summary="Delete an agent")
async def delete_agent(request: Request, name: AgentName) -> Response:
    await services_of(request).agents.delete(authenticate(request, "agents:write"), name)
    return Response(status_code=204)
