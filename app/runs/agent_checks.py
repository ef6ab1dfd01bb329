"""Agent checks: what of an agent's parts must fit together, before any model is called."""

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from app.agent.plugin_api import ParsingErrorPlugin, PlannerPlugin, ReducerFunction, ReducerPlugin, TrimPlugin
from app.core.errors import FieldError, InvalidRequest
from app.core.json import encode_text
from app.runs.spec import AGENT_TYPES
from app.tools.approval import rule_of

Settings = Mapping[str, object]


class KnownPlugins(Protocol):
    """The loop plugins that this server has (`app.runs.loop_plugins`)."""

    def names(self, kind: type[PlannerPlugin | ParsingErrorPlugin | TrimPlugin | ReducerPlugin]) -> Sequence[str]: ...

    def planner(self, name: str) -> PlannerPlugin | None: ...

    def reducer(self, name: str) -> ReducerFunction | None: ...


def check_agent(
    settings: Settings,
    tools: Sequence[Mapping[str, object]],
    plugins: KnownPlugins,
    pointer: str,
    *,
    answer: str | None = None,
) -> None:
    """`tools`: the agent's, by name. `answer`: the tool that gives its structured answer, if one does.

    `pointer`: where the agent stands in the body. Raises `InvalidRequest`.
    """
    names = [str(tool["name"]) for tool in tools]
    _check_choice(settings, names if answer is None else [*names, answer], pointer)
    _check_type(str(settings["type"]), names, plugins, pointer)
    _check_interrupts(settings, names, pointer)
    _check_plugin(settings, "handle_parsing_errors", plugins.names(ParsingErrorPlugin), pointer)
    _check_plugin(settings, "trim_intermediate_steps", plugins.names(TrimPlugin), pointer)


def _check_choice(settings: Settings, names: Sequence[str], pointer: str) -> None:
    choice = settings.get("tool_choice")
    if isinstance(choice, str) and choice not in ("auto", "none", "required", *names):
        raise InvalidRequest(
            f"`tool_choice` names a tool that the agent does not have: {choice[:64]}.",
            code="unknown_tool",
            errors=(FieldError(f"{pointer}/tool_choice", "unknown tool"),),
        )


def _check_type(kind: str, names: Sequence[str], plugins: KnownPlugins, pointer: str) -> None:
    if kind == "self_ask" and len(names) != 1:
        detail = f"a self_ask agent asks exactly one tool; this one has {len(names)}"
        raise InvalidRequest(
            f"The agent's tools do not fit: {detail}.", errors=(FieldError(f"{pointer}/tools", detail),)
        )
    if kind in AGENT_TYPES:
        return
    planner = plugins.planner(kind)
    if planner is None:
        known = ", ".join([*AGENT_TYPES, *plugins.names(PlannerPlugin)])
        raise InvalidRequest(
            f"There is no agent type `{kind}`; there are: {known}.",
            code="unknown_agent_type",
            errors=(FieldError(f"{pointer}/type", "unknown agent type"),),
        )
    allowed = planner.allowed_tools
    if allowed is not None and allowed != set(names):
        detail = f"Allowed tools ({encode_text(sorted(allowed))}) different than provided tools ({encode_text(names)})"
        raise InvalidRequest(f"{detail}.", errors=(FieldError(f"{pointer}/tools", detail),))


def _check_interrupts(settings: Settings, names: Sequence[str], pointer: str) -> None:
    for name, rule in cast("Mapping[str, object]", settings.get("interrupt_on") or {}).items():
        at = f"{pointer}/interrupt_on/{name}"
        if name not in names:
            raise InvalidRequest(
                f"`interrupt_on` names a tool that the agent does not have: {name}.",
                code="unknown_tool",
                errors=(FieldError(at, "unknown tool"),),
            )
        rule_of(rule, at)


def _check_plugin(settings: Settings, field: str, known: Sequence[str], pointer: str) -> None:
    value = settings.get(field)
    if not isinstance(value, Mapping) or "plugin" not in value:
        return
    name = str(cast("Mapping[str, object]", value)["plugin"])
    if name not in known:
        there = f"there are: {', '.join(known)}" if known else "this server has none for this setting (RUNWIRE_PLUGINS)"
        raise InvalidRequest(
            f"There is no plugin `{name}` for `{field}`; {there}.",
            code="unknown_plugin",
            errors=(FieldError(f"{pointer}/{field}/plugin", "unknown plugin"),),
        )
