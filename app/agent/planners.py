"""Planners: how a model's answer becomes actions or a finish. Here the one for native tool calling."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from app.agent.context import model_messages
from app.agent.observing import told_text
from app.agent.parse_policy import Handled, handle
from app.agent.ports import (
    Decision,
    ModelAnswer,
    ModelCall,
    ModelRequest,
    ParseError,
    Piece,
    PlannedCall,
    ProposedAction,
    ProposedCall,
    ToolCallDelta,
    ToolDefinition,
    ToolOutcome,
    Turn,
)
from app.agent.settings import AgentSettings
from app.agent.trimming import Trimmer
from app.core.actions import AgentActionMessageLog, AgentFinish
from app.core.errors import ModelError
from app.core.json import encode_text
from app.core.messages import Message, OwnBlocks, ToolCall

FINAL_DEMAND = "Give your final answer now, based on the previous steps. No tool can be called any more."

TEXT_ARGUMENT = "__arg1"

SAID_AGAIN = 2000
"""Characters said beside the calls of one answer that stand in the log of each; more are in the first one's only.

AgentExecutor repeats any length: 128 calls would store a long text 128 times.
"""


async def answered(chunks: AsyncGenerator[Piece | ModelAnswer]) -> AsyncGenerator[Piece | ModelAnswer]:
    """The deltas, then the answer, which must come and be the last. Raises `ModelError`."""
    async with aclosing(chunks):
        async for chunk in chunks:
            yield chunk
            if isinstance(chunk, ModelAnswer):
                return
    raise ModelError("The model client ended without an answer.", code="model_empty_response", retryable=True)


class ToolCallingPlanner:
    """Multi-action: every tool call of one answer is an action; an answer without any is the finish."""

    multi_action = True

    def __init__(
        self,
        settings: AgentSettings,
        call_model: ModelCall,
        tools: Sequence[ToolDefinition],
        trimmer: Trimmer | None = None,
    ) -> None:
        """`trimmer`: the rule of `settings.trim_intermediate_steps`, where it is more than a number."""
        self._settings = settings
        self._call_model = call_model
        self._tools = tools
        trim = settings.trim_intermediate_steps
        self._trimmer = trimmer or Trimmer(trim if isinstance(trim, int) else -1)
        self._ids: set[str] | None = None

    async def plan(self, turn: Turn) -> AsyncGenerator[Piece | Decision]:
        settings = self._settings
        request = ModelRequest(
            messages=self.messages(turn),
            tools=self._tools,
            tool_choice=settings.tool_choice,
            parallel_tool_calls=settings.parallel_tool_calls,
            stream=settings.stream_output,
            call_index=turn.iteration - 1,
        )
        async with aclosing(answered(self._call_model(request))) as chunks:
            async for chunk in chunks:
                yield await self._decide(chunk, turn) if isinstance(chunk, ModelAnswer) else chunk

    async def conclude(self, turn: Turn) -> AsyncGenerator[Piece | Decision]:
        """What the model still calls, without being offered anything, is left out."""
        request = ModelRequest(
            messages=[*self.messages(turn), Message("user", FINAL_DEMAND)],
            stream=self._settings.stream_output,
            call_index=turn.iteration - 1,
        )
        async with aclosing(answered(self._call_model(request))) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, ModelAnswer):
                    yield self._finish(replace(chunk, calls=(), provider_blocks=None))
                elif not isinstance(chunk, ToolCallDelta):
                    yield chunk

    def messages(self, turn: Turn) -> Sequence[Message]:
        return model_messages(self._settings, turn.messages, turn.before, turn.rounds, self._trimmer)

    def observe(self, call: PlannedCall, outcome: ToolOutcome) -> Message:
        return Message(
            "tool",
            told_text(outcome),
            tool_call_id=call.provider_call_id,
            name=call.action.tool or None,
            status=None if outcome.status == "success" else "error",
        )

    async def _decide(self, answer: ModelAnswer, turn: Turn) -> Decision:
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
        actions: list[ProposedAction] = []
        for call, said in zip(calls, answer.calls, strict=True):
            tool_input = _tool_input(call)
            said_here = answer.content if not actions or len(answer.content) <= SAID_AGAIN else ""
            log = _log(call.name, tool_input, said_here)
            action = AgentActionMessageLog(call.name, tool_input, log, message_log=(message,))
            actions.append(ProposedAction(action, call.id, None if said.args is not None else await self._told(said)))
        return Decision(tuple(actions), message, answer.tokens, answer.model)

    async def _told(self, call: ProposedCall) -> str:
        """What the model reads of a call that could not be read. It is answered as a call, so its reason always counts."""
        handling, reason = self._settings.handle_parsing_errors, _explain(call)
        if isinstance(handling, bool):
            return reason
        handled = await handle(handling, ParseError(reason, call.raw_args))
        return handled.observation if isinstance(handled, Handled) else reason

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
    """Whoever read the arguments says what was wrong with them and what to do (`ProposedCall.error`)."""
    reason = call.error or "They are not a JSON object. Call the tool again with its arguments as one JSON object."
    return f"The arguments of `{call.name}` could not be read. {reason}"


def _tool_input(call: ToolCall) -> str | dict[str, object]:
    """The arguments, or the text that LangChain's tools of one text argument come with (`{"__arg1": text}`)."""
    args = call.args
    if isinstance(args, dict) and isinstance(text := args.get(TEXT_ARGUMENT), str):
        return text
    return args


def _log(name: str, tool_input: str | dict[str, object], content: str) -> str:
    """AgentExecutor's log line of a tool-calling agent."""
    args = tool_input if isinstance(tool_input, str) else encode_text(tool_input)
    said = f"responded: {content}\n" if content else "\n"
    return f"\nInvoking: `{name}` with `{args}`\n{said}\n"
