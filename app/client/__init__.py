"""The Python client of Runwire's HTTP API. Programs import it from the public module `runwire`; nothing of the server is in it."""

from app.client.client import Client
from app.client.errors import (
    ClientError,
    Conflict,
    ConnectionFailed,
    FieldProblem,
    Forbidden,
    Gone,
    InvalidRequest,
    NotFound,
    ProblemError,
    RateLimited,
    ServerError,
    StreamLost,
    Unauthorized,
    UnexpectedAnswer,
)
from app.client.interrupts import Interrupt, Response
from app.client.store import StoreItem
from app.client.stream import RunStream
from app.client.threads import Checkpoint, Thread, ThreadState
from app.client.values import Event, Page, Run, Step

__all__ = [
    "Checkpoint",
    "Client",
    "ClientError",
    "Conflict",
    "ConnectionFailed",
    "Event",
    "FieldProblem",
    "Forbidden",
    "Gone",
    "Interrupt",
    "InvalidRequest",
    "NotFound",
    "Page",
    "ProblemError",
    "RateLimited",
    "Response",
    "Run",
    "RunStream",
    "ServerError",
    "Step",
    "StoreItem",
    "StreamLost",
    "Thread",
    "ThreadState",
    "Unauthorized",
    "UnexpectedAnswer",
]
