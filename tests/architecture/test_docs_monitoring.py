"""The monitoring files and the guide's metrics, against a scrape of a real server that has done a bit of everything."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from tests.support.bodies import calls, run_body, says, scripted, tool_spec
from tests.support.scrape import Scrape, scrape_until
from tests.support.server import RunwireServer
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "docker" / "monitoring"
GUIDE = ROOT / "docs" / "operations.md"

OF_PROMETHEUS = {"instance", "job", "le"}
"""Labels that the scraper sets, and the buckets' bound."""

PRICED = {
    "priced": {
        "provider": "scripted",
        "script": [calls(("unanswered", {})), says("done")],
        "prices": {"input_per_mtok": 2.0, "output_per_mtok": 4.0},
    }
}

NAME = re.compile(r"\b(?:runwire|process|python)_[a-z_]+\b")


def rules() -> list[dict[str, Any]]:
    groups = cast("list[dict[str, Any]]", yaml.safe_load((MONITORING / "alerts.yml").read_text("utf-8"))["groups"])
    return [rule for group in groups for rule in cast("list[dict[str, Any]]", group["rules"])]


def dashboard() -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads((MONITORING / "dashboard.json").read_text("utf-8")))


def expressions() -> dict[str, str]:
    """Every expression of PromQL, by the alarm or panel that has it."""
    found = {str(rule["alert"]): str(rule["expr"]) for rule in rules()}
    for panel in cast("list[dict[str, Any]]", dashboard()["panels"]):
        for target in cast("list[dict[str, Any]]", panel["targets"]):
            found[f"{panel['title']} {target['refId']}"] = str(target["expr"])
    return found


def labels_in(expression: str) -> set[str]:
    """Labels that an expression selects or groups by."""
    selected = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression)
    grouped = re.findall(r"\bby \(([^)]*)\)", expression)
    return {*selected, *(name.strip() for names in grouped for name in names.split(","))}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunwireServer]:
    env = {"RUNWIRE_MODELS": json.dumps(PRICED), "RUNWIRE_MAX_CONCURRENT_RUNS": "1", "RUNWIRE_MAX_QUEUED_RUNS": "0"}
    with RunwireServer.open(tmp_path_factory.mktemp("server"), env=env) as running:
        yield running


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolServer]:
    with ToolServer.start(tmp_path_factory.mktemp("tools")) as running:
        yield running


@pytest.fixture
async def scraped(server: RunwireServer, tools: ToolServer) -> Scrape:
    """After a priced run whose write broke off, and a run that was refused because another one had the only place."""
    spec = tool_spec("unanswered", tools.url("/close-after"), effect="write")
    async with server.client() as client:
        answer = await client.post("/runs/wait", json={"agent": {"model": "priced", "tools": [spec]}, "input": "go"})
        assert answer.json()["status"] == "success", answer.text
        held = (await client.post("/runs", json=run_body(scripted(says("late", delay_ms=60_000))))).json()
        refused = await client.post("/runs", json=run_body(scripted(says("no place"))))
        assert refused.json()["code"] == "too_many_runs", refused.text
        await client.post(f"/runs/{held['id']}/cancel?wait=true")
        return await scrape_until(client, lambda seen: seen.sum("runwire_runs_total", status="cancelled") >= 1)


async def test_the_monitoring_files_name_metrics_and_labels_that_a_scrape_has(scraped: Scrape) -> None:
    labels: dict[str, set[str]] = {}
    for name, given, _ in scraped.samples:
        labels.setdefault(name, set()).update(given)
    checked = expressions()
    assert len(checked) > 20
    for place, expression in checked.items():
        names = set(NAME.findall(expression))
        assert names or expression.startswith("up{"), place
        assert names - labels.keys() == set(), place
        known = OF_PROMETHEUS.union(*(labels[name] for name in names))
        assert labels_in(expression) - known == set(), place
        assert expression.count("(") == expression.count(")"), place


async def test_the_alarm_for_unknown_outcomes_has_something_to_see(scraped: Scrape) -> None:
    assert scraped.sum("runwire_tool_unknown_outcomes_total", tool="unanswered") >= 1


async def test_the_dashboard_asks_for_every_metric_of_runs_models_and_tools(scraped: Scrape) -> None:
    asked = {name for text in expressions().values() for name in NAME.findall(text)}
    families = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name, _, _ in scraped.samples}
    unseen = {name for name in families if name.startswith("runwire_")} - {
        re.sub(r"_(bucket|sum|count)$", "", name) for name in asked
    }
    assert unseen == {"runwire_build_info", "runwire_http_request_duration_seconds"}


async def test_the_guide_lists_exactly_the_metrics_that_there_are(scraped: Scrape) -> None:
    section = GUIDE.read_text("utf-8").split("## Metrics", 1)[1].split("\n## ", 1)[0]
    listed = {name for row in re.findall(r"^\| (`runwire_.*)$", section, re.MULTILINE) for name in NAME.findall(row)}
    there = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name, _, _ in scraped.samples}
    assert listed == {name for name in there if name.startswith("runwire_")}


def test_the_guide_explains_every_alarm() -> None:
    section = GUIDE.read_text("utf-8").split("## Alarms", 1)[1].split("\n## ", 1)[0]
    assert re.findall(r"^\| `(\w+)`", section, re.MULTILINE) == [rule["alert"] for rule in rules()]


def test_rules_and_panels_have_the_shape_that_prometheus_and_grafana_read() -> None:
    for rule in rules():
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("page", "warn")
        assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= labels_in(rule["expr"]) | {
            "instance", "tool",
        }  # fmt: skip
    panels = cast("list[dict[str, Any]]", dashboard()["panels"])
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = cast("Mapping[str, int]", panel["gridPos"])
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    variables = {variable["name"] for variable in dashboard()["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard()))) - {"__rate_interval"}
    assert used == variables


def test_the_scrape_configuration_loads_the_alarms() -> None:
    config = cast("dict[str, Any]", yaml.safe_load((MONITORING / "prometheus.yml").read_text("utf-8")))
    assert config["rule_files"] == ["alerts.yml"]
    shown = re.search(r"```yaml\n(scrape_configs:.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert shown is not None
    assert yaml.safe_load(shown[1])["scrape_configs"] == config["scrape_configs"]
