"""The answer inside a JSON blob while it comes: the string of `action_input` once `action` is known to be the answer."""

import json
import re
from collections.abc import Callable

from app.agent.parsers.json_blob import FENCE, FINAL_ACTION
from app.agent.parsers.port import Spoken
from app.agent.parsers.trimming import WHITE
from app.agent.ports import ReasoningDelta, TextDelta

_MEMBER = re.compile(r'[ \t\r\n,]*+"([^"\\]{0,64}+)"[ \t\r\n]*+:[ \t\r\n]*+(?=[^ \t\r\n])')
_NAME = re.compile(r'"([^"\\]{0,64}+)"')
_SCALAR = re.compile(r"[-+.\w]{1,64}+(?=[^-+.\w])")
_SKIPPED = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)
_HEX = "[0-9a-fA-F]"
_RUN = re.compile(
    rf'(?:[^"\\]++|\\(?:["\\/bfnrt]|u(?!0000|[dD][89a-fA-F]){_HEX}{{4}}|u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}))++'
)
"""Whole characters of a string: no half of a pair, no U+0000 (the blob is unreadable then)."""

_LONGEST_ESCAPE = len("\\ud83d\\ude00")
_LONGEST_WAIT = 512
"""Characters after which something unfinished between two values is given up: the answer then comes at the end."""


class JsonTracker:
    """Thinking up to the blob, then the answer. Whatever is unusual is left to the end, where the whole is read."""

    __slots__ = ("_at_start", "_buffer", "_final", "_state")

    def __init__(self) -> None:
        self._buffer = ""
        self._at_start = True
        self._final = False
        self._state: Callable[[str], tuple[str, list[Spoken]] | None] | None = self._before

    def feed(self, delta: str) -> list[Spoken]:
        if self._state is None:
            return []
        text = self._buffer + delta
        spoken: list[Spoken] = []
        while self._state is not None:
            state = self._state
            step = state(text)
            if step is None:
                if state not in (self._string, self._before) and len(text) > _LONGEST_WAIT:
                    self._state = None
                break
            text, said = step
            spoken += said
            if self._state == state:
                break  # it took what it could and waits for more
        self._buffer = text if self._state is not None else ""
        return spoken

    def rest(self) -> str:
        return self._buffer if self._state == self._before and not self._buffer.startswith("`") else ""

    # Each state takes the text not yet read and gives back what is left of it, or `None` to wait for more of it.

    def _before(self, text: str) -> tuple[str, list[Spoken]] | None:
        if self._at_start:
            begun = text.lstrip(WHITE)
            if not begun:
                return None if len(text) <= _LONGEST_WAIT else self._give_up()
            self._at_start = False
            if begun[0] in "{[":
                self._state = self._open
                return begun, []
        at = text.find("```")
        if at < 0:
            at = len(text.rstrip("`")) if text.endswith(("`", "``")) else len(text)
            return text[at:], _reasoning(text[:at])
        said = _reasoning(text[:at])
        fence = FENCE.match(text, at)
        if fence is not None:
            self._state = self._open
            return text[fence.end() :], said
        if len(text) - at > 64 or text[at + 3 :].strip():
            # Letters may be the beginning of a language's name; anything beyond that is no JSON.
            begun = text[at + 3 :]
            if len(begun) > 64 or not re.fullmatch(r"[ \t]*[\w.+#-]*\s*", begun):
                return self._give_up(said)
        return text[at:], said

    def _open(self, text: str) -> tuple[str, list[Spoken]] | None:
        begun = text.lstrip(WHITE)
        if begun[:1] == "[":
            begun = begun[1:].lstrip(WHITE)
        if not begun:
            return None
        if begun[0] != "{":
            return self._give_up()
        self._state = self._member
        return begun[1:], []

    def _member(self, text: str) -> tuple[str, list[Spoken]] | None:
        found = _MEMBER.match(text)
        if found is None:
            return None
        name, value = found.group(1), text[found.end() :]
        if name == "action":
            self._state = self._action
        elif name == "action_input":
            if not self._final or value[0] != '"':
                return self._give_up()
            self._state, value = self._string, value[1:]
        elif value[0] == '"':
            self._state, value = self._skip, value[1:]
        elif value[0] in "{[":
            return self._give_up()
        else:
            self._state = self._scalar
        return value, []

    def _action(self, text: str) -> tuple[str, list[Spoken]] | None:
        found = _NAME.match(text)
        if found is None:
            return None
        if found.group(1) != FINAL_ACTION:
            return self._give_up()
        self._final = True
        self._state = self._member
        return text[found.end() :], []

    def _scalar(self, text: str) -> tuple[str, list[Spoken]] | None:
        found = _SCALAR.match(text)
        if found is None:
            return None
        self._state = self._member
        return text[found.end() :], []

    def _skip(self, text: str) -> tuple[str, list[Spoken]]:
        found = _SKIPPED.match(text)
        end = found.end() if found is not None else 0
        if text[end : end + 1] == '"':
            self._state = self._member
            end += 1
        return text[end:], []

    def _string(self, text: str) -> tuple[str, list[Spoken]]:
        found = _RUN.match(text)
        end = found.end() if found is not None else 0
        rest = text[end:]
        if rest.startswith('"') or len(rest) >= _LONGEST_ESCAPE:
            self._state = None
        if not end:
            return rest, []
        return rest, [TextDelta(json.loads(f'"{text[:end]}"', strict=False))]

    def _give_up(self, said: list[Spoken] | None = None) -> tuple[str, list[Spoken]]:
        self._state = None
        return "", said or []


def _reasoning(text: str) -> list[Spoken]:
    return [ReasoningDelta(text)] if text else []
