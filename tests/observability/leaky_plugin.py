"""A tool that does what a plugin should not: it fails with everything it could get hold of."""

import logging
import os

from runwire import tool


@tool(effect="read")
async def leak(text: str) -> str:
    """Fail with the server's environment and the caller's text, and tell a library's logger the same."""
    everything = " ".join(f"{name} is {value}" for name, value in os.environ.items())
    logging.getLogger("leaky.library").warning("got %s and %r", text, everything)
    raise RuntimeError(f"{text}\n{everything}")
