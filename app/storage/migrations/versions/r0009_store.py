"""The store: items by namespace and key, and the fields of their values."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_BYTEWISE = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_EXPIRES = sa.text("expires_at IS NOT NULL")


def upgrade() -> None:
    op.create_table(
        "store_items",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("namespace", _BYTEWISE, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("fields", sa.BigInteger, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_index("ix_store_items_id", "store_items", ["id"], unique=True)
    op.create_index("ix_store_items_tenant", "store_items", ["tenant", "id"])
    op.create_index(
        "ix_store_items_expires", "store_items", ["expires_at"], sqlite_where=_EXPIRES, postgresql_where=_EXPIRES
    )
    op.create_table(
        "store_fields",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, primary_key=True),
        sa.Column("namespace", _BYTEWISE, primary_key=True),
        sa.Column("item_id", sa.Text, primary_key=True),
    )
    op.create_index("ix_store_fields_item", "store_fields", ["item_id"])


def downgrade() -> None:
    op.drop_table("store_fields")
    op.drop_table("store_items")
