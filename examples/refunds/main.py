"""A refund service: pays back once for each key, whatever happens to the connection or to itself. See README.md."""

import asyncio
import json
import os
from pathlib import Path
from typing import Annotated, cast

from fastapi import FastAPI, HTTPException, Request, Response
from pydantic import BaseModel, Field
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

app = FastAPI()
webhook = Webhook(os.environ["TOOL_SECRET"])

ORDERS = {"A-17": 240.0, "B-3": 60.0}
"""What was paid."""

ANSWER_AFTER_S = float(os.environ.get("ANSWER_AFTER_S", "0"))
"""To try out what happens when the answer to a refund is lost: it is made at once, and told so much later."""


class Refund(BaseModel):
    order_id: str
    amount: Annotated[float, Field(gt=0)]


class Data(BaseModel):
    tool_call_id: str
    arguments: Refund


class ToolCall(BaseModel):
    data: Data


class Question(BaseModel):
    tool_call_id: str
    idempotency_key: str


class Ledger:
    """One JSON line a refund. A line is on the disk before anybody is told of it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+b")
        self._file.seek(0)
        lines = self._file.read()
        whole = lines[: lines.rfind(b"\n") + 1]
        self._file.truncate(len(whole))  # a line that a crash broke off was never told
        entries = [cast("dict[str, object]", json.loads(line)) for line in whole.splitlines()]
        self._entries = {str(entry["key"]): entry for entry in entries}

    def find(self, key: str) -> dict[str, object] | None:
        return self._entries.get(key)

    def refunded(self, order_id: str) -> float:
        return sum(cast("float", entry["amount"]) for entry in self._entries.values() if entry["order_id"] == order_id)

    def add(self, entry: dict[str, object]) -> None:
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._entries[str(entry["key"])] = entry


ledger = Ledger(Path(os.environ.get("LEDGER", "refunds.jsonl")))


async def verified(request: Request) -> bytes:
    """The body, if it was Runwire that sent it."""
    body = await request.body()
    try:
        webhook.verify(body, dict(request.headers), json_parse=False)
    except (WebhookVerificationError, ValueError) as error:
        raise HTTPException(401, "wrong signature") from error
    return body


def receipt(entry: dict[str, object]) -> dict[str, object]:
    return {"output": {name: entry[name] for name in ("order_id", "amount", "left")}}


def fault(code: str, message: str) -> dict[str, object]:
    """An error that the model can read and act on."""
    return {"error": {"code": code, "message": message, "retryable": False}}


@app.post("/refund")
async def refund(request: Request) -> dict[str, object]:
    call = ToolCall.model_validate_json(await verified(request)).data
    key, wanted = request.headers.get("idempotency-key"), call.arguments
    if not key:
        raise HTTPException(400, "an Idempotency-Key is needed")
    found = ledger.find(key)
    if found is not None:
        if (found["order_id"], found["amount"]) != (wanted.order_id, wanted.amount):
            raise HTTPException(422, "this key paid another refund")
        return receipt(found)
    if wanted.order_id not in ORDERS:
        return fault("no_order", f"There is no order {wanted.order_id}.")
    left = ORDERS[wanted.order_id] - ledger.refunded(wanted.order_id) - wanted.amount
    if left < 0:
        return fault("too_much", f"Only {left + wanted.amount:g} of order {wanted.order_id} is left.")
    # Nothing is awaited from the look-up to here, so that no two calls with one key can both pay.
    entry: dict[str, object] = {"key": key, "tool_call_id": call.tool_call_id, **wanted.model_dump(), "left": left}
    ledger.add(entry)
    await asyncio.sleep(ANSWER_AFTER_S)
    return receipt(entry)


@app.post("/refund/status")
async def status(request: Request, response: Response) -> dict[str, object]:
    """What became of a call: its receipt, or 404, which says that it never arrived and may be sent."""
    question = Question.model_validate_json(await verified(request))
    found = ledger.find(question.idempotency_key)
    if found is None:
        response.status_code = 404
        return {"detail": "never received"}
    return receipt(found)
