"""The client's errors: what went wrong between a program and a Runwire server.

ClientError                 base of all
├── ProblemError            the server (or a proxy before it) refused; the problem document's fields
│   ├── Unauthorized        401
│   ├── Forbidden           403
│   ├── NotFound            404: unknown, or another tenant's
│   ├── Conflict            409
│   ├── Gone                410: no longer kept
│   ├── InvalidRequest      400, 413, 415, 422
│   ├── RateLimited         429
│   └── ServerError         5xx
├── ConnectionFailed        no answer: the server is down, unreachable or too slow, after all attempts
├── StreamLost              a stream broke off and could not be taken up again; the run is not affected
└── UnexpectedAnswer        an answer, but not one of a Runwire server
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol, cast

import orjson

from app.client.retries import retry_after_s

MAX_TEXT = 2000
"""Longest text of a server that an error repeats, in characters."""

MAX_ERRORS = 100
"""Most wrong places that an error lists."""


def clean(text: str, limit: int = MAX_TEXT) -> str:
    """Text of a server made fit for logs and terminals: at most `limit` characters, without control characters."""
    return "".join(c for c in text[: 2 * limit] if c.isprintable())[:limit]


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One wrong place in a request: a JSON pointer (RFC 6901) and what to do about it."""

    pointer: str
    detail: str


class ClientError(Exception):
    """Base of the client's errors. No message holds the key."""


class ProblemError(ClientError):
    """A refusal (RFC 9457)."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        *,
        code: str | None = None,
        errors: tuple[FieldProblem, ...] = (),
        request_id: str | None = None,
        retry_after_s: float | None = None,
        instance: str | None = None,
    ) -> None:
        super().__init__(f"{detail} ({code})" if code else detail)
        self.status = status
        """The HTTP status."""
        self.title = title
        self.detail = detail
        """For people; may change."""
        self.code = code
        """Stable and machine-readable (`run_not_found`, …); `None` where a proxy answered."""
        self.errors = errors
        self.request_id = request_id
        """Finds the request in the server's log."""
        self.retry_after_s = retry_after_s
        """Seconds after which the server wants to be asked again."""
        self.instance = instance
        """The path that was asked."""


class Unauthorized(ProblemError):
    """401."""


class Forbidden(ProblemError):
    """403."""


class NotFound(ProblemError):
    """404."""


class Conflict(ProblemError):
    """409."""


class Gone(ProblemError):
    """410."""


class InvalidRequest(ProblemError):
    """400, 413, 415 or 422."""


class RateLimited(ProblemError):
    """429."""


class ServerError(ProblemError):
    """5xx."""


class ConnectionFailed(ClientError):
    """The server did not answer, after all attempts."""


class StreamLost(ClientError):
    """A stream broke off. The run goes on; `client.runs.follow(run_id, after=last_id)` takes it up."""

    def __init__(self, message: str, *, run_id: str, last_id: int) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.last_id = last_id


class UnexpectedAnswer(ClientError):
    """Something answered that is no Runwire server, or one of another kind. `status`: its HTTP status."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


KINDS: dict[int, type[ProblemError]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: InvalidRequest,
    415: InvalidRequest,
    422: InvalidRequest,
    429: RateLimited,
}

PLAIN = frozenset((401, 403, 413, 429))
"""Statuses that mean the same whoever says them, beside 5xx: proxies do, without a problem document."""


def refusal(status: int, headers: Mapping[str, str], body: bytes, *, secret: str | None = None) -> ClientError:
    """The error for an answer that is not a success. `secret` is taken out of what the server says."""

    def told(value: object, limit: int = MAX_TEXT) -> str:
        text = value if isinstance(value, str) else ""
        return clean(text.replace(secret, "***") if secret else text, limit)

    wait = retry_after_s(headers.get("retry-after"))
    kind = ServerError if status >= 500 else KINDS.get(status, ProblemError)
    document = _document(body)
    if document is not None:
        return kind(
            status,
            told(document.get("title")) or _phrase(status),
            told(document["detail"]),
            code=told(document.get("code"), 100) or None,
            errors=_errors(document.get("errors"), told),
            request_id=told(document.get("request_id"), 200) or told(headers.get("x-request-id"), 200) or None,
            retry_after_s=wait,
            instance=told(document.get("instance")) or None,
        )
    what = f"{status} {_phrase(status)}".strip()
    if status >= 500 or status in PLAIN:
        detail = f"The server, or a proxy before it, answered {what}."
        request_id = told(headers.get("x-request-id"), 200) or None
        return kind(status, _phrase(status), detail, request_id=request_id, retry_after_s=wait)
    if 300 <= status < 400:
        return UnexpectedAnswer(
            f"The server answered {what}: redirects are not followed; check the URL.", status=status
        )
    return UnexpectedAnswer(
        f"The server answered {what}, and not as a Runwire server does; check the URL.", status=status
    )


class _Told(Protocol):
    def __call__(self, value: object, limit: int = MAX_TEXT) -> str: ...


def _document(body: bytes) -> dict[str, object] | None:
    try:
        value: object = orjson.loads(body)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    document = cast("dict[str, object]", value)
    return document if isinstance(document.get("detail"), str) and "code" in document else None


def _errors(value: object, told: _Told) -> tuple[FieldProblem, ...]:
    if not isinstance(value, list):
        return ()
    items = cast("list[object]", value)[:MAX_ERRORS]
    places = [cast("dict[str, object]", item) for item in items if isinstance(item, dict)]
    return tuple(FieldProblem(told(place.get("pointer")), told(place.get("detail"))) for place in places)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
