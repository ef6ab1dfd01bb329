"""JSON from outside: what we could not store and give back unchanged is refused, whatever it looks like."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import InvalidRequest
from app.core.json import MAX_DEPTH, check_value, decode_strict


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":"\\u0000"}',
        b'{"\\u0000":1}',
        b'["x\\\\\\u0000"]',
        b"[9223372036854775808]",
        b"[-9223372036854775809]",
        b"[18446744073709551616]",
        b"[1e400]",
        b"[1E19]",
        b"[NaN]",
        b"[Infinity]",
        b'["\\ud800"]',
        b"[" * (MAX_DEPTH + 2) + b"]" * (MAX_DEPTH + 2),
        b"[" * 10_000 + b"]" * 10_000,
        b'{"a":' * 200 + b"1" + b"}" * 200,
        b"\xff",
        b"",
        b"[1,]",
    ],
)
def test_what_cannot_be_kept_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decode_strict(data)


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)


@given(_JSON)
def test_an_ordinary_look_never_hides_an_odd_value(value: object) -> None:
    """The quick look at the text may only ever skip what the walk would let through."""
    for data in (json.dumps(value).encode(), json.dumps(value, ensure_ascii=False).encode()):
        parsed = json.loads(data)
        try:
            check_value(parsed)
        except InvalidRequest:
            with pytest.raises(InvalidRequest):
                decode_strict(data)
        else:
            assert decode_strict(data) == parsed


@pytest.mark.parametrize(
    ("data", "pointer"),
    [
        (b'{"a":[1,{"b~/":"\\u0000"}]}', "/a/1/b~0~1"),
        (b'[[],{"x":[]},[1,[9223372036854775808]]]', "/2/1/0"),
        (b'{"a":1,"b":{"\\u0000":2}}', "/b"),
        (b'"\\u0000"', ""),
    ],
)
def test_a_refusal_names_the_place(data: bytes, pointer: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_strict(data)
    assert [error.pointer for error in caught.value.errors] == [pointer]


def test_a_long_key_over_many_elements_costs_no_more_than_its_body() -> None:
    data = b'{"' + b"k" * 100_000 + b'":[' + b"0," * 50_000 + b'"\\u0000"]}'
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest):
            decode_strict(data)
        assert tracemalloc.get_traced_memory()[1] < 20 * len(data)
    finally:
        tracemalloc.stop()
