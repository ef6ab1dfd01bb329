"""The refund service: approved, edited, rejected, its answer lost, the server killed; each refund is in the ledger once."""

import asyncio
import json
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from app.tools.signing import new_secret
from tests.examples.processes import EXAMPLES, blocks, shell, uvicorn
from tests.support.bodies import calls, run_body, says, scripted
from tests.support.server import TIMEOUT_S, RunwireServer
from tests.support.streams import check_whole, read_events

pytestmark = pytest.mark.anyio

FOLDER = EXAMPLES / "refunds"
BIG: dict[str, object] = {"order_id": "A-17", "amount": 120}


@dataclass(slots=True)
class Service:
    folder: Path
    secret: str
    port: int = 0

    @contextmanager
    def started(self, **env: str) -> Generator["Service"]:
        told = {"TOOL_SECRET": self.secret, "LEDGER": str(self.folder / "refunds.jsonl"), **env}
        with uvicorn(FOLDER, told, self.folder / "refunds.log") as self.port:
            yield self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def paid(self) -> list[tuple[str, float]]:
        """Every refund that was made."""
        entries = [json.loads(line) for line in (self.folder / "refunds.jsonl").read_bytes().splitlines()]
        return [(entry["order_id"], entry["amount"]) for entry in entries]

    async def until_paid(self) -> None:
        while True:
            if self.paid():
                return
            await asyncio.sleep(0.01)  # a file tells nobody that it has grown

    def tool(self, **more: object) -> dict[str, object]:
        parameters = {
            "type": "object",
            "required": ["order_id", "amount"],
            "properties": {"order_id": {"type": "string"}, "amount": {"type": "number", "exclusiveMinimum": 0}},
        }
        return {
            "name": "refund",
            "description": "Pay some of an order back.",
            "idempotent": True,
            "parameters": parameters,
            "requires_approval": {"when": {"properties": {"amount": {"exclusiveMinimum": 100}}}},
            "http": {"url": f"{self.url}/refund"},
            "status_url": f"{self.url}/refund/status",
            "signing_secret": self.secret,
            **more,
        }


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path, new_secret())


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[RunwireServer]:
    with RunwireServer.open(tmp_path) as running:
        yield running


async def asked(client: httpx.AsyncClient, tool: Mapping[str, object]) -> tuple[str, str]:
    """A run that waits for a person before the big refund, and what it asks."""
    body = run_body(scripted(calls(("refund", BIG)), says("done")), tool)
    run = (await client.post("/runs/wait", json=body)).json()
    assert run["status"] == "interrupted", run
    return run["id"], run["interrupts"][0]["id"]


async def decided(client: httpx.AsyncClient, run_id: str, interrupt: str, **answer: object) -> None:
    taken = await client.post(f"/runs/{run_id}/resume", json={"responses": [{"interrupt_id": interrupt, **answer}]})
    assert taken.status_code == 202, taken.text


async def ended(client: httpx.AsyncClient, run_id: str) -> dict[str, Any]:
    """The only step of a run that has come to its end."""
    run = (await client.get(f"/runs/{run_id}/wait", params={"timeout_s": 15})).json()
    assert run["status"] == "success", run
    check_whole(read_events((await client.get(f"/runs/{run_id}/stream")).content))
    return cast("dict[str, Any]", (await client.get(f"/runs/{run_id}/steps/1")).json())


async def test_the_guide_leads_to_an_approved_refund(demo: RunwireServer, service: Service) -> None:
    _start, *typed = blocks(FOLDER / "README.md")
    with service.started():
        env = {"RUNWIRE_URL": demo.url, "TOOLS_URL": service.url, "TOOL_SECRET": service.secret}
        told = await shell("\necho\n".join(typed), env)
    status, *documents = [line for line in told.splitlines() if line]
    waiting, run, step, refused = (json.loads(line) for line in documents)
    assert status == "201"
    assert (waiting["status"], waiting["interrupts"][0]["tool_input"]) == ("interrupted", BIG)
    assert run["output"] == {"output": "Both were refunded."}
    assert [item["observation"] for item in run["intermediate_steps"]] == [
        {"order_id": "A-17", "amount": 30, "left": 210},
        {"order_id": "A-17", "amount": 120, "left": 90},
    ]
    assert ("approval", "approved") in [(item["stage"], item["verdict"]) for item in step["chain"]]
    assert refused["code"] == "interrupt_resolved"
    assert service.paid() == [("A-17", 30), ("A-17", 120)]


