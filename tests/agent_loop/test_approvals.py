"""The peer's human in the loop, case by case, over HTTP: what a person decides, and what the model reads of it."""

from typing import Any

import httpx
import pytest

from tests.agent_loop.support import Call, Model, Played, asks, posted, seen
from tests.support.bodies import openai, run_body, tool_spec
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

ALL = ["approve", "edit", "reject", "respond"]
ONE: list[Call] = [("c1", "pay", {"amt": 5})]
THREE: list[Call] = [*ONE, ("c2", "free", {"x": "z"}), ("c3", "mail", {"to": "bob"})]
APPROVE: dict[str, object] = {"decision": "approve"}
REJECT: dict[str, object] = {"decision": "reject"}


def gated(tools: ToolServer) -> list[dict[str, object]]:
    """`pay`, `mail` and `free`, which ask nobody themselves: the agent's `interrupt_on` does."""
    kinds = {"pay": {"amt": "integer"}, "mail": {"to": "string"}, "free": {"x": "string"}}
    return [
        tool_spec(
            name,
            tools.url("/echo"),
            parameters={
                "type": "object",
                "properties": {field: {"type": kind} for field, kind in fields.items()},
                "required": list(fields),
            },
        )
        for name, fields in kinds.items()
    ]


async def gate(
    client: httpx.AsyncClient, model: Model, tools: ToolServer, *names: str, rule: object = True, **more: object
) -> Played:
    """A run whose agent asks about the calls of some tools; it waits."""
    settings = {"interrupt_on": dict.fromkeys(names or ("pay",), rule)}
    played = await posted(client, model, *gated(tools), agent=settings, **more)
    assert played.run["status"] == "interrupted"
    return played


def asked(played: Played) -> list[tuple[object, object]]:
    """What a person is asked: (tool, input)."""
    return [(item["tool"], item["tool_input"]) for item in played.run["interrupts"]]


async def results(played: Played) -> list[tuple[object, ...]]:
    return [item[1:] for item in await played.said() if item[0] == "tool"]


@pytest.mark.parametrize(
    ("answer", "done", "result"),
    [
        pytest.param(
            REJECT,
            [],
            (
                "User rejected the tool call for `pay` with id c1. The tool was not executed. Do not retry this tool call "
                "unless the user explicitly requests it.",
                "c1",
                "error",
            ),
            id="B-302",
        ),
        pytest.param(
            {**REJECT, "message": "too much"},
            [],
            ("User rejected the tool call for `pay` with reason: too much", "c1", "error"),
            id="B-303",
        ),
        pytest.param({"decision": "respond", "output": "user says 7"}, [], ("user says 7", "c1"), id="B-305"),
    ],
)
async def test_a_call_that_a_person_settles_is_not_sent(
    client: httpx.AsyncClient,
    tools: ToolServer,
    answer: dict[str, object],
    done: list[object],
    result: tuple[object, ...],
) -> None:
    """B-302, B-303, B-305."""
    async with Model(ONE, "done") as model:
        played = await gate(client, model, tools)
        assert (asked(played), played.model_calls) == ([("pay", {"amt": 5})], 1)
        assert played.run["interrupts"][0]["response_schema"]["properties"]["decision"]["enum"] == ALL
        await played.resumed(answer)
    assert await played.effects(tools) == done
    assert await played.said() == [("user", "hi"), asks(ONE), ("tool", *result), ("assistant", "done")]
    assert (played.answer, played.model_calls) == ("done", 2)


