"""What models write beside the format they were given: read as it was meant, or told to them as an error."""

from typing import Any

import pytest

from app.agent.parsers.port import SETTLE
from app.agent.parsers.registry import PARSERS
from app.agent.parsers.self_ask import SelfAskParser
from app.agent.parsers.trimming import WHITE
from app.agent.ports import ParseError, ReasoningDelta, TextDelta
from app.core.actions import AgentAction, AgentFinish


def read(name: str, text: str) -> Any:
    """An action as `(tool, input)`, a finish as its output, an error as itself."""
    parsed = PARSERS[name].parse(text)
    if isinstance(parsed, AgentAction):
        return parsed.tool, parsed.tool_input
    return parsed.return_values["output"] if isinstance(parsed, AgentFinish) else parsed


BLOB = '{"action": "s", "action_input": {"q": 1}}'


MEANT: list[tuple[str, str, object]] = [
    ("react", "**Action**: s\r\n**Action Input**： x \r\n", ("s", "x")),
    ("react", "**Action: s**\n**Action Input: x**", ("s", "x")),
    ("react", "**Action: s**\n**Action Input:** 2**3**", ("s", "2**3**")),
    ("react", "**Final Answer: 42**", "42"),
    ("react", "__Final Answer:__ 42", "42"),
    ("react", "Final Answer：42", "42"),
    ("react", "```\nThought: t\nFinal Answer: 42\n```\n", "42"),
    ("react", "Final Answer: ```py\nx\n```", "```py\nx\n```"),
    ("react", "Action: s\nAction Input: what is a Final Answer: in ReAct?", ("s", "what is a Final Answer: in ReAct?")),
    ("react", "Action: s\nAction Input:", ("s", "")),
    ("react", "Action: s\nFinal Answer: 42", "42"),
    ("react", "Final Answer: 1\nFinal Answer: 2", "2"),
    ("react", "Final Answer: 42\nObservation: made up", "42"),
    ("react", "Action: s\nAction Input: x\n**Observation：** made up", ("s", "x")),
    ("react", "Final Answer:", ""),
    ("react_json", f"Action:\n```python\n{BLOB}\n```\nbye", ("s", {"q": 1})),
    ("react_json", f"x\n```py\nx = 1\n```\n```JSON {BLOB}```", ("s", {"q": 1})),
    ("react_json", '```{"action":"s","action_input":"```x``` Final Answer: y"}```', ("s", "```x``` Final Answer: y")),
    ("react_json", '```{"action":"Final Answer","action_input":"4"}```', "4"),
    ("react_json", f"```{BLOB}```\nFinal Answer: 4", "4"),
    ("react_json", "Final Answer: 4\nObservation: x", "4"),
    ("structured_chat", f"```yaml\n{BLOB}\n```\nAnd more ```{{}}```", ("s", {"q": 1})),
    ("structured_chat", f"{BLOB}\ntrailing words", ("s", {"q": 1})),
    ("structured_chat", '{"action":"s"}', ("s", {})),
    ("structured_chat", '{"action":"s","action_input":[1, 2]}', ("s", "[1,2]")),
    ("structured_chat", '{"action":"s","action_input":"a","action":"t"}', ("s", "a")),
    ("structured_chat", '{"action":"s","action_input":{"a":"b","c":tr', ("s", {"a": "b"})),
    ("structured_chat", '{"action":"s","action_input":{"a":"b","c', ("s", {"a": "b"})),
    ("structured_chat", '{"action":"s","action_input":"a\\ud83d', ("s", "a")),
    ("structured_chat", '{"action":"s","action_input":"a\\', ("s", "a")),
    ("structured_chat", '{"action":"s","action_input":"a\\\\', ("s", "a\\")),
    ("structured_chat", '{"action":"Final Answer","action_input":{"a":1}}', {"a": 1}),
    ("xml", "<tool>s</tool><tool_input>a: b", ("s", "a: b")),
    ("xml", "<tool>s</tool>", ("s", "")),
    ("xml", "<tool>s</tool><tool_input>[[tool]]x[[/tool]]</tool_input>", ("s", "<tool>x</tool>")),
    ("xml", "<tool>s</tool><tool_input>1</tool_input><observation>o</observation><tool>b</tool>", ("s", "1")),
    ("self_ask", "Followup: at 10:30, who?\n\n", ("Intermediate Answer", "at 10:30, who?")),
    ("self_ask", "Follow up: x?\nIntermediate answer: y\nSo the final answer is: z", ("Intermediate Answer", "x?")),
    ("self_ask", "So the final answer is: 4: 5\r\n", "4: 5"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "meant"), MEANT)
