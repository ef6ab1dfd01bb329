"""The state schema: the fields that an agent keeps beside `messages`, and the reducers through which they change.

An update is checked here, against the agent that runs; what is stored carries each reducer's name, so that a thread's
state is a fold which needs no agent. Reducers are `(old, update) -> new` and never change what they are given.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import cast

import orjson

from app.core.errors import FieldError, InvalidRequest
from app.core.json import check_value
from app.core.values import immutable

MESSAGES = "messages"
"""The one field that every agent has. It is no field of a schema: runs append to it, a caller may overwrite it."""

OWN = "__"
"""What the server's own fields begin with: they can be neither set nor seen from outside."""

Values = Mapping[str, object]
"""The fields of a state, without `messages`. A new one is made for each change; what is in it never changes."""

Reducer = Callable[[object, object], object]
"""`(old, update) -> new`; `old` is `ABSENT` for a field that was never set. Raises `ValueError`: what is wrong."""


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()


@immutable
class FieldUpdate:
    """What a field's reducer was given: as it is stored, shown and folded."""

    name: str
    reducer: str
    value: object

    def to_json(self) -> list[object]:
        return [self.name, self.reducer, self.value]


class StateMisfit(Exception):
    """An update that the state does not take. `errors`: JSON pointers into the update, and what was expected there."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(f"{error.pointer}: {error.detail}" for error in errors))
        self.errors = tuple(errors)


@immutable
class StateField:
    """A field that an agent declares."""

    name: str
    reducer: str
    reduce: Reducer
    faults: Callable[[object], Sequence[FieldError]]
    """What is wrong with a value of the field; pointers are relative to it."""
    default: object = ABSENT
    """What a thread that never had the field starts with; `ABSENT`: nothing."""
    plugin: bool = False
    """The reducer is foreign code: its result is stored as a `replace`."""


@immutable
class StateSchema:
    """The fields of one agent, by name; its middleware's own are among them."""

    fields: Mapping[str, StateField] = field(default_factory=dict[str, StateField])

    def check(self, update: Values, values: Values) -> tuple[FieldUpdate, ...]:
        """The updates that `update` stands for, in its order, on top of `values`. Its own copies of what was given.

        Each is tried: a field's reducer must take it, and what it makes must fit the field's schema.
        Raises `StateMisfit`: an unknown field, one of the server's own, a value that JSON cannot say, a misfit.
        """
        taken: list[FieldUpdate] = []
        errors: list[FieldError] = []
        for name, given in update.items():
            declared = self.fields.get(name)
            if declared is None or name.startswith(OWN):
                errors.append(FieldError(pointer(name), self._unknown()))
                continue
            try:
                value = own_copy(given, MAX_UPDATE_BYTES)
                old = values.get(name, ABSENT)
                new = declared.reduce(old, value)
            except ValueError as error:
                errors.append(FieldError(pointer(name), str(error)))
                continue
            faults = declared.faults(new)
            errors += [FieldError(pointer(name) + fault.pointer, fault.detail) for fault in faults]
            if not faults:
                taken.append(
                    FieldUpdate(name, "replace", new) if declared.plugin else FieldUpdate(name, declared.reducer, value)
                )
        if errors:
            raise StateMisfit(errors)
        return tuple(taken)

    def overwrite(self, update: Values) -> tuple[FieldUpdate, ...]:
        """Like `check`, for values that take the place of what was there, past their reducers."""
        taken: list[FieldUpdate] = []
        errors: list[FieldError] = []
        for name, given in update.items():
            declared = self.fields.get(name)
            if declared is None or name.startswith(OWN):
                errors.append(FieldError(pointer(name), self._unknown()))
                continue
            try:
                value = own_copy(given, MAX_UPDATE_BYTES)
            except ValueError as error:
                errors.append(FieldError(pointer(name), str(error)))
                continue
            errors += [FieldError(pointer(name) + fault.pointer, fault.detail) for fault in declared.faults(value)]
            taken.append(FieldUpdate(name, "replace", value))
        if errors:
            raise StateMisfit(errors)
        return tuple(taken)

    def defaults(self) -> tuple[FieldUpdate, ...]:
        """What a thread that has none of the fields starts with."""
        return tuple(
            FieldUpdate(item.name, "replace", item.default)
            for item in self.fields.values()
            if item.default is not ABSENT
        )

    def _unknown(self) -> str:
        names = [name for name in self.fields if not name.startswith(OWN)]
        declared = f"the agent's state has: {', '.join(names)}" if names else "the agent's state_schema declares none"
        return f"unknown field; {declared}"


NO_FIELDS = StateSchema()


