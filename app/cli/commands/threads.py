"""`runwire threads`: list, read, fork and delete threads."""

from typing import Annotated

import typer

from app.cli.options import All, AsJson, AsLines, Limit, Url

app = typer.Typer(help="List, read, fork and delete threads.", no_args_is_help=True, rich_markup_mode=None)

ThreadId = Annotated[str, typer.Argument(metavar="THREAD", show_default=False, help="A thread's id.")]
ThreadIds = Annotated[list[str], typer.Argument(metavar="THREAD…", show_default=False, help="Ids of threads.")]
Checkpoint = Annotated[
    str | None, typer.Option(show_default=False, help="A checkpoint of its history; the newest by default.")
]


@app.command("ls")
def ls(
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", show_default=False, help="With this label only. Repeat for more."),
    ] = None,
    limit: Limit = 20,
    every: All = False,
    url: Url = None,
    as_json: AsLines = False,
) -> None:
    """List the threads that callers made, newest first."""
    from app.cli.session import execute
    from app.cli.threads import ThreadsWanted, list_threads

    wanted = ThreadsWanted(tuple(metadata or ()), None if every else limit)
    execute(url, lambda session: list_threads(session, wanted), as_json=as_json)


@app.command("show")
def show(thread_id: ThreadId, url: Url = None, as_json: AsJson = False) -> None:
    """Show a thread."""
    from app.cli.session import execute
    from app.cli.threads import show_thread

    execute(url, lambda session: show_thread(session, thread_id), as_json=as_json)


@app.command("state")
def state(thread_id: ThreadId, checkpoint: Checkpoint = None, url: Url = None, as_json: AsJson = False) -> None:
    """Show a thread's messages and fields."""
    from app.cli.session import execute
    from app.cli.threads import show_state

    execute(url, lambda session: show_state(session, thread_id, checkpoint), as_json=as_json)


@app.command("history")
def history(
    thread_id: ThreadId,
    limit: Annotated[int, typer.Option(min=1, max=100, help="At most so many.")] = 20,
    url: Url = None,
    as_json: AsLines = False,
) -> None:
    """List a thread's checkpoints, newest first."""
    from app.cli.session import execute
    from app.cli.threads import show_history

    execute(url, lambda session: show_history(session, thread_id, limit), as_json=as_json)


@app.command("fork")
def fork(thread_id: ThreadId, checkpoint: Checkpoint = None, url: Url = None, as_json: AsJson = False) -> None:
    """Make a new thread with the state of a checkpoint."""
    from app.cli.session import execute
    from app.cli.threads import fork_thread

    execute(url, lambda session: fork_thread(session, thread_id, checkpoint), as_json=as_json)


@app.command("rm")
def rm(thread_ids: ThreadIds, url: Url = None) -> None:
    """Delete threads with their runs and their state."""
    from app.cli.removal import remove
    from app.cli.session import execute

    execute(url, lambda session: remove(session, thread_ids, session.client.threads.delete))
