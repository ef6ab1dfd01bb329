"""The peers' retries and error handling, case by case: of models over HTTP, of tools at their real servers."""

from itertools import pairwise

import httpx
import pytest

from app.tools.attempt import backoff_s
from tests.agent_loop.support import Call, Model, posted, seen
from tests.support.bodies import tool_spec
from tests.support.chat_completions import fails
from tests.support.tool_server import ToolServer

pytestmark = pytest.mark.anyio

NOW = {"Retry-After": "0"}


async def test_a_model_that_fails_for_good_ends_the_run_with_its_last_error_B_232_B_233(
    client: httpx.AsyncClient,
) -> None:
    """The peer's default makes an answer of the exception's text; here an error is never the answer (B-235: nor a text of one's own)."""
    async with Model(*(fails(503, word, headers=NOW) for word in ("first", "second", "third")), "never") as model:
        played = await posted(client, model, "echo")
    assert (played.run["status"], played.run["output"]) == ("error", None)
    assert (played.run["error"]["code"], played.run["error"]["retryable"]) == ("model_unavailable", True)
    assert "third" in played.run["error"]["message"]
    assert played.model_calls == 3


async def test_a_model_that_comes_back_in_time_is_only_slower_B_232(client: httpx.AsyncClient) -> None:
    async with Model(fails(503, "down", headers=NOW), fails(429, "busy", headers=NOW), "here") as model:
        played = await posted(client, model)
    assert (played.answer, played.run["usage"]["model_calls"], played.model_calls) == ("here", 1, 3)


async def test_an_error_that_will_not_pass_is_not_tried_again_B_236(client: httpx.AsyncClient) -> None:
    """The peer retries any exception, and here its limit is 0."""
    async with Model(fails(400, "down"), "never") as model:
        played = await posted(client, model)
    assert (played.run["error"]["code"], played.model_calls) == ("model_bad_request", 1)


# --- tools ------------------------------------------------------------------------------------------------------------


async def test_two_failures_and_then_a_success_are_one_step_B_241(client: httpx.AsyncClient, tools: ToolServer) -> None:
    spec = tool_spec("flaky", tools.url("/503-then-ok?times=2"), effect="read")
    async with Model([("c1", "flaky", {"x": "1"})], "ok") as model:
        played = await posted(client, model, spec)
    step = await played.step()
    assert (step["status"], [attempt["http_status"] for attempt in step["attempts"]]) == ("success", [503, 503, 200])
    assert (len(await played.effects(tools)), played.run["usage"]["tool_calls"], played.answer) == (1, 1, "ok")


@pytest.mark.parametrize(("handling", "ends"), [(True, "success"), (False, "error")])
async def test_a_tool_that_fails_for_good_is_told_or_ends_the_run_B_243(
    client: httpx.AsyncClient, tools: ToolServer, *, handling: bool, ends: str
) -> None:
    spec = tool_spec("dead", tools.url("/retryable"), effect="read", retry={"max_attempts": 2})
    async with Model([("c1", "dead", {"x": "1"})], "ok") as model:
        played = await posted(client, model, spec, agent={"handle_tool_errors": handling})
    step = await played.step()
    assert (step["status"], step["observation"], len(step["attempts"])) == ("error", "Busy.", 2)
    assert played.run["status"] == ends
    assert (played.run["error"] and played.run["error"]["code"]) == (None if handling else "tool_error")
    assert played.model_calls == (2 if handling else 1)


async def test_an_error_that_is_definite_is_not_tried_again_B_245(client: httpx.AsyncClient, tools: ToolServer) -> None:
    """What may be tried again is not a setting: it follows from what is known of the attempt."""
    spec = tool_spec("vdead", tools.url("/error"), effect="read", retry={"max_attempts": 5})
    async with Model([("c1", "vdead", {"x": "1"})], "ok") as model:
        played = await posted(client, model, spec, agent={"handle_tool_errors": False})
    step = await played.step()
    assert (step["observation"], len(step["attempts"])) == ("No such order.", 1)
    assert (played.run["error"]["code"], played.model_calls) == ("tool_error", 1)


