"""Answers of people: an edit is judged as the model's own input would be, an output as the tool's."""

from typing import Any, cast

import pytest

from app.agent.ports import Resumed, Waiting
from app.core.errors import FieldError
from tests.tools.support import Bench, call, ran, spec

pytestmark = pytest.mark.anyio

AMOUNT: dict[str, Any] = {
    "parameters": {
        "type": "object",
        "properties": {"amount": {"type": "integer"}, "currency": {"type": "string"}},
        "required": ["amount", "currency"],
    },
    "constants": {"currency": "EUR"},
}


@pytest.mark.parametrize(
    ("more", "given", "places"),
    [
        ({}, {"amount": 3}, []),
        ({}, {"amount": 3, "currency": "EUR"}, []),
        ({}, {"amount": 3, "currency": "USD"}, ["/currency"]),
        ({}, {"amount": "3"}, ["/amount"]),
        ({"coerce": True}, {"amount": "3"}, []),
        ({"coerce": True}, {"amount": "3.5"}, ["/amount"]),
        ({}, {"amount": 3, "__proto__": {"x": 1}}, [""]),
        ({}, {"amount": 3, "note": [{"__proto__": 1}]}, [""]),
        ({}, {"amount": 3, "note": "\ud800"}, [""]),
        ({}, {"amount": 3, "note": 2**64}, [""]),
        ({}, "3", [""]),
        ({"coerce": True}, "3", []),
        ({}, [3], [""]),
        ({}, None, [""]),
    ],
)
async def test_an_edit_is_taken_exactly_where_the_call_would_take_it(
    more: dict[str, Any], given: object, places: list[str]
) -> None:
    bench = Bench.make()
    nobody = spec(url="http://127.0.0.1:9/", retry={"max_attempts": 1}, **AMOUNT, **more)
    tools = await bench.bound(nobody)
    found = tools.input_faults("lookup", given)
    assert [fault.pointer for fault in found] == places
    if isinstance(given, dict | str) and not any(fault.detail.startswith("is a constant") for fault in found):
        sent = await ran(tools.run(call("lookup", cast("str | dict[str, object]", given))))
        assert (sent.error or {})["code"] == ("invalid_arguments" if places else "tool_unreachable")


async def test_a_constant_says_that_it_is_one() -> None:
    tools = await Bench.make().bound(spec(**AMOUNT))
    assert list(tools.input_faults("lookup", {"amount": "x", "currency": None})) == [
        FieldError("/currency", "is a constant of the tool and cannot be changed")
    ]
    assert [fault.detail for fault in tools.input_faults("gone", {})] == ["the tool was withdrawn"]


@pytest.mark.parametrize(
    ("schema", "output", "places"),
    [
        (None, {"any": [1]}, []),
        ({"type": "integer"}, 3, []),
        ({"type": "integer"}, "no integer", [""]),
        ({"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}, {"id": "x"}, ["/id"]),
        ({"type": "string"}, "\ud800", [""]),
    ],
)
async def test_an_output_is_held_to_the_output_schema(
    schema: dict[str, object] | None, output: object, places: list[str]
) -> None:
    tools = await Bench.make().bound(spec(output_schema=schema))
    assert [fault.pointer for fault in tools.output_faults("lookup", output)] == places
    assert list(tools.output_faults("gone", output)) == []


@pytest.mark.parametrize(("output", "cut"), [("x" * 100, False), ("x" * 101, True), (["x" * 101], True)])
async def test_an_output_that_is_too_long_is_cut_for_the_model_and_kept_whole(output: object, cut: bool) -> None:
    tools = await Bench.make().bound({"name": "local", "description": "", "max_result_bytes": 100})
    waiting = Waiting("client_tool", 0, {"started_at": 0})
    resumed = Resumed(waiting, {"decision": "respond", "output": output, "by": "me"})
    ended = await ran(tools.run(call("local", {}), resumed=resumed))
    assert (ended.status, ended.whole is not None) == ("success", cut)
    if ended.whole is not None:
        assert str(ended.observation).endswith(
            f"[the whole {len(ended.whole.data)} bytes: GET /runs/run-1/steps/1/result]"
        )
        assert (ended.whole.complete, b"x" * 101 in ended.whole.data) == (True, True)
    else:
        assert ended.observation == output


@pytest.mark.parametrize(
    ("decided", "input_then", "sent"),
    [
        ({"decision": "approve"}, {"amount": 3}, True),
        ({"decision": "approve"}, {"amount": 4}, False),
        ({"decision": "edit", "tool_input": {"amount": 5}}, {"amount": 4}, True),
    ],
)
async def test_an_approval_is_for_the_arguments_that_were_shown(
    decided: dict[str, object], input_then: dict[str, object], sent: bool
) -> None:
    bench = Bench.make()
    nobody = spec(url="http://127.0.0.1:9/", retry={"max_attempts": 1}, requires_approval=True, **AMOUNT)
    tools = await bench.bound(nobody)
    waiting = await tools.run(call("lookup", {"amount": 3}))
    assert isinstance(waiting, Waiting)
    ended = await ran(tools.run(call("lookup", input_then), resumed=Resumed(waiting, {**decided, "by": "me"})))
    assert (ended.error or {})["code"] == ("tool_unreachable" if sent else "approval_void")
    assert len(bench.journal.dispatches) == int(sent)
