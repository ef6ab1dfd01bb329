"""One command's work against a server: its client, where its output goes, and what becomes of errors."""

import asyncio
import contextlib
import os
import shlex
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import NoReturn

import typer

from app.cli import exits
from app.cli.inputs import UsageError
from app.cli.problems import exit_code, is_missing_endpoint, told
from app.cli.screen import Screen, silence
from app.cli.text import one_line
from app.client.address import Address
from app.client.client import Client
from app.client.errors import ClientError, ConnectionFailed


@dataclass(frozen=True, slots=True)
class Session:
    client: Client
    screen: Screen
    url: str
    """The server's address as it is used."""
    given_url: str | None
    """As the user gave it, by option or environment."""
    has_key: bool

    @contextlib.asynccontextmanager
    async def patient(self) -> AsyncGenerator[Client]:
        """A client that waits for a server that is away for a moment, once it has been seen there.

        Raises `ConnectionFailed` at once when it is not there: a person who mistyped an address must not wait.
        """
        try:
            await self.client.info()
        except ConnectionFailed:
            raise
        except ClientError:
            pass  # it is there; what it is, the work will show
        async with Client(self.url) as client:
            yield client


Work = Callable[[Session], Awaitable[int | None]]
"""The exit code; `None` is 0."""


def execute(url: str | None, work: Work, *, as_json: bool = False) -> NoReturn:
    """Do the work, say what failed, and end the command by raising `typer.Exit`."""
    screen = Screen(as_json=as_json)
    try:
        code = _execute(url, work, screen)
        screen.out.flush()
    except BrokenPipeError:
        silence(screen.out)
        code = exits.PIPE_CLOSED
    raise typer.Exit(code)


def _execute(url: str | None, work: Work, screen: Screen) -> int:
    try:
        address = Address.of(url, None)
    except ValueError as error:
        say(str(error))
        return exits.USAGE
    try:
        return asyncio.run(_work(url, address, work, screen))
    except UsageError as error:
        say(str(error))
        return exits.USAGE
    except KeyboardInterrupt:
        say("Interrupted.")
        return exits.DETACHED


async def _work(url: str | None, address: Address, work: Work, screen: Screen) -> int:
    async with Client(address.url, max_attempts=1) as client:
        session = Session(
            client, screen, address.url, url or os.environ.get("RUNWIRE_URL"), address.api_key is not None
        )
        try:
            return await work(session) or exits.SUCCESS
        except ClientError as error:
            with contextlib.suppress(BrokenPipeError):
                screen.out.flush()
            if is_missing_endpoint(error):
                say(await _other_version(session, error))
            else:
                say(told(error, has_key=session.has_key))
            return exit_code(error)


async def _other_version(session: Session, error: ClientError) -> str:
    from app import __version__

    what = one_line(getattr(error, "instance", None), 200) or "what this command needs"
    try:
        version = one_line((await session.client.info()).get("version"), 40)
    except ClientError:
        version = ""
    said = f"its version is {version}" if version else "it does not tell its version"
    return f"This server does not have {what}; {said}, and this command is of {__version__}."


def named_url(session: Session) -> str:
    """The option that names the same server again, where the environment does not."""
    given = session.given_url
    return "" if not given or given == os.environ.get("RUNWIRE_URL") else f" --url {shlex.quote(given)}"


def say(message: str) -> None:
    """A message for the person, beside the output."""
    with contextlib.suppress(BrokenPipeError):
        print(f"runwire: {message}", file=sys.stderr, flush=True)
