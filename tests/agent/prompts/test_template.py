"""A template holds plain variables, and nothing in a value is ever read as one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.agent.prompts.template import PromptTemplate


def test_variables_are_replaced_and_doubled_braces_are_braces() -> None:
    template = PromptTemplate.from_text('{{"q": "{input}"}} {input}{tools}')
    assert template.variables() == {"input", "tools"}
    assert template.render({"input": "a", "tools": "t"}) == '{"q": "a"} at'


@given(value=st.text(), other=st.text())
def test_values_are_never_read_again(value: str, other: str) -> None:
    template = PromptTemplate.from_text("<{input}|{other}>")
    assert template.render({"input": value, "other": other, "extra": "x"}) == f"<{value}|{other}>"
    braces = "{other}{{}}{input.x}"
    assert template.render({"input": braces, "other": "o"}) == f"<{braces}|o>"


@given(text=st.text())
def test_any_text_is_a_template_when_its_braces_are_doubled(text: str) -> None:
    template = PromptTemplate.from_text(text.replace("{", "{{").replace("}", "}}"))
    assert template.variables() == set()
    assert template.render({}) == text


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "}",
        "{a",
        "a}",
        "{}",
        "{0}",
        "{a.b}",
        "{a[0]}",
        "{a!r}",
        "{a:>10}",
        "{a:{b}}",
        "{ a }",
        "{{a}",
        "{a-b}",
        "{a!}",
    ],
)
def test_what_is_no_plain_variable_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="brace"):
        PromptTemplate.from_text(text)


@given(text=st.text(alphabet="{}ab.!:[] "))
def test_any_text_is_a_template_or_refused_as_a_value_error(text: str) -> None:
    try:
        template = PromptTemplate.from_text(text)
    except ValueError:
        return
    assert template.render(dict.fromkeys(template.variables(), "{")).count("a") <= text.count("a")


def test_values_that_are_missing_are_named() -> None:
    with pytest.raises(ValueError, match=r'\["a","b"\]'):
        PromptTemplate.from_text("{b}{a}{c}").render({"c": ""})
