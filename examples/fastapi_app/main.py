"""An application of your own with an agent inside: it asks Runwire, so that its callers need no key. See README.md."""

import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sse_starlette import EventSourceResponse, ServerSentEvent

from runwire import Client, ClientError, Event, ProblemError, RunStream, StreamLost

AGENT = os.environ.get("ASK_AGENT", "demo")
ANSWER_S = float(os.environ.get("ASK_TIMEOUT_S", "60"))
"""How long a caller of /ask waits at most."""

PING_S = 10
"""How often a silent stream gives a sign of life, so that no proxy takes it for dead."""

log = logging.getLogger("uvicorn.error")


# --- one client for the whole application -----------------------------------------------------------------------------


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncGenerator[dict[str, Client]]:
    # RUNWIRE_URL and RUNWIRE_API_KEY say where. Three attempts, not six: somebody waits for the answer.
    async with Client(max_attempts=3) as client:
        yield {"client": client}


def get_client(request: Request) -> Client:
    client: Client = request.state.client
    return client


Runwire = Annotated[Client, Depends(get_client)]
IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=255)]
"""Forwarded as it is. Where callers have accounts, put theirs before it: two people may choose the same key."""

app = FastAPI(title="An app with an agent", lifespan=lifespan)


# --- what it offers -------------------------------------------------------------------------------------------------


class Question(BaseModel):
    question: str = Field(min_length=1, max_length=10_000)
    thread_id: str | None = Field(default=None, description="Of an earlier answer: the conversation goes on")


class Answer(BaseModel):
    answer: str
    run_id: str
    thread_id: str | None


@app.post("/ask")
async def ask(asked: Question, client: Runwire, idempotency_key: IdempotencyKey = None) -> Answer:
    """Ask the agent and wait for its answer. After a 504, the same request with the same key gets the same run."""
    run = await client.runs.create(AGENT, asked.question, thread_id=asked.thread_id, idempotency_key=idempotency_key)
    try:
        run = await client.runs.wait_for(run.id, timeout_s=ANSWER_S)
    except TimeoutError:
        raise HTTPException(504, {"message": "The agent is still at it.", "run_id": run.id}) from None
    if run.text is None or not run.ok:
        code = run.error["code"] if run.error else None
        raise HTTPException(502, {"message": "The agent gave no answer.", "run_id": run.id, "code": code})
    return Answer(answer=run.text, run_id=run.id, thread_id=run.thread_id)


@app.post("/ask/stream")
async def ask_stream(asked: Question, client: Runwire, idempotency_key: IdempotencyKey = None) -> EventSourceResponse:
    """Ask the agent and relay its events as they come. The run goes on when the caller leaves."""
    stream = client.runs.stream(AGENT, asked.question, thread_id=asked.thread_id, idempotency_key=idempotency_key)
    first = await anext(stream)  # before our status is sent: a refusal is still a refusal to our caller
    return EventSourceResponse(relay(stream, first), ping=PING_S, sep="\n", headers={"Cache-Control": "no-store"})


async def relay(stream: RunStream, first: Event) -> AsyncGenerator[ServerSentEvent]:
    try:
        yield relayed(first)
        async for event in stream:
            yield relayed(event)
    except StreamLost as error:
        log.warning("run %s: lost after event %d", error.run_id, error.last_id)
        yield ServerSentEvent(event="lost", data="{}", sep="\n")  # no clean end without `end`, and no silent one
    finally:
        await stream.close()


def relayed(event: Event) -> ServerSentEvent:
    return ServerSentEvent(event.raw, event=event.event, id=str(event.id), sep="\n")


# --- what goes wrong ------------------------------------------------------------------------------------------------

PASSED_ON = {409, 429, 503}
"""Refusals that our caller can act on: the conversation is busy, too much at once, not now."""

CALLERS = {"thread_not_found", "idempotency_mismatch"}
"""Codes of what our caller said; every other refusal is our own mistake, and no business of the caller's."""


@app.exception_handler(ProblemError)
async def refused(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ProblemError)
    if error.status in PASSED_ON or error.code in CALLERS:
        wait = error.retry_after_s
        headers = {} if wait is None else {"Retry-After": f"{wait:.0f}"}
        return JSONResponse({"detail": {"message": error.title, "code": error.code}}, error.status, headers)
    log.error("Runwire refused: %s, request %s", error, error.request_id)
    return JSONResponse({"detail": {"message": "The agent cannot be asked."}}, 502)


@app.exception_handler(ClientError)
async def unreachable(_request: Request, error: Exception) -> JSONResponse:
    log.error("Runwire: %s", error)
    return JSONResponse({"detail": {"message": "The agent cannot be reached."}}, 502)
