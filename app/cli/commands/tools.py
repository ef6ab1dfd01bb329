"""`runwire tools`: list, read, register, switch, delete and call tools."""

from typing import Annotated

import typer

from app.cli.options import All, AsJson, AsLines, Limit, ToolName, ToolNames, Url, tool_names

app = typer.Typer(
    help="List, read, register, switch, delete and call tools.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("ls")
def ls(
    source: Annotated[
        str | None, typer.Option(show_default=False, help="Of this kind only: registered, plugin.")
    ] = None,
    limit: Limit = 100,
    every: All = False,
    url: Url = None,
    as_json: AsLines = False,
) -> None:
    """List the tools that agents may use, in name order."""
    from app.cli.session import execute
    from app.cli.tools import list_tools

    execute(url, lambda session: list_tools(session, source, None if every else limit), as_json=as_json)


@app.command("show")
def show(name: ToolName, url: Url = None, as_json: AsJson = False) -> None:
    """Show a tool, without its secrets."""
    from app.cli.session import execute
    from app.cli.tools import show_tool

    execute(url, lambda session: show_tool(session, name), as_json=as_json)


@app.command("add")
def add(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE|-]", show_default=False, help="A ToolSpec: .json, .toml, or JSON on standard input."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(show_default=False, help="Its name.")] = None,
    address: Annotated[
        str | None,
        typer.Option("--call", metavar="URL", show_default=False, help="Where its calls are sent (http.url)."),
    ] = None,
    description: Annotated[
        str | None, typer.Option(show_default=False, help="When to use it, what it returns.")
    ] = None,
    parameters: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", show_default=False, help="The JSON Schema of its arguments, - for standard input."
        ),
    ] = None,
    effect: Annotated[
        str | None, typer.Option(show_default=False, help="What it does: pure, read or write (the default).")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the tool of that name, if there is one.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Register a tool from a ToolSpec, from options, or from both: options win.

    A secret made for it is shown once, here.
    """
    from app.cli.session import execute
    from app.cli.tools import ToolGiven, add_tool

    given = ToolGiven(file, name, address, description, parameters, effect)
    execute(url, lambda session: add_tool(session, given, replace=replace), as_json=as_json)


@app.command("rm")
def rm(names: ToolNames, url: Url = None) -> None:
    """Delete tools. Their next call in a run is denied."""
    from app.cli.removal import remove
    from app.cli.session import execute

    execute(url, lambda session: remove(session, names, session.client.tools.delete))


OneOrAll = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", show_default=False, help="The tool's name.", autocompletion=tool_names),
]
AllCalls = Annotated[bool, typer.Option("--all", help="Every tool call of the tenant; needs the scope admin.")]


@app.command("rotate-secret")
def rotate_secret(name: ToolName, url: Url = None, as_json: AsJson = False) -> None:
    """Make a new signing secret, shown once, here. The old one signs beside it for 24 hours."""
    from app.cli.session import execute
    from app.cli.tools import rotate_secret

    execute(url, lambda session: rotate_secret(session, name), as_json=as_json)


@app.command("disable")
def disable(
    name: OneOrAll = None,
    every: AllCalls = False,
    reason: Annotated[
        str, typer.Option(show_default=False, help="Why; kept with the switch and each denied call.")
    ] = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Switch a tool off: its next calls are denied, also in runs under way. Calls that are out are not cut."""
    from app.cli.session import execute
    from app.cli.tools import switch_tools

    which = _one_or_all(name, every=every)
    execute(url, lambda session: switch_tools(session, which, off=True, reason=reason), as_json=as_json)


@app.command("enable")
def enable(name: OneOrAll = None, every: AllCalls = False, url: Url = None, as_json: AsJson = False) -> None:
    """Switch a tool on again."""
    from app.cli.session import execute
    from app.cli.tools import switch_tools

    which = _one_or_all(name, every=every)
    execute(url, lambda session: switch_tools(session, which, off=False), as_json=as_json)


def _one_or_all(name: str | None, *, every: bool) -> str | None:
    """The tool's name; `None`: all of them."""
    if (name is None) != every or name in ("", ".", ".."):
        raise typer.BadParameter("Give a tool's name, or --all.")
    return name


@app.command("invoke")
def invoke(
    name: ToolName,
    document: Annotated[
        str | None,
        typer.Argument(
            metavar="[JSON|-]", show_default=False, help="The arguments as a JSON object, - for standard input."
        ),
    ] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", show_default=False, help="One argument: JSON if it reads as JSON, else text."
        ),
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Call a tool once, outside a run, and print what it gave. Exit code 1 when the call failed."""
    from app.cli.session import execute
    from app.cli.tools import invoke_tool

    execute(url, lambda session: invoke_tool(session, name, arg or [], document), as_json=as_json)
