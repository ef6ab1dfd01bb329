"""What a request carries besides its body: services, principal, request id."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol, cast

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars

from app.core.errors import FieldError, Forbidden, InvalidRequest, NotFound, Unauthenticated
from app.core.ids import new_id
from app.core.principal import Authenticator, Principal
from app.core.trace import TraceContext, parse
from app.runs.agents import AgentService
from app.runs.audit import AuditService
from app.runs.call_results import CallResults
from app.runs.callbacks import CallbackService
from app.runs.service import RunService
from app.threads.service import ThreadService
from app.threads.store import StoreService
from app.tools.service import ToolService
from app.tools.switches import SwitchService

_SAFE_ID = re.compile(rb"^[A-Za-z0-9._-]{1,128}$")
_KEY_PARAMETERS = frozenset(("api_key", "apikey", "x-api-key", "access_token", "token", "authorization"))
_REQUEST_ID = "runwire.request_id"


class Lifecycle:
    """Whether the server takes work. `ready` is what `/readyz` says."""

    def __init__(self) -> None:
        self.started = False
        self.draining = False

    @property
    def ready(self) -> bool:
        return self.started and not self.draining


class ModelDirectory(Protocol):
    """What callers may know of the models that they can name (`app.models`)."""

    def page(self, *, after: str | None, limit: int) -> Sequence[Mapping[str, object]]:
        """In name order, names greater than `after`."""
        ...

    def describe(self, name: str) -> Mapping[str, object] | None: ...

    @property
    def providers(self) -> Sequence[str]:
        """Built in or plugins."""
        ...


class MetricsPage(Protocol):
    """All metrics as text (`app.observability`)."""

    def render(self, accept: str) -> tuple[bytes, str]:
        """(body, content type) for an `Accept` header. To be called on a thread."""
        ...


@dataclass(slots=True)
class OpenStreams:
    """The event streams of this process."""

    open: int = 0
    dropped: int = 0
    """Those cut so far because their readers took nothing."""


@dataclass(frozen=True, slots=True)
class Services:
    runs: RunService
    agents: AgentService
    tools: ToolService
    models: ModelDirectory
    callbacks: CallbackService
    switches: SwitchService
    audit: AuditService
    results: CallResults
    threads: ThreadService
    store: StoreService
    keys: Authenticator
    lifecycle: Lifecycle
    ping: Callable[[], Awaitable[None]]
    """Asks the database whether it answers. Raises `Unavailable`."""
    streams: OpenStreams = field(default_factory=OpenStreams)
    metrics: MetricsPage | None = None
    """`None`: nothing is measured."""


def services_of(request: Request) -> Services:
    return cast("Services", request.app.state.services)


def authenticate(request: Request, scope: str) -> Principal:
    """The caller, who must hold `scope`. Raises `Unauthenticated`, `Forbidden` (`missing_scope`).

    Also refuses what no name or filter can hold, so that it never gets as far as a database.
    """
    principal = identify(request)
    _refuse_nul(request)
    if not principal.may(scope):
        raise Forbidden(f"This key does not have the scope `{scope}`.", code="missing_scope")
    return principal


def identify(request: Request) -> Principal:
    """The caller, whatever it may do. Raises `Unauthenticated`."""
    keys = services_of(request).keys
    if request.scope["query_string"] and any(name.lower() in _KEY_PARAMETERS for name in request.query_params):
        raise Unauthenticated(
            "A key in the address ends up in logs: send it as `Authorization: Bearer …` or `X-API-Key`."
        )
    if keys.anonymous is not None:
        return keys.anonymous
    presented = _presented_key(request)
    principal = keys.find(presented) if presented else None
    if principal is None:
        raise Unauthenticated("Send a valid key as `Authorization: Bearer …` or `X-API-Key`.")
    return principal


def _refuse_nul(request: Request) -> None:
    """U+0000 cannot be stored in Postgres, whose driver fails on it as it does when the server is gone."""
    if b"%00" in request.scope["query_string"]:
        raise InvalidRequest(
            "A parameter must not contain U+0000.", errors=(FieldError("/query", "must not contain U+0000"),)
        )
    if "\x00" in request.scope["path"]:
        raise NotFound("There is nothing of that name.")


def _presented_key(request: Request) -> str | None:
    authorization = request.headers.get("authorization")
    if authorization is not None:
        scheme, _, value = authorization.partition(" ")
        return value.strip() if scheme.lower() == "bearer" else None
    return request.headers.get("x-api-key")


def trace_of(request: Request) -> TraceContext | None:
    """The caller's trace (W3C Trace Context), which its run or call continues. What is not valid is ignored."""
    parents: list[str] = []
    states: list[str] = []
    for name, value in request.scope["headers"]:
        if name == b"traceparent":
            parents.append(value.decode("latin-1"))
        elif name == b"tracestate":
            states.append(value.decode("latin-1"))
    return parse(parents, states) if parents else None


def request_id_of(scope: Scope) -> str:
    return cast("str", scope.get(_REQUEST_ID, ""))


class RequestEnd(Protocol):
    """Told of the end of every request (`app.api.requests`). It must not raise."""

    def __call__(self, scope: Scope, request_id: str, status: int, first_s: float, total_s: float, /) -> None: ...


class RequestIdMiddleware:
    """Puts `X-Request-ID` on every response: the caller's own where it is a plain token, else a new one.

    What is logged while the request is handled carries it, too, and `ended` is told how the request came out.
    """

    def __init__(self, app: ASGIApp, ended: RequestEnd) -> None:
        self._app = app
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        request_id = given if _SAFE_ID.match(given) else new_id().encode()
        text = scope[_REQUEST_ID] = request_id.decode()
        bind_contextvars(request_id=text)  # each request has a task, and so a context, of its own
        began, first, status = perf_counter(), 0.0, 0

        async def send_with_id(message: Message) -> None:
            nonlocal first, status
            if message["type"] == "http.response.start":
                first, status = perf_counter(), message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            ended = perf_counter()
            self._ended(scope, text, status, (first or ended) - began, ended - began)
