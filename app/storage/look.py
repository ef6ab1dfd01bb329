"""A look into a database that no server has to have open: read only, and nothing is made, not even a file beside it."""

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from app.storage.migrate import sqlite_path


def registered_tools(url: str) -> Sequence[str]:
    """The names of the tools that tenants of an SQLite database registered; none where that cannot be told.

    Of Postgres it is not told, as nothing is connected to.
    """
    if not url.startswith("sqlite:"):
        return ()
    path = sqlite_path(url)
    if not path.is_file():
        return ()
    # A database that nobody has open needs no files beside it, and `immutable` makes none.
    mode = "mode=ro" if Path(f"{path}-wal").exists() else "mode=ro&immutable=1"
    with contextlib.suppress(sqlite3.Error, OSError):
        address = f"{path.resolve().as_uri()}?{mode}"
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=1)) as connection:
            return [str(row[0]) for row in connection.execute("SELECT DISTINCT name FROM tools WHERE live = 1")]
    return ()
