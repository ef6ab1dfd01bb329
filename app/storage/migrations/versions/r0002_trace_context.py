"""The caller's trace context, kept with its run."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("traceparent", sa.Text(), nullable=True))
    op.add_column("runs", sa.Column("tracestate", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("runs", "tracestate")
    op.drop_column("runs", "traceparent")
