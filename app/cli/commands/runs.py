"""`runwire runs`: list, read, follow, answer, cancel and delete runs."""

from typing import Annotated

import typer

from app.cli.options import (
    All,
    AsEvents,
    AsJson,
    AsLines,
    Limit,
    OfAgent,
    OfTool,
    RunId,
    RunIds,
    RunStatus,
    StepStatus,
    Url,
)

app = typer.Typer(
    help="List, read, follow, answer, cancel and delete runs.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("ls")
def ls(
    status: RunStatus = None,
    agent: OfAgent = None,
    thread: Annotated[str | None, typer.Option(show_default=False, help="Of this thread only.")] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", show_default=False, help="With this label only. Repeat for more."),
    ] = None,
    limit: Limit = 20,
    every: All = False,
    url: Url = None,
    as_json: AsLines = False,
) -> None:
    """List runs, newest first."""
    from app.cli.runs import RunsWanted, list_runs
    from app.cli.session import execute

    wanted = RunsWanted(status, agent, thread, tuple(metadata or ()), None if every else limit)
    execute(url, lambda session: list_runs(session, wanted), as_json=as_json)


@app.command("show")
def show(
    run_id: RunId,
    steps: Annotated[bool, typer.Option("--steps", help="With its steps.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show a run; of one that waits, what it asks and how to answer."""
    from app.cli.runs import show_run
    from app.cli.session import execute

    execute(url, lambda session: show_run(session, run_id, steps=steps), as_json=as_json)


@app.command("steps")
def steps(
    run_id: RunId,
    number: Annotated[
        int | None,
        typer.Argument(
            metavar="[N]", min=0, show_default=False, help="Only this step, with its chain, attempts and envelope."
        ),
    ] = None,
    tool: OfTool = None,
    status: StepStatus = None,
    url: Url = None,
    as_json: AsLines = False,
) -> None:
    """List a run's steps, or show one with its whole chain."""
    from app.cli.runs import list_steps, show_step
    from app.cli.session import execute

    if number is None:
        execute(url, lambda session: list_steps(session, run_id, tool, status), as_json=as_json)
    else:
        execute(url, lambda session: show_step(session, run_id, number), as_json=as_json)


@app.command("stream")
def stream(
    run_id: RunId,
    after: Annotated[int, typer.Option(min=0, show_default=False, help="Only the events after this number.")] = 0,
    tail: Annotated[bool, typer.Option("--tail", help="Only what is new.")] = False,
    ask: Annotated[bool, typer.Option("--ask", help="On a terminal: ask me what the run asks a person.")] = False,
    url: Url = None,
    as_json: AsEvents = False,
) -> None:
    """Follow a run: from its first event on, then live to its end. Ctrl-C leaves it running."""
    from app.cli.runs import stream_run
    from app.cli.session import execute

    execute(url, lambda session: stream_run(session, run_id, after=after, tail=tail, ask=ask), as_json=as_json)


def _answers(help: str, metavar: str) -> typer.models.OptionInfo:
    return typer.Option(metavar=metavar, show_default=False, help=help)


@app.command("resume")
def resume(
    run_id: RunId,
    approve: Annotated[
        list[str] | None, _answers("Make the call of this interrupt. Repeat for more.", "ID|all")
    ] = None,
    reject: Annotated[list[str] | None, _answers("Do not make it. Repeat for more.", "ID|all")] = None,
    message: Annotated[str | None, _answers("With --reject: why, for the model.", "TEXT")] = None,
    edit: Annotated[list[str] | None, _answers("Make it with another input. Repeat for more.", "ID=JSON")] = None,
    respond: Annotated[
        list[str] | None, _answers("Do not make it; this is its output. Repeat for more.", "ID=JSON")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--json-file",
            metavar="FILE|-",
            show_default=False,
            help="A list of answers as POST /runs/{id}/resume takes them, - for standard input.",
        ),
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Answer what a run that waits asks; it goes on when all is answered.

    Exit codes: 0 it goes on, 1 nothing is asked, 3 the answer was refused (too late, does not fit), 5 there is no such run or
    interrupt, 6 it waits for more.
    """
    from app.cli.answers import AnswersGiven, resume_run
    from app.cli.session import execute

    given = AnswersGiven(
        tuple(approve or ()), tuple(reject or ()), tuple(edit or ()), tuple(respond or ()), message, file
    )
    execute(url, lambda session: resume_run(session, run_id, given), as_json=as_json)


@app.command("cancel")
def cancel(
    run_id: RunId,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Cancel a run. One that is at its end already stays as it is (exit code 1)."""
    from app.cli.runs import cancel_run
    from app.cli.session import execute

    execute(url, lambda session: cancel_run(session, run_id, wait=wait), as_json=as_json)


@app.command("rm")
def rm(run_ids: RunIds, url: Url = None) -> None:
    """Delete finished runs."""
    from app.cli.removal import remove
    from app.cli.session import execute

    execute(url, lambda session: remove(session, run_ids, session.client.runs.delete))
