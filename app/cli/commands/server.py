"""`runwire models` and `runwire info`: what a server is and has."""

import typer

from app.cli.options import AsJson, AsLines, Url

models = typer.Typer(help="List the models that agents may name.", no_args_is_help=True, rich_markup_mode=None)


@models.command("ls")
def ls(url: Url = None, as_json: AsLines = False) -> None:
    """List the configured models. Their keys are never shown."""
    from app.cli.server import list_models
    from app.cli.session import execute

    execute(url, list_models, as_json=as_json)


@models.callback()
def group() -> None:
    """List the models that agents may name."""


def info(url: Url = None, as_json: AsJson = False) -> None:
    """Show a server's version and features."""
    from app.cli.server import show_info
    from app.cli.session import execute

    execute(url, show_info, as_json=as_json)
