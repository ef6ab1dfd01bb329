"""Questions: what a tool asks while it runs, and the answers that it gets when it runs again."""

import threading
from collections.abc import Mapping, Sequence
from typing import cast

from app.agent.state_schema import own_copy
from app.core.errors import InvalidRequest
from app.core.interrupts import MAX_ANSWER_S, Interrupted
from app.core.values import immutable
from app.tools.schema import check_schema

MAX_PAYLOAD_BYTES = 64 * 1024
"""Longest payload or schema of a question: it stands in the run's row, an event and every list of runs."""

MAX_QUESTIONS = 100
"""How often one call may ask: each answer is stored with the call again when the next question is."""


@immutable
class Answers:
    """What a call was told so far, and what that took."""

    given: tuple[object, ...] = ()
    """In the order of the questions."""
    sent: int = 0
    """The number of the attempt that asked last: those up to it did nothing that counts, for each stopped at a question."""


NONE_GIVEN = Answers()


@immutable
class Question:
    """What is asked, our own copy of it."""

    payload: object
    response_schema: Mapping[str, object] | None
    """What an answer must fit; `None`: any JSON."""
    message: str | None
    expires_s: float


class Questions:
    """The questions of one running call: the first ones are answered, in order; the next one stops it.

    What was asked is remembered, so that a call waits although its code caught `Interrupted` and went on.
    """

    __slots__ = ("_answers", "_lock", "_next", "open")

    def __init__(self, answers: Sequence[object] = ()) -> None:
        self._answers = answers
        self._next = 0
        self._lock = threading.Lock()
        self.open: Question | None = None
        """The first question without an answer."""

    def ask(
        self, payload: object, response_schema: Mapping[str, object] | None, message: str | None, expires_s: float, /
    ) -> object:
        """See `app.core.interrupts.Ask`. From any thread.

        Raises `ValueError`: a payload or schema that cannot be kept, or a time that is none.
        """
        with self._lock:
            if self.open is None and self._next < len(self._answers):
                self._next += 1
                return own_copy(self._answers[self._next - 1])
            if self.open is None:
                if len(self._answers) >= MAX_QUESTIONS:
                    raise ValueError(f"a call may ask {MAX_QUESTIONS} times")
                self.open = _question(payload, response_schema, message, expires_s)
            raise Interrupted


def _question(
    payload: object, response_schema: Mapping[str, object] | None, message: str | None, expires_s: float
) -> Question:
    if not 0 < expires_s <= MAX_ANSWER_S:
        raise ValueError(f"expires_s must be above 0 and at most {MAX_ANSWER_S:g} seconds")
    if response_schema is not None:
        response_schema = cast("dict[str, object]", own_copy(response_schema, MAX_PAYLOAD_BYTES))
        try:
            check_schema(response_schema, "", of_object=False)
        except InvalidRequest as error:
            details = "; ".join(f"at {fault.pointer or '/'}: {fault.detail}" for fault in error.errors)
            raise ValueError(f"response_schema: {error.message} {details}") from error
    said = None if message is None else str(own_copy(message, MAX_PAYLOAD_BYTES))
    return Question(own_copy(payload, MAX_PAYLOAD_BYTES), response_schema, said, expires_s)
