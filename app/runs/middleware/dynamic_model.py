"""Middleware `dynamic_model`: rules say which model answers, by how much was said, by the context, by what was called."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Annotated, Literal, cast

from pydantic import Field

from app.agent.middleware import Middleware
from app.agent.ports import ModelAnswer, ModelCall, ModelRequest, Piece
from app.agent.trimming import CountTokens
from app.core.messages import Message
from app.core.values import immutable
from app.runs.middleware.kinds import Config, Scope
from app.runs.middleware.models import ModelPins, later, pinned
from app.runs.middleware.spec_kind import SpecKind
from app.runs.middleware.texts import TokenCount
from app.runs.spec import JsonObject, Spec
from app.tools.runner import BoundTools
from app.tools.schema import ArgumentSchema, check_schema

Count = Annotated[int, Field(ge=0)]


class WhenSpec(Spec):
    """What must all be so for a rule to fit; what is left out does not count."""

    min_messages: Count | None = None
    max_messages: Count | None = None
    """Of the request, the instructions not counted."""
    min_tokens: Count | None = None
    max_tokens: Count | None = None
    """Of the request's messages, by the agent's model's tokenizer where it is known."""
    context: JsonObject | None = None
    """JSON Schema that the run's `context` fits."""
    tool_effect: Literal["pure", "read", "write"] | None = None
    """The last calls hold one of a tool of this effect."""


class RuleSpec(Spec):
    when: WhenSpec = WhenSpec()
    model: str | JsonObject


class DynamicModelSpec(Spec):
    """The config of `dynamic_model`."""

    rules: Annotated[list[RuleSpec], Field(min_length=1, max_length=16)]
    """The first that fits names the model; where none does, it is the agent's."""


@immutable
class _Rule:
    when: WhenSpec
    key: str
    context: ArgumentSchema | None


class DynamicModelKind(SpecKind[DynamicModelSpec]):
    name = "dynamic_model"
    description = (
        "Chooses the model of each call by rules on messages, tokens, context and the effect of the last calls."
    )
    spec = DynamicModelSpec

    def __init__(self, models: ModelPins) -> None:
        self._models = models

    async def pin(self, tenant: str, config: Config, pointer: str, old: Config | None = None) -> Config:
        rules = cast("list[dict[str, object]]", (await super().pin(tenant, config, pointer))["rules"])
        places = [f"{pointer}/rules/{place}" for place in range(len(rules))]
        for rule, place in zip(rules, places, strict=True):
            schema = cast("Mapping[str, object]", rule.get("when") or {}).get("context")
            if schema is not None:
                check_schema(cast("JsonObject", schema), f"{place}/when/context", of_object=False)
        before = cast("list[Mapping[str, object]]", (old or {}).get("rules") or [])
        models = await pinned(
            self._models,
            tenant,
            [rule["model"] for rule in rules],
            [f"{place}/model" for place in places],
            [rule.get("model") for rule in before],
        )
        return {"rules": [{**rule, "model": model} for rule, model in zip(rules, models, strict=True)]}

    async def made(self, spec: DynamicModelSpec, scope: Scope) -> Middleware:
        rules = [
            _Rule(
                rule.when,
                f"{self.name}/{place}",
                None if rule.when.context is None else ArgumentSchema(rule.when.context),
            )
            for place, rule in enumerate(spec.rules)
        ]
        models = {
            rule.key: later(scope, cast("JsonObject", given.model))
            for rule, given in zip(rules, spec.rules, strict=True)
        }
        counts = any((rule.when.min_tokens, rule.when.max_tokens) != (None, None) for rule in rules)
        chooser = _Chooser(rules, scope.run.context, scope.tools, await scope.count_tokens() if counts else None)

        def wrap(request: ModelRequest, call_next: ModelCall) -> AsyncGenerator[Piece | ModelAnswer]:
            key = chooser.model(request.messages)
            return call_next(request if key is None else request.override(model=key))

        return Middleware(self.name, wrap_model=wrap, models=models)


class _Chooser:
    """The rules in one run."""

    def __init__(
        self, rules: Sequence[_Rule], context: Mapping[str, object], tools: BoundTools, count: CountTokens | None
    ) -> None:
        fits = {rule.key for rule in rules if rule.context is None or rule.context.is_valid(context)}
        self._rules = [rule for rule in rules if rule.key in fits]
        self._tools = tools
        self._tokens = None if count is None else TokenCount(count)

    def model(self, messages: Sequence[Message]) -> str | None:
        """The key of the model that is to answer; `None`: the agent's own."""
        said = [message for message in messages if message.role != "system"]
        tokens = 0 if self._tokens is None else self._tokens.of(messages)
        for rule in self._rules:
            when = rule.when
            if (
                _within(len(said), when.min_messages, when.max_messages)
                and _within(tokens, when.min_tokens, when.max_tokens)
                and (when.tool_effect is None or when.tool_effect in self._effects(said))
            ):
                return rule.key
        return None

    def _effects(self, said: Sequence[Message]) -> set[str]:
        """Of the tools that were called last, where nothing but their results came since."""
        for message in reversed(said):
            if message.role == "assistant":
                found = [self._tools.find(call.name) for call in message.tool_calls]
                return {tool.effect for tool in found if tool is not None}
            if message.role == "user":
                break
        return set()


def _within(value: int, least: int | None, most: int | None) -> bool:
    return (least is None or value >= least) and (most is None or value <= most)
