"""The demo model: an offline stand-in that follows a few fixed rules, so that a fresh server can show a whole run.

It says what it is in every answer; of a structured answer it gives an example. It calls the tools `calculator`, `current_time` and `text_length` when they are
offered and the last user message asks for what they do, all that are asked for at once, and answers from their results.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import cast

from app.agent.ports import Delta, ModelAnswer, ModelRequest, ProposedCall, TextDelta, ToolCallDelta
from app.core.json import encode_text
from app.core.messages import Message
from app.core.usage import TokenUsage
from app.models.example_value import example

LABEL = "[demo model]"
"""The first words of every answer: nobody should take it for a language model."""

MAX_LOOKED_AT = 2000
"""Characters of a question, and of a result, that are looked at. The rules below need a bounded time for so many."""

# Every repetition that another could take over has a bound, and a match begins only where a number or bracket does.
_NUMBER = r"[(\-]{0,16}\d[\d.]{0,63}"
_EXPRESSION = re.compile(
    rf"(?<![\d.(\-]){_NUMBER}(?:\s{{0,8}}\){{0,16}}\s{{0,8}}(?:\*\*|//|[-+*/%^×÷])\s{{0,8}}{_NUMBER})+\){{0,16}}"
)
_TIME = re.compile(r"\b(time|date|clock|today)\b|几点|时间|日期|今天", re.IGNORECASE)
_TIMEZONE = re.compile(
    r"\b(UTC|(?:Africa|America|Antarctica|Asia|Atlantic|Australia|Europe|Indian|Pacific)/[A-Za-z_/+-]{1,64})"
)
_LENGTH = re.compile(r"\bhow long\b|\blength of\b|\bhow many characters\b|长度|多长|多少个?字", re.IGNORECASE)
_QUOTED = re.compile(r"""["“「]([^"”」“「]{1,2000})["”」]|(?<!\w)['‘]([^'’‘]{1,2000})['’](?!\w)""")
_UNQUOTED = re.compile(
    r"(?:\bhow long is|\blength of)\s{1,8}(?:the\s{1,8}(?:text|word)\s{1,8})?(\S.{0,2000})", re.IGNORECASE
)


class DemoModel:
    """A `ChatModel` without a model."""

    def __init__(self, *, model: str = "demo", delay_s: float = 0.015) -> None:
        """`delay_s`: seconds between two words, so that a watcher sees a stream."""
        self._model = model
        self._delay_s = delay_s

    @property
    def name(self) -> str:
        return self._model

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelAnswer]:
        """Answer by the rules. Never raises."""
        answer = decide(request, self._model)
        if request.stream:
            for word in re.findall(r"\S+\s*", answer.content):
                yield TextDelta(word)
                await asyncio.sleep(self._delay_s)
            for index, call in enumerate(answer.calls):
                yield ToolCallDelta(index, call.provider_id, call.name, call.raw_args)
                await asyncio.sleep(self._delay_s)
        yield answer


