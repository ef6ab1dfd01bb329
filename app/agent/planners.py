"""Planners: how a model's answer becomes actions or a finish. Here the one for native tool calling."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from app.agent.context import model_messages
from app.agent.ports import (
    Decision,
    Delta,
    ModelAnswer,
    ModelCall,
    ModelRequest,
    ParseError,
    PlannedCall,
    ProposedAction,
    ProposedCall,
    ToolDefinition,
    ToolOutcome,
    Turn,
)
from app.agent.settings import AgentSettings
from app.core.actions import AgentActionMessageLog, AgentFinish, observation_text
from app.core.errors import ModelError
from app.core.json import encode_text
from app.core.messages import Message, OwnBlocks, ToolCall


class ToolCallingPlanner:
    """Multi-action: every tool call of one answer is an action; an answer without any is the finish."""

    multi_action = True

    def __init__(self, settings: AgentSettings, call_model: ModelCall, tools: Sequence[ToolDefinition]) -> None:
        self._settings = settings
        self._call_model = call_model
        self._tools = tools
        self._ids: set[str] | None = None

    async def plan(self, turn: Turn) -> AsyncGenerator[Delta | Decision]:
        settings = self._settings
        request = ModelRequest(
            messages=model_messages(settings, turn.messages, turn.before, turn.rounds),
            tools=self._tools,
            tool_choice=settings.tool_choice,
            parallel_tool_calls=settings.parallel_tool_calls,
            stream=settings.stream_output,
            call_index=turn.iteration - 1,
        )
        answer: ModelAnswer | None = None
        async with aclosing(self._call_model(request)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, ModelAnswer):
                    answer = chunk
                else:
                    yield chunk
        if answer is None:
            raise ModelError("The model client ended without an answer.", code="model_empty_response", retryable=True)
        yield self._decide(answer, turn)

    def observe(self, call: PlannedCall, outcome: ToolOutcome) -> Message:
        return Message(
            "tool",
            observation_text(outcome.observation),
            tool_call_id=call.provider_call_id,
            name=call.action.tool or None,
        )

    def _decide(self, answer: ModelAnswer, turn: Turn) -> Decision:
        if not answer.calls:
            return self._finish(answer)
        if self._ids is None:
            self._ids = {call.id for message in turn.messages for call in message.tool_calls}
        calls = tuple(
            ToolCall(
                self._unique(call.provider_id, turn), call.name, call.args if call.args is not None else call.raw_args
            )
            for call in answer.calls
        )
        message = Message(
            "assistant", answer.content or None, tool_calls=calls, provider_blocks=own_blocks(answer, calls)
        )
        handling = self._settings.handle_parsing_errors
        invalid = next((call for call in answer.calls if call.args is None), None)
        if invalid is not None and handling is False:
            return Decision(ParseError(_explain(invalid), invalid.raw_args), message, answer.tokens, answer.model)
        actions = tuple(
            ProposedAction(
                AgentActionMessageLog(
                    call.name, call.args, _log(call, "" if position else answer.content), message_log=(message,)
                ),
                call.id,
                None if said.args is not None else handling if isinstance(handling, str) else _explain(said),
            )
            for position, (call, said) in enumerate(zip(calls, answer.calls, strict=True))
        )
        return Decision(actions, message, answer.tokens, answer.model)

    def _finish(self, answer: ModelAnswer) -> Decision:
        text = answer.content or answer.refusal or ""
        if answer.finish_reason == "content_filter" and not text:
            raise ModelError("The provider's content filter withheld the answer.", code="content_filtered")
        if not text:
            cut = " It used up its output limit before it said anything." if answer.finish_reason == "length" else ""
            raise ModelError(
                f"The model gave an empty answer: no text and no tool call.{cut}",
                code="model_empty_response",
                retryable=True,
            )
        values: dict[str, object] = {"output": text}
        if answer.finish_reason == "length":
            values["truncated"] = True
        if answer.finish_reason == "content_filter":
            values["filtered"] = True
        if answer.refusal is not None:
            values["refusal"] = True
        message = Message("assistant", text, refusal=answer.refusal, provider_blocks=own_blocks(answer))
        return Decision(AgentFinish(values, text), message, answer.tokens, answer.model)

    def _unique(self, provider_id: str | None, turn: Turn) -> str:
        """The provider's id where it has one that no earlier call of the conversation carries, else a new one of ours."""
        ids = self._ids if self._ids is not None else set[str]()
        chosen = provider_id if provider_id and provider_id not in ids else turn.new_id()
        ids.add(chosen)
        return chosen


def own_blocks(answer: ModelAnswer, calls: Sequence[ToolCall] = ()) -> OwnBlocks | None:
    """The answer's own blocks as its message keeps them: calls by the ids that the conversation knows them by."""
    if answer.provider_blocks is None:
        return None
    return {
        provider: [calls[block].id if isinstance(block, int) else block for block in blocks]
        for provider, blocks in answer.provider_blocks.items()
    }


def _explain(call: ProposedCall) -> str:
    reason = call.error or "they are not a JSON object"
    return f"The arguments of `{call.name}` could not be read: {reason}. Call it again with one valid JSON object."


def _log(call: ToolCall, content: str) -> str:
    """AgentExecutor's log line of a tool-calling agent. What was said beside the calls is with the first one only."""
    args = call.args if isinstance(call.args, str) else encode_text(call.args)
    said = f"responded: {content}\n" if content else "\n"
    return f"\nInvoking: `{call.name}` with `{args}`\n{said}\n"
