"""The example receiver: takes our signature, refuses an old or a changed one."""

import importlib.util
import json
import time
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from app.tools.signing import key_of, new_secret, sign

pytestmark = pytest.mark.anyio

MAIN = Path(__file__).resolve().parents[2] / "examples" / "tool_service" / "main.py"
BODY = json.dumps({"type": "tool.call", "data": {"tool_call_id": "c", "arguments": {"a": 2, "b": 3}}}).encode()


@pytest.fixture
def secret() -> str:
    return new_secret()


@pytest.fixture
def example(secret: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("TOOL_SECRET", secret)
    spec = importlib.util.spec_from_file_location("tool_service_example", MAIN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("age_s", "changed", "status"), [(0, False, 200), (240, False, 200), (360, False, 401), (-360, False, 401), (0, True, 401)]
)  # fmt: skip
async def test_the_example_verifies_what_it_is_sent(
    example: ModuleType, secret: str, age_s: int, changed: bool, status: int
) -> None:
    at = int(time.time()) - age_s
    headers = {
        "webhook-id": "c",
        "webhook-timestamp": str(at),
        "webhook-signature": sign(key_of(secret), "c", at, BODY),
    }
    body = BODY.replace(b"2", b"9") if changed else BODY
    async with httpx.AsyncClient(transport=httpx.ASGITransport(example.app), base_url="http://tool") as client:
        answer = await client.post("/add", content=body, headers=headers)
    assert answer.status_code == status
    if status == 200:
        assert answer.json() == {"output": 5}
