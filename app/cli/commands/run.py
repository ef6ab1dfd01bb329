"""`runwire run`: post a run and follow it."""

from typing import Annotated

import typer

from app.cli.options import AsEvents, Url, agent_names, tool_names


def run(
    input: Annotated[str | None, typer.Argument(help="What the agent is asked.", show_default=False)] = None,
    agent: Annotated[
        str | None, typer.Option(help="A registered agent (default: demo).", autocompletion=agent_names)
    ] = None,
    model: Annotated[str | None, typer.Option(help="An agent of its own, with this model: provider:model.")] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            help="With --model: a tool it may use. Repeat for more.", show_default=False, autocompletion=tool_names
        ),
    ] = None,
    instructions: Annotated[str | None, typer.Option(help="With --model: its system prompt.")] = None,
    thread: Annotated[str | None, typer.Option(help="Continue this thread.", show_default=False)] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Kept with the run. Repeat for more.", show_default=False),
    ] = None,
    input_json: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|-",
            show_default=False,
            help='Instead of INPUT: JSON such as {"messages": [...]}, - for standard input.',
        ),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Post it, print its id, and leave.")] = False,
    ask: Annotated[bool, typer.Option("--ask", help="On a terminal: ask me what the run asks a person.")] = False,
    url: Url = None,
    as_json: AsEvents = False,
) -> None:
    """Post a run to a running server and follow it. Ctrl-C leaves it running.

    Exit codes: 0 success, 1 the run ended in error, 2 usage, 3 the server cannot be reached or refused the run,
    4 cancelled, 5 there is no such agent, 6 it waits for a person, 130 Ctrl-C (the run goes on), 141 the reader of the output left (the run goes
    on).
    """
    from app.cli.run import RunWanted, post
    from app.cli.session import execute

    wanted = RunWanted(input, input_json, agent, model, tuple(tool or ()), instructions, thread, tuple(metadata or ()))
    execute(url, lambda session: post(session, wanted, detach=detach, ask=ask), as_json=as_json)
