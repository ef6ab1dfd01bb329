"""The documentation page: whole without any other server."""

import re

import httpx
import pytest

from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

FOREIGN = re.compile(r"""(?:https?:)?//[\w.-]+""")


async def test_the_page_and_its_start_name_no_foreign_origin(server: RunwireServer) -> None:
    async with server.client(None) as nobody:
        page, start = await nobody.get("/docs"), await nobody.get("/docs/start.js")
    assert (page.status_code, start.status_code) == (200, 200)
    assert page.headers["content-type"].startswith("text/html")
    assert FOREIGN.findall(page.text) == []
    assert FOREIGN.findall(start.text) == []
    assert "validatorUrl: null" in start.text


async def test_all_that_the_page_loads_is_there(client: httpx.AsyncClient) -> None:
    page = await client.get("/docs")
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    kinds = {".js": "text/javascript", "css": "text/css", "son": "application/json"}
    assert {"docs/swagger-ui-bundle.js", "docs/swagger-ui.css", "docs/start.js", "openapi.json"} <= set(loaded)
    for target in loaded:
        if target != "data:,":
            answer = await client.get(f"/{target}")
            assert answer.status_code == 200, target
            assert answer.headers["content-type"].startswith(kinds[target[-3:]])
            assert len(answer.content) > 50


async def test_a_browser_may_load_nothing_else_for_it(client: httpx.AsyncClient) -> None:
    """What the script itself might want to load is the browser's to refuse, and the page has no script within it."""
    page = await client.get("/docs")
    policy = dict(part.strip().split(" ", 1) for part in page.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert (policy["script-src"], policy["connect-src"]) == ("'self'", "'self'")
    assert FOREIGN.findall(page.headers["content-security-policy"]) == []
    assert re.findall(r"<script[^>]*>\s*[^<\s]", page.text) == []


async def test_nothing_but_its_own_files_is_served(client: httpx.AsyncClient) -> None:
    for path in ("/docs/redoc.standalone.js", "/docs/..%2f__init__.py", "/docs/", "/docs/oauth2-redirect", "/redoc"):
        assert (await client.get(path)).status_code == 404, path
