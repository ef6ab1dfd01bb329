"""Stop words: texts at which a model's answer ends, also where its server does not know them."""

from collections.abc import Sequence


class StopCut:
    """Ends a text that comes in pieces at the first stop word; the word itself is not part of it.

    What might be the beginning of one is held back until it is certain. Linear in the text.
    """

    __slots__ = ("_held", "_stop", "cut")

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = [word for word in stop if word]
        self._held = ""
        self.cut = False
        """A stop word came; nothing after it counts."""

    def feed(self, piece: str) -> str:
        """What is certainly part of the text by now."""
        if self.cut:
            return ""
        if not self._stop:
            return piece
        text = self._held + piece
        ends = [at for word in self._stop if (at := text.find(word)) >= 0]
        if ends:
            self.cut = True
            self._held = ""
            return text[: min(ends)]
        keep = len(text) - self._begun(text)
        self._held = text[keep:]
        return text[:keep]

    def rest(self) -> str:
        """At the end: what was held back and became no stop word."""
        held, self._held = self._held, ""
        return held

    def _begun(self, text: str) -> int:
        """How long the longest ending of `text` is that begins a stop word."""
        longest = 0
        for word in self._stop:
            for size in range(min(len(word) - 1, len(text)), longest, -1):
                if text.endswith(word[:size]):
                    longest = size
                    break
        return longest
