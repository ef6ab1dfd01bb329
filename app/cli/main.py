"""The `runwire` command."""

import os
import sys
from typing import Annotated

import typer

app = typer.Typer(
    name="runwire",
    help="Run LLM agents for other programs over plain HTTP.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from app import __version__

        typer.echo(f"runwire {__version__}")
        raise typer.Exit


@app.callback()
def runwire(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Run LLM agents for other programs over plain HTTP."""


def _default_url() -> str:
    """Where `runwire serve` listens on this machine with the same environment."""
    return f"http://127.0.0.1:{os.environ.get('RUNWIRE_PORT') or 8080}"


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on (RUNWIRE_HOST).")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on, 0 = any free one (RUNWIRE_PORT).")] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="With the offline demo agent; tool calls may reach loopback.")
    ] = False,
) -> None:
    """Start the server."""
    from app.cli.serve import EXIT_SETTINGS, run_server
    from app.settings import SettingsError, load, unknown_names

    try:
        settings = load(host=host, port=port, demo=demo or None)
    except SettingsError as error:
        typer.echo(f"runwire: {error}", err=True)
        raise typer.Exit(EXIT_SETTINGS) from None
    for name in unknown_names():
        typer.echo(f"runwire: {name} is no setting of this version and is not used.", err=True)
    code = run_server(settings)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a tool's thread that hangs must not hold the exit: Python would wait for it


@app.command()
def run(
    input: Annotated[str, typer.Argument(help="What the agent is asked.", show_default=False)],
    agent: Annotated[str | None, typer.Option(help="A registered agent (default: demo).")] = None,
    model: Annotated[str | None, typer.Option(help="An agent of its own, with this model: provider:model.")] = None,
    tool: Annotated[
        list[str] | None, typer.Option(help="With --model: a tool it may use. Repeat for more.", show_default=False)
    ] = None,
    instructions: Annotated[str | None, typer.Option(help="With --model: its system prompt.")] = None,
    url: Annotated[
        str | None,
        typer.Option(
            envvar="RUNWIRE_URL",
            help="The server; without it 127.0.0.1 at RUNWIRE_PORT or 8080. Its key is read from RUNWIRE_API_KEY.",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help='Print each event as one line of JSON: {"id","event","data"}.')
    ] = False,
) -> None:
    """Post a run to a running server and follow it.

    Exit codes: 0 success, 1 the run ended in error, 2 usage, 3 the server cannot be reached or refused the run,
    4 cancelled, 130 Ctrl-C (the run goes on), 141 the reader of the output left (the run goes on).
    """
    from app.cli.run import RunOptions
    from app.cli.run import run as follow

    options = RunOptions(
        input, agent, model, tool or [], instructions, url or _default_url(), os.environ.get("RUNWIRE_API_KEY"), json
    )
    raise typer.Exit(follow(options))


@app.command()
def migrate() -> None:
    """Bring the database's schema up to date (RUNWIRE_DATABASE_URL)."""
    import sqlite3

    import psycopg

    from app.core.errors import RunwireError
    from app.settings import SettingsError, load
    from app.storage.migrate import current, upgrade
    from app.storage.open import open_database

    try:
        url = load().database_url
        open_database(url)
        before = current(url)
        upgrade(url)
        after = current(url)
    except (SettingsError, RunwireError) as error:
        typer.echo(f"runwire: {error}", err=True)
        raise typer.Exit(3) from None
    except (OSError, sqlite3.Error, psycopg.Error) as error:
        # Not the error's text: a driver may put the whole address there, and its password.
        kind = type(error).__name__
        typer.echo(f"runwire: The database cannot be used ({kind}); check RUNWIRE_DATABASE_URL.", err=True)
        raise typer.Exit(3) from None
    typer.echo(f"schema {after} (it was {before or 'empty'})")


@app.command()
def openapi(
    check: Annotated[
        bool, typer.Option("--check", help="Only compare; exit code 1 when the file is not current.")
    ] = False,
    path: Annotated[str, typer.Option(help="The document.")] = "openapi/openapi.json",
) -> None:
    """Write the OpenAPI document that the server serves, or check that the file is current."""
    from app.cli.openapi import check_document, write_document

    if not check:
        write_document(path)
        return
    difference = check_document(path)
    if difference is not None:
        typer.echo(f"{path} is not what the server serves ({difference}); run: runwire openapi", err=True)
        raise typer.Exit(1)


def main() -> None:
    app()
