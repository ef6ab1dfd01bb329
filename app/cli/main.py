"""The `runwire` command."""

import os
import sys
from typing import Annotated

import typer

from app.cli import config, exits
from app.cli.commands import agents, calls, run, runs, server, threads, tools

app = typer.Typer(
    name="runwire",
    help="Run LLM agents for other programs over plain HTTP.",
    epilog=exits.HELP,
    no_args_is_help=True,
    rich_markup_mode=None,  # rich takes as long to load as all the rest of a command's start
    pretty_exceptions_enable=False,
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
    from app.cli.working_directory import look_there_for_modules
    from app.settings import SettingsError, load, name_warnings

    look_there_for_modules()
    try:
        settings = load(host=host, port=port, demo=demo or None)
    except SettingsError:
        from app.cli.config_check import examine

        for reason in examine(host=host, port=port, demo=demo or None).errors:  # all of them, not the first only
            typer.echo(f"runwire: {reason}", err=True)
        raise typer.Exit(EXIT_SETTINGS) from None
    for warning in name_warnings():
        typer.echo(f"runwire: {warning}", err=True)
    code = run_server(settings)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a tool's thread that hangs must not hold the exit: Python would wait for it


app.command("run")(run.run)
app.add_typer(runs.app, name="runs")
app.add_typer(threads.app, name="threads")
app.add_typer(tools.app, name="tools")
app.add_typer(calls.app, name="calls")
app.add_typer(agents.app, name="agents")
app.add_typer(server.models, name="models")
app.command("info")(server.info)
app.add_typer(config.app, name="config")


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
    out = sys.stdout
    try:
        app(prog_name="runwire")
    finally:
        try:
            out.flush()
            left = sys.stdout is not out  # typer puts another there when it finds that nobody reads
        except BrokenPipeError:
            left = True
        if left:  # Python would fail on it again at the exit, and louder
            os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
            sys.exit(exits.PIPE_CLOSED)
