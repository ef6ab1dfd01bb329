"""Checking a parsed body against its spec: pydantic's complaints become our field errors."""

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from app.core.errors import FieldError, InvalidRequest, NotSupported

ModelT = TypeVar("ModelT", bound=BaseModel)


def check(model: type[ModelT], body: object, *, at: str = "") -> ModelT:
    """`body` as `model`. `at` is the JSON pointer of the body within the whole request. Raises `InvalidRequest`."""
    try:
        return model.model_validate(body)
    except NotSupported as error:
        errors = tuple(FieldError(at + item.pointer, item.detail) for item in error.errors)
        raise NotSupported(error.message, errors=errors) from None
    except ValidationError as error:
        raise InvalidRequest("The request does not fit the schema; see `errors`.", errors=_fields(error, at)) from None


def _fields(error: ValidationError, at: str) -> tuple[FieldError, ...]:
    seen: dict[tuple[str, str], None] = {}
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        parts = [str(part) for part in item["loc"] if not _is_branch(part)]
        pointer = at + "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)
        detail = "unknown field" if item["type"] == "extra_forbidden" else item["msg"].removeprefix("Value error, ")
        seen[pointer, detail] = None
    return tuple(FieldError(pointer, detail) for pointer, detail in seen)


def _is_branch(part: int | str) -> bool:
    """Whether a part of pydantic's location names a branch of a union instead of a place in the body."""
    return isinstance(part, str) and (
        part in ("str", "bool", "int", "float", "none") or part.endswith("]") or "constrained-" in part
    )
