"""Errors as RFC 9457 problem documents; the one table from error to HTTP status."""

from http import HTTPStatus

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from app.api.context import identify, request_id_of
from app.core.errors import (
    Conflict,
    FieldError,
    Forbidden,
    Gone,
    InvalidRequest,
    ModelError,
    NotFound,
    PayloadTooLarge,
    RequestTimeout,
    RunwireError,
    TooManyRuns,
    Unauthenticated,
    Unavailable,
    UnsupportedMediaType,
)
from app.core.json import encode

MEDIA_TYPE = "application/problem+json"

STATUS: dict[type[RunwireError], int] = {
    InvalidRequest: 422,
    RequestTimeout: 408,
    PayloadTooLarge: 413,
    UnsupportedMediaType: 415,
    Unauthenticated: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    Gone: 410,
    TooManyRuns: 429,
    ModelError: 502,
    Unavailable: 503,
}

STATUS_BY_CODE = {"invalid_cursor": 400}
"""What the contract names apart: a malformed `Last-Event-ID` (section 3)."""


def problem(
    request: Request,
    status: int,
    code: str,
    detail: str,
    *,
    errors: tuple[FieldError, ...] = (),
    headers: dict[str, str] | None = None,
) -> Response:
    body: dict[str, object] = {
        "type": f"urn:runwire:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": request.scope["path"],  # not request.url: an odd Host header makes that raise
        "code": code,
        "request_id": request_id_of(request.scope),
        "errors": [{"pointer": error.pointer, "detail": error.detail} for error in errors],
    }
    return Response(encode(body), status, headers, MEDIA_TYPE)


def status_of(error: RunwireError) -> int:
    by_code = STATUS_BY_CODE.get(error.code)
    if by_code is not None:
        return by_code
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)


async def on_runwire_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RunwireError)
    headers: dict[str, str] = {}
    if isinstance(error, TooManyRuns | Unavailable):
        headers["Retry-After"] = str(error.retry_after_s)
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    status = status_of(error)
    detail = error.message if status != 500 else "The server failed; the request id finds it in the log."
    return problem(request, status, error.code, detail, errors=error.errors, headers=headers)


async def on_bad_parameters(request: Request, error: Exception) -> Response:
    """Query and path parameters that do not fit (bodies are checked by our own reader)."""
    assert isinstance(error, RequestValidationError)
    try:
        identify(request)  # every route with parameters needs a key, and nothing is told to those without one
    except Unauthenticated as refusal:
        return await on_runwire_error(request, refusal)
    errors = tuple(
        FieldError("/" + "/".join(str(part) for part in item["loc"]), str(item["msg"])) for item in error.errors()
    )
    return problem(request, 422, "invalid_request", "A parameter does not fit; see `errors`.", errors=errors)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Starlette's own refusals: no such route, a method the route does not have."""
    assert isinstance(error, HTTPException)
    codes = {404: "route_not_found", 405: "method_not_allowed"}
    details = {
        404: f"There is nothing at {request.url.path}; see /docs for the routes.",
        405: f"{request.method} is not allowed here.",
    }
    code = codes.get(error.status_code, "http_error")
    detail = details.get(error.status_code, str(error.detail))
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_methods_of(request))
    return problem(request, error.status_code, code, detail, headers=headers)


def _methods_of(request: Request) -> list[str]:
    """Every method that the path has. Starlette names only those of the first route that matches (RFC 9110, 10.2.1)."""
    routes = request.app.router.routes
    return [
        method
        for method in ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes)
    ]


def install(app: FastAPI) -> None:
    app.add_exception_handler(RunwireError, on_runwire_error)
    app.add_exception_handler(RequestValidationError, on_bad_parameters)
    app.add_exception_handler(HTTPException, on_http_exception)
