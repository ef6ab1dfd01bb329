"""The `concurrency_key` of a tool: a text with `{argument}` placeholders, taken apart once and filled in for each call."""

import hashlib
import re
from collections.abc import Collection, Mapping

import orjson

MAX_TEXT = 512
"""Characters of a filled-in key that are compared as they are; of a longer one, its SHA-256."""

_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class ConcurrencyKey:
    __slots__ = ("_parts", "names")

    def __init__(self, text: str) -> None:
        """`{name}` stands for an argument, `{{` and `}}` for a brace. Raises `ValueError` for any other brace."""
        self._parts: list[tuple[str, bool]] = []
        at = 0
        for found in _PART.finditer(text):
            self._parts.append((text[at : found.start()], False))
            at = found.end()
            if found.group(1) is not None:
                self._parts.append((found.group(1), True))
            elif len(found.group()) == 2:
                self._parts.append((found.group()[0], False))
            else:
                raise ValueError("a brace without its pair; write {{ or }} for the character itself")
        self._parts.append((text[at:], False))
        self.names = tuple(part for part, is_name in self._parts if is_name)

    def check(self, names: Collection[str]) -> None:
        """Raises `ValueError` for a placeholder that is not among the names."""
        for name in self.names:
            if name not in names:
                raise ValueError(f"{{{name}}} is not a property of the parameters")

    def of(self, arguments: Mapping[str, object]) -> str:
        """The key of a call. An argument that was left out counts as an empty text."""
        text = "".join(canonical(arguments.get(part, "")) if is_name else part for part, is_name in self._parts)
        return text if len(text) <= MAX_TEXT else hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def canonical(value: object) -> str:
    """A text as it is; anything else as JSON with sorted keys, whole numbers without a fraction: 3.0 and 3 are one."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except (TypeError, ValueError):  # what JSON cannot carry; such a call is refused before it is sent
        return repr(value)
