"""The web page: its module follows a run through a network that cuts, its page shows it, and a browser may let it."""

import json
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from tests.client.network import SILENCE, answer, canned, event, problem, proxy_to
from tests.client.network import stream as said
from tests.examples.conftest import PAGE
from tests.examples.processes import EXAMPLES, node, run, serving
from tests.support.bodies import calls, run_body, says, scripted
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

FOLDER = EXAMPLES / "browser"
HERE = Path(__file__).parent

CALCULATES = scripted(calls(("calculator", {"expression": "2+3"})), says("It is fünf, 五 👋.", chunk_size=2))
WAITS = scripted(calls(("calculator", {"expression": "2+3"})), says("late", delay_ms=600_000))


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """The page's files where Node takes `.js` for modules, as a browser does."""
    folder = tmp_path / "browser"
    shutil.copytree(FOLDER, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


async def follow(modules: Path, url: str, **options: object) -> list[dict[str, Any]]:
    """What the module told, and last how it ended."""
    out = await run(
        node(), str(HERE / "follow.mjs"), str(modules), json.dumps({"url": url, **options}, ensure_ascii=False), env={}
    )
    return [cast("dict[str, Any]", json.loads(line)) for line in out.splitlines()]


def told(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if "event" in line]


async def journal(server: RunwireServer, run_id: str) -> list[dict[str, Any]]:
    async with server.client(None) as client:
        page = (await client.get(f"/runs/{run_id}/events", params={"limit": 100})).json()
    assert page["has_more"] is False
    return cast("list[dict[str, Any]]", page["data"])


async def runs_with(server: RunwireServer, mark: str) -> list[str]:
    async with server.client(None) as client:
        return [run["id"] for run in (await client.get("/runs", params={"metadata.mark": mark})).json()["data"]]


async def test_every_event_comes_once_though_the_network_cuts_after_each(demo: RunwireServer, modules: Path) -> None:
    body = run_body(CALCULATES, "calculator", metadata={"mark": "each"})
    async with proxy_to(demo.url) as proxy:
        proxy.cut_each_event = True
        *lines, end = await follow(modules, proxy.url, body=body)
    (run_id,) = await runs_with(demo, "each")
    events = await journal(demo, run_id)
    assert len(events) > 10
    assert told(lines) == events
    assert end == {"done": {"runId": run_id, "lastId": len(events), "status": "success"}}
    # each event but the last, whose connection was cut too but had nothing left to say
    assert [line for line in lines if "lost" in line] == [{"lost": 1}] * (len(events) - 1)
    posted, *resumed = proxy.requests
    assert posted.startswith(b"POST /runs/stream ")
    assert [re.findall(rb"(?i)last-event-id: (\d+)", request) for request in resumed] == [
        [str(number).encode()] for number in range(1, len(events))
    ]


@pytest.mark.parametrize("after", [1, 200, 600, 700, 750, 801, 1000, 1302])
async def test_a_cut_anywhere_loses_and_repeats_nothing(demo: RunwireServer, modules: Path, after: int) -> None:
    body = run_body(CALCULATES, "calculator", metadata={"mark": f"at-{after}"})
    async with proxy_to(demo.url) as proxy:
        proxy.cut_after, proxy.cut_once = after, True
        *lines, end = await follow(modules, proxy.url, body=body)
    (run_id,) = await runs_with(demo, f"at-{after}")  # before the headers came, too: the same POST under the same key
    assert end["done"]["runId"] == run_id
    assert told(lines) == await journal(demo, run_id)
    assert [line for line in lines if "lost" in line] == [{"lost": 1}]


async def test_text_of_many_bytes_comes_whole_in_whatever_pieces(demo: RunwireServer, modules: Path) -> None:
    text = "ß€😀" * 12_000
    lines = await follow(modules, demo.url, body=run_body(scripted(says(text, chunk_size=100_000))))
    (finish,) = [line for line in lines if line.get("event") == "finish"]
    assert finish["data"]["return_values"] == {"output": text}


async def test_chosen_types_stay_chosen_after_a_cut(demo: RunwireServer, modules: Path) -> None:
    body = run_body(CALCULATES, "calculator", stream=["steps"])
    async with proxy_to(demo.url) as proxy:
        proxy.cut_each_event = True
        *lines, end = await follow(modules, proxy.url, body=body)
    assert [line["event"] for line in told(lines)] == ["run", "step", "finish", "end"]
    assert end["done"]["status"] == "success"


async def test_a_run_there_is_goes_on_after_the_event_one_has(demo: RunwireServer, modules: Path) -> None:
    async with demo.client(None) as client:
        run_id = (await client.post("/runs/wait", json=run_body(CALCULATES, "calculator"))).json()["id"]
    events = await journal(demo, run_id)
    *lines, end = await follow(modules, demo.url, runId=run_id, after=4)
    assert lines == events[4:]
    assert end["done"]["status"] == "success"
    nothing = await follow(modules, demo.url, runId=run_id, after=len(events))
    assert nothing == [{"done": {"runId": run_id, "lastId": len(events), "status": None}}]


async def test_leaving_lets_the_run_go_on_and_cancel_stops_it(demo: RunwireServer, modules: Path) -> None:
    body = run_body(WAITS, "calculator", metadata={"mark": "left"})
    *_, left = await follow(modules, demo.url, body=body, leaveAt="step")
    assert (left["error"], left["message"]) == ("Error", "The reader left.")
    (run_id,) = await runs_with(demo, "left")
    *lines, done, cancelled = await follow(modules, demo.url, runId=run_id, cancelAt="step")
    assert lines[-1]["event"] == "end"
    assert done["done"]["status"] == "cancelled"
    assert cancelled == {"cancelled": run_id}


async def test_a_reader_that_fails_hears_of_its_own_error(demo: RunwireServer, modules: Path) -> None:
    *lines, end = await follow(modules, demo.url, body=run_body(CALCULATES, "calculator"), throwAt="action")
    assert lines[-1]["event"] == "action"
    assert end["message"] == "The reader failed."


async def test_a_refusal_is_told_with_its_code_and_not_repeated(demo: RunwireServer, modules: Path) -> None:
    async with proxy_to(demo.url) as proxy:
        (refused,) = await follow(modules, proxy.url, body={"agent": "nobody", "input": "hi"})
        assert len(proxy.requests) == 1
    assert (refused["error"], refused["status"], refused["code"]) == ("Refused", 422, "unknown_agent")


RUN = event(1, "run", run_id="run-1", status="running")
END = event(2, "end", run_id="run-1", status="success")


async def test_it_repeats_under_one_key_what_another_attempt_may_change(modules: Path) -> None:
    busy = problem(503, "unavailable", headers={"retry_after": "0"})
    async with canned(busy, answer(502, b"<html>", content_type="text/html"), said(RUN, END)) as server:
        *lines, end = await follow(modules, server.url, key="key-of-a-person", body={"agent": "a", "input": "b"})
    assert lines[:2] == [{"lost": 1}, {"lost": 2}]
    assert [line["id"] for line in lines[2:]] == [1, 2]
    assert end["done"] == {"runId": "run-1", "lastId": 2, "status": "success"}
    assert len(set(server.keys())) == 1
    assert len(server.keys()[0]) == 32
    assert {server.header(number, "authorization") for number in range(3)} == {"Bearer key-of-a-person"}


async def test_it_gives_up_after_six_attempts_without_an_event(modules: Path) -> None:
    async with canned(said(RUN, whole=False)) as server:
        *lines, end = await follow(modules, server.url, body={"agent": "a", "input": "b"})
    assert [line["lost"] for line in lines if "lost" in line] == [1, 2, 3, 4, 5]
    assert len(server.requests) == 6
    assert (end["error"], end["runId"], end["lastId"]) == ("Lost", "run-1", 1)


async def test_a_connection_that_died_silently_is_given_up(modules: Path) -> None:
    async with canned(SILENCE, said(RUN, END)) as server:
        first, *_, end = await follow(modules, server.url, body={"agent": "a", "input": "b"}, silenceMs=500)
    assert first == {"lost": 1}
    assert end["done"]["status"] == "success"
    assert len(set(server.keys())) == 1


async def test_an_event_that_comes_again_is_told_once(modules: Path) -> None:
    async with canned(said(RUN, whole=False), said(RUN, END)) as server:
        *lines, end = await follow(modules, server.url, body={"agent": "a", "input": "b"})
    assert [line.get("id") for line in lines] == [1, None, 2]
    assert end["done"]["status"] == "success"


@pytest.mark.parametrize("second", [event(3, "end", run_id="run-1", status="success"), b""])
async def test_a_gap_and_a_clean_end_too_early_are_cuts(modules: Path, second: bytes) -> None:
    async with canned(said(RUN, second), said(END)) as server:
        *lines, end = await follow(modules, server.url, body={"agent": "a", "input": "b"})
    assert [line["id"] for line in told(lines)] == [1, 2]
    assert end["done"]["status"] == "success"
    assert server.header(1, "last-event-id") == "1"


async def test_a_run_that_waits_for_somebody_ends_the_stream(modules: Path) -> None:
    parked = event(2, "run", run_id="run-1", status="interrupted")
    async with canned(said(RUN, parked)) as server:
        *_, end = await follow(modules, server.url, body={"agent": "a", "input": "b"})
        assert len(server.requests) == 1
    assert end["done"] == {"runId": "run-1", "lastId": 2, "status": "interrupted"}


@pytest.mark.parametrize(
    "odd", [answer(200, b"<html>", content_type="text/html"), answer(302, None, location="http://127.0.0.1:1/runs")]
)
async def test_what_is_no_runwire_server_gets_no_stream(modules: Path, odd: bytes) -> None:
    async with canned(odd) as server:
        *_, end = await follow(modules, server.url, key="key-of-a-person", body={"agent": "a", "input": "b"})
    assert end["error"] in ("TypeError", "Lost")
    assert "key-of-a-person" not in json.dumps(end)


# --- the page -------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """The ids of index.html with their values, and what a Content-Security-Policy would refuse."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self.inline: list[str] = []
        self.linked: list[str] = []
        self.policy = ""
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.inline += [name for name in given if name.startswith("on") or name == "style"]
        if tag == "style" or (tag == "script" and "src" not in given):
            self.inline.append(tag)
        self.linked += [given[name] for name in ("src", "href") if name in given]
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]
        if "id" in given:
            self._text = given["id"]
            self.fields[given["id"]] = given.get("value", "")

    def handle_data(self, data: str) -> None:
        if self._text in ("input",) and data.strip():
            self.fields[self._text] = data.strip()


