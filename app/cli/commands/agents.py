"""`runwire agents`: list, read, register and delete agents."""

from typing import Annotated

import typer

from app.cli.options import AgentName, AgentNames, All, AsJson, AsLines, Limit, Url

app = typer.Typer(help="List, read, register and delete agents.", no_args_is_help=True, rich_markup_mode=None)


@app.command("ls")
def ls(limit: Limit = 100, every: All = False, url: Url = None, as_json: AsLines = False) -> None:
    """List agents in name order."""
    from app.cli.agents import list_agents
    from app.cli.session import execute

    execute(url, lambda session: list_agents(session, None if every else limit), as_json=as_json)


@app.command("show")
def show(name: AgentName, url: Url = None, as_json: AsJson = False) -> None:
    """Show an agent."""
    from app.cli.agents import show_agent
    from app.cli.session import execute

    execute(url, lambda session: show_agent(session, name), as_json=as_json)


@app.command("apply")
def apply(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|-",
            show_default=False,
            help="An agent, or a JSON array of several: .json, .toml, or JSON on standard input.",
        ),
    ],
    url: Url = None,
    as_json: AsLines = False,
) -> None:
    """Create the agents of a file, or give those that differ a new version. Runs under way keep theirs."""
    from app.cli.agents import apply_agents
    from app.cli.session import execute

    execute(url, lambda session: apply_agents(session, file), as_json=as_json)


@app.command("rm")
def rm(names: AgentNames, url: Url = None) -> None:
    """Delete agents. Runs under way go on."""
    from app.cli.removal import remove
    from app.cli.session import execute

    execute(url, lambda session: remove(session, names, session.client.agents.delete))
