"""Deleting several things one after another: each is told, and what cannot be deleted does not stop the others."""

from collections.abc import Awaitable, Callable, Sequence

from app.cli import exits
from app.cli.problems import exit_code, is_missing_endpoint, told
from app.cli.session import Session, say
from app.client.errors import Conflict, NotFound


async def remove(session: Session, names: Sequence[str], delete: Callable[[str], Awaitable[object]]) -> int:
    """Exit code 1 when one was refused, 5 when one was not there. Raises the `ClientError` that would stop all of them."""
    codes: set[int] = set()
    for name in names:
        try:
            await delete(name)
        except (Conflict, NotFound) as error:
            if is_missing_endpoint(error):
                raise
            codes.add(exits.FAILED if isinstance(error, Conflict) else exit_code(error))
            say(told(error, has_key=session.has_key))
        else:
            session.screen.line(f"deleted {name}")
    return min(codes, default=exits.SUCCESS)
