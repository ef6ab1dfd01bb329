"""Opening storage: the database behind an address, and the stores on it."""

from collections.abc import Callable
from pathlib import Path

from app.core.clock import now_ms
from app.core.errors import InvalidRequest
from app.core.registry import Registry, SecretStore
from app.core.values import immutable
from app.runs.audit import AuditStore
from app.runs.call_results import CallResultStore
from app.runs.ports import RetentionStore, RunStore
from app.runs.waiting import WaitStore
from app.storage import tables
from app.storage.audit import SqlAuditStore
from app.storage.call_results import SqlCallResultStore
from app.storage.database import Database
from app.storage.group import Flushed, unwatched
from app.storage.migrate import sqlite_path
from app.storage.registry import SqlRegistry
from app.storage.retention import SqlRetentionStore
from app.storage.runs import SqlRunStore
from app.storage.secret_box import SecretBox, key_file
from app.storage.secrets import SqlSecretStore
from app.storage.sqlite import SqliteDatabase
from app.storage.store import SqlItemStore
from app.storage.threads import SqlThreadStore
from app.storage.tool_signing import SqlSigningStore
from app.storage.tool_switches import SqlSwitchStore
from app.storage.waiting import SqlWaitStore
from app.threads.ports import ThreadStore
from app.threads.store import ItemStore
from app.tools.port import SigningStore, SwitchStore


@immutable
class Stores:
    """Every storage port, on one database."""

    runs: RunStore
    waits: WaitStore
    tools: Registry
    agents: Registry
    secrets: SecretStore
    retention: RetentionStore
    callback_key: Callable[[], bytes]
    """What callback tokens are derived from. Raises `InvalidRequest` where the server has no key."""
    switches: SwitchStore
    signing: SigningStore
    audit: AuditStore
    results: CallResultStore
    threads: ThreadStore
    items: ItemStore


def open_database(url: str, flushed: Flushed = unwatched) -> Database:
    """The database of `sqlite:///relative`, `sqlite:////absolute` or `postgresql://…`; `start` it before use.

    `flushed` is told of every transaction of the writer.

    Raises `InvalidRequest` (`invalid_database_url`). The address may hold a password: no message repeats it.
    """
    scheme = url.partition("://")[0]
    if scheme == "sqlite":
        return SqliteDatabase(sqlite_path(url), flushed)
    if scheme in ("postgresql", "postgres"):
        from app.storage.postgres import PostgresDatabase, is_address

        if not is_address(url):
            raise InvalidRequest(
                "The database address cannot be read; it is postgresql://user:password@host/name, with special"
                " characters of the password percent-encoded.",
                code="invalid_database_url",
            )
        return PostgresDatabase(url, flushed)
    raise InvalidRequest(
        "The database address must start with sqlite:/// or postgresql://.", code="invalid_database_url"
    )


def build_stores(db: Database, secret_key: str | None, clock: Callable[[], int] = now_ms) -> Stores:
    """The stores on a database. Without `secret_key`, SQLite keeps a key file beside the database.

    Raises `InvalidRequest` (`invalid_secret_key`): too short, or none for Postgres when the first secret is stored.
    """
    box: Callable[[], SecretBox]
    if secret_key is not None:
        given = SecretBox(secret_key)
        box = lambda: given  # noqa: E731
    elif isinstance(db, SqliteDatabase):
        path = Path(f"{db.path}.key")
        box = lambda: SecretBox(key_file(path))  # noqa: E731
    else:
        box = _no_key
    return Stores(
        runs=SqlRunStore(db, clock),
        waits=SqlWaitStore(db, clock),
        callback_key=lambda: box().derived(b"runwire callbacks v1"),
        tools=SqlRegistry(db, tables.tools, "tool", clock),
        agents=SqlRegistry(db, tables.agents, "agent", clock),
        secrets=SqlSecretStore(db, box, clock),
        retention=SqlRetentionStore(db, clock),
        switches=SqlSwitchStore(db, clock),
        signing=SqlSigningStore(db, clock),
        audit=SqlAuditStore(db),
        results=SqlCallResultStore(db),
        threads=SqlThreadStore(db, clock),
        items=SqlItemStore(db, clock),
    )


def _no_key() -> SecretBox:
    raise InvalidRequest("Set RUNWIRE_SECRET_KEY: secrets are stored encrypted under it.", code="invalid_secret_key")
