"""The outer boundary of a request: streams that are cut on purpose, and faults of ours, end here."""

import structlog
from sse_starlette.sse import SendTimeoutError
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.context import request_id_of
from app.api.problems import problem
from app.api.sse import StreamAborted

log = structlog.get_logger("runwire.api")


class BoundaryMiddleware:
    """A cut stream becomes a connection closed without a finished response; any other exception a problem document.

    A fault after the response has begun can only close the connection, too. The log has the trace, the caller the id.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except (StreamAborted, SendTimeoutError, ClientDisconnect):
            return
        except Exception:
            log.exception("request_failed", request_id=request_id_of(scope), path=scope["path"])
            if not begun:
                detail = "The server failed; the request id finds it in the log."
                await problem(Request(scope), 500, "internal_error", detail)(scope, receive, send)
