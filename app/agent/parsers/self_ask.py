"""The self-ask parser: `Follow up:` questions for one tool, then `So the final answer is:`."""

import re

from app.agent.parsers.port import Parsed, Reader, Spoken
from app.agent.ports import ParseError, ReasoningDelta
from app.core.actions import AgentAction, AgentFinish
from app.core.values import immutable

_FOLLOW_UP = re.compile(r"Follow ?up[ \t]{0,4}+[:：]")
_ANSWER = re.compile(r"So the final answer is[ \t]{0,4}+[:：]")
_KEYWORD = re.compile(r"Follow ?up[ \t]{0,4}+[:：]|So the final answer is[ \t]{0,4}+[:：]")
_INTERMEDIATE = re.compile(r"\n[ \t]{0,8}+Intermediate answer[ \t]{0,4}+[:：]", re.IGNORECASE)


@immutable
class SelfAskParser:
    """Reads what LangChain's `SelfAskOutputParser` reads: the last line decides.

    Beyond LangChain: colons inside a question, text before the keyword, empty lines at the end; an intermediate answer the
    model invented after its own question is cut off.
    """

    tool: str = "Intermediate Answer"
    """The name of the one tool that answers questions."""

    def parse(self, text: str) -> Parsed:
        invented = _INTERMEDIATE.search(text)
        if invented is not None:
            question = self._question(text[: invented.start()])
            if question is not None:
                return AgentAction(self.tool, question, text)
        question = self._question(text)
        if question is not None:
            return AgentAction(self.tool, question, text)
        answer = _after_last(_ANSWER, _last_line(text))
        if answer is not None:
            return AgentFinish({"output": answer}, text)
        return ParseError(f"Could not parse output: {text}")

    def reader(self) -> Reader:
        return Reader(self, LineTracker())

    def _question(self, text: str) -> str | None:
        return _after_last(_FOLLOW_UP, _last_line(text))


def _last_line(text: str) -> str:
    text = text.rstrip()
    return text[text.rfind("\n") + 1 :]


def _after_last(keyword: re.Pattern[str], line: str) -> str | None:
    end = None
    for found in keyword.finditer(line):
        end = found.end()
    return None if end is None else line[end:].strip()


class LineTracker:
    """Gives each line without a keyword as thinking. An answer is certain only at the end: the last line decides."""

    __slots__ = ("_line", "_silent")

    def __init__(self) -> None:
        self._line: list[str] = []
        self._silent = False

    def feed(self, delta: str) -> list[Spoken]:
        if self._silent:
            return []
        cut = delta.rfind("\n") + 1
        if not cut:
            self._line.append(delta)
            return []
        lines = "".join([*self._line, delta[:cut]])
        found = _KEYWORD.search(lines)
        if found is not None:
            self._silent = True
            lines = lines[: lines.rfind("\n", 0, found.start()) + 1]
        self._line = [delta[cut:]]
        return [ReasoningDelta(lines)] if lines else []

    def rest(self) -> str:
        line = "".join(self._line)
        return "" if self._silent or _KEYWORD.search(line) is not None else line
