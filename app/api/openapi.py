"""The OpenAPI document: bodies that our own reader checks are described from the same specs that check them."""

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema

from app.agent.ports import StepStatus
from app.runs.callbacks import ProgressSpec
from app.runs.resume import ResumeSpec
from app.runs.spec import RegisteredAgentSpec, RunCreate, Spec
from app.threads.spec import StateUpdate, ThreadCreate, ThreadFork, ThreadPatch
from app.threads.store_spec import StorePut, StoreSearch
from app.tools.spec import ToolSpec
from app.tools.switches import SwitchBody as SwitchBody


class InvokeBody(Spec):
    """The body of `POST /tools/{name}/invoke`."""

    arguments: dict[str, object] = Field(default_factory=dict)


BODIES: tuple[type[BaseModel], ...] = (
    RunCreate,
    RegisteredAgentSpec,
    ToolSpec,
    InvokeBody,
    SwitchBody,
    ResumeSpec,
    ProgressSpec,
    ThreadCreate,
    ThreadPatch,
    ThreadFork,
    StateUpdate,
    StorePut,
    StoreSearch,
)


def _ref(name: str) -> str:
    return f"#/components/schemas/{name}"


_IDEMPOTENCY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
    "description": "The same key and body within 24 h gives the same resource once.",
}

NO_BODY: dict[str, Any] = {"parameters": [_IDEMPOTENCY_HEADER]}
"""Of a POST that creates something and takes no body."""

_NULLABLE_TEXT = {"type": ["string", "null"]}
_TIME = {"type": ["string", "null"], "format": "date-time"}

COMPONENTS: dict[str, object] = {
    "Run": {
        "type": "object",
        "title": "Run",
        "required": ["id", "thread_id", "status", "input", "usage", "created_at", "metadata"],
        "properties": {
            "id": {"type": "string", "format": "uuid"},
            "thread_id": {"type": "string", "format": "uuid"},
            "agent": _NULLABLE_TEXT,
            "status": {"enum": ["pending", "running", "interrupted", "success", "error", "cancelled"]},
            "stop_reason": _NULLABLE_TEXT,
            "input": {},
            "output": {"type": ["object", "null"]},
            "error": {"type": ["object", "null"]},
            "interrupts": {"type": "array", "items": {"type": "object"}},
            "iterations": {"type": "integer"},
            "attempt": {"type": "integer"},
            "usage": {"type": "object"},
            "created_at": _TIME,
            "started_at": _TIME,
            "finished_at": _TIME,
            "metadata": {"type": "object"},
            "intermediate_steps": {"type": "array", "items": {"type": "object"}},
        },
    },
    "Thread": {
        "type": "object",
        "title": "Thread",
        "required": ["id", "status", "metadata", "created_at"],
        "properties": {
            "id": {"type": "string", "format": "uuid"},
            "status": {"enum": ["idle", "busy", "interrupted", "error"]},
            "listed": {"type": "boolean"},
            "active_run_id": _NULLABLE_TEXT,
            "checkpoint_id": _NULLABLE_TEXT,
            "metadata": {"type": "object"},
            "created_at": _TIME,
        },
    },
    "ThreadState": {
        "type": "object",
        "title": "ThreadState",
        "required": ["values", "checkpoint_id", "created_at"],
        "properties": {
            "values": {
                "type": "object",
                "required": ["messages"],
                "properties": {"messages": {"type": "array", "items": {"type": "object"}}},
            },
            "checkpoint_id": _NULLABLE_TEXT,
            "parent_checkpoint_id": _NULLABLE_TEXT,
            "run_id": _NULLABLE_TEXT,
            "source": {"enum": ["input", "loop", "update", "fork", None]},
            "created_at": _TIME,
        },
    },
    "StoreItem": {
        "type": "object",
        "title": "StoreItem",
        "required": ["namespace", "key", "value", "version", "created_at", "updated_at", "expires_at"],
        "properties": {
            "namespace": {"type": "array", "items": {"type": "string"}},
            "key": {"type": "string"},
            "value": {"type": "object"},
            "version": {"type": "integer"},
            "created_at": _TIME,
            "updated_at": _TIME,
            "expires_at": _TIME,
        },
    },
    "StoreNamespace": {
        "type": "object",
        "title": "StoreNamespace",
        "required": ["namespace"],
        "properties": {"namespace": {"type": "array", "items": {"type": "string"}}},
    },
    "Middleware": {
        "type": "object",
        "title": "Middleware",
        "required": ["name", "description", "config_schema", "state_schema"],
        "properties": {
            "name": {"type": "string"},
            "description": {"type": "string"},
            "config_schema": {"type": "object", "description": "JSON Schema of its `config`."},
            "state_schema": {"type": "object", "description": "The fields that it brings to the thread's state."},
        },
    },
    "Model": {
        "type": "object",
        "title": "Model",
        "required": ["name", "source", "provider"],
        "properties": {
            "name": {"type": "string"},
            "source": {"enum": ["alias", "plugin"]},
            "provider": {"type": "string"},
            "model": {
                **_NULLABLE_TEXT,
                "description": "The provider's name of it; null for a plugin, which takes any.",
            },
            "description": _NULLABLE_TEXT,
            "prices": {
                "type": ["object", "null"],
                "description": "US dollars per million tokens.",
                "properties": {
                    "input_per_mtok": {"type": "number"},
                    "output_per_mtok": {"type": "number"},
                    "cache_read_per_mtok": {"type": ["number", "null"]},
                    "cache_write_per_mtok": {"type": ["number", "null"]},
                },
            },
        },
    },
    "Envelope": {
        "type": "object",
        "title": "Envelope",
        "description": "What became of a call, as applications read it. Of `/invoke` with the step's `status` beside it.",
        "required": ["ok", "data", "error", "meta"],
        "properties": {
            "status": {"enum": list(get_args(StepStatus))},
            "ok": {"type": "boolean"},
            "data": {},
            "error": {
                "type": ["object", "null"],
                "required": ["code", "retryable", "state", "request_id", "tool_call_id", "user_message"],
                "properties": {
                    "code": {"type": "string"},
                    "retryable": {"type": "boolean"},
                    "state": {"enum": ["failed", "unknown"]},
                    "request_id": {"type": "string"},
                    "tool_call_id": {"type": "string"},
                    "user_message": {"type": "string"},
                },
            },
            "meta": {"type": "object"},
        },
    },
    "Problem": {
        "type": "object",
        "title": "Problem",
        "description": "RFC 9457. `code` is stable and machine-readable.",
        "required": ["type", "title", "status", "detail", "instance", "code", "request_id", "errors"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "instance": {"type": "string"},
            "code": {"type": "string"},
            "request_id": {"type": "string"},
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"pointer": {"type": "string"}, "detail": {"type": "string"}},
                },
            },
        },
    },
}


