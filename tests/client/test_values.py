"""Values of a server of this version, of an older and of a later one."""

from datetime import UTC, datetime

import pytest

from app.client import Interrupt, Run, Step
from app.client.values import NotOurs
from tests.client.network import run_json


def test_a_run_has_every_field_of_the_contract() -> None:
    step = {"step": 1, "status": "success", "action": {"tool": "echo"}, "duration_ms": 1.5, "observation": ["a"]}
    data = run_json(later={"x": 1}, intermediate_steps=[step], interrupts=[{"id": "i", "reason": "later"}])
    run = Run.of(data)
    assert run == Run(
        id="run-1",
        status="success",
        thread_id="thread-1",
        agent="demo",
        stop_reason="finish",
        input="hi",
        output={"output": "done"},
        interrupts=[Interrupt("i", "later", data={"id": "i", "reason": "later"})],
        iterations=1,
        attempt=1,
        usage={"total_tokens": 3},
        created_at=datetime(2026, 1, 31, 12, 0, 0, 123000, UTC),
        started_at=datetime(2026, 1, 31, 12, 0, 0, 200000, UTC),
        intermediate_steps=[Step.of(step)],
        data=data,
    )
    assert (run.text, run.ok, run.finished) == ("done", True, True)
    assert run.intermediate_steps is not None
    assert run.intermediate_steps[0].tool == "echo"


def test_a_run_of_another_version_misses_and_has_other_fields() -> None:
    run = Run.of({"id": "r", "status": "dreaming", "output": "text", "usage": None, "created_at": "today", "error": 1})
    assert (run.text, run.ok, run.finished, run.usage, run.created_at) == (None, False, False, {}, None)
    assert run.data["output"] == "text"
    structured = Run.of({"id": "r", "status": "success", "output": {"output": {"a": 1}}})
    assert structured.text is None
    assert structured.output == {"output": {"a": 1}}


def test_a_structured_answer_is_read_as_data() -> None:
    body = {"id": "r", "status": "success"}
    assert Run.of({**body, "output": {"output": "[1]", "structured": [1]}}).structured == [1]
    assert Run.of({**body, "output": {"output": "stopped"}}).structured is None
    assert Run.of({**body, "output": None}).structured is None


@pytest.mark.parametrize("value", [None, [], "run", {}, {"id": "r"}, {"id": 1, "status": "success"}])
def test_what_lacks_an_id_or_a_status_is_no_run(value: object) -> None:
    with pytest.raises(NotOurs):
        Run.of(value)


def test_values_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Run("r", "success").status = "error"  # pyright: ignore[reportAttributeAccessIssue]
