"""Middleware `http`: hooks that another program answers, by one signed POST each."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Literal, cast

import httpx
import structlog
from pydantic import Field, field_validator

from app.agent.changes import split
from app.agent.middleware import Hook, HookResult, Middleware
from app.agent.ports import (
    ModelAnswer,
    ModelCall,
    ModelRequest,
    Piece,
    PlannedCall,
    TextDelta,
    ToolCallNext,
    ToolOutcome,
    Waiting,
)
from app.agent.state import LoopState
from app.agent.state_schema import MESSAGES, StateMisfit, shown
from app.core.clock import now_ms, rfc3339
from app.core.errors import FieldError, InvalidRequest, MiddlewareFailed
from app.core.ids import new_id
from app.core.json import encode
from app.core.registry import SecretStore
from app.runs.middleware.api import ToolResult
from app.runs.middleware.http_answer import HookSays, Misread, messages_in, only, read_answer
from app.runs.middleware.kinds import Config, Scope
from app.runs.middleware.outcomes import CODE, outcome_of
from app.runs.middleware.spec_kind import SpecKind
from app.runs.spec import JsonObject, Spec
from app.tools.egress import EgressGuard
from app.tools.hook_client import HookClient, HookFailed
from app.tools.secret_refs import is_secret_header
from app.tools.signing import key_of
from app.tools.spec import checked_headers

HookName = Literal["before_agent", "before_model", "after_model", "after_agent", "wrap_model_call", "wrap_tool_call"]
Stage = Literal["before_agent", "before_model", "after_model", "after_agent"]

KEPT = 1024
"""Secrets that are remembered in the clear, so that a run need not read them again. They never change."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class HttpHookSpec(Spec):
    """The config of `http`."""

    url: str
    """Asked by POST, under the same egress rules as a tool's."""
    hooks: Annotated[list[HookName], Field(min_length=1, max_length=6)]
    timeout_s: Annotated[float, Field(gt=0, le=60, allow_inf_nan=False)] = 5.0
    """From the connection to the answer's last byte."""
    on_failure: Literal["open", "closed"] = "closed"
    """What becomes of a run whose hook does not answer as it must: it goes on (`open`), or it does not."""
    signing_secret: str | JsonObject | None = None
    """`whsec_…`, write only; without one the requests are not signed. A replacement may leave it out."""
    headers: dict[str, str | JsonObject] = Field(default_factory=dict[str, "str | JsonObject"])
    """Those that look like secrets are write only."""

    @field_validator("signing_secret")
    @classmethod
    def _usable(cls, secret: object) -> object:
        if isinstance(secret, str):
            key_of(secret)
        return secret

    @field_validator("headers")
    @classmethod
    def _plain(cls, headers: dict[str, object]) -> dict[str, object]:
        checked_headers({name: value for name, value in headers.items() if isinstance(value, str)})
        return headers


