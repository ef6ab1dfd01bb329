"""Query parameters: the names that a route takes, known from its start; any other is refused, as a filter nobody applies would be a lie."""

from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import parse_qsl

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from app.api.context import identify
from app.core.errors import FieldError, InvalidRequest

OPEN = frozenset((
    "/livez", "/readyz", "/info",
    "/tool-calls/{tool_call_id}/result", "/tool-calls/{tool_call_id}/progress",
))  # fmt: skip
"""Routes that take no key of the server's, so that none is asked for before a parameter is refused."""

MOST_TOLD = 20
"""Unknown names that are told of one request."""

MOST_SHOWN = 80
"""Characters of an unknown name that are told."""

METADATA: Mapping[str, object] = {
    "name": "metadata",
    "in": "query",
    "style": "form",
    "explode": True,
    "description": "`metadata.<key>=<value>`: only what has these labels; 16 of them at most.",
    "schema": {
        "type": "object",
        "propertyNames": {"pattern": r"^metadata\.[A-Za-z0-9_-]{1,64}$"},
        "additionalProperties": {"type": "string"},
    },
}
"""The filters of `app.api.pagination.metadata_filter`, for a route's `openapi_extra`."""


class QueryNames:
    """The query parameters of one route."""

    def __init__(self, names: frozenset[str], prefixes: tuple[str, ...], *, is_open: bool) -> None:
        """`prefixes`: of names that the caller makes (`metadata.`). `is_open`: the route takes no key."""
        self._names = names
        self._prefixes = prefixes
        self._open = is_open

    @classmethod
    def of(cls, route: APIRoute) -> "QueryNames":
        """Those of its function, and those that it reads itself and its `openapi_extra` documents."""
        names = {field.alias for field in route.dependant.query_params}
        prefixes: list[str] = []
        for item in cast("list[dict[str, Any]]", (route.openapi_extra or {}).get("parameters", ())):
            if item["in"] != "query":
                continue
            if item["schema"].get("type") == "object":
                prefixes.append(f"{item['name']}.")
            else:
                names.add(item["name"])
        return cls(frozenset(names), tuple(prefixes), is_open=route.path in OPEN)

    def check(self, scope: Scope) -> None:
        """Raises `InvalidRequest` that names what is unknown and what there is; `Unauthenticated` to those without a key."""
        given = dict.fromkeys(name for name, _ in parse_qsl(scope["query_string"].decode("latin-1"), True))
        unknown = [name for name in given if name not in self._names and not name.startswith(self._prefixes)]
        if not unknown:
            return
        if not self._open:
            identify(Request(scope))
        known = sorted((*self._names, *(f"{prefix}<key>" for prefix in self._prefixes)))
        told = f"it takes {', '.join(known)}" if known else "it takes none"
        raise InvalidRequest(
            f"This address has no such parameter; {told}.",
            errors=tuple(
                FieldError(f"/query/{_escaped(name)}", _hint(name, self._names)) for name in unknown[:MOST_TOLD]
            ),
        )


def _escaped(name: str) -> str:
    return name[:MOST_SHOWN].replace("~", "~0").replace("/", "~1")


def _hint(name: str, known: frozenset[str]) -> str:
    from difflib import get_close_matches

    meant = get_close_matches(name[:MOST_SHOWN], sorted(known), n=1)
    return f"unknown parameter; did you mean {meant[0]}?" if meant else "unknown parameter"


class CheckedRoute(APIRoute):
    """A route that refuses query parameters which it does not have. Costs a request without any one look."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.query = QueryNames.of(self)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:  # pyright: ignore[reportImplicitOverride]
        if scope["query_string"] and scope["method"] in self.methods:
            self.query.check(scope)
        await super().handle(scope, receive, send)
