"""What a model in Python is written against; re-exported by `runwire`, the public module.

@model("shout", description="Says everything again, louder.")
class Shout:
    def __init__(self, model: str, params: Mapping[str, object]) -> None: ...

    name = "shout"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelAnswer]: ...
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.agent.ports import ChatModel
from app.core.plugins import Plugin

ModelFactory = Callable[[str, Mapping[str, Any]], ChatModel]
"""`(model, params)` of the agent's spec or of the alias; called once for each run, so it should be quick."""


@dataclass(frozen=True, slots=True)
class ModelPlugin(Plugin):
    """A provider of models: `NAME:anything`, `{"provider": NAME, "model", "params"}`, or an alias with it."""

    factory: ModelFactory
    name: str
    """The provider's name, as agents and aliases have it."""
    description: str = ""

    def __call__(self, model: str, params: Mapping[str, Any] | None = None) -> ChatModel:
        return self.factory(model, params or {})


def model(name: str, *, description: str | None = None) -> Callable[[ModelFactory], ModelPlugin]:
    """Make a provider of a class or function `(model, params) -> ChatModel`. The description defaults to its docstring's first line.

    What the model raises other than `ModelError` ends the run with `model_plugin_failed` and shows in the log only.
    """

    def make(factory: ModelFactory) -> ModelPlugin:
        lines = (factory.__doc__ or "").strip().splitlines()
        return ModelPlugin(factory, name, description if description is not None else lines[0] if lines else "")

    return make
