"""Middleware `guardrail`: what users or the model may not say, by a pattern, a length or a function, ends the run with a sentence."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from app.agent.middleware import HookResult, Middleware
from app.agent.plugin_planner import being_cancelled
from app.agent.ports import ModelAnswer, ModelCall, ModelRequest, Piece, TextDelta
from app.agent.state import LoopState
from app.core.errors import FieldError, InvalidRequest, MiddlewareFailed
from app.core.json import decode, encode_text
from app.core.leash import leashed
from app.core.plugins import PluginError, load_plugins
from app.runs.middleware.api import GuardrailCheck
from app.runs.middleware.detectors import own
from app.runs.middleware.kinds import Config, Scope
from app.runs.middleware.pii import checked_pattern
from app.runs.middleware.plugin_kind import failure
from app.runs.middleware.spec_kind import SpecKind
from app.runs.middleware.texts import strings_in, text_of
from app.runs.spec import Name, Spec

ENTRY_POINT_GROUP = "runwire.guardrails"

REFUSAL = "I cannot help with that."

Pattern = Annotated[str, Field(min_length=1, max_length=1000)]


class GuardrailSpec(Spec):
    """The config of `guardrail`. At least one of `patterns`, `max_length` and `plugin` says what is wrong."""

    patterns: Annotated[list[Pattern], Field(max_length=64)] = Field(default_factory=list[str])
    """Regular expressions (case counts; `(?i)` at the beginning makes it not count). A text in which one is found is wrong."""
    max_length: Annotated[int, Field(ge=1)] | None = None
    """In characters."""
    plugin: Name | None = None
    """A function in Python that says what is wrong with a text."""
    apply_to_input: bool = True
    """What the user said last."""
    apply_to_output: bool = True
    """What the model says. Nothing of it is streamed before it was looked at as a whole."""
    on_violation: Literal["end", "error"] = "end"
    """`end`: the run ends with `message` for its output; `error`: it ends as `guardrail_violated`."""
    message: Annotated[str, Field(min_length=1, max_length=4096)] = REFUSAL

    @field_validator("patterns")
    @classmethod
    def _safe(cls, patterns: list[str]) -> list[str]:
        for pattern in patterns:
            checked_pattern(pattern)
        return patterns

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.patterns and self.max_length is None and self.plugin is None:
            raise ValueError("say `patterns`, `max_length` or `plugin`")
        return self


class GuardrailKind(SpecKind[GuardrailSpec]):
    name = "guardrail"
    description = "Ends the run where the input or an answer holds what it may not: by patterns, length, or a function."
    spec = GuardrailSpec

    def __init__(self, checks: Sequence[GuardrailCheck] = ()) -> None:
        """Raises `PluginError` where two checks have one name."""
        self._checks = {check.name: check for check in checks}
        if len(self._checks) != len(checks):
            raise PluginError("There are two guardrail checks of one name; rename one.")

    @classmethod
    def load(cls, names: Sequence[str] = (), *, entry_points: bool = True) -> "GuardrailKind":
        return cls(load_plugins(GuardrailCheck, names, ENTRY_POINT_GROUP if entry_points else None))

    def label(self, config: Config) -> str:
        return f"guardrail[{sorted(config.items(), key=str)}]"

    async def pin(self, tenant: str, config: Config, pointer: str, old: Config | None = None) -> Config:
        pinned = await super().pin(tenant, config, pointer, old)
        name = pinned.get("plugin")
        if name is not None and name not in self._checks:
            there = ", ".join(sorted(self._checks)) or "none"
            raise InvalidRequest(
                f"There is no guardrail check `{name}`; there are: {there}.",
                code="unknown_plugin",
                errors=(FieldError(f"{pointer}/plugin", "unknown plugin"),),
            )
        return pinned

    async def made(self, spec: GuardrailSpec, scope: Scope) -> Middleware:
        check = None if spec.plugin is None else self._checks.get(spec.plugin)
        if spec.plugin is not None and check is None:
            raise MiddlewareFailed(f"This server does not have the guardrail check `{spec.plugin}` any more.")
        run = _Guardrail(spec, check)
        return Middleware(
            self.name,
            before_agent=run.before_agent if spec.apply_to_input else None,
            after_model=run.after_model if spec.apply_to_output else None,
            wrap_model=run.wrap_model if spec.apply_to_output else None,
        )


class _Guardrail:
    """One guardrail in one run."""

    def __init__(self, spec: GuardrailSpec, check: GuardrailCheck | None) -> None:
        self._spec = spec
        self._check = check
        self._found: list[Callable[[str], bool]] = [own("", pattern).found_in for pattern in spec.patterns]
        self._ends = False
        """The last answer was wrong: whatever the agent makes of the sentence in its place, the run ends."""

    async def before_agent(self, state: LoopState) -> HookResult | None:
        said = next((item for item in reversed(state.messages[: state.before]) if item.role == "user"), None)
        if said is None or not await self._is_wrong([text_of(said.content)], "input"):
            return None
        return HookResult(goto="end", output=self._spec.message)

    async def after_model(self, _state: LoopState) -> HookResult | None:
        return HookResult(goto="end", output=self._spec.message) if self._ends else None

    async def wrap_model(self, request: ModelRequest, call_next: ModelCall) -> AsyncGenerator[Piece | ModelAnswer]:
        async with aclosing(call_next(request)) as pieces:
            async for piece in pieces:
                if not isinstance(piece, ModelAnswer):
                    continue
                answer = piece
                self._ends = await self._is_wrong(_said(piece), "answer")
                if self._ends:
                    answer = ModelAnswer(self._spec.message, tokens=piece.tokens, model=piece.model)
                if request.stream and answer.content:
                    yield TextDelta(answer.content)
                yield answer

    async def _is_wrong(self, texts: Sequence[str], what: str) -> bool:
        """Raises `MiddlewareFailed` where that is to end the run as an error."""
        spec = self._spec
        longest = spec.max_length
        wrong = any(
            (longest is not None and len(text) > longest) or any(found(text) for found in self._found) for text in texts
        )
        if not wrong and self._check is not None:
            for text in texts:
                wrong = wrong or await _asked(self._check, text)
        if wrong and spec.on_violation == "error":
            raise MiddlewareFailed(
                f"The middleware `guardrail` does not let this {what} through.", code="guardrail_violated"
            )
        return wrong


def _said(answer: ModelAnswer) -> list[str]:
    """All that an answer says: its text, a refusal, the arguments of its calls; JSON also as what stands in it."""
    texts = [answer.content]
    if answer.refusal:
        texts.append(answer.refusal)
    for call in answer.calls:
        texts.append(call.raw_args if call.args is None else encode_text(call.args))
        texts += strings_in(call.args)
    if answer.content.lstrip().startswith(("{", "[", '"')):
        with suppress(ValueError):
            texts += strings_in(decode(answer.content))
    return texts


async def _asked(check: GuardrailCheck, text: str) -> bool:
    """Whether the function finds something wrong. What it must not do ends the run: it fails closed."""
    try:
        said: object = check.function(text)
        if inspect.isawaitable(said):
            said = await leashed(said, "guardrail", check.name)
    except asyncio.CancelledError as error:
        if being_cancelled():
            raise
        raise failure(check.name, error) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001  (the named boundary: foreign code behind it)
        raise failure(check.name, error) from None
    if not isinstance(said, bool):
        raise failure(check.name, "a guardrail check must say true (wrong) or false")
    return said
