"""Routes of runs (contract, section 2)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from app.api.body import read_body, read_json
from app.api.context import authenticate, services_of, trace_of
from app.api.idempotency import key_of, replay_headers
from app.api.openapi import body_of, event_stream_of, responses
from app.api.pagination import After, Limit, check_id_cursor, metadata_filter, number_cursor, page
from app.api.parameters import METADATA, CheckedRoute
from app.api.sse import event_stream
from app.api.stream_options import OF_A_NEW_STREAM, StreamParameter, held, selected
from app.api.views import run_view, step_detail, step_view
from app.core.actions import AgentAction
from app.core.events import data_of
from app.core.json import encode
from app.core.principal import Principal
from app.runs.langchain_format import message_json, step_json
from app.runs.ports import RunFilter
from app.runs.records import CallRecord, RunRecord
from app.runs.resume import ResumeSpec
from app.runs.service import SETTLED, Accepted, RunService
from app.runs.spec import RunCreate
from app.runs.status import TERMINAL, RunStatus

router = APIRouter(tags=["runs"], route_class=CheckedRoute)

RunId = Annotated[str, Path(max_length=64)]
JSON = "application/json"
Format = Annotated[
    Literal["langchain"] | None,
    Query(description="`langchain`: as `langchain_core.load.load` reads it (its serialised form)."),
]
StepStatusFilter = Literal["success", "error", "timeout", "denied", "cancelled", "unknown", "waiting", "running"]


def _json(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encode(body), status, headers, JSON)


async def _accept(request: Request, route: str) -> tuple[Principal, RunService, Accepted]:
    principal = authenticate(request, "runs:write")
    body, raw = await read_json(request)
    runs = services_of(request).runs
    key = key_of(request, principal.tenant, route, raw)
    return principal, runs, await runs.create(principal, body, key, trace_of(request))


async def _view(runs: RunService, run: RunRecord) -> dict[str, object]:
    steps = await runs.intermediate_steps(run) if run.status in TERMINAL else None
    return run_view(run, steps)


def _stream(
    principal: Principal,
    runs: RunService,
    run: RunRecord,
    *,
    after: int = 0,
    types: frozenset[str] | None,
    hold: bool = False,
    accepted: Accepted | None = None,
) -> Response:
    on_leave: Callable[[], Awaitable[None]] | None = None
    if accepted is not None and not accepted.replayed and run.on_disconnect == "cancel":
        on_leave = _cancel_when_left(principal, runs, run.id)
    return event_stream(
        runs.follow(principal, run, after=after, types=types, hold=hold),
        location=f"/runs/{run.id}",
        at_once=runs.reached(run) > after,
        replayed=accepted is not None and accepted.replayed,
        on_leave=on_leave,
    )


_LEAVING: set[asyncio.Task[RunRecord]] = set()
"""Cancels under way for clients that left; held here because the connection's own task is gone."""


def _cancel_when_left(principal: Principal, runs: RunService, run_id: str) -> Callable[[], Awaitable[None]]:
    async def leave() -> None:
        task = asyncio.create_task(runs.cancel(principal, run_id))
        _LEAVING.add(task)
        task.add_done_callback(_LEAVING.discard)

    return leave


@router.post(
    "/runs",
    status_code=201,
    summary="Post a run",
    openapi_extra=body_of(RunCreate, idempotent=True, parameters=OF_A_NEW_STREAM),
    responses=responses(
        201, "The Run; it goes on in the background. With `Accept: text/event-stream`: its stream.", "Run"
    ),
)
async def create_run(request: Request) -> Response:
    if "text/event-stream" in request.headers.get("accept", ""):
        return await stream_new_run(request)
    _, runs, accepted = await _accept(request, "POST /runs")
    run = accepted.run
    headers = {"Location": f"/runs/{run.id}", **replay_headers(accepted.replayed)}
    return _json(await _view(runs, run), 201, headers)


@router.post(
    "/runs/stream",
    summary="Post a run and follow it",
    openapi_extra=body_of(RunCreate, idempotent=True, parameters=OF_A_NEW_STREAM),
    responses=event_stream_of("The run's events from 1 on."),
)
async def stream_new_run(request: Request) -> Response:
    types, hold = None, False
    if request.scope["query_string"]:
        authenticate(request, "runs:write")  # before anything is told about the parameters
        types = selected(request.query_params.getlist("stream") or None, "/query/stream")
        hold = held(request.query_params.get("hold"))
    principal, runs, accepted = await _accept(request, "POST /runs")
    if accepted.request.stream is not None:
        types = selected(list(accepted.request.stream), "/stream")
    return _stream(principal, runs, accepted.run, types=types, hold=hold, accepted=accepted)