def page() -> Page:
    parsed = Page()
    parsed.feed((FOLDER / "index.html").read_text(encoding="utf-8"))
    return parsed


async def shown(modules: Path, scenario: str = "", **fields: str) -> dict[str, Any]:
    """What the page shows in the end."""
    values = json.dumps({**page().fields, **fields})
    out = await run(node(), str(HERE / "page.mjs"), str(modules), values, scenario, env={})
    return cast("dict[str, Any]", json.loads(out))


async def test_the_page_shows_a_run_through_lost_connections(demo: RunwireServer, modules: Path) -> None:
    async with proxy_to(demo.url) as proxy:
        proxy.cut_after, proxy.cut_once = 1200, True
        seen = await shown(modules, url=f"{proxy.url}/")
    assert seen["steps"] == [
        'calculator({"expression":"2+3"}) → success: 5',
        'text_length({"text":"hello"}) → success: 5',
    ]
    assert seen["statuses"][0] == "Posting …"
    assert any(status.startswith("The connection was lost") for status in seen["statuses"])
    assert seen["statuses"][-1] == "success, finish"
    assert "5" in seen["answers"][-1]
    assert len(seen["answers"]) > 5  # word by word
    assert seen["sendable"]
    assert not seen["cancellable"]


async def test_the_page_cancels(demo: RunwireServer, modules: Path) -> None:
    async with demo.client(None) as client:
        spec = {"name": "waits", "model": WAITS, "tools": ["calculator"]}
        assert (await client.post("/agents", json=spec)).status_code == 201
    seen = await shown(modules, "cancel", url=demo.url, agent="waits")
    assert seen["statuses"][-1] == "cancelled, cancelled"


