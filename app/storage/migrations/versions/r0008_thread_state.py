"""State fields beside messages, listed threads and their labels, runs that wait for their thread."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_LISTED = sa.text("listed = 1")
_QUEUED = sa.text("queued IS NOT NULL")


def upgrade() -> None:
    op.add_column("checkpoints", sa.Column("field_updates", sa.Text))
    op.add_column("checkpoints", sa.Column("field_values", sa.Text))
    op.add_column("checkpoints", sa.Column("source", sa.Text))
    op.add_column("runs", sa.Column("queued", sa.Text))
    op.add_column("runs", sa.Column("displaced", sa.Text))
    op.add_column("tool_calls", sa.Column("command", sa.Text))
    op.create_table(
        "thread_metadata",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, primary_key=True),
        sa.Column("thread_id", sa.Text, primary_key=True),
    )
    op.create_index("ix_thread_metadata_thread", "thread_metadata", ["thread_id"])
    op.create_index("ix_threads_listed", "threads", ["tenant", "id"], sqlite_where=_LISTED, postgresql_where=_LISTED)
    op.create_index("ix_runs_queued", "runs", ["thread_id", "id"], sqlite_where=_QUEUED, postgresql_where=_QUEUED)


def downgrade() -> None:
    op.drop_index("ix_runs_queued", "runs")
    op.drop_index("ix_threads_listed", "threads")
    op.drop_table("thread_metadata")
    op.drop_column("tool_calls", "command")
    op.drop_column("runs", "displaced")
    op.drop_column("runs", "queued")
    op.drop_column("checkpoints", "source")
    op.drop_column("checkpoints", "field_values")
    op.drop_column("checkpoints", "field_updates")