def test_it_is_read_as_it_was_meant(name: str, text: str, meant: object) -> None:
    assert read(name, text) == meant


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("react", ""),
        ("react_json", f"```json\n{BLOB}"),
        ("react_json", "```json\n{'action': 's'}\n```"),
        ("structured_chat", f"No fence: {BLOB}"),
        ("structured_chat", "[]"),
        ("structured_chat", "42"),
        ("structured_chat", '{"action": null}'),
        ("structured_chat", '{"action": "Final Answer"}'),
        ("structured_chat", '{"action":"s","action_input":"\\u0000"}'),
        ("structured_chat", '{"action":"s","action_input":"\\ud800"}'),
        ("structured_chat", '{"action":"s","action_input":' + "9" * 30 + "}"),
        ("structured_chat", '{"action":"s","action_input":1e999}'),
        ("structured_chat", '{"action":"s","action_input":NaN}'),
        ("structured_chat", '{"action":"s","action_input":' + "[" * 100 + "]" * 100 + "}"),
        ("xml", "<tool>s"),
        ("xml", "<tool>s</tool><tool_input>1</tool_input><tool_input>2</tool_input>"),
        ("xml", "<final_answer>1</final_answer><final_answer>2</final_answer>"),
        ("self_ask", "So the final answer is: 4\nor is it?"),
    ],
)
def test_what_cannot_be_read_is_an_error_not_an_exception(name: str, text: str) -> None:
    assert isinstance(PARSERS[name].parse(text), ParseError)


LONG = "word " * SETTLE

STREAMED = {
    "react": ("Thought: hm\n", "Final Answer: ", ""),
    "react_json": ("Thought: hm\n", "**Final Answer:** ", ""),
    "structured_chat": ("Hm. ", '```json\n{"thought": "so", "action": "Final Answer", "action_input": "', '"}\n```'),
    "xml": ("Hm. ", "<final_answer>", "</final_answer>"),
}


@pytest.mark.parametrize("name", sorted(STREAMED))
def test_an_answer_streams_before_the_model_has_ended(name: str) -> None:
    thinking, before, after = STREAMED[name]
    reader = PARSERS[name].reader()
    text = thinking + before + LONG
    spoken = [delta for start in range(0, len(text), 7) for delta in reader.feed(text[start : start + 7])]
    told = "".join(delta.text for delta in spoken if isinstance(delta, TextDelta))
    assert "".join(delta.text for delta in spoken if isinstance(delta, ReasoningDelta)) == thinking
    assert len(told) > len(LONG) - 20
    assert LONG.startswith(told)
    spoken += [*reader.feed(after), *(ended := reader.finish()).deltas]
    assert isinstance(ended.outcome, AgentFinish)
    assert (
        "".join(delta.text for delta in spoken if isinstance(delta, TextDelta)) == ended.outcome.return_values["output"]
    )


@pytest.mark.parametrize("name", ["react", "react_json"])
def test_what_comes_late_in_an_answer_belongs_to_it_and_an_invented_observation_does_not(name: str) -> None:
    answer = f"{LONG}\nWrite\nAction: x\nAction Input: y\nFinal Answer: z"
    text = f"Final Answer: {answer}\nObservation: invented"
    assert read(name, text) == answer
    reader = PARSERS[name].reader()
    spoken = [delta for letter in text for delta in reader.feed(letter)]
    assert "".join(delta.text for delta in [*spoken, *reader.finish().deltas]) == answer


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("react", "Thought: t\nAction: s\nAction Input: SECRET Final Answer: SECRET"),
        (
            "react_json",
            'Thought: t\nAction:\n```json\n{"action":"s","action_input":"SECRET Final Answer: SECRET"}\n```',
        ),
        ("structured_chat", 'Thought: t\n```{"action":"s","action_input":"SECRET"}```'),
        ("xml", "Thought: t<tool>s</tool><tool_input>SECRET<final_answer>SECRET</final_answer>"),
        ("self_ask", "Thought: t\nFollow up: SECRET\nSECRET"),
    ],
)
def test_the_input_of_an_action_is_never_spoken(name: str, text: str) -> None:
    for size in (1, 3, len(text)):
        reader = PARSERS[name].reader()
        spoken = [delta for start in range(0, len(text), size) for delta in reader.feed(text[start : start + size])]
        spoken += reader.finish().deltas
        assert "SECRET" not in "".join(delta.text for delta in spoken)
        assert "Thought: t" in "".join(delta.text for delta in spoken if isinstance(delta, ReasoningDelta))


def test_a_self_ask_agent_s_tool_has_its_own_name() -> None:
    parsed = SelfAskParser("search").parse("Follow up: x?")
    assert isinstance(parsed, AgentAction)
    assert parsed.tool == "search"


def test_white_space_is_what_python_strips() -> None:
    assert set(WHITE) == {chr(code) for code in range(0x110000) if chr(code).isspace()}
