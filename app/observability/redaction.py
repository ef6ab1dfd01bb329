"""Redaction: secrets are cut out of what is about to be written, by the names of fields, by their looks, and by value."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import cast
from urllib.parse import quote

CUT = "[redacted]"

MIN_KNOWN = 8
"""Shorter secrets are not looked for by value: they would cut words out of ordinary text."""

MAX_READ = 64 * 1024
"""Characters of a text that are looked at; what is beyond is dropped, so that no half of a secret stays at the edge."""

MAX_TEXT = 16 * 1024
"""Characters of a text that are kept: its begin and its end."""

MAX_DEPTH = 6
MAX_ITEMS = 100

_NAMES = re.compile(
    r"(?i)authorization|cookie|passw|secret|credential|bearer|(?:api|private|access|signing|encryption)[-_]?key|token$"
)
"""Names of fields whose values are secrets, whatever they look like (counts of tokens are not)."""

_LOOKS = re.compile(
    r"(?i)\b(?:bearer|basic)\s{1,8}[a-z0-9._~+/=-]{6,}"
    r"|(?<![a-z0-9])(?:whsec_|rw_|sk-|sk_|ghp_|gho_|github_pat_|glpat-|xox[abeprs]-|akia|asia|aiza)[a-z0-9_.+/=-]{6,}"
    r"|\beyj[a-z0-9_-]{8,}\.[a-z0-9_-]{4,}(?:\.[a-z0-9_-]*)?"
    r"|(?<=://)[^/?#\s@]+(?=@)"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)"
)
"""Keys of well-known makers, tokens, JWTs, the userinfo of addresses, private keys."""

_NAMED = re.compile(
    r"(?i)((?:authorization|cookie)\\{0,3}[\"']?\s{0,8}[:=]\s{0,8})[^\r\n\"']+"
    r"|((?:passw(?:or)?d|secret|credential|(?:api|secret|private|access|signing|encryption)[-_]?key|token(?!s))"
    r"[\w-]{0,16}\\{0,3}[\"']?\s{0,8}[:=]\s{0,8})"
    r"(?:b?\\{0,3}\"(?:[^\"\\]|\\.)*\"|b?'(?:[^'\\]|\\.)*'|[^\s,;&}\]]+)"
    r"|([?&](?:key|sig|signature|code)=)[^&\s\"'#]+"
)
"""A secret beside its name, in text: `password=…`, `"api_key": "…"`, headers, parameters of an address."""


_HINTS = (
    "bearer", "basic", "whsec_", "rw_", "sk-", "sk_", "ghp_", "gho_", "github_pat_", "glpat-", "xox", "akia", "asia", "aiza",
    "eyj", "://", "-----begin",
)  # fmt: skip
"""What a text must hold, in lower case, for `_LOOKS` to find anything. Ordinary text is let through by this alone."""


class Redactor:
    """Cuts secrets out of text and of values. `known`: the secrets that the server has itself."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        forms: set[str] = set()
        for secret in known:
            if len(secret) >= MIN_KNOWN:
                forms |= {secret, quote(secret, safe=""), json.dumps(secret)[1:-1], repr(secret)[1:-1]}
        ordered = sorted(forms, key=len, reverse=True)  # a secret that begins another one must not hide it
        self._known = tuple(ordered)

    def text(self, text: str) -> str:
        """`text` without secrets, at most about `MAX_TEXT` characters."""
        cut_off = len(text) > MAX_READ
        text = text[:MAX_READ]
        for secret in self._known:
            if secret in text:
                text = text.replace(secret, CUT)
        lower = text.lower()
        if any(hint in lower for hint in _HINTS):
            text = _LOOKS.sub(CUT, text)
        if "=" in text or ":" in text:
            text = _NAMED.sub(_after_name, text)
        if not cut_off and len(text) <= MAX_TEXT:
            return text
        half = MAX_TEXT // 2
        return f"{text[:half]} … {text[half:][-half:]}" if not cut_off else f"{text[:MAX_TEXT]} …"

    def value(self, value: object, name: str = "", depth: int = 0) -> object:
        """`value` as plain JSON values, without secrets. Never raises. `name`: the field that it stands in."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if _NAMES.search(name):
            return CUT
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes | bytearray):
            return self.text(value[:MAX_READ].decode("utf-8", "backslashreplace"))
        if depth < MAX_DEPTH and isinstance(value, Mapping):
            pairs = list(cast("Mapping[object, object]", value).items())[:MAX_ITEMS]
            named = [(_said(key), item) for key, item in pairs]
            return {self.text(key): self.value(item, key, depth + 1) for key, item in named}
        if depth < MAX_DEPTH and isinstance(value, list | tuple | set | frozenset):
            items = list(cast("Iterable[object]", value))[:MAX_ITEMS]
            return [self.value(item, name, depth + 1) for item in items]
        return self.text(_said(value))


def _after_name(match: "re.Match[str]") -> str:
    return next(filter(None, match.groups())) + CUT


def _said(value: object) -> str:
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001 - a value that cannot be shown must not break what writes of it
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"
