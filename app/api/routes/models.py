"""Routes of models (contract, section 7): what an agent's `model` may name on this server."""

from typing import Annotated, cast

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from app.api.context import authenticate, services_of
from app.api.openapi import responses
from app.api.pagination import After, Limit, cursor_of_name, name_cursor, page
from app.api.parameters import CheckedRoute
from app.core.errors import NotFound
from app.core.json import encode

router = APIRouter(tags=["models"], route_class=CheckedRoute)
ModelName = Annotated[str, Path(max_length=64)]


@router.get(
    "/models",
    summary="List model aliases and model plugins",
    responses=responses(200, "A page in name order; never a key or an address.", "Model", page=True),
)
async def list_models(request: Request, limit: Limit = 20, after: After = None) -> Response:
    authenticate(request, "runs:read")
    found = services_of(request).models.page(after=name_cursor(after), limit=limit + 1)
    return page(found, limit, lambda model: cursor_of_name(cast("str", model["name"])), lambda model: model)


@router.get("/models/{name}", summary="Get a model", responses=responses(200, "The model.", "Model"))
async def get_model(request: Request, name: ModelName) -> Response:
    authenticate(request, "runs:read")
    model = services_of(request).models.describe(name)
    if model is None:
        raise NotFound(f"There is no model `{name}`; GET /models lists what there is.", code="model_not_found")
    return Response(encode(model), media_type="application/json")
