"""The tool service in Node: as its guide starts and registers it, and against calls that are not ours."""

import base64
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from standardwebhooks.webhooks import Webhook

from tests.examples.processes import EXAMPLES, blocks, node, serving, shell
from tests.support.server import RunwireServer

pytestmark = pytest.mark.anyio

FOLDER = EXAMPLES / "node_tool_service"


@dataclass(frozen=True, slots=True)
class Service:
    secret: str
    url: str

    async def post(self, call: "Call", path: str = "/refund_order") -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=20) as client:
            return await client.post(path, content=call.sent, headers=call.headers)


@dataclass(slots=True)
class Call:
    """A call as Runwire would send it, signed by the library of the specification."""

    secret: str
    arguments: dict[str, object]
    key: str | None = None
    age: timedelta = timedelta()
    sent: bytes = b""
    headers: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        at = datetime.now(UTC) - self.age
        self.sent = json.dumps({"type": "tool.call", "data": {"arguments": self.arguments}}).encode()
        self.headers = {
            "webhook-id": "call-1",
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": Webhook(self.secret).sign("call-1", at, self.sent.decode()),
            "content-type": "application/json",
        }
        if self.key is not None:
            self.headers["idempotency-key"] = self.key


def new_secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    secret = new_secret()
    command = (node(), str(FOLDER / "server.mjs"))
    env = {"PORT": "0", "TOOL_SECRET": secret}
    with serving(*command, says=r"Listening on port (\d+)", env=env, log=tmp_path / "node.log") as port:
        yield Service(secret, f"http://127.0.0.1:{port}")


async def test_an_agent_uses_the_tools_as_the_guide_says(demo: RunwireServer, service: Service) -> None:
    _start, register, ask = blocks(FOLDER / "README.md")
    env = {"RUNWIRE_URL": demo.url, "TOOLS_URL": service.url, "TOOL_SECRET": service.secret}
    registered = await shell(register, env)
    assert '"item":"teapot"' in registered.replace(" ", "")
    run = json.loads(await shell(f": ${{RUNWIRE_URL:?}}\n{ask}", env))
    assert run["status"] == "success"
    assert run["output"] == {"output": "15 of order A-17 were refunded."}
    lookup, refund = run["intermediate_steps"]
    assert lookup["observation"] == {"id": "A-17", "item": "teapot", "total": 40, "refunded": 0}
    assert refund["observation"] == {"order_id": "A-17", "refunded": 15, "left": 25}


async def test_the_same_key_twice_is_one_refund(service: Service) -> None:
    call = Call(service.secret, {"order_id": "A-17", "amount": 15}, key="k1")
    first, again = await service.post(call), await service.post(call)
    assert first.json() == again.json() == {"output": {"order_id": "A-17", "refunded": 15, "left": 25}}
    looked = await service.post(Call(service.secret, {"order_id": "A-17"}), "/lookup_order")
    assert looked.json()["output"]["refunded"] == 15
    other = await service.post(Call(service.secret, {"order_id": "A-17", "amount": 16}, key="k1"))
    assert other.status_code == 422
    keyless = await service.post(Call(service.secret, {"order_id": "A-17", "amount": 1}))
    assert keyless.status_code == 400
    more = await service.post(Call(service.secret, {"order_id": "A-17", "amount": 5}, key="k2"))
    assert more.json()["output"]["refunded"] == 20


async def test_what_the_model_should_know_is_an_error_it_can_read(service: Service) -> None:
    missing = await service.post(Call(service.secret, {"order_id": "Z-9"}), "/lookup_order")
    assert missing.status_code == 200
    assert missing.json() == {"error": {"message": "There is no order Z-9.", "code": "no_order", "retryable": False}}
    for amount, code in ((66, "too_much"), (-1, "bad_amount")):
        answer = await service.post(Call(service.secret, {"order_id": "B-3", "amount": amount}, key=f"k{amount}"))
        assert answer.json()["error"]["code"] == code


@pytest.mark.parametrize(("minutes", "status"), [(4, 200), (-4, 200), (6, 401), (-6, 401)])
async def test_a_signature_holds_for_five_minutes(service: Service, minutes: int, status: int) -> None:
    call = Call(service.secret, {"order_id": "A-17"}, age=timedelta(minutes=minutes))
    assert (await service.post(call, "/lookup_order")).status_code == status


async def test_a_changed_byte_of_anything_signed_is_refused(service: Service) -> None:
    def call() -> Call:
        return Call(service.secret, {"order_id": "A-17", "amount": 15}, key="k")

    body, name, time, signature, version, secret = (call() for _ in range(6))
    body.sent = body.sent.replace(b"15", b"16")
    name.headers["webhook-id"] = "call-2"
    time.headers["webhook-timestamp"] = str(int(time.headers["webhook-timestamp"]) + 1)
    given = signature.headers["webhook-signature"]
    signature.headers["webhook-signature"] = given[:10] + ("B" if given[10] == "A" else "A") + given[11:]
    version.headers["webhook-signature"] = version.headers["webhook-signature"].replace("v1,", "v2,")
    secret.headers["webhook-signature"] = Call(new_secret(), secret.arguments).headers["webhook-signature"]
    for refused in (body, name, time, signature, version, secret):
        assert (await service.post(refused)).status_code == 401
    looked = await service.post(Call(service.secret, {"order_id": "A-17"}), "/lookup_order")
    assert looked.json()["output"]["refunded"] == 0


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
@pytest.mark.parametrize("value", [None, "", "v1,", "x", "1e9", "v1,!!!"])
async def test_a_missing_or_odd_header_is_refused(service: Service, name: str, value: str | None) -> None:
    call = Call(service.secret, {"order_id": "A-17"})
    del call.headers[name]
    if value is not None:
        call.headers[name] = value
    assert (await service.post(call, "/lookup_order")).status_code == 401


async def test_one_of_several_signatures_is_enough(service: Service) -> None:
    call = Call(service.secret, {"order_id": "A-17"})
    foreign = Call(new_secret(), {"order_id": "A-17"}).headers["webhook-signature"]
    call.headers["webhook-signature"] = f"v1a,AAAA {foreign} {call.headers['webhook-signature']}"
    assert (await service.post(call, "/lookup_order")).status_code == 200
    call.headers["webhook-signature"] = f"{foreign} {foreign}"
    assert (await service.post(call, "/lookup_order")).status_code == 401


async def test_other_paths_and_sizes_are_refused_and_it_goes_on(service: Service) -> None:
    call = Call(service.secret, {"order_id": "A-17"})
    for path in ("/", "/constructor", "/toString", "/lookup_order/"):
        assert (await service.post(call, path)).status_code == 404
    large = Call(service.secret, {"order_id": "x" * 1_100_000})
    assert (await service.post(large, "/lookup_order")).status_code == 413
    assert (await service.post(call, "/lookup_order")).status_code == 200
