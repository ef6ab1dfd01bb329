"""Prompt template: text with `{variables}`; braces are written twice. Values are put in as they are and never read again."""

from collections.abc import Iterable, Mapping
from string import Formatter

from app.core.json import encode_text
from app.core.values import immutable


@immutable
class PromptTemplate:
    """A template, checked and cut into pieces once."""

    text: str
    parts: tuple[tuple[str, str | None], ...]
    """Literal text and the variable behind it, `None` behind the last."""

    @classmethod
    def from_text(cls, text: str, required: Iterable[str] = ()) -> "PromptTemplate":
        """Raises `ValueError`: braces that do not match, anything but a plain name between them, a required variable missing.

        Attributes, indexes, conversions and format specs are refused: they would let a template reach into values.
        """
        try:
            parsed = [(literal, name, spec, conversion) for literal, name, spec, conversion in Formatter().parse(text)]
        except ValueError as error:
            raise ValueError(f"The prompt's braces do not match: {error}. Write a literal brace twice.") from error
        for _, name, spec, conversion in parsed:
            if name is not None and (spec or conversion or not name.isidentifier()):
                raise ValueError(
                    f"The prompt may hold plain variables only, such as {{input}}: `{name}` is not one. Write a literal"
                    " brace twice."
                )
        template = cls(text, tuple((literal, name) for literal, name, _, _ in parsed))
        missing = sorted(set(required) - template.variables())
        if missing:
            raise ValueError(f"Prompt missing required variables: {encode_text(missing)}")
        return template

    def variables(self) -> set[str]:
        return {name for _, name in self.parts if name is not None}

    def render(self, values: Mapping[str, str]) -> str:
        """The text with every variable's value in its place. Raises `ValueError` naming the variables without a value."""
        missing = sorted(self.variables() - values.keys())
        if missing:
            raise ValueError(f"The prompt's variables have no value: {encode_text(missing)}")
        return "".join([piece for text, name in self.parts for piece in (text, "" if name is None else values[name])])
