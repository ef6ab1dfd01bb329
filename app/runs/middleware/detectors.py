"""Detectors of personal data: where a text holds some, and what is put in its place.

Patterns look at ASCII characters alone at their edges, so that what stands right beside Chinese text is found, too. Each
built-in kind knows which characters it can hold: a stream is certain up to the last that it cannot.
"""

import hashlib
import ipaddress
import re
from collections.abc import Callable, Iterator
from typing import Literal

from app.core.values import immutable

Strategy = Literal["redact", "mask", "hash", "block"]

BUILT_IN = ("email", "credit_card", "ip", "mac_address", "url")


MAX_PIECE = 16_384
"""Characters that a pattern from outside is tried on at once; longer texts are cut at white space."""


@immutable
class Detector:
    """One kind of personal data."""

    kind: str
    pattern: "re.Pattern[str]"
    is_real: Callable[[str], bool]
    may_hold: "re.Pattern[str] | None"
    """Matches a character that a find may hold; `None`: any."""

    def replaced(self, text: str, strategy: Strategy) -> str:
        """The text with every find in its new form. Not for `block`."""

        def form(match: "re.Match[str]") -> str:
            return self._form(match[0], strategy)

        return "".join([self.pattern.sub(form, piece) for piece in self._pieces(text)])

    def found_in(self, text: str) -> bool:
        finds = (match[0] for piece in self._pieces(text) for match in self.pattern.finditer(piece))
        return any(find and self.is_real(find) for find in finds)

    def _pieces(self, text: str) -> Iterator[str]:
        """The text as it is looked at: for a pattern from outside in pieces, since its cost may grow with their square."""
        if self.may_hold is not None or len(text) <= MAX_PIECE:
            yield text
            return
        while text:
            cut = MAX_PIECE
            if len(text) > MAX_PIECE:
                cut = max(text.rfind("\n", 0, MAX_PIECE), text.rfind(" ", 0, MAX_PIECE)) + 1 or MAX_PIECE
            yield text[:cut]
            text = text[cut:]

    def certain(self, text: str) -> int:
        """How many characters of the beginning of a text will not become part of a find, whatever follows."""
        if self.may_hold is None:
            return 0
        at = len(text)
        while at and self.may_hold.match(text[at - 1]):
            at -= 1
        return at

    def _form(self, value: str, strategy: Strategy) -> str:
        if not value or not self.is_real(value):
            return value
        if strategy == "hash":
            return f"<{self.kind}_hash:{hashlib.sha256(value.encode(errors='replace')).hexdigest()[:8]}>"
        if strategy == "mask":
            return masked(self.kind, value)
        return f"[REDACTED_{self.kind.upper()}]"


def masked(kind: str, value: str) -> str:
    """A value of which only as much is left as people need to know it by (LangChain's forms)."""
    if kind == "email":
        name, _, domain = value.rpartition("@")
        return f"{name}@****.{domain.rpartition('.')[2]}"
    if kind == "credit_card":
        last = re.sub(r"[^0-9]", "", value)[-4:]
        separator = "-" if "-" in value else " " if " " in value else ""
        return separator.join(["****", "****", "****", last])
    if kind == "ip":
        return f"*.*.*.{value.rpartition('.')[2]}" if "." in value and ":" not in value else "****"
    if kind == "mac_address":
        separator = ":" if ":" in value else "-"
        return separator.join(["**"] * 5 + [value[-2:]])
    if kind == "url":
        return "[MASKED_URL]"
    return f"****{value[-4:]}" if len(value) > 4 else "****"


def _always(_: str) -> bool:
    return True


def _is_card(value: str) -> bool:
    """Luhn's check."""
    digits = [int(sign) for sign in value if sign.isdigit()]
    if not 13 <= len(digits) <= 19:
        return False
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _is_address(value: str) -> bool:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return True


_DETECTORS = {
    "email": (
        r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,63}(?![A-Za-z0-9])",
        _always, r"[A-Za-z0-9._%+@-]",
    ),
    "credit_card": (r"(?<![0-9])[0-9](?:[ -]?[0-9]){12,18}(?![0-9])", _is_card, r"[0-9 -]"),
    "ip": (
        r"(?<![A-Za-z0-9.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![A-Za-z0-9]|\.[0-9])"
        r"|(?<![A-Za-z0-9:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?:(?:\.[0-9]{1,3}){3})?(?![A-Za-z0-9:])",
        _is_address, r"[0-9A-Za-z:.]",
    ),
    "mac_address": (
        r"(?<![A-Za-z0-9:-])[0-9A-Fa-f]{2}(?:([:-])[0-9A-Fa-f]{2})(?:\1[0-9A-Fa-f]{2}){4}(?![A-Za-z0-9:-])",
        _always, r"[0-9A-Za-z:-]",
    ),
    "url": (
        r"(?ia)(?<![A-Za-z0-9])(?:https?://[^\s<>\"'`\u0080-\U0010ffff]+|www\.[A-Za-z0-9-]+\.[^\s<>\"'`\u0080-\U0010ffff]+)(?<![.,;:!?)\]}])",
        _always, r"[!-~]",
    ),
}  # fmt: skip


def built_in(kind: str) -> Detector:
    pattern, is_real, may_hold = _DETECTORS[kind]
    return Detector(kind, re.compile(pattern), is_real, re.compile(may_hold))


def own(kind: str, pattern: str) -> Detector:
    """A detector by a pattern from outside, that is known not to be catastrophic. Raises `re.error`."""
    return Detector(kind, re.compile(pattern), _always, None)
