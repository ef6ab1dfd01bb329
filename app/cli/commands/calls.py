"""`runwire calls`: the audit of tool calls over all runs."""

from datetime import datetime
from typing import Annotated

import typer

from app.cli.options import All, AsJson, AsLines, CallOutcome, Limit, OfTool, Url

app = typer.Typer(help="Look at the tool calls of all runs.", no_args_is_help=True, rich_markup_mode=None)

Time = Annotated[
    datetime | None,
    typer.Option(
        formats=["%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%d"],
        metavar="TIME",
        show_default=False,
        help="Asked for from then on (--since), before then (--until): 2026-01-31T12:00:00Z, or a day in UTC.",
    ),
]


@app.command("ls")
def ls(
    tool: OfTool = None,
    outcome: CallOutcome = None,
    run_id: Annotated[str | None, typer.Option("--run", show_default=False, help="Of this run only.")] = None,
    thread: Annotated[str | None, typer.Option(show_default=False, help="Of this thread only.")] = None,
    since: Time = None,
    until: Time = None,
    limit: Limit = 20,
    every: All = False,
    url: Url = None,
    as_json: AsLines = False,
) -> None:
    """List tool calls, newest first."""
    from app.cli.calls import CallsWanted, list_calls
    from app.cli.session import execute

    wanted = CallsWanted(tool, outcome, run_id, thread, since, until, None if every else limit)
    execute(url, lambda session: list_calls(session, wanted), as_json=as_json)


@app.command("show")
def show(
    call_id: Annotated[str, typer.Argument(metavar="ID", show_default=False, help="The call's id (tool_call_id).")],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show a tool call: who it was for, what was asked, decided, sent and answered."""
    from app.cli.calls import show_call
    from app.cli.session import execute

    execute(url, lambda session: show_call(session, call_id), as_json=as_json)
