"""A provider's failure: which `ModelError` an HTTP status, an error object or a broken stream amounts to. Pure."""

import re
from collections.abc import Mapping
from typing import cast

import orjson

from app.core.errors import ModelError
from app.models.text import storable

MAX_REMOTE_TEXT = 200
"""Characters of the provider's own words that an error may carry."""

REPEATED_STATUSES = frozenset((408, 429, 500, 502, 503, 504, 529))
"""Statuses after which the same request is sent again. 529 is Anthropic's "overloaded"."""

RETRYABLE_CODES = frozenset(
    ("model_rate_limited", "model_unavailable", "model_timeout", "model_stream_broken", "model_empty_response")
)
"""Codes after which posting the run again may succeed."""

MODEL_ERROR_CODES = RETRYABLE_CODES | {
    "model_auth", "model_not_found", "model_bad_request", "context_length_exceeded", "content_filtered",
    "model_invalid_response", "script_exhausted",
}  # fmt: skip

_CONTEXT = re.compile(
    r"context[ _-]?(length|window|size|limit)|maximum context|exceed_context|too many (input )?tokens"
    r"|(prompt|input|request) is too long|reduce the length|max_model_len",
    re.IGNORECASE,
)
_FILTER = re.compile(r"content[ _-]?(filter|policy|management)|moderation", re.IGNORECASE)
_QUOTA = re.compile(
    r"insufficient_quota|exceeded your current quota|billing|insufficient (balance|credit)|credit balance is too low",
    re.IGNORECASE,
)
_HTTP_FAILURE = re.compile(r"[45][0-9]{2}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
_KEY_LIKE = re.compile(r"\b(?:sk|pk|rk|rw|key|gsk|xai)[-_][\w\-*.]{6,}|\bbearer\s+\S+", re.IGNORECASE)


class ProviderError(ModelError):
    """A `ModelError` that also knows whether the same request may be sent again now.

    `repeat`: nothing was answered yet and the cause may pass. `retry_after_s`: what the provider asked for.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        retryable: bool | None = None,
        repeat: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, code=code, retryable=code in RETRYABLE_CODES if retryable is None else retryable)
        self.repeat = repeat
        self.retry_after_s = retry_after_s


def of_status(
    status: int, body: bytes, *, is_html: bool = False, secret: str | None = None, retry_after_s: float | None = None
) -> ProviderError:
    """What an answer that is not 200 amounts to. `body` may be cut; `secret` is the key sent, removed wherever it is echoed."""
    text, kind = ("", "") if is_html else _words(body)
    return _failure(status, text, kind, f"The model's server answered {status}", secret, retry_after_s)


def of_error_object(error: object, *, secret: str | None = None) -> ProviderError:
    """What an error inside a stream (or in a 200 body) amounts to: `{"message","type","code"}` or text."""
    text, kind = _error_words(error)
    code: object = cast("Mapping[str, object]", error).get("code") if isinstance(error, Mapping) else None
    # Not `isdigit`: it takes "²" and a text of a million digits for numbers, `int` does not.
    given = code if isinstance(code, str) else str(code) if isinstance(code, int) and 400 <= code < 600 else ""
    status = int(given) if _HTTP_FAILURE.fullmatch(given) else None
    return _failure(status or _status_of_kind(kind), text, kind, "The model's server reported an error", secret, None)


def clean(text: str, secret: str | None = None) -> str:
    """Remote text made fit for an error: one line, no control characters, no keys, at most `MAX_REMOTE_TEXT` characters."""
    text = _CONTROL.sub(" ", storable(text[:20_000])).strip()
    if secret:
        text = text.replace(secret, "[redacted]")
    text = _KEY_LIKE.sub("[redacted]", text)
    return text if len(text) <= MAX_REMOTE_TEXT else text[: MAX_REMOTE_TEXT - 1] + "…"


def _failure(
    status: int, text: str, kind: str, lead: str, secret: str | None, retry_after_s: float | None
) -> ProviderError:
    code, advice = _code(status, text, kind)
    said = clean(text, secret)
    message = f"{lead}: {said}" if said else f"{lead}."
    if not message.endswith((".", "!", "?", "…")):
        message += "."
    if advice:
        message += f" {advice}"
    spent = code == "model_rate_limited" and (status == 402 or bool(_QUOTA.search(kind) or _QUOTA.search(text)))
    return ProviderError(
        message,
        code=code,
        retryable=False if spent else None,
        repeat=status in REPEATED_STATUSES and not spent,
        retry_after_s=retry_after_s,
    )


def _code(status: int, text: str, kind: str) -> tuple[str, str]:
    """The code and what to do about it."""
    if status in (401, 403):
        return "model_auth", "Check the model's api_key."
    if status == 404:
        return "model_not_found", "Check the model's name and base_url."
    if status in (402, 429):
        return "model_rate_limited", ""
    if status == 408:
        return "model_timeout", ""
    if 400 <= status < 500:
        if _QUOTA.search(kind) or _QUOTA.search(text):  # Anthropic says it with a 400
            return "model_rate_limited", ""
        if _CONTEXT.search(kind) or _CONTEXT.search(text):
            return "context_length_exceeded", "Shorten the input or trim earlier steps."
        if _FILTER.search(kind) or _FILTER.search(text):
            return "content_filtered", ""
        return "model_bad_request", ""
    if status < 400:
        return "model_invalid_response", "Check the model's base_url: it must be the API's own and not redirect."
    return "model_unavailable", ""


def _status_of_kind(kind: str) -> int:
    """The HTTP status that an error's `type` and `code` words stand for."""
    kind = kind.lower()
    if "rate_limit" in kind or "quota" in kind or "too_many" in kind:
        return 429
    if "auth" in kind or "permission" in kind or "api_key" in kind:
        return 401
    if "billing" in kind:
        return 402
    if "too_large" in kind:
        return 413
    if "not_found" in kind:
        return 404
    if "invalid" in kind or "context" in kind or "content_filter" in kind or "bad_request" in kind or "policy" in kind:
        return 400
    return 503


def _words(body: bytes) -> tuple[str, str]:
    """(message, type and code) of an error body in any of the shapes that servers use."""
    try:
        value: object = orjson.loads(body)
    except ValueError:
        text = body.decode("utf-8", "replace").strip()
        return ("", "") if text.startswith("<") else (text, "")
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        for name in ("error", "errors", "detail"):
            if fields.get(name):
                return _error_words(fields[name])
    return _error_words(cast("object", value))


def _error_words(error: object) -> tuple[str, str]:
    if isinstance(error, str):
        return error, ""
    if isinstance(error, list) and error:
        return _error_words(cast("list[object]", error)[0])
    if not isinstance(error, Mapping):
        return "", ""
    fields = cast("Mapping[str, object]", error)
    message = fields.get("message") or fields.get("msg") or fields.get("detail") or ""
    kind = " ".join(str(fields[name]) for name in ("code", "type") if fields.get(name))
    return (message if isinstance(message, str) else "", kind)
