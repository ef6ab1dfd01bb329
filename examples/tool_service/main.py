"""A tool service in its own right: verifies who calls, then adds two numbers. See README.md."""

import os
from typing import Annotated

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel, Field
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

app = FastAPI()
webhook = Webhook(os.environ["TOOL_SECRET"])


class Numbers(BaseModel):
    a: float
    b: float


class Data(BaseModel):
    tool_call_id: str
    arguments: Annotated[Numbers, Field(description="What the model said, already checked against the tool's schema")]


class ToolCall(BaseModel):
    data: Data


@app.post("/add")
async def add(request: Request) -> dict[str, object]:
    body = await request.body()
    try:
        webhook.verify(body, dict(request.headers), json_parse=False)
    except (WebhookVerificationError, ValueError) as error:
        raise HTTPException(401, "wrong signature") from error
    numbers = ToolCall.model_validate_json(body).data.arguments
    return {"output": numbers.a + numbers.b}
