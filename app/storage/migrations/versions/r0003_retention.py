"""Indexes for what retention looks for: finished runs, unlisted threads, runs with secrets of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    finished = sa.text("finished_at IS NOT NULL")
    op.create_index("ix_runs_finished", "runs", ["finished_at"], sqlite_where=finished, postgresql_where=finished)
    op.create_index(
        "ix_runs_secrets",
        "runs",
        ["id"],
        sqlite_where=sa.text("""instr(spec, '"secret_ref"') > 0"""),
        postgresql_where=sa.text("""strpos(spec, '"secret_ref"') > 0"""),
    )
    unlisted = sa.text("listed = 0")
    op.create_index("ix_threads_unlisted", "threads", ["created_at"], sqlite_where=unlisted, postgresql_where=unlisted)


def downgrade() -> None:
    op.drop_index("ix_threads_unlisted", "threads")
    op.drop_index("ix_runs_secrets", "runs")
    op.drop_index("ix_runs_finished", "runs")
