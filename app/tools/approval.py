"""Approval: when a call asks a person first, and what they may decide."""

from collections.abc import Mapping, Sequence
from typing import Literal, cast

from app.core.values import immutable
from app.tools.schema import ArgumentSchema, check_schema

APPROVAL_S = 7 * 86_400.0
"""How long a person has by default: a week, so that a weekend does not reject what was asked on a Friday."""

Decision = Literal["approve", "edit", "reject", "respond"]

APPROVAL_DECISIONS: tuple[Decision, ...] = ("approve", "edit", "reject", "respond")
CLIENT_DECISIONS: tuple[Decision, ...] = ("respond", "reject")


@immutable
class ApprovalRule:
    """One reason to ask. `when`: a schema of the arguments; a call is asked about where they fit it."""

    when: ArgumentSchema | None = None
    expires_s: float = APPROVAL_S

    def asks(self, arguments: Mapping[str, object]) -> bool:
        """JSON Schema says nothing of what is missing or of another type, so in doubt this is true; so it is on any fault."""
        if self.when is None:
            return True
        try:
            return self.when.is_valid(arguments)
        except ValueError:
            return True


def rule_of(setting: object, pointer: str = "") -> ApprovalRule | None:
    """The rule of a `requires_approval`: `true`, `false`, or `{"when": schema, "expires_s": seconds}`.

    Raises `InvalidRequest` for a schema that cannot be used.
    """
    if not isinstance(setting, Mapping):
        return ApprovalRule() if setting is True else None
    fields = cast("Mapping[str, object]", setting)
    when = fields.get("when")
    schema = (
        None if when is None else check_schema({"type": "object", **cast("dict[str, object]", when)}, f"{pointer}/when")
    )
    return ApprovalRule(schema, cast("float", fields.get("expires_s") or APPROVAL_S))


def asking(rules: Sequence[ApprovalRule], arguments: Mapping[str, object]) -> ApprovalRule | None:
    """The first rule that asks about a call; the tool's and the agent's all count, so an agent can only be stricter."""
    return next((rule for rule in rules if rule.asks(arguments)), None)
