"""Interrupts: how a plugin's code stops to ask a person, and what it is told where nobody will answer."""

from collections.abc import Mapping
from typing import NoReturn, Protocol

ANSWER_S = 7 * 86_400.0
"""How long a person has by default: a week, so that a weekend does not lose what was asked on a Friday."""

MAX_ANSWER_S = 366 * 86_400.0


class Interrupted(BaseException):
    """Leaves code that asked; it runs again, from its start, when the answer is there.

    Not an `Exception`: code that catches those to go on without an answer does not catch this. Cleaning up in
    `finally` is fine.
    """


class Ask(Protocol):
    """Asks a question: gives its answer where there is one, else raises `Interrupted`."""

    def __call__(
        self, payload: object, response_schema: Mapping[str, object] | None, message: str | None, expires_s: float, /
    ) -> object: ...


def nobody_to_ask(
    _payload: object, _schema: Mapping[str, object] | None, _message: str | None, _expires_s: float, /
) -> NoReturn:
    """Where the server did not make the context. Raises `RuntimeError`."""
    raise RuntimeError("There is nobody to ask here.")
