"""Calls that wait for an answer, the questions asked for them, and runs that are let go meanwhile."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("parked", sa.Text))
    op.add_column("tool_calls", sa.Column("wait", sa.Text))
    op.add_column("tool_calls", sa.Column("wait_until", sa.BigInteger))
    op.add_column("tool_calls", sa.Column("answer", sa.Text))
    op.add_column("tool_calls", sa.Column("late_result", sa.Text))
    op.create_table(
        "interrupts",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("tool_call_id", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("shown", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("answer", sa.Text),
        sa.Column("answered_by", sa.Text),
        sa.Column("answered_at", sa.BigInteger),
    )
    op.create_index("ix_interrupts_run", "interrupts", ["run_id", "created_at"])


def downgrade() -> None:
    op.drop_table("interrupts")
    op.drop_column("tool_calls", "late_result")
    op.drop_column("tool_calls", "answer")
    op.drop_column("tool_calls", "wait_until")
    op.drop_column("tool_calls", "wait")
    op.drop_column("runs", "parked")
