"""The served document against the server: generated requests never meet a fault, and refusals are problem documents.

Half of the values fit the document's own schemas (as far as it uses JSON Schema), the others are any JSON or text.
"""

import json
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.main import bare_app
from tests.api.problems import MEMBERS
from tests.support.server import ACME, RunwireServer

EXAMPLES = 12
"""Generated requests an operation; the same ones each time."""

JsonSchema = dict[str, Any]

_DOCUMENT = bare_app().openapi()
_SCHEMAS = cast("dict[str, JsonSchema]", _DOCUMENT["components"]["schemas"])
_OPERATIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    f"{method.upper()} {path}": (method.upper(), path, operation)
    for path, operations in _DOCUMENT["paths"].items()
    for method, operation in operations.items()
}

any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=10), children, max_size=3),
    max_leaves=8,
)


def strategy(schema: JsonSchema) -> st.SearchStrategy[object]:
    """Values of a schema of the document; bounds of numbers and texts are kept only roughly, on purpose."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return st.deferred(lambda: strategy(_SCHEMAS[name]))
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return st.one_of([strategy(item) for item in schema[key]])
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema.get("type")
    if kind == "object" and "properties" in schema:
        fields = {name: strategy(item) for name, item in schema["properties"].items()}
        required = {name: fields.pop(name) for name in schema.get("required", ())}
        return cast("st.SearchStrategy[object]", st.fixed_dictionaries(required, optional=fields))
    made: dict[object, st.SearchStrategy[object]] = {
        "object": st.dictionaries(st.text(max_size=8), any_json, max_size=3),
        "array": st.lists(strategy(schema["items"]) if "items" in schema else any_json, max_size=3),
        "string": st.from_regex(schema["pattern"]) if "pattern" in schema else st.text(max_size=20),
        "integer": st.integers(schema.get("minimum"), schema.get("maximum")),
        "number": st.floats(allow_nan=False),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    kinds = cast("list[str]", kind) if isinstance(kind, list) else [kind]
    return st.one_of([made.get(item, any_json) for item in kinds])


def parameters(operation: Mapping[str, Any], place: str) -> st.SearchStrategy[dict[str, object]]:
    """Each parameter of a place with a value of its own schema or any text; those not required may be missing."""
    found = {
        item["name"]: strategy(item["schema"]) | st.text(min_size=1, max_size=20)
        for item in operation.get("parameters", ())
        if item["in"] == place
    }
    if place == "path":
        return st.fixed_dictionaries(found)
    return st.fixed_dictionaries({}, optional=found)


def as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@st.composite
def requests(draw: st.DrawFn, label: str) -> httpx.Request:
    method, path, operation = _OPERATIONS[label]
    for name, value in draw(parameters(operation, "path")).items():
        path = path.replace(f"{{{name}}}", quote(as_text(value), safe="", errors="replace") or "x")
    query = {
        name: as_text(value).encode(errors="replace").decode()
        for name, value in draw(parameters(operation, "query")).items()
    }
    query.pop("timeout_s", None)  # a valid one would wait for real
    content = b""
    headers = {"Authorization": f"Bearer {ACME}"}
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        content = json.dumps(draw(strategy(schema) | any_json)).encode()
        headers["Content-Type"] = "application/json"
    return httpx.Request(method, "http://server" + path, params=query, headers=headers, content=content)


@pytest.mark.parametrize("label", sorted(_OPERATIONS))
def test_generated_requests_are_answered_or_refused_but_never_a_fault(server: RunwireServer, label: str) -> None:
    with httpx.Client(timeout=20, trust_env=False) as client:

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        )
        @given(request=requests(label))
        def check(request: httpx.Request) -> None:
            request.url = request.url.copy_with(host="127.0.0.1", port=httpx.URL(server.url).port)
            answer = client.send(request)
            where = f"{request.method} {request.url} {request.content!r}: {answer.status_code} {answer.text[:500]}"
            assert answer.status_code < 500, where
            assert answer.headers["x-request-id"], where
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == "application/problem+json", where
                body = answer.json()
                assert body.keys() == MEMBERS, where
                assert body["status"] == answer.status_code, where

        check()


def test_after_all_that_the_log_has_no_trace(server: RunwireServer) -> None:
    assert "Traceback" not in server.log()
