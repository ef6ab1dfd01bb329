"""Callbacks of deferred tools: each call's own address and one-time token, and what a late answer means."""

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping

import orjson

from app.core.errors import InvalidRequest
from app.tools.attempt import Attempt
from app.tools.http_callback import read_answer

JSON_HEADERS = {"content-type": "application/json"}


class Callbacks:
    """Addresses and tokens. A token is derived from the server's key and the call, so it is the same on every retry.

    That is why no token is stored anywhere, and a call's body has the same bytes after a restart.
    """

    def __init__(self, key: Callable[[], bytes], base_url: Callable[[], str]) -> None:
        """`key`: 32 secret bytes; asked at the first call. `base_url`: what tools reach this server under."""
        self._key = key
        self._base_url = base_url
        self._derived: bytes | None = None

    def url(self, tool_call_id: str) -> str:
        return f"{self._base_url()}/tool-calls/{tool_call_id}/result"

    def token(self, tool_call_id: str) -> str | None:
        """`None` where the server has no key: a tool then cannot answer later."""
        if self._derived is None:
            try:
                self._derived = self._key()
            except InvalidRequest:
                return None
        digest = hmac.digest(self._derived, b"callback:" + tool_call_id.encode(), hashlib.sha256)
        return "rwcb_" + base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def fits(self, tool_call_id: str, token: str) -> bool:
        expected = self.token(tool_call_id)
        return expected is not None and hmac.compare_digest(expected.encode(), token.encode())


def late_attempt(tool: str, result: Mapping[str, object], limit: int) -> Attempt:
    """A late answer (`{"body": any}`) as an attempt: it means what the same answer at once would have meant."""
    data = orjson.dumps(result["body"])
    return read_answer(tool, 200, JSON_HEADERS, data, len(data) > limit, limit)
