"""The ReAct JSON parser: thinking, then an action as a JSON blob in a code fence, or `Final Answer:` and plain text."""

from app.agent.parsers.json_blob import Blob, decision, read_blob, unreadable
from app.agent.parsers.keywords import (
    ANSWER,
    ANSWER_OR_FENCE,
    ANSWER_OR_FENCE_BEGUN,
    ANSWER_OR_JSON,
    MOST_MARKERS,
    Finder,
    KeywordTracker,
    Word,
    closing_mark,
)
from app.agent.parsers.port import SETTLE, Parsed, Reader
from app.agent.parsers.trimming import before_observation, trimmed
from app.core.actions import AgentFinish
from app.core.values import immutable


@immutable
class ReactJsonParser:
    """Reads what LangChain's `ReActJsonSingleInputOutputParser` reads: of a final answer and an action the answer wins.

    Beyond LangChain: fences of any language, fences inside the JSON, `Final Answer:` inside the blob belongs to the blob.
    """

    def parse(self, text: str) -> Parsed:
        first: Word | None = None
        marker: Word | None = None
        blob: Blob | None = None
        words, finder, position, markers = ANSWER_OR_JSON, Finder(text), 0, 0
        while markers < MOST_MARKERS and (found := finder.next(words, position)) is not None:
            if marker is not None and found.start >= marker.end + SETTLE:
                break
            position = found.end
            words = ANSWER  # an answer wins, and of several blobs the first one counts
            if found.kind == "final":
                first, marker = first or found, found
                markers += 1
            else:
                blob = read_blob(text, found.end)
                if blob is None or blob.cut_off or not _closes(text, blob.end):
                    break
                position = blob.end
        if first is not None and marker is not None:
            told = trimmed(before_observation(text, marker.end), closing_mark(text, first, marker))
            return AgentFinish({"output": told}, text)
        if blob is None or blob.cut_off or not _closes(text, blob.end):
            return unreadable(text)
        return decision(blob.value, text)

    def reader(self) -> Reader:
        return Reader(self, KeywordTracker(ANSWER_OR_FENCE, ANSWER_OR_FENCE_BEGUN))


def _closes(text: str, at: int) -> bool:
    """Whether the fence ends right behind the blob: only then is the action whole."""
    fence = text.find("```", at)
    return fence >= 0 and not text[at:fence].strip()
