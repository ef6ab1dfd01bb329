"""The XML parser: `<tool>`, `<tool_input>` and `<final_answer>` elements."""

from app.agent.parsers.port import SETTLE, Parsed, Reader, Spoken
from app.agent.parsers.unfinished import Unfinished, letters
from app.agent.ports import ParseError, ReasoningDelta, TextDelta
from app.core.actions import AgentAction, AgentFinish
from app.core.values import immutable

ESCAPES = tuple(
    (f"<{slash}{name}>", f"[[{slash}{name}]]") for name in ("tool", "tool_input", "observation") for slash in ("", "/")
)
"""How the format's own tags are written inside a value (LangChain's "minimal" escapes)."""

_TOOL, _ANSWER, _ANSWER_END = "<tool>", "<final_answer>", "</final_answer>"
_NEITHER = "Malformed output: expected either a tool invocation or a final answer in XML format."


def escaped(text: str) -> str:
    """`text` with the format's tags written so that no reader takes them for tags."""
    if "<" in text:
        for tag, escape in ESCAPES:
            text = text.replace(tag, escape)
    return text


def unescaped(text: str) -> str:
    """The inverse of `escaped`."""
    if "[[" in text:
        for tag, escape in ESCAPES:
            text = text.replace(escape, tag)
    return text


@immutable
class XmlParser:
    """Reads what LangChain's `XMLAgentOutputParser` reads, with its words for what is malformed.

    Beyond LangChain: malformed text is an error the model can be told; an input whose end tag the stop sequence took away
    is whole; what follows an invented `<observation>` is cut off.
    """

    def parse(self, text: str) -> Parsed:
        answer = text.find(_ANSWER)
        if answer >= 0 and _settled(text, answer):
            return _finish(text)
        tools = _elements(text, "tool")
        if not tools:
            return _finish(text)
        fake = text.find("<observation>", tools[0][1])
        end = fake if fake >= 0 else len(text)
        count = sum(1 for start, _ in tools if start < end)
        if count != 1:
            return _malformed(f"Malformed tool invocation: expected exactly one <tool> block, but found {count}.", text)
        said = text[:end]
        inputs = _elements(said, "tool_input")
        if len(inputs) > 1:
            return _malformed(
                f"Malformed tool invocation: expected at most one <tool_input> block, but found {len(inputs)}.", text
            )
        start, stop = inputs[0] if inputs else _open_input(said)
        name = text[slice(*tools[0])]
        return AgentAction(unescaped(name), unescaped(said[start:stop]), text)

    def reader(self) -> Reader:
        return Reader(self, XmlTracker())


def _settled(text: str, answer: int) -> bool:
    """Whether the answer goes on for so long without an end or a tool that nothing can take it back."""
    start = answer + len(_ANSWER)
    edge = start + SETTLE
    return (
        len(text) >= edge
        and text.find(_TOOL, 0, edge + len(_TOOL) - 1) < 0
        and text.find(_ANSWER_END, start, edge + len(_ANSWER_END) - 1) < 0
    )


def _finish(text: str) -> AgentFinish | ParseError:
    answers = _elements(text, "final_answer")
    if not answers:
        return _malformed(_NEITHER, text)
    if len(answers) > 1:
        return _malformed("Malformed output: expected exactly one <final_answer>...</final_answer> block.", text)
    return AgentFinish({"output": unescaped(text[slice(*answers[0])])}, text)


def _elements(text: str, name: str) -> list[tuple[int, int]]:
    """Where the contents of every whole element stand, in order; an element ends at the first end tag."""
    begin, end = f"<{name}>", f"</{name}>"
    found: list[tuple[int, int]] = []
    start = text.find(begin)
    while start >= 0:
        start += len(begin)
        stop = text.find(end, start)
        if stop < 0:
            break
        found.append((start, stop))
        start = text.find(begin, stop + len(end))
    return found


def _open_input(text: str) -> tuple[int, int]:
    """The input up to the text's end, empty when none begins."""
    start = text.find("<tool_input>")
    return (start + len("<tool_input>"), len(text)) if start >= 0 else (0, 0)


def _malformed(message: str, text: str) -> ParseError:
    """Told to the model as the observation: this format's scratchpad shows no log."""
    return ParseError(message, text, message, True)


class XmlTracker:
    """Follows an XML text while it comes: thinking up to the first tag, the answer once it is certain."""

    __slots__ = ("_answering", "_buffer", "_certain", "_silent")

    _BEGUN = Unfinished(letters(_TOOL), letters(_ANSWER), longest=len(_ANSWER))
    _INSIDE = Unfinished(letters(_TOOL), letters(_ANSWER_END), longest=len(_ANSWER_END))
    _ANSWERED = Unfinished(letters(_ANSWER_END), *(letters(escape) for _, escape in ESCAPES), longest=len(_ANSWER_END))

    def __init__(self) -> None:
        self._buffer = ""
        self._answering = self._certain = self._silent = False

    def feed(self, delta: str) -> list[Spoken]:
        if self._silent:
            return []
        text = self._buffer + delta
        spoken: list[Spoken] = []
        if not self._answering:
            tags = [at for at in (text.find(_TOOL), text.find(_ANSWER)) if at >= 0]
            end = min(tags) if tags else self._BEGUN.start(text)
            if end:
                spoken.append(ReasoningDelta(text[:end]))
            text = text[end:]
            self._silent = text.startswith(_TOOL)
            self._answering = bool(tags) and not self._silent
            if self._answering:
                text = text[len(_ANSWER) :]
        if self._answering and not self._certain:
            tags = [at for at in (text.find(_TOOL), text.find(_ANSWER_END)) if at >= 0]
            known = min(tags) if tags else self._INSIDE.start(text)
            self._certain = known >= SETTLE
            self._silent = bool(tags) and not self._certain
        if self._certain:
            end = text.find(_ANSWER_END)
            self._silent = end >= 0
            end = end if end >= 0 else self._ANSWERED.start(text)
            told = unescaped(text[:end])
            text = text[end:]
            if told:
                spoken.append(TextDelta(told))
        self._buffer = "" if self._silent else text
        return spoken

    def rest(self) -> str:
        return "" if self._answering else self._buffer
