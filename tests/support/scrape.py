"""What `/metrics` says, read as Prometheus reads it."""

import asyncio
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import httpx
from prometheus_client import Metric
from prometheus_client.openmetrics import parser as open_parser
from prometheus_client.parser import text_string_to_metric_families as plain_families

from tests.support.server import TIMEOUT_S

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@dataclass(frozen=True, slots=True)
class Scrape:
    text: str
    samples: tuple[tuple[str, dict[str, str], float], ...]
    """(name, labels, value)."""

    def sum(self, name: str, **labels: str) -> float:
        """All samples of a name that have these labels, added up; 0 when there is none."""
        return sum(value for has, given, value in self.samples if has == name and labels.items() <= given.items())

    def values(self, label: str) -> set[str]:
        return {given[label] for _, given, _ in self.samples if label in given}


def read(text: str, families: Iterable[Metric]) -> Scrape:
    return Scrape(text, tuple((item.name, item.labels, item.value) for family in families for item in family.samples))


async def scrape(client: httpx.AsyncClient) -> Scrape:
    answer = await client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return read(answer.text, plain_families(answer.text))


async def scrape_open(client: httpx.AsyncClient) -> Scrape:
    answer = await client.get("/metrics", headers={"Accept": f"{OPENMETRICS};q=0.9,text/plain;q=0.1"})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith(OPENMETRICS)
    assert answer.text.endswith("# EOF\n")
    families = open_parser.text_fd_to_metric_families(io.StringIO(answer.text))  # pyright: ignore[reportUnknownMemberType]
    return read(answer.text, families)


async def scrape_until(client: httpx.AsyncClient, seen: Callable[[Scrape], bool]) -> Scrape:
    """Scrape again and again until it shows what is waited for."""
    async with asyncio.timeout(TIMEOUT_S):
        while not seen(found := await scrape(client)):
            pass
    return found