def apply(values: Values, updates: Iterable[FieldUpdate]) -> Values:
    """`values` with the updates folded in, in order. `values` stays as it was.

    Takes what was stored: whatever does not fit any more (the value beneath was overwritten) replaces what was there.
    """
    new: dict[str, object] | None = None
    for update in updates:
        if new is None:
            new = dict(values)
        try:
            new[update.name] = REDUCERS[update.reducer](new.get(update.name, ABSENT), update.value)
        except (ValueError, KeyError):
            new[update.name] = update.value
    return values if new is None else new


def updates_of(stored: Iterable[object]) -> list[FieldUpdate]:
    """The inverse of `FieldUpdate.to_json`, for what we stored ourselves."""
    return [FieldUpdate(*cast("tuple[str, str, object]", item)) for item in stored]


def shown(values: Values) -> dict[str, object]:
    """What callers, tools and hooks see of the fields: all but the server's own."""
    return {name: value for name, value in values.items() if not name.startswith(OWN)}


MAX_UPDATE_BYTES = 1 << 20
"""Longest update of one field, as JSON: as much as a request's body."""


def own_copy(value: object, limit: int | None = None) -> object:
    """A copy that nobody else holds. Raises `ValueError`: what JSON cannot say, we cannot keep, or is over the limit."""
    try:
        data = orjson.dumps(value)
        if limit is not None and len(data) > limit:
            raise ValueError(f"longer than {limit} bytes")
        copy: object = orjson.loads(data)
        check_value(copy)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot be kept: {error}") from error
    except InvalidRequest as error:
        raise ValueError(error.message) from error
    return copy


def pointer(name: str) -> str:
    """The JSON pointer of a member."""
    return "/" + name[:200].replace("~", "~0").replace("/", "~1")


# --- reducers ------------------------------------------------------------------------------------------------------


def _replace(_: object, update: object) -> object:
    return update


def _append(old: object, update: object) -> object:
    return [*_list(old, update), *cast("list[object]", update)]


def _union(old: object, update: object) -> object:
    """The items that are not there yet, by their JSON, are appended."""
    items = list(_list(old, update))
    seen = {_text(item) for item in items}
    for item in cast("list[object]", update):
        text = _text(item)
        if text not in seen:
            seen.add(text)
            items.append(item)
    return items


def _merge_by_id(old: object, update: object) -> object:
    """An item takes the place of the one with its `id`; one with a new `id` is appended."""
    items = list(_list(old, update))
    places = {_id_of(item): place for place, item in enumerate(items)}
    for item in cast("list[object]", update):
        key = _id_of(item)
        if key in places:
            items[places[key]] = item
        else:
            places[key] = len(items)
            items.append(item)
    return items


def _merge_object(old: object, update: object) -> object:
    """Members take the place of those of their name."""
    if not isinstance(update, dict):
        raise ValueError("must be an object with the members to set")
    if old is ABSENT or old is None:
        return cast("object", update)
    if not isinstance(old, dict):
        raise ValueError("what is there is no object; overwrite it")
    return {**cast("dict[str, object]", old), **cast("dict[str, object]", update)}


def _sum(old: object, update: object) -> object:
    total = _number(0 if old is ABSENT or old is None else old) + _number(update)
    if isinstance(total, int) and not -(2**63) <= total < 2**63:
        raise ValueError("the sum is beyond 64 bits")
    if isinstance(total, float) and not -1.7e308 <= total <= 1.7e308:
        raise ValueError("the sum is no number any more")
    return total


def _max(old: object, update: object) -> object:
    """The greater of two numbers, or the later of two texts (by code point)."""
    if isinstance(update, str):
        if not isinstance(old, str):
            if old is ABSENT or old is None:
                return update
            raise ValueError("a text cannot be compared with what is there")
        return max(old, update)
    number = _number(update)
    return number if old is ABSENT or old is None else max(_number(old), number)


def _list(old: object, update: object) -> list[object]:
    if not isinstance(update, list):
        raise ValueError("must be a list of items")
    if old is ABSENT or old is None:
        return []
    if not isinstance(old, list):
        raise ValueError("what is there is no list; overwrite it")
    return cast("list[object]", old)


def _id_of(item: object) -> tuple[bool, object]:
    found: object = cast("dict[str, object]", item).get("id") if isinstance(item, dict) else None
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise ValueError("each item must be an object with an `id` (text or a whole number)")
    return isinstance(found, str), found


def _number(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a number")
    return value


def _text(item: object) -> bytes:
    return orjson.dumps(item, option=orjson.OPT_SORT_KEYS)


REDUCERS: Mapping[str, Reducer] = {
    "replace": _replace,
    "append": _append,
    "merge_by_id": _merge_by_id,
    "merge_object": _merge_object,
    "sum": _sum,
    "max": _max,
    "union": _union,
}
"""The built-in ones, by name. A stored update names one of these."""