@router.post(
    "/runs/wait",
    summary="Post a run and wait for its end",
    openapi_extra=body_of(RunCreate, idempotent=True),
    responses=responses(200, "The Run, finished or interrupted.", "Run"),
)
async def wait_new_run(request: Request) -> Response:
    principal, runs, accepted = await _accept(request, "POST /runs")
    run = accepted.run
    on_leave = None
    if run.on_disconnect == "cancel" and not accepted.replayed:
        on_leave = _cancel_when_left(principal, runs, run.id)
    settled = await _while_connected(request, runs.wait(principal, run.id, None), on_leave)
    headers = {"Content-Location": f"/runs/{run.id}", **replay_headers(accepted.replayed)}
    return _json(await _view(runs, settled), 200, headers)


async def _while_connected(
    request: Request, waiting: Awaitable[RunRecord], on_leave: Callable[[], Awaitable[None]] | None
) -> RunRecord:
    """Wait, but no longer than the client does; `on_leave` when it left first."""
    wait = asyncio.ensure_future(waiting)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((wait, gone), return_when=asyncio.FIRST_COMPLETED)
        if not wait.done() and on_leave is not None:
            await on_leave()
        if not wait.done():
            raise ClientDisconnect
        return wait.result()
    finally:
        wait.cancel()
        gone.cancel()
        await asyncio.gather(wait, gone, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue


@router.get(
    "/runs",
    summary="List runs, newest first",
    openapi_extra={"parameters": [METADATA]},
    responses=responses(200, "A page of Runs.", "Run", page=True),
)
async def list_runs(
    request: Request,
    status: RunStatus | None = None,
    agent: Annotated[str | None, Query(max_length=64)] = None,
    thread_id: Annotated[str | None, Query(max_length=64)] = None,
    limit: Limit = 20,
    after: After = None,
) -> Response:
    principal = authenticate(request, "runs:read")
    metadata = metadata_filter(request)
    check_id_cursor(after)
    where = RunFilter(status, agent, thread_id, metadata or None)
    found = await services_of(request).runs.page(principal, where, after=after, limit=limit + 1)
    return page(found, limit, lambda run: run.id, run_view)


@router.get("/runs/{run_id}", summary="Get a run", responses=responses(200, "The Run.", "Run"))
async def get_run(request: Request, run_id: RunId) -> Response:
    runs = services_of(request).runs
    run = await runs.get(authenticate(request, "runs:read"), run_id)
    return _json(await _view(runs, run))


@router.delete("/runs/{run_id}", status_code=204, summary="Delete a finished run")
async def delete_run(request: Request, run_id: RunId) -> Response:
    await services_of(request).runs.delete(authenticate(request, "runs:write"), run_id)
    return Response(status_code=204)


@router.get(
    "/runs/{run_id}/stream",
    summary="Follow a run",
    responses=event_stream_of("The events beyond the cursor, then live. 204 when the run ended before it."),
)
async def stream_run(
    request: Request,
    run_id: RunId,
    after: After = None,
    tail: bool = False,
    hold: bool = False,
    stream: StreamParameter = None,
) -> Response:
    principal = authenticate(request, "runs:read")
    types = selected(stream, "/query/stream")
    if after is not None:
        cursor = number_cursor(after)
    else:
        cursor = number_cursor(request.headers.get("last-event-id"), at="/header/Last-Event-ID")
    runs = services_of(request).runs
    run = await runs.get(principal, run_id)
    reached = runs.reached(run)
    runs.check_cursor(run, cursor)
    if tail:
        cursor = reached
    waits = run.status == "interrupted" and not hold
    if (run.status in TERMINAL or waits) and cursor >= run.last_seq:
        return Response(status_code=204)
    return _stream(principal, runs, run, after=cursor, types=types, hold=hold)


@router.get("/runs/{run_id}/events", summary="The events as pages", responses=responses(200, "A page of events.", None))
async def list_events(request: Request, run_id: RunId, limit: Limit = 20, after: After = None) -> Response:
    principal = authenticate(request, "runs:read")
    found, more = await services_of(request).runs.events(principal, run_id, after=number_cursor(after), limit=limit)
    rows = b",".join(
        b'{"id":%d,"event":"%b","data":%b}' % (seq, name.encode(), data_of(raw)) for seq, name, raw in found
    )
    tail = b'],"has_more":%b,"next_cursor":%b}' % (
        b"true" if more else b"false",
        b'"%d"' % found[-1][0] if more else b"null",
    )
    return Response(b'{"data":[' + rows + tail, media_type=JSON)


@router.get("/runs/{run_id}/steps", summary="Intermediate steps", responses=responses(200, "A page of steps.", None))
async def list_steps(
    request: Request,
    run_id: RunId,
    limit: Limit = 20,
    after: After = None,
    status: StepStatusFilter | None = None,
    tool: Annotated[str | None, Query(max_length=64)] = None,
    format: Format = None,
) -> Response:
    principal = authenticate(request, "runs:read")
    runs = services_of(request).runs
    steps = await runs.steps(principal, run_id, after=number_cursor(after), limit=limit + 1, status=status, tool=tool)
    if format is None:
        return page(steps, limit, lambda step: str(step.step), step_view)
    pairs = list(zip(steps, await runs.actions(principal, run_id, steps), strict=True))
    return page(pairs, limit, lambda pair: str(pair[0].step), _langchain_step)


def _langchain_step(pair: tuple[CallRecord, AgentAction]) -> dict[str, object]:
    call, action = pair
    view = step_view(call)
    told = {name: view[name] for name in ("step", "iteration", "status")}
    return {**told, **step_json(action, call.observation)}


@router.get("/runs/{run_id}/steps/{step}", summary="One step with its chain")
async def get_step(request: Request, run_id: RunId, step: Annotated[int, Path(ge=0, le=2**31 - 1)]) -> Response:
    principal = authenticate(request, "runs:read")
    return _json(step_detail(await services_of(request).runs.step(principal, run_id, step)))


@router.get("/runs/{run_id}/messages", summary="The messages the next model call would see")
async def list_messages(request: Request, run_id: RunId, format: Format = None) -> Response:
    principal = authenticate(request, "runs:read")
    messages = await services_of(request).runs.messages(principal, run_id)
    return _json({"data": [message.shown() if format is None else message_json(message) for message in messages]})


@router.get(
    "/runs/{run_id}/wait",
    summary="Wait for a run's end",
    responses=responses(200, "The Run, finished or interrupted (202: still running at the timeout).", "Run"),
)
async def wait_run(
    request: Request, run_id: RunId, timeout_s: Annotated[float, Query(ge=0, le=3600, allow_inf_nan=False)] = 30.0
) -> Response:
    principal = authenticate(request, "runs:read")
    runs = services_of(request).runs
    run = await _while_connected(request, runs.wait(principal, run_id, timeout_s), None)
    return _json(await _view(runs, run), 200 if run.status in SETTLED else 202)


@router.post(
    "/runs/{run_id}/cancel",
    status_code=202,
    summary="Cancel a run",
    responses=responses(202, "Accepted (200: the run was at its end already).", "Run"),
)
async def cancel_run(request: Request, run_id: RunId, wait: bool = False) -> Response:
    principal = authenticate(request, "runs:write")
    await read_body(request)
    runs = services_of(request).runs
    run = await runs.cancel(principal, run_id)
    if run.status in TERMINAL:
        return _json(await _view(runs, run))
    if wait:
        return _json(
            await _view(runs, await _while_connected(request, runs.wait(principal, run_id, None, ended=True), None))
        )
    return _json(await _view(runs, run), 202)


@router.post(
    "/runs/{run_id}/resume",
    status_code=202,
    summary="Answer interrupts",
    openapi_extra=body_of(ResumeSpec),
    responses=responses(202, "Kept. The run goes on when all its interrupts are answered.", "Run"),
)
async def resume_run(request: Request, run_id: RunId) -> Response:
    principal = authenticate(request, "runs:write")
    runs = services_of(request).runs
    await runs.get(principal, run_id)
    body, _ = await read_json(request)
    run = await runs.resume(principal, run_id, body)
    return _json(await _view(runs, run), 202)


class _Shortcut(Route):
    """A plain route that says which it is, as FastAPI's own do: requests are counted and logged by it."""

    def __init__(self, of: CheckedRoute) -> None:
        super().__init__(of.path, of.endpoint, methods=["POST"], include_in_schema=False)
        self._query = of.query

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:  # pyright: ignore[reportImplicitOverride]
        if scope["query_string"] and scope["method"] == "POST":
            self._query.check(scope)
        await super().handle(scope, receive, send)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:  # pyright: ignore[reportImplicitOverride]
        match, child = super().matches(scope)
        child["route"] = self
        return match, child


def shortcuts() -> list[Route]:
    """The two routes that runs are posted to, without FastAPI's matching of included routers and its dependencies.

    They come before the router, whose same routes stay for the document. Measured: 4% of the CPU of a short run.
    """
    posted = (create_run, stream_new_run)
    return [_Shortcut(route) for route in router.routes if isinstance(route, CheckedRoute) and route.endpoint in posted]