def test_waits_between_attempts_double_up_to_a_cap_B_247() -> None:
    """The peer's are settings; these are fixed, and spread by chance."""
    longest = [backoff_s(tries, 1.0) for tries in range(1, 11)]
    shortest = [backoff_s(tries, 0.0) for tries in range(1, 11)]
    assert longest == sorted(longest)
    assert all(later == pytest.approx(2 * before) for before, later in pairwise(longest) if later < 30)
    assert longest[-1] == 30
    assert all(low < high for low, high in zip(shortest, longest, strict=True))


# --- what an error becomes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("handling", ["dead failed", True])
async def test_an_exception_becomes_a_failed_result_and_its_siblings_is_kept_B_251(
    client: httpx.AsyncClient, handling: object
) -> None:
    """B-502: with `true` any exception is told, but only a deliberate one in its own words."""
    made: list[Call] = [("c1", "boom", {"x": "1"}), ("c2", "echo", {"x": "2"})]
    async with Model(made, "ok") as model:
        played = await posted(client, model, "boom", "echo", agent={"handle_tool_errors": handling})
    _, _, failed, kept, last = await played.said()
    assert failed[2:] == ("c1", "error")
    assert failed[1] == handling if isinstance(handling, str) else "kaput" not in str(failed[1])
    assert (kept, last) == (("tool", "echo:2", "c2"), ("assistant", "ok"))


async def test_an_unhandled_exception_ends_the_run_after_every_call_has_its_result_B_252_B_501(
    client: httpx.AsyncClient,
) -> None:
    """B-501: the peer's default. Its words stay in the log."""
    made: list[Call] = [("c1", "boom", {"x": "1"}), ("c2", "echo", {"x": "2"})]
    async with Model(made, "never") as model:
        played = await posted(client, model, "boom", "echo", agent={"handle_tool_errors": False})
    assert (played.run["status"], played.run["error"]["code"]) == ("error", "tool_error")
    assert "kaput" not in str(played.run)
    assert [item[2] for item in await played.said() if item[0] == "tool"] == ["c1", "c2"]
    assert played.model_calls == 1


@pytest.mark.parametrize("handling", [False, True, "fixed words"])
@pytest.mark.parametrize(("name", "words"), [("echo", '"x"'), ("nope", "nope is not a valid tool, try one of [echo].")])
async def test_what_was_never_called_is_told_however_errors_are_handled_B_501_B_502_B_505(
    client: httpx.AsyncClient, handling: object, name: str, words: str
) -> None:
    """Wrong arguments and unknown tools are no errors of a tool; in the peer the handling decides about the first."""
    async with Model([("c1", name, {})], "ok") as model:
        played = await posted(client, model, "echo", agent={"handle_tool_errors": handling})
        (told,) = seen(model.requests[1])[2:]
    assert (words in str(told[1]), played.answer) == (True, "ok")


async def test_a_run_that_failed_in_a_tool_is_over_and_the_thread_goes_on_from_it_B_557(
    client: httpx.AsyncClient, tools: ToolServer
) -> None:
    """The peer can be given nothing, and tries the tool again; here nothing is a refused input, and no call is ever repeated by a new run."""
    dead = tool_spec("dead_once", tools.url("/error"), effect="read")
    settings = {"handle_tool_errors": False}
    async with Model([("c1", "dead_once", {})], "after") as model:
        failed = await posted(client, model, dead, agent=settings)
        assert failed.run["error"]["code"] == "tool_error"
        thread = {"thread_id": failed.run["thread_id"]}
        on = await posted(client, model, dead, agent=settings, text="go on", **thread)
        shown = seen(model.requests[-1])
    assert [item[0] for item in shown] == ["user", "assistant", "tool", "user"]
    assert shown[2] == ("tool", "No such order.", "c1")
    assert (on.answer, await on.steps(), on.model_calls) == ("after", [], 2)
