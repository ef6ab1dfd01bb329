"""The structured chat parser: the whole answer is a JSON blob `{"action", "action_input"}`, bare or in a code fence."""

from app.agent.parsers.json_answer import JsonTracker
from app.agent.parsers.json_blob import FENCE, decision, read_blob, unreadable
from app.agent.parsers.port import Parsed, Reader
from app.core.values import immutable


@immutable
class StructuredChatParser:
    """Reads what LangChain's `JSONAgentOutputParser` reads, which its structured chat and JSON chat agents use.

    Of several blobs the first counts; what stands around it is taken for commentary; a blob that was cut off is completed.
    """

    def parse(self, text: str) -> Parsed:
        start = len(text) - len(text.lstrip())
        if text[start : start + 1] not in ("{", "["):
            fence = FENCE.search(text)
            if fence is None:
                return unreadable(text)
            start = fence.end()
        blob = read_blob(text, start)
        return unreadable(text) if blob is None else decision(blob.value, text)

    def reader(self) -> Reader:
        return Reader(self, JsonTracker())
