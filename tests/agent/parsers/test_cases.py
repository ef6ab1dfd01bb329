"""What LangChain's parsers were seen to do, case by case, on ours; where we read better the reason stands here."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.agent.parsers.port import Parsed, TextParser
from app.agent.parsers.registry import PARSERS
from app.agent.ports import ParseError
from app.core.actions import AgentAction, AgentFinish

CASES: dict[str, dict[str, Any]] = {
    case["id"]: case
    for line in (Path(__file__).parent / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    for case in [json.loads(line)]
}

NAMES = {"react_single_input": "react", "json": "structured_chat"}

BETTER: dict[str, dict[str, Any]] = {
    "A-P17": {"tool": "search", "tool_input": "foo", "why": "the ending newline is no input"},
    "A-P19": {"tool": "search", "tool_input": "foo", "why": "nor are tabs"},
    "A-P21": {"tool": "search", "tool_input": "foo", "why": "only the server observes"},
    "A-P30": {"tool": "search", "tool_input": "foo", "why": "the fence is around the whole"},
    "A-P34": {"tool": "search", "tool_input": "foo", "why": "bold keywords are keywords"},
    "A-P35": {"tool": "search", "tool_input": "foo", "why": "a full-width colon is a colon"},
    "A-P41": {"tool": "search", "tool_input": "foo", "why": "CRLF ends a line"},
    "A-S04": {"output": "4", "why": "the right slice"},
    "A-X03": {"error": "Malformed tool invocation: expected exactly one <tool> block, but found 2."},
    "A-X05": {"error": "Malformed output: expected either a tool invocation or a final answer in XML format."},
    "A-X07": {"error": "Malformed output: expected either a tool invocation or a final answer in XML format."},
}
"""The cases with a `peer_flaw`."""

_HINT = "\nFor troubleshooting, visit: "
"""LangChain ends its messages with an address of its documentation; ours do not."""


def parser_of(case: dict[str, Any]) -> TextParser:
    name: str = case["given"]["parser"]
    return PARSERS[NAMES.get(name, name)]


def shape(parsed: Parsed) -> dict[str, Any]:
    if isinstance(parsed, AgentAction):
        return {"tool": parsed.tool, "tool_input": parsed.tool_input, "log": parsed.log}
    if isinstance(parsed, AgentFinish):
        return {**parsed.return_values, "log": parsed.log}
    assert isinstance(parsed, ParseError)
    return {
        "error": parsed.message,
        "send_to_llm": parsed.send_to_llm,
        "observation": parsed.observation or None,
        "llm_output": parsed.llm_output or None,
    }


def expected(case: dict[str, Any]) -> dict[str, Any]:
    text, expect = case["given"]["text"], case["expect"]
    if "action" in expect:
        return {**expect["action"], "log": text}
    if "finish" in expect:
        return {**expect["finish"]["return_values"], "log": text}
    error = expect["parse_error"]
    return {
        "error": error["message"].partition(_HINT)[0],
        "send_to_llm": error["send_to_llm"],
        "observation": error["observation"],
        "llm_output": error["llm_output"],
    }


@pytest.mark.parametrize("case_id", sorted(CASES.keys() - BETTER.keys()))
def test_a_text_is_read_as_the_peer_reads_it(case_id: str) -> None:
    case = CASES[case_id]
    assert shape(parser_of(case).parse(case["given"]["text"])) == expected(case)


@pytest.mark.parametrize("case_id", sorted(BETTER))
def test_a_text_is_read_better_than_the_peer_reads_it(case_id: str) -> None:
    case = CASES[case_id]
    assert "peer_flaw" in case
    text = case["given"]["text"]
    got = shape(parser_of(case).parse(text))
    want = {key: value for key, value in BETTER[case_id].items() if key != "why"}
    if "error" in want:
        want |= {"send_to_llm": True, "observation": want["error"], "llm_output": text}
    else:
        want["log"] = text
    assert got == want


def test_every_case_with_a_flaw_of_the_peer_is_decided_here() -> None:
    assert {case_id for case_id, case in CASES.items() if "peer_flaw" in case} == BETTER.keys()
