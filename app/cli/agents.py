"""The work of `runwire agents`."""

from collections.abc import Mapping
from typing import cast

from pydantic import ValidationError

from app.cli import exits
from app.cli.inputs import UsageError, read_document
from app.cli.layout import Column
from app.cli.listing import as_said, show_list, text_of
from app.cli.session import Session, say
from app.cli.text import one_line
from app.client.errors import NotFound, ProblemError
from app.core.errors import RunwireError
from app.models.spec import check_model
from app.runs.spec import RegisteredAgentSpec, settings_json

COLUMNS = (
    Column("NAME"),
    Column("VERSION", 2),
    Column("MODEL", 1),
    Column("TOOLS", 3, cut=True),
    Column("DESCRIPTION", 4, cut=True),
)
SHOWN = 200
SERVERS_OWN = frozenset(("version", "created_at", "model", "tools", "middleware"))
"""What the server says of an agent beside its settings."""


async def list_agents(session: Session, limit: int | None) -> None:
    await show_list(session, session.client.agents.iterate(), COLUMNS, _row, limit=limit, what="agents")


def _row(agent: Mapping[str, object]) -> list[str]:
    return [
        text_of(agent, "name"), text_of(agent, "version"), _model(agent.get("model")), ", ".join(_tools(agent)),
        one_line(agent.get("description"), SHOWN),
    ]  # fmt: skip


def _model(model: object) -> str:
    if not isinstance(model, dict):
        return one_line(model, SHOWN)
    named = cast("dict[str, object]", model)
    return ":".join(part for part in (text_of(named, "provider"), text_of(named, "model")) if part)


def _tools(agent: Mapping[str, object]) -> list[str]:
    tools = agent.get("tools")
    given = cast("list[object]", tools) if isinstance(tools, list) else []
    return [tool if isinstance(tool, str) else text_of(cast("dict[str, object]", tool), "name") for tool in given]


async def show_agent(session: Session, name: str) -> None:
    agent = as_said(await session.client.agents.get(name))
    screen = session.screen
    if screen.as_json:
        screen.json(agent)
        return
    first = ("name", "version", "description", "created_at", "model", "tools", "instructions")
    screen.fields((
        ("name", agent.get("name")),
        ("version", text_of(agent, "version")),
        ("description", agent.get("description")),
        ("created", agent.get("created_at")),
        ("model", agent.get("model")),
        ("tools", ", ".join(_tools(agent))),
        ("instructions", agent.get("instructions")),
        *((name, value) for name, value in agent.items() if name not in first and value not in ({}, [])),
    ))  # fmt: skip


async def apply_agents(session: Session, file: str) -> int:
    """Each agent of the file, in its order; the first that is refused stops the others. Raises `ClientError`, `UsageError`."""
    for name, spec in _agents_of(file):
        try:
            said, agent = await _apply(session, name, spec)
        except ProblemError:
            say(f"The agent {one_line(name, SHOWN)} was refused:")
            raise
        if session.screen.as_json:
            session.screen.json_line({"result": said, "agent": agent})
        else:
            session.screen.line(f"{said} {name} (version {agent.get('version')})")
    return exits.SUCCESS


def _agents_of(file: str) -> list[tuple[str, dict[str, object]]]:
    document = read_document(file)
    items = cast("list[object]", document) if isinstance(document, list) else [document]
    if file.endswith(".toml") and isinstance(document, dict):
        several = cast("dict[str, object]", document).get("agents")  # TOML cannot be an array itself: [[agents]]
        items = cast("list[object]", several) if isinstance(several, list) else items
    found: list[tuple[str, dict[str, object]]] = []
    for at, item in enumerate(items):
        spec = cast("dict[str, object]", item) if isinstance(item, dict) else {}
        name = spec.get("name")
        if not isinstance(name, str):
            raise UsageError(f"{file}: agent {at + 1} is not an object with a `name`.")
        found.append((name, spec))
    names = [name for name, _ in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{file} holds the agent `{twice}` twice.")
    return found


async def _apply(session: Session, name: str, spec: dict[str, object]) -> tuple[str, dict[str, object]]:
    agents = session.client.agents
    try:
        before = as_said(await agents.get(name))
    except NotFound as error:
        if error.code != "agent_not_found":
            raise
        return "created", as_said(await agents.put(name, spec))
    if _same(spec, before):
        return "unchanged", before
    return "replaced", as_said(await agents.put(name, spec))


def _same(spec: dict[str, object], known: Mapping[str, object]) -> bool:
    """Whether the server has this agent already. In doubt it has not: inline tools, keys and secrets cannot be compared."""
    try:
        given = RegisteredAgentSpec.model_validate(spec)
    except (ValidationError, RunwireError):
        return False  # the server says what is wrong, as it does for everyone
    settings = settings_json(given)
    there = {name: value for name, value in known.items() if name not in SERVERS_OWN}
    hooks: list[dict[str, object]] = [{"config": {}, **item} for item in given.middleware_list]
    return (
        settings == there
        and given.tools == known.get("tools")
        and hooks == (known.get("middleware") or [])
        and _same_model(given.model, known.get("model"))
    )


def _same_model(given: str | dict[str, object], known: object) -> bool:
    if not isinstance(known, dict) or (isinstance(given, dict) and "api_key" in given):
        return False
    there = _set_fields(cast("dict[str, object]", known))
    if there == {"provider": "alias", "model": given}:
        return True
    provider = given.partition(":")[0] if isinstance(given, str) else str(given.get("provider"))
    try:
        pinned = check_model(given, pointer="/model", plugins=(provider,)).pinned
    except RunwireError:
        return False
    return _set_fields(pinned) == there


def _set_fields(model: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in model.items() if value not in (None, {}, False)}
