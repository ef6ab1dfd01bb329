"""Text formats: what stands in each type's prompt, and what a tool's input in text comes to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.agent.ports import PlannedCall, Round, ToolDefinition, ToolOutcome, Turn
from app.agent.settings import AgentSettings
from app.agent.text_formats import TEXT_TYPES, prompt_variables, template_of, text_format
from app.agent.text_input import TextInputs
from app.core.actions import AgentAction
from app.core.ids import new_id
from app.core.json import encode_text
from app.core.messages import Message


def tool(name: str, **properties: object) -> ToolDefinition:
    return ToolDefinition(name, f"Does {name}.", {"type": "object", "properties": properties})


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
SEARCH = tool("search", x=TEXT)


def shown(settings: AgentSettings, messages: list[Message], inputs: dict[str, object] | None = None) -> list[Message]:
    form = text_format(settings, [SEARCH], inputs or {})
    return list(form.prompt.messages(Turn(messages, len(messages), (), 1, new_id), ()))


@pytest.mark.parametrize("kind", sorted(TEXT_TYPES))
def test_every_types_own_prompt_needs_nothing_from_the_caller(kind: str) -> None:
    assert prompt_variables({"type": kind, "prompt": None}) == set()
    assert prompt_variables({"type": kind, "prompt": {"stop_sequence": False}}) == set()
    (message,) = shown(AgentSettings(type=kind), [Message("user", "q {x}?")])
    text = str(message.content)
    assert "q {x}?" in text
    assert ("search" in text) == (kind != "self_ask")
    assert "{{" not in text


def test_other_types_have_no_variables() -> None:
    assert prompt_variables({"type": "tool_calling", "prompt": None}) == set()
    assert prompt_variables({"type": "a_plugin"}) == set()


def test_the_variables_of_a_template_are_those_that_no_run_has_by_itself() -> None:
    template = "{who} {tools} {tool_names} {input} {chat_history} {agent_scratchpad} {where}"
    assert prompt_variables({"type": "react", "prompt": {"template": template}}) == {"who", "where"}


@pytest.mark.parametrize("kind", sorted(TEXT_TYPES))
def test_every_template_must_hold_the_steps(kind: str) -> None:
    with pytest.raises(ValueError, match="agent_scratchpad"):
        template_of(kind, "{tools} {tool_names} {input}")


@pytest.mark.parametrize(
    ("setting", "stop"),
    [(True, ("\nObservation",)), (False, ()), (["A", "B"], ("A", "B"))],
)
def test_stop_words_are_the_types_own_none_or_the_callers(setting: object, stop: tuple[str, ...]) -> None:
    assert tuple(text_format(AgentSettings(type="react", prompt={"stop_sequence": setting}), [], {}).stop) == stop


def test_the_input_is_what_the_user_said_last() -> None:
    messages = [
        Message("user", "before"),
        Message("assistant", "yes"),
        Message("user", "now"),
        Message("assistant", "hm"),
    ]
    settings = AgentSettings(
        type="react", instructions="Be {brief}.", prompt="{tools}{tool_names}[{input}]{agent_scratchpad}"
    )
    assert [(item.role, item.content) for item in shown(settings, messages)] == [
        ("system", "Be {brief}."),
        ("user", "before"),
        ("assistant", "yes"),
        ("assistant", "hm"),
        ("user", "search(x) - Does search.search[now]"),
    ]


@given(st.text(), st.dictionaries(st.sampled_from(["who", "tools", "agent_scratchpad"]), st.text()))
def test_values_are_put_in_as_they_are(text: str, inputs: dict[str, object]) -> None:
    settings = AgentSettings(type="react", prompt="{tools}|{tool_names}|{agent_scratchpad}|{who}|{input}")
    (message,) = shown(settings, [Message("user", text)], {"who": "", **inputs})
    assert message.content == f"search(x) - Does search.|search||{inputs.get('who', '')}|{text}"


def test_several_actions_of_a_round_stand_in_call_order() -> None:
    results = tuple(
        (
            PlannedCall(step, 1, f"t{step}", AgentAction("a", str(step), f"log {step}"), f"t{step}"),
            ToolOutcome("success", step),
        )
        for step in (1, 2, 3)
    )
    rounds = [Round(None, results)]
    form = text_format(AgentSettings(type="react", prompt="{tools}{tool_names}{agent_scratchpad}"), [], {})
    (message,) = form.prompt.messages(Turn([Message("user", "q")], 1, rounds, 2, new_id), rounds)
    assert str(message.content) == "".join(f"log {step}\nObservation: {step}\nThought: " for step in (1, 2, 3))


TOOLS = TextInputs(
    [
        SEARCH,
        tool("add", a=NUMBER, b=NUMBER),
        tool("count", n=NUMBER),
        tool("maybe", n={"anyOf": [NUMBER, {"type": "null"}]}),
        tool("either", n={"type": ["integer", "string"]}),
        tool("filter", where={"type": "object"}),
        tool("many", names={"type": "array"}),
        tool("any", value={}),
        tool("free"),
        ToolDefinition("bare", "", {"type": "object", "additionalProperties": False}),
        ToolDefinition("odd", "", {"type": "object", "properties": None}),
    ]
)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("search", "plain", "plain"),
        ("search", '{"x": "plain"}', '{"x": "plain"}'),
        ("add", ' {"a": 1, "b": 2}\n', {"a": 1, "b": 2}),
        ("add", '```json\n{"a": 1, "b": 2}\n```', {"a": 1, "b": 2}),
        ("add", '```\n{"a": 1}', {"a": 1}),
        ("add", "{}", {}),
        ("add", "[1, 2]", "[1, 2]"),
        ("add", "1, 2", "1, 2"),
        ("add", '{"a": 1} or so', '{"a": 1} or so'),
        ("add", '{"a": 18446744073709551616}', '{"a": 18446744073709551616}'),
        ("add", "\ud800", "\ud800"),
        ("count", "5", {"n": 5}),
        ("count", '{"n": 5}', {"n": 5}),
        ("count", '{"m": 5}', {"n": {"m": 5}}),
        ("count", "five", "five"),
        ("count", "", ""),
        ("maybe", "null", {"n": None}),
        ("either", "5", "5"),
        ("filter", '{"size": 1}', {"where": {"size": 1}}),
        ("filter", '{"where": {"size": 1}}', {"where": {"size": 1}}),
        ("many", '["a"]', {"names": ["a"]}),
        ("any", "5", "5"),
        ("free", '{"a": 1}', '{"a": 1}'),
        ("bare", "none", {}),
        ("bare", "", {}),
        ("odd", "5", "5"),
        ("unknown", '{"a": 1}', '{"a": 1}'),
    ],
)
def test_a_text_is_arguments_only_where_no_text_can_be_meant(name: str, text: str, expected: object) -> None:
    read = TOOLS.read(AgentAction(name, text, "log"))
    assert (read.tool, read.tool_input, read.log) == (name, expected, "log")


def test_arguments_that_are_an_object_already_stay_as_they_are() -> None:
    action = AgentAction("count", {"m": 1}, "log")
    assert TOOLS.read(action) is action


@given(
    st.dictionaries(
        st.text(alphabet="abc", max_size=3), st.one_of(st.integers(-99, 99), st.text(max_size=4), st.none())
    )
)
def test_any_object_becomes_the_arguments_of_a_tool_with_several(arguments: dict[str, object]) -> None:
    try:
        text = encode_text(arguments)
    except TypeError:
        return
    if "\\u0000" not in text:
        assert TOOLS.read(AgentAction("add", text)).tool_input == arguments


@given(st.sampled_from(["search", "add", "count", "filter", "free", "bare", "unknown"]), st.text())
def test_any_text_can_be_read(name: str, text: str) -> None:
    assert isinstance(TOOLS.read(AgentAction(name, text)).tool_input, str | dict)
