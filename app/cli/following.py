"""Following a run: its events are shown until its end, or until Ctrl-C lets it go on alone.

Ctrl-C leaves at once and says how to come back. On a terminal a second Ctrl-C, while that is still being said, cancels
the run: the one thing that somebody who presses it twice can mean.
"""

import asyncio
import sys

from app.cli import exits
from app.cli.event_view import View, view_on
from app.cli.presses import Presses
from app.cli.questions import how_to_answer
from app.cli.session import Session, named_url, say
from app.client.client import Client
from app.client.errors import ClientError, StreamLost
from app.client.stream import RunStream
from app.client.values import Run

SECOND_PRESS_S = 2.0
"""How long a second Ctrl-C is waited for."""


async def follow(session: Session, client: Client, stream: RunStream, presses: Presses, *, asking: bool = False) -> int:
    """Show the stream's events to its end; the exit code. `client`: the one it is of. Raises `ClientError`.

    `asking`: the caller asks the person what the run asks, so how to answer is not told.
    """
    view = view_on(session.screen)
    reading = asyncio.create_task(_show(stream, view))
    pressed = asyncio.create_task(presses.first.wait())
    try:
        await asyncio.wait((reading, pressed), return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            status = reading.result()
            return (
                await _ended(session, client, stream, asking)
                if status is None
                else exits.BY_STATUS.get(status, exits.FAILED)
            )
    except StreamLost as error:
        view.close()
        raise StreamLost(
            f"{error} {goes_on(session, error.run_id, error.last_id)}", run_id=error.run_id, last_id=error.last_id
        ) from error
    finally:
        reading.cancel()
        pressed.cancel()
        await asyncio.gather(reading, pressed, return_exceptions=True)
        view.close()
    return await _left(session, client, stream, presses)


async def _show(stream: RunStream, view: View) -> str | None:
    """The run's final status; `None` when the stream ended before its end came."""
    async for event in stream:
        view.show(event)
        if event.event == "end":
            return str(event.data.get("status"))
    return None


async def _ended(session: Session, client: Client, stream: RunStream, asking: bool) -> int:
    """A stream without an `end`: the run waits for a person, or all of it had been told before."""
    if stream.run_id is None:
        say("The stream ended before the server told the run's id.")
        return exits.SERVER
    run = await client.runs.get(stream.run_id)
    if run.status == "interrupted":
        if not asking:
            say(waits(session, run))
    elif not session.screen.as_json:
        session.screen.line(f"[{run.status}, {run.stop_reason}; run {run.id}]", "dim")
    return exits.BY_STATUS.get(run.status, exits.SERVER)


def waits(session: Session, run: Run) -> str:
    """That a run waits, and how to answer it."""
    lines = [
        "The run waits for a person.",
        f"  what it asks: runwire runs show {run.id}{named_url(session)}",
        *(f"  answer it:    {line}" for line in how_to_answer(session, run.id, run.interrupts)),
    ]
    return "\n".join(lines)


async def follow_asking(session: Session, client: Client, stream: RunStream, presses: Presses, *, ask: bool) -> int:
    """The same to the run's end, through its questions: with `ask` the person is asked them, one after the other."""
    while True:
        code = await follow(session, client, stream, presses, asking=ask)
        if not ask or code != exits.WAITS or stream.run_id is None:
            return code
        from app.cli import asking

        if not await asking.ask(client, stream.run_id, presses):
            say(waits(session, await client.runs.get(stream.run_id)))
            return exits.WAITS
        stream = client.runs.follow(stream.run_id, after=stream.last_id)


async def _left(session: Session, client: Client, stream: RunStream, presses: Presses) -> int:
    run_id = stream.run_id
    if run_id is None:
        say("Interrupted. The server had not confirmed the run.")
        return exits.DETACHED
    say(f"Interrupted. {goes_on(session, run_id, stream.last_id)}")
    if not session.screen.terminal:
        return exits.DETACHED
    print("  press Ctrl-C again to cancel the run", file=sys.stderr, flush=True)
    try:
        async with asyncio.timeout(SECOND_PRESS_S):
            await presses.second.wait()
    except TimeoutError:
        return exits.DETACHED
    return await _cancel(client, run_id, presses)


async def _cancel(client: Client, run_id: str, presses: Presses) -> int:
    """Cancel and wait for the end; a third Ctrl-C does not wait."""
    cancelling = asyncio.create_task(client.runs.cancel(run_id, wait=True))
    pressed = asyncio.create_task(presses.third.wait())
    try:
        await asyncio.wait((cancelling, pressed), return_when=asyncio.FIRST_COMPLETED)
        if not cancelling.done():
            return exits.DETACHED
        run = cancelling.result()
    except ClientError:
        say("The run could not be cancelled; it may go on.")
        raise
    finally:
        cancelling.cancel()
        pressed.cancel()
        await asyncio.gather(cancelling, pressed, return_exceptions=True)
    say("The run is cancelled." if run.status == "cancelled" else f"The run had ended already: {run.status}.")
    return exits.BY_STATUS.get(run.status, exits.CANCELLED)


def goes_on(session: Session, run_id: str, last_id: int) -> str:
    """What to do about a run that this command no longer follows."""
    after = f" --after {last_id}" if last_id else ""
    url = named_url(session)
    return (
        "The run goes on.\n"
        f"  follow it: runwire runs stream {run_id}{after}{url}\n"
        f"  stop it:   runwire runs cancel {run_id}{url}"
    )
