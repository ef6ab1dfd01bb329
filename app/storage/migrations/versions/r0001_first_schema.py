"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "agents",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("live", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "name", "version"),
    )
    op.create_index(
        "ix_agents_live",
        "agents",
        ["tenant", "name"],
        unique=True,
        sqlite_where=sa.text("live = 1"),
        postgresql_where=sa.text("live = 1"),
    )
    op.create_table(
        "checkpoints",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("parent_id", sa.Text(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("depth", sa.BigInteger(), nullable=False),
        sa.Column("messages", sa.BigInteger(), nullable=False),
        sa.Column("snapshot_depth", sa.BigInteger(), nullable=False),
        sa.Column("snapshot_bytes", sa.BigInteger(), nullable=False),
        sa.Column("delta_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("delta", sa.Text(), nullable=False),
        sa.Column("snapshot", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_checkpoints_thread", "checkpoints", ["thread_id", "depth"], unique=False)
    op.create_table(
        "idempotency",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("route", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("body_sha256", sa.Text(), nullable=False),
        sa.Column("resource_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "route", "key"),
    )
    op.create_index("ix_idempotency_created", "idempotency", ["created_at"], unique=False)
    op.create_table(
        "journal",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("first_seq", sa.BigInteger(), nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("idx", sa.Text(), nullable=False),
        sa.Column("wire", sa.LargeBinary(), nullable=False),
        sa.Column("private", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "batch"),
    )
    op.create_index("ix_journal_seq", "journal", ["run_id", "last_seq"], unique=False)
    op.create_table(
        "run_metadata",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "key", "value", "run_id"),
    )
    op.create_index("ix_run_metadata_run", "run_metadata", ["run_id"], unique=False)
    op.create_table(
        "runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=True),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("input", sa.Text(), nullable=False),
        sa.Column("context", sa.Text(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=True),
        sa.Column("on_disconnect", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("stop_reason", sa.Text(), nullable=True),
        sa.Column("output", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("interrupts", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("heartbeat", sa.BigInteger(), nullable=False),
        sa.Column("cancel_requested", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("active_ms", sa.BigInteger(), nullable=False),
        sa.Column("base_checkpoint_id", sa.Text(), nullable=True),
        sa.Column("checkpoint_id", sa.Text(), nullable=True),
        sa.Column("before", sa.BigInteger(), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("batches", sa.BigInteger(), nullable=False),
        sa.Column("iterations", sa.BigInteger(), nullable=False),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("usage", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "ix_runs_active",
        "runs",
        ["id"],
        unique=False,
        sqlite_where=sa.text("finished_at IS NULL"),
        postgresql_where=sa.text("finished_at IS NULL"),
    )
    op.create_index("ix_runs_tenant", "runs", ["tenant", "id"], unique=False)
    op.create_index("ix_runs_thread", "runs", ["thread_id", "id"], unique=False)
    op.create_table(
        "secrets",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "threads",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("listed", sa.Integer(), nullable=False),
        sa.Column("head_checkpoint_id", sa.Text(), nullable=True),
        sa.Column("active_run_id", sa.Text(), nullable=True),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "tool_calls",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("thread_id", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("iteration", sa.BigInteger(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("tool_input", sa.Text(), nullable=False),
        sa.Column("log", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("provider_call_id", sa.Text(), nullable=True),
        sa.Column("refusal", sa.Text(), nullable=True),
        sa.Column("tool_version", sa.BigInteger(), nullable=True),
        sa.Column("effect", sa.Text(), nullable=True),
        sa.Column("arguments_sha256", sa.Text(), nullable=True),
        sa.Column("idempotency_key", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("token_sha256", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=True),
        sa.Column("observation", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("envelope", sa.Text(), nullable=True),
        sa.Column("attempt_log", sa.Text(), nullable=False),
        sa.Column("chain", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("duration_ms", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_tool_calls_step", "tool_calls", ["run_id", "step"], unique=True)
    op.create_table(
        "tools",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("live", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "name", "version"),
    )
    op.create_index(
        "ix_tools_live",
        "tools",
        ["tenant", "name"],
        unique=True,
        sqlite_where=sa.text("live = 1"),
        postgresql_where=sa.text("live = 1"),
    )


def downgrade() -> None:
    op.drop_table("tools")
    op.drop_table("tool_calls")
    op.drop_table("threads")
    op.drop_table("secrets")
    op.drop_table("runs")
    op.drop_table("run_metadata")
    op.drop_table("journal")
    op.drop_table("idempotency")
    op.drop_table("checkpoints")
    op.drop_table("agents")
