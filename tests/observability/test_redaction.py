"""Redaction: no secret comes out, by whatever way it came in; and ordinary text does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.observability.redaction import CUT, MAX_TEXT, Redactor
from tests.support.hang import no_hang

PLANTED = "Pl4nted.Value/with+odd=chars"
REDACTOR = Redactor([PLANTED, 'quote"and\\slash\nline', "prefix-12345678", "prefix-12345678-longer", "short"])


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer PLANTED-abc123", "Authorization: Custom PLANTED abc", "authorization='Basic UExBTlRFRDpQTEFOVEVE'",
        "got bearer PLANTED.123456", "whsec_PLANTED1234", "rw_PLANTED_secret", "sk-PLANTED-key-1234", "sk-ant-api03-PLANTED",
        "ghp_PLANTED1234567", "xoxb-PLANTED-123", "AKIAPLANTED12345", "AIzaPLANTED12345",
        "eyJPLANTED12.eyJPLANTED34.PLANTEDsignature", "postgresql://user:PLANTED@host/db", "https://PLANTED@host/x",
        "https://host/x?api_key=PLANTED&y=1", "https://host/x?sig=PLANTED", "https://host/x?y=1&key=PLANTED#z", "?access_token=PLANTED",
        "password=PLANTED", "Password : 'PLANTED with spaces'", '{"api_key": "PLANTED", "x": 1}', "{'client_secret': 'PLANTED'}",
        '{\\"api_key\\": \\"PLANTED\\"}', "X-API-Key: PLANTED", "secret_key=PLANTED", "Cookie: a=PLANTED; b=PLANTED",
        "callback_token='PLANTED'", "aws_secret_access_key = PLANTED",
        "-----BEGIN RSA PRIVATE KEY-----\nPLANTED\nPLANTED\n-----END RSA PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\nPLANTED",
        f"x{'y' * 300} token=PLANTED",
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_is_cut_out_of_text(text: str) -> None:
    said = REDACTOR.text(f"before {text}")
    assert "PLANTED" not in said
    assert CUT in said
    assert said.startswith("before ")


@pytest.mark.parametrize(
    "text",
    [
        "input_tokens=12 output_tokens: 3", "max_tokens: 100", "The basic idea is clear", "token bucket", "task-runner risk-based",
        "https://host:8080/path?page=2&limit=3", "01a22e6e-0140-7752-bcfd-d3c4c8921760", "secret", "the key is under the mat",
        "tool_call_id=01a22e6e status=success", "short",
    ],
)  # fmt: skip
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert REDACTOR.text(text) == text


@given(st.text(max_size=40), st.text(max_size=40), st.sampled_from(["", "quote"]))
def test_a_known_secret_is_cut_out_wherever_it_stands(before: str, after: str, form: str) -> None:
    said = REDACTOR.text(f"{before}{PLANTED if not form else repr(PLANTED)}{after}")
    assert PLANTED not in said


def test_a_known_secret_is_found_as_json_as_repr_and_in_an_address() -> None:
    secret = 'quote"and\\slash\nline'
    for text in (secret, repr(secret), '{"x": "quote\\"and\\\\slash\\nline"}', "?x=quote%22and%5Cslash%0Aline"):
        assert "slash" not in REDACTOR.text(text)
    assert REDACTOR.text("prefix-12345678-longer prefix-12345678") == f"{CUT} {CUT}"


def test_values_are_searched_to_the_ground() -> None:
    value = {
        "list": [{"password": "a", "safe": "b"}, ("x", {PLANTED: PLANTED})],
        "bytes": PLANTED.encode(),
        "headers": {"Authorization": ["Bearer abc", b"def"], "X-Api-Key": "k"},
        "count": 3,
        "nothing": None,
        "input_tokens": 12,
        "error": ValueError(f"failed with {PLANTED}"),
    }
    assert REDACTOR.value(value) == {
        "list": [{"password": CUT, "safe": "b"}, ["x", {CUT: CUT}]],
        "bytes": CUT,
        "headers": {"Authorization": CUT, "X-Api-Key": CUT},
        "count": 3,
        "nothing": None,
        "input_tokens": 12,
        "error": f"failed with {CUT}",
    }


def test_a_value_that_cannot_be_shown_is_named_and_nothing_else() -> None:
    class Broken:
        def __str__(self) -> str:  # pyright: ignore[reportImplicitOverride]
            raise RuntimeError(PLANTED)

    assert REDACTOR.value([Broken()]) == ["<Broken that cannot be shown: RuntimeError>"]


def test_endless_nesting_and_endless_text_come_to_an_end() -> None:
    loop: list[object] = [PLANTED]
    loop.append(loop)
    assert PLANTED not in str(REDACTOR.value(loop))
    said = REDACTOR.text("a" * 65_530 + PLANTED + "z" * 10**6)
    assert len(said) < MAX_TEXT + 100
    assert "Pl4n" not in said


@pytest.mark.parametrize(
    "piece",
    ["token", "token=", 'token="', 'token="\\', "bearer ", "://", "sk-", "eyj", "eyjaaaaaaaa.", "-----BEGIN PRIVATE KEY-----", "=" * 9,
     "password" + " " * 8, "authorization:", "?key=", "cookie" + "\\" * 3, "a", "://a:", "secret_", "'", "secret='"],
)  # fmt: skip
def test_no_text_makes_it_slow(piece: str) -> None:
    text = piece * (64 * 1024 // len(piece))
    with no_hang(cpu_s=5):
        REDACTOR.text(text)
        REDACTOR.text(text + "!")
