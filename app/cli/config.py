"""`runwire config`: which settings are in force, where each came from, and whether the server would start with them."""

from typing import Annotated

import typer

app = typer.Typer(help="Look at the settings.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def group() -> None:
    """Look at the settings."""


@app.command()
def check(
    host: Annotated[str | None, typer.Option(help="As of serve (RUNWIRE_HOST).", show_default=False)] = None,
    port: Annotated[int | None, typer.Option(help="As of serve (RUNWIRE_PORT).", show_default=False)] = None,
    demo: Annotated[bool, typer.Option("--demo", help="As of serve.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: one document.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 when there are warnings.")] = False,
) -> None:
    """Show what is in force, and check it as serve does. Nothing is opened or changed.

    Exit codes: 0 usable, 1 with --strict when there are warnings, 2 the server would not start.
    """
    from app.cli.config_check import EXIT_UNUSABLE, EXIT_WARNINGS, examine, lines
    from app.cli.working_directory import look_there_for_modules

    look_there_for_modules()
    found = examine(host=host, port=port, demo=demo or None)
    if as_json:
        import json

        typer.echo(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
    else:
        for line in lines(found):
            typer.echo(line)
        for warning in found.warnings:
            typer.echo(f"runwire: warning: {warning}", err=True)
        for error in found.errors:
            typer.echo(f"runwire: {error}", err=True)
    if found.errors:
        raise typer.Exit(EXIT_UNUSABLE)
    if strict and found.warnings:
        raise typer.Exit(EXIT_WARNINGS)
