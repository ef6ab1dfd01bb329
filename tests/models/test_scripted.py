"""The scripted model plays exactly what the script says."""

import pytest

from app.agent.ports import Delta, ModelAnswer, ModelRequest, ProposedCall, TextDelta, ToolCallDelta
from app.core.errors import ModelError
from app.core.messages import Message
from app.core.usage import TokenUsage
from app.models.scripted import ScriptedModel

pytestmark = pytest.mark.anyio


def asking(turn: int, *, stream: bool = True) -> ModelRequest:
    return ModelRequest([Message("user", "hi")], call_index=turn, stream=stream)


async def played(model: ScriptedModel, turn: int = 0, *, stream: bool = True) -> list[Delta | ModelAnswer]:
    return [item async for item in model.stream(asking(turn, stream=stream))]


async def test_a_turn_streams_in_chunks_and_ends_in_its_answer() -> None:
    calls: list[dict[str, object]] = [
        {"id": "c", "name": "t", "args": {"a": 1}},
        {"name": "t"},
        {"id": "c", "name": "t", "args": {}},
    ]
    turn: dict[str, object] = {
        "content": "hello there",
        "chunk_size": 4,
        "tool_calls": calls,
        "usage": {"input_tokens": 2},
    }
    assert await played(ScriptedModel([turn], model="any")) == [
        TextDelta("hell"),
        TextDelta("o th"),
        TextDelta("ere"),
        ToolCallDelta(0, "c", "t", '{"a":1}'),
        ToolCallDelta(1, None, "t", "{}"),
        ToolCallDelta(2, "c", "t", "{}"),
        ModelAnswer(
            "hello there",
            (
                ProposedCall("t", {"a": 1}, "c", '{"a":1}'),
                ProposedCall("t", {}, None, "{}"),
                ProposedCall("t", {}, "c", "{}"),
            ),
            TokenUsage(2, 0, 2),
            "tool_calls",
            model="any",
        ),
    ]


async def test_the_turn_is_the_requests_call_index() -> None:
    script = [{"content": "one"}, {"content": "two", "usage": {"prompt_tokens": 1, "completion_tokens": 2}}]
    assert await played(ScriptedModel(script), 1, stream=False) == [
        ModelAnswer("two", tokens=TokenUsage(1, 2, 3), model="scripted")
    ]


async def test_past_its_end_a_script_is_exhausted() -> None:
    with pytest.raises(ModelError) as raised:
        await played(ScriptedModel([{"content": "one"}]), 1)
    assert (raised.value.code, raised.value.retryable) == ("script_exhausted", False)
    with pytest.raises(ModelError):
        await played(ScriptedModel([], repeat=True), 0)


async def test_a_repeated_script_plays_its_last_turn_for_ever() -> None:
    model = ScriptedModel([{"content": "one"}, {"content": "two"}], repeat=True)
    answers = [(await played(model, turn, stream=False))[0] for turn in (0, 1, 2, 500)]
    assert [answer.content for answer in answers if isinstance(answer, ModelAnswer)] == ["one", "two", "two", "two"]


async def collect(model: ScriptedModel, said: list[Delta | ModelAnswer]) -> None:
    async for item in model.stream(asking(0)):
        said.append(item)


@pytest.mark.parametrize(
    ("code", "meant", "retryable"),
    [
        ("rate_limited", "model_rate_limited", True),
        ("model_auth", "model_auth", False),
        ("overloaded", "model_unavailable", True),
        ("context_length_exceeded", "context_length_exceeded", False),
    ],
)
async def test_an_error_comes_after_what_was_said(code: str, meant: str, *, retryable: bool) -> None:
    model = ScriptedModel([{"content": "well", "error": {"code": code, "after_ms": 1}, "delay_ms": 1}])
    said: list[Delta | ModelAnswer] = []
    with pytest.raises(ModelError) as raised:
        await collect(model, said)
    assert said == [TextDelta("well")]
    assert (raised.value.code, raised.value.retryable) == (meant, retryable)


async def test_an_invalid_call_keeps_its_text_and_says_why() -> None:
    invalid = [{"id": "c", "name": "t", "args": "{oops", "error": "Not JSON."}, {}]
    (answer,) = await played(ScriptedModel([{"invalid_tool_calls": invalid}]), stream=False)
    assert isinstance(answer, ModelAnswer)
    assert answer.calls[0] == ProposedCall("t", None, "c", "{oops", "Not JSON.")
    assert answer.calls[1].args is None
    assert answer.calls[1].error
