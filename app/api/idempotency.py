"""`Idempotency-Key` on requests that create something, and what a replay's answer says."""

from starlette.requests import Request
from starlette.responses import Response

from app.core.errors import FieldError, InvalidRequest
from app.core.idempotency import IdempotencyKey
from app.core.json import encode


def key_of(request: Request, tenant: str, route: str, body: bytes) -> IdempotencyKey | None:
    """The request's key in its scope; `None` when it sends none. Raises `InvalidRequest`."""
    key = plain_key(request)
    return None if key is None else IdempotencyKey.of(tenant, route, key, body)


def plain_key(request: Request) -> str | None:
    """The header itself: 1 to 255 printable characters. Raises `InvalidRequest`."""
    key = request.headers.get("idempotency-key")
    if key is not None and (not 1 <= len(key) <= 255 or not key.isprintable()):
        raise InvalidRequest(
            "Idempotency-Key must be 1 to 255 printable characters.",
            errors=(FieldError("/header/Idempotency-Key", "1 to 255 printable characters"),),
        )
    return key


def replay_headers(replayed: bool) -> dict[str, str]:
    return {"Idempotency-Replayed": "true"} if replayed else {}


def stored(resource: object, location: str, *, created: bool, replayed: bool = False) -> Response:
    """The answer to a POST or PUT that stored a resource: 201 with its place when it is new, else 200."""
    headers = {"Location": location, **replay_headers(replayed)} if created else {}
    return Response(encode(resource), 201 if created else 200, headers, "application/json")
