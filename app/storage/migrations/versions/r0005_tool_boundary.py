"""Switches that stop tool calls, rotated signing secrets, and indexes for the audit of calls."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tool_switches",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("disabled_by", sa.Text(), nullable=False),
        sa.Column("disabled_at", sa.BigInteger(), nullable=False),
        sa.Column("lifted_by", sa.Text(), nullable=True),
        sa.Column("lifted_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    off = sa.text("lifted_at IS NULL")
    op.create_index("ix_tool_switches_name", "tool_switches", ["tenant", "name", "id"])
    op.create_index(
        "ix_tool_switches_in_force",
        "tool_switches",
        ["tenant", "name"],
        unique=True,
        sqlite_where=off,
        postgresql_where=off,
    )
    op.create_table(
        "tool_signing",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("tenant", "family", "version"),
    )
    expires = sa.text("expires_at IS NOT NULL")
    op.create_index(
        "ix_tool_signing_expires", "tool_signing", ["expires_at"], sqlite_where=expires, postgresql_where=expires
    )
    unsuccessful = sa.text("status <> 'success'")
    op.create_index("ix_tool_calls_tenant", "tool_calls", ["tenant", "id"])
    op.create_index("ix_tool_calls_tool", "tool_calls", ["tenant", "tool", "id"])
    op.create_index("ix_tool_calls_thread", "tool_calls", ["thread_id", "id"])
    op.create_index(
        "ix_tool_calls_unsuccessful",
        "tool_calls",
        ["tenant", "status", "id"],
        sqlite_where=unsuccessful,
        postgresql_where=unsuccessful,
    )


def downgrade() -> None:
    for index in ("unsuccessful", "thread", "tool", "tenant"):
        op.drop_index(f"ix_tool_calls_{index}", "tool_calls")
    op.drop_table("tool_signing")
    op.drop_table("tool_switches")
