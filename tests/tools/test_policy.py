"""The policy behind its wall, and the order in which the authority asks."""

import asyncio
from typing import cast

import pytest

from app.core.principal import Principal
from app.tools.authority import Authority
from app.tools.plugin_api import tool
from app.tools.plugins import PluginSet
from app.tools.policy import Policy
from app.tools.policy_api import PolicyAnswer, PolicyRequest, ToolPolicy
from app.tools.service import ToolService
from tests.tools.support import ME, Bench, call, ran

pytestmark = pytest.mark.anyio


@tool(effect="write", idempotent=True, scopes=["orders:write"])
async def refund(order: str) -> str:
    """For tests."""
    return f"refunded {order}"


class Asked:
    """A policy that keeps what it was asked and answers in turn; the last answer stays."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.requests: list[PolicyRequest] = []

    async def __call__(self, request: PolicyRequest) -> PolicyAnswer:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return cast("PolicyAnswer", answer)

    def policy(self) -> Policy:
        async def ask(request: PolicyRequest) -> PolicyAnswer:
            return await self(request)

        return Policy(ToolPolicy(ask, "asked"))


def bench(authority: Authority) -> Bench:
    made = Bench.make()
    made.service = ToolService(
        made.registry, made.secrets, PluginSet([refund]), made.service._egress, made.http, authority=authority
    )
    return made


async def test_a_call_that_a_restart_takes_up_is_asked_about_again() -> None:
    asked = Asked("allow", ("deny", "no more"))
    at = bench(Authority(policy=asked.policy()))
    bound = await at.bound("refund")
    wanted = call("refund", {"order": "A1"})
    assert (await ran(bound.run(wanted))).status == "success"
    again = await ran(bound.run(wanted, sent_before=1))
    assert [request.tool_call_id for request in asked.requests] == [wanted.tool_call_id] * 2
    assert (again.status, len(at.journal.dispatches)) == ("unknown", 1)  # it was sent before: no denial
    assert again.error is not None
    assert again.error["code"] == "policy_denied"


async def test_scopes_come_before_the_policy_and_must_be_held_now_too() -> None:
    asked = Asked("allow")
    held = [
        frozenset({"runs:write", "orders:write"}),
        frozenset({"runs:write"}),
        frozenset({"orders:write"}),
        frozenset[str](),
    ]

    async def current(tenant: str, subject: str, /) -> frozenset[str] | None:
        assert (tenant, subject) == (ME.tenant, ME.subject)
        return held.pop(0)

    bound = await (at := bench(Authority(current_scopes=current, policy=asked.policy()))).bound("refund")
    found = [(await ran(bound.run(call("refund", {"order": "A1"})))).status for _ in range(4)]
    assert (found, len(asked.requests), len(at.journal.dispatches)) == (["success", *["denied"] * 3], 1, 1)
    poor = await at.bound("refund", context=at.context(Principal(ME.tenant, ME.subject, frozenset({"runs:write"}))))
    assert (await ran(poor.run(call("refund", {"order": "A1"})))).status == "denied"
    assert len(asked.requests) == 1


async def test_a_policy_that_does_not_come_to_a_verdict_denies() -> None:
    async def for_ever(_: PolicyRequest) -> PolicyAnswer:
        await asyncio.Event().wait()
        return "allow"

    at = bench(Authority(policy=Policy(ToolPolicy(for_ever, "slow"), answer_s=0.01)))
    outcome = await ran((await at.bound("refund")).run(call("refund", {"order": "A1"})))
    assert outcome.error is not None
    assert (outcome.status, outcome.error["code"], at.journal.dispatches) == ("denied", "policy_failed", [])


@pytest.mark.parametrize(
    "answer",
    [True, 1, None, "", "yes", "Allow", b"allow", ["allow", "x"], ("allow",), ("allow", 1), ("allow", "x", "y")],
)
async def test_no_answer_but_the_word_is_a_yes(answer: object) -> None:
    at = bench(Authority(policy=Asked(answer).policy()))
    outcome = await ran((await at.bound("refund")).run(call("refund", {"order": "A1"})))
    assert (outcome.status, at.journal.dispatches) == ("denied", [])
