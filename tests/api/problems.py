"""What every refusal must look like."""

import httpx

MEMBERS = {"type", "title", "status", "detail", "instance", "code", "request_id", "errors"}


def check_problem(answer: httpx.Response, status: int, code: str | None = None, pointer: str | None = None) -> None:
    """A problem document with this status and code, that blames this place, and shows nothing of our inside."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body.keys() == MEMBERS
    assert body["status"] == status
    assert body["request_id"] == answer.headers["x-request-id"]
    assert body["instance"] == answer.request.url.path
    assert body["type"] == f"urn:runwire:problem:{body['code']}"
    assert body["title"]
    assert body["detail"]
    assert "Traceback" not in answer.text
    assert ".py" not in answer.text
    if code is not None:
        assert body["code"] == code, body
    if pointer is not None:
        assert pointer in [error["pointer"] for error in body["errors"]], body
