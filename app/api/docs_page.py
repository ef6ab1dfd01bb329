"""The documentation page: Swagger UI over this server's own document, every byte of it from this server.

FastAPI's own page loads its script from elsewhere: nothing to see offline, and foreign code in an operator's browser.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

ASSETS = ("swagger-ui-bundle.js", "swagger-ui.css")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the browser may load for the page (Content-Security-Policy): nothing of another origin, and no script in a page."""

HEADERS = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}

_BEGIN = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Runwire</title><link rel="icon" href="data:,">'
)
PAGE = f"""{_BEGIN}<link rel="stylesheet" href="docs/swagger-ui.css"></head>
<body><div id="ui"></div><noscript><a href="openapi.json">openapi.json</a></noscript>
<script src="docs/swagger-ui-bundle.js"></script><script src="docs/start.js"></script></body></html>
"""
PLAIN_PAGE = f"""{_BEGIN}</head><body><h1>Runwire</h1>
<p>The routes are in <a href="openapi.json">openapi.json</a>.</p></body></html>
"""
"""Where the assets are not installed."""

START = """SwaggerUIBundle({
  url: new URL("openapi.json", document.baseURI).href, dom_id: "#ui", deepLinking: true, validatorUrl: null,
});
"""
"""`validatorUrl`: without it Swagger UI sends the document's address to a server of others."""


@cache
def _folder() -> Path | None:
    """Where the assets are: of a package that is nothing but them here, and so is not imported."""
    found = find_spec("fastapi_offline")
    return None if found is None or found.origin is None else Path(found.origin).parent / "static"


async def _page(_: Request) -> Response:
    return Response(PLAIN_PAGE if _folder() is None else PAGE, headers=HEADERS, media_type="text/html")


async def _start(_: Request) -> Response:
    return Response(START, headers=HEADERS, media_type="text/javascript")


async def _asset(request: Request) -> Response:
    folder = _folder()
    if folder is None:
        return Response(status_code=404)
    name = request.scope["path"].rpartition("/")[2]
    return FileResponse(folder / name, headers={**HEADERS, "Cache-Control": "max-age=3600"})


def routes() -> list[Route]:
    """`/docs` and what it loads."""
    assets = [Route(f"/docs/{name}", _asset, methods=["GET"], include_in_schema=False) for name in ASSETS]
    return [
        Route("/docs", _page, methods=["GET"], include_in_schema=False),
        Route("/docs/start.js", _start, methods=["GET"], include_in_schema=False),
        *assets,
    ]