def body_of(
    model: type[BaseModel], *, idempotent: bool = False, parameters: Sequence[Mapping[str, object]] = ()
) -> dict[str, Any]:
    """The request body, and the query parameters, of a route that reads them itself."""
    extra: dict[str, Any] = {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": _ref(model.__name__)}}},
        }
    }
    found = [*([_IDEMPOTENCY_HEADER] if idempotent else []), *parameters]
    if found:
        extra["parameters"] = found
    return extra


def responses(
    status: int, description: str, schema: str | None, *, page: bool = False
) -> dict[int | str, dict[str, Any]]:
    item: dict[str, Any] = {} if schema is None else {"$ref": _ref(schema)}
    if page:
        item = {
            "type": "object",
            "properties": {
                "data": {"type": "array", "items": item},
                "has_more": {"type": "boolean"},
                "next_cursor": _NULLABLE_TEXT,
            },
        }
    return {status: {"description": description, "content": {"application/json": {"schema": item}}}}


def event_stream_of(description: str) -> dict[int | str, dict[str, Any]]:
    schema = {"type": "string", "description": "Server-sent events; docs/streaming.md lists them."}
    return {200: {"description": description, "content": {"text/event-stream": {"schema": schema}}}}


def install(app: FastAPI) -> None:
    """Build the document when it is first asked for: it costs a start-up what no run needs."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _build(app)
        return app.openapi_schema

    app.openapi = document


def _build(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    _, definitions = models_json_schema(
        [(model, "validation") for model in BODIES], ref_template="#/components/schemas/{model}"
    )
    components = cast("dict[str, Any]", document.setdefault("components", {}))
    schemas = cast("dict[str, Any]", components.setdefault("schemas", {}))
    schemas.update(definitions["$defs"])
    schemas.update(COMPONENTS)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    document["security"] = [{"bearer": []}, {"apiKey": []}, {}]
    problem = {
        "description": "A problem document.",
        "content": {"application/problem+json": {"schema": {"$ref": _ref("Problem")}}},
    }
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = problem
    return document
