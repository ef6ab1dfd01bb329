"""The tree of errors. Each has a stable `code`; the HTTP status of a class is chosen in one table (`app.api.problems`).

RunwireError
├── InvalidRequest          the caller's request cannot be taken as it is
│   └── NotSupported        a field or value of the contract that this version does not build yet
├── PayloadTooLarge, UnsupportedMediaType
├── RequestTimeout          the request did not arrive in time
├── Unauthenticated, Forbidden
├── NotFound                unknown, or another tenant's: the two cannot be told apart
├── Conflict                the resource's state forbids it
├── Gone                    it was here and is no longer kept
├── TooManyRuns             admission is full; `retry_after_s` says when to come back
├── Unavailable             the database or the server is not ready
├── ModelError              the model's side failed; ends the run with its code
├── PluginFailed            a planner, parse policy or trimmer in Python failed; ends the run
│   └── MiddlewareFailed    a middleware failed, or stopped the run with a code of its own
└── Stopped                 control flow between a driver and its parts, never seen by a caller
    ├── JournalBroken       an append could not even be made, a fault of ours: trying again would not help
    ├── Fenced              another process owns the run now: write nothing
    ├── RunCancelled        a dispatch came after the cancel: send nothing
    ├── ToolWithdrawn       a dispatch of a tool that was deleted meanwhile: send nothing
    └── ToolDisabled        a dispatch of a tool that is switched off: send nothing
"""

from app.core.values import immutable


@immutable
class FieldError:
    """One wrong place in a body: a JSON pointer (RFC 6901) and what to do about it."""

    pointer: str
    detail: str


class RunwireError(Exception):
    """Base of all our errors. The message is for the caller: no secrets, and it says what to do."""

    code = "internal_error"

    def __init__(self, message: str, *, code: str | None = None, errors: tuple[FieldError, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.errors = errors
        if code is not None:
            self.code = code


class InvalidRequest(RunwireError):
    code = "invalid_request"


class NotSupported(InvalidRequest):
    code = "not_supported"


class PayloadTooLarge(RunwireError):
    code = "payload_too_large"


class RequestTimeout(RunwireError):
    code = "request_timeout"


class UnsupportedMediaType(RunwireError):
    code = "unsupported_media_type"


class Unauthenticated(RunwireError):
    code = "unauthenticated"


class Forbidden(RunwireError):
    code = "forbidden"


class NotFound(RunwireError):
    code = "not_found"


class Conflict(RunwireError):
    code = "conflict"


class Gone(RunwireError):
    code = "gone"


class TooManyRuns(RunwireError):
    code = "too_many_runs"

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(RunwireError):
    code = "unavailable"

    def __init__(self, message: str, *, code: str | None = None, retry_after_s: int = 1) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


class ModelError(RunwireError):
    """The model could not answer.

    `code`: `model_rate_limited`, `model_auth`, `model_not_found`, `model_bad_request`, `context_length_exceeded`,
    `content_filtered`, `model_unavailable`, `model_timeout`, `model_stream_broken`, `model_invalid_response`,
    `model_empty_response`, `model_not_configured`, `model_plugin_failed`, `script_exhausted`, or a model plugin's own.
    `retryable`: whether posting the run again may succeed. `request_id`: what finds the cause in the log, if it is there.
    """

    code = "model_unavailable"

    def __init__(self, message: str, *, code: str | None = None, retryable: bool = False, request_id: str = "") -> None:
        super().__init__(message, code=code)
        self.retryable = retryable
        self.request_id = request_id


class PluginFailed(RunwireError):
    """`request_id`: what finds the cause in the log, if it is there."""

    code = "plugin_failed"

    def __init__(self, message: str, *, request_id: str = "") -> None:
        super().__init__(message)
        self.request_id = request_id


class MiddlewareFailed(PluginFailed):
    """`code`: another one where the middleware did its work and that ends the run, as what it looks for was found."""

    code = "middleware_error"

    def __init__(self, message: str, *, code: str | None = None, request_id: str = "") -> None:
        super().__init__(message, request_id=request_id)
        if code is not None:
            self.code = code


class Stopped(RunwireError):
    code = "stopped"


class Fenced(Stopped):
    code = "fenced"


class JournalBroken(Stopped):
    code = "journal_broken"


class RunCancelled(Stopped):
    code = "run_cancelled"


class ToolWithdrawn(Stopped):
    code = "tool_withdrawn"


class ApprovalVoid(Stopped):
    code = "approval_void"


class ToolDisabled(Stopped):
    """`message` says who switched it off, when and why: for the chain of the call."""

    code = "tool_disabled"
