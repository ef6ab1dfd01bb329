"""The work of `runwire tools`."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from app.cli import exits
from app.cli.inputs import UsageError, arguments, read_object
from app.cli.layout import Column
from app.cli.listing import as_said, show_list, text_of
from app.cli.session import Session, say
from app.cli.text import one_line

COLUMNS = (
    Column("NAME"),
    Column("EFFECT"),
    Column("SOURCE", 1),
    Column("VERSION", 3),
    Column("DESCRIPTION", 2, cut=True),
)
SHOWN = 200


async def list_tools(session: Session, source: str | None, limit: int | None) -> None:
    await show_list(session, _tools(session, source), COLUMNS, _row, limit=limit, what="tools")


async def _tools(session: Session, source: str | None) -> AsyncIterator[Mapping[str, object]]:
    async for tool in session.client.tools.iterate():
        if source is None or tool.get("source") == source:
            yield tool


def _row(tool: Mapping[str, object]) -> list[str]:
    return [
        text_of(tool, "name"), text_of(tool, "effect"), text_of(tool, "source"), text_of(tool, "version"),
        one_line(tool.get("description"), SHOWN),
    ]  # fmt: skip


async def show_tool(session: Session, name: str) -> None:
    _show(session, as_said(await session.client.tools.get(name)))


def _show(session: Session, tool: Mapping[str, object]) -> None:
    screen = session.screen
    if screen.as_json:
        screen.json(tool)
        return
    usual = ("name", "version", "source", "created_at", "effect", "idempotent", "description", "http", "signing_secret")
    http = cast("dict[str, object]", tool.get("http") or {})
    screen.fields((
        ("name", tool.get("name")),
        ("version", text_of(tool, "version")),
        ("source", tool.get("source")),
        ("created", tool.get("created_at")),
        ("effect", tool.get("effect")),
        ("idempotent", tool.get("idempotent")),
        ("description", tool.get("description")),
        ("call", f"{http.get('method')} {http.get('url')}" if http else None),
        *((name, value) for name, value in tool.items() if name not in (*usual, "parameters") and value not in ({}, [])),
        ("parameters", json.dumps(tool.get("parameters"), indent=2, ensure_ascii=False)),
        ("signing secret", tool.get("signing_secret")),
    ))  # fmt: skip
    if tool.get("signing_secret"):
        screen.line("(the secret is shown this once)", "yellow")


@dataclass(frozen=True, slots=True)
class ToolGiven:
    """A tool as the command line describes it."""

    file: str | None
    name: str | None
    url: str | None
    description: str | None
    parameters: str | None
    effect: str | None

    def spec(self) -> dict[str, object]:
        """The ToolSpec: the file's, and the options over it. Raises `UsageError`."""
        if self.file == "-" and self.parameters == "-":
            raise UsageError("Standard input can be read once: give the tool or its --parameters as a file.")
        spec: dict[str, object] = {} if self.file is None else read_object(self.file)
        options = {"name": self.name, "description": self.description, "effect": self.effect}
        spec.update({name: value for name, value in options.items() if value is not None})
        if self.parameters is not None:
            spec["parameters"] = read_object(self.parameters)
        if self.url is not None:
            http = spec.get("http")
            spec["http"] = {**(cast("dict[str, object]", http) if isinstance(http, dict) else {}), "url": self.url}
        if not isinstance(spec.get("name"), str):
            raise UsageError("The tool needs a name: in the file, or by --name.")
        if "http" not in spec:
            raise UsageError("The tool needs the address of its calls: `http.url` in the file, or --call.")
        return spec


async def add_tool(session: Session, given: ToolGiven, *, replace: bool) -> None:
    spec = given.spec()
    tools = session.client.tools
    made = await (tools.put(str(spec["name"]), spec) if replace else tools.create(spec))
    _show(session, as_said(made))


async def rotate_secret(session: Session, name: str) -> None:
    made = await session.client.tools.rotate_secret(name)
    screen = session.screen
    if screen.as_json:
        screen.json(made)
        return
    screen.fields((
        ("tool", name),
        ("signing secret", made.get("signing_secret")),
        ("old one signs until", made.get("old_secret_expires_at")),
    ))  # fmt: skip
    screen.line("(the secret is shown this once)", "yellow")


async def switch_tools(session: Session, name: str | None, *, off: bool, reason: str = "") -> None:
    """Switch a tool off or on; `name` `None`: all tool calls of the tenant."""
    tools, calls = session.client.tools, session.client.tool_calls
    if name is None:
        state = await (calls.disable(reason) if off else calls.enable())
    else:
        state = await (tools.disable(name, reason) if off else tools.enable(name))
    if session.screen.as_json:
        session.screen.json(state)
        return
    what = "all tool calls" if name is None else name
    session.screen.line(f"disabled {what}" if state.get("disabled") is True else f"enabled {what}")
    if not off and state.get("disabled") is True:
        say(f"They stay off by {state.get('by')}, which only the operator lifts.")


async def invoke_tool(session: Session, name: str, pairs: Sequence[str], document: str | None) -> int:
    envelope = as_said(await session.client.tools.invoke(name, arguments(pairs, document)))
    ok = envelope.get("ok") is True
    screen = session.screen
    if screen.as_json:
        screen.json(envelope)
    elif ok:
        data = envelope.get("data")
        screen.line(data if isinstance(data, str) else json.dumps(data, ensure_ascii=False))
    else:
        error = cast("dict[str, object]", envelope.get("error") or {})
        screen.fields((
            ("status", envelope.get("status")),
            ("error", f"{error.get('user_message')} ({error.get('code')})"),
            ("state", error.get("state")),
            ("retryable", error.get("retryable")),
            ("call", error.get("tool_call_id")),
            ("request", error.get("request_id")),
        ))  # fmt: skip
    return exits.SUCCESS if ok else exits.FAILED
