"""Middleware `model_fallback`: where a model fails, the next one is asked (LangChain's ModelFallbackMiddleware)."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated, cast

from pydantic import Field

from app.agent.middleware import Middleware
from app.agent.ports import ModelAnswer, ModelCall, ModelRequest, Piece, Restart
from app.core.errors import ModelError
from app.runs.middleware.kinds import Config, Scope
from app.runs.middleware.models import ModelPins, later, pinned
from app.runs.middleware.spec_kind import SpecKind
from app.runs.spec import JsonObject, Spec


class ModelFallbackSpec(Spec):
    """The config of `model_fallback`."""

    models: Annotated[list[str | JsonObject], Field(min_length=1, max_length=8)]
    """Asked in this order, each where the one before it failed, as an agent's `model`."""


class ModelFallbackKind(SpecKind[ModelFallbackSpec]):
    name = "model_fallback"
    description = "Asks other models, one after another, where the agent's fails."
    spec = ModelFallbackSpec

    def __init__(self, models: ModelPins) -> None:
        self._models = models

    async def pin(self, tenant: str, config: Config, pointer: str, old: Config | None = None) -> Config:
        models = cast("list[object]", (await super().pin(tenant, config, pointer))["models"])
        places = [f"{pointer}/models/{place}" for place in range(len(models))]
        before = cast("list[object]", (old or {}).get("models") or [])
        return {"models": await pinned(self._models, tenant, models, places, before)}

    async def made(self, spec: ModelFallbackSpec, scope: Scope) -> Middleware:
        models = {
            f"{self.name}/{place}": later(scope, cast("JsonObject", pin)) for place, pin in enumerate(spec.models)
        }
        keys = list(models)

        def wrap(request: ModelRequest, call_next: ModelCall) -> AsyncGenerator[Piece | ModelAnswer]:
            return _first(request, call_next, [request.model, *keys])

        return Middleware(self.name, wrap_model=wrap, models=models)


async def _first(
    request: ModelRequest, call_next: ModelCall, models: Sequence[str | None]
) -> AsyncGenerator[Piece | ModelAnswer]:
    """The answer of the first model that gives one. Raises the last one's `ModelError`."""
    failed: ModelError | None = None
    for model in models:
        spoke = False
        try:
            async with aclosing(call_next(request.override(model=model))) as pieces:
                async for piece in pieces:
                    spoke = True
                    yield piece
                    if isinstance(piece, ModelAnswer):
                        return
        except ModelError as error:
            failed = error
        if spoke:
            yield Restart()
    raise failed or ModelError("The model client ended without an answer.", code="model_empty_response")
