"""Models of a middleware's own: pinned with the agent, made when they are first asked."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Protocol, cast

from app.agent.ports import ModelAnswer, ModelCall, ModelRequest, Piece
from app.runs.middleware.kinds import Scope


class ModelPins(Protocol):
    """What checks a model spec and makes it fit to be kept (`app.models`)."""

    async def pin(self, tenant: str, spec: object, *, pointer: str) -> dict[str, object]: ...


async def pinned(
    models: ModelPins, tenant: str, specs: Sequence[object], pointers: Sequence[str], old: Sequence[object] = ()
) -> list[dict[str, object]]:
    """The specs, pinned. `old`: those that they replace; a key that is left out stays with the same address."""
    pins: list[dict[str, object]] = []
    for place, (spec, pointer) in enumerate(zip(specs, pointers, strict=True)):
        pin = await models.pin(tenant, spec, pointer=pointer)
        before = cast("Mapping[str, object]", old[place] if place < len(old) and isinstance(old[place], dict) else {})
        same = all(pin.get(name) == before.get(name) for name in ("provider", "base_url"))
        if same and "api_key" in before and "api_key" not in pin:
            pin["api_key"] = before["api_key"]
        pins.append(pin)
    return pins


def later(scope: Scope, pin: Mapping[str, object]) -> ModelCall:
    """A call of a pinned model, which is built when it is first asked. Raises `ModelError`, `InvalidRequest` then."""
    made: list[ModelCall] = []

    async def call(request: ModelRequest) -> AsyncGenerator[Piece | ModelAnswer]:
        if not made:
            made.append(await scope.model(pin))
        async with aclosing(made[0](request)) as pieces:
            async for piece in pieces:
                yield piece

    return call
