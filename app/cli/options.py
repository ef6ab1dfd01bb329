"""Options and arguments that several commands share, and what a shell completes for them."""

from collections.abc import Callable
from typing import Annotated

import typer

RUN_STATUSES = ("pending", "running", "interrupted", "success", "error", "cancelled")
CALL_OUTCOMES = ("success", "error", "timeout", "denied", "cancelled", "unknown")
STEP_STATUSES = ("waiting", "running", *CALL_OUTCOMES)

Complete = Callable[[typer.Context, str], list[str]]


def _of(kind: str) -> Complete:
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        from app.cli.completion import names

        return names(kind, ctx.params, incomplete)

    return complete


def _fixed(values: tuple[str, ...]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return complete


def _named(value: str) -> str:
    if value in ("", ".", "..") or "/" in value:
        raise typer.BadParameter(f"{value!r} is no id or name.")
    return value


def _all_named(values: list[str]) -> list[str]:
    return [_named(value) for value in values]


run_ids, tool_names, agent_names = _of("runs"), _of("tools"), _of("agents")

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="RUNWIRE_URL",
        show_default=False,
        help="The server; without it 127.0.0.1 at RUNWIRE_PORT or 8080. Its key is read from RUNWIRE_API_KEY.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as the server answers: one document.")]
AsLines = Annotated[bool, typer.Option("--json", help="Print JSON, as the server answers: one object a line.")]
AsEvents = Annotated[bool, typer.Option("--json", help='Print each event as one line of JSON: {"id","event","data"}.')]
Limit = Annotated[int, typer.Option("--limit", min=1, help="How many at most.")]
All = Annotated[bool, typer.Option("--all", help="All of them, whatever --limit says.")]

RunId = Annotated[
    str, typer.Argument(metavar="ID", show_default=False, help="The run's id.", autocompletion=run_ids, callback=_named)
]
RunIds = Annotated[
    list[str],
    typer.Argument(
        metavar="ID...", show_default=False, help="Ids of runs.", autocompletion=run_ids, callback=_all_named
    ),
]
ToolName = Annotated[
    str,
    typer.Argument(
        metavar="NAME", show_default=False, help="The tool's name.", autocompletion=tool_names, callback=_named
    ),
]
ToolNames = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...", show_default=False, help="Names of tools.", autocompletion=tool_names, callback=_all_named
    ),
]
AgentName = Annotated[
    str,
    typer.Argument(
        metavar="NAME", show_default=False, help="The agent's name.", autocompletion=agent_names, callback=_named
    ),
]
AgentNames = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...", show_default=False, help="Names of agents.", autocompletion=agent_names, callback=_all_named
    ),
]
OfAgent = Annotated[
    str | None, typer.Option("--agent", help="Of this agent only.", autocompletion=agent_names, show_default=False)
]
OfTool = Annotated[
    str | None, typer.Option("--tool", help="Of this tool only.", autocompletion=tool_names, show_default=False)
]
RunStatus = Annotated[
    str | None,
    typer.Option(
        "--status",
        show_default=False,
        help=f"With this status only: {', '.join(RUN_STATUSES)}.",
        autocompletion=_fixed(RUN_STATUSES),
    ),
]
StepStatus = Annotated[
    str | None,
    typer.Option(
        "--status",
        show_default=False,
        help=f"With this status only: {', '.join(STEP_STATUSES)}.",
        autocompletion=_fixed(STEP_STATUSES),
    ),
]
CallOutcome = Annotated[
    str | None,
    typer.Option(
        "--outcome",
        show_default=False,
        help=f"With this outcome only: {', '.join(CALL_OUTCOMES)}.",
        autocompletion=_fixed(CALL_OUTCOMES),
    ),
]