def decide(request: ModelRequest, model: str = "demo") -> ModelAnswer:
    """The whole answer to a request, by fixed rules: results first, then calls, then a word about itself."""
    question_at, question = _last_user(request.messages)
    question = question[:MAX_LOOKED_AT]
    names = {call.id: call.name for message in request.messages[question_at:] for call in message.tool_calls}
    results = [
        (names.get(message.tool_call_id or "", "tool"), _beginning(_text(message)))
        for message in request.messages[question_at:]
        if message.role == "tool"
    ]
    calls: tuple[ProposedCall, ...] = ()
    if results:
        text = " ".join(_SENTENCES.get(name, _plain)(name, result) for name, result in results)
    else:
        calls = _calls(question, request)
        asked = ", ".join(call.name for call in calls)
        text = f"I ask the tool{'s' if len(calls) > 1 else ''} {asked}." if calls else _about(request)
    content = f"{LABEL} {text}"
    if not calls and request.answer_format is not None:
        content = encode_text(example(request.answer_format.schema, LABEL))
    elif not calls:
        calls = _answer(request)
    said = sum(len(_text(message)) for message in request.messages)
    # About four characters a token, as everywhere in English text; a stand-in has nothing better to count.
    tokens = TokenUsage(said // 4 + 1, len(content) // 4 + 1, said // 4 + len(content) // 4 + 2)
    return ModelAnswer(content, calls, tokens, "tool_calls" if calls else "stop", model=model)


def _calls(question: str, request: ModelRequest) -> tuple[ProposedCall, ...]:
    if request.tool_choice == "none":
        return ()
    offered = {tool.name for tool in request.tools}
    wanted: list[tuple[str, dict[str, object]]] = []
    quoted = [first or second for first, second in _QUOTED.findall(question)] if _LENGTH.search(question) else []
    rest = _QUOTED.sub(" ", question) if quoted else question
    for match in _EXPRESSION.finditer(rest):
        expression = match.group().strip().replace("×", "*").replace("÷", "/").replace("^", "**")
        wanted.append(("calculator", {"expression": _balanced(expression)}))
    if _TIME.search(rest):
        zone = _TIMEZONE.search(rest)
        wanted.append(("current_time", {"timezone": zone.group(1)} if zone else {}))
    if _LENGTH.search(question):
        unquoted = _UNQUOTED.search(question)
        texts = quoted or ([unquoted.group(1).rstrip("?.! ")] if unquoted else [])
        wanted.extend(("text_length", {"text": text}) for text in texts)
    calls = [
        ProposedCall(name, args, f"demo_call_{request.call_index}_{index}", encode_text(args))
        for index, (name, args) in enumerate((name, args) for name, args in wanted if name in offered)
    ]
    return tuple(calls if request.parallel_tool_calls else calls[:1])


def _answer(request: ModelRequest) -> tuple[ProposedCall, ...]:
    """The call that gives the structured answer, where one is asked for."""
    tool = next((tool for tool in request.tools if tool.name == request.answer_tool), None)
    if tool is None:
        return ()
    args = cast("dict[str, object]", example(tool.parameters, LABEL))
    return (ProposedCall(tool.name, args, f"demo_call_{request.call_index}", encode_text(args)),)


def _balanced(expression: str) -> str:
    """Without the brackets that the text around it opened or closed."""
    while expression.count(")") > expression.count("(") and expression.endswith(")"):
        expression = expression[:-1]
    while expression.count("(") > expression.count(")") and expression.startswith("("):
        expression = expression[1:]
    return expression


def _about(request: ModelRequest) -> str:
    offered = {tool.name for tool in request.tools}
    skills = [skill for name, skill in _SKILLS.items() if name in offered]
    can = f"I can {', '.join(skills)}." if skills else "I was offered no tool that I know, so I can do nothing here."
    return (
        "I am no language model: I follow a few fixed rules, offline, to show how a run works. "
        f'{can} For real answers, give the agent a model such as "openai:NAME".'
    )


_SKILLS = {
    "calculator": "calculate (try: what is 2+3?)",
    "current_time": "tell the time (try: what time is it?)",
    "text_length": "measure a text (try: how long is 'hello'?)",
}


def _plain(name: str, result: str) -> str:
    return f"The tool {name} answered: {result}."


_SENTENCES: dict[str, Callable[[str, str], str]] = {
    "calculator": lambda _, result: f"The calculator says {result}.",
    "current_time": lambda _, result: f"The time is {result}.",
    "text_length": lambda _, result: f"The length is {result}.",
}


def _last_user(messages: Sequence[Message]) -> tuple[int, str]:
    """(position, text) of the last user message; (0, "") when there is none."""
    for position in range(len(messages) - 1, -1, -1):
        if messages[position].role == "user":
            return position, _text(messages[position])
    return 0, ""


def _beginning(text: str) -> str:
    return text if len(text) <= MAX_LOOKED_AT else text[:MAX_LOOKED_AT] + "…"


def _text(message: Message) -> str:
    if isinstance(message.content, list):
        return " ".join(str(part["text"]) for part in message.content if isinstance(part.get("text"), str))
    return message.content or ""
