"""Text from elsewhere (models, tools, servers, people) made fit for a terminal."""

import json
import re

_KEPT = {ord("\n"), ord("\t")}
_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Overrides of the writing direction: they make a line show other than what it says."""
_CONTROLS = {code: None for code in (*range(32), *range(127, 160), *_BIDI) if code not in _KEPT}
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|(?:\x1b[\]P^_X]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)"  # OSC and its kind: titles, links
)


def plain(text: str) -> str:
    """`text` without escape sequences and control characters; line ends and tabs stay."""
    if "\x1b" in text or any("\x80" <= char <= "\x9f" for char in text):
        text = _SEQUENCE.sub("", text)
    return text.translate(_CONTROLS)


def one_line(value: object, limit: int | None = None) -> str:
    """A value on one line: text as it is, anything else as JSON; at most `limit` characters, the cut marked."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if limit is not None:
        text = text[: 4 * limit + 4096]  # what follows costs by length, and little of it is shown
    text = " ".join(plain(text).split())
    return text if limit is None or len(text) <= limit else text[: limit - 3] + "..."


def seconds(duration_ms: object) -> str:
    """A duration in milliseconds for people: `4.9 ms`, `1.25 s`, `3 min 20 s`; empty for what is none."""
    if not isinstance(duration_ms, int | float):
        return ""
    if duration_ms < 1000:
        return f"{duration_ms:.3g} ms" if duration_ms < 100 else f"{duration_ms:.0f} ms"
    whole = duration_ms / 1000
    return f"{whole:.3g} s" if whole < 60 else f"{int(whole) // 60} min {int(whole) % 60} s"