async def test_the_page_says_why_a_run_was_refused(demo: RunwireServer, modules: Path) -> None:
    seen = await shown(modules, url=demo.url, agent="nobody")
    assert seen["statuses"][-1].endswith("(unknown_agent)")
    assert seen["sendable"]


def test_the_page_keeps_to_its_policy_and_inserts_text_only() -> None:
    parsed = page()
    assert parsed.inline == []
    assert "default-src 'none'" in parsed.policy
    assert "unsafe" not in parsed.policy
    local = [link for link in parsed.linked if link != "data:,"]
    assert sorted(local) == ["page.css", "page.js"]
    script = (FOLDER / "page.js").read_text(encoding="utf-8")
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "localStorage",
        "sessionStorage",
    ):
        assert way not in script
    assert set(re.findall(r'part\("(\w+)"\)', script)) == set(parsed.fields)


async def test_a_browser_gets_the_page_and_may_ask_the_server_from_there(demo: RunwireServer, tmp_path: Path) -> None:
    command = (sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(FOLDER))
    with serving(*command, says=r"port (\d+)", env={}, log=tmp_path / "page.log") as port:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as browser:
            index = await browser.get("/")
            assert "page.js" in index.text
            for name in ("page.js", "runwire.js"):  # a browser takes no module of another type
                assert (await browser.get(f"/{name}")).headers["content-type"].split("/")[1].startswith("javascript")
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"RUNWIRE_CORS_ORIGINS={PAGE} " in readme
    sent = "accept,authorization,content-type,idempotency-key,last-event-id"
    async with demo.client(None) as client:
        client.headers["Origin"] = PAGE
        for method, path in (("POST", "/runs/stream"), ("GET", "/runs/x/stream"), ("POST", "/runs/x/cancel")):
            asked = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": sent}
            allowed = await client.options(path, headers=asked)
            assert allowed.status_code == 200
            assert allowed.headers["access-control-allow-origin"] == PAGE
            assert method in allowed.headers["access-control-allow-methods"]
            headers = {name.strip().lower() for name in allowed.headers["access-control-allow-headers"].split(",")}
            assert set(sent.split(",")) <= headers
        posted = await client.post("/runs/stream", json=run_body(scripted(says("hello"))))
        assert posted.headers["access-control-allow-origin"] == PAGE
        exposed = {name.strip().lower() for name in posted.headers["access-control-expose-headers"].split(",")}
        assert {"content-location", "retry-after"} <= exposed
        refused = await client.post("/runs/stream", json={"agent": "nobody", "input": "hi"})
        assert refused.headers["access-control-allow-origin"] == PAGE
        client.headers["Origin"] = "http://localhost:8000"
        assert (await client.post("/runs/stream", json={"agent": "demo", "input": "hi"})).status_code == 403
