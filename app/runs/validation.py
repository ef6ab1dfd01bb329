"""Checking a parsed body against its spec: pydantic's complaints become our field errors."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from app.core.errors import FieldError, InvalidRequest, NotSupported

MAX_ERRORS = 20
"""How many wrong places are told: enough to correct a body by hand."""

MAX_LISTED = 1000
"""Beyond, none is: pydantic can only list all of them, which takes seconds for the half million that fit into a body."""

MAX_POINTER = 200
"""Characters of a pointer that are told; a key may be as long as the body."""

ModelT = TypeVar("ModelT", bound=BaseModel)


def check(model: type[ModelT], body: object, *, at: str = "") -> ModelT:
    """`body` as `model`. `at` is the JSON pointer of the body within the whole request. Raises `InvalidRequest`."""
    try:
        return model.model_validate(body)
    except NotSupported as error:
        errors = tuple(FieldError(at + item.pointer, item.detail) for item in error.errors)
        raise NotSupported(error.message, errors=errors) from None
    except ValidationError as error:
        raise _refusal(error, at) from None


def _refusal(error: ValidationError, at: str) -> InvalidRequest:
    message = "The request does not fit the schema; see `errors`."
    count = error.error_count()
    if count > MAX_LISTED:
        return InvalidRequest(message, errors=(FieldError(at, f"wrong in {count} places"),))
    fields = _fields(error, at)
    if len(fields) > MAX_ERRORS:
        message = f"{message} There are {len(fields) - MAX_ERRORS} more."
    return InvalidRequest(message, errors=fields[:MAX_ERRORS])


def _fields(error: ValidationError, at: str) -> tuple[FieldError, ...]:
    seen: dict[tuple[str, str], None] = {}
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        parts = [str(part) for part in item["loc"] if not _is_branch(part)]
        pointer = at + "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)
        detail = "unknown field" if item["type"] == "extra_forbidden" else item["msg"].removeprefix("Value error, ")
        seen[pointer[:MAX_POINTER], detail] = None
    return tuple(FieldError(pointer, detail) for pointer, detail in seen)


def _is_branch(part: int | str) -> bool:
    """Whether a part of pydantic's location names a branch of a union instead of a place in the body."""
    return isinstance(part, str) and (
        part in ("str", "bool", "int", "float", "none") or part.endswith("]") or "constrained-" in part
    )
