"""The `runwire` command."""

from typing import Annotated

import typer

app = typer.Typer(
    name="runwire",
    help="Run LLM agents for other programs over plain HTTP.",
    no_args_is_help=True,
    add_completion=False,
)


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
    from app.settings import SettingsError, load

    try:
        settings = load(host=host, port=port, demo=demo or None)
    except SettingsError as error:
        typer.echo(f"runwire: {error}", err=True)
        raise typer.Exit(EXIT_SETTINGS) from None
    raise typer.Exit(run_server(settings))


@app.command()
def migrate() -> None:
    """Bring the database's schema up to date (RUNWIRE_DATABASE_URL)."""
    from app.core.errors import RunwireError
    from app.settings import SettingsError, load
    from app.storage.migrate import current, upgrade

    try:
        url = load().database_url
        before = current(url)
        upgrade(url)
        after = current(url)
    except (SettingsError, RunwireError) as error:
        typer.echo(f"runwire: {error}", err=True)
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