class HttpHookKind(SpecKind[HttpHookSpec]):
    name = "http"
    description = "Asks another program at the hooks that it names, by signed POSTs."
    spec = HttpHookSpec

    def __init__(self, client: HookClient, guard: EgressGuard, secrets: SecretStore) -> None:
        self._client = client
        self._guard = guard
        self._secrets = secrets
        self._known: dict[tuple[str, str], str] = {}

    def label(self, config: Config) -> str:
        return f"http[{config.get('url')}]"

    async def pin(self, tenant: str, config: Config, pointer: str, old: Config | None = None) -> Config:
        _refuse_references(config, pointer)
        checked = dict(await super().pin(tenant, config, pointer))
        self._guard.check_url(str(checked["url"]), pointer=f"{pointer}/url")
        before = old or {}  # of the same address: the label says so
        secret = checked.get("signing_secret")
        if isinstance(secret, str):
            checked["signing_secret"] = {"secret_ref": await self._secrets.put(tenant, secret)}
        elif before.get("signing_secret") is not None:
            checked["signing_secret"] = before["signing_secret"]
        headers = cast("Mapping[str, str]", checked.get("headers") or {})
        kept = {
            name: {"secret_ref": await self._secrets.put(tenant, value)} if is_secret_header(name) else value
            for name, value in headers.items()
        }
        stay = cast("Mapping[str, object]", before.get("headers") or {})
        checked["headers"] = {**{name: value for name, value in stay.items() if isinstance(value, dict)}, **kept}
        return checked

    async def made(self, spec: HttpHookSpec, scope: Scope) -> Middleware:
        tenant = scope.run.tenant
        secret = None if spec.signing_secret is None else await self._revealed(tenant, spec.signing_secret)
        headers = {name: await self._revealed(tenant, value) for name, value in spec.headers.items()}
        keys = [] if secret is None else [key_of(secret)]
        run = _HttpHook(spec, scope, self._client, headers, keys)
        wanted = set(spec.hooks)
        return Middleware(
            self.name,
            before_agent=run.hook("before_agent") if "before_agent" in wanted else None,
            before_model=run.hook("before_model") if "before_model" in wanted else None,
            after_model=run.hook("after_model") if "after_model" in wanted else None,
            after_agent=run.hook("after_agent") if "after_agent" in wanted else None,
            wrap_model=run.wrap_model if "wrap_model_call" in wanted else None,
            wrap_tool=run.wrap_tool if "wrap_tool_call" in wanted else None,
        )

    async def _revealed(self, tenant: str, value: str | Mapping[str, object]) -> str:
        if isinstance(value, str):
            return value
        ref = str(value["secret_ref"])
        found = self._known.get((tenant, ref)) or await self._secrets.get(tenant, ref)
        if found is None:
            raise MiddlewareFailed("A secret of the middleware `http` is no longer kept; give it again.")
        while len(self._known) >= KEPT:
            self._known.pop(next(iter(self._known)), None)
        self._known[tenant, ref] = found
        return found


def _refuse_references(config: Config, pointer: str) -> None:
    """Raises `InvalidRequest`: references are made here, and never taken from outside."""
    headers = config.get("headers")
    given = {"signing_secret": config.get("signing_secret")}
    if isinstance(headers, dict):
        given |= {f"headers/{name}": value for name, value in cast("dict[str, object]", headers).items()}
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise InvalidRequest(
                "The config of the middleware `http` does not fit.",
                errors=(FieldError(f"{pointer}/{name}", "must be text"),),
            )


