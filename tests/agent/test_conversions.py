"""Actions, steps and finishes as messages and as LangChain's form: what the peer was seen to make of them."""

import json
import warnings
from typing import Any

import pytest
from langchain_core.agents import AgentAction as PeerAction
from langchain_core.agents import AgentActionMessageLog as PeerMessageLog
from langchain_core.agents import AgentFinish as PeerFinish
from langchain_core.load import load
from langchain_core.messages import AIMessage
from pydantic import ValidationError

from app.core.actions import AgentAction, AgentActionMessageLog, AgentFinish, AgentStep
from app.core.messages import Message, ToolCall
from app.runs.langchain_format import action_json, finish_json, step_json
from tests.agent.cases import CASES

SAID = Message("assistant", None, (ToolCall("c1", "a", {"x": 1}), ToolCall("c2", "b", {})))
CALLED = AgentActionMessageLog("a", {"x": 1}, "L", message_log=(SAID,))


def read(dumped: dict[str, object]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `load` is a beta interface, says the peer
        return load(json.loads(json.dumps(dumped)), allowed_objects="core")


def test_an_action_with_its_message_gives_that_message_and_its_step_a_tools_A_M04() -> None:
    """The peer's step gives a message of the old `function` role, which names no call; here it is a tool's."""
    expect = CASES["A-M04"]["expect"]
    (said,) = CALLED.messages()
    assert [{"name": call.name, "args": call.args, "id": call.id} for call in said.tool_calls] == expect[
        "action_messages"
    ][0]["tool_calls"]
    for observation, (wanted,) in zip(CASES["A-M04"]["given"]["observations"], expect["step_messages"], strict=True):
        (told,) = AgentStep(CALLED, observation).messages()
        assert (told.role, told.name) == ("tool", wanted["name"])
        assert told.content == wanted["content"].replace('": ', '":')


def test_actions_and_finishes_load_equal_A_D01_A_D02() -> None:
    given, ended = CASES["A-D01"]["given"]["action"], CASES["A-D02"]["given"]["finish"]
    assert read(action_json(AgentAction(**given))) == PeerAction(**given)
    assert read(finish_json(AgentFinish(**ended))) == PeerFinish(**ended)


def test_a_step_loads_too_A_D04() -> None:
    """The peer writes a placeholder that its own `load` refuses."""
    given = CASES["A-D04"]["given"]["step"]
    dumped = step_json(AgentAction(**given["action"]), given["observation"])
    assert read(dumped) == {"action": PeerAction(**given["action"]), "observation": given["observation"]}


def test_an_action_of_a_tool_call_loads_equal_A_D05() -> None:
    """The peer's own class is one that its `load` does not find; ours is the class above it."""
    loaded = read(action_json(CALLED))
    said = AIMessage(
        "",
        tool_calls=[
            {"name": "a", "args": {"x": 1}, "id": "c1", "type": "tool_call"},
            {"name": "b", "args": {}, "id": "c2", "type": "tool_call"},
        ],
    )
    assert loaded == PeerMessageLog(tool="a", tool_input={"x": 1}, log="L", message_log=[said])


@pytest.mark.parametrize(
    "dumped",
    [action_json(AgentAction("a", "x", "L")), action_json(CALLED), finish_json(AgentFinish({"output": "o"}, "L"))],
    ids=["AgentAction", "AgentActionMessageLog", "AgentFinish"],
)
def test_the_class_is_named_once_more_and_a_wrong_name_is_refused_A_D07(dumped: dict[str, Any]) -> None:
    assert dumped["kwargs"]["type"] == dumped["id"][-1] == type(read(dumped)).__name__
    other = "AgentAction" if dumped["id"][-1] == "AgentFinish" else "AgentFinish"
    with pytest.raises(ValidationError, match="type"):
        read({**dumped, "kwargs": {**dumped["kwargs"], "type": other}})
