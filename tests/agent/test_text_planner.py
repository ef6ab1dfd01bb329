"""The text planner: any text in any pieces is exactly one decision, and what streamed is what is answered."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.agent.ports import (
    Decision,
    Delta,
    ModelAnswer,
    ModelRequest,
    Piece,
    PlannedCall,
    ReasoningDelta,
    Round,
    TextDelta,
    ToolDefinition,
    ToolOutcome,
    Turn,
)
from app.agent.settings import AgentSettings
from app.agent.text_formats import TEXT_TYPES, text_format
from app.agent.text_planner import FINAL_DEMAND, TextPlanner
from app.agent.trimming import Trim, Trimmer
from app.core.actions import AgentAction, AgentFinish, observation_text
from app.core.errors import ModelError
from app.core.ids import new_id
from app.core.messages import Message
from app.core.usage import TokenUsage

pytestmark = pytest.mark.anyio

SEARCH = ToolDefinition("search", "Find it.", {"type": "object", "properties": {"x": {"type": "string"}}})


@dataclass
class Speaker:
    """A model that says pieces, and remembers what it was asked."""

    pieces: Sequence[str] = ()
    deltas: bool = True
    """Whether the pieces come one by one before the answer."""
    answer: dict[str, Any] = field(default_factory=dict[str, Any])
    requests: list[ModelRequest] = field(default_factory=list[ModelRequest])

    async def __call__(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelAnswer]:
        self.requests.append(request)
        for piece in self.pieces if self.deltas else ():
            yield TextDelta(piece)
        yield ModelAnswer("".join(self.pieces), tokens=TokenUsage(9, 3, 12), model="m", **self.answer)


def planner_of(kind: str, speaker: Speaker, trim: Trim = -1, **more: Any) -> TextPlanner:
    given = AgentSettings(type=kind, **more)
    return TextPlanner(given, speaker, text_format(given, [SEARCH], {"input": "q?"}), Trimmer(trim))


def turn_of(rounds: Sequence[Round] = ()) -> Turn:
    return Turn([Message("user", "q?")], 1, rounds, len(rounds) + 1, new_id)


def round_of(step: int, tool: str = "search") -> Round:
    log = f"Action: {tool}\nAction Input: {step}"
    call = PlannedCall(step, step, f"t{step}", AgentAction(tool, str(step), log), f"t{step}")
    return Round(Message("assistant", log), ((call, ToolOutcome("success", f"found {step}")),))


async def planned(planner: TextPlanner, *, conclude: bool = False) -> tuple[list[Piece], Decision]:
    """The deltas and the one decision, which is last."""
    chunks = [chunk async for chunk in (planner.conclude(turn_of()) if conclude else planner.plan(turn_of()))]
    decision = chunks.pop()
    assert isinstance(decision, Decision)
    deltas = [chunk for chunk in chunks if not isinstance(chunk, Decision)]
    assert len(deltas) == len(chunks)
    return deltas, decision


def spoken(deltas: Sequence[Piece]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


WORDS = st.sampled_from(
    [
        "Thought: ", "Action:", "Action: search\n", "Action Input:", " foo", "\nFinal Answer:", "Final Answer: 42", "\n",
        "\nObservation", "\nObservation: x", "Observ", "**", "```", "```json\n", '{"action": "search", "action_input": "x"}',
        '{"action": "Final Answer", "action_input": "', '"}', "}", "{", "[", "\\u00", "\\ud83d", "\\ude00", "<tool>",
        "</tool>", "<tool_input>", "</tool_input>", "<final_answer>", "</final_answer>", "<observation>", "[[tool]]",
        "Follow up:", "So the final answer is:", "\nIntermediate answer:", "é", "😀", " ", "x" * 210, "\x00", "{x}",
    ]
)  # fmt: skip
PIECES = st.lists(st.one_of(WORDS, st.text(max_size=8)), max_size=24)
KINDS = st.sampled_from(sorted(TEXT_TYPES))


def cut_up(text: str, cuts: Sequence[int]) -> list[str]:
    borders = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(borders)]


@settings(deadline=None, max_examples=300)
@given(kind=KINDS, pieces=PIECES, cuts=st.lists(st.integers(0, 10_000), max_size=12), deltas=st.booleans())
async def test_any_text_in_any_pieces_is_one_decision(
    kind: str, pieces: list[str], cuts: list[int], *, deltas: bool
) -> None:
    text = "".join(pieces)
    told, decision = await planned(planner_of(kind, Speaker(cut_up(text, cuts), deltas)))
    _, whole = await planned(planner_of(kind, Speaker([text])))
    assert decision == whole
    assert decision.message is not None
    assert text.startswith(str(decision.message.content))
    if isinstance(decision.outcome, AgentFinish):
        output = decision.outcome.return_values["output"]
        assert spoken(told) == ("" if output is None else observation_text(output))


@settings(deadline=None, max_examples=150)
@given(kind=KINDS, pieces=PIECES, cuts=st.lists(st.integers(0, 10_000), max_size=12), stream=st.booleans())
async def test_a_last_word_is_always_an_answer(kind: str, pieces: list[str], cuts: list[int], *, stream: bool) -> None:
    planner = planner_of(kind, Speaker(cut_up("".join(pieces), cuts), stream), stream_output=stream)
    before, read = await planned(planner)
    if not isinstance(read.outcome, AgentFinish) and read.message == Message("assistant", ""):
        with pytest.raises(ModelError, match="empty answer"):
            await planned(planner, conclude=True)
        return
    told, decision = await planned(planner, conclude=True)
    assert isinstance(decision.outcome, AgentFinish)
    output = decision.outcome.return_values["output"]
    if not stream:
        assert not told
    elif isinstance(read.outcome, AgentFinish):
        assert (decision.outcome, told) == (read.outcome, before)
    else:  # the raw text, unless a part of an answer in it was told before it broke off
        assert decision.message == Message("assistant", str(output))
        assert spoken(told) == (spoken(before) or output)


@pytest.mark.parametrize("kind", sorted(TEXT_TYPES))
async def test_the_model_is_asked_for_text_only(kind: str) -> None:
    speaker = Speaker(["hm"])
    await planned(planner_of(kind, speaker))
    (request,) = speaker.requests
    assert (request.tools, request.call_index, request.stream) == ((), 0, True)
    assert request.stop
    assert [message.role for message in request.messages] == ["user"]


async def test_reasoning_of_the_model_itself_is_passed_on() -> None:
    async def thinks(request: ModelRequest) -> AsyncGenerator[Delta | ModelAnswer]:
        yield ReasoningDelta("hm")
        yield TextDelta("Final Answer: x")
        yield ModelAnswer("Final Answer: x", reasoning="hm")

    given = AgentSettings(type="react")
    planner = TextPlanner(given, thinks, text_format(given, [SEARCH], {}), Trimmer())
    told, decision = await planned(planner)
    assert told == [ReasoningDelta("hm"), TextDelta("x")]
    assert decision.message == Message("assistant", "Final Answer: x")


async def test_a_model_without_an_answer_is_an_error() -> None:
    async def silent(request: ModelRequest) -> AsyncGenerator[Delta | ModelAnswer]:
        yield TextDelta("Final")

    given = AgentSettings(type="react")
    planner = TextPlanner(given, silent, text_format(given, [SEARCH], {}), Trimmer())
    with pytest.raises(ModelError, match="without an answer"):
        await planned(planner)


async def test_a_filter_that_withheld_everything_is_an_error() -> None:
    speaker = Speaker(answer={"finish_reason": "content_filter"})
    with pytest.raises(ModelError) as caught:
        await planned(planner_of("react", speaker))
    assert caught.value.code == "content_filtered"
    _, decision = await planned(planner_of("react", Speaker(["Final Answer: half"], answer=speaker.answer)))
    assert decision.outcome == AgentFinish({"output": "half", "filtered": True}, "Final Answer: half")


@pytest.mark.parametrize("trim", [-1, 1, 2])
async def test_the_scratchpad_of_a_planner_that_was_made_anew_is_the_same(trim: int) -> None:
    """A restart makes a planner that has seen none of the steps."""
    kept = planner_of("react", Speaker(), trim)
    rounds: list[Round] = []
    for step in range(1, 6):
        fresh = planner_of("react", Speaker(), trim)
        assert kept.messages(turn_of(rounds)) == fresh.messages(turn_of(rounds))
        assert kept.messages(turn_of(rounds)) == kept.messages(turn_of(rounds))
        rounds.append(round_of(step))
    prompt = str(kept.messages(turn_of(rounds))[-1].content)
    seen = [step for step in range(1, 6) if f"Observation: found {step}\n" in prompt]
    assert seen == ([1, 2, 3, 4, 5] if trim < 1 else [1, 2, 3, 4, 5][-trim:])


async def test_the_demand_for_a_last_word_is_at_the_end_of_the_steps() -> None:
    speaker = Speaker(["x"])
    planner = planner_of("react", speaker)
    rounds = [round_of(1)]
    chunks = [chunk async for chunk in planner.conclude(turn_of(rounds))]
    assert isinstance(chunks[-1], Decision)
    assert chunks[-1].outcome == AgentFinish({"output": "x"}, "x")
    assert str(speaker.requests[0].messages[-1].content).endswith(f"Observation: found 1\nThought: {FINAL_DEMAND}")