class _HttpHook:
    """One hook server in one run."""

    def __init__(
        self, spec: HttpHookSpec, scope: Scope, client: HookClient, headers: Mapping[str, str], keys: list[bytes]
    ) -> None:
        self._spec = spec
        self._scope = scope
        self._client = client
        self._url = httpx.URL(spec.url)
        self._headers = headers
        self._keys = keys

    def hook(self, name: Stage) -> Hook:
        async def call(state: LoopState) -> HookResult | None:
            values: dict[str, object] = {
                MESSAGES: [message.shown() for message in state.messages], **shown(state.values)
            }  # fmt: skip
            try:
                says = await self._ask(name, {"state": values})
                if says.request is not None:
                    raise Misread(f"{name} has no request")
                if says.update is not None:
                    split(says.update, state)
            except (HookFailed, Misread, StateMisfit) as error:
                self._failed(name, error)
                return None
            if says.action == "deny":
                raise _denied(says)
            if says.action == "stop":
                return HookResult(says.update, "end", says.message)
            return None if says.update is None else HookResult(says.update)

        return call

    async def wrap_model(self, request: ModelRequest, call_next: ModelCall) -> AsyncGenerator[Piece | ModelAnswer]:
        told = {
            "messages": [message.shown() for message in request.messages],
            "tools": [
                {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
                for tool in request.tools
            ],
            "tool_choice": request.tool_choice,
        }
        try:
            says = await self._ask("wrap_model_call", {"request": told})
            request = _model_request(request, says)
        except (HookFailed, Misread) as error:
            self._failed("wrap_model_call", error)
            says = HookSays()
        if says.action == "deny":
            raise _denied(says)
        if says.action == "stop":
            if request.stream and says.message:
                yield TextDelta(says.message)
            yield ModelAnswer(says.message)
            return
        async with aclosing(call_next(request)) as pieces:
            async for piece in pieces:
                yield piece

    async def wrap_tool(self, call: PlannedCall, call_next: ToolCallNext) -> ToolOutcome | Waiting:
        tool = self._scope.tools.find(call.action.tool)
        told = {
            "tool": call.action.tool,
            "arguments": call.action.tool_input,
            "tool_call_id": call.tool_call_id,
            "effect": None if tool is None else tool.effect,
        }
        try:
            says = await self._ask("wrap_tool_call", {"request": told})
            changed = _tool_call(call, says)
        except (HookFailed, Misread) as error:
            if self._spec.on_failure == "closed":
                request_id = self._log("wrap_tool_call", error)
                text = f"{call.action.tool} was not called: what is asked about its calls did not answer. (request {request_id})"
                return outcome_of(ToolResult(output=text, status="denied", code=CODE), call, "http")
            self._failed("wrap_tool_call", error)
            return await call_next(call)
        if says.action == "deny":
            text = says.message or f"{call.action.tool} was not called: it was denied."
            return outcome_of(ToolResult(output=text, status="denied", code=CODE), call, "http")
        if says.action == "stop":
            return outcome_of(ToolResult(output=says.message, goto="end"), call, "http")
        return await call_next(changed)

    async def _ask(self, hook: HookName, about: Mapping[str, object]) -> HookSays:
        """Raises `HookFailed`, `Misread`."""
        run, principal = self._scope.run, self._scope.principal
        body = encode(
            {
                "type": f"middleware.{hook}",
                "timestamp": rfc3339(now_ms()),
                "data": {
                    "run_id": run.id,
                    "thread_id": run.thread_id,
                    "context": run.context,
                    "principal": {"tenant": principal.tenant, "subject": principal.subject},
                    **about,
                },
            }
        )
        data = await self._client.post(
            self._url, new_id(), body, headers=self._headers, keys=self._keys, timeout_s=self._spec.timeout_s
        )
        return read_answer(data)

    def _failed(self, hook: HookName, error: Exception) -> None:
        """Raises `MiddlewareFailed` unless the hook is to fail open."""
        request_id = self._log(hook, error)
        if self._spec.on_failure == "closed":
            raise MiddlewareFailed(
                f"The middleware `http` did not answer as it must at {hook}. (request {request_id})",
                request_id=request_id,
            )

    def _log(self, hook: HookName, error: Exception) -> str:
        request_id = new_id()
        _log.warning(
            "http_hook_failed",
            hook=hook,
            host=self._url.host,
            run_id=self._scope.run.id,
            request_id=request_id,
            error=str(error)[:500],
        )
        return request_id


def _denied(says: HookSays) -> MiddlewareFailed:
    return MiddlewareFailed(says.message or "The middleware `http` denied it.", code=CODE)


def _model_request(request: ModelRequest, says: HookSays) -> ModelRequest:
    """Raises `Misread`."""
    if says.update is not None:
        raise Misread("wrap_model_call has no update")
    given = says.request
    if given is None:
        return request
    only(given, "messages", "tools")
    messages, names = messages_in(given), given.get("tools")
    if messages is not None:
        request = request.override(messages=messages)
    if names is not None:
        known = {tool.name: tool for tool in request.tools}
        if not isinstance(names, list) or not all(name in known for name in cast("list[str]", names)):
            raise Misread("its tools are not names of those that it was told of")
        request = request.override(tools=[known[name] for name in cast("list[str]", names)])
    return request


def _tool_call(call: PlannedCall, says: HookSays) -> PlannedCall:
    """Raises `Misread`."""
    if says.update is not None:
        raise Misread("wrap_tool_call has no update")
    if says.request is None:
        return call
    only(says.request, "arguments")
    arguments = says.request.get("arguments")
    if not isinstance(arguments, str | dict):
        raise Misread("its arguments are no object")
    given = cast("str | dict[str, object]", arguments)
    return replace(call, action=replace(call.action, tool_input=given))
