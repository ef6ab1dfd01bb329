"""The middleware that the server brings itself."""

from collections.abc import Sequence

from app.runs.middleware.kinds import Kind


def built_in() -> Sequence[Kind]:
    """All of them, made once."""
    return ()
