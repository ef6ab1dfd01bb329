"""Whole results that were too long to be shown, and what was found out later about calls of unknown outcome."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tool_calls", sa.Column("reconciled", sa.Text(), nullable=True))
    op.create_table(
        "tool_results",
        sa.Column("tool_call_id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("content_type", sa.Text(), nullable=False),
        sa.Column("complete", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("tool_call_id"),
    )
    op.create_index("ix_tool_results_run", "tool_results", ["run_id"])


def downgrade() -> None:
    op.drop_table("tool_results")
    op.drop_column("tool_calls", "reconciled")
