"""Starts the example tool service in its container. TOOL_SECRET may come from a file, which TOOL_SECRET_FILE names."""

import os
from pathlib import Path

import uvicorn


def start() -> None:
    """Serve on TOOL_PORT (9000) until SIGTERM."""
    path = os.environ.get("TOOL_SECRET_FILE")
    if path is not None:
        os.environ["TOOL_SECRET"] = Path(path).read_text(encoding="utf-8").strip()
    uvicorn.run("main:app", host="0.0.0.0", port=int(os.environ.get("TOOL_PORT", "9000")))  # noqa: S104 - in a container


if __name__ == "__main__":
    start()
