"""The settings of an agent, checked and with their defaults. Names are LangChain's AgentExecutor's where it has them."""

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, Literal, cast

from app.agent.answer import AnswerSchema
from app.agent.parse_policy import Handling
from app.core.values import immutable


@immutable
class Limits:
    """Caps that stop a run with `stop_reason` `usage_limit`; `None` = no cap."""

    max_tool_calls: int | None = None
    max_tool_calls_per_round: int | None = 128
    """Calls of one answer beyond this get an error result each and are not sent. 128: Chat Completions' own cap on tools."""
    max_repeats: int | None = None
    """How often a round of calls may be repeated as it was, right after itself. The next time nothing is sent and the run stops."""
    max_total_tokens: int | None = None
    max_cost_usd: float | None = None


@immutable
class AgentSettings:
    type: str = "tool_calling"
    instructions: str | None = None
    prompt: str | Mapping[str, object] | None = None
    """A text agent's own template, or `{"template", "stop_sequence"}`."""
    tool_choice: str | Mapping[str, object] | None = "auto"
    parallel_tool_calls: bool = True
    max_parallel_tools: int = 16
    """How many calls of a round run at once."""
    max_iterations: int | None = 15
    """Planner rounds, not tool calls (AgentExecutor's default); `None` = no limit, 0 stops at once."""
    max_execution_time: float | None = None
    """Seconds of active time for the whole run, model and tools included; `None` = no limit."""
    early_stopping_method: Literal["force", "generate"] = "force"
    """At a limit: a fixed text, or one more model call without tools."""
    handle_parsing_errors: Handling = True
    handle_tool_errors: bool | str = True
    trim_intermediate_steps: int | Mapping[str, object] = -1
    """The model sees only this many last steps of the run; values below 1 = all. Or an object (`trimming.trim_of`)."""
    interrupt_on: Mapping[str, object] = field(default_factory=dict[str, object])
    """By tool: when a person is asked about a call, `true` or `{"when": schema, "expires_s"}`. For the tool runner."""
    return_intermediate_steps: bool = False
    stream_output: bool = True
    limits: Limits = field(default_factory=Limits)
    answer: AnswerSchema | None = None
    """What the answer must be, where the agent has an `output_schema`: put in by whoever compiled it."""

    @property
    def answer_tool(self) -> str | None:
        """The tool by which the structured answer is given, where it is given so."""
        return None if self.answer is None else self.answer.tool

    @classmethod
    def from_json(cls, body: Mapping[str, object]) -> "AgentSettings":
        """From a checked AgentSpec; fields that are not the loop's (model, tools, name…) are left alone."""
        known = {item.name for item in fields(cls)} - {"limits", "answer"}
        values = {name: value for name, value in body.items() if name in known}
        caps = cast("Mapping[str, Any]", body.get("limits") or {})
        limits = Limits(**{item.name: caps[item.name] for item in fields(Limits) if item.name in caps})
        return cls(**values, limits=limits)  # pyright: ignore[reportArgumentType]