async def test_an_edited_call_is_sent_as_edited_and_the_models_own_is_kept_B_304(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    async with Model(ONE, "done") as model:
        played = await gate(client, model, tools)
        await played.resumed({"decision": "edit", "tool_input": {"amt": 3}})
    assert await played.effects(tools) == [("pay", {"amt": 3})]
    said = await played.said()
    assert said[1] == asks(ONE)
    notice = (
        "Note: a human reviewer replaced this tool call before it ran. The call recorded in your message is the one you "
        "produced, not the one that executed. This was intentional and authorized. Do not re-issue your original call. "
        'Executed instead: pay with arguments {"amt":3}.\n\nTool response:\n'
    )
    assert said[2][1:] == (notice + '{"amt":3}', "c1")
    verdicts = {item["stage"]: item for item in (await played.step())["chain"]}
    assert verdicts["approval"]["verdict"] == "edited"


async def test_two_answers_of_two_kinds_settle_a_round_B_307(client: httpx.AsyncClient, tools: ToolServer) -> None:
    """The call that needs nobody has run before; in the peer it waits for the others."""
    async with Model(THREE, "done") as model:
        played = await gate(client, model, tools, "pay", "mail")
        assert asked(played) == [("pay", {"amt": 5}), ("mail", {"to": "bob"})]
        assert await played.effects(tools) == [("free", {"x": "z"})]
        await played.resumed(
            {"decision": "edit", "tool_input": {"amt": 1}}, {"decision": "respond", "output": "already sent"}
        )
    assert await played.effects(tools) == [("free", {"x": "z"}), ("pay", {"amt": 1})]
    assert [item[1] for item in await results(played)] == ["c1", "c2", "c3"]
    assert (await results(played))[2] == ("already sent", "c3")


async def test_a_round_that_is_rejected_whole_goes_back_to_the_model_B_308(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    async with Model(THREE, "done") as model:
        played = await gate(client, model, tools, "pay", "mail", "free")
        assert asked(played) == [(name, args) for _, name, args in THREE]
        await played.resumed(REJECT, REJECT, REJECT)
    assert await played.effects(tools) == []
    assert [item[1:] for item in await results(played)] == [("c1", "error"), ("c2", "error"), ("c3", "error")]
    assert played.model_calls == 2


@pytest.mark.parametrize("name", ["mail", "nope"])
async def test_an_edit_stays_with_the_tool_that_was_asked_about_B_313_B_314(
    client: httpx.AsyncClient, tools: ToolServer, name: str
) -> None:
    """In the peer it may name another one, whose own gate then asks nobody, and one that is not there fails the run."""
    async with Model(ONE, "done") as model:
        played = await gate(client, model, tools, "pay", "mail")
        refused = await played.resume({"decision": "edit", "tool": name, "tool_input": {"to": "eve"}})
        assert refused.status_code == 422
        refused = await played.resume({"decision": "edit", "tool_input": {"to": "eve"}})
        assert refused.status_code == 422
        await played.resumed(APPROVE)
    assert await played.effects(tools) == [("pay", {"amt": 5})]


async def test_an_edit_that_does_not_fit_is_told_to_the_reviewer_B_315(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    async with Model(ONE, "done") as model:
        played = await gate(client, model, tools)
        refused = await played.resume({"decision": "edit", "tool_input": {"amt": "x"}})
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["pointer"] == "/responses/0/tool_input/amt"
        assert played.model_calls == 1
        await played.resumed({"decision": "edit", "tool_input": {"amt": 4}})
    assert await played.effects(tools) == [("pay", {"amt": 4})]
    assert played.model_calls == 2


async def test_only_calls_that_fit_the_condition_are_asked_about_B_316(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    made: list[Call] = [("c1", "pay", {"amt": 5}), ("c2", "pay", {"amt": 50})]
    rule = {"when": {"properties": {"amt": {"exclusiveMinimum": 10}}}}
    async with Model(made, "done") as model:
        played = await gate(client, model, tools, rule=rule)
        assert asked(played) == [("pay", {"amt": 50})]
        await played.resumed(REJECT)
    assert await played.effects(tools) == [("pay", {"amt": 5})]
    assert [item[1:] for item in await results(played)] == [("c1",), ("c2", "error")]


@pytest.mark.parametrize(
    ("rule", "pointer", "detail"),
    [
        ({"allowed_decisions": []}, "", "pay.allowed_decisions: unknown field"),
        ({"allow": ["approve"]}, "", "pay.allow: unknown field"),
        ({"description_prefix": "Check:"}, "", "pay.description_prefix: unknown field"),
        (1, "/pay", "Input should be a valid boolean"),
    ],
)
async def test_a_gate_that_says_what_it_may_not_is_refused_before_the_run_exists_B_318_B_319_B_320(
    client: httpx.AsyncClient, tools: ToolServer, rule: object, pointer: str, detail: str
) -> None:
    """Which decisions there are, and the words of the question, are no settings."""
    async with Model(ONE) as model:
        body = run_body(openai(model.base_url), *gated(tools), agent={"interrupt_on": {"free": True, "pay": rule}})
        refused = await client.post("/runs", json=body)
        assert model.requests == []
    assert refused.status_code == 422
    assert {"pointer": f"/agent/interrupt_on{pointer}", "detail": detail} in refused.json()["errors"]


async def test_two_rounds_are_asked_about_one_after_the_other_B_321(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    async with Model(ONE, [("c2", "pay", {"amt": 6})], "done") as model:
        played = await gate(client, model, tools)
        await played.resumed(APPROVE)
        assert (played.run["status"], asked(played)) == ("interrupted", [("pay", {"amt": 6})])
        assert (await played.effects(tools), played.model_calls) == ([("pay", {"amt": 5})], 2)
        await played.resumed(REJECT)
    assert (await played.effects(tools), played.model_calls) == ([("pay", {"amt": 5})], 3)
    assert [item[1:] for item in await results(played)] == [("c1",), ("c2", "error")]


async def test_each_call_has_an_interrupt_of_its_own_B_322_B_323(client: httpx.AsyncClient, tools: ToolServer) -> None:
    """As the peer's mode `per_call`, but that an answered call waits until the round's last answer is there."""
    async with Model(THREE, "done") as model:
        played = await gate(client, model, tools, "pay", "mail")
        first, second = played.run["interrupts"]
        assert first["id"] != second["id"]
        assert await played.effects(tools) == [("free", {"x": "z"})]
        taken = await played.resume({"interrupt_id": second["id"], "decision": "reject", "message": "no"})
        assert (taken.status_code, taken.json()["status"]) == (202, "interrupted")
        assert [item["id"] for item in taken.json()["interrupts"]] == [first["id"]]
        assert (await played.again())["status"] == "interrupted"
        await played.resumed(APPROVE)
    assert await played.effects(tools) == [("free", {"x": "z"}), ("pay", {"amt": 5})]
    assert (await results(played))[2] == ("User rejected the tool call for `mail` with reason: no", "c3", "error")
    assert played.model_calls == 2


# --- answers that are wrong, late, or not answers ---------------------------------------------------------------------


@pytest.mark.parametrize("body", [{"foo": 1}, {"decisions": [{"type": "approve"}]}, {"responses": []}, {}, []])
async def test_an_answer_of_the_wrong_shape_changes_nothing_and_a_right_one_works_B_325_B_333(
    client: httpx.AsyncClient, tools: ToolServer, body: object
) -> None:
    """The peer's thread is stuck after it."""
    async with Model(ONE, "done") as model:
        played = await gate(client, model, tools)
        refused = await client.post(f"/runs/{played.run['id']}/resume", json=body)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
        assert refused.json()["errors"]
        before = played.run["interrupts"]
        assert (await played.again())["interrupts"] == before
        await played.resumed(APPROVE)
    assert (await played.effects(tools), played.answer) == ([("pay", {"amt": 5})], "done")


async def test_any_run_can_be_answered_also_one_without_a_thread_of_its_own_B_326(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    """In the peer a gate without a checkpointer asks, and cannot be answered."""
    async with Model(ONE, "done") as model:
        played = await gate(client, model, tools)
        listed = (await client.get("/threads")).json()["data"]
        assert played.run["thread_id"] not in [thread["id"] for thread in listed]
        await played.resumed(APPROVE)
    assert await played.effects(tools) == [("pay", {"amt": 5})]


async def test_a_message_instead_of_an_answer_is_refused_or_closes_the_open_call_B_327(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    async with Model(ONE, "okay, dropped") as model:
        waiting = await gate(client, model, tools)
        thread: dict[str, Any] = {"thread_id": waiting.run["thread_id"], "text": "never mind"}
        body = run_body(openai(model.base_url), *gated(tools), **thread)
        busy = await client.post("/runs", json=body)
        assert (busy.status_code, busy.json()["code"]) == (409, "thread_busy")
        played = await posted(client, model, *gated(tools), **thread, multitask_strategy="interrupt")
        _, said, result, last = seen(model.requests[-1])
    assert (said, result[2], last) == (asks(ONE), "c1", ("user", "never mind"))
    assert "cancelled" in str(result[1])
    assert (played.answer, played.model_calls) == ("okay, dropped", 2)
    assert ((await waiting.again())["status"], await waiting.effects(tools)) == ("cancelled", [])


async def test_what_never_waited_cannot_be_answered_B_328(client: httpx.AsyncClient, tools: ToolServer) -> None:
    """The peer calls its model with no messages."""
    async with Model(ONE, "done") as model:
        waiting = await gate(client, model, tools)
        answers = {"responses": [{"interrupt_id": waiting.run["interrupts"][0]["id"], **APPROVE}]}
        unknown = await client.post("/runs/01900000-0000-7000-8000-000000000000/resume", json=answers)
        assert (unknown.status_code, unknown.json()["code"]) == (404, "run_not_found")
        async with Model("over") as other:
            over = await posted(client, other)
            refused = await client.post(f"/runs/{over.run['id']}/resume", json=answers)
            assert (refused.status_code, refused.json()["code"]) == (404, "interrupt_not_found")
            assert over.model_calls == 1
        assert waiting.model_calls == 1
        await waiting.resumed(APPROVE)
    assert await waiting.effects(tools) == [("pay", {"amt": 5})]


async def test_the_model_is_not_asked_again_for_what_it_said_before_the_question_B_330(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    async with Model(ONE, "done") as model:
        played = await gate(client, model, tools)
        assert (played.model_calls, played.run["usage"]["model_calls"]) == (1, 1)
        await played.resumed(APPROVE)
    assert (played.model_calls, played.run["usage"]["model_calls"], played.run["iterations"]) == (2, 2, 2)
    assert seen(model.requests[1])[1] == asks(ONE)
