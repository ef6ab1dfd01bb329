"""What a ToolSpec may say, and where a wrong one is told to be wrong."""

import base64

import pytest

from app.core.errors import InvalidRequest, NotSupported
from app.tools.egress import EgressGuard
from app.tools.spec import read_spec
from tests.tools.support import spec

GUARD = EgressGuard()


def nested(depth: int) -> dict[str, object]:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return {"type": "object", "properties": {"a": schema}}


def pattern(text: str) -> dict[str, object]:
    return {"type": "object", "properties": {"a": {"type": "string", "pattern": text}}}


@pytest.mark.parametrize(
    ("field", "value", "pointer"),
    [
        ("requires_approval", "yes", "/requires_approval"),
        ("requires_approval", {"if": {}}, "/requires_approval"),
        ("requires_approval", {"when": {"type": "string"}}, "/requires_approval"),
        ("requires_approval", {"when": {"properties": {"a": {"$ref": "https://x.example/s"}}}}, "/requires_approval"),
        ("requires_approval", {"expires_s": 0}, "/requires_approval"),
    ],
)
def test_an_approval_that_could_never_be_asked_for_is_refused(field: str, value: object, pointer: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_spec({**spec(), field: value}, GUARD, pointer="/tools/3")
    assert caught.value.errors[0].pointer.startswith(f"/tools/3{pointer}")


def test_a_tool_without_http_is_the_callers() -> None:
    assert read_spec({**spec(), "http": None}, GUARD).http is None
    with pytest.raises(InvalidRequest):
        read_spec({**spec(), "http": None, "status_url": "https://tools.example/status"}, GUARD)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (spec(surprise=1), "/surprise"),
        (spec(name="1a"), "/name"),
        (spec(name="a" * 65), "/name"),
        (spec(name="a\n"), "/name"),
        (spec(effect="delete"), "/effect"),
        (spec(idempotent="yes"), "/idempotent"),
        (spec(timeout_s=0), "/timeout_s"),
        (spec(timeout_s=3601), "/timeout_s"),
        (spec(timeout_s="30"), "/timeout_s"),
        (spec(retry={"max_attempts": 0}), "/retry/max_attempts"),
        (spec(retry={"max_attempts": 11}), "/retry/max_attempts"),
        (spec(max_result_bytes=0), "/max_result_bytes"),
        (spec(output_schema={"type": "nope"}), "/output_schema/type"),
        (spec(output_schema={"$ref": "https://example.com/s.json"}), "/output_schema/$ref"),
        (spec(output_schema="text"), "/output_schema"),
        (spec(coerce="yes"), "/coerce"),
        (spec(coerce=None), "/coerce"),
        (spec(status_url="file:///etc/passwd"), "/status_url"),
        (spec(status_url="http://10.0.0.1/s"), "/status_url"),
        (spec(max_concurrency=0), "/max_concurrency"),
        (spec(max_concurrency=True), "/max_concurrency"),
        (spec(concurrency_key=""), "/concurrency_key"),
        (spec(concurrency_key="order {"), "/concurrency_key"),
        (spec(concurrency_key="order {id}"), "/concurrency_key"),
        (spec(concurrency_key="a" * 257), "/concurrency_key"),
        (spec(max_result_bytes=16 * 1024 * 1024 + 1), "/max_result_bytes"),
        (spec(signing_secret="whsec_short"), "/signing_secret"),
        (spec(signing_secret="not base64!"), "/signing_secret"),
        (spec(scopes=[""]), "/scopes/0"),
        (spec(http={"url": "https://example.com", "method": "GET"}), "/http/method"),
        (spec(http={"url": "https://example.com", "method": "DELETE"}), "/http/method"),
        (spec(http={"url": "https://example.com", "headers": {"X-A": "b\r\nc"}}), "/http/headers"),
        (spec(http={"url": "https://example.com", "headers": {"X-A": "b\x00"}}), "/http/headers"),
        (spec(http={"url": "https://example.com", "headers": {"X A": "b"}}), "/http/headers"),
        (spec(http={"url": "https://example.com", "headers": {"host": "b"}}), "/http/headers"),
        (spec(http={"url": "https://example.com", "headers": {"Content-Length": "1"}}), "/http/headers"),
        (spec(http={"url": "https://example.com", "headers": {"Authorization": "b"}}), "/http/headers"),
        (spec(http={"url": "https://example.com", "headers": {"Webhook-Signature": "b"}}), "/http/headers"),
        (spec(http={"url": "https://example.com", "headers": {"Idempotency-Key": "b"}}), "/http/headers"),
        (spec(http={"url": "https://example.com", "auth": {"type": "basic"}}), "/http/auth/type"),
        (spec(http={"url": "https://example.com", "auth": {"type": "bearer", "token": "a b"}}), "/http/auth/token"),
        (spec(parameters={"type": "array"}), "/parameters/type"),
        (spec(parameters={"type": "object", "properties": {"a": {"type": "nope"}}}), "/parameters/properties/a/type"),
        (spec(parameters={"type": "object", "$ref": "https://example.com/s.json"}), "/parameters/$ref"),
        (spec(parameters={"type": "object", "items": {"$ref": "file:///etc/passwd"}}), "/parameters/items/$ref"),
        (spec(parameters=nested(40)), "/parameters"),
        (spec(parameters=pattern("^(a+)+$")), "/parameters/properties/a/pattern"),
        (spec(parameters=pattern("(?=a)b")), "/parameters/properties/a/pattern"),
        (spec(parameters=pattern("(a")), "/parameters/properties/a/pattern"),
        (spec(parameters={"type": "object", "patternProperties": {"(a|aa)*": {}}}), "/parameters/patternProperties/(a|aa)*"),
        (
            spec(parameters={"type": "object", "properties": {"v": {"type": "integer"}}}, constants={"v": "x"}),
            "/constants/v",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(body: dict[str, object], pointer: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_spec(body, GUARD)
    assert not isinstance(caught.value, NotSupported)
    assert caught.value.errors[0].pointer == pointer


@pytest.mark.parametrize(
    "text", ["^[a-z]+(-[a-z]+)*$", r"^(\w+\.)*\w+$", "^(foo|far)+$", r"^\d{4}-\d{2}$", "^(ab)+$", r"^\p{L}+$", "^(a{1,3}b)*$"]
)  # fmt: skip
def test_ordinary_patterns_are_taken(text: str) -> None:
    read_spec(spec(parameters=pattern(text)), GUARD)


@pytest.mark.parametrize(
    "text", ["(a*)*", "([a-z]+)*", "(.*,)*", "(a+b?)+", "(x+x+)+y", r"(\w|\d)+$", "((a+))+", "(a+){2,}"]
)
def test_patterns_that_could_hang_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        read_spec(spec(parameters=pattern(text)), GUARD)


def test_defaults_are_those_of_the_contract() -> None:
    body = read_spec(spec(), GUARD).to_json()
    assert {key: body[key] for key in ("effect", "idempotent", "timeout_s", "deadline_s", "max_result_bytes")} == {
        "effect": "write",
        "idempotent": False,
        "timeout_s": 30.0,
        "deadline_s": 3600.0,
        "max_result_bytes": 1048576,
    }
    assert body["parameters"] == {"type": "object", "properties": {}}
    assert read_spec(spec(effect="read"), GUARD).to_json()["idempotent"] is True
    assert read_spec(spec(effect="read", idempotent=False), GUARD).to_json()["idempotent"] is False


def test_null_and_false_of_later_fields_are_taken_as_absent() -> None:
    later: dict[str, object] = {"output_schema": None, "coerce": False, "requires_approval": False, "status_url": None}
    assert read_spec({**spec(signing_secret=None, idempotent=None), **later}, GUARD).name == "lookup"


def test_secrets_of_the_standard_are_taken() -> None:
    for size in (24, 64):
        secret = "whsec_" + base64.b64encode(bytes(size)).decode()
        assert read_spec(spec(signing_secret=secret), GUARD).signing_secret == secret
