"""Tool call fragments: how the pieces of a Chat Completions stream become whole proposed calls. Pure."""

from collections.abc import Mapping
from typing import cast

import orjson

from app.agent.ports import ProposedCall, ToolCallDelta
from app.core.errors import InvalidRequest, ModelError
from app.core.json import check_value, encode_text
from app.models.text import storable

MAX_CALLS = 1024
"""Calls in one answer. An agent's own `max_tool_calls_per_round` is far below; this bounds what has to be kept at all."""

MAX_CALL_BYTES = 8 * 1024 * 1024
"""Bytes of all the ids, names and arguments of one answer's calls."""

MAX_CHECKED = 64 * 1024 * 1024
"""Characters that may be looked at to tell apart calls under one index; beyond it they are held to be one call."""

_AGAIN = "Call the tool again with its arguments as one JSON object."


class _Call:
    """A call while it is put together."""

    __slots__ = ("announced", "args", "id", "name", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self.id: str | None = None
        self.name = ""
        self.args: list[str] = []
        self.announced = False

    def text(self) -> str:
        """The arguments so far; they are kept joined, so that asking again costs only what came since."""
        if len(self.args) != 1:
            self.args = ["".join(self.args)]
        return self.args[0]


class ToolFragments:
    """Collects the `tool_calls` entries of a stream's chunks.

    Servers differ: `index` may be missing, or 0 for every call; id and name may be repeated in each fragment; a call
    may come whole, its arguments as an object. Calls keep the order in which they first appeared.
    """

    __slots__ = ("_by_id", "_by_index", "_bytes", "_calls", "_checked")

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._bytes = 0
        self._checked = 0

    def __len__(self) -> int:
        return len(self._calls)

    def feed(self, fragments: object) -> list[ToolCallDelta]:
        """Take one chunk's `tool_calls`. `index` in a delta is the call's position, whatever the server said.

        Raises `ModelError` (`model_invalid_response`): more than `MAX_CALLS` calls or `MAX_CALL_BYTES`.
        """
        deltas: list[ToolCallDelta] = []
        if not isinstance(fragments, list):
            return deltas
        taken: set[int] = set()
        for item in cast("list[object]", fragments):
            if not isinstance(item, Mapping):
                continue
            delta = self._take(cast("Mapping[str, object]", item), taken)
            if delta is not None:
                deltas.append(delta)
        return deltas

    def calls(self, *, cut: bool) -> tuple[ProposedCall, ...]:
        """The whole calls. `cut`: the answer ended at its token limit, which explains arguments that are not complete."""
        return tuple(proposed(call.name, call.id, call.text(), cut=cut) for call in self._calls)

    def _take(self, fragment: Mapping[str, object], taken: set[int]) -> ToolCallDelta | None:
        function: object = fragment.get("function")
        fields = cast("Mapping[str, object]", function) if isinstance(function, Mapping) else fragment
        call_id = _text(fragment.get("id"))
        name = _text(fields.get("name"))
        raw: object = fields.get("arguments")
        args = "" if raw is None else storable(raw) if isinstance(raw, str) else _object_text(raw)
        index: object = fragment.get("index")
        call = self._call_of(index if isinstance(index, int) else None, call_id, name, args, taken)
        if call.id is None and call_id:
            self._count(call_id)
            call.id = call_id
            self._by_id.setdefault(call_id, call)
        if not call.name and name:
            self._count(name)
            call.name = name
        if args:
            self._count(args)
            call.args.append(args)
        if call.announced:
            return ToolCallDelta(call.position, None, None, args) if args else None
        if not call.name:
            # Readers are promised the name with the first fragment: keep the text until it comes.
            return None
        call.announced = True
        return ToolCallDelta(call.position, call.id, call.name, "".join(call.args))

    def _call_of(self, index: int | None, call_id: str, name: str, args: str, taken: set[int]) -> _Call:
        """The call that a fragment belongs to, or a new one."""
        call: _Call | None
        if index is not None:
            call = self._by_index.get(index)
        else:
            call = self._by_id.get(call_id) if call_id else None
            if call is None and not call_id:
                call = self._calls[-1] if self._calls else None
            if call is not None and call.position in taken:
                call = None  # entries without an index in one chunk are calls of their own
        if call is None or self._begins_another(call, call_id, name, args):
            if len(self._calls) >= MAX_CALLS:
                raise too_many_calls()
            call = _Call(len(self._calls))
            self._calls.append(call)
            if index is not None:
                self._by_index[index] = call
        if index is None:
            taken.add(call.position)
        return call

    def _begins_another(self, call: _Call, call_id: str, name: str, args: str) -> bool:
        """Whether a fragment under a known index starts a new call: a new id with a name, or arguments after whole ones."""
        if not name:
            return False
        if call_id and call.id:
            return call_id != call.id
        if not (args and call.args and call.args[-1].rstrip().endswith("}")) or self._checked > MAX_CHECKED:
            return False
        text = call.text()
        self._checked += len(text)
        return parse_args(text)[0] is not None

    def _count(self, text: str) -> None:
        self._bytes += len(text) if text.isascii() else len(text.encode())
        if self._bytes > MAX_CALL_BYTES:
            raise ModelError(
                f"The model's tool calls are longer than {MAX_CALL_BYTES} bytes, the server's limit for one answer.",
                code="model_invalid_response",
            )


def too_many_calls() -> ModelError:
    return ModelError(
        f"The model made more than {MAX_CALLS} tool calls in one answer, the server's limit.",
        code="model_invalid_response",
    )


def proposed(name: str, call_id: str | None, raw: str, *, cut: bool = False) -> ProposedCall:
    """One call from its whole text. What is wrong with it is told in `error`, in words for the model."""
    args, error = parse_args(raw)
    if error and cut:
        error = "The answer reached its token limit before the arguments were complete. Call again with shorter ones."
    if not name:
        args, error = None, "The call has no tool name. Call one of the offered tools by its name."
    return ProposedCall(name, args, call_id, raw, error)


def parse_args(raw: str) -> tuple[dict[str, object] | None, str | None]:
    """(arguments, None) or (None, what is wrong). Nothing at all and `null` mean no arguments."""
    if not raw or raw.isspace():
        return {}, None
    try:
        value: object = orjson.loads(raw)
    except ValueError as error:
        return None, f"The arguments are not valid JSON ({error}). {_AGAIN}"
    if value is None:
        return {}, None
    if not isinstance(value, dict):
        return None, f"The arguments are {_kind(value)}, not a JSON object. {_AGAIN}"
    args = cast("dict[str, object]", value)
    try:
        check_value(args)
    except InvalidRequest as error:
        detail = error.errors[0].detail if error.errors else error.message
        return None, f"The arguments hold a value that cannot be used: {detail}. {_AGAIN}"
    return args, None


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "an array"
    if isinstance(value, str):
        return "a text"
    return "true or false" if isinstance(value, bool) else "a number"


def _object_text(value: object) -> str:
    try:
        return encode_text(value)
    except TypeError as error:  # nested too deep, or text that is not Unicode
        return f"({storable(str(error))})"


def _text(value: object) -> str:
    return storable(value) if isinstance(value, str) else ""
