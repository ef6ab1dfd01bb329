"""Routes of threads (contract, section 7)."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from app.api.body import read_json
from app.api.context import authenticate, services_of
from app.api.idempotency import key_of, stored
from app.api.openapi import body_of, responses
from app.api.pagination import After, Limit, check_id_cursor, metadata_filter, page
from app.api.parameters import METADATA, CheckedRoute
from app.api.thread_views import point_view, state_view, thread_view
from app.api.views import run_view
from app.core.json import encode
from app.runs.ports import RunFilter
from app.threads.spec import StateUpdate, ThreadCreate, ThreadFork, ThreadPatch

router = APIRouter(tags=["threads"], route_class=CheckedRoute)
ThreadId = Annotated[str, Path(max_length=64)]
CheckpointId = Annotated[str | None, Query(max_length=64, description="A checkpoint of the thread's history.")]
JSON = "application/json"


@router.post(
    "/threads",
    status_code=201,
    summary="Make a thread",
    openapi_extra=body_of(ThreadCreate, idempotent=True),
    responses=responses(201, "The thread.", "Thread"),
)
async def create_thread(request: Request) -> Response:
    principal = authenticate(request, "threads:write")
    body, raw = await read_json(request)
    key = key_of(request, principal.tenant, "POST /threads", raw)
    thread, replayed = await services_of(request).threads.create(principal, body, key)
    return stored(thread_view(thread), f"/threads/{thread.id}", created=True, replayed=replayed)


@router.get(
    "/threads",
    summary="List threads, newest first",
    openapi_extra={"parameters": [METADATA]},
    responses=responses(200, "A page.", "Thread", page=True),
)
async def list_threads(request: Request, limit: Limit = 20, after: After = None) -> Response:
    principal = authenticate(request, "runs:read")
    metadata = metadata_filter(request)
    check_id_cursor(after)
    found = await services_of(request).threads.page(principal, metadata, after=after, limit=limit + 1)
    return page(found, limit, lambda thread: thread.id, thread_view)


@router.get("/threads/{thread_id}", summary="Get a thread", responses=responses(200, "The thread.", "Thread"))
async def get_thread(request: Request, thread_id: ThreadId) -> Response:
    thread = await services_of(request).threads.get(authenticate(request, "runs:read"), thread_id)
    return Response(encode(thread_view(thread)), media_type=JSON)


@router.patch(
    "/threads/{thread_id}",
    summary="Set labels of a thread",
    openapi_extra=body_of(ThreadPatch),
    responses=responses(200, "The thread.", "Thread"),
)
async def patch_thread(request: Request, thread_id: ThreadId) -> Response:
    principal = authenticate(request, "threads:write")
    body, _ = await read_json(request)
    thread = await services_of(request).threads.label(principal, thread_id, body)
    return Response(encode(thread_view(thread)), media_type=JSON)


@router.delete("/threads/{thread_id}", status_code=204, summary="Delete a thread with its runs and its state")
async def delete_thread(request: Request, thread_id: ThreadId) -> Response:
    await services_of(request).threads.delete(authenticate(request, "threads:write"), thread_id)
    return Response(status_code=204)


@router.get(
    "/threads/{thread_id}/state",
    summary="The state of a thread",
    responses=responses(200, "The newest state, or that with a checkpoint.", "ThreadState"),
)
async def get_state(request: Request, thread_id: ThreadId, checkpoint_id: CheckpointId = None) -> Response:
    principal = authenticate(request, "runs:read")
    state = await services_of(request).threads.state(principal, thread_id, checkpoint_id)
    return Response(state_view(state), media_type=JSON)


@router.post(
    "/threads/{thread_id}/state",
    summary="Change the state of a thread",
    openapi_extra=body_of(StateUpdate),
    responses=responses(200, "The new state.", "ThreadState"),
)
async def update_state(request: Request, thread_id: ThreadId) -> Response:
    principal = authenticate(request, "threads:write")
    body, _ = await read_json(request)
    return Response(state_view(await services_of(request).threads.update(principal, thread_id, body)), media_type=JSON)


@router.get(
    "/threads/{thread_id}/history",
    summary="Checkpoints of a thread, newest first",
    responses=responses(200, "A page of checkpoints.", None, page=True),
)
async def list_history(request: Request, thread_id: ThreadId, limit: Limit = 20, after: After = None) -> Response:
    principal = authenticate(request, "runs:read")
    check_id_cursor(after)
    found = await services_of(request).threads.history(principal, thread_id, after=after, limit=limit + 1)
    return page(found, limit, lambda point: point.id, point_view)


@router.post(
    "/threads/{thread_id}/fork",
    status_code=201,
    summary="Begin a new thread from a checkpoint",
    openapi_extra=body_of(ThreadFork, idempotent=True),
    responses=responses(201, "The new thread.", "Thread"),
)
async def fork_thread(request: Request, thread_id: ThreadId) -> Response:
    principal = authenticate(request, "threads:write")
    body, raw = await read_json(request)
    key = key_of(request, principal.tenant, f"POST /threads/{thread_id}/fork", raw)
    thread, replayed = await services_of(request).threads.fork(principal, thread_id, body, key)
    return stored(thread_view(thread), f"/threads/{thread.id}", created=True, replayed=replayed)


@router.get(
    "/threads/{thread_id}/runs",
    summary="Runs of a thread, newest first",
    responses=responses(200, "A page of Runs.", "Run", page=True),
)
async def list_thread_runs(request: Request, thread_id: ThreadId, limit: Limit = 20, after: After = None) -> Response:
    principal = authenticate(request, "runs:read")
    check_id_cursor(after)
    services = services_of(request)
    thread = await services.threads.get(principal, thread_id)
    found = await services.runs.page(principal, RunFilter(thread_id=thread.id), after=after, limit=limit + 1)
    return page(found, limit, lambda run: run.id, run_view)
