"""What a call was sent where that is not what the model asked for, and the tool's version that an approval is for."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tool_calls", sa.Column("sent_input", sa.Text))
    op.add_column("tool_calls", sa.Column("asked_version", sa.BigInteger))


def downgrade() -> None:
    op.drop_column("tool_calls", "asked_version")
    op.drop_column("tool_calls", "sent_input")
