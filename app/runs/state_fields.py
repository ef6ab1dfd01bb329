"""State fields: an agent's `state_schema` and `context_schema` from its spec, compiled once for each text."""

from collections.abc import Mapping, Sequence
from typing import TypeVar, cast

from app.agent.plugin_api import ReducerPlugin
from app.agent.state_schema import ABSENT, MESSAGES, NO_FIELDS, REDUCERS, StateField, StateMisfit, StateSchema, Values
from app.core.errors import FieldError, InvalidRequest
from app.core.json import encode
from app.runs.agent_checks import KnownPlugins
from app.tools.schema import ArgumentSchema, check_schema

KEPT = 512
"""Compiled schemas that are remembered; an agent's runs all use the same."""

OF_MIDDLEWARE = "middleware_state"
"""The setting under which an agent keeps the fields that its middleware brings. It is no field of an AgentSpec."""

Settings = Mapping[str, object]
T = TypeVar("T")


class StateFields:
    """The schemas of agents' states, by their text."""

    def __init__(self, plugins: KnownPlugins) -> None:
        self._plugins = plugins
        self._states: dict[bytes, StateSchema] = {}
        self._contexts: dict[bytes, ArgumentSchema] = {}

    def of(self, settings: Settings, pointer: str = "/agent") -> StateSchema:
        """The state of an agent. `pointer`: where it stands in the body.

        Raises `InvalidRequest`: a schema that is none, an unknown reducer (`unknown_plugin`), a default that does not fit.
        """
        own = cast("Mapping[str, Mapping[str, object]]", settings.get("state_schema") or {})
        brought = cast("Mapping[str, Mapping[str, object]]", settings.get(OF_MIDDLEWARE) or {})
        declared = {**brought, **own} if brought else own
        if not declared:
            return NO_FIELDS
        key = encode(declared)
        found = self._states.get(key)
        if found is None:
            at = f"{pointer}/state_schema"
            found = StateSchema({name: self._field(name, spec, f"{at}/{name}") for name, spec in declared.items()})
            _keep(self._states, key, found)
        return found

    def check_agent(self, settings: Settings, pointer: str) -> None:
        """Raises `InvalidRequest` where the agent's schemas cannot be used."""
        self.of(settings, pointer)
        self._context(settings, pointer)

    def check_context(self, settings: Settings, context: Mapping[str, object]) -> None:
        """Raises `InvalidRequest` where a run's context does not fit the agent's `context_schema`."""
        schema = self._context(settings, "/agent")
        if schema is None or schema.is_valid(context):
            return
        errors = tuple(FieldError(f"/context{fault.pointer}", fault.detail) for fault in schema.faults(context))
        raise InvalidRequest("The context does not fit the agent's context_schema.", errors=errors)

    def _context(self, settings: Settings, pointer: str) -> ArgumentSchema | None:
        declared = cast("Mapping[str, object] | None", settings.get("context_schema"))
        if declared is None:
            return None
        key = encode(declared)
        found = self._contexts.get(key)
        if found is None:
            found = check_schema(declared, f"{pointer}/context_schema", of_object=False)
            _keep(self._contexts, key, found)
        return found

    def _field(self, name: str, spec: Mapping[str, object], at: str) -> StateField:
        schema = check_schema(cast("Mapping[str, object]", spec.get("schema") or {}), f"{at}/schema", of_object=False)
        reducer = str(spec.get("reducer") or "replace")
        plugin = None if reducer in REDUCERS else self._plugins.reducer(reducer)
        if reducer not in REDUCERS and plugin is None:
            known = ", ".join([*REDUCERS, *self._plugins.names(ReducerPlugin)])
            raise InvalidRequest(
                f"There is no reducer `{reducer}`; there are: {known}.",
                code="unknown_plugin",
                errors=(FieldError(f"{at}/reducer", "unknown reducer"),),
            )

        def faults(value: object) -> Sequence[FieldError]:
            try:
                return () if schema.is_valid(value) else schema.faults(value)
            except ValueError:
                return (FieldError("", "it holds text or nesting that cannot be checked"),)

        default = spec.get("default", ABSENT)
        wrong = () if default is ABSENT else faults(default)
        if wrong:
            errors = tuple(FieldError(f"{at}/default{fault.pointer}", fault.detail) for fault in wrong)
            raise InvalidRequest(f"The default of `{name}` does not fit its schema.", errors=errors)
        return StateField(name, reducer, plugin or REDUCERS[reducer], faults, default, plugin=plugin is not None)


def refusal(misfit: StateMisfit, pointer: str) -> InvalidRequest:
    """What a caller is told of a misfit. `pointer`: where the update stands in the body."""
    errors = tuple(FieldError(pointer + error.pointer, error.detail) for error in misfit.errors)
    return InvalidRequest("The update does not fit the state; nothing was changed.", errors=errors)


def refuse_messages(state: Values, pointer: str) -> None:
    """Raises `InvalidRequest`: a run's messages come in its `input`."""
    if MESSAGES in state:
        raise InvalidRequest(
            "A run's messages are its `input`.", errors=(FieldError(f"{pointer}/{MESSAGES}", "send them in `input`"),)
        )


def _keep(cache: dict[bytes, T], key: bytes, value: T) -> None:
    if len(cache) >= KEPT:
        del cache[next(iter(cache))]
    cache[key] = value