@pytest.mark.parametrize(
    ("answer", "paid", "status"),
    [
        ({"decision": "approve"}, [("A-17", 120)], "success"),
        ({"decision": "edit", "tool_input": {"order_id": "B-3", "amount": 7}}, [("B-3", 7)], "success"),
        ({"decision": "reject", "message": "It is not broken."}, [], "denied"),
    ],
)
async def test_the_ledger_has_what_the_person_decided(
    own: RunwireServer, service: Service, answer: dict[str, object], paid: list[object], status: str
) -> None:
    with service.started():
        async with own.client() as client:
            run_id, interrupt = await asked(client, service.tool())
            assert service.paid() == []
            await decided(client, run_id, interrupt, **answer)
            assert (await ended(client, run_id))["status"] == status
    assert service.paid() == paid


@pytest.mark.parametrize(("idempotent", "attempts"), [(True, 2), (False, 1)])
async def test_a_refund_whose_answer_is_lost_is_found_again_and_paid_once(
    own: RunwireServer, service: Service, idempotent: bool, attempts: int
) -> None:
    with service.started(ANSWER_AFTER_S="60"):
        async with own.client() as client:
            run_id, interrupt = await asked(client, service.tool(idempotent=idempotent, timeout_s=1))
            await decided(client, run_id, interrupt, decision="approve")
            step = await ended(client, run_id)
    assert (step["status"], step["observation"]) == ("success", {**BIG, "left": 120})
    assert [item["attempt"] for item in step["attempts"]] == list(range(1, attempts + 1))
    assert ("reconciled" in [item["verdict"] for item in step["chain"]]) is not idempotent
    assert service.paid() == [("A-17", 120)]


async def test_both_are_killed_while_the_person_thinks(own: RunwireServer, service: Service) -> None:
    with service.started():
        async with own.client() as client:
            run_id, interrupt = await asked(client, service.tool())
        own.kill()
        await asyncio.to_thread(own.start)
        async with own.client() as client:
            run = (await client.get(f"/runs/{run_id}")).json()
            assert (run["status"], run["attempt"], run["interrupts"][0]["id"]) == ("interrupted", 1, interrupt)
            await decided(client, run_id, interrupt, decision="approve")
            assert (await ended(client, run_id))["status"] == "success"
    with service.started():
        assert service.paid() == [("A-17", 120)]


@pytest.mark.parametrize("idempotent", [True, False])
async def test_the_server_is_killed_after_the_refund_and_before_its_answer(
    own: RunwireServer, service: Service, idempotent: bool
) -> None:
    with service.started(ANSWER_AFTER_S="60"):
        async with own.client() as client:
            run_id, interrupt = await asked(client, service.tool(idempotent=idempotent))
            await decided(client, run_id, interrupt, decision="edit", tool_input={"order_id": "A-17", "amount": 99})
            async with asyncio.timeout(TIMEOUT_S):
                await service.until_paid()
        own.kill()
        await asyncio.to_thread(own.start)
        async with own.client() as client:
            step = await ended(client, run_id)
            assert (await client.get(f"/runs/{run_id}")).json()["attempt"] == 2
    assert (step["status"], step["observation"]) == ("success", {"order_id": "A-17", "amount": 99, "left": 141})
    assert [item["outcome"] for item in step["attempts"]] == ["lost", "success"][: 2 if idempotent else 1]
    assert service.paid() == [("A-17", 99)]


async def test_a_line_that_a_crash_broke_off_is_no_refund(own: RunwireServer, service: Service) -> None:
    (service.folder / "refunds.jsonl").write_bytes(b'{"key": "k", "tool_call_id": "c", "order_id": "A-1')
    with service.started():
        async with own.client() as client:
            run_id, interrupt = await asked(client, service.tool())
            await decided(client, run_id, interrupt, decision="approve")
            assert (await ended(client, run_id))["status"] == "success"
    assert service.paid() == [("A-17", 120)]


async def test_a_call_that_nobody_signed_is_refused(service: Service) -> None:
    with service.started():
        async with httpx.AsyncClient(base_url=service.url, trust_env=False) as client:
            for path in ("/refund", "/refund/status"):
                answer = await client.post(path, json={"data": {"tool_call_id": "c", "arguments": BIG}})
                assert answer.status_code == 401
    assert service.paid() == []
