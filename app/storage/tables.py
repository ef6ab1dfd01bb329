"""The tables: one schema for SQLite and Postgres.

Times are whole milliseconds since the epoch, truth values 0 or 1, JSON is text that orjson wrote. What a filter must look
into has columns or a table of its own, so that no query depends on a database's JSON functions.
"""

from sqlalchemy import BigInteger, Column, Float, Index, Integer, LargeBinary, MetaData, Table, Text, text

SCHEMA = MetaData()

_ACTIVE = text("finished_at IS NULL")
_FINISHED = text("finished_at IS NOT NULL")
_UNLISTED = text("listed = 0")
_LISTED = text("listed = 1")
_QUEUED = text("queued IS NOT NULL")

HOLDS_SECRETS: dict[str, str] = {
    "sqlite": """instr(spec, '"secret_ref"') > 0""",
    "postgresql": """strpos(spec, '"secret_ref"') > 0""",
}
"""Whether a run's spec refers to secrets of its own, by dialect; a query must say it word by word to use the index."""
_LIVE = text("live = 1")
_OFF = text("lifted_at IS NULL")
_EXPIRES = text("expires_at IS NOT NULL")

BYTEWISE = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that is ordered by its bytes in UTF-8 on both databases: a prefix is a range of it."""

UNSUCCESSFUL = "status <> 'success'"
"""The calls that are looked for by their outcome; a query must say it word by word to use the index."""

threads = Table(
    "threads",
    SCHEMA,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("listed", Integer, nullable=False),
    Column("head_checkpoint_id", Text),
    Column("active_run_id", Text),
    Column("metadata", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Index("ix_threads_listed", "tenant", "id", sqlite_where=_LISTED, postgresql_where=_LISTED),
    Index("ix_threads_unlisted", "created_at", sqlite_where=_UNLISTED, postgresql_where=_UNLISTED),
)

thread_metadata = Table(
    "thread_metadata",
    SCHEMA,
    Column("tenant", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Text, primary_key=True),
    Column("thread_id", Text, primary_key=True),
    Index("ix_thread_metadata_thread", "thread_id"),
)

checkpoints = Table(
    "checkpoints",
    SCHEMA,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("thread_id", Text, nullable=False),
    Column("parent_id", Text),
    Column("run_id", Text),
    Column("depth", BigInteger, nullable=False),  # the root is 1
    Column("messages", BigInteger, nullable=False),  # messages up to and with this checkpoint
    Column("snapshot_depth", BigInteger, nullable=False),  # depth of the nearest snapshot at or above, 0 without one
    Column("snapshot_bytes", BigInteger, nullable=False),  # its size
    Column("delta_bytes", BigInteger, nullable=False),  # bytes of deltas after it
    Column("created_at", BigInteger, nullable=False),
    Column("delta", Text, nullable=False),
    Column(
        "snapshot", Text
    ),  # the folded messages, on some checkpoints; late, for SQLite reads a long row from its front
    Column("field_updates", Text),  # `[[field, reducer, value], …]`, what other fields' reducers were given
    Column("field_values", Text),  # with a snapshot: the folded fields
    Column("source", Text),  # input, loop, update, fork
    Index("ix_checkpoints_thread", "thread_id", "depth"),
)

runs = Table(
    "runs",
    SCHEMA,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("thread_id", Text, nullable=False),
    Column("agent", Text),
    Column("spec", Text, nullable=False),
    Column("input", Text, nullable=False),
    Column("context", Text, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("scopes", Text),
    Column("on_disconnect", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("stop_reason", Text),
    Column("output", Text),
    Column("error", Text),
    Column("interrupts", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("owner", Text),
    Column("heartbeat", BigInteger, nullable=False),
    Column("cancel_requested", Integer, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("active_ms", BigInteger, nullable=False),
    Column("base_checkpoint_id", Text),
    Column("checkpoint_id", Text),
    Column("before", BigInteger, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("batches", BigInteger, nullable=False),
    Column("iterations", BigInteger, nullable=False),
    Column("steps", BigInteger, nullable=False),
    Column("usage", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("started_at", BigInteger),
    Column("finished_at", BigInteger),
    Column("traceparent", Text),
    Column("tracestate", Text),
    Column("parked", Text),
    Column("queued", Text),  # what the run brings to its thread, while it waits for it
    Column("displaced", Text),  # interrupt, rollback: another run takes its place
    Index("ix_runs_tenant", "tenant", "id"),
    Index("ix_runs_thread", "thread_id", "id"),
    Index("ix_runs_queued", "thread_id", "id", sqlite_where=_QUEUED, postgresql_where=_QUEUED),
    Index("ix_runs_finished", "finished_at", sqlite_where=_FINISHED, postgresql_where=_FINISHED),
    Index(
        "ix_runs_secrets",
        "id",
        sqlite_where=text(HOLDS_SECRETS["sqlite"]),
        postgresql_where=text(HOLDS_SECRETS["postgresql"]),
    ),
    Index("ix_runs_active", "id", sqlite_where=_ACTIVE, postgresql_where=_ACTIVE),
)

run_metadata = Table(
    "run_metadata",
    SCHEMA,
    Column("tenant", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Text, primary_key=True),
    Column("run_id", Text, primary_key=True),
    Index("ix_run_metadata_run", "run_id"),
)

journal = Table(
    "journal",
    SCHEMA,
    Column("run_id", Text, primary_key=True),
    Column("batch", BigInteger, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("first_seq", BigInteger, nullable=False),
    Column("n", BigInteger, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("idx", Text, nullable=False),  # `[[type, offset], …]`
    Column("wire", LargeBinary, nullable=False),
    Column("private", Text),
    Index("ix_journal_seq", "run_id", "last_seq"),
)

tool_calls = Table(
    "tool_calls",
    SCHEMA,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("thread_id", Text, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("iteration", BigInteger, nullable=False),
    Column("message_id", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("tool_input", Text, nullable=False),
    Column("log", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("provider_call_id", Text),
    Column("refusal", Text),
    Column("tool_version", BigInteger),
    Column("effect", Text),
    Column("arguments_sha256", Text),
    Column("idempotency_key", Text),
    Column("state", Text, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("token_sha256", Text),
    Column("status", Text),
    Column("observation", Text),
    Column("error", Text),
    Column("envelope", Text),
    Column("attempt_log", Text, nullable=False),
    Column("chain", Text, nullable=False),
    Column("started_at", BigInteger),
    Column("duration_ms", Float),
    Column("reconciled", Text),
    Column("wait", Text),
    Column("wait_until", BigInteger),
    Column("answer", Text),
    Column("late_result", Text),
    Column("command", Text),  # `{"update", "goto"}` of its result, for the round's close
    Column("sent_input", Text),  # where it is not `tool_input`
    Column("asked_version", BigInteger),  # the tool's newest one when the call began to wait
    Index("ix_tool_calls_step", "run_id", "step", unique=True),
    Index("ix_tool_calls_tenant", "tenant", "id"),
    Index("ix_tool_calls_tool", "tenant", "tool", "id"),
    Index("ix_tool_calls_thread", "thread_id", "id"),
    Index(
        "ix_tool_calls_unsuccessful",
        "tenant",
        "status",
        "id",
        sqlite_where=text(UNSUCCESSFUL),
        postgresql_where=text(UNSUCCESSFUL),
    ),
)

tool_switches = Table(
    "tool_switches",
    SCHEMA,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),  # "" for all tools of the tenant
    Column("reason", Text, nullable=False),
    Column("disabled_by", Text, nullable=False),
    Column("disabled_at", BigInteger, nullable=False),
    Column("lifted_by", Text),
    Column("lifted_at", BigInteger),
    Index("ix_tool_switches_name", "tenant", "name", "id"),
    Index("ix_tool_switches_in_force", "tenant", "name", unique=True, sqlite_where=_OFF, postgresql_where=_OFF),
)

tool_signing = Table(
    "tool_signing",
    SCHEMA,
    Column("tenant", Text, primary_key=True),
    Column("family", Text, primary_key=True),  # the reference in the tool's spec: of the first secret
    Column("version", BigInteger, primary_key=True),
    Column("secret", Text, nullable=False),  # `{"secret_ref": …}`
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),  # NULL for the newest
    Index("ix_tool_signing_expires", "expires_at", sqlite_where=_EXPIRES, postgresql_where=_EXPIRES),
)


tool_results = Table(
    "tool_results",
    SCHEMA,
    Column("tool_call_id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("content_type", Text, nullable=False),
    Column("complete", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Index("ix_tool_results_run", "run_id"),
)


interrupts = Table(
    "interrupts",
    SCHEMA,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("tool_call_id", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("shown", Text, nullable=False),
    Column("state", Text, nullable=False),  # pending, answered, expired, void
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("answer", Text),
    Column("answered_by", Text),
    Column("answered_at", BigInteger),
    Index("ix_interrupts_run", "run_id", "created_at"),
)


def _registry(name: str) -> Table:
    """Every version of every name. At most one row of a name is `live`: the newest version of a name not deleted."""
    return Table(
        name,
        SCHEMA,
        Column("tenant", Text, primary_key=True),
        Column("name", Text, primary_key=True),
        Column("version", BigInteger, primary_key=True),
        Column("spec", Text, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("live", Integer, nullable=False),
        Index(f"ix_{name}_live", "tenant", "name", unique=True, sqlite_where=_LIVE, postgresql_where=_LIVE),
    )


tools = _registry("tools")
agents = _registry("agents")

secrets = Table(
    "secrets",
    SCHEMA,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("ciphertext", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

store_items = Table(
    "store_items",
    SCHEMA,
    Column("tenant", Text, primary_key=True),
    Column("namespace", BYTEWISE, primary_key=True),  # labels, each with the separator behind it: `a.b.`
    Column("key", Text, primary_key=True),
    Column("id", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("size", BigInteger, nullable=False),  # bytes of the value
    Column("fields", BigInteger, nullable=False),  # how many it has
    Column("value", Text, nullable=False),  # late: SQLite reads a long row from its front
    Index("ix_store_items_id", "id", unique=True),
    Index("ix_store_items_tenant", "tenant", "id"),
    Index("ix_store_items_expires", "expires_at", sqlite_where=_EXPIRES, postgresql_where=_EXPIRES),
)

store_fields = Table(
    "store_fields",
    SCHEMA,
    Column("tenant", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", Text, primary_key=True),  # as JSON, the same for equal values; long ones by hash
    Column("namespace", BYTEWISE, primary_key=True),
    Column("item_id", Text, primary_key=True),
    Index("ix_store_fields_item", "item_id"),
)

idempotency = Table(
    "idempotency",
    SCHEMA,
    Column("tenant", Text, primary_key=True),
    Column("route", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("body_sha256", Text, nullable=False),
    Column("resource_id", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Index("ix_idempotency_created", "created_at"),
)
